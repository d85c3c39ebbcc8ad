"""The stores of sessions are one to whoever uses them: same logs, whichever keeps them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import anyio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dsh.core import App, PluginLike
from dsh.llm import (
    BlockEnd,
    BlockStart,
    ReasoningDelta,
    TextBlock,
    TextDelta,
    TokenUsage,
    ToolCallBlock,
    ToolCallDelta,
    UsageChunk,
)
from dsh.session import (
    APPEND,
    AssistantChunk,
    AssistantMessage,
    Completed,
    ContextMessage,
    ErrorInfo,
    LiveSessions,
    MessageTrigger,
    PluginSource,
    Replace,
    SessionData,
    SessionEvent,
    SessionHeader,
    StepEnd,
    StepStart,
    SurfaceOp,
    ToolCall,
    ToolResult,
    TurnEnd,
    TurnStart,
    UnknownData,
    UserMessage,
    UserSource,
)
from dsh.session_persistence import SessionPersistence, StoredSessionNotFound
from dsh.session_persistence.backend import summarize
from dsh.session_persistence_jsonl import JsonlPersistence
from dsh.session_persistence_sqlite import SqlitePersistence

# --- random logs --------------------------------------------------------------------------

TEXT: Final = st.text(max_size=12)
"""Any text that is UTF-8, with line ends of every kind and NUL."""
SMALL: Final = st.integers(0, 3)
NUMBER: Final = st.integers(-(2**53) + 1, 2**53 - 1)
FLOAT: Final = st.floats(allow_nan=False, allow_infinity=False).filter(
    lambda number: number != 0 and abs(number) < 1e300
)
JSON: Final = st.recursive(
    st.none() | st.booleans() | NUMBER | FLOAT | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)

BLOCK: Final = st.builds(TextBlock, TEXT) | st.builds(ToolCallBlock, TEXT, TEXT, TEXT)
BLOCKS: Final = st.lists(BLOCK, max_size=3).map(tuple)
SOURCE: Final = st.builds(UserSource) | st.builds(PluginSource, TEXT)
CHUNK: Final = (
    st.builds(TextDelta, SMALL, TEXT)
    | st.builds(ReasoningDelta, SMALL, TEXT)
    | st.builds(ToolCallDelta, SMALL, TEXT, TEXT, st.none() | TEXT)
    | st.builds(BlockStart, SMALL, st.just("text"))
    | st.builds(BlockEnd, SMALL, BLOCK)
    | st.builds(UsageChunk, st.builds(TokenUsage, SMALL, SMALL))
)
ANY: Final = (
    st.builds(TurnStart, SMALL, st.builds(MessageTrigger, SOURCE))
    | st.builds(TurnEnd, SMALL, st.builds(Completed))
    | st.builds(StepStart, SMALL, SMALL)
    | st.builds(StepEnd, SMALL, SMALL)
    | st.builds(ToolCall, SMALL, SMALL, TEXT, TEXT, TEXT)
    | st.builds(
        UnknownData,
        st.sampled_from(("far/away", "far/ä b", 'far/"quoted"')),
        st.dictionaries(TEXT, JSON, max_size=3),
        st.booleans(),
    )
)
ON_SURFACE: Final = (
    st.builds(UserMessage, BLOCKS, SOURCE)
    | st.builds(ContextMessage, BLOCKS, SOURCE)
    | st.builds(AssistantMessage, SMALL, SMALL, BLOCKS)
    | st.builds(
        ToolResult,
        SMALL,
        SMALL,
        TEXT,
        BLOCKS,
        st.booleans(),
        st.none() | st.builds(ErrorInfo, TEXT, TEXT),
        st.none() | st.dictionaries(TEXT, JSON, max_size=2),
    )
)
OPERATION: Final = st.just(APPEND) | st.builds(Replace, SMALL, SMALL)
SEQS: Final = st.none() | st.lists(st.integers(0, 2**40), max_size=4).map(tuple)

Entry = tuple[SessionData, SurfaceOp | None, tuple[int, ...] | None]


@st.composite
def runs(draw: st.DrawFn) -> list[Entry]:
    """Several deltas of one kind in a row, as a model streams them."""
    kind = draw(st.sampled_from((TextDelta, ReasoningDelta)))
    turn, step, index = draw(SMALL), draw(SMALL), draw(SMALL)
    texts = draw(st.lists(TEXT, min_size=2, max_size=8))
    return [(AssistantChunk(turn, step, kind(index, text)), None, None) for text in texts]


ENTRIES: Final = (
    st.tuples(ANY, st.none(), SEQS).map(lambda entry: [entry])
    | st.tuples(ON_SURFACE, st.none() | OPERATION, SEQS).map(lambda entry: [entry])
    | st.tuples(st.builds(AssistantChunk, SMALL, SMALL, CHUNK), st.none(), st.none() | SEQS).map(
        lambda entry: [entry]
    )
    | runs()
)


@st.composite
def batches(draw: st.DrawFn) -> list[tuple[SessionEvent, ...]]:
    """A log in the batches it is written in."""
    entries = [entry for some in draw(st.lists(ENTRIES, min_size=1, max_size=12)) for entry in some]
    times = draw(
        st.lists(st.integers(0, 2**45), min_size=len(entries), max_size=len(entries))
        | st.lists(SMALL, min_size=len(entries), max_size=len(entries))
    )
    events = [
        SessionEvent(seq, times[seq], data, op, seqs)
        for seq, (data, op, seqs) in enumerate(entries)
    ]
    cuts = draw(st.sets(st.integers(1, len(events)), max_size=4))
    edges = [0, *sorted(cuts | {len(events)})]
    return [tuple(events[a:b]) for a, b in pairwise(edges)]


HEADER: Final = st.builds(
    SessionHeader,
    id=st.text(min_size=1, max_size=8),
    created_at=st.integers(0, 2**53 - 1),
    cwd=st.none() | TEXT.map(lambda text: "/" + text.replace("\0", "")),
    parent_session=st.none() | TEXT,
    seed_length=st.none() | SMALL,
    origin=st.none() | st.just("subagent"),
    delegation_depth=st.none() | SMALL,
    agent_preset=st.none() | TEXT,
)

# --- the stores ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Kind:
    """A store and how it is configured."""

    plugin: PluginLike
    config: dict[str, object]

    async def enter(self, stack: AsyncExitStack) -> SessionPersistence:
        """Open it as a process of its own would."""
        app = await stack.enter_async_context(App())
        await app.mount(LiveSessions).settled()
        await app.mount(self.plugin, self.config).settled()
        return app[SessionPersistence]


def kinds(folder: str) -> list[Kind]:
    """Return every store that keeps sessions, each with a place of its own."""
    root = Path(folder)
    return [
        Kind(SqlitePersistence, {"file": str(root / "sessions.sqlite")}),
        Kind(JsonlPersistence, {"folder": str(root / "packed")}),
        Kind(JsonlPersistence, {"folder": str(root / "plain"), "pack_chunks": False}),
        Kind(JsonlPersistence, {"folder": str(root / "small"), "compression": "zstd"}),
    ]


async def seen(
    store: SessionPersistence, header: SessionHeader, starts: Sequence[int]
) -> dict[str, Any]:
    """Return what a store tells about a session."""
    inspected = await store.inspect(header.id)
    (listed,) = await store.list_snapshots()
    report = await store.verify(header.id)
    return {
        "header": inspected.header,
        "inspected": inspected.events,
        "from": [await store.read_from(header.id, start) for start in starts],
        "listed": (listed.header, listed.summary, listed.archived),
        "report": (report.events, report.damage, report.torn, report.interrupted),
    }


async def check(header: SessionHeader, log: list[tuple[SessionEvent, ...]], folder: str) -> None:
    whole = tuple(event for batch in log for event in batch)
    starts = range(len(whole) + 2)
    results: list[list[dict[str, Any]]] = []
    for kind in kinds(folder):
        told: list[dict[str, Any]] = []
        async with AsyncExitStack() as stack:
            store = await kind.enter(stack)
            await store.create(header)
            for batch in log:
                await store.append(header.id, batch)
            told.append(await seen(store, header, starts))
            assert told[0]["from"] == [whole[start:] for start in starts]
            assert told[0]["listed"][1] == summarize(whole)
        async with AsyncExitStack() as stack:
            store = await kind.enter(stack)
            told.append(await seen(store, header, starts))
            assert told[1] == told[0]
            loaded = await store.load(header.id)
            assert loaded.events == told[0]["inspected"]
            told.append(await seen(store, header, range(len(loaded.events) + 1)))
        async with AsyncExitStack() as stack:
            store = await kind.enter(stack)
            assert await store.load(header.id) == loaded
            await store.remove(header.id)
            try:
                await store.inspect(header.id)
            except StoredSessionNotFound:
                pass
            else:
                raise AssertionError("a removed session is still there")
        results.append(told)
    for kind, told in zip(kinds(folder), results, strict=True):
        for mine, other in zip(told, results[0], strict=True):
            for question, answer in other.items():
                assert mine[question] == answer, (question, kind)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(header=HEADER, log=batches())
def test_every_store_gives_back_the_same(
    header: SessionHeader, log: list[tuple[SessionEvent, ...]]
) -> None:
    # case: SQ-09
    with TemporaryDirectory() as folder:
        anyio.run(check, header, log, folder)
