"""The fixtures, and the same things without pytest."""

from __future__ import annotations

from typing import Any, ClassVar

import anyio
import anyio.lowlevel
import pytest
from trio.testing import MockClock

from dsh.agent import Agent, AgentFault, AgentOptions
from dsh.core import (
    App,
    Emit,
    EntryPoint,
    Plugin,
    PluginConfig,
    Service,
    entry_points,
    inject,
    on,
    settings,
)
from dsh.core.testing import fake_entry_points
from dsh.invariants import Invariants
from dsh.llm_replay.server import WireServer
from dsh.loader import SeamError, choose_bundle, load_bundle
from dsh.session import Completed
from dsh.testkit import (
    MODEL,
    Failures,
    MemoryDisk,
    MemoryPersistence,
    ScriptedAdapter,
    Spine,
    hang,
    open_spine,
    soon,
    text,
    tool_call,
    tool_results,
    turn_reasons,
    types_of,
    user_texts,
)
from dsh.tools import ToolRegistry, tool


@tool
async def echo(text: str) -> str:
    """Say it again.

    Args:
        text: What to say.
    """
    return text


class Echo(Plugin):
    """Offers the tool `echo`."""

    class Config(PluginConfig):
        fail: bool = False

    config = settings(Config)
    tools = inject(ToolRegistry)

    async def start(self) -> None:
        if self.config.fail:
            raise RuntimeError("told to fail")
        self.tools.register(self.ctx, echo)


class Nowhere(Service, key="nowhere"):
    """Nobody provides this."""


class Waiting(Plugin):
    nowhere = inject(Nowhere)


async def test_an_agent_is_ready_to_be_driven(
    spine: Spine, agent: Agent, scripted: ScriptedAdapter, tmp_path: Any
) -> None:
    await spine.mount(Echo)
    scripted.append(tool_call("c", "echo", {"text": "hello"}), text("It said hello."))
    outcome = await soon(agent.ask("say hello"))
    assert outcome.text == "It said hello."
    assert outcome.reason == Completed()
    assert scripted is spine.model
    assert [r.is_error for r in tool_results(agent.session.events)] == [False]
    assert user_texts(agent.session.events) == ["say hello"]
    assert agent.session.header.cwd == str(tmp_path)
    assert agent.options.model == MODEL
    scripted.assert_consumed()


async def test_the_invariants_check_everything(spine: Spine) -> None:
    assert spine.app[Invariants].level == "full"


async def test_fixtures_that_are_not_asked_for_are_not_there(spine: Spine) -> None:
    assert spine.app.get("approval") is None
    assert spine.app.get("session_persistence") is None


class TestWithPlugins:
    """Overriding `spine_plugins` and `spine_config`."""

    @pytest.fixture
    def spine_plugins(self) -> list[Any]:
        return [Echo]

    @pytest.fixture
    def spine_config(self) -> dict[str, Any]:
        return {"persona": "You are a parrot."}

    async def test_plugins_are_mounted(self, agent: Agent, spine: Spine) -> None:
        spine.model.append(text("hi"))
        await soon(agent.ask("hello"))
        (request,) = spine.model.requests
        assert [schema.name for schema in request.tools or ()] == ["echo"]
        assert "You are a parrot." in (request.system or "")


class First(Service, key="first"):
    """What the second one waits for."""


class SlowFirst(First):
    async def start(self) -> None:
        await anyio.wait_all_tasks_blocked()


class Second(Service, key="second"):
    """What the third one waits for."""

    first = inject(First)

    async def start(self) -> None:
        await anyio.wait_all_tasks_blocked()


class Third(Plugin):
    second = inject(Second)
    tools = inject(ToolRegistry)

    async def start(self) -> None:
        await anyio.wait_all_tasks_blocked()
        self.tools.register(self.ctx, echo)


async def test_plugins_have_started_in_whatever_order_they_are_named() -> None:
    async with open_spine(plugins=[Third, Second, SlowFirst]) as spine:
        assert spine.app[ToolRegistry].get("echo") is not None


class Bare(Plugin):
    """A bundle with the parts of another one, no settings and no invariants of its own."""

    name: ClassVar[str] = "bare"

    async def start(self) -> None:
        core = self.ctx.mount(load_bundle(choose_bundle()))
        await core.settled()
        await self.ctx.app[Invariants].ctx.owner.dispose()


class TestWithAnotherBundle:
    """Overriding `spine_bundle`."""

    @pytest.fixture
    def spine_bundle(self) -> Any:
        return Bare

    async def test_it_is_what_the_agent_runs_on(self, agent: Agent, spine: Spine) -> None:
        assert "bare" in {mount.name for mount in spine.app.mounts}
        assert spine.app[Invariants].level == "full", "the test kit brings them"
        spine.model.append(text("hi"))
        assert (await soon(agent.ask("hello"))).text == "hi"


async def test_a_bundle_is_named_as_an_object_or_as_it_is_installed() -> None:
    async with open_spine([text("hi")], bundle="agent-core") as spine, spine.agent() as agent:
        assert (await soon(agent.ask("hello"))).text == "hi"
    with pytest.raises(SeamError, match="the test: bundle: no installed bundle is called 'nope'"):
        async with open_spine(bundle="nope"):
            pass


async def test_installing_a_sibling_swaps_the_bundle() -> None:
    mounted: list[str] = []

    class Acme(Plugin):
        name: ClassVar[str] = "acme"

        async def start(self) -> None:
            mounted.append(self.name)
            core = self.ctx.mount(entry_points_before[0].load())
            await core.settled()

    entry_points_before = entry_points("dsh.bundles")
    acme = EntryPoint("acme", "acme:Acme", "dsh.bundles", "acme", "1", lambda: Acme)
    others = (*entry_points_before, *entry_points("dsh.defaults"))
    with fake_entry_points(*others, acme):
        async with open_spine():
            assert mounted == ["acme"]


class Mute(Plugin):
    """A bundle that waits for a service nobody provides."""

    service = inject(Nowhere)


async def test_a_bundle_that_waits_is_told() -> None:
    with pytest.raises(AssertionError, match="nowhere"):
        async with open_spine(bundle=Mute):
            pass


async def test_an_agent_that_still_works_is_taken_down(agent: Agent, spine: Spine) -> None:
    spine.model.append(hang())
    agent.send("work")
    await soon(spine.model.waiting())


async def test_a_plugin_that_cannot_start_is_told(spine: Spine) -> None:
    with pytest.raises(AssertionError, match="nowhere"):
        await spine.mount(Waiting)
    with pytest.raises(RuntimeError, match="told to fail"):
        await spine.mount(Echo, {"fail": True})
    spine.failures.take()


# case: G-11
async def test_resuming_needs_persistence(spine: Spine) -> None:
    with pytest.raises(AgentFault) as caught:
        async with spine.agent(resume="s"):
            pass
    assert caught.value.code == AgentFault.NO_PERSISTENCE


# case: G-10, G-14
async def test_an_agent_is_resumed_in_the_same_app(
    spine: Spine, persistence: MemoryPersistence
) -> None:
    spine.model.append(text("one"), text("two"))
    async with spine.agent(session_id="s") as first:
        await soon(first.ask("first"))
        first.inject("remember this")
        await soon(first.when_idle())
        before = first.session.events[:]
    assert persistence.disk.events("s") == before
    async with spine.agent(resume="s") as second:
        await soon(second.ask("second"))
        assert second.session.events[: len(before)] == before
        assert user_texts(second.session.events) == ["first", "second"]
    said = spine.model.requests[1].messages
    assert [message.role == "assistant" for message in said] == [False, True, False, False]


# case: G-10
async def test_an_agent_is_resumed_in_another_app() -> None:
    disk = MemoryDisk()
    rows = [(MemoryPersistence, {"disk": disk})]
    async with (
        open_spine([text("one")], plugins=rows) as spine,
        spine.agent(session_id="s", cwd="/") as agent,
    ):
        await soon(agent.ask("first"))
    async with (
        open_spine([text("two")], plugins=rows) as spine,
        spine.agent(resume="s") as agent,
    ):
        await soon(agent.ask("second"))
        assert agent.session.header.cwd == "/"
        assert len(turn_reasons(agent.session.events)) == 2
    stored = disk.events("s")
    assert [event.seq for event in stored] == list(range(len(stored)))


async def test_options_of_an_agent(spine: Spine) -> None:
    spine.model.append(text("a"))
    options = AgentOptions(max_tokens=7)
    async with spine.agent(options=options, tools=[echo], persona="Be brief.") as agent:
        await soon(agent.ask("hi"))
    (request,) = spine.model.requests
    assert request.max_tokens == 7
    assert "Be brief." in (request.system or "")
    assert [schema.name for schema in request.tools or ()] == ["echo"]


# ── what goes wrong unnoticed ────────────────────────────────────────────────────────────────


class Spoken(Emit, name="test/spoken"):
    """Somebody said something."""


class Grumpy(Plugin):
    name: ClassVar[str] = "grumpy"

    @on(Spoken)
    def hear(self, event: Spoken) -> None:
        raise ValueError("do not talk to me")


async def test_a_contained_failure_can_be_expected(app: App, failures: Failures) -> None:
    await app.mount(Grumpy).settled()
    app.ctx.emit(Spoken())
    (failure,) = failures.take()
    assert failure.plugin == "grumpy"
    assert str(failure.error) == "do not talk to me"
    assert failures.seen == ()


async def test_a_contained_failure_fails_the_block() -> None:
    with pytest.raises(AssertionError, match=r"grumpy: .*ValueError: do not talk to me"):
        async with open_spine(plugins=[Grumpy]) as spine:
            spine.app.ctx.emit(Spoken())


async def fail_twice() -> None:
    async with open_spine(plugins=[Grumpy]) as spine:
        spine.app.ctx.emit(Spoken())
        raise KeyError("mine")


async def test_what_the_block_raises_comes_first() -> None:
    with pytest.raises(KeyError, match="mine"):
        await fail_twice()


async def test_a_cleanup_that_fails_fails_the_block() -> None:
    def leave() -> None:
        raise ValueError("the door is stuck")

    with pytest.raises(AssertionError, match="the door is stuck"):
        async with open_spine() as spine:
            spine.app.ctx.defer(leave)


async def test_a_broken_invariant_fails_the_block_even_if_somebody_swallowed_it() -> None:
    with pytest.raises(AssertionError, match="dsh-test: two is not one"):
        async with open_spine() as spine:
            await _violate(spine)
    async with open_spine() as spine:
        await _violate(spine)
        (violation,) = spine.take_violations()
        assert violation.message == "two is not one"


async def _violate(spine: Spine) -> None:
    caught: list[Exception] = []

    def install(ctx: Any, report: Any) -> None:
        try:
            report.check(False, "two is not one")
        except Exception as error:
            caught.append(error)

    await spine.app[Invariants].register(spine.app.ctx, "dsh-test", install)
    assert len(caught) == 1


# ── tasks ────────────────────────────────────────────────────────────────────────────────────


async def test_fixtures_run_in_an_app_of_the_same_loop(app: App) -> None:
    seen: list[str] = []

    async def work() -> None:
        await anyio.lowlevel.checkpoint()
        seen.append("worked")

    app.ctx.spawn(work)
    await anyio.wait_all_tasks_blocked()
    assert seen == ["worked"]


@pytest.mark.parametrize(
    "anyio_backend", [pytest.param(("trio", {"clock": MockClock(autojump_threshold=0)}), id="mock")]
)
async def test_virtual_time(agent: Agent, spine: Spine, anyio_backend: object) -> None:
    start = anyio.current_time()
    spine.model.append(text("done"))
    await anyio.sleep(10_000)
    assert (await agent.ask("hi")).text == "done"
    assert anyio.current_time() >= start + 10_000


async def test_a_server_with_faults(wire_server: WireServer) -> None:
    wire_server.append("success")
    assert wire_server.url.startswith("http://127.0.0.1:")
    assert types_of(()) == []
