"""The plugin: where it keeps things, and what it says when it cannot."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from dsh.core import App
from dsh.session import LiveSessions, Session, SessionHeader, SessionMeta
from dsh.session.testing import assert_balanced, write_turn
from dsh.session_persistence import (
    FormatUnsupported,
    PersistenceError,
    SessionCorrupt,
    SessionPersistence,
)
from dsh.session_persistence_jsonl import JsonlPersistence


async def test_sessions_are_kept_in_the_home_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("DSH_HOME", str(tmp_path / "home"))
    async with App() as app:
        await app.mount(LiveSessions).settled()
        await app.mount(JsonlPersistence).settled()
        session = app[LiveSessions].create(app.ctx, "s")
        write_turn(session)
        await app[LiveSessions].flush(session)
        store = app[SessionPersistence]
        assert store.supports_raw
        place = store.locate(session.header)
    expected = tmp_path / "home" / "sessions" / "_no-cwd" / "s" / "session.jsonl"
    assert place == str(expected)
    assert os.path.exists(expected)  # noqa: ASYNC240


async def test_a_folder_may_be_named_from_the_home(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    async with App() as app:
        await app.mount(LiveSessions).settled()
        await app.mount(JsonlPersistence, {"folder": "~/logs"}).settled()
        header = SessionHeader(id="s", created_at=1)
        place = app[SessionPersistence].locate(header)
    assert place == str(tmp_path / "logs" / "_no-cwd" / "s" / "session.jsonl")


async def test_without_a_home_it_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DSH_HOME", raising=False)
    monkeypatch.setenv("HOME", "nowhere")
    async with App() as app:
        await app.mount(LiveSessions).settled()
        with pytest.raises(PersistenceError, match="set HOME or DSH_HOME"):
            await app.mount(JsonlPersistence).settled()


async def test_compression_that_is_not_installed_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async with App() as app:
        await app.mount(LiveSessions).settled()
        config = {"folder": str(tmp_path), "compression": "zstd"}
        await app.mount(JsonlPersistence, config).settled()
        for name in ("compression.zstd", "backports.zstd"):
            monkeypatch.setitem(sys.modules, name, None)
        store = app[SessionPersistence]
        session = Session("s")
        write_turn(session)
        await store.create(SessionHeader(id="s", created_at=1))
        with pytest.raises(FormatUnsupported, match=r"jsonl\[zstd\]"):
            await store.append("s", session.events)
        assert os.listdir(tmp_path) == []


async def test_a_damaged_session_goes_on_once_it_is_salvaged(tmp_path: Path) -> None:
    path = tmp_path / "_no-cwd" / "s" / "session.jsonl"
    async with App() as app:
        await app.mount(LiveSessions).settled()
        await app.mount(JsonlPersistence, {"folder": str(tmp_path)}).settled()
        store = app[SessionPersistence]
        session = Session("s")
        for _ in range(3):
            write_turn(session)
        await store.create(SessionHeader(id="s", created_at=1))
        await store.append("s", session.events)
        data = bytearray(path.read_bytes())
        third = [event.seq for event in session.events if event.type == "turn/start"][2]
        middle = data.index(b'"turn/start","seq":%d' % third) + 40
        data[middle] ^= 1
        path.write_bytes(data)
        with pytest.raises(SessionCorrupt, match=f"seq {third}"):
            await store.load("s")
        assert path.read_bytes() == data
        assert not (await store.verify("s")).sound
        report = await store.salvage("s")
        assert (report.events, report.copy) == (third, str(path.with_name("damaged-1.jsonl")))
        loaded = await store.load("s")
        assert loaded.events == session.events[:third]
        meta = SessionMeta.of(loaded.header)
        again = app[LiveSessions].create(app.ctx, "s", seed=loaded.events, meta=meta)
        write_turn(again)
        await app[LiveSessions].flush(again)
        assert await store.read_from("s", 0) == again.events[:]


async def test_a_torn_log_goes_on_where_it_broke_off(tmp_path: Path) -> None:
    path = tmp_path / "_no-cwd" / "s" / "session.jsonl"
    async with App() as app:
        await app.mount(LiveSessions).settled()
        await app.mount(JsonlPersistence, {"folder": str(tmp_path)}).settled()
        store = app[SessionPersistence]
        session = Session("s")
        write_turn(session)
        await store.create(SessionHeader(id="s", created_at=1))
        await store.append("s", session.events[:10])
        with path.open("ab") as file:
            file.write(b'{"type":"assist')
        loaded = await store.load("s")
        assert loaded.events[:10] == session.events[:10]
        assert_balanced(loaded.events)
        assert await store.load("s") == loaded
        assert (await store.verify("s")).sound
        assert sorted(os.listdir(path.parent)) == ["lock", "session.jsonl"]
