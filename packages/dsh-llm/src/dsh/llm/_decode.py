"""From the wire form to values: the pydantic schema of every type of this package.

The schemas are written out instead of derived from the annotations, since the wire differs from
the attributes in more than its spelling: kinds become a `type` key, absent fields are left out,
unknown kinds of blocks are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

from pydantic_core import CoreSchema, PydanticCustomError, ValidationError
from pydantic_core import core_schema as cs

from dsh.core import json as djson
from dsh.core.vocabulary import adapter_of
from dsh.llm._adapter import ModelInfo
from dsh.llm._chunks import (
    BlockEnd,
    BlockStart,
    Finish,
    FinishReason,
    LlmFailure,
    ReasoningDelta,
    TextDelta,
    TokenUsage,
    ToolCallDelta,
    UsageChunk,
)
from dsh.llm._content import (
    BLOCK_TYPES,
    ContentBlock,
    Message,
    ReasoningBlock,
    ReplayState,
    TextBlock,
    ToolCallBlock,
    ToolResultBlock,
    UnknownBlock,
)
from dsh.llm._encode import encode
from dsh.llm._request import LlmCallConfig, LlmRequest, ToolSchema

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler

_BLOCKS: Final = "dsh.llm.ContentBlock"
_FOREIGN: Final = "foreign block"


@dataclass(frozen=True, slots=True)
class _Field:
    """One key of a record on the wire."""

    key: str
    """Its name on the wire."""
    schema: CoreSchema
    optional: bool = False
    """Whether it may be absent; the attribute then has its default."""
    default: Any = None


def schema_of(cls: type) -> CoreSchema:
    """Return the schema of one class of this package, complete with what it refers to."""
    return _complete(_record(cls))


def block_schema(cls: type[ContentBlock], source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
    """Return the schema of all blocks, of one of ours, or of one that a wheel declared."""
    if cls is ContentBlock:
        return _complete(_reference())
    if cls is UnknownBlock:
        return _unknown()
    return schema_of(cls) if cls in _FIELDS else _declared(cls, handler(source))


def _declared(cls: type[ContentBlock], fields: CoreSchema) -> CoreSchema:
    """Return the schema of a declared block: the derived one, with the kind beside its keys."""

    def read(value: Any, inner: cs.ValidatorFunctionWrapHandler) -> Any:
        if not isinstance(value, Mapping):
            return inner(value)
        given = dict(cast("Mapping[str, Any]", value))
        if given.pop("type", None) != cls.type:
            raise PydanticCustomError(
                "block", "Input should have the type {wanted}", {"wanted": cls.type}
            )
        return inner(given)

    def write(value: Any, inner: cs.SerializerFunctionWrapHandler) -> Any:
        return {"type": cls.type, **inner(value)}

    return cs.no_info_wrap_validator_function(
        read, fields, serialization=cs.wrap_serializer_function_ser_schema(write, schema=fields)
    )


class StreamChunkFamily:
    """Stands for the union of chunk classes where pydantic asks for a schema."""

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        chunks = (BlockStart, TextDelta, ReasoningDelta, ToolCallDelta, BlockEnd, UsageChunk)
        choices = {chunk.type: _record(chunk) for chunk in (*chunks, Finish)}
        return _complete(cs.tagged_union_schema(choices, "type", serialization=_serialized()))


FAMILIES: Final = {"StreamChunk": StreamChunkFamily}


def _complete(schema: CoreSchema) -> CoreSchema:
    """Add the definition of the block union, which is recursive and therefore has a name."""
    blocks = (TextBlock, ReasoningBlock, ToolCallBlock, ToolResultBlock)
    choices: dict[Any, CoreSchema] = {block.type: _record(block) for block in blocks}
    choices[_FOREIGN] = _foreign()
    union = cs.tagged_union_schema(choices, _kind, ref=_BLOCKS, serialization=_serialized())
    return cs.definitions_schema(schema, [union])


def _kind(value: Any) -> str:
    found: Any = (
        cast("Mapping[str, Any]", value).get("type")
        if isinstance(value, Mapping)
        else getattr(value, "type", None)
    )
    return found if isinstance(found, str) and found in BLOCK_TYPES else _FOREIGN


def _unknown() -> CoreSchema:
    return cs.no_info_plain_validator_function(_read_unknown, serialization=_serialized())


def _foreign() -> CoreSchema:
    return cs.no_info_plain_validator_function(_read_foreign, serialization=_serialized())


def _read_foreign(value: Any) -> ContentBlock:
    """Read a block of a kind that is not ours: as its declared class, or as it was written."""
    if isinstance(value, ContentBlock):
        return value
    kind = _type_of(value)
    cls = ContentBlock.kinds.get(kind)
    if cls is not None:
        try:
            return cast("ContentBlock", adapter_of(cls).validate_python(value))
        except (ValidationError, RecursionError):
            pass  # another version of the wheel wrote it; nothing of it may be lost
    return _read_unknown(value)


def _type_of(value: Any) -> str:
    kind: Any = cast("Mapping[str, Any]", value).get("type") if isinstance(value, Mapping) else None
    if not isinstance(kind, str):
        raise PydanticCustomError("block", "Input should be an object with a string under 'type'")
    return kind


def _read_unknown(value: Any) -> UnknownBlock:
    if isinstance(value, UnknownBlock):
        return value
    kind = _type_of(value)
    copy = cast("djson.JsonObject", djson.check(cast("object", value), where=kind))
    del copy["type"]
    return UnknownBlock(kind, copy)


def _record(cls: type) -> CoreSchema:
    """Return the schema of a class by its table of fields."""
    fields = _FIELDS[cls]()
    args: list[cs.DataclassField] = []
    kind = getattr(cls, "type", None)
    if isinstance(kind, str):
        # Checked and then dropped: the class itself is what the key says.
        args.append(cs.dataclass_field("type", cs.literal_schema([kind]), init_only=True))
    for name, field in fields.items():
        schema = field.schema
        if field.optional:
            schema = cs.with_default_schema(schema, default=field.default)
        args.append(cs.dataclass_field(name, schema, validation_alias=field.key))
    names = list(fields)
    for name, factory in _UNWIRED.get(cls, {}).items():
        schema = cs.with_default_schema(cs.any_schema(), default_factory=factory)
        args.append(cs.dataclass_field(name, schema, init=False))
        names.append(name)
    return cs.dataclass_schema(
        cls,
        cs.dataclass_args_schema(cls.__name__, args, extra_behavior="forbid"),
        names,
        post_init=hasattr(cls, "__post_init__"),
        strict=False,
        frozen=True,
        slots=True,
        serialization=_serialized(),
    )


def _serialized() -> cs.SerSchema:
    return cs.plain_serializer_function_ser_schema(encode)


def _reference() -> CoreSchema:
    return cs.definition_reference_schema(_BLOCKS)


def _text(**limits: Any) -> CoreSchema:
    return cs.str_schema(strict=True, **limits)


def _integer() -> CoreSchema:
    return cs.int_schema(strict=True)


def _number() -> CoreSchema:
    # An integer stays one, so that a value is dumped as it was read.
    return cs.union_schema([_integer(), cs.float_schema(strict=True, allow_inf_nan=False)])


def _flag() -> CoreSchema:
    return cs.bool_schema(strict=True)


def _many(item: CoreSchema) -> CoreSchema:
    return cs.tuple_variable_schema(item, strict=False)


def _json_object() -> CoreSchema:
    return cs.no_info_before_validator_function(_copied, cs.dict_schema(_text(), cs.any_schema()))


def _copied(value: Any) -> Any:
    return djson.check(value, where="value")


def _text_fields() -> dict[str, _Field]:
    return {"text": _Field("text", _text())}


def _tool_call_fields() -> dict[str, _Field]:
    return {name: _Field(name, _text()) for name in ("id", "name", "arguments")}


def _tool_result_fields() -> dict[str, _Field]:
    return {
        "tool_call_id": _Field("toolCallId", _text()),
        "content": _Field("content", _many(_reference())),
        "is_error": _Field("isError", _flag(), optional=True, default=False),
    }


def _replay_fields() -> dict[str, _Field]:
    return {
        "provider": _Field("provider", _text()),
        "model": _Field("model", _text()),
        "state": _Field("state", _json_object()),
    }


def _message_fields() -> dict[str, _Field]:
    return {
        "role": _Field("role", cs.literal_schema(["system", "user", "assistant"])),
        "content": _Field("content", _many(_reference())),
        "replay": _Field("replay", _record(ReplayState), optional=True),
    }


def _usage_fields() -> dict[str, _Field]:
    return {
        "input_tokens": _Field("inputTokens", _integer()),
        "output_tokens": _Field("outputTokens", _integer()),
        "cache_read_tokens": _Field("cacheReadTokens", _integer(), optional=True),
        "cache_write_tokens": _Field("cacheWriteTokens", _integer(), optional=True),
        "reasoning_tokens": _Field("reasoningTokens", _integer(), optional=True),
    }


def _failure_fields() -> dict[str, _Field]:
    return {
        "status": _Field("status", _integer(), optional=True),
        "retry_after_ms": _Field("retryAfterMs", _number(), optional=True),
        "request_id": _Field("requestId", _text(), optional=True),
    }


def _reason_fields() -> dict[str, _Field]:
    return {
        "kind": _Field("kind", _text(min_length=1)),
        "message": _Field("message", _text(), optional=True),
        "code": _Field("code", _text(), optional=True),
        "failure": _Field("failure", _record(LlmFailure), optional=True),
    }


def _block_start_fields() -> dict[str, _Field]:
    return {"index": _Field("index", _integer()), "block_type": _Field("blockType", _text())}


def _delta_fields() -> dict[str, _Field]:
    return {"index": _Field("index", _integer()), "text": _Field("text", _text())}


def _tool_call_delta_fields() -> dict[str, _Field]:
    return {
        "index": _Field("index", _integer()),
        "id": _Field("id", _text()),
        "arguments_delta": _Field("argumentsDelta", _text()),
        "name": _Field("name", _text(), optional=True),
    }


def _block_end_fields() -> dict[str, _Field]:
    return {"index": _Field("index", _integer()), "block": _Field("block", _reference())}


def _usage_chunk_fields() -> dict[str, _Field]:
    return {"usage": _Field("usage", _record(TokenUsage))}


def _finish_fields() -> dict[str, _Field]:
    return {
        "reason": _Field("reason", _record(FinishReason)),
        "replay": _Field("replay", _record(ReplayState), optional=True),
    }


def _tool_schema_fields() -> dict[str, _Field]:
    return {
        "name": _Field("name", _text()),
        "description": _Field("description", _text()),
        "parameters": _Field("parameters", _json_object()),
    }


def _config_fields() -> dict[str, _Field]:
    return {
        "model": _Field("model", _text()),
        "temperature": _Field("temperature", _number(), optional=True),
        "max_tokens": _Field("maxTokens", _integer(), optional=True),
        "stop": _Field("stop", _many(_text()), optional=True),
        "reasoning_effort": _Field("reasoningEffort", _text(), optional=True),
    }


def _request_fields() -> dict[str, _Field]:
    return {
        **_config_fields(),
        "messages": _Field("messages", _many(_record(Message))),
        "system": _Field("system", _text(), optional=True),
        "tools": _Field("tools", _many(_record(ToolSchema)), optional=True),
        "session_id": _Field("sessionId", _text(), optional=True),
        "purpose": _Field("purpose", _text(), optional=True),
        "loop": _Field("loop", _flag(), optional=True, default=False),
    }


def _model_info_fields() -> dict[str, _Field]:
    return {
        "id": _Field("id", _text()),
        "name": _Field("name", _text(), optional=True),
        "context_window": _Field("contextWindow", _integer(), optional=True),
        "max_output_tokens": _Field("maxOutputTokens", _integer(), optional=True),
        "reasoning_efforts": _Field("reasoningEfforts", _many(_text()), optional=True, default=()),
        "input_modalities": _Field(
            "inputModalities", _many(_text()), optional=True, default=("text",)
        ),
        "provider": _Field("provider", _text(), optional=True, default=""),
    }


_UNWIRED: Final[dict[type, dict[str, Callable[[], Any]]]] = {
    Message: {"memo": dict[Any, Any]},
    LlmRequest: {"signal": lambda: None},
}
"""Fields that never travel, with what makes their value."""

_FIELDS: Final[dict[type, Callable[[], dict[str, _Field]]]] = {
    TextBlock: _text_fields,
    ReasoningBlock: _text_fields,
    ToolCallBlock: _tool_call_fields,
    ToolResultBlock: _tool_result_fields,
    ReplayState: _replay_fields,
    Message: _message_fields,
    TokenUsage: _usage_fields,
    LlmFailure: _failure_fields,
    FinishReason: _reason_fields,
    BlockStart: _block_start_fields,
    TextDelta: _delta_fields,
    ReasoningDelta: _delta_fields,
    ToolCallDelta: _tool_call_delta_fields,
    BlockEnd: _block_end_fields,
    UsageChunk: _usage_chunk_fields,
    Finish: _finish_fields,
    ToolSchema: _tool_schema_fields,
    LlmCallConfig: _config_fields,
    LlmRequest: _request_fields,
    ModelInfo: _model_info_fields,
}
