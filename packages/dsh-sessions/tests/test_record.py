"""The plugin `record`: it needs a store, so the deployment's rule finds one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dsh.core import App, EntryPoint, MountState
from dsh.core.testing import fake_entry_points
from dsh.loader import BootError, open_app
from dsh.session import LiveSessions, SessionHeader
from dsh.session.testing import worked_turn, write_turn
from dsh.session_persistence import (
    PersistenceError,
    SessionInUse,
    SessionPersistence,
    StoredSessionNotFound,
)
from dsh.session_persistence.testing import MemoryBackend, MemoryDisk, MemoryPersistence
from dsh.sessions import (
    AmbiguousSession,
    Record,
    UnknownSession,
    UnknownTurn,
    find_session,
    fork_session,
    newest_session,
    short_id,
)


class Shut(MemoryPersistence):
    """A store that cannot be opened."""

    name = "shut"

    def make_backend(self) -> Any:
        class Backend(MemoryBackend):
            def open(self) -> None:
                raise PermissionError(13, "Permission denied")

        return Backend(MemoryDisk())


def points(cls: type[Any], *, seam: bool = True) -> list[EntryPoint]:
    made = EntryPoint(cls.name, f"m:{cls.name}", "dsh.plugins", "acme", "1.0", lambda: cls)
    if not seam:
        return [made]
    return [made, replace(made, group="dsh.seam.session_persistence")]


ROWS: dict[str, object] = {"bundle": None, "plugins": ["record"]}


async def test_a_row_is_enough_to_have_sessions_kept() -> None:
    with fake_entry_points(*points(Record, seam=False), *points(MemoryPersistence)):
        async with open_app(ROWS, plugins=[LiveSessions]) as app:
            assert set(app.seams) == {"session_persistence"}
            session = app[LiveSessions].create(app.ctx, "s")
            write_turn(session)
            await app[LiveSessions].flush(session)
            assert (await newest_id(app)) == "s"


async def newest_id(app: App) -> str:
    (found,) = await app[SessionPersistence].list_snapshots()
    return found.header.id


async def test_a_store_that_cannot_be_opened_fails_the_start() -> None:
    installed = fake_entry_points(*points(Record, seam=False), *points(Shut))
    with installed, pytest.raises(BootError) as caught:
        async with open_app(ROWS, plugins=[LiveSessions]):
            pass
    (problem,) = caught.value.problems
    assert problem.name == "record"
    assert isinstance(problem.error, PersistenceError)
    assert "Permission denied" in problem.reason


async def test_without_a_store_the_plugin_waits_for_one() -> None:
    async with App() as app:
        mount = app.mount(Record)
        assert mount.state is MountState.PENDING
        assert "session_persistence" in mount.missing()


@pytest.fixture
async def store(anyio_backend: str) -> Any:
    """Return a store with sessions `aaa1`, `aaa2` of two folders, and `bbb` of an agent."""
    async with App() as app:
        await app.mount(LiveSessions).settled()
        await app.mount(MemoryPersistence).settled()
        kept = app[SessionPersistence]
        for number, (name, cwd, origin) in enumerate(
            (("aaa1", "/work", None), ("aaa2", "/other", None), ("bbb", "/work", "subagent"))
        ):
            header = SessionHeader(id=name, created_at=10**13 + number, cwd=cwd, origin=origin)
            await kept.create(header)
            await kept.append(name, worked_turn(f"task {name}"))
        yield kept


async def test_sessions_are_found_by_the_beginning_of_their_ids(store: Any) -> None:
    assert (await find_session(store, "bb")).header.id == "bbb"
    assert (await find_session(store, "aaa2")).header.id == "aaa2"
    with pytest.raises(AmbiguousSession) as both:
        await find_session(store, "aa")
    assert "task aaa1" in both.value.message
    assert "task aaa2" in both.value.message
    with pytest.raises(UnknownSession):
        await find_session(store, "")
    await store.archive("aaa1")
    assert (await find_session(store, "aaa1")).archived
    with pytest.raises(AmbiguousSession):
        await find_session(store, "aa")


async def test_the_newest_is_that_of_the_folder_and_no_agent_s_own(store: Any) -> None:
    assert (await newest_session(store, "/work")).header.id == "aaa1"
    assert (await newest_session(store, "/other")).header.id == "aaa2"
    await store.archive("aaa2")
    with pytest.raises(UnknownSession, match="no session of /other"):
        await newest_session(store, "/other")


async def test_a_fork_copies_turns_and_checks_them(store: Any) -> None:
    header = await fork_session(store, "aaa1", 1)
    forked = await store.inspect(header.id)
    assert forked.events == (await store.inspect("aaa1")).events
    assert (header.parent_session, header.seed_length) == ("aaa1", len(forked.events))
    with pytest.raises(UnknownTurn, match="has no turn 2: it has 1 turn"):
        await fork_session(store, "aaa1", 2)
    with pytest.raises(StoredSessionNotFound):
        await fork_session(store, "gone")


def test_only_ids_that_were_made_up_are_shortened() -> None:
    assert short_id("0123456789abcdef" * 2) == "01234567"
    assert short_id("a-name-of-somebody's-own-choosing") == "a-name-of-somebody's-own-choosing"
    assert issubclass(SessionInUse, PersistenceError)
