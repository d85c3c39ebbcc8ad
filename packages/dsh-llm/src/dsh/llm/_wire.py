"""The two directions between values and their camelCase wire form."""

from __future__ import annotations

from collections.abc import Hashable
from functools import cache
from typing import TYPE_CHECKING, Any, TypeGuard, TypeVar, cast

from pydantic_core import ValidationError
from typing_extensions import TypeForm

from dsh.core import JsonObject, NotJsonError
from dsh.core.vocabulary import adapter_of
from dsh.llm._chunks import StreamChunk
from dsh.llm._content import ContentBlock
from dsh.llm._encode import encode
from dsh.llm._wire_value import WireUnion
from dsh.llm.errors import LlmError

if TYPE_CHECKING:
    from pydantic import TypeAdapter

T = TypeVar("T")


def to_wire(value: object) -> JsonObject:
    """Return the wire form of a value of this package as a new JSON object.

    Keys are camelCase, kinds are strings under `type` or `kind`, absent fields are left out.
    Objects inside it that are JSON already (schemas, replay states) are shared, not copied.

    Raises:
        TypeError: It is no value with a wire form.
        NotJsonError: JSON_TOO_DEEP, if tool results are nested beyond all reason.
    """
    try:
        return encode(value)
    except RecursionError:
        raise NotJsonError(
            f"{type(value).__name__} is nested too deeply for its wire form",
            code=NotJsonError.TOO_DEEP,
        ) from None


def from_wire(kind: TypeForm[T], value: object) -> T:
    """Return the value that a wire form stands for.

    Args:
        kind: A class of this package, a declared block, the union `StreamChunk`, or what pydantic
            makes of them, such as `tuple[Message, ...]`.
        value: The wire form, as `dsh.core.json.loads` returns it.

    Raises:
        LlmError: INVALID_WIRE, with every place that does not fit. A key this version does not
            know does not fit either, since dropping it would lose something.
    """
    return cast("T", _read(_adapter_for(kind), kind, value))


def block_from_wire(value: object) -> ContentBlock:
    """Return the content block that a wire form stands for.

    Raises:
        LlmError: As `from_wire` does.
    """
    return cast("ContentBlock", _read(adapter_of(ContentBlock), ContentBlock, value))


def chunk_from_wire(value: object) -> StreamChunk:
    """Return the chunk that a wire form stands for.

    Raises:
        LlmError: As `from_wire` does.
    """
    return cast("StreamChunk", _read(_chunks(), StreamChunk, value))


def _read(adapter: TypeAdapter[Any], kind: object, value: object) -> object:
    try:
        return adapter.validate_python(value)
    except ValidationError as error:
        places = "; ".join(
            f"{'.'.join(str(part) for part in issue['loc']) or 'value'}: {issue['msg']}"
            for issue in error.errors(include_url=False, include_context=False, include_input=False)
        )
        raise LlmError(
            f"this is not the wire form of {_name(kind)}: {places}", code=LlmError.INVALID_WIRE
        ) from error


def _adapter_for(kind: object) -> TypeAdapter[Any]:
    if _is_block(kind):
        # kept on the class: the cache below would keep the classes of unloaded plugins
        return adapter_of(kind)
    return _adapter(kind)


def _is_block(kind: object) -> TypeGuard[type[ContentBlock]]:
    return isinstance(kind, type) and issubclass(kind, ContentBlock)


@cache
def _adapter(kind: Hashable) -> TypeAdapter[Any]:
    # Building schemas takes milliseconds, so a program that never loads anything does not.
    from pydantic import TypeAdapter

    form: Any = kind
    return TypeAdapter(form)


# What is read in bulk has a cache of its own: hashing a union costs as much as reading.
@cache
def _chunks() -> TypeAdapter[Any]:
    return _adapter(StreamChunk)


def _name(kind: Any) -> str:
    for mark in getattr(kind, "__metadata__", ()):
        if isinstance(mark, WireUnion):
            return mark.family
    return str(getattr(kind, "__name__", kind))
