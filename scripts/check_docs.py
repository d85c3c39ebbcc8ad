"""Gate: what the documentation shows is true.

The `python` blocks of a README or of a page in `docs/` run one after the other in one process, in
a temporary folder, without a key; a block marked `python no-run` is only compiled. Every relative
link and anchor resolves.

Usage: `python scripts/check_docs.py [--root ROOT] [--limit SECONDS] [FILE ...]`.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LIMIT_S = 60.0
"""Seconds that the examples of one page may take."""
_PRIVATE = ("DSH_", "DEEPSEEK_")
_RUNNER = """\
import sys, types
module = sys.modules["examples"] = types.ModuleType("examples")
def run(where, code):
    exec(compile(code, where, "exec", dont_inherit=True), module.__dict__)
"""
_FENCE = re.compile(r"^```(?P<info>[^\n`]*)\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(?<!!)\[[^\]]*\]\((?P<target>[^)\s]+)\)")
_HEADING = re.compile(r"^#+ (?P<text>.+)$", re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """One fenced block of Python."""

    path: Path
    line: int
    code: str
    runs: bool

    @property
    def where(self) -> str:
        """Place of the block, for messages and tracebacks."""
        return f"{self.path}:{self.line}"


def pages(root: Path) -> list[Path]:
    """Return every page that is checked."""
    found = [*root.glob("*.md"), *root.glob("docs/**/*.md"), *root.glob("benchmarks/*.md")]
    found += [*root.glob("packages/*/README.md"), *root.glob("apps/*/README.md")]
    return sorted(found)


def blocks(path: Path) -> Iterator[Block]:
    """Yield the Python blocks of a page."""
    text = path.read_text(encoding="utf-8")
    for found in _FENCE.finditer(text):
        words = found["info"].split()
        if words and words[0] == "python":
            line = text.count("\n", 0, found.start()) + 2
            yield Block(path, line, found["code"], "no-run" not in words)


def check_blocks(every: list[Block], limit_s: float = LIMIT_S) -> str | None:
    """Compile the blocks of one page and run them in order; return what went wrong."""
    for block in every:
        try:
            compile(block.code, block.where, "exec", dont_inherit=True)
        except SyntaxError as error:
            return f"{block.where}: does not compile: {error}"
    script = _RUNNER + "".join(f"run({b.where!r}, {b.code!r})\n" for b in every if b.runs)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "examples.py"
        path.write_text(script, encoding="utf-8")
        environment = {k: v for k, v in os.environ.items() if not k.startswith(_PRIVATE)}
        environment |= {"HOME": folder, "DSH_HOME": folder}
        try:
            done = subprocess.run(
                [sys.executable, str(path)],
                cwd=folder,
                env=environment,
                capture_output=True,
                text=True,
                timeout=limit_s,
                stdin=subprocess.DEVNULL,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return f"{every[0].path}: its examples still run after {limit_s:g} s"
    if done.returncode != 0:
        return f"{every[0].path}: its examples exit {done.returncode}\n{done.stdout}{done.stderr}"
    return None


def anchors(path: Path) -> set[str]:
    """Return the anchors the headings of a page make."""
    text = _FENCE.sub("", path.read_text(encoding="utf-8"))
    slugs = (re.sub(r"[^\w\- ]", "", h["text"].lower()) for h in _HEADING.finditer(text))
    return {slug.strip().replace(" ", "-") for slug in slugs}


def check_links(path: Path) -> Iterator[str]:
    """Yield the links of a page that lead nowhere."""
    text = _FENCE.sub("", path.read_text(encoding="utf-8"))
    for found in _LINK.finditer(text):
        target, _, anchor = found["target"].partition("#")
        if re.match(r"[a-z]+:", target):
            continue
        goal = (path.parent / target).resolve() if target else path
        if not goal.exists():
            yield f"{path}: link to {target}, which does not exist"
        elif anchor and goal.suffix == ".md" and anchor not in anchors(goal):
            yield f"{path}: link to {found['target']}, which has no such heading"


def main(arguments: list[str] | None = None) -> int:
    """Check the pages named, or all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE")
    parser.add_argument("--root", type=Path, default=ROOT)
    parser.add_argument("--limit", type=float, default=LIMIT_S, metavar="SECONDS")
    args = parser.parse_args(arguments)
    chosen = [path.resolve() for path in args.files] or pages(args.root)
    found = [problem for path in chosen for problem in check_links(path)]
    grouped = [list(blocks(path)) for path in chosen]
    with ThreadPoolExecutor(max_workers=2) as pool:
        busy = [every for every in grouped if every]
        results = pool.map(partial(check_blocks, limit_s=args.limit), busy)
        found += [problem for problem in results if problem is not None]
    for problem in found:
        sys.stdout.write(f"{problem}\n")
    sys.stdout.write(
        f"docs: {len(chosen)} pages, {sum(map(len, grouped))} blocks, {len(found)} problems\n"
    )
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main())
