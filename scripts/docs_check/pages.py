"""Which pages there are, and whether a reader can get to them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from docs_check.blocks import Page, Problem
from docs_check.links import links

_NAMED = re.compile(r"\bdocs/[\w./-]*\.(?:md|json)\b")


def find_pages(root: Path) -> list[Path]:
    """Return every page that is checked, sorted."""
    found = [*root.glob("*.md"), *root.glob("docs/**/*.md"), *root.glob("benchmarks/*.md")]
    found += [*root.glob("packages/*/README.md"), *root.glob("apps/*/README.md")]
    found += root.glob("examples/**/README.md")
    return sorted(found)


def check_reachable(root: Path, pages: Mapping[Path, Page]) -> Iterator[Problem]:
    """Yield the pages of `docs/` that no chain of links from `docs/README.md` leads to."""
    ours = [path for path in pages if path.is_relative_to(root / "docs")]
    start = root / "docs" / "README.md"
    if not ours:
        return
    if start not in pages:
        yield Problem(start, 0, "missing: the index of the documentation")
        return
    seen = {start}
    pending = [start]
    while pending:
        page = pages[pending.pop()]
        for link in links(page):
            goal = link.goal
            if goal is None:
                continue
            if goal.is_dir():
                goal /= "README.md"
            if goal in pages and goal not in seen:
                seen.add(goal)
                pending.append(goal)
    for path in ours:
        if path not in seen:
            yield Problem(path, 0, "no chain of links from docs/README.md leads here")


def check_docstrings(root: Path) -> Iterator[Problem]:
    """Yield the files below `docs/` that a docstring names and that do not exist."""
    sources = [*root.glob("packages/*/src/**/*.py"), *root.glob("apps/*/src/**/*.py")]
    for source in sorted([*sources, *root.glob("scripts/**/*.py")]):
        text = source.read_text(encoding="utf-8")
        if "docs/" not in text:
            continue
        for node in ast.walk(ast.parse(text)):
            if not isinstance(node, ast.Expr) or not isinstance(node.value, ast.Constant):
                continue
            if not isinstance(node.value.value, str):
                continue
            for name in sorted(set(_NAMED.findall(node.value.value))):
                if not (root / name).exists():
                    yield Problem(source, node.lineno, f"names {name}, which does not exist")
