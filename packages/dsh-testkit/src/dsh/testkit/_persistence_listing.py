"""Persistence contract: listings, revisions, integrity, and what is put away or removed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress

import anyio

from dsh.llm import TextBlock
from dsh.session import SessionEvent, UserMessage, UserSource
from dsh.session.testing import worked_turn, write_turn
from dsh.session_persistence import PersistenceError, StoredSessionNotFound
from dsh.session_persistence.backend import summarize
from dsh.testkit._persistence_bench import (
    OpenStore,
    StoreBench,
    cases_of,
    header,
    interrupted,
    refused,
    turn_start,
)

__all__ = ["LISTING"]

LOG = worked_turn()
NOT_FOUND = StoredSessionNotFound.code


async def summaries_tell_the_log(bench: StoreBench) -> None:
    """A listing tells title, turns, events, time and end of each log, whoever wrote it last."""
    async with bench.open() as one:
        await one.fill("stored", worked_turn("first line\nsecond"))
        await one.fill("broken", interrupted("c1"))
        live = one.live("live")
        write_turn(live, "live prompt")
        await one.sessions.flush(live)
        write_turn(live)
        await one.sessions.flush(live)
        child = one.sessions.fork(one.app.ctx, live, child_id="child")
        await one.sessions.flush(child)
        for session_id, title in (("stored", "first line"), ("live", "live prompt")):
            assert (await one.snapshot(session_id)).summary.title == title
        assert (await one.snapshot("broken")).summary.ended is None
        await _summed_up(one, "stored", "broken", "live", "child")
    async with bench.open() as other:
        await _summed_up(other, "stored", "broken", "live", "child")
        loaded = await other.store.load("broken")
        assert (await other.snapshot("broken")).summary.ended == "interrupted"
        resumed = other.resume(loaded)
        write_turn(resumed)
        await other.sessions.flush(resumed)
        await _summed_up(other, "broken")
        assert (await other.snapshot("broken")).summary.ended == "completed"


async def _summed_up(one: OpenStore, *ids: str) -> None:
    for session_id in ids:
        shown = await one.snapshot(session_id)
        assert shown.summary == summarize(await one.store.read_from(session_id, 0))


async def what_is_listed_is_readable(bench: StoreBench) -> None:
    """Nothing that a store wrote itself is told as unreadable, wherever it is in its life."""
    async with bench.open() as one:
        assert await one.store.unreadable() == ()
        await one.fill("s", LOG)
        await one.fill("broken", interrupted("c1"))
        await one.fill("away", LOG)
        await one.store.archive("away")
        await one.store.create(header("reserved"))
        live = one.live("live")
        write_turn(live)
        await one.sessions.flush(live)
        assert await one.store.unreadable() == ()
    async with bench.open() as other:
        assert await other.store.unreadable() == ()
        await other.store.remove("s")
        await other.store.load("broken")
        assert await other.store.unreadable() == ()
        assert not any(item.summary.damaged for item in await other.store.list_snapshots())


async def logs_that_no_session_accepts_are_damaged(bench: StoreBench) -> None:
    """Verifying tries what a resume tries, and names the event that does not go on from the log."""
    wrong = SessionEvent(len(LOG), LOG[-1].time, turn_start(5))
    async with bench.open() as one:
        await one.fill("s", (*LOG, wrong))
        report = await one.store.verify("s")
        assert not report.sound, "a log that no session can start from is sound"
        assert (report.events, [item.seq for item in report.damage]) == (len(LOG), [len(LOG)])
        try:
            told = not (await one.store.salvage("s")).sound
        except PersistenceError:
            told = True
        assert told, "nothing was cut, and salvaging says that all is well"


async def sizes_grow(bench: StoreBench) -> None:
    """A store that tells sizes tells them in bytes, larger for a log that has grown."""
    async with bench.open() as one:
        await one.fill("s", LOG)
        before = (await one.snapshot("s")).size
        more = UserMessage(
            (TextBlock("no two words alike: " + str(list(range(9_000)))),), UserSource()
        )
        await one.store.append("s", [SessionEvent(len(LOG), 0, turn_start(2))])
        await one.store.append("s", [SessionEvent(len(LOG) + 1, 0, more)])
        after = (await one.snapshot("s")).size
        assert (before is None) == (after is None)
        if before is not None and after is not None:
            assert 0 < before < after


async def sound_sessions_are_sound(bench: StoreBench) -> None:
    """Nothing is wrong with what a store wrote, and there is nothing to salvage."""
    async with bench.open() as one:
        await one.fill("s", LOG)
        await one.fill("broken", interrupted())
        live = one.live("live")
        write_turn(live)
        await one.sessions.flush(live)
        for session_id, events in (("s", LOG), ("broken", interrupted()), ("live", live.events)):
            report = await one.store.verify(session_id)
            assert report.session_id == session_id
            assert report.sound
            assert (report.events, report.torn, report.copy) == (len(events), False, None)
            assert report.interrupted == (session_id == "broken")
        before = await one.revision("s")
        report = await one.store.salvage("s")
        assert report.sound
        assert report.copy is None
        assert await one.revision("s") == before, "salvaging a sound session changed it"
        await one.store.load("broken")
        assert not (await one.store.verify("broken")).interrupted
        for step in (one.store.verify, one.store.salvage):
            await refused(step("absent"), StoredSessionNotFound, NOT_FOUND)


async def a_new_session_has_a_new_revision(bench: StoreBench) -> None:
    """A session that takes a removed one's id is never taken for it."""
    async with bench.open() as one:
        await one.fill("s", LOG)
        revisions = {await one.revision("s")}
        assert (await one.store.load("s")).events == LOG
        async with bench.open() as other:
            assert await other.revision("s") in revisions, "another app reads another revision"
            for prompt in ("ho", "hu"):
                again = worked_turn(prompt)
                await other.store.remove("s")
                await other.fill("s", again)
                revision = await other.revision("s")
                assert revision not in revisions, (
                    f"revision {revision!r} was there before, and stands for other content now"
                )
                revisions.add(revision)
                assert await one.revision("s") == revision
                assert (await one.store.load("s")).events == again


async def an_archived_session_goes_on(bench: StoreBench) -> None:
    """A session that was put away can be resumed; it stays away until it is taken back."""
    async with bench.open() as one:
        await one.fill("s", LOG)
        await one.store.archive("s")
        loaded = await one.store.load("s")
        session = one.resume(loaded)
        write_turn(session)
        await one.sessions.flush(session)
        assert await one.store.list() == ()
        (shown,) = await one.store.list_snapshots(archived=True)
        assert shown.summary == summarize(session.events)
        await one.store.unarchive("s")
        write_turn(session)
        await one.sessions.flush(session)
        assert [item.id for item in await one.store.list()] == ["s"]
        assert await one.store.list(archived=True) == ()
    async with bench.open() as other:
        assert (await other.store.load("s")).events == session.events[:]
        assert [item.id for item in await other.store.list()] == ["s"]


async def loading_changes_nothing_twice(bench: StoreBench) -> None:
    """Inspecting and loading, in any order and by anybody, give the same and repair once."""
    async with bench.open() as one:
        await one.fill("s", interrupted("c1", "c2", started=("c1",)))
        seen = await one.store.inspect("s")
        assert await one.store.inspect("s") == seen
        assert await one.store.load("s") == seen
        revision = await one.revision("s")
        assert await one.store.inspect("s") == seen
    for _ in range(2):
        async with bench.open() as other:
            assert await other.store.load("s") == seen
            assert await other.store.inspect("s") == seen
            assert await other.store.read_from("s", 0) == seen.events
            assert await other.revision("s") == revision, "a sound session was repaired"


async def cancelled_calls_do_nothing(bench: StoreBench) -> None:
    """What is asked for in a scope that is cancelled already is not done."""
    async with bench.open() as one:
        store = one.store
        await one.fill("s", LOG)
        await one.fill("away", LOG)
        await store.archive("away")
        calls: tuple[Callable[[], Awaitable[object]], ...] = (
            lambda: store.create(header("new")),
            lambda: store.append("s", [SessionEvent(len(LOG), 0, turn_start(2))]),
            lambda: store.archive("s"),
            lambda: store.unarchive("away"),
            lambda: store.remove("s"),
            lambda: store.salvage("s"),
            lambda: store.verify("s"),
        )
        for call in calls:
            with anyio.CancelScope() as scope:
                scope.cancel()
                await call()
            assert scope.cancelled_caught, "a call in a cancelled scope was not cancelled"
        assert await store.read_from("s", 0) == LOG
        assert [item.id for item in await store.list()] == ["s"]
        assert [item.id for item in await store.list(archived=True)] == ["away"]
        await one.fill("new", LOG)
        live = one.live("live")
        write_turn(live)
        with anyio.CancelScope() as scope:
            scope.cancel()
            await one.sessions.flush(live)
        await one.sessions.flush(live)
        assert await store.read_from("live", 0) == live.events[:]
        with suppress(StoredSessionNotFound):
            await store.remove("absent")


LISTING = cases_of(
    summaries_tell_the_log,
    what_is_listed_is_readable,
    logs_that_no_session_accepts_are_damaged,
    sizes_grow,
    sound_sessions_are_sound,
    a_new_session_has_a_new_revision,
    an_archived_session_goes_on,
    loading_changes_nothing_twice,
    cancelled_calls_do_nothing,
)
"""The cases of this subject."""
