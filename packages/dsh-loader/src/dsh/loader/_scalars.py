"""Plain scalars of YAML 1.2 (core schema), read without a YAML library."""

from __future__ import annotations

import re
from typing import Final

from dsh.core.json import MAX_INTEGER, JsonValue

_NULLS: Final = frozenset({"", "~", "null", "Null", "NULL"})
_TRUES: Final = frozenset({"true", "True", "TRUE"})
_FALSES: Final = frozenset({"false", "False", "FALSE"})
_INTEGER: Final = re.compile(r"[-+]?[0-9]+")
_OCTAL: Final = re.compile(r"0o[0-7]+")
_HEXADECIMAL: Final = re.compile(r"0x[0-9a-fA-F]+")
_FLOAT: Final = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_NON_FINITE: Final = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_LONGEST_NUMBER: Final = 400

_SIMPLE: Final = re.compile(r"[A-Za-z0-9_./+$~-][A-Za-z0-9_./+@$~-]*(?::[A-Za-z0-9_./+@$~-]+)*")
"""Texts that are one plain scalar in every YAML reader: no space, quote, bracket or `: `."""


def resolve_plain(text: str) -> JsonValue:
    """Return the JSON value a plain scalar stands for.

    `yes`, `no`, `on` and `off` are strings, as YAML 1.2 has it; dates are strings, because JSON
    has no dates.

    Raises:
        ValueError: The number is not finite or not exact in JSON.
    """
    if text in _NULLS:
        return None
    if text in _TRUES:
        return True
    if text in _FALSES:
        return False
    if _NON_FINITE.fullmatch(text):
        raise ValueError(f"{text} is not a JSON number; quote it if it is a string")
    if len(text) <= _LONGEST_NUMBER:
        return _number(text)
    return text


def is_simple(text: str) -> bool:
    """Whether `text` is one plain scalar, so that no YAML reader is needed for it."""
    return _SIMPLE.fullmatch(text) is not None and not text.startswith(("---", "- ", "..."))


def _number(text: str) -> JsonValue:
    value: int | float
    if _INTEGER.fullmatch(text):
        value = int(text)
    elif _OCTAL.fullmatch(text):
        value = int(text[2:], 8)
    elif _HEXADECIMAL.fullmatch(text):
        value = int(text[2:], 16)
    elif _FLOAT.fullmatch(text):
        value = float(text)
        if value in (float("inf"), float("-inf")):
            raise ValueError(f"{text} is too large for a JSON number; quote it if it is a string")
        return value
    else:
        return text
    if abs(value) > MAX_INTEGER:
        raise ValueError(f"{text} is beyond 2^53; quote it if it is a string")
    return value
