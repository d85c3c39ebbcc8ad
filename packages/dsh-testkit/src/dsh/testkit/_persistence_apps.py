"""Persistence contract: two apps on one storage, as two processes, and many sessions in one."""

from __future__ import annotations

import anyio

from dsh.session import Session, SessionEvent, SessionMeta
from dsh.session.testing import assert_balanced, worked_turn, write_turn
from dsh.session_persistence import PersistenceError, SessionInUse, StoredSessionExists
from dsh.session_persistence.backend import summarize
from dsh.testkit._persistence_bench import OpenStore, StoreBench, cases_of, refused, turn_start

__all__ = ["APPS"]

LOG = worked_turn()
MANY = 50


async def one_writer_at_a_time(bench: StoreBench) -> None:
    """A session that is live in one app is in use for another, until the first has closed."""
    async with bench.open() as two:
        async with bench.open() as one:
            await one.fill("s", LOG, cwd="/w")
            session = one.resume(await one.store.load("s"))
            write_turn(session)
            await one.sessions.flush(session)
            await _everything_is_refused(two, session)
            assert (await two.store.inspect("s")).events == session.events[:]
            assert await two.store.read_from("s", 0) == session.events[:]
            assert (await two.snapshot("s")).summary == summarize(session.events)
            write_turn(session)
        stored = await two.store.load("s")
        assert stored.events == session.events[:]
        again = two.resume(stored)
        write_turn(again)
        await two.sessions.flush(again)
        assert await two.store.read_from("s", 0) == again.events[:]


async def _everything_is_refused(two: OpenStore, session: Session) -> None:
    store, code = two.store, SessionInUse.code
    for step in (store.load, store.archive, store.remove, store.salvage):
        await refused(step("s"), SessionInUse, code)
    event = SessionEvent(session.seq, 0, turn_start(session.last_turn + 1))
    await refused(store.append("s", [event]), SessionInUse, code)
    meta = SessionMeta.of(session.header)
    for seed, kind in ((session.events[:], SessionInUse), ((), StoredSessionExists)):
        try:
            two.sessions.create(two.app.ctx, "s", seed=seed, meta=meta)
        except kind:
            assert two.sessions.get("s") is None
            continue
        raise AssertionError(f"a session with {len(seed)} events took the id of a live one")
    assert await two.store.read_from("s", 0) == session.events[:]


async def a_first_batch_is_one_apps(bench: StoreBench) -> None:
    """Two apps that begin a session with one id at the same time do not mix their logs."""
    async with bench.open() as one, bench.open() as two:
        first, second = one.live("s"), two.live("s")
        write_turn(first, "first")
        write_turn(second, "second")
        await one.sessions.flush(first)
        try:
            await two.sessions.flush(second)
        except ExceptionGroup as error:
            (told,) = error.exceptions
            assert isinstance(told, SessionInUse | StoredSessionExists), told
        else:
            raise AssertionError("two live sessions were stored under one id")
        write_turn(first)
        await one.sessions.flush(first)
        assert await one.store.read_from("s", 0) == first.events[:]
        # it must not be written behind either
        second_log = second.events[:]
    async with bench.open() as later:
        assert (await later.store.load("s")).events == first.events[:]
        assert second_log != first.events[: len(second_log)]


async def a_loaded_session_is_not_held(bench: StoreBench) -> None:
    """Loading by itself keeps nobody out: another app may go on with the session."""
    async with bench.open() as one, bench.open() as two:
        await one.fill("s", LOG)
        loaded = await one.store.load("s")
        session = two.resume(await two.store.load("s"))
        write_turn(session)
        await two.sessions.flush(session)
        try:
            one.resume(loaded)
        except PersistenceError:
            assert one.sessions.get("s") is None
        else:
            raise AssertionError("a session was resumed while it is live in another app")
        assert await one.store.read_from("s", 0) == session.events[:]


async def many_sessions_at_once(bench: StoreBench) -> None:
    """Fifty sessions written at the same time are all there, and none has another's events."""
    logs: dict[str, Session] = {}

    async def work(one: OpenStore, session_id: str) -> None:
        session = logs[session_id] = one.live(session_id)
        for number in range(2):
            write_turn(session, f"{session_id} {number}", tool=False)
            await one.sessions.flush(session)

    async with bench.open() as one, anyio.create_task_group() as tasks:
        for number in range(MANY):
            tasks.start_soon(work, one, f"session-{number}")
    async with bench.open() as other:
        shown = {item.header.id: item.summary for item in await other.store.list_snapshots()}
        assert shown == {key: summarize(session.events) for key, session in logs.items()}
        for session_id, session in logs.items():
            assert await other.store.read_from(session_id, 0) == session.events[:]


async def a_fork_goes_on_elsewhere(bench: StoreBench) -> None:
    """A fork is resumed by another app with its line of descent; its source does not change."""
    async with bench.open() as one:
        source = one.live("source", cwd="/w")
        write_turn(source)
        await one.sessions.flush(source)
        child = one.sessions.fork(one.app.ctx, source, child_id="child")
        write_turn(child)
        await one.sessions.flush(child)
    async with bench.open() as other:
        before = await other.revision("source")
        stored = await other.store.load("child")
        assert (stored.header.parent_session, stored.header.seed_length) == ("source", source.seq)
        assert stored.header.cwd == "/w"
        again = other.resume(stored)
        write_turn(again)
        await other.sessions.flush(again)
        assert await other.revision("source") == before
    async with bench.open() as later:
        loaded = await later.store.load("child")
        assert loaded.events == again.events[:]
        assert_balanced(loaded.events)
        assert (await later.store.load("source")).events == source.events[:]


APPS = cases_of(
    one_writer_at_a_time,
    a_first_batch_is_one_apps,
    a_loaded_session_is_not_held,
    many_sessions_at_once,
    a_fork_goes_on_elsewhere,
)
"""The cases of this subject."""
