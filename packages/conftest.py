"""Strategies over everything a session log can hold, for tests of what carries logs around."""

from __future__ import annotations

from typing import Any, TypeAlias

import pytest
from hypothesis import strategies as st

from dsh.core import DshError
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
    TextBlock,
    TextDelta,
    TokenUsage,
    ToolCallBlock,
    ToolCallDelta,
    ToolResultBlock,
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
    Session,
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
)

Events: TypeAlias = st.SearchStrategy[tuple[SessionEvent, ...]]


def _payloads() -> st.SearchStrategy[SessionData]:
    whole = st.integers(-(2**53) + 1, 2**53 - 1)
    small = st.integers(0, 3)
    # a surrogate stands for no character, and is refused at the log's door
    text = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
    short = (
        st.sampled_from(["", "a", "\u2028", "\u0085", "\x0b\x1c", '"\\\n', "ü\x00", "😀"]) | text
    )
    scalar = st.none() | st.booleans() | whole | st.floats(allow_nan=False, allow_infinity=False)
    value: st.SearchStrategy[Any] = st.recursive(
        scalar | short,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(short, inner, max_size=3),
        max_leaves=6,
    )
    free = st.dictionaries(text.filter(lambda key: key not in ("kind", "type")), value, max_size=3)
    none = st.none()

    def opaque(names: frozenset[str]) -> st.SearchStrategy[str]:
        return text.filter(lambda kind: kind not in names)

    source = (
        st.just(UserSource())
        | st.builds(PluginSource, short)
        | st.builds(OtherSource, opaque(frozenset({"user", "plugin"})), free)
    )
    block = st.recursive(
        st.builds(TextBlock, short)
        | st.builds(ReasoningBlock, short)
        | st.builds(ToolCallBlock, short, short, short)
        | st.builds(UnknownBlock, st.sampled_from(["image", "", "x y"]), free),
        lambda inner: st.builds(
            ToolResultBlock, short, st.lists(inner, max_size=2).map(tuple), st.booleans()
        ),
        max_leaves=3,
    )
    blocks = st.lists(block, max_size=3).map(tuple)
    usage = st.builds(TokenUsage, whole, whole, none | whole, none | whole, none | whole)
    failure = st.builds(
        LlmFailure, none | st.integers(100, 599), none | st.floats(0.5, 1e9), none | st.just("r")
    )
    replay = st.builds(ReplayState, short, short, free)
    index = st.integers(0, 2)
    call_id = st.sampled_from(["", "c1"])
    chunk = (
        st.builds(TextDelta, index, short)
        | st.builds(ReasoningDelta, index, short)
        | st.builds(ToolCallDelta, index, call_id, short, none | st.just("n"))
        | st.builds(BlockStart, index, short)
        | st.builds(BlockEnd, index, block)
        | st.builds(UsageChunk, usage)
        | st.builds(
            Finish,
            st.builds(FinishReason, short.filter(bool), none | short, none | short, none | failure),
            none | replay,
        )
    )
    tool = st.builds(ToolSchema, short, short, free)
    config = st.builds(
        LlmCallConfig,
        short,
        none | whole | st.floats(0, 2),
        none | whole,
        none | st.lists(short, max_size=2).map(tuple),
        none | short,
    )
    message = st.builds(
        Message, st.sampled_from(["system", "user", "assistant"]), blocks, none | replay
    )
    messages = st.lists(message, max_size=2).map(tuple)
    tools = st.lists(tool, max_size=2).map(tuple)
    header = st.builds(RequestHeader, config, none | short, none | tools, none | messages)
    texts = st.lists(short, max_size=2).map(tuple)
    trigger = (
        st.builds(MessageTrigger, source)
        | st.builds(InjectionTrigger, source)
        | st.just(RecordTrigger())
        | st.builds(OtherTrigger, opaque(frozenset({"message", "injection", "record"})), free)
    )
    kinds = frozenset(
        cls.kind
        for cls in (
            Completed, Aborted, Failed, Disposed, MaxTokens, Rejected, Interrupted, Refusal,
            MaxTurnRequests,
        )
    )  # fmt: skip
    reason = (
        st.sampled_from([Completed(), Disposed(), MaxTokens(), Interrupted(), Refusal()])
        | st.builds(Aborted, none | short)
        | st.builds(Failed, small, short, none | short, none | failure)
        | st.builds(Rejected, short)
        | st.builds(MaxTurnRequests, short, whole)
        | st.builds(OtherReason, opaque(kinds), free)
    )
    return st.one_of(
        st.builds(TurnStart, small, trigger),
        st.builds(TurnEnd, small, reason),
        st.builds(StepStart, small, small),
        st.builds(StepEnd, whole, small),
        st.builds(UserMessage, blocks, source),
        st.builds(PromptBlocked, blocks, source, short),
        st.builds(ContextMessage, blocks, source),
        st.builds(SteeringMessage, small, blocks, source),
        st.builds(AssistantChunk, small, small, chunk),
        st.builds(
            AssistantMessage, small, small, blocks, none | usage, st.booleans(), none | replay
        ),
        st.builds(ToolCall, small, small, short, short, short),
        st.builds(
            ToolResult,
            small,
            small,
            short,
            blocks,
            st.booleans(),
            none | st.builds(ErrorInfo, short, short),
            none | free,
        ),
        st.builds(
            TodoWrite,
            st.lists(
                st.builds(
                    TodoItem, short, st.sampled_from(["pending", "in_progress", "completed"])
                ),
                max_size=2,
            ).map(tuple),
        ),
        st.builds(
            RequestHeaderSnapshot, header, st.sampled_from(["initial", "resume", "fallback"])
        ),
        st.builds(
            RequestHeaderDelta,
            none | st.builds(SystemDelta, small, small, texts),
            none | st.builds(ToolsDelta, tools, texts, tools),
            config,
            none | messages,
        ),
        st.builds(
            UnknownData,
            st.sampled_from(["far-away/thing", 'odd"/\\\u2028', "no slash", "text-delta"]),
            free,
            st.booleans(),
        ),
    )


@st.composite
def _streams(draw: st.DrawFn) -> list[SessionData]:
    """A block as a model streams it: its deltas, and an end that may or may not repeat them."""
    turn, step, index = draw(st.integers(1, 2)), 1, draw(st.integers(0, 1))
    pieces = draw(
        st.lists(st.sampled_from(["", "ab", "ü😀", '"\n', "x" * 40, "\u2028"]), max_size=8)
    )
    text = "".join(pieces) + draw(st.sampled_from(["", "", "", "!"]))
    kind = draw(st.sampled_from(["text", "reasoning", "tool-call"]))
    name = draw(st.sampled_from([None, "n"]))
    deltas: list[Any]
    end: Any
    if kind == "text":
        deltas, end = [TextDelta(index, piece) for piece in pieces], TextBlock(text)
    elif kind == "reasoning":
        deltas, end = [ReasoningDelta(index, piece) for piece in pieces], ReasoningBlock(text)
    else:
        deltas = [ToolCallDelta(index, "c", piece, name) for piece in pieces]
        end = ToolCallBlock("c", "n", text)
    chunks = [BlockStart(index, kind), *deltas, BlockEnd(index, end)]
    return [AssistantChunk(turn, step, chunk) for chunk in chunks]


@st.composite
def _logs(draw: st.DrawFn) -> tuple[SessionEvent, ...]:
    """A log as a session accepts it: each event put to one, those it refuses left out."""
    session = Session("s", enclosed=False)
    groups = st.one_of(_payloads().map(lambda data: [data]), _streams())
    for group in draw(st.lists(groups, max_size=8)):
        for data in group:
            surface, sources = None, None
            if data.surface_eligible:
                nodes = [event.seq for event in session.events if event.surface_op is not None]
                surface = APPEND
                if nodes and draw(st.integers(0, 4)) == 0:
                    surface = Replace(nodes[0], nodes[-1])
                start = draw(st.integers(0, session.seq))
                sources = draw(
                    st.sampled_from([None, range(start, session.seq), range(session.seq)])
                )
            try:
                session.append(data, surface, sources)
            except DshError:
                continue
    return session.events[:]


@pytest.fixture(scope="session")
def payloads() -> st.SearchStrategy[SessionData]:
    """Any payload of any type."""
    return _payloads()


@pytest.fixture(scope="session")
def logs() -> Events:
    """Any log that a session accepts."""
    return _logs()
