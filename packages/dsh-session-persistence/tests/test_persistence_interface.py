"""The interface's rules, on the store in memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import anyio
import pytest

from dsh.core import App, InvalidPluginError
from dsh.llm import ToolCallBlock
from dsh.session import (
    APPEND,
    AssistantMessage,
    LiveSessions,
    MessageTrigger,
    Session,
    SessionEvent,
    SessionHeader,
    SessionMeta,
    StepStart,
    ToolCall,
    ToolResult,
    TurnStart,
    UnknownData,
    UserSource,
)
from dsh.session.testing import assert_balanced, types_of, worked_turn, write_turn
from dsh.session_persistence import (
    AppendRefused,
    PersistenceError,
    RawUnsupported,
    SessionInUse,
    SessionPersistence,
    StoredSessionExists,
    StoredSessionNotFound,
)
from dsh.session_persistence.backend import check_header
from dsh.session_persistence.testing import MemoryDisk, MemoryPersistence

LOG = worked_turn()
TRIGGER = MessageTrigger(UserSource())


def header(id: str = "s", **fields: Any) -> SessionHeader:
    return SessionHeader(id=id, created_at=5, **fields)


async def open_store(app: App, disk: MemoryDisk | None = None) -> SessionPersistence:
    await app.mount(LiveSessions).settled()
    await app.mount(MemoryPersistence, {"disk": disk or MemoryDisk()}).settled()
    return app[SessionPersistence]


def interrupted(*, started: bool | None = None) -> tuple[SessionEvent, ...]:
    """Return a log that breaks off in turn 2, in front of, or in, or without a tool call."""
    session = Session("s", LOG)
    session.append(TurnStart(2, TRIGGER))
    session.append(StepStart(2, 1))
    if started is not None:
        call = ToolCallBlock("c9", "echo", "{}")
        session.append(AssistantMessage(2, 1, (call,)), APPEND)
        if started:
            session.append(ToolCall(2, 1, "c9", "echo", "{}"))
    return session.events[:]


async def test_the_interface_cannot_be_mounted() -> None:
    assert SessionPersistence.service_key == "session_persistence"
    async with App() as app:
        with pytest.raises(InvalidPluginError, match="abstract"):
            await app.mount(SessionPersistence).settled()


async def test_a_turn_goes_in_and_comes_out() -> None:
    # case: PS-01
    async with App() as app:
        store = await open_store(app)
        given = header(cwd="/w", parent_session="p", seed_length=3, delegation_depth=1)
        await store.create(given)
        await store.append("s", LOG)
        loaded = await store.load("s")
        assert loaded.header == given
        assert loaded.events == LOG


@pytest.mark.parametrize(
    "fields",
    [
        {"created_at": 1.5},
        {"created_at": -1},
        {"created_at": True},
        {"created_at": 2**53},
        {"id": ""},
        {"cwd": "some/where"},
        {"version": 1},
        {"seed_length": -1},
    ],
    ids=repr,
)
async def test_a_header_that_cannot_be_stored_reserves_nothing(fields: dict[str, Any]) -> None:
    # case: PS-02
    async with App() as app:
        store = await open_store(app)
        with pytest.raises(AppendRefused) as caught:
            await store.create(replace(header(), **fields))
        assert caught.value.code == AppendRefused.MALFORMED_HEADER
        await store.create(header())
        assert check_header(header()) == header()


async def test_an_interrupted_turn_is_closed() -> None:
    # case: PS-03
    # case: PS-32
    async with App() as app:
        store = await open_store(app)
        await store.create(header())
        await store.append("s", interrupted())
        (before,) = await store.list_snapshots()
        seen = await store.inspect("s")
        (after,) = await store.list_snapshots()
        assert before == after
        assert types_of(seen.events)[-2:] == ["step/end", "turn/end"]
        loaded = await store.load("s")
        assert loaded == seen
        assert_balanced(loaded.events)
        (changed,) = await store.list_snapshots()
        assert changed.revision != before.revision
        assert (await store.load("s")) == loaded
        assert (await store.list_snapshots()) == (changed,)
        last = loaded.events[-1]
        await store.append("s", [SessionEvent(last.seq + 1, 0, TurnStart(3, TRIGGER))])
        assert (await store.read_from("s", last.seq + 1))[0].data == TurnStart(3, TRIGGER)


@pytest.mark.parametrize(
    ("started", "code"), [(False, "TOOL_NOT_STARTED"), (True, "TOOL_OUTCOME_UNKNOWN")]
)
async def test_a_call_without_result_gets_one(started: bool, code: str) -> None:
    # case: PS-04
    # case: PS-05
    async with App() as app:
        store = await open_store(app)
        await store.create(header())
        await store.append("s", interrupted(started=started))
        loaded = await store.load("s")
        assert types_of(loaded.events)[-3:] == ["tool/result", "step/end", "turn/end"]
        (result,) = [
            event.data
            for event in loaded.events
            if isinstance(event.data, ToolResult) and event.data.turn == 2
        ]
        assert result.error is not None
        assert (result.call_id, result.is_error, result.error.code) == ("c9", True, code)
        messages = Session("s", loaded.events).derive_messages()
        assert messages[-1].content[0].type == "tool-result"


async def test_sessions_without_events_are_not_listed() -> None:
    # case: PS-06
    async with App() as app:
        store = await open_store(app)
        await store.create(header("empty"))
        await store.create(header("full"))
        await store.append("full", LOG)
        assert await store.list() == (header("full"),)
        assert [item.header.id for item in await store.list_snapshots()] == ["full"]
        with pytest.raises(StoredSessionNotFound):
            await store.load("empty")


async def test_a_cancelled_read_touches_nothing() -> None:
    # case: PS-07
    async with App() as app:
        store = await open_store(app)
        done: list[str] = []
        with anyio.CancelScope() as scope:
            scope.cancel()
            await store.load("missing")
            done.append("unreachable")
        assert scope.cancelled_caught
        assert done == []


async def test_reading_from_a_place() -> None:
    # case: PS-08
    async with App() as app:
        store = await open_store(app)
        await store.create(header())
        whole = interrupted()
        await store.append("s", whole)
        assert await store.read_from("s", 0) == whole
        assert await store.read_from("s", 3) == whole[3:]
        assert await store.read_from("s", len(whole)) == ()
        assert await store.read_from("s", len(whole) + 100) == ()
        with pytest.raises(StoredSessionNotFound) as caught:
            await store.read_from("absent", 0)
        assert caught.value.code == "SESSION_NOT_FOUND"
        for bad in (-1, 1.5, True):
            with pytest.raises(ValueError, match="from_seq"):
                await store.read_from("s", bad)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


async def test_a_revision_changes_with_the_content_only() -> None:
    # case: PS-09
    async with App() as app:
        store = await open_store(app)
        await store.create(header())
        await store.append("s", LOG)
        first, second = await store.list_snapshots(), await store.list_snapshots()
        assert first == second
        await store.append("s", [SessionEvent(len(LOG), 0, TurnStart(2, TRIGGER))])
        assert (await store.list_snapshots())[0].revision != first[0].revision


@pytest.mark.parametrize("start", [0, 3])
async def test_a_batch_that_does_not_continue_is_refused(start: int) -> None:
    # case: PS-10
    # case: PS-11
    async with App() as app:
        store = await open_store(app)
        await store.create(header())
        await store.append("s", LOG[:2])
        with pytest.raises(AppendRefused) as caught:
            await store.append("s", LOG[start:])
        assert caught.value.code == AppendRefused.NOT_CONTIGUOUS
        with pytest.raises(AppendRefused):
            await store.append("s", (*LOG[2:4], *LOG[5:]))
        assert await store.read_from("s", 0) == LOG[:2]


async def test_lossy_data_is_refused_by_name() -> None:
    # case: PS-12
    async with App() as app:
        store = await open_store(app)
        await store.create(header())
        bad: Any
        for bad in (float("nan"), {1, 2}, b"x", 2**60, object(), "\ud800"):
            event = SessionEvent(0, 0, UnknownData("some/thing", {"x": bad}))
            with pytest.raises(AppendRefused, match="some/thing") as caught:
                await store.append("s", [event])
            assert caught.value.code == AppendRefused.NOT_JSON
        assert await store.list() == ()


async def test_an_append_needs_a_reservation_and_an_empty_one_does_nothing() -> None:
    async with App() as app:
        disk = MemoryDisk()
        store = await open_store(app, disk)
        with pytest.raises(StoredSessionNotFound):
            await store.append("s", LOG)
        await store.create(header())
        await store.append("s", ())
        assert disk.files == {}
        with pytest.raises(StoredSessionExists) as caught:
            await store.create(header())
        assert caught.value.code == "SESSION_ALREADY_EXISTS"
        await store.append("s", LOG)
        with pytest.raises(StoredSessionExists):
            await store.create(header())


class Vanishing(list[SessionEvent]):
    """A batch that its owner empties as soon as somebody has looked at it."""

    def __iter__(self) -> Iterator[SessionEvent]:
        items = list(super().__iter__())
        self.clear()
        return iter(items)


async def test_a_batch_is_looked_at_once() -> None:
    # case: PS-19
    async with App() as app:
        store = await open_store(app)
        await store.create(header())
        await store.append("s", Vanishing(LOG))
        assert await store.read_from("s", 0) == LOG


async def test_stored_data_does_not_change_with_the_callers() -> None:
    # case: PS-18
    data: dict[str, Any] = {"list": ["before"]}
    disk = MemoryDisk()
    async with App() as app:
        store = await open_store(app, disk)
        await store.create(header())
        await store.append("s", [SessionEvent(0, 7, UnknownData("some/thing", data))])
        data["list"].append("after")
        ((stored,), (loaded,)) = disk.events("s"), (await store.load("s")).events
        assert stored.data == loaded.data == UnknownData("some/thing", {"list": ["before"]})


async def test_data_that_changes_before_it_is_written_is_stored_as_it_was() -> None:
    # case: PS-18
    data: dict[str, Any] = {"list": ["before"]}
    disk = MemoryDisk()

    def change(name: str, session_id: str) -> None:
        if name == "write":
            data["list"].append("after")

    disk.on_call = change
    async with App() as app:
        store = await open_store(app, disk)
        await store.create(header())
        await store.append("s", [SessionEvent(0, 7, UnknownData("some/thing", data))])
    (stored,) = disk.events("s")
    assert stored.data == UnknownData("some/thing", {"list": ["before"]})


async def test_a_live_session_is_written_at_each_flush() -> None:
    # case: PS-13
    disk = MemoryDisk()
    async with App() as app:
        await open_store(app, disk)
        sessions = app[LiveSessions]
        session = sessions.create(app.ctx, "s", meta=SessionMeta(cwd="/w"))
        write_turn(session)
        assert disk.events("s") == ()
        await sessions.flush(session)
        assert disk.events("s") == session.events[:]
        assert disk.writes == 1
        await sessions.flush(session)
        assert disk.writes == 1


async def test_a_failed_flush_raises_and_keeps_the_events() -> None:
    # case: PS-15
    disk = MemoryDisk()
    async with App() as app:
        await open_store(app, disk)
        sessions = app[LiveSessions]
        session = sessions.create(app.ctx, "s")
        write_turn(session)
        disk.failures.append(OSError("no space"))
        with pytest.raises(ExceptionGroup) as caught:
            await sessions.flush(session)
        (failure,) = caught.value.exceptions
        assert isinstance(failure, PersistenceError)
        assert failure.code == "STORAGE_FAILED"
        assert isinstance(failure.__cause__, OSError)
        assert disk.events("s") == ()
        await sessions.flush(session)
        assert disk.events("s") == session.events[:]


async def test_a_fresh_session_cannot_take_a_stored_id() -> None:
    # case: PS-20
    # case: PS-21
    disk = MemoryDisk()
    async with App() as app:
        store = await open_store(app, disk)
        sessions = app[LiveSessions]
        await store.create(header())
        await store.append("s", LOG)
        with pytest.raises(StoredSessionExists):
            sessions.create(app.ctx, "s")
        assert sessions.get("s") is None
        assert disk.events("s") == LOG


async def test_a_resumed_session_writes_what_is_new() -> None:
    # case: PS-22
    disk = MemoryDisk()
    async with App() as app:
        await open_store(app, disk)
        sessions = app[LiveSessions]
        first = sessions.create(app.ctx, "s", meta=SessionMeta(cwd="/w", seed_length=0))
        write_turn(first)
        first.append(TurnStart(2, TRIGGER))
        await sessions.flush(first)
    async with App() as app:
        store = await open_store(app, disk)
        sessions = app[LiveSessions]
        loaded = await store.load("s")
        session = sessions.create(
            app.ctx, "s", seed=loaded.events, meta=SessionMeta.of(loaded.header)
        )
        assert session.turn_open is None
        write_turn(session)
        writes = disk.writes
        await sessions.flush(session)
        assert disk.writes == writes + 1
        assert disk.events("s") == session.events[:]
        assert session.last_turn == 3


async def test_a_session_from_elsewhere_cannot_claim_a_stored_log() -> None:
    # case: PS-21
    disk = MemoryDisk()
    async with App() as app:
        store = await open_store(app, disk)
        await store.create(header(cwd="/w"))
        await store.append("s", LOG)
        for meta in (SessionMeta(), SessionMeta(cwd="/elsewhere")):
            with pytest.raises(StoredSessionExists):
                app[LiveSessions].create(app.ctx, "s", seed=LOG, meta=meta)


async def test_a_fork_is_stored_once_with_its_seed() -> None:
    # case: PS-23
    disk = MemoryDisk()
    async with App() as app:
        await open_store(app, disk)
        sessions = app[LiveSessions]
        parent = sessions.create(app.ctx, "p")
        write_turn(parent)
        await sessions.flush(parent)
        kept = disk.events("p")
        child = sessions.fork(app.ctx, parent, child_id="c")
        await sessions.flush(child)
        await sessions.flush(child)
        assert disk.events("c") == parent.events[:]
        assert disk.files["c"].header.seed_length == parent.seq
        assert disk.events("p") == kept
        assert disk.writes == 2


async def test_a_disposed_session_is_written_first() -> None:
    # case: PS-25
    disk = MemoryDisk()
    async with App() as app:
        store = await open_store(app, disk)

        class Key: ...

        async with app.ctx.scope(Key()) as scope:
            session = app[LiveSessions].create(scope.ctx, "s")
            write_turn(session)
        assert (await store.load("s")).events == session.events[:]
        assert disk.events("s") == session.events[:]


async def test_a_live_session_is_loaded_between_its_turns_only() -> None:
    # case: PS-27
    disk = MemoryDisk()
    async with App() as app:
        store = await open_store(app, disk)
        session = app[LiveSessions].create(app.ctx, "s")
        write_turn(session)
        assert (await store.load("s")).events == session.events[:]
        session.append(TurnStart(2, TRIGGER))
        with pytest.raises(SessionInUse) as caught:
            await store.load("s")
        assert caught.value.code == "SESSION_IN_USE"
        assert types_of((await store.inspect("s")).events)[-1] == "turn/end"


async def test_a_store_takes_up_live_sessions_without_closing_their_turn() -> None:
    # case: PS-24
    disk = MemoryDisk()
    async with App() as app:
        await open_store(app, disk)
        sessions = app[LiveSessions]
        session = sessions.create(app.ctx, "s")
        session.append(TurnStart(1, TRIGGER))
        await sessions.flush(session)
        mount = next(item for item in app.mounts if item.name == "memory-persistence")
        await mount.restart()
        session.append(StepStart(1, 1))
        await sessions.flush(session)
        assert types_of(disk.events("s")) == ["turn/start", "step/start"]


async def test_sessions_are_archived_and_removed_for_people() -> None:
    async with App() as app:
        store = await open_store(app)
        await store.create(header())
        await store.append("s", LOG)
        await store.archive("s")
        await store.archive("s")
        assert await store.list() == ()
        assert await store.list(archived=True) == (header(),)
        assert (await store.list_snapshots(archived=True))[0].archived
        assert (await store.load("s")).events == LOG
        await store.unarchive("s")
        await store.unarchive("s")
        assert await store.list() == (header(),)
        await store.remove("s")
        assert await store.list() == ()
        for act in (store.archive, store.unarchive, store.remove, store.load, store.inspect):
            with pytest.raises(StoredSessionNotFound, match="'s'"):
                await act("s")
        await store.create(header())


async def test_a_live_session_is_neither_archived_nor_removed() -> None:
    async with App() as app:
        store = await open_store(app)
        sessions = app[LiveSessions]
        session = sessions.create(app.ctx, "s")
        write_turn(session)
        await sessions.flush(session)
        for act in (store.archive, store.remove):
            with pytest.raises(SessionInUse, match="'s' is live"):
                await act("s")


async def test_optional_parts_have_a_plain_answer() -> None:
    async with App() as app:
        store = await open_store(app)
        assert store.locate(header()) is None
        assert store.supports_raw is False
        with pytest.raises(RawUnsupported, match="memory-persistence") as caught:
            await store.read_raw("s")
        assert caught.value.code == "RAW_UNSUPPORTED"


def test_an_error_can_say_where() -> None:
    error = PersistenceError("it broke", location="/somewhere", hint="mend it")
    assert str(error) == "it broke (/somewhere); mend it"
    assert error.location == "/somewhere"
