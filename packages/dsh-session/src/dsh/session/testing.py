"""Helpers for tests of code that writes or reads session logs."""

from __future__ import annotations

from collections.abc import Iterable

from dsh.core import json as djson
from dsh.llm import (
    BlockEnd,
    BlockStart,
    Finish,
    FinishReason,
    LlmCallConfig,
    TextBlock,
    TextDelta,
    TokenUsage,
    ToolCallBlock,
    ToolCallDelta,
    ToolSchema,
    UsageChunk,
)
from dsh.session._enclosure import Enclosure
from dsh.session._event import APPEND, SessionEvent
from dsh.session._event_types import (
    AssistantChunk,
    AssistantMessage,
    ContextMessage,
    RequestHeaderSnapshot,
    StepEnd,
    StepStart,
    ToolCall,
    ToolResult,
    TurnEnd,
    TurnStart,
    UserMessage,
)
from dsh.session._message_sources import PluginSource, UserSource
from dsh.session._repair import interrupted_turn_closers
from dsh.session._request_header import RequestHeader
from dsh.session._session import Session
from dsh.session._turn_end_reasons import Completed
from dsh.session._turn_triggers import MessageTrigger
from dsh.session._wire import event_from_wire, event_to_wire

__all__ = ["assert_balanced", "reloaded", "types_of", "user_texts", "worked_turn", "write_turn"]


def write_turn(session: Session, prompt: str = "hi", *, tool: bool = True) -> None:
    """Append one complete turn as a loop writes it.

    With `tool` the model calls `echo` once, context is attached to the result, and a second step
    answers; without it the model answers in the first step.
    """
    turn = session.last_turn + 1
    session.append(TurnStart(turn, MessageTrigger(UserSource())))
    session.append(UserMessage((TextBlock(prompt),), UserSource()), APPEND)
    step = 1
    if tool:
        _write_tool_step(session, turn)
        step = 2
    session.append(StepStart(turn, step))
    _write_header(session)
    seqs = [
        session.append(AssistantChunk(turn, step, chunk)).seq
        for chunk in (
            BlockStart(0, "text"),
            TextDelta(0, "done"),
            BlockEnd(0, TextBlock("done")),
            UsageChunk(TokenUsage(10, 4)),
            Finish(FinishReason("stop")),
        )
    ]
    answer = AssistantMessage(turn, step, (TextBlock("done"),), TokenUsage(10, 4))
    session.append(answer, APPEND, seqs)
    session.append(StepEnd(turn, step))
    session.append(TurnEnd(turn, Completed()))


def worked_turn(prompt: str = "hi", *, tool: bool = True) -> tuple[SessionEvent, ...]:
    """Return the log of one complete turn; see `write_turn`."""
    session = Session("worked")
    write_turn(session, prompt, tool=tool)
    return session.events[:]


def types_of(events: Iterable[SessionEvent], *, chunks: bool = False) -> list[str]:
    """Return the event types of a log, without the chunks unless asked for."""
    return [event.type for event in events if chunks or event.type != "assistant/chunk"]


def user_texts(events: Iterable[SessionEvent]) -> list[str]:
    """Return the text of every admitted prompt."""
    return [
        "".join(block.text for block in event.data.content if isinstance(block, TextBlock))
        for event in events
        if isinstance(event.data, UserMessage)
    ]


def assert_balanced(events: Iterable[SessionEvent]) -> None:
    """Fail unless every event stands in its turn and step and nothing is left open."""
    log = tuple(events)
    state = Enclosure()
    for index, event in enumerate(log):
        assert event.seq == index, f"seq {event.seq} at index {index}"
        state.check(event.data, event.surface_op)
        state.advance(event.data)
    assert state.turn is None, f"turn {state.turn} is left open"
    assert interrupted_turn_closers(log) == ()


def reloaded(session: Session) -> Session:
    """Return a fresh session with the same log, carried through its JSON form."""
    lines = [djson.dumps(event_to_wire(event)) for event in session.events]
    events: list[SessionEvent] = []
    for line in lines:
        wire = djson.loads(line)
        assert isinstance(wire, dict)
        events.append(event_from_wire(wire))
    return Session(session.id, events, session.header)


def _write_header(session: Session) -> None:
    if session.request_header() is None:
        schema = ToolSchema(
            "echo",
            "Say it again.",
            {
                "type": "object",
                "properties": {"text": {"type": "string"}},
                "required": ["text"],
            },
        )
        config = LlmCallConfig("test/model")
        header = RequestHeader(config, "You are a test.", (schema,))
        session.append(RequestHeaderSnapshot(header, "initial"))


def _write_tool_step(session: Session, turn: int) -> None:
    call_id = f"call-{turn}"
    session.append(StepStart(turn, 1))
    _write_header(session)
    call = ToolCallBlock(call_id, "echo", '{"text":"x"}')
    seqs = [
        session.append(AssistantChunk(turn, 1, chunk)).seq
        for chunk in (
            BlockStart(0, "tool-call"),
            ToolCallDelta(0, call_id, '{"te', "echo"),
            ToolCallDelta(0, call_id, 'xt":"x"}'),
            BlockEnd(0, call),
            UsageChunk(TokenUsage(10, 5)),
            Finish(FinishReason("tool-calls")),
        )
    ]
    session.append(AssistantMessage(turn, 1, (call,), TokenUsage(10, 5)), APPEND, seqs)
    started = session.append(ToolCall(turn, 1, call_id, "echo", '{"text":"x"}'))
    result = ToolResult(turn, 1, call_id, (TextBlock("x"),))
    session.append(result, APPEND, (started.seq,))
    session.append(ContextMessage((TextBlock("audited"),), PluginSource("guard")), APPEND)
    session.append(StepEnd(turn, 1))
