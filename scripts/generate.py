"""Writes the catalog in docs/catalog from the sources, or checks that it is up to date.

Usage: `python scripts/generate.py [--check] [--only PAGE ...] [ROOT]`. With `--check` nothing is
written: what differs is shown and the exit code is 1. A declaration that would leave a hole in
the catalog is a finding either way.
"""

from __future__ import annotations

import difflib
import importlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from catalog.markdown import COMMAND
from catalog.model import load_workspace
from catalog.shapes import Workspace
from command_line import gate_parser

ROOT = Path(__file__).resolve().parents[1]
FOLDER = "docs/catalog"
DIFF_LINES = 60
"""How much of the difference is shown for one page."""

Render = Callable[[Workspace], str]

PAGES: dict[str, str] = {
    "README.md": "catalog.index_page",
    "a-turn.md": "catalog.recorded_turn",
    "classes-and-functions.md": "catalog.classes_page",
    "config.md": "catalog.config_page",
    "data-structures.md": "catalog.data_page",
    "dsh.schema.json": "catalog.config_page:render_schema",
    "errors.md": "catalog.errors_page",
    "events-and-services.md": "catalog.events_page",
    "events-map.md": "catalog.graphs:render_events_map",
    "kernel-api.md": "catalog.kernel_page",
    "modules.md": "catalog.modules_page",
    "seams.md": "catalog.graphs:render_seams",
    "session-events.md": "catalog.session_page",
    "tools.md": "catalog.tools_page",
    "wheels.md": "catalog.graphs:render_wheels",
}
"""File in docs/catalog and the module that makes it: `module`, or `module:function`."""


def load_page(where: str) -> Render:
    """Return the function that renders a page.

    Args:
        where: `module` for its `render`, or `module:function`.
    """
    module, _, name = where.partition(":")
    render: Render = getattr(importlib.import_module(module), name or "render")
    return render


def render_all(
    workspace: Workspace, pages: Mapping[str, str], findings: list[str]
) -> dict[str, str]:
    """Return the text of each page. A page that cannot be made is a finding.

    Args:
        workspace: What the pages are made from.
        pages: As `PAGES`.
        findings: Where to note what went wrong.
    """
    texts: dict[str, str] = {}
    for file, where in sorted(pages.items()):
        try:
            texts[file] = load_page(where)(workspace)
        except (ModuleNotFoundError, ValueError) as error:
            findings.append(f"{FOLDER}/{file}: {where} cannot make it: {error}")
    return texts


def differences(folder: Path, texts: Mapping[str, str]) -> Iterator[str]:
    """Yield what is out of date, one finding with its diff for each page."""
    for file, text in texts.items():
        path = folder / file
        old = path.read_text(encoding="utf-8") if path.is_file() else ""
        if old != text:
            yield f"{FOLDER}/{file} {_state(path)}:\n{_diff(file, old, text)}"


def _state(path: Path) -> str:
    return "is out of date" if path.is_file() else "is missing"


def _diff(file: str, old: str, new: str) -> str:
    name = f"{FOLDER}/{file}"
    lines = list(
        difflib.unified_diff(
            old.splitlines(), new.splitlines(), name, f"{name} (from the sources)", lineterm="", n=2
        )
    )
    if len(lines) > DIFF_LINES:
        lines = [*lines[:DIFF_LINES], f"... and {len(lines) - DIFF_LINES} more lines"]
    return "\n".join(lines)


def strays(folder: Path, pages: Mapping[str, str]) -> list[Path]:
    """Return the files of the folder that no page makes."""
    if not folder.is_dir():
        return []
    found = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return [path for path in found if path.relative_to(folder).as_posix() not in pages]


def main(argv: Sequence[str], pages: Mapping[str, str] = PAGES) -> int:
    """Write or check the pages.

    Args:
        argv: Arguments of the command.
        pages: Which pages there are.

    Returns:
        0 if there is nothing to say, else 1.
    """
    parser = gate_parser(__doc__, ROOT)
    parser.add_argument("--check", action="store_true", help="write nothing, compare")
    parser.add_argument("--only", action="append", metavar="PAGE", help="this page alone")
    options = parser.parse_args(argv)
    unknown = [file for file in options.only or () if file not in pages]
    if unknown:
        parser.error(f"no page {', '.join(unknown)}; there are {', '.join(sorted(pages))}")
    chosen = {file: where for file, where in pages.items() if file in (options.only or pages)}
    root: Path = options.root
    workspace = load_workspace(root)
    findings = [str(problem) for problem in workspace.problems]
    texts = render_all(workspace, chosen, findings)
    folder = root / FOLDER
    for path in strays(folder, pages):
        name = path.relative_to(folder).as_posix()
        findings.append(f"{FOLDER}/{name}: no page of scripts/generate.py makes it; delete it")
    if options.check:
        stale = list(differences(folder, texts))
        findings += [*stale, f"run: {COMMAND}"] if stale else []
    else:
        write(folder, texts)
    done = f"{FOLDER}: {len(texts)} pages {'are up to date' if options.check else 'written'}"
    sys.stdout.write("\n".join(findings or [done]) + "\n")
    return 1 if findings else 0


def write(folder: Path, texts: Mapping[str, str]) -> None:
    """Write the pages that differ from what is there."""
    folder.mkdir(parents=True, exist_ok=True)
    for file, text in texts.items():
        path = folder / file
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8", newline="\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
