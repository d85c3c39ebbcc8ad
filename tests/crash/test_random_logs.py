"""Whatever was being written when a process died: what is loaded is closed, once and for all."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import anyio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dsh.core import App, PluginLike
from dsh.llm import ContentBlock, TextBlock, TextDelta, ToolCallBlock
from dsh.session import (
    APPEND,
    Aborted,
    AssistantChunk,
    AssistantMessage,
    Completed,
    ContextMessage,
    Failed,
    LiveSessions,
    MessageTrigger,
    PluginSource,
    Session,
    SessionEvent,
    SessionHeader,
    SteeringMessage,
    StepEnd,
    StepStart,
    ToolCall,
    ToolResult,
    TurnEnd,
    TurnStart,
    UserMessage,
    UserSource,
    interrupted_turn_closers,
)
from dsh.session.testing import assert_balanced
from dsh.session_persistence import (
    PersistenceError,
    SessionPersistence,
    StoredSessionNotFound,
)
from dsh.session_persistence.backend import summarize
from dsh.session_persistence_jsonl import JsonlPersistence
from dsh.session_persistence_sqlite import SqlitePersistence

Events = tuple[SessionEvent, ...]

HEADER: Final = SessionHeader(id="s", created_at=1, cwd="/w")
TEXT: Final = st.text(min_size=1, max_size=8)
CONTENT: Final = TEXT.map(lambda text: (TextBlock(text),))


class World:
    """Writes a log as a loop might, and breaks off wherever it likes.

    Args:
        draw: Makes the decisions.
    """

    def __init__(self, draw: st.DrawFn) -> None:
        self._draw = draw
        self._calls = 0
        self.session = Session("s")

    def turn(self) -> None:
        """Write a turn."""
        draw, session = self._draw, self.session
        turn = session.last_turn + 1
        session.append(TurnStart(turn, MessageTrigger(UserSource())))
        session.append(UserMessage(draw(CONTENT), UserSource()), APPEND)
        for step in range(1, draw(st.integers(0, 3)) + 1):
            if draw(st.booleans()):
                session.append(SteeringMessage(turn, draw(CONTENT), UserSource()), APPEND)
            self._step(turn, step)
        reason = draw(st.sampled_from((Completed(), Aborted("enough"), Failed(1, "no", "X"))))
        session.append(TurnEnd(turn, reason))

    def _step(self, turn: int, step: int) -> None:
        draw, session = self._draw, self.session
        session.append(StepStart(turn, step))
        for text in draw(st.lists(TEXT, max_size=5)):
            session.append(AssistantChunk(turn, step, TextDelta(0, text)))
        if draw(st.booleans()):
            names = [f"c{self._calls + number}" for number in range(draw(st.integers(0, 3)))]
            self._calls += len(names)
            blocks: tuple[ContentBlock, ...] = (
                *draw(CONTENT),
                *(ToolCallBlock(name, "echo", "{}") for name in names),
            )
            session.append(AssistantMessage(turn, step, blocks), APPEND)
            self._calls_of(turn, step, names)
        if draw(st.booleans()):
            session.append(ContextMessage(draw(CONTENT), PluginSource("guard")), APPEND)
        session.append(StepEnd(turn, step))

    def _calls_of(self, turn: int, step: int, names: list[str]) -> None:
        """Call one after the other, or all before the first result."""
        draw, session = self._draw, self.session
        rounds = [names] if draw(st.booleans()) else [[name] for name in names]
        for together in rounds:
            for name in together:
                session.append(ToolCall(turn, step, name, "echo", "{}"))
            for name in together:
                result = ToolResult(turn, step, name, draw(CONTENT), is_error=draw(st.booleans()))
                session.append(result, APPEND)


@st.composite
def logs(draw: st.DrawFn) -> Events:
    """A log that breaks off anywhere."""
    world = World(draw)
    for _ in range(draw(st.integers(1, 4))):
        world.turn()
    whole = world.session.events[:]
    times = draw(st.lists(st.integers(0, 50), min_size=len(whole), max_size=len(whole)))
    end = draw(st.integers(1, len(whole)))
    return tuple(replace(event, time=at) for event, at in zip(whole[:end], times, strict=False))


@dataclass(frozen=True, slots=True)
class Kind:
    """A store: how it is made, and which of its files grows."""

    name: str
    plugin: PluginLike
    config: dict[str, object]
    grows: str

    def app(self, folder: Path) -> tuple[PluginLike, dict[str, object]]:
        """Return the plugin and its configuration in a folder."""
        place = {"file": str(folder / "sessions.sqlite")} if self.name == "sqlite" else {}
        return self.plugin, {**self.config, **(place or {"folder": str(folder)})}


KINDS: Final = (
    Kind("jsonl", JsonlPersistence, {}, "session.jsonl"),
    Kind("zstd", JsonlPersistence, {"compression": "zstd"}, "session.jsonl.zst"),
    Kind("sqlite", SqlitePersistence, {}, "sessions.sqlite-wal"),
)


async def crashed(kind: Kind, log: Events, cuts: list[int], part: float, folder: Path) -> int:
    """Write a log in batches, then leave what a process leaves that dies while it writes the last.

    Returns:
        How many events were acknowledged.
    """
    alive, dead = folder / "alive", folder / "dead"
    async with App() as app:
        await app.mount(LiveSessions).settled()
        await app.mount(*kind.app(alive)).settled()
        store = app[SessionPersistence]
        await store.create(HEADER)
        acknowledged, before = 0, 0
        for start, end in pairwise([0, *cuts, len(log)]):
            acknowledged = start
            before = sum(file.stat().st_size for file in alive.rglob(kind.grows))
            await store.append("s", log[start:end])
        shutil.copytree(alive, dead)
    (file,) = dead.rglob(kind.grows)
    size = file.stat().st_size
    with file.open("r+b") as grown:
        grown.truncate(before + round((size - before) * part))
    return len(log) if part == 1 else acknowledged


async def check(kind: Kind, log: Events, cuts: list[int], part: float, folder: Path) -> None:
    acknowledged = await crashed(kind, log, cuts, part, folder)
    async with App() as app:
        await app.mount(LiveSessions).settled()
        await app.mount(*kind.app(folder / "dead")).settled()
        store = app[SessionPersistence]
        try:
            loaded = (await store.load("s")).events
        except (StoredSessionNotFound, PersistenceError):
            # what is not there is no session; nothing of it had been acknowledged
            assert acknowledged == 0, kind
            return
        count = len(loaded)
        while loaded[:count] != log[:count]:
            count -= 1
        assert count >= acknowledged
        assert loaded[count:] in (
            interrupted_turn_closers(log[:count]),
            interrupted_turn_closers(log[:count], more_was_lost=True),  # a line without its end
        )
        assert_balanced(loaded)
        (listed,) = await store.list_snapshots()
        assert listed.summary == summarize(loaded)
        revision = listed.revision
        assert (await store.load("s")).events == loaded
        (listed,) = await store.list_snapshots()
        assert listed.revision == revision, "a second load has written something"
        report = await store.verify("s")
        assert (report.sound, report.torn, report.interrupted) == (True, False, False)
        # whoever goes on appends behind the repair
        session = Session("s", loaded)
        turn = session.last_turn + 1
        session.append(TurnStart(turn, MessageTrigger(UserSource())))
        session.append(TurnEnd(turn, Completed()))
        await store.append("s", session.events[len(loaded) :])
        assert (await store.load("s")).events == session.events[:]


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(log=logs(), cuts=st.sets(st.integers(1, 60), max_size=4), part=st.floats(0, 1))
def test_what_is_loaded_is_closed_once(log: Events, cuts: set[int], part: float) -> None:
    edges = sorted(cut for cut in cuts if cut < len(log))
    for kind in KINDS:
        with TemporaryDirectory() as folder:
            anyio.run(check, kind, log, edges, part, Path(folder))
