"""Checks what wrappers and policies put into results, and makes it fit for the log."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, cast

from dsh.agent import HookContext
from dsh.core import JsonObject
from dsh.core.errors import NotJsonError
from dsh.core.vocabulary import adapter_of
from dsh.llm import (
    ContentBlock,
    ReasoningBlock,
    TextBlock,
    ToolCallBlock,
    ToolResultBlock,
    UnknownBlock,
    block_from_wire,
    to_wire,
)
from dsh.session import (
    ErrorInfo,
    MessageSource,
    OtherSource,
    PluginSource,
    UserSource,
    freeze,
)
from dsh.tools._results import ToolExecutionResult
from dsh.tools._text import masked, readable
from dsh.tools.errors import ToolOutputError

__all__ = ["checked_contexts", "checked_result", "clean_content", "clean_object"]

_MAX_NESTING: Final = 20


def checked_result(result: object, call_id: str) -> ToolExecutionResult:
    """Return a result of known good shape that nobody can change.

    Raises:
        ToolOutputError: It is no result of this call, or holds what the log would refuse.
    """
    if not isinstance(result, ToolExecutionResult):
        raise ToolOutputError(
            f"a listener of 'tools/execute' returned a {type(result).__name__}, "
            "not a ToolExecutionResult",
            hint="return `await next()` or a ToolExecutionResult",
        )
    if result.call_id != call_id:
        raise ToolOutputError(
            f"the result is for call {result.call_id!r}, but call {call_id!r} was made"
        )
    flag: object = result.is_error
    if type(flag) is not bool:
        raise ToolOutputError(f"is_error of the result is {flag!r}, not true or false")
    return ToolExecutionResult(
        call_id,
        clean_content(result.content, "content of the result"),
        flag,
        _checked_error(result.error),
        checked_contexts(result.additional_context),
        None if result.meta is None else clean_object(result.meta, "meta"),
    )


def checked_contexts(contexts: object) -> tuple[HookContext, ...]:
    """Return one context or several as a tuple of contexts that the log accepts.

    Raises:
        ToolOutputError: Something is no context.
    """
    if isinstance(contexts, HookContext):
        contexts = (contexts,)
    if not isinstance(contexts, list | tuple):
        raise ToolOutputError(
            f"additional context is a {type(contexts).__name__}, not a HookContext or several"
        )
    checked: list[HookContext] = []
    for context in cast("Iterable[object]", contexts):
        if not isinstance(context, HookContext):
            raise ToolOutputError(
                f"additional context holds a {type(context).__name__}, not a HookContext"
            )
        content = clean_content(context.content, "additional context")
        checked.append(HookContext(content, _checked_source(context.source)))
    return tuple(checked)


def _checked_source(source: object) -> MessageSource:
    match source:
        case UserSource():
            return source
        case PluginSource(plugin) if type(plugin) is str:
            return source
        case OtherSource(kind, data) if type(kind) is str:
            return OtherSource(kind, clean_object(data, "source of the additional context"))
        case MessageSource() if not isinstance(source, PluginSource | OtherSource):
            return _declared_source(source)
        case _:
            raise ToolOutputError(
                f"source of the additional context is a {type(source).__name__}, not a source"
            )


def _declared_source(source: MessageSource) -> MessageSource:
    """Return a source of a kind that a wheel declared, checked in its wire form."""
    where = "source of the additional context"
    family = adapter_of(MessageSource)
    try:
        wire = family.dump_python(source, mode="json", by_alias=True)
    except (ValueError, TypeError) as error:
        raise ToolOutputError(f"{where} has no wire form: {error}") from error
    made = cast("MessageSource", family.validate_python(clean_object(wire, where)))
    return freeze(made, where=where)


def clean_content(content: object, where: str, nesting: int = 0) -> tuple[ContentBlock, ...]:
    """Return blocks that nobody can change, with readable text and secrets masked.

    Raises:
        ToolOutputError: Something is no content block or no JSON.
    """
    if not isinstance(content, list | tuple):
        raise ToolOutputError(
            f"{where} is a {type(content).__name__}, not a sequence of content blocks"
        )
    if nesting > _MAX_NESTING:
        raise ToolOutputError(f"{where} is nested too deeply")
    return tuple(_clean(block, where, nesting) for block in cast("Iterable[object]", content))


def _clean(block: object, where: str, nesting: int) -> ContentBlock:
    match block:
        case TextBlock(text):
            return TextBlock(_text(text, where))
        case ReasoningBlock(text):
            return ReasoningBlock(_text(text, where))
        case ToolCallBlock(id, name, arguments):
            return ToolCallBlock(_text(id, where), _text(name, where), _text(arguments, where))
        case ToolResultBlock(tool_call_id, content, is_error):
            inner = clean_content(content, where, nesting + 1)
            return ToolResultBlock(_text(tool_call_id, where), inner, bool(is_error))
        case UnknownBlock(type=kind, data=data):
            return UnknownBlock(_text(kind, where), clean_object(data, where))
        case ContentBlock():
            return _declared(block, where)
        case _:
            raise ToolOutputError(f"{where} holds a {type(block).__name__}, not a content block")


def _declared(block: ContentBlock, where: str) -> ContentBlock:
    """Return a block of a kind that a wheel declared, cleaned in its wire form."""
    try:
        wire = to_wire(block)
    except (ValueError, TypeError) as error:
        kind = type(block).__name__
        raise ToolOutputError(f"{where} holds a {kind} without a wire form: {error}") from error
    return freeze(block_from_wire(clean_object(wire, where)), where=where)


def _text(text: object, where: str) -> str:
    if type(text) is not str:
        raise ToolOutputError(f"{where} holds a block whose text is a {type(text).__name__}")
    return readable(text)


def clean_object(value: object, where: str) -> JsonObject:
    """Return a JSON object that nobody can change, secrets in its texts masked.

    Raises:
        ToolOutputError: It is no JSON object.
    """
    try:
        fixed = freeze(value, where=where)
    except NotJsonError as error:
        raise ToolOutputError(str(error)) from error
    if not isinstance(fixed, dict):
        raise ToolOutputError(f"{where} is a {type(value).__name__}, not an object")
    # freezing what holds no secret a second time copies nothing
    return cast("JsonObject", freeze(masked(cast("JsonObject", fixed)), where=where))


def _checked_error(error: object) -> ErrorInfo | None:
    if error is None:
        return None
    if isinstance(error, ErrorInfo) and type(error.name) is str and type(error.code) is str:
        return ErrorInfo(readable(error.name), readable(error.code))
    raise ToolOutputError("error of the result is no ErrorInfo with a name and a code")
