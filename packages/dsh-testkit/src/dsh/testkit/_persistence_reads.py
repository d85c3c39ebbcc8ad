"""Persistence contract: what is read, and the repair of what was interrupted."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress

import anyio

from dsh.session import (
    TOOL_NOT_STARTED,
    TOOL_OUTCOME_UNKNOWN,
    Interrupted,
    Session,
    SessionEvent,
    ToolResult,
    TurnEnd,
)
from dsh.session.testing import assert_balanced, types_of, worked_turn
from dsh.session_persistence import RawUnsupported, StoredSessionNotFound
from dsh.testkit._persistence_bench import (
    StoreBench,
    cases_of,
    header,
    interrupted,
    refused,
    turn_start,
)
from dsh.testkit._trace import assert_paired

__all__ = ["READS"]

LOG = worked_turn()
SHORT = worked_turn(tool=False)
HOSTILE_IDS = (
    *("..", ".", "../x", "a/../b", "a/b", "/etc/passwd", "\\\\host\\share", "C:\\x", "c:x", "~"),
    *(
        "a",
        "A",
        "a ",
        " a",
        "a.",
        ".a",
        "a b",
        "-rf",
        "*",
        "?",
        "%2e",
        "%",
        "'; drop",
        '"',
        "$HOME",
    ),
    *("CON", "nul", "COM1.txt", "lock", "index.sqlite", "session.jsonl", "archived"),
    *("a\u0000b", "a\nb", "\u202ea", "ä", "a\u0308", "ß", "ss", "\u017f", "\u2028", "\ufeff"),
)
"""Texts that mean something to file systems, shells and databases, or look like another one."""


async def round_trip(bench: StoreBench) -> None:
    """A turn is read as it was written, also by another process."""
    given = header("s", cwd="/w", parent_session="p", seed_length=3, delegation_depth=1)
    async with bench.open() as one:
        await one.store.create(given)
        await one.store.append("s", LOG)
        loaded = await one.store.load("s")
        assert (loaded.header, loaded.events) == (given, LOG)
    async with bench.open() as other:
        loaded = await other.store.load("s")
        assert (loaded.header, loaded.events) == (given, LOG)
        assert await other.store.list() == (given,)


async def any_id(bench: StoreBench) -> None:
    """Ids are opaque: no text is taken for a path, and none for another one."""
    ids = [*HOSTILE_IDS, "x" * 200, "x" * 201, "y" * 2_000, "\U0001f600" * 200]
    async with bench.open() as one:
        for number, session_id in enumerate(ids):
            await one.fill(session_id, SHORT, created_at=number)
        for number, session_id in enumerate(ids):
            loaded = await one.store.load(session_id)
            assert loaded.header == header(session_id, created_at=number)
        assert sorted(item.id for item in await one.store.list()) == sorted(ids)
    async with bench.open() as other:
        assert sorted(item.id for item in await other.store.list()) == sorted(ids)
        await other.store.remove(ids[0])
        for number, session_id in enumerate(ids[1:], 1):
            loaded = await other.store.load(session_id)
            assert (loaded.header.created_at, loaded.events) == (number, SHORT)


async def interrupted_turn_is_closed(bench: StoreBench) -> None:
    """Reading closes a turn that broke off; loading also stores that, once."""
    whole = interrupted()
    async with bench.open() as one:
        await one.fill("s", whole)
        before = await one.revision("s")
        seen = await one.store.inspect("s")
        assert await one.revision("s") == before, "inspecting changed what is stored"
        assert await one.store.read_from("s", 0) == whole
        loaded = await one.store.load("s")
        assert loaded == seen
        assert_balanced(loaded.events)
        last = loaded.events[-1]
        assert last.data == TurnEnd(2, Interrupted())
        after = await one.revision("s")
        assert after != before, "loading did not store the repair"
        assert await one.store.load("s") == loaded
        assert await one.revision("s") == after, "loading twice repaired twice"
        await one.store.append("s", [SessionEvent(last.seq + 1, 0, turn_start(3))])
    async with bench.open() as other:
        assert await other.store.read_from("s", last.seq + 1)
        again = await other.store.load("s")
        assert again.events[: last.seq + 1] == loaded.events
        assert_balanced(again.events)


async def turn_without_a_step_is_closed(bench: StoreBench) -> None:
    """A turn that broke off before its first step only gets its end."""
    async with bench.open() as one:
        await one.fill("s", (*LOG, SessionEvent(len(LOG), 5, turn_start(2))))
        loaded = await one.store.load("s")
        assert types_of(loaded.events[len(LOG) :]) == ["turn/start", "turn/end"]


async def _closed_calls(
    bench: StoreBench, started: tuple[str, ...]
) -> list[tuple[str, str | None, bool]]:
    calls = ("c1", "c2")
    async with bench.open() as one:
        await one.fill("s", interrupted(*calls, started=started))
        loaded = await one.store.load("s")
    assert types_of(loaded.events)[-4:] == ["tool/result"] * 2 + ["step/end", "turn/end"]
    assert_paired(Session("s", loaded.events).derive_messages())
    results = [event.data for event in loaded.events if isinstance(event.data, ToolResult)]
    return [
        (item.call_id, item.error.code if item.error else None, item.is_error)
        for item in results
        if item.turn == 2
    ]


async def calls_that_never_began(bench: StoreBench) -> None:
    """A call that was not recorded as begun gets a result that says it did not run."""
    assert await _closed_calls(bench, ()) == [
        ("c1", TOOL_NOT_STARTED, True),
        ("c2", TOOL_NOT_STARTED, True),
    ]


async def calls_that_had_begun(bench: StoreBench) -> None:
    """A call that had begun gets a result that says nobody knows, in the order of the calls."""
    assert await _closed_calls(bench, ("c1",)) == [
        ("c1", TOOL_OUTCOME_UNKNOWN, True),
        ("c2", TOOL_NOT_STARTED, True),
    ]


async def empty_sessions_are_not_listed(bench: StoreBench) -> None:
    """A session without events is reserved, but it is not there."""
    async with bench.open() as one:
        await one.store.create(header("empty"))
        await one.store.append("empty", ())
        await one.fill("full", LOG)
        assert [item.id for item in await one.store.list()] == ["full"]
        assert [item.header.id for item in await one.store.list_snapshots()] == ["full"]
        for read in (one.store.load, one.store.inspect):
            await refused(read("empty"), StoredSessionNotFound, StoredSessionNotFound.code)


async def cancelled_reads_touch_nothing(bench: StoreBench) -> None:
    """A read in a scope that is cancelled already does nothing."""
    async with bench.open() as one:
        await one.fill("s", interrupted())
        before = await one.revision("s")
        reads: tuple[Callable[[], Awaitable[object]], ...] = (
            one.store.list,
            one.store.list_snapshots,
            lambda: one.store.load("s"),
            lambda: one.store.inspect("s"),
            lambda: one.store.read_from("s", 0),
        )
        for read in reads:
            done = False
            with anyio.CancelScope() as scope:
                scope.cancel()
                await read()
                done = True
            assert scope.cancelled_caught, "a read in a cancelled scope was not cancelled"
            assert not done
        assert await one.revision("s") == before


async def reading_from_a_place(bench: StoreBench) -> None:
    """The events from a number on are served as they are stored."""
    whole = interrupted()
    async with bench.open() as one:
        await one.fill("s", whole)
        for start in (0, 3, len(whole) - 1, len(whole), len(whole) + 100):
            assert await one.store.read_from("s", start) == whole[start:]
        absent = one.store.read_from("absent", 0)
        await refused(absent, StoredSessionNotFound, StoredSessionNotFound.code)
        for bad in (-1, 1.5):
            try:
                await one.store.read_from("s", bad)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
            except ValueError:
                continue
            raise AssertionError(f"reading from {bad} was not refused")


async def revision_follows_the_content(bench: StoreBench) -> None:
    """A revision stays until the content changes."""
    async with bench.open() as one:
        await one.fill("s", LOG)
        first = await one.revision("s")
        await one.store.read_from("s", 0)
        assert await one.revision("s") == first
        await one.store.append("s", [SessionEvent(len(LOG), 0, turn_start(2))])
        assert await one.revision("s") != first


async def export(bench: StoreBench) -> None:
    """A store says whether it keeps text; if it does, it hands it out."""
    async with bench.open() as one:
        await one.fill("s", LOG)
        one.store.locate(header("s"))
        if one.store.supports_raw:
            found = await one.store.read_raw("s")
            assert found is not None
            assert found.text
            assert "/" not in found.filename
            with suppress(StoredSessionNotFound):
                assert await one.store.read_raw("absent") is None
        else:
            await refused(one.store.read_raw("s"), RawUnsupported, RawUnsupported.code)


READS = cases_of(
    round_trip,
    any_id,
    interrupted_turn_is_closed,
    turn_without_a_step_is_closed,
    calls_that_never_began,
    calls_that_had_begun,
    empty_sessions_are_not_listed,
    cancelled_reads_touch_nothing,
    reading_from_a_place,
    revision_follows_the_content,
    export,
)
"""The cases of this subject."""
