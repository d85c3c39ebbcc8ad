"""A wheel that adds words to the vocabularies, in front of those who read them."""

from __future__ import annotations

import gc
import importlib
import json
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from dsh.agent import Agent, turn_outcome
from dsh.core import App
from dsh.llm import (
    BlockEnd,
    BlockStart,
    ContentBlock,
    Finish,
    FinishReason,
    Message,
    StreamChunk,
    TextBlock,
    TokenUsage,
    ToolResultBlock,
    UnknownBlock,
    UsageChunk,
)
from dsh.llm_replay import encode_chunks, load_recording, save_recording, text, tool_call
from dsh.session import (
    APPEND,
    ContextMessage,
    LiveSessions,
    MessageTrigger,
    OtherReason,
    OtherTrigger,
    Session,
    SessionHeader,
    ToolResult,
    TurnEnd,
    TurnStart,
    UnknownData,
    event_from_wire,
    event_to_wire,
    undeclared_kinds,
)
from dsh.session_persistence import SessionPersistence
from dsh.session_persistence.testing import MemoryPersistence
from dsh.testkit import open_spine

SOURCE = Path(__file__).parent / "wheels" / "projects" / "acme-vocabulary" / "src"
NAME = "acme_vocabulary"
URL = "https://acme.test/1"
ALT = f"[It rains]({URL})"
UNDECLARED = (
    "block type acme/citation",
    "event type acme-feed/polled",
    "message source acme-feed",
    "turn trigger acme-poll",
    "turn-end reason acme-quiet",
)


@contextmanager
def installed() -> Generator[Any]:
    """Have the wheel's module for a while; what it declared is gone with it."""
    sys.path.insert(0, str(SOURCE))
    try:
        yield importlib.import_module(NAME)
    finally:
        sys.path.remove(str(SOURCE))
        for name in [name for name in sys.modules if name.split(".")[0] == NAME]:
            del sys.modules[name]


@pytest.fixture
def acme() -> Generator[Any]:
    """Return the module of the wheel."""
    with installed() as module:
        yield module


def write_log(module: Any) -> Session:
    """Return a log with each of the wheel's words in it."""
    session = Session("s")
    citation = module.Citation(URL, "It rains", ALT)
    session.append(TurnStart(1, module.Poll("news")))
    session.append(module.FeedPolled("news", 1))
    source = module.FeedSource("news")
    session.append(ContextMessage((TextBlock("New: "), citation), source), APPEND)
    session.append(TurnEnd(1, module.Quiet("1 new in news")))
    return session


def written() -> list[dict[str, Any]]:
    """Return the wire form of such a log; afterwards the wheel is gone."""

    def write() -> list[dict[str, Any]]:
        with installed() as module:
            return [event_to_wire(event) for event in write_log(module).events]

    wires = write()
    gc.collect()
    assert "acme/citation" not in ContentBlock.kinds.classes()
    return wires


# --- with and without the wheel ------------------------------------------------------------


def test_with_the_wheel_each_word_is_its_class(acme: Any) -> None:
    session = write_log(acme)
    wires = [json.loads(json.dumps(event_to_wire(event))) for event in session.events]
    events = [event_from_wire(wire) for wire in wires]
    assert events == list(session.events)
    assert isinstance(events[1].data, acme.FeedPolled)
    assert undeclared_kinds(events) == ()


def test_without_the_wheel_every_byte_is_kept_and_each_word_is_named() -> None:
    wires = written()
    events = [event_from_wire(wire) for wire in wires]
    assert [json.dumps(event_to_wire(event)) for event in events] == [
        json.dumps(wire) for wire in wires
    ]
    assert undeclared_kinds(events) == UNDECLARED
    assert events[0].data == TurnStart(1, OtherTrigger("acme-poll", {"feedName": "news"}))
    assert isinstance(events[1].data, UnknownData)
    assert events[3].data == TurnEnd(1, OtherReason("acme-quiet", {"message": "1 new in news"}))


def test_what_was_kept_is_a_class_again_once_the_wheel_is_back() -> None:
    kept = [event_to_wire(event_from_wire(wire)) for wire in written()]
    with installed() as module:
        events = [event_from_wire(wire) for wire in kept]
        assert undeclared_kinds(events) == ()
        expected = write_log(module).events
        assert [event.data for event in events] == [event.data for event in expected]


def test_a_log_is_extended_without_the_wheel() -> None:
    session = Session("s")
    for wire in written():
        event = event_from_wire(wire)
        session.append(event.data, event.surface_op)
    assert session.last_turn == 1
    assert session.turn_open is None
    (message,) = session.derive_messages()
    assert message.content[0] == TextBlock('<context source="acme-feed">')
    assert isinstance(message.content[2], UnknownBlock)
    outcome = turn_outcome(session, 1)
    assert not outcome.ok
    assert outcome.reason == OtherReason("acme-quiet", {"message": "1 new in news"})


def test_a_reason_of_the_wheel_is_no_completed_turn(acme: Any) -> None:
    session = write_log(acme)
    outcome = turn_outcome(session, 1)
    assert outcome.reason == acme.Quiet("1 new in news")
    assert not outcome.ok
    assert outcome.error is None
    assert outcome.text == ""


async def test_a_store_takes_what_it_does_not_know() -> None:
    events = [event_from_wire(wire) for wire in written()]
    async with App() as app:
        await app.mount(LiveSessions).settled()
        await app.mount(MemoryPersistence).settled()
        store = app[SessionPersistence]
        await store.create(SessionHeader(id="s", created_at=1))
        await store.append("s", events)
        stored = await store.load("s")
    assert list(stored.events) == events
    assert undeclared_kinds(stored.events) == UNDECLARED


# --- the model's side -----------------------------------------------------------------------


def answer(module: Any) -> tuple[StreamChunk, ...]:
    """Return an answer that is a citation, with a finish of the adapter's own."""
    return (
        BlockStart(0, "acme/citation"),
        BlockEnd(0, module.Citation(URL, "It rains", ALT)),
        UsageChunk(TokenUsage(1, 1)),
        Finish(FinishReason("acme-cited")),
    )


async def test_an_answer_of_the_wheels_kind_is_logged_and_replayed(
    acme: Any, tmp_path: Path
) -> None:
    async with open_spine([answer(acme)]) as spine, spine.agent() as agent:
        outcome = await agent.ask("what does it do?")
        assert outcome.ok
        assert outcome.text == ""
        assert outcome.message == Message("assistant", (acme.Citation(URL, "It rains", ALT),))
        save_recording(tmp_path / "log.jsonl", agent.session)
    (call,) = load_recording(tmp_path / "log.jsonl").calls
    assert call.answer == answer(acme)


def test_the_wire_of_chat_completions_has_no_form_for_it(acme: Any) -> None:
    assert b"acme/citation" not in encode_chunks(answer(acme))
    assert b"acme_cited" in encode_chunks(answer(acme))


# --- the wheel at work ----------------------------------------------------------------------


def of(agent: Agent, kind: type[Any]) -> list[Any]:
    """Return the payloads of one class in an agent's log."""
    return [event.data for event in agent.session.events if isinstance(event.data, kind)]


async def test_a_plugin_writes_turns_of_its_own(acme: Any) -> None:
    async with open_spine([text("umbrella")]) as spine:
        mount = await spine.mount(acme.AcmeFeed, {"items": {"It rains": URL}})
        async with spine.agent() as agent:
            outcome = await agent.ask("what shall I take?")
            assert outcome.turn == 2
            assert outcome.ok
            plugin: Any = mount.instance
            assert plugin.poll(agent)
            (first, asked, last) = [data.trigger for data in of(agent, TurnStart)]
            assert first == last == acme.Poll("news")
            assert isinstance(asked, MessageTrigger)
            assert of(agent, acme.FeedPolled) == [
                acme.FeedPolled("news", 1),
                acme.FeedPolled("news", 0),
            ]
            assert [data.reason.kind for data in of(agent, TurnEnd)] == [
                "acme-quiet",
                "completed",
                "acme-quiet",
            ]
        (request,) = spine.model.requests
        assert request.messages[0].content == (
            TextBlock('<context source="acme-feed">'),
            acme.Citation(URL, "It rains", ALT),
            TextBlock("</context>"),
        )


async def test_a_prompt_may_come_from_a_source_of_the_wheel(acme: Any) -> None:
    async with open_spine([text("noted")]) as spine, spine.agent() as agent:
        await agent.ask("It rains.", acme.FeedSource("news"))
        (start,) = of(agent, TurnStart)
        assert start.trigger == MessageTrigger(acme.FeedSource("news"))


async def test_a_prompt_may_hold_a_block_of_the_wheel(acme: Any) -> None:
    citation = acme.Citation(URL, "It rains", ALT)
    async with open_spine([text("noted")]) as spine, spine.agent() as agent:
        await agent.ask((TextBlock("See"), citation))
        (request,) = spine.model.requests
        assert request.messages[0].content == (TextBlock("See"), citation)


async def test_a_tool_returns_a_block_of_the_wheel(acme: Any) -> None:
    script = [tool_call("c1", "cite", {"title": "It rains"}), text("see there")]
    async with open_spine(script) as spine:
        await spine.mount(acme.AcmeFeed, {"items": {"It rains": URL}})
        async with spine.agent() as agent:
            assert (await agent.ask("cite")).text == "see there"
            (result,) = of(agent, ToolResult)
            assert result.content == (acme.Citation(URL, "It rains", ALT),)
            block = spine.model.requests[1].messages[-1].content[0]
            assert block == ToolResultBlock("c1", result.content)


async def test_an_agent_goes_on_with_a_log_it_does_not_fully_know() -> None:
    events = [event_from_wire(wire) for wire in written()]
    async with open_spine([text("umbrella")], plugins=[MemoryPersistence]) as spine:
        store = spine.app[SessionPersistence]
        await store.create(SessionHeader(id="s", created_at=1))
        await store.append("s", events)
        async with spine.agent(resume="s") as agent:
            assert (await agent.ask("what shall I take?")).turn == 2
            assert undeclared_kinds(agent.session.events) == UNDECLARED
        stored = await store.load("s")
    assert [event_to_wire(event) for event in stored.events[: len(events)]] == [
        event_to_wire(event) for event in events
    ]
