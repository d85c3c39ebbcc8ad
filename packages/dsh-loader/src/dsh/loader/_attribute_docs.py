"""The texts under the attributes of a class, read from its source."""

from __future__ import annotations

import ast
import inspect
import linecache
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import pairwise
from typing import Any


def attribute_docs(cls: type[Any]) -> dict[str, str]:
    """Return the text below each attribute of a class and its bases, the nearest class winning.

    A class whose source is not there, because it was made at run time for example, has none.

    Args:
        cls: Any class.
    """
    docs: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        docs.update(_own_docs(base))
    return docs


def reflow(text: str) -> str:
    """Return a docstring with the lines of each paragraph joined; indented lines stay lines."""
    paragraphs = inspect.cleandoc(text).split("\n\n")
    return "\n\n".join(_joined(paragraph.splitlines()) for paragraph in paragraphs).strip()


def _joined(lines: list[str]) -> str:
    if any(line.startswith((" ", "- ", "* ")) for line in lines):
        return "\n".join(lines)
    return " ".join(line.strip() for line in lines)


def _own_docs(cls: type[Any]) -> dict[str, str]:
    if cls.__module__ == "builtins":
        return {}
    try:
        file = inspect.getsourcefile(cls)
    except (OSError, TypeError):
        return {}
    tree = None if file is None else _parsed(file)
    if tree is None:
        return {}
    names = [part for part in cls.__qualname__.split(".") if part != "<locals>"]
    found = _find(tree.body, names)
    return {} if found is None else dict(_texts(found.body))


@lru_cache(maxsize=256)
def _parsed(file: str) -> ast.Module | None:
    try:
        return ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError):
        return None


def _find(body: Iterable[ast.stmt], names: list[str]) -> ast.ClassDef | None:
    """Return the last class at a dotted place: a later definition replaces an earlier one."""
    found: ast.ClassDef | None = None
    for node in body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            if node.name != names[0]:
                continue
            if len(names) > 1:
                found = _find(node.body, names[1:]) or found
            elif isinstance(node, ast.ClassDef):
                found = node
        else:  # a class may stand inside `if`, `try` or `with`
            inner = [child for child in ast.iter_child_nodes(node) if isinstance(child, ast.stmt)]
            found = _find(inner, names) or found
    return found


def _texts(body: list[ast.stmt]) -> Iterator[tuple[str, str]]:
    for node, following in pairwise(body):
        if (
            isinstance(node, ast.AnnAssign)
            and isinstance(node.target, ast.Name)
            and isinstance(following, ast.Expr)
            and isinstance(following.value, ast.Constant)
            and isinstance(following.value.value, str)
        ):
            yield node.target.id, reflow(following.value.value)
