"""Persistence contract: whatever a log may contain comes back as it was."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from dsh.core import json as djson
from dsh.llm import (
    BlockEnd,
    BlockStart,
    Finish,
    FinishReason,
    LlmCallConfig,
    LlmFailure,
    Message,
    ReasoningBlock,
    ReasoningDelta,
    ReplayState,
    StreamChunk,
    TextBlock,
    TextDelta,
    TokenUsage,
    ToolCallBlock,
    ToolCallDelta,
    ToolSchema,
    UnknownBlock,
    UsageChunk,
)
from dsh.session import (
    APPEND,
    Aborted,
    AssistantChunk,
    AssistantMessage,
    Completed,
    ContextMessage,
    Disposed,
    ErrorInfo,
    Failed,
    InjectionTrigger,
    Interrupted,
    MaxTokens,
    MaxTurnRequests,
    MessageTrigger,
    OtherReason,
    OtherSource,
    OtherTrigger,
    PluginSource,
    PromptBlocked,
    RecordTrigger,
    Refusal,
    Rejected,
    Replace,
    RequestHeader,
    RequestHeaderDelta,
    RequestHeaderSnapshot,
    SessionData,
    SessionEvent,
    SteeringMessage,
    StepEnd,
    StepStart,
    SystemDelta,
    TodoItem,
    TodoWrite,
    ToolCall,
    ToolResult,
    ToolsDelta,
    TurnEnd,
    TurnStart,
    UnknownData,
    UserMessage,
    UserSource,
    freeze,
)
from dsh.session.testing import worked_turn
from dsh.session_persistence.backend import summarize
from dsh.testkit._persistence_bench import StoreBench, cases_of

__all__ = ["CONTENT"]

USER: Final = UserSource()
LARGE: Final = 20_000
"""Events of a batch that is large."""

TEXTS: Final = (
    "",
    "".join(map(chr, range(0x20))) + "\x7f\x80\x85\x9f",
    '"\\/\b\f\n\r\t" \\u0041 \\" \\\\',
    "line\u2028paragraph\u2029next\u0085form\x0cunit\x1f",
    "\ufeffbom \ufffe \uffff \ufffd",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467 \U0010ffff \u202eright to left\u202c",
    "e\u0301 \u00e9 \u00df \u1e9e \u0130",
    "\r\n\r\r\n",
    '{"seq": 0}\n{"crc": "00000000"}',
    "x" * 70_000,
)
"""Texts that a careless store changes, cuts or breaks at."""


def logged(*payloads: SessionData) -> tuple[SessionEvent, ...]:
    """Return payloads as a log of one turn, with times that jump."""
    whole = (TurnStart(1, MessageTrigger(USER)), *payloads, TurnEnd(1, Completed()))
    return tuple(
        SessionEvent(
            seq,
            1_700_000_000_000 + seq * 37 % 1_000,
            freeze(data, where=data.__class__.__name__),
            APPEND if data.surface_eligible else None,
        )
        for seq, data in enumerate(whole)
    )


async def comes_back(bench: StoreBench, log: tuple[SessionEvent, ...], **fields: Any) -> None:
    """Fail unless a log is read as it was written, in this app and in another one."""
    async with bench.open() as one:
        await one.fill("s", log, **fields)
        assert await one.store.read_from("s", 0) == log
    async with bench.open() as other:
        loaded = await other.store.load("s")
        assert loaded.events == log
        for field, value in fields.items():
            assert getattr(loaded.header, field) == value
        (shown,) = await other.store.list_snapshots()
        assert shown.summary == summarize(log)


async def every_type(bench: StoreBench) -> None:
    """Every event of the spine comes back, with every kind of source, trigger and reason."""
    text = (TextBlock("t"),)
    blocks = (*text, ReasoningBlock("r"), UnknownBlock("image", {"ref": [1, None]}))
    tool = ToolSchema("t", "d", {"type": "object", "additionalProperties": None})
    config = LlmCallConfig("p/m", 0.5, 10, ("x",), "high")
    header = RequestHeader(config, "sys", (tool,), (Message("user", text),))
    usage = TokenUsage(1, 2, 3)
    payloads: tuple[SessionData, ...] = (
        TurnStart(1, InjectionTrigger(PluginSource("p"))),
        TurnStart(1, RecordTrigger()),
        TurnStart(1, OtherTrigger("alarm", {"atMs": 1})),
        UserMessage(blocks, OtherSource("cron", {"job": "j"})),
        PromptBlocked(blocks, USER, "no"),
        ContextMessage((), PluginSource("p")),
        SteeringMessage(1, text, USER),
        StepStart(1, 1),
        RequestHeaderSnapshot(header, "initial"),
        RequestHeaderDelta(
            SystemDelta(1, 0, ("x",)), ToolsDelta(removed=("t",)), LlmCallConfig("m"), ()
        ),
        *(AssistantChunk(1, 1, chunk) for chunk in _every_chunk()),
        AssistantMessage(1, 1, blocks, usage, True, ReplayState("p", "m", {"a": 1})),
        AssistantMessage(1, 1, ()),
        ToolCall(1, 1, "c", "n", '{"a":1}'),
        ToolResult(1, 1, "c", text, True, ErrorInfo("E", "C"), {"kept_key": [None, {"x": 1}]}),
        ToolResult(1, 1, "c", ()),
        TodoWrite((TodoItem("a", "in_progress"), TodoItem("b", "completed"))),
        StepEnd(1, 1),
        *(TurnEnd(1, reason) for reason in _every_reason()),
    )
    log = logged(*payloads)
    place = next(event.seq for event in log if isinstance(event.data, ContextMessage))
    marked = replace(log[place], surface_op=Replace(4, 4), source_event_seqs=(4,))
    await comes_back(bench, (*log[:place], marked, *log[place + 1 :]))


def _every_chunk() -> tuple[StreamChunk, ...]:
    call = ToolCallBlock("c", "n", "{}")
    return (
        BlockStart(0, "reasoning"),
        ReasoningDelta(0, "r"),
        BlockEnd(0, ReasoningBlock("r")),
        BlockStart(1, "text"),
        TextDelta(1, "x"),
        BlockEnd(1, TextBlock("x")),
        BlockStart(2, "tool-call"),
        ToolCallDelta(2, "c", "{", "n"),
        ToolCallDelta(2, "c", "}"),
        BlockEnd(2, call),
        UsageChunk(TokenUsage(1, 2, 3)),
        Finish(FinishReason("stop")),
    )


def _every_reason() -> tuple[Any, ...]:
    return (
        Aborted(),
        Aborted("u"),
        Failed(2, "m", "C", LlmFailure(429, 1000, "r")),
        Failed(0, "m"),
        Disposed(),
        MaxTokens(),
        Rejected("n"),
        Interrupted(),
        Refusal(),
        MaxTurnRequests("max_steps", 3),
        OtherReason("later", {"x": None}),
    )


async def any_text(bench: StoreBench) -> None:
    """No character is changed: line separators, escapes, NUL, noncharacters, astral ones."""
    payloads = [
        payload
        for text in TEXTS
        for payload in (
            UserMessage((TextBlock(text),), PluginSource(text)),
            AssistantChunk(1, 1, TextDelta(0, text)),
            UnknownData("far-away/thing", {text: [text, {"": text}]}),
        )
    ]
    await comes_back(bench, logged(*payloads), cwd="/w \u2028\U0001f600/'\"", parent_session="é\n")


async def any_number(bench: StoreBench) -> None:
    """Numbers keep value and kind, and deep values their depth."""
    numbers: list[Any] = [0, -1, djson.MAX_INTEGER, -djson.MAX_INTEGER, 0.1, -1.5, 1e308, 5e-324]
    deep: Any = "the end"
    for _ in range(150):
        deep = [deep]
    numbers += [2.0, True, False, None, [], {}]
    log = logged(UnknownData("far-away/thing", {"numbers": numbers, "deep": deep}))
    await comes_back(bench, log)
    async with bench.open() as one:
        data = (await one.store.load("s")).events[1].data
        assert isinstance(data, UnknownData)
        kept: Any = data.data["numbers"]
        assert [type(item) for item in kept[:-2]] == [type(item) for item in numbers[:-2]]


async def any_run_of_deltas(bench: StoreBench) -> None:
    """Streams come back event by event, however they are split, mixed and timed."""
    deltas: list[SessionData] = []
    for number in range(200):
        text = TEXTS[number % 7][: number % 5]
        kind = number // 9 % 3
        chunk: StreamChunk = (
            TextDelta(number // 50, text)
            if kind == 0
            else ReasoningDelta(number // 60, text)
            if kind == 1
            else ToolCallDelta(2, "c", text, "n" if number % 9 == 0 else None)
        )
        deltas.append(AssistantChunk(1, 1 + number // 120, chunk))
    log = logged(*deltas)
    uneven = [0, 0, 5, 3, 1_000_000, 1_000_000, 2, 2, 2, 40]
    times = tuple(
        replace(event, time=1_700_000_000_000 + uneven[event.seq // 3 % 10]) for event in log
    )
    await comes_back(bench, times)
    async with bench.open() as one:
        for start in (1, 2, 17, 100, 199, 201):
            assert await one.store.read_from("s", start) == times[start:]


async def a_large_batch(bench: StoreBench) -> None:
    """Twenty thousand events at once are one batch like any other."""
    async with bench.open() as one:
        session = one.live("s")
        session.append(TurnStart(1, MessageTrigger(USER)))
        session.append(StepStart(1, 1))
        for number in range(LARGE):
            session.append(AssistantChunk(1, 1, TextDelta(0, f"w{number} ")))
        await one.sessions.flush(session)
        assert await one.store.read_from("s", LARGE + 1) == session.events[LARGE + 1 :]
    async with bench.open() as other:
        loaded = await other.store.load("s")
        assert loaded.events[: session.seq] == session.events[:]
        assert len(loaded.events) == session.seq + 2, "the open turn was not closed"


async def many_small_batches(bench: StoreBench) -> None:
    """A log that was written event by event is the same log."""
    log = worked_turn()
    async with bench.open() as one:
        await one.fill("s", log[:1])
        for event in log[1:]:
            await one.store.append("s", [event])
    async with bench.open() as other:
        assert (await other.store.load("s")).events == log


CONTENT = cases_of(
    every_type,
    any_text,
    any_number,
    any_run_of_deltas,
    a_large_batch,
    many_small_batches,
)
"""The cases of this subject."""
