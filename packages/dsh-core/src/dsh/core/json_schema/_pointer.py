"""References inside a schema."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast
from urllib.parse import unquote

from dsh.core.json import JsonValue

__all__ = ["follow"]


def follow(root: Mapping[str, JsonValue], ref: str) -> JsonValue:
    """Return what a reference of the form `#` or `#/a/b/0` points at.

    Raises:
        LookupError: It points at nothing, or out of the schema.
    """
    start, *parts = ref.split("/")
    if start != "#":
        raise LookupError(ref)
    node = cast("JsonValue", root)
    for part in parts:
        key = unquote(part).replace("~1", "/").replace("~0", "~")
        if isinstance(node, Mapping):
            node = node[key]
        elif isinstance(node, list) and key.isdecimal() and len(key) < 10:
            node = node[int(key)]
        else:
            raise LookupError(ref)
    return node
