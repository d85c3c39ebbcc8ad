"""The behaviours by name: answers that succeed and answers that break off."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from dsh.llm_replay.server._behaviour import Behaviour, Send
from dsh.llm_replay.server._gate import Gate
from dsh.llm_replay.server._payloads import (
    DEFAULT_MODEL,
    DONE,
    chunk,
    comment,
    dumps,
    event,
    reasoning_deltas,
    text_deltas,
    tool_call_deltas,
    usage,
)

DEFAULT_TEXT: Final = "Hello from the scripted model."
DEFAULT_REASONING: Final = "Let me think about it."
DISCONNECT_DELAY: Final = 0.01
"""Seconds between the last bytes and a reset, so that they are read first on every platform."""


def stream(
    deltas: Iterable[Mapping[str, Any]],
    *,
    finish_reason: str | None = "stop",
    usage: Mapping[str, Any] | None = None,
    done: bool = True,
    model: str = DEFAULT_MODEL,
    name: str = "stream",
) -> Behaviour:
    """Build an answer out of raw `delta` objects.

    Args:
        deltas: The deltas of choice 0, each a payload of its own.
        finish_reason: The reason in the final payload; None leaves that payload out.
        usage: The usage object attached to the final payload.
        done: Whether `[DONE]` closes the stream.
        model: The `model` field of the payloads.
        name: The name that records show.
    """
    payloads: list[Mapping[str, Any]] = [chunk(delta, model=model) for delta in deltas]
    if finish_reason is not None:
        payloads.append(chunk({}, finish_reason=finish_reason, usage=usage, model=model))
    return events(payloads, done=done, name=name)


def events(payloads: Iterable[object], *, done: bool = True, name: str = "events") -> Behaviour:
    """Build an answer out of whole payloads, JSON values or bytes sent as they are."""
    steps = [Send(event(payload), 1) for payload in payloads]
    if done:
        steps.append(Send(DONE))
    return Behaviour(name, tuple(steps))


def raw(data: bytes, *, chunks: int = 0, name: str = "raw") -> Behaviour:
    """Build an answer whose body is exactly these bytes, written in as few writes as possible.

    Args:
        data: The body, typically made once by `Behaviour.body` or `encode_chunks`.
        chunks: How many payloads it holds, for the record.
        name: The name that records show.
    """
    return Behaviour(name, (Send(data, chunks),))


def success(
    text: str = DEFAULT_TEXT,
    *,
    chunk_size: int = 8,
    usage: Mapping[str, Any] | None = None,
    model: str = DEFAULT_MODEL,
) -> Behaviour:
    """Text in pieces of `chunk_size` characters, finish `stop`, usage, `[DONE]`."""
    deltas = [_OPENING, *text_deltas(text, chunk_size)]
    return stream(deltas, usage=usage or _usage(text), model=model, name="success")


def reasoning_success(
    reasoning: str = DEFAULT_REASONING,
    text: str = DEFAULT_TEXT,
    *,
    chunk_size: int = 8,
    usage: Mapping[str, Any] | None = None,
    model: str = DEFAULT_MODEL,
) -> Behaviour:
    """Reasoning, then text, finish `stop`."""
    deltas = [_OPENING, *reasoning_deltas(reasoning, chunk_size), *text_deltas(text, chunk_size)]
    total = usage or _usage(text, reasoning)
    return stream(deltas, usage=total, model=model, name="reasoning_success")


def tool_call_success(
    name: str = "bash",
    arguments: str | Mapping[str, Any] = '{"command":"echo hello"}',
    *,
    call_id: str = "call_1",
    text: str = "",
    reasoning: str = "",
    chunk_size: int = 8,
    usage: Mapping[str, Any] | None = None,
    model: str = DEFAULT_MODEL,
) -> Behaviour:
    """One tool call in fragments, finish `tool_calls`; reasoning and text come before it.

    Args:
        name: The tool.
        arguments: The argument text, or a mapping that is encoded as JSON.
        call_id: The id of the call.
        text: Text in front of the call.
        reasoning: Reasoning in front of the text.
        chunk_size: Characters per fragment.
        usage: The usage object; a small default if None.
        model: The `model` field.
    """
    return tool_calls(
        [(call_id, name, arguments)],
        text=text,
        reasoning=reasoning,
        chunk_size=chunk_size,
        usage=usage,
        model=model,
    ).named("tool_call_success")


def tool_calls(
    calls: Sequence[tuple[str, str, str | Mapping[str, Any]]],
    *,
    text: str = "",
    reasoning: str = "",
    interleaved: bool = False,
    chunk_size: int = 8,
    usage: Mapping[str, Any] | None = None,
    model: str = DEFAULT_MODEL,
) -> Behaviour:
    """Several tool calls `(id, name, arguments)` in one answer, finish `tool_calls`.

    Args:
        calls: The calls in order.
        text: Text in front of the calls.
        reasoning: Reasoning in front of the text.
        interleaved: Whether the fragments of the calls alternate instead of following each other.
        chunk_size: Characters per fragment.
        usage: The usage object; a small default if None.
        model: The `model` field.
    """
    deltas = [_OPENING, *reasoning_deltas(reasoning, chunk_size), *text_deltas(text, chunk_size)]
    per_call = [
        list(tool_call_deltas(index, call_id, name, _arguments(arguments), chunk_size))
        for index, (call_id, name, arguments) in enumerate(calls)
    ]
    if interleaved:
        longest = max((len(fragments) for fragments in per_call), default=0)
        for position in range(longest):
            deltas += [f[position] for f in per_call if position < len(f)]
    else:
        deltas += [delta for fragments in per_call for delta in fragments]
    total = usage or _usage(text, reasoning)
    return stream(deltas, finish_reason="tool_calls", usage=total, model=model, name="tool_calls")


def tool_call_parallel_interleaved() -> Behaviour:
    """Two tool calls whose fragments alternate."""
    calls = [
        ("call_1", "bash", '{"command":"echo one"}'),
        ("call_2", "bash", '{"command":"echo two"}'),
    ]
    return tool_calls(calls, interleaved=True).named("tool_call_parallel_interleaved")


def max_tokens(text: str = DEFAULT_TEXT, *, chunk_size: int = 8) -> Behaviour:
    """Text that was cut by the output limit: finish `length`."""
    return stream(
        [_OPENING, *text_deltas(text, chunk_size)],
        finish_reason="length",
        usage=_usage(text),
        name="max_tokens",
    )


def finish_reason(reason: str | None, text: str = DEFAULT_TEXT) -> Behaviour:
    """Text with any finish reason; None sends none before `[DONE]`."""
    deltas = [_OPENING, *text_deltas(text)]
    return stream(deltas, finish_reason=reason, usage=_usage(text), name="finish_reason")


def slow_success(text: str = DEFAULT_TEXT, *, delay: float = 0.025) -> Behaviour:
    """The text of `success`, with a pause of `delay` seconds before every payload."""
    return success(text).paced(delay).named("slow_success")


def held_success(gate: Gate, text: str = DEFAULT_TEXT, *, after: int = 2) -> Behaviour:
    """The text of `success`, stopping at a gate once `after` payloads were written."""
    return success(text).hold(gate, after=after).named("held_success")


def usage_trailing(text: str = DEFAULT_TEXT) -> Behaviour:
    """Usage in a payload of its own with an empty `choices`, behind the finish reason."""
    payloads = [
        *(chunk(delta) for delta in (_OPENING, *text_deltas(text))),
        chunk({}, finish_reason="stop"),
        chunk(None, usage=_usage(text)),
    ]
    return events(payloads, name="usage_trailing")


def usage_attached_and_trailing(text: str = DEFAULT_TEXT) -> Behaviour:
    """A usage sample on the finish payload and a later one with other numbers."""
    payloads = [
        *(chunk(delta) for delta in (_OPENING, *text_deltas(text))),
        chunk({}, finish_reason="stop", usage=usage(1, 1)),
        chunk(None, usage=_usage(text)),
    ]
    return events(payloads, name="usage_attached_and_trailing")


def keepalive_then_success(text: str = DEFAULT_TEXT, *, comments: int = 3) -> Behaviour:
    """Comments first, as a queued request gets them, then the text."""
    return success(text).prefixed(comment() * comments).named("keepalive_then_success")


def split_every_byte(text: str = "caf\u00e9 \u4f60\u597d \U0001f680") -> Behaviour:
    """Every byte of the body alone, through the middle of characters and line ends."""
    return success(text, chunk_size=4).split(1).named("split_every_byte")


def crlf_framing(text: str = DEFAULT_TEXT) -> Behaviour:
    """Lines that end with CR LF."""
    base = success(text)
    return base.transformed(lambda data: data.replace(b"\n", b"\r\n")).named("crlf_framing")


def cr_framing(text: str = DEFAULT_TEXT) -> Behaviour:
    """Lines that end with a lone CR."""
    base = success(text)
    return base.transformed(lambda data: data.replace(b"\n", b"\r")).named("cr_framing")


def bom(text: str = DEFAULT_TEXT) -> Behaviour:
    """A UTF-8 byte order mark in front of the stream."""
    return success(text).prefixed(b"\xef\xbb\xbf").named("bom")


def u2028_payload(text: str = "one\u2028two\u0085three") -> Behaviour:
    """Unescaped line separators inside a JSON string; they do not end a line of the stream."""
    return success(text, chunk_size=64).named("u2028_payload")


def _arguments(value: str | Mapping[str, Any]) -> str:
    return value if isinstance(value, str) else dumps(value).decode()


def _usage(*texts: str) -> dict[str, Any]:
    return usage(10, max(1, sum(len(text) for text in texts) // 4))


_OPENING: Final[dict[str, Any]] = {"role": "assistant", "content": None, "reasoning_content": ""}
