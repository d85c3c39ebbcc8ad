"""Where two events differ."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import zip_longest
from typing import Any, Final, cast

from dsh.core import JsonValue
from dsh.session import SessionEvent, event_to_wire
from dsh.sessions.replay._report import Divergence

__all__ = ["difference", "missing", "surplus"]

_ABSENT: Final = object()


def difference(recorded: SessionEvent, replayed: SessionEvent) -> Divergence | None:
    """Return where two events differ; when they were logged does not count."""
    if _same(recorded, replayed):
        return None
    old, new = _wire(recorded), _wire(replayed)
    found = _walk(old, new)
    if found is None:
        return None
    path, before, after = found
    return Divergence(replayed.seq, recorded.type, path, _value(before), _value(after))


def missing(seq: int, recorded: SessionEvent) -> Divergence:
    """Return the difference between an event and none."""
    return Divergence(seq, recorded.type, "", cast("JsonValue", _wire(recorded)), None)


def surplus(replayed: SessionEvent) -> Divergence:
    """Return the difference between no event and one."""
    return Divergence(replayed.seq, replayed.type, "", None, cast("JsonValue", _wire(replayed)))


def _same(recorded: SessionEvent, replayed: SessionEvent) -> bool:
    return (
        recorded.seq == replayed.seq
        and recorded.data == replayed.data
        and recorded.surface_op == replayed.surface_op
        and recorded.source_event_seqs == replayed.source_event_seqs
    )


def _wire(event: SessionEvent) -> dict[str, Any]:
    wire = event_to_wire(event)
    del wire["time"]
    return wire


def _walk(old: object, new: object, path: str = "") -> tuple[str, object, object] | None:
    """Return the first place where two JSON values differ, and both values there."""
    if type(old) is not type(new):
        # 1, 1.0 and true are three values in a log
        return path, old, new
    pairs: Iterable[tuple[str, object, object]]
    if type(old) is dict:
        pairs = _members(cast("dict[str, object]", old), cast("dict[str, object]", new), path)
    elif type(old) is list:
        pairs = _items(cast("list[object]", old), cast("list[object]", new), path)
    else:
        return None if old == new else (path, old, new)
    for inner, one, other in pairs:
        found = _walk(one, other, inner)
        if found is not None:
            return found
    return None


def _members(
    old: dict[str, object], new: dict[str, object], path: str
) -> Iterable[tuple[str, object, object]]:
    for key in (*old, *(key for key in new if key not in old)):
        yield f"{path}.{key}" if path else key, old.get(key, _ABSENT), new.get(key, _ABSENT)


def _items(old: list[object], new: list[object], path: str) -> Iterable[tuple[str, object, object]]:
    for index, (one, other) in enumerate(zip_longest(old, new, fillvalue=_ABSENT)):
        yield f"{path}[{index}]", one, other


def _value(value: object) -> JsonValue:
    return None if value is _ABSENT else cast("JsonValue", value)
