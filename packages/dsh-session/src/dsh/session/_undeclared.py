"""Which words of a log no class stands for."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields, is_dataclass
from typing import Any, cast

from dsh.llm import UnknownBlock
from dsh.session._event import SessionEvent
from dsh.session._open_union import Undeclared
from dsh.session._session_data import UnknownData

__all__ = ["undeclared_kinds"]


def undeclared_kinds(events: Iterable[SessionEvent]) -> tuple[str, ...]:
    """Return what in a log was kept as it was written, because no imported wheel declares it.

    Kinds that are declared and did not fit, as when another version of a wheel wrote them, are
    among them.

    Args:
        events: The log, or a part of it.

    Returns:
        Vocabulary and tag of each, sorted: `block type acme/citation`, `turn trigger acme-poll`.
    """
    found: set[str] = set()
    for event in events:
        stack: list[object] = [event.data]
        while stack:
            item = stack.pop()
            if isinstance(item, UnknownData):
                found.add(f"event type {item.type}")
            elif isinstance(item, UnknownBlock):
                found.add(f"block type {item.type}")
            elif isinstance(item, Undeclared):
                found.add(f"{item.kinds.what} {item.kind}")
            elif isinstance(item, tuple):
                stack.extend(cast("tuple[object, ...]", item))
            elif is_dataclass(item):
                stack.extend(getattr(item, one.name) for one in fields(cast("Any", item)))
    return tuple(sorted(found))
