"""Recorded sessions come out the same."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from dsh.agent.events import AgentCreated, AgentQueued
from dsh.agent_core import AgentCore
from dsh.core import App, Plugin, PluginConfig, settings
from dsh.llm import LlmService, TextBlock
from dsh.llm_replay import ScriptedAdapter, text, tool_call, tool_calls
from dsh.session import (
    AssistantChunk,
    LiveSessions,
    SessionEvent,
    SessionHeader,
    StepEnd,
    TurnEnd,
    interrupted_turn_closers,
)
from dsh.session.testing import types_of
from dsh.sessions.replay import replay_in, replay_session
from dsh.tools import ToolRegistry

Recorder = Callable[..., Any]


async def test_a_session_with_everything_comes_out_the_same(
    everything: Sequence[SessionEvent],
) -> None:
    kinds = set(types_of(everything, chunks=True))
    assert kinds >= {"prompt/blocked", "steering/message", "todo/write", "acme/note"}
    reasons = {event.data.reason.kind for event in everything if isinstance(event.data, TurnEnd)}
    assert reasons == {"completed", "rejected", "error", "max-tokens", "aborted", "disposed",
                       "max-turn-requests"}  # fmt: skip
    report = await replay_session(everything, bundle=AgentCore)
    assert report.divergence is None
    assert report.ok
    assert report.events == len(everything)
    assert report.turns == sum(isinstance(event.data, TurnEnd) for event in everything)
    assert report.steps == sum(isinstance(event.data, StepEnd) for event in everything)


async def test_no_tool_no_adapter_and_no_store_is_asked(recorder: Recorder) -> None:
    queued: list[object] = []
    async with recorder([tool_call("c1", "look"), text("ok")]) as opened:
        opened.tool("look", inject="seen")
        async with opened.agent() as handle:
            await handle.agent.ask("a")
        log = opened.log

    async with App() as app:
        await app.mount(AgentCore).settled()
        model = ScriptedAdapter()
        app.ctx.on(AgentQueued, lambda event: queued.append(event.content))
        app[LlmService].register(app.ctx, model, "test")
        report = await replay_in(app, log)
        assert report.ok
        assert model.calls == []
        assert app[LiveSessions].list() == ()
        assert app[ToolRegistry].visible() == ()
        assert queued == [(TextBlock("a"),)]


async def test_what_a_fork_inherited_is_not_played(recorder: Recorder) -> None:
    async with recorder([text("1"), text("2"), text("3")]) as opened:
        async with opened.agent() as handle:
            await handle.agent.ask("a")
            await handle.agent.ask("b")
        first = next(event.seq for event in opened.log if isinstance(event.data, TurnEnd)) + 1
        opened.log = opened.log[:first]
        async with opened.agent() as handle:
            await handle.agent.ask("c")
        log = opened.log
    header = SessionHeader(id="fork", created_at=1, parent_session="s", seed_length=first)
    report = await replay_session(log, header, bundle=AgentCore)
    assert report.divergence is None
    assert (report.turns, report.events) == (1, len(log) - first)
    assert (await replay_session(log, bundle=AgentCore)).turns == 2


@pytest.mark.parametrize(
    "config",
    [None, {"max_parallel_tools": 2}, AgentCore.Config(max_parallel_tools=3), AgentCore.Config()],
)
async def test_more_calls_overlap_than_the_bundle_would_let(
    recorder: Recorder, config: object
) -> None:
    many = tool_calls([(f"c{number}", "look", "{}") for number in range(11)])
    async with recorder([many, text("ok")], max_parallel_tools=11) as opened:
        opened.tool("look", concurrent=True)
        async with opened.agent() as handle:
            await handle.agent.ask("look everywhere")
        log = opened.log
    kinds = [kind for kind in types_of(log) if kind.startswith("tool/")]
    assert kinds == ["tool/call"] * 11 + ["tool/result"] * 11
    report = await replay_session(log, bundle=AgentCore, config=config)
    assert report.divergence is None
    assert report.events == len(log)


async def test_a_lower_limit_that_was_comes_out_as_it_was(recorder: Recorder) -> None:
    many = tool_calls([(f"c{number}", "look", "{}") for number in range(5)])
    async with recorder([many, text("ok")], max_parallel_tools=2) as opened:
        opened.tool("look", concurrent=True)
        async with opened.agent() as handle:
            await handle.agent.ask("look everywhere")
        log = opened.log
    report = await replay_session(log, bundle=AgentCore, config={"max_parallel_tools": 5})
    assert report.divergence is None


@pytest.mark.parametrize("as_model", [False, True])
async def test_agents_of_the_configuration_are_not_made(recorder: Recorder, as_model: bool) -> None:
    made: list[str] = []

    class Watching(AgentCore):
        async def start(self) -> None:
            self.ctx.on(AgentCreated, lambda event: made.append(event.agent.id))
            await super().start()

    async with recorder([text("ok")]) as opened:
        async with opened.agent() as handle:
            await handle.agent.ask("a")
        log = opened.log
    said = {"agents": [{"id": "watcher", "model": "test/scripted"}]}
    config = Watching.Config.model_validate(said) if as_model else said
    report = await replay_session(log, bundle=Watching, config=config)
    assert report.ok
    assert len(made) == 1
    assert "watcher" not in made


async def test_a_bundle_without_such_settings_gets_its_own_alone(recorder: Recorder) -> None:
    class Small(Plugin):
        class Config(PluginConfig):
            note: str = ""

        config = settings(Config)

        async def start(self) -> None:
            await self.ctx.mount(AgentCore).settled()

    many = tool_calls([(f"c{number}", "look", "{}") for number in range(2)])
    async with recorder([many, text("ok")]) as opened:
        opened.tool("look", concurrent=True)
        async with opened.agent() as handle:
            await handle.agent.ask("a")
        log = opened.log
    assert (await replay_session(log, bundle=Small, config={"note": "x"})).ok


async def test_an_empty_log_comes_out_empty() -> None:
    report = await replay_session((), bundle=AgentCore)
    assert (report.turns, report.steps, report.events, report.ok) == (0, 0, 0, True)


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_log_that_breaks_off_anywhere_comes_out_the_same(
    everything: Sequence[SessionEvent],
) -> None:
    async with App() as app:
        await app.mount(AgentCore).settled()
        for end in range(1, len(everything)):
            log = everything[:end]
            if end % 5 and all(
                isinstance(e.data, AssistantChunk) for e in everything[end - 1 : end + 1]
            ):
                continue
            lost = interrupted_turn_closers(log, more_was_lost=True)
            for stored in (log, (*log, *interrupted_turn_closers(log)), (*log, *lost)):
                report = await replay_in(app, stored)
                assert report.divergence is None, (end, report.divergence)
                assert report.events == len(stored)
