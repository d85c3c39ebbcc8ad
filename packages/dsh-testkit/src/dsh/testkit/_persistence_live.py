"""Persistence contract: sessions that are live."""

from __future__ import annotations

from dsh.core import App
from dsh.session import LiveSessions, SessionMeta
from dsh.session.testing import assert_balanced, worked_turn, write_turn
from dsh.session_persistence import (
    SessionInUse,
    SessionPersistence,
    StoredSessionExists,
    StoredSessionNotFound,
)
from dsh.testkit._persistence_bench import StoreBench, cases_of, refused, turn_start

__all__ = ["LIVE"]

LOG = worked_turn()


async def flush_makes_durable(bench: StoreBench) -> None:
    """What a flush has waited for is there for another process, with the session's header."""
    async with bench.open() as one:
        session = one.live("s", cwd="/w", delegation_depth=2)
        write_turn(session)
        await one.sessions.flush(session)
        assert await one.store.read_from("s", 0) == session.events[:]
        await one.sessions.flush(session)
        async with bench.open() as other:
            loaded = await other.store.inspect("s")
        assert (loaded.header, loaded.events) == (session.header, session.events[:])


async def disposal_writes_first(bench: StoreBench) -> None:
    """What was still buffered when a session or an app goes is written."""
    async with bench.open() as one:
        session = one.sessions.prepare("s", meta=SessionMeta())
        entry = one.sessions.enter(one.app.ctx, session)
        one.sessions.announce(session)
        write_turn(session)
        await entry.dispose()
        other = one.live("t")
        write_turn(other)
    async with bench.open() as later:
        assert await later.store.read_from("s", 0) == session.events[:]
        assert await later.store.read_from("t", 0) == other.events[:]


async def empty_live_session_leaves_nothing(bench: StoreBench) -> None:
    """A live session without events is not stored, and its id is free afterwards."""
    async with bench.open() as one:
        session = one.live("s")
        await one.sessions.flush(session)
        assert await one.store.list() == ()
    async with bench.open() as later:
        assert await later.store.list() == ()
        await later.fill("s", LOG)


async def live_session_with_an_open_turn_is_in_use(bench: StoreBench) -> None:
    """A session whose turn is open cannot be loaded; it can be looked at."""
    async with bench.open() as one:
        session = one.live("s")
        write_turn(session)
        session.append(turn_start(2))
        await one.sessions.flush(session)
        await refused(one.store.load("s"), SessionInUse, SessionInUse.code)
        seen = await one.store.inspect("s")
        assert_balanced(seen.events)
        assert await one.store.read_from("s", 0) == session.events[:]


async def live_session_at_rest_is_loaded_as_it_is(bench: StoreBench) -> None:
    """Loading a live session without an open turn writes it first and gives its log."""
    async with bench.open() as one:
        session = one.live("s")
        write_turn(session)
        loaded = await one.store.load("s")
        assert loaded.events == session.events[:]
        write_turn(session)
        await one.sessions.flush(session)
        assert await one.store.read_from("s", 0) == session.events[:]


async def live_sessions_stay(bench: StoreBench) -> None:
    """A live session can be neither archived nor removed."""
    async with bench.open() as one:
        session = one.live("s")
        write_turn(session)
        await one.sessions.flush(session)
        for deed in (one.store.archive, one.store.remove):
            await refused(deed("s"), SessionInUse, SessionInUse.code)
        assert [item.id for item in await one.store.list()] == ["s"]


async def stored_id_is_not_taken_over(bench: StoreBench) -> None:
    """A fresh session with a stored id is refused, and so is one of another directory."""
    async with bench.open() as one:
        await one.fill("s", LOG, cwd="/w")
        for seed, cwd in (((), "/w"), (LOG[:-1], "/other"), (LOG, "/other"), (LOG, None)):
            meta = SessionMeta(cwd=cwd)
            try:
                one.sessions.create(one.app.ctx, "s", seed=seed, meta=meta)
            except StoredSessionExists:
                assert one.sessions.get("s") is None
                continue
            raise AssertionError(f"a session of {cwd} with {len(seed)} events took a stored id")
        assert await one.store.read_from("s", 0) == LOG


async def resumed_session_writes_what_is_new(bench: StoreBench) -> None:
    """A session seeded from its stored log goes on behind it."""
    async with bench.open() as one:
        await one.fill("s", LOG, cwd="/w")
        session = one.resume(await one.store.load("s"))
        before = await one.revision("s")
        await one.sessions.flush(session)
        assert await one.revision("s") == before, "a flush with nothing new wrote something"
        write_turn(session)
        await one.sessions.flush(session)
        assert await one.store.read_from("s", 0) == session.events[:]
    async with bench.open() as later:
        assert (await later.store.load("s")).events == session.events[:]


async def fork_is_written_whole(bench: StoreBench) -> None:
    """A fork is stored with what it inherited, once; its source stays as it is."""
    async with bench.open() as one:
        source = one.live("s")
        write_turn(source)
        await one.sessions.flush(source)
        before = await one.revision("s")
        child = one.sessions.fork(one.app.ctx, source, child_id="child")
        write_turn(child, "and now")
        await one.sessions.flush(child)
        await one.sessions.flush(child)
        stored = await one.store.load("child")
        assert stored.events == child.events[:]
        assert stored.header.parent_session == "s"
        assert stored.header.seed_length == len(source.events)
        assert await one.revision("s") == before


async def store_that_comes_later_takes_over(bench: StoreBench) -> None:
    """A store mounted while sessions live takes them up, and closes no turn that is live."""
    async with App() as app:
        await app.mount(LiveSessions).settled()
        sessions = app[LiveSessions]
        session = sessions.create(app.ctx, "s")
        write_turn(session)
        session.append(turn_start(2))
        mount = app.mount(bench.plugin, bench.config)
        await mount.settled()
        await sessions.flush(session)
        assert await app[SessionPersistence].read_from("s", 0) == session.events[:]
        await mount.restart()
        await sessions.flush(session)
        assert await app[SessionPersistence].read_from("s", 0) == session.events[:]


async def two_sessions_do_not_mix(bench: StoreBench) -> None:
    """Each session has its own log, however their events interleave."""
    async with bench.open() as one:
        first, second = one.live("a"), one.live("b")
        for number in range(3):
            write_turn(first, f"first {number}")
            write_turn(second, f"second {number}", tool=False)
            await one.sessions.flush(first)
        await one.sessions.flush(second)
        assert await one.store.read_from("a", 0) == first.events[:]
        assert await one.store.read_from("b", 0) == second.events[:]


async def stopping_writes_first(bench: StoreBench) -> None:
    """A store that is unloaded while sessions live writes what it holds first."""
    async with App() as app:
        await app.mount(LiveSessions).settled()
        sessions = app[LiveSessions]
        mount = app.mount(bench.plugin, bench.config)
        await mount.settled()
        session = sessions.create(app.ctx, "s")
        write_turn(session)
        await mount.dispose()
        async with bench.open() as other:
            try:
                stored = await other.store.read_from("s", 0)
            except StoredSessionNotFound:
                stored = ()
        assert stored == session.events[:]


LIVE = cases_of(
    flush_makes_durable,
    disposal_writes_first,
    empty_live_session_leaves_nothing,
    live_session_with_an_open_turn_is_in_use,
    live_session_at_rest_is_loaded_as_it_is,
    live_sessions_stay,
    stored_id_is_not_taken_over,
    resumed_session_writes_what_is_new,
    fork_is_written_whole,
    store_that_comes_later_takes_over,
    two_sessions_do_not_mix,
    stopping_writes_first,
)
"""The cases of this subject."""
