"""Script entries as data: the form that configuration and script files use."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias, cast

from pydantic import BaseModel, ConfigDict, JsonValue, ValidationError, model_validator
from pydantic.alias_generators import to_camel

from dsh.llm import (
    BlockStart,
    Finish,
    FinishReason,
    LlmFailure,
    StreamChunk,
    TextDelta,
    TokenUsage,
    chunk_from_wire,
    from_wire,
    to_wire,
)
from dsh.llm.errors import LlmError
from dsh.llm_replay._builders import answer, opening
from dsh.llm_replay._entries import Answer, Entry, Hang, Held, Throw
from dsh.llm_replay._placeholders import fill
from dsh.llm_replay.errors import ReplayError


class _Data(BaseModel):
    """Fields are snake_case; script files may also write them in camelCase."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        use_attribute_docstrings=True,
    )


class ToolStep(_Data):
    """A tool call inside a step."""

    tool: str
    """Name of the tool."""
    arguments: str | dict[str, JsonValue] = "{}"
    """The argument text as the model writes it, or a mapping encoded as JSON."""
    call_id: str | None = None
    """Id of the call; `call_<n>` if absent."""


class Step(_Data):
    """What the model answers to one call.

    A step says at least one of `text`, `reasoning`, `tool`, `tools`, `error`, `hang` and `chunks`.
    """

    kind: Literal["chunks", "throw", "hang"] | None = None
    """Set in sidecars and recorded scripts, where an entry is given by its chunks."""
    text: str | None = None
    """A text block."""
    reasoning: str | None = None
    """A reasoning block in front of the text."""
    tool: str | None = None
    """A call of this tool."""
    arguments: str | dict[str, JsonValue] = "{}"
    """Arguments of `tool`, as text or as a mapping."""
    call_id: str | None = None
    """Id of the call of `tool`."""
    tools: tuple[ToolStep, ...] = ()
    """Several tool calls."""
    finish: str | None = None
    """Kind of finish; `tool-calls` or `stop` if absent."""
    usage: dict[str, int] | None = None
    """Token counts, `inputTokens` and `outputTokens` at least."""
    error: str | None = None
    """End with an error finish that says this; text and reasoning before it stay open."""
    throw: str | None = None
    """Break off with a raised error that says this."""
    message: str | None = None
    """The message of an entry of kind `throw`."""
    code: str = "SERVER"
    """Code of the error."""
    status: int | None = None
    """HTTP status of the error."""
    retry_after_ms: float | None = None
    """How long the provider asks to wait."""
    hang: bool = False
    """Stay silent, after the text if there is one, until the request is aborted."""
    ready_file: Path | None = None
    """File that is made when a hanging call begins to wait."""
    chunks: tuple[dict[str, JsonValue], ...] | None = None
    """The chunks themselves, in their wire form."""

    @model_validator(mode="after")
    def _says_something(self) -> Step:
        said = (self.text, self.reasoning, self.tool, self.error, self.throw, self.chunks)
        if self.kind is None and not self.tools and not self.hang and all(v is None for v in said):
            raise ValueError(
                "a step needs one of text, reasoning, tool, tools, error, throw, hang, chunks"
            )
        if self.tool is not None and self.tools:
            raise ValueError("a step has either `tool` or `tools`")
        return self


StepLike: TypeAlias = Step | str | Mapping[str, Any]
"""A step, the text of one, or its data."""


def entry_from(step: StepLike) -> Entry:
    """Turn a step into a script entry.

    Placeholders in its strings are replaced before the answer is cut into deltas.

    Args:
        step: A step, its data, or a string, which stands for a text answer.

    Raises:
        ReplayError: Code `BAD_ENTRY`, if it is malformed.
    """
    parsed = _parse(step)
    chunks = None if parsed.chunks is None else _chunks(parsed.chunks)
    if "{{fromRequest:" not in parsed.model_dump_json():
        return _build(parsed, chunks)
    return lambda request: _build(_filled(parsed, request), chunks)


def load_script(path: Path) -> tuple[Entry, ...]:
    """Read a script file: a JSON list of steps.

    Raises:
        ReplayError: Code `BAD_ENTRY`, with the file and the position of the entry.
        OSError: If the file cannot be read.
    """
    try:
        value: object = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise _bad(f"{path} is not JSON: {error}") from error
    return entries_from(value, where=str(path))


def entries_from(value: object, *, where: str = "the script") -> tuple[Entry, ...]:
    """Turn a JSON list of steps into script entries.

    Raises:
        ReplayError: Code `BAD_ENTRY`, with `where` and the position of the entry.
    """
    if not isinstance(value, (list, tuple)):
        raise _bad(f"{where} is not a list of steps")
    entries: list[Entry] = []
    for number, step in enumerate(cast("Sequence[Any]", value)):
        try:
            entries.append(entry_from(step))
        except ReplayError as error:
            raise _bad(f"{where}, entry {number}: {error.message}") from error
    return tuple(entries)


def dump_script(entries: Iterable[Answer]) -> str:
    """Write answers as a script file, one entry a line.

    Raises:
        ReplayError: Code `BAD_ENTRY`, for an answer that data cannot express (a gate).
    """
    lines = [
        json.dumps(_dump(entry, number), ensure_ascii=False) for number, entry in enumerate(entries)
    ]
    return "[\n" + ",\n".join(lines) + "\n]\n"


def _parse(step: StepLike) -> Step:
    if isinstance(step, Step):
        return step
    try:
        return Step.model_validate({"text": step} if isinstance(step, str) else step)
    except ValidationError as error:
        problems = "; ".join(
            f"{'.'.join(str(part) for part in item['loc']) or 'step'}: {item['msg']}"
            for item in error.errors(include_url=False, include_input=False)
        )
        raise _bad(problems) from error


def _filled(step: Step, request: Any) -> Step:
    # Chunks are filled one by one when they are played.
    data = step.model_dump(exclude={"chunks"}, exclude_unset=True)
    return Step.model_validate({**fill(data, request), "chunks": step.chunks})


def _chunks(values: Iterable[Mapping[str, Any]]) -> tuple[StreamChunk, ...]:
    try:
        return tuple([chunk_from_wire(dict(item)) for item in values])
    except LlmError as error:
        raise _bad(f"malformed chunk: {error.message}") from error


def _build(step: Step, chunks: tuple[StreamChunk, ...] | None) -> Answer:
    if step.kind == "throw" or step.throw is not None:
        message = step.throw or step.message or "The provider failed."
        return Throw(message, step.code, chunks or _open(step), _failure(step))
    if step.kind == "hang" or step.hang:
        return Hang(chunks or _open(step), step.ready_file)
    if step.error is not None:
        reason = FinishReason("error", step.error, step.code, _failure(step))
        return (*(chunks or _open(step)), Finish(reason))
    if chunks is not None:
        return chunks
    return answer(
        text=step.text,
        reasoning=step.reasoning,
        calls=_calls(step),
        finish=step.finish,
        usage=None if step.usage is None else _usage(step.usage),
        size=8,
    )


def _calls(step: Step) -> list[tuple[str, str, str | Mapping[str, Any]]]:
    tools = list(step.tools)
    if step.tool is not None:
        tools = [ToolStep(tool=step.tool, arguments=step.arguments, call_id=step.call_id)]
    return [
        (item.call_id or f"call_{number}", item.tool, item.arguments)
        for number, item in enumerate(tools, 1)
    ]


def _open(step: Step) -> tuple[StreamChunk, ...]:
    """Return what was visible before a failure: blocks that are not closed."""
    if step.reasoning is None:
        return opening(step.text or "")
    thought = answer(reasoning=step.reasoning, size=8)[:-2]
    if not step.text:
        return thought
    return (*thought, BlockStart(1, "text"), TextDelta(1, step.text))


def _usage(value: Mapping[str, int]) -> TokenUsage:
    try:
        return from_wire(TokenUsage, dict(value))
    except LlmError as error:
        raise _bad(f"malformed usage: {error.message}") from error


def _failure(step: Step) -> LlmFailure | None:
    if step.status is None and step.retry_after_ms is None:
        return None
    return LlmFailure(step.status, step.retry_after_ms)


def _dump(entry: Answer, number: int) -> dict[str, Any]:
    match entry:
        case Throw():
            data: dict[str, Any] = {"kind": "throw", "message": entry.message, "code": entry.code}
            if entry.failure is not None and entry.failure.status is not None:
                data["status"] = entry.failure.status
            if entry.failure is not None and entry.failure.retry_after_ms is not None:
                data["retryAfterMs"] = entry.failure.retry_after_ms
            chunks = entry.chunks
        case Hang():
            data = {"kind": "hang"}
            if entry.ready_file is not None:
                data["readyFile"] = str(entry.ready_file)
            chunks = entry.chunks
        case Held():
            raise _bad(f"entry {number} stands at a gate, which no file can hold")
        case _:
            data = {"kind": "chunks"}
            chunks = tuple(entry)
    return {**data, "chunks": [to_wire(chunk) for chunk in chunks]}


def _bad(message: str) -> ReplayError:
    return ReplayError(message, code=ReplayError.BAD_ENTRY)
