"""From what a tool body returns to what the model reads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import is_dataclass
from functools import cache
from typing import Any, Final, cast

from pydantic import BaseModel, ConfigDict, TypeAdapter

from dsh.llm import ContentBlock, TextBlock
from dsh.tools._content import clean_content, clean_object
from dsh.tools._results import ToolOutput
from dsh.tools._text import readable
from dsh.tools.errors import ToolOutputError

__all__ = ["NO_OUTPUT", "to_output"]

NO_OUTPUT: Final = "(no output)"
"""What the model reads when a tool returns nothing, or an empty text."""

_CONTENT: Final = "content of a tool's output"


def to_output(value: object) -> ToolOutput:
    """Convert what a tool body returned to what can be logged and shown, and cannot change.

    A text, content blocks and a `ToolOutput` are taken as they are, None and the empty text become
    `NO_OUTPUT`, everything else becomes compact JSON. Registered secrets are masked.

    Raises:
        ToolOutputError: It has no JSON form, or the metadata is no JSON object.
    """
    if isinstance(value, ToolOutput):
        meta = None if value.meta is None else clean_object(value.meta, "meta")
        return ToolOutput(_blocks(value.content), meta)
    if value is None or (isinstance(value, str) and not value):
        return ToolOutput((TextBlock(NO_OUTPUT),))
    if isinstance(value, str):
        # exact str: the log takes no subclass, an enum's member for example
        return ToolOutput((TextBlock(readable(str.__str__(value))),))
    blocks = _as_blocks(value)
    return ToolOutput((TextBlock(_json(value)),) if blocks is None else _blocks(blocks))


def _as_blocks(value: object) -> tuple[ContentBlock, ...] | None:
    """Return a block, or several in a list, as content; None for anything else."""
    items = tuple(cast("Sequence[object]", value)) if isinstance(value, list | tuple) else (value,)
    # an empty list is data without entries, not content without blocks
    if items and all(isinstance(item, ContentBlock) for item in items):
        return cast("tuple[ContentBlock, ...]", items)
    return None


def _blocks(content: object) -> tuple[ContentBlock, ...]:
    if isinstance(content, str) or not isinstance(content, Iterable):
        raise ToolOutputError(
            f"{_CONTENT} is a {type(content).__name__}, not a sequence of content blocks"
        )
    return clean_content(tuple(cast("Iterable[object]", content)), _CONTENT)


@cache
def _anything() -> TypeAdapter[Any]:
    return TypeAdapter(Any, config=ConfigDict(ser_json_inf_nan="null"))


def _json(value: object) -> str:
    plain = isinstance(value, str | int | float | bool | list | tuple | set | frozenset | Mapping)
    if not plain and not isinstance(value, BaseModel) and not is_dataclass(value):
        # generators and files would be consumed by the encoder, functions make no sense
        raise ToolOutputError(
            f"a tool returned a {type(value).__name__}, which has no JSON form",
            hint="return a text, content blocks, JSON, a pydantic model or a ToolOutput",
        )
    try:
        return readable(_anything().dump_json(value).decode("utf-8"))
    except (ValueError, TypeError, RecursionError) as error:
        raise ToolOutputError(f"a tool's output has no JSON form: {error}") from error
