"""Whether a value can still change."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from types import MappingProxyType
from typing import Any, Final, cast

__all__ = ["mutable_part"]

_SCALARS: Final = frozenset({str, int, float, bool, type(None), bytes})


def mutable_part(value: object, path: str) -> str | None:
    """Return the path of the first part that can be changed in place, or None.

    Frozen dataclasses, tuples and scalars cannot change; neither can a subclass of dict or list
    that takes the mutators away. Fields that do not take part in comparison are no data.
    """
    stack: list[tuple[str, object]] = [(path, value)]
    seen: set[int] = set()
    while stack:
        here, item = stack.pop()
        if type(item) in _SCALARS or id(item) in seen:
            continue
        seen.add(id(item))
        parts = _parts(item)
        if parts is None:
            return here
        stack.extend((f"{here}{name}", part) for name, part in parts)
    return None


def _parts(item: object) -> Iterable[tuple[str, object]] | None:
    """Return what an immutable container holds, or None if it is mutable."""
    if is_dataclass(item) and not isinstance(item, type):
        if not cast("Any", item).__dataclass_params__.frozen:
            return None
        return [(f".{f.name}", getattr(item, f.name)) for f in fields(item) if f.compare]
    if isinstance(item, tuple | list):
        sequence = cast("list[object]", item)
        if not isinstance(item, tuple) and not _locked(sequence, list):
            return None
        return [(f"[{index}]", part) for index, part in enumerate(sequence)]
    if isinstance(item, Mapping):
        mapping = cast("Mapping[object, object]", item)
        if not isinstance(item, MappingProxyType) and not _locked(mapping, dict):
            return None
        return [(f".{key}", part) for key, part in mapping.items()]
    return None


def _locked(item: object, base: type) -> bool:
    """Whether a subclass of a mutable container refuses item assignment."""
    kind = type(item)
    return (
        issubclass(kind, base)
        and kind is not base
        and cast("Any", kind).__setitem__ is not cast("Any", base).__setitem__
    )
