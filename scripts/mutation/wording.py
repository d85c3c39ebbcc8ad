"""The changes that mean nothing anywhere, so that no mutant is made of them.

The wording of texts for people, what is logged, types and cases that stand there for the type
checker only, and `None` where a variable was set to `False`.
"""

from __future__ import annotations

import ast
import re

_PROSE = re.compile(r"[^\W\d_].*\s|\s.*[^\W\d_]", re.DOTALL)
_FALSE = re.compile(r"[^=!<>]= False;?$")
_NONE = re.compile(r"[^=!<>]= None;?$")
_CAST = re.compile(r"""cast\((None|"[^"]*")""")
_TEXT = re.compile(r"""(\w+=)?f".*",?$""")
_LOG = re.compile(r"(\w+\.)*_?log(ger)?\.(debug|info|warning|error|exception|critical|log)$")
_TYPING = {"cast", "TypeVar", "NewType", "assert_type"}


def is_meaningless(before: str, after: str) -> bool:
    """Return whether a change can be told by nobody, so that it need not be made.

    Args:
        before: A string literal, a call or an assignment.
        after: What is in its place.
    """
    if _FALSE.search(before) and _NONE.search(after):
        return True
    old, new = _parse(before), _parse(after)
    if old is None:
        return False
    if isinstance(old, ast.Call) and isinstance(new, ast.Call):
        return _is_call_meaningless(old, new)
    return _is_prose(old)


def is_meaningless_line(before: str, after: str) -> bool:
    """Return whether a change is one of those that show only in the lines around the expression.

    Args:
        before: The lines that are changed, stripped.
        after: The lines in their place, stripped.
    """
    if (before, after) == ("case _:\npass", ""):
        return True
    if _CAST.search(before) and _CAST.sub("cast(", before) == _CAST.sub("cast(", after):
        return True
    return bool(_TEXT.match(before) and _TEXT.match(after) and _PROSE.search(before))


def _parse(code: str) -> ast.expr | None:
    try:
        return ast.parse(code.strip(), mode="eval").body
    except SyntaxError:
        return None


def _is_call_meaningless(old: ast.Call, new: ast.Call) -> bool:
    """Return whether a text became `None`, or an optional one is gone, or the type of a cast."""
    if ast.dump(old.func) != ast.dump(new.func):
        return False
    if _LOG.match(ast.unparse(old.func)):
        return True
    if len(old.keywords) == len(new.keywords) + 1 and len(old.args) == len(new.args):
        left = {keyword.arg for keyword in new.keywords}
        return any(_is_prose(word.value) for word in old.keywords if word.arg not in left)
    before, after = _values(old), _values(new)
    if len(before) != len(after) or len(old.args) != len(new.args):
        return False
    pairs = enumerate(zip(before, after, strict=True))
    changed = [place for place, (one, other) in pairs if ast.dump(one) != ast.dump(other)]
    if len(changed) != 1 or not _is_none(after[changed[0]]):
        return False
    return _is_prose(before[changed[0]]) or (changed == [0] and _is_typing(old.func))


def _values(call: ast.Call) -> list[ast.expr]:
    return [*call.args, *(keyword.value for keyword in call.keywords)]


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _is_typing(function: ast.expr) -> bool:
    name = function.attr if isinstance(function, ast.Attribute) else function
    return (name.id if isinstance(name, ast.Name) else name) in _TYPING


def _is_prose(node: ast.expr) -> bool:
    """Return whether a literal is a text of words, not a name, a key or a separator."""
    if isinstance(node, ast.JoinedStr):
        return any(_is_prose(part) for part in node.values)
    return (
        isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and bool(_PROSE.search(node.value))
    )
