"""Persistence contract: what is written, refused, put away and removed."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Any

import anyio
import anyio.lowlevel

from dsh.session import SessionEvent, UnknownData, event_from_wire, event_to_wire
from dsh.session.testing import worked_turn
from dsh.session_persistence import (
    AppendRefused,
    SessionPersistence,
    StoredSessionExists,
    StoredSessionNotFound,
)
from dsh.testkit._persistence_bench import StoreBench, cases_of, header, refused, turn_start

__all__ = ["WRITES"]

LOG = worked_turn()


async def malformed_header(bench: StoreBench) -> None:
    """A header that cannot be stored reserves nothing."""
    wrong: tuple[dict[str, Any], ...] = (
        {"created_at": 1.5},
        {"created_at": -1},
        {"cwd": "some/where"},
        {"version": 99},
    )
    async with bench.open() as one:
        for fields in wrong:
            bad = header("s", **fields)
            await refused(one.store.create(bad), AppendRefused, AppendRefused.MALFORMED_HEADER)
        await one.fill("s", LOG)
        assert (await one.store.load("s")).events == LOG


async def batches_must_continue(bench: StoreBench) -> None:
    """A batch that starts anew, leaves a gap or has one inside is refused as a whole."""
    code = AppendRefused.NOT_CONTIGUOUS
    async with bench.open() as one:
        await one.fill("s", LOG[:2])
        for batch in (LOG, LOG[1:], LOG[3:], (*LOG[2:4], *LOG[5:])):
            await refused(one.store.append("s", batch), AppendRefused, code)
            assert await one.store.read_from("s", 0) == LOG[:2]
        await one.store.append("s", ())
        await one.store.append("s", LOG[2:])
        assert (await one.store.load("s")).events == LOG


async def only_json_is_stored(bench: StoreBench) -> None:
    """What would not survive is refused by the name of its type, and nothing is stored."""
    async with bench.open() as one:
        await one.store.create(header("s"))
        bad: Any
        for bad in (float("nan"), float("inf"), {1: 2}, {"set"}, b"x", 2**60, object(), "\ud800"):
            event = SessionEvent(0, 0, UnknownData("some/thing", {"x": bad}))
            step = one.store.append("s", [event])
            error = await refused(step, AppendRefused, AppendRefused.NOT_JSON)
            assert "some/thing" in error.message, error.message
        assert await one.store.list() == ()
        await one.store.append("s", LOG)


async def unknown_types_are_kept(bench: StoreBench) -> None:
    """Events of a plugin that is not installed come back as they were."""
    data = UnknownData("far-away/thing", {"a": [1, 2.5, None, True, {"b": "ü\u2028"}]})
    event = SessionEvent(len(LOG) - 1, 7, data)
    log = (*LOG[:-1], event, replace(LOG[-1], seq=len(LOG)))
    async with bench.open() as one:
        await one.fill("s", log)
    async with bench.open() as other:
        assert (await other.store.load("s")).events == log


async def a_batch_is_taken_at_the_call(bench: StoreBench) -> None:
    """What the caller does with its list afterwards changes nothing."""
    batch = list(LOG)
    async with bench.open() as one, anyio.create_task_group() as tasks:
        await one.store.create(header("s"))
        step = one.store.append("s", batch)

        async def write() -> None:
            await step

        tasks.start_soon(write)
        await anyio.wait_all_tasks_blocked()
        batch.clear()
    async with bench.open() as other:
        assert await other.store.read_from("s", 0) == LOG


async def data_is_taken_at_the_call(bench: StoreBench) -> None:
    """What the caller does with the data of an event afterwards changes nothing."""
    inner: list[Any] = ["before"]
    data: dict[str, Any] = {"list": inner, "text": "before"}
    event = SessionEvent(len(LOG), 7, UnknownData("some/thing", data))
    kept = (*LOG, event_from_wire(event_to_wire(event)))
    async with bench.open() as one:
        await one.fill("s", (*LOG, event))
        inner.append("after")
        data["text"] = "after"
        assert (await one.store.load("s")).events == kept
        assert await one.store.read_from("s", 0) == kept
        live = one.live("t")
        live.append(turn_start(1))
        live.append(UnknownData("some/thing", data))
        inner.clear()
        await one.sessions.flush(live)
    async with bench.open() as other:
        assert (await other.store.load("s")).events == kept
        _, stored = await other.store.read_from("t", 0)
        assert stored.data == UnknownData(
            "some/thing", {"list": ["before", "after"], "text": "after"}
        )


async def a_cancelled_write_is_whole(bench: StoreBench) -> None:
    """An append in a scope that is cancelled stores all of its batch or nothing."""
    async with bench.open() as one:
        await one.store.create(header("s"))
        with anyio.CancelScope() as scope:
            scope.cancel()
            await one.store.append("s", LOG)
        stored: tuple[SessionEvent, ...] = ()
        with suppress(StoredSessionNotFound):
            stored = await one.store.read_from("s", 0)
        assert stored in ((), LOG), f"{len(stored)} of {len(LOG)} events were stored"
        await one.store.append("s", LOG[len(stored) :])
        assert (await one.store.load("s")).events == LOG


async def readers_see_whole_batches(bench: StoreBench) -> None:
    """Whoever reads while others write sees the log as it was between two batches."""
    sizes: set[int] = set()
    async with bench.open() as one:
        await one.fill("s", LOG[:1])
        over = anyio.Event()

        async def read() -> None:
            while not over.is_set():
                seen = await one.store.read_from("s", 0)
                assert seen == LOG[: len(seen)]
                sizes.add(len(seen))
                await anyio.lowlevel.checkpoint()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(read)
            for start in range(1, len(LOG), 3):
                await one.store.append("s", LOG[start : start + 3])
            over.set()
        assert (await one.store.load("s")).events == LOG
    assert sizes <= {1, *(min(size, len(LOG)) for size in range(4, len(LOG) + 3, 3))}


async def ids_are_reserved_once(bench: StoreBench) -> None:
    """An id that is reserved or stored cannot be created again, by anybody."""
    code = StoredSessionExists.code
    async with bench.open() as one:
        not_there = one.store.append("s", LOG)
        await refused(not_there, StoredSessionNotFound, StoredSessionNotFound.code)
        await one.store.create(header("s"))
        await refused(one.store.create(header("s")), StoredSessionExists, code)
        await one.store.append("s", LOG)
        await refused(one.store.create(header("s")), StoredSessionExists, code)
    async with bench.open() as other:
        await refused(other.store.create(header("s")), StoredSessionExists, code)


async def archive_and_remove(bench: StoreBench) -> None:
    """An archived session is listed apart and can be loaded; a removed one is gone."""
    async with bench.open() as one:
        store = one.store
        await one.fill("s", LOG)
        await one.fill("t", LOG)
        for _ in range(2):
            await store.archive("s")
        assert await _ids(store) == (["t"], ["s"])
        (shown,) = await store.list_snapshots(archived=True)
        assert shown.archived
        assert (await store.load("s")).events == LOG
    async with bench.open() as other:
        store = other.store
        assert await _ids(store) == (["t"], ["s"])
        for _ in range(2):
            await store.unarchive("s")
        assert await _ids(store) == (["s", "t"], [])
        await store.remove("s")
        assert await _ids(store) == (["t"], [])
        for step in (store.remove, store.archive, store.unarchive, store.load):
            await refused(step("s"), StoredSessionNotFound, StoredSessionNotFound.code)
        await other.fill("s", LOG[:2])
        assert await store.read_from("s", 0) == LOG[:2]


async def _ids(store: SessionPersistence) -> tuple[list[str], list[str]]:
    listed = [sorted(item.id for item in await store.list(archived=flag)) for flag in (False, True)]
    return listed[0], listed[1]


WRITES = cases_of(
    malformed_header,
    batches_must_continue,
    only_json_is_stored,
    unknown_types_are_kept,
    a_batch_is_taken_at_the_call,
    data_is_taken_at_the_call,
    a_cancelled_write_is_whole,
    readers_see_whole_batches,
    ids_are_reserved_once,
    archive_and_remove,
)
"""The cases of this subject."""
