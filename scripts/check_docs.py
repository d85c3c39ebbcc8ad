"""Gate: what the documentation shows is true.

Blocks of a page are told apart by their info string:

- `python` runs; the blocks of one page share one process, in the order of the page, and are
  type-checked as one module. `python no-run` is type-checked only, each block by itself.
- `sh` is run by `bash -e -o pipefail`; `sh exit=2` expects that code; `sh no-run` is only parsed,
  for what needs a key, a network or a person.
- `text output`, right after a block that runs, is what it printed. A line `...` stands for any
  lines, `...` in a line for any text.
- any block with `file=PATH` is written to that path, before the blocks below it run.
- `yaml`, `toml`, `json` and `jsonl` have to parse; `yaml` with a `version` key has to be a
  deployment whose plugins are installed, or written on the page, and whose settings fit them
  (`yaml no-check` opts out).

A fence in a quote, behind a tab or beside the mark of a list item is refused: nothing reads it.

The blocks of a page run in a temporary folder that is also their home, without any key, with
`dsh`, `python`, `pytest` and `uv` on the path. A page with the line
`<!-- docs: own environment -->` gets a fresh virtual environment with the workspace's wheels,
pytest and hatchling, into which its blocks may install. Links, also those by a label or in HTML,
anchors and images lead somewhere, every page of `docs/` can be reached from its index, and what
docstrings name below `docs/` exists.

Usage: `python scripts/check_docs.py [--root ROOT] [--limit SECONDS] [FILE ...]`.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from docs_check.blocks import Page, Problem, read_page
from docs_check.data import check_data
from docs_check.environment import Environments
from docs_check.links import check_links
from docs_check.pages import check_docstrings, check_reachable, find_pages
from docs_check.pyright import check_types
from docs_check.runner import run_page

ROOT = Path(__file__).resolve().parent.parent
LIMIT_S = 180.0
"""Seconds that the blocks of one page may take."""
WORKERS = 2


def check_blocks(root: Path, pages: Sequence[Page], limit_s: float = LIMIT_S) -> list[Problem]:
    """Type-check and run the blocks of `pages`; return what does not hold."""
    with tempfile.TemporaryDirectory(prefix="dsh-docs-", ignore_cleanup_errors=True) as name:
        folder = Path(name).resolve()
        environments = Environments(root, folder)

        def run(number: int) -> list[Problem]:
            page = pages[number]
            place = folder / f"page{number}"
            place.mkdir()
            make = environments.own if page.own_environment else environments.shared
            found = run_page(page, lambda: make(place), limit_s)
            return [] if found is None else [found]

        def types(_: int) -> list[Problem]:
            place = folder / "types"
            place.mkdir()
            return list(check_types(pages, place))

        with ThreadPoolExecutor(max_workers=WORKERS) as pool:
            jobs = [pool.submit(types, 0)]
            jobs += [pool.submit(run, number) for number in range(len(pages))]
            return [problem for job in jobs for problem in job.result()]


def main(arguments: list[str] | None = None) -> int:
    """Check the pages named, or all."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE")
    parser.add_argument("--root", type=Path, default=ROOT)
    parser.add_argument("--limit", type=float, default=LIMIT_S, metavar="SECONDS")
    args = parser.parse_args(arguments)
    root = args.root.resolve()
    chosen = [path.resolve() for path in args.files] or find_pages(root)
    if not chosen:
        parser.error(f"--root {args.root}: no page is there to be checked")
    if missing := [str(path) for path in chosen if not path.is_file()]:
        parser.error(f"there is no page {', '.join(missing)}")
    pages = {path: read_page(path) for path in chosen}
    found = [problem for page in pages.values() for problem in page.problems]
    found += check_links(pages.values())
    unreadable = {page.path: list(check_data(page)) for page in pages.values()}
    found += [problem for problems in unreadable.values() for problem in problems]
    if not args.files:
        found += [*check_reachable(root, pages), *check_docstrings(root)]
    sound = [page for page in pages.values() if not unreadable[page.path]]
    found += check_blocks(root, sound, args.limit)
    for problem in sorted(found, key=lambda one: (one.path, one.line)):
        sys.stdout.write(f"{problem.show(root)}\n")
    blocks = sum(len(page.blocks) for page in pages.values())
    sys.stdout.write(f"docs: {len(pages)} pages, {blocks} blocks, {len(found)} problems\n")
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main())
