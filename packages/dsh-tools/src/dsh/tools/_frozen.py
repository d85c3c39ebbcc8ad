"""Outcomes nobody can change: what observers of a call are shown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import cast

from dsh.agent import HookContext
from dsh.core import JsonObject, JsonValue
from dsh.llm import ContentBlock, ToolResultBlock, UnknownBlock
from dsh.session import OtherSource
from dsh.session import freeze as detach
from dsh.tools._results import ToolExecutionResult

__all__ = ["FrozenObject", "frozen_result"]


class FrozenObject(dict[str, JsonValue]):
    """A JSON object that refuses to be changed; `dict(frozen)` is a copy that does not."""

    __slots__ = ()


def _refuse(self: object, *args: object, **kwargs: object) -> None:
    raise TypeError("this object belongs to everybody and cannot be changed; copy it first")


for _name in ("setitem", "delitem", "ior"):
    setattr(FrozenObject, f"__{_name}__", _refuse)
for _name in ("clear", "pop", "popitem", "setdefault", "update"):
    setattr(FrozenObject, _name, _refuse)


def freeze(value: JsonValue) -> JsonValue:
    """Return an immutable copy of a JSON value of bounded depth; lists become tuples."""
    if isinstance(value, dict):
        return FrozenObject({key: freeze(item) for key, item in value.items()})
    if isinstance(value, list):
        return cast("JsonValue", tuple(freeze(item) for item in value))
    return value


def frozen_result(result: ToolExecutionResult) -> ToolExecutionResult:
    """Return a copy of a checked result that is immutable through and through."""
    return replace(
        result,
        content=_content(result.content),
        additional_context=tuple(_context(context) for context in result.additional_context),
        meta=None if result.meta is None else _object(result.meta),
    )


def _content(content: Sequence[ContentBlock]) -> tuple[ContentBlock, ...]:
    return tuple(_block(block) for block in content)


def _block(block: ContentBlock) -> ContentBlock:
    if isinstance(block, UnknownBlock):
        return UnknownBlock(block.type, _object(block.data))
    if isinstance(block, ToolResultBlock):
        return replace(block, content=_content(block.content))
    # a declared block may hold objects and lists; of a known one this returns the very same
    return detach(block, where=block.type)


def _context(context: HookContext) -> HookContext:
    source = context.source
    if isinstance(source, OtherSource):
        source = OtherSource(source.kind, _object(cast("JsonObject", source.data)))
    else:
        source = detach(source, where=source.kind)
    return HookContext(_content(context.content), source)


def _object(value: JsonObject) -> JsonObject:
    return cast("JsonObject", freeze(dict(value)))
