"""A log that was changed comes out differently where it was changed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from dsh.agent_core import AgentCore
from dsh.llm import TextBlock, TokenUsage
from dsh.session import (
    AssistantMessage,
    Completed,
    MaxTokens,
    RecordTrigger,
    RequestHeaderSnapshot,
    SessionData,
    SessionEvent,
    StepStart,
    ToolCall,
    ToolResult,
    TurnEnd,
    TurnStart,
)
from dsh.sessions.replay import Divergence, ReplayReport, replay_session

Log = Sequence[SessionEvent]


def where(log: Log, kind: type[SessionData], number: int = 0) -> int:
    """Return the sequence number of an event of a kind."""
    return [event.seq for event in log if isinstance(event.data, kind)][number]


def changed(log: Log, seq: int, **fields: Any) -> list[SessionEvent]:
    """Return the log with one payload changed."""
    data: Any = log[seq].data
    altered = replace(log[seq], data=replace(data, **fields))
    return [*log[:seq], altered, *log[seq + 1 :]]


def renumbered(log: Log) -> list[SessionEvent]:
    return [replace(event, seq=seq) for seq, event in enumerate(log)]


CHANGES: dict[str, tuple[type[SessionData], Callable[[Any], dict[str, Any]], str, Any]] = {
    "the text of an answer": (
        AssistantMessage,
        lambda data: {"content": (TextBlock("something else"),)},
        "data.content[0].text",
        "something else",
    ),
    "its usage": (
        AssistantMessage,
        lambda data: {"usage": TokenUsage(1, 1)},
        "data.usage.inputTokens",
        1,
    ),
    "the arguments of a call": (
        ToolCall,
        lambda data: {"arguments": '{"path": "/etc"}'},
        "data.arguments",
        '{"path": "/etc"}',
    ),
    "the name of a tool": (ToolCall, lambda data: {"name": "rm"}, "data.name", "rm"),
    "whose result it is": (ToolResult, lambda data: {"call_id": "zz"}, "data.callId", "zz"),
    "the number of a step": (StepStart, lambda data: {"step": 7}, "data.step", 7),
    "the number of a turn": (TurnStart, lambda data: {"turn": 9}, "data.turn", 9),
    "how a turn ended": (
        TurnEnd,
        lambda data: {"reason": MaxTokens()},
        "data.reason.kind",
        "max-tokens",
    ),
    "why a header was logged": (
        RequestHeaderSnapshot,
        lambda data: {"reason": "resume"},
        "data.reason",
        "resume",
    ),
}


@pytest.mark.parametrize("name", CHANGES)
async def test_a_changed_event_is_where_the_logs_part(name: str, everything: Log) -> None:
    kind, change, path, recorded = CHANGES[name]
    seq = where(everything, kind, 1 if kind is TurnEnd else 0)
    report = await play(changed(everything, seq, **change(everything[seq].data)))
    found = report.divergence
    assert found is not None
    assert (found.seq, found.type, found.path) == (seq, everything[seq].type, path)
    assert found.recorded == recorded
    assert found.replayed not in (None, recorded)
    assert report.events == seq
    assert not report.ok
    assert str(found) == f"event {seq} ({everything[seq].type}) at {path}"


async def test_a_changed_provenance_is_found(everything: Log) -> None:
    seq = where(everything, ToolResult)
    sources = everything[seq].source_event_seqs
    assert sources is not None
    (call,) = sources
    altered = replace(everything[seq], source_event_seqs=(call - 1,))
    report = await play([*everything[:seq], altered, *everything[seq + 1 :]])
    assert report.divergence == Divergence(seq, "tool/result", "sourceEventSeqs[0]", call - 1, call)


@pytest.mark.parametrize("kind", [StepStart, AssistantMessage, ToolCall, ToolResult, TurnStart])
async def test_a_missing_event_is_found(kind: type[SessionData], everything: Log) -> None:
    # the third call is the first one that ran alone
    seq = where(everything, kind, 2 if kind is ToolCall else 1)
    report = await play(renumbered([*everything[:seq], *everything[seq + 1 :]]))
    assert report.divergence is not None
    assert report.divergence.seq == seq


@pytest.mark.parametrize(
    "kind", [StepStart, AssistantMessage, ToolCall, ToolResult, RequestHeaderSnapshot]
)
async def test_an_event_too_many_is_found(kind: type[SessionData], everything: Log) -> None:
    seq = where(everything, kind)
    report = await play(renumbered([*everything[: seq + 1], *everything[seq:]]))
    assert report.divergence is not None
    assert report.divergence.seq == seq + 1


async def test_results_in_another_order_are_found(everything: Log) -> None:
    first = where(everything, ToolResult)
    log = list(everything)
    log[first], log[first + 1] = log[first + 1], log[first]
    report = await play(renumbered(log))
    assert report.divergence is not None
    assert report.divergence.seq == first


async def test_a_gap_in_the_numbers_is_found(everything: Log) -> None:
    log = [event if event.seq < 5 else replace(event, seq=event.seq + 1) for event in everything]
    found = (await play(log)).divergence
    assert found is not None
    assert (found.seq, found.path, found.recorded, found.replayed) == (5, "seq", 6, 5)


async def test_a_turn_more_than_there_was_is_found(everything: Log) -> None:
    turns = sum(isinstance(event.data, TurnStart) for event in everything)
    extra = [TurnStart(turns + 2, RecordTrigger()), TurnEnd(turns + 2, Completed())]
    log = renumbered([*everything, *(SessionEvent(0, 0, data) for data in extra)])
    report = await play(log)
    assert report.divergence is not None
    assert report.divergence.seq == len(everything)
    assert report.turns == turns


async def play(log: Log) -> ReplayReport:
    return await replay_session(log, bundle=AgentCore)
