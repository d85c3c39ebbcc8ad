"""Mounting a plugin, using it and disposing it leaves the app and the process as they were."""

from __future__ import annotations

import gc
import os
import signal
import threading
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import anyio
import anyio.to_thread
import pytest

from dsh.agent import AgentRegistry, open_agent
from dsh.agent.testing import stub_agent
from dsh.bash import BashExecutor, BashRequest
from dsh.core import App, MountState, Service, entry_points
from dsh.invariants import Invariants
from dsh.llm import LlmRequest, LlmService, Message, TextBlock
from dsh.llm_replay import ScriptedAdapter, text
from dsh.llm_replay.server import WireServer, success, tool_call_success
from dsh.loader import open_app
from dsh.process.testing import descendants, eventually
from dsh.session import LiveSessions
from dsh.session.events import SessionCreated
from dsh.session.testing import write_turn
from dsh.session_persistence import SessionPersistence
from dsh.system_prompt import SystemPrompt
from dsh.tools import Tool, ToolRegistry
from dsh.tools.testing import call_tool

PLUGINS = {
    point.name: point.load() for point in entry_points("dsh.plugins") if "dsh-" in point.dist_name
}
SERVICES = {
    plugin.service_key: plugin for plugin in PLUGINS.values() if issubclass(plugin, Service)
}
POOL = ("AnyIO worker", "Trio thread")
"""Threads in which the event loop runs blocking calls; it keeps idle ones for a while."""

Use = Callable[[App], Awaitable[None]]


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Have what is kept in the user's folder kept in one of its own."""
    monkeypatch.setenv("DSH_HOME", str(tmp_path / "home"))


# -- what there is -------------------------------------------------------------------------------


def process_state() -> dict[str, Any]:
    """Describe everything a plugin may leave behind outside of the app."""
    gc.collect()
    descriptors: Counter[str] = Counter()
    for name in os.listdir("/proc/self/fd" if os.path.isdir("/proc/self/fd") else "/dev/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{name}")
        except OSError:  # the one that lists them, or no /proc
            target = "?"
        kind, _, number = target.partition(":[")
        descriptors[f"{kind}:[]" if number else target] += 1
    return {
        "descriptors": dict(descriptors),
        "threads": sorted(t.name for t in threading.enumerate() if not t.name.startswith(POOL)),
        "busy": anyio.to_thread.current_default_thread_limiter().borrowed_tokens,
        "tasks": sorted(Counter(task.name for task in anyio.get_running_tasks()).items()),
        "environment": dict(os.environ),
        "folder": os.getcwd(),
        "signals": [signal.getsignal(number) for number in range(1, signal.NSIG)],
    }


async def app_state(app: App) -> dict[str, Any]:
    """Describe everything a plugin may leave behind in an app."""
    llm, tools, prompt = app.get(LlmService), app.get(ToolRegistry), app.get(SystemPrompt)
    sessions, agents, bash = app.get(LiveSessions), app.get(AgentRegistry), app.get(BashExecutor)
    invariants = app.get(Invariants)
    assembly = await prompt.assemble() if prompt else None
    return {
        "services": app.services.keys(),
        "listeners": {e.event_name: len(c) for e, c in app.channels.items() if len(c)},
        "observers": len(app.observers),
        "mounts": [(m.name, m.state, [e.label for e in m.effects]) for m in app.mounts],
        "effects": [effect.label for effect in app.root.effects],
        "waits": app.explain().waits,
        "models": (llm.models(), llm.providers()) if llm else None,
        "tools": (tools.known_names(), tools.schemas()) if tools else None,
        "sections": assembly.sections if assembly else None,
        "variables": assembly.variables if assembly else None,
        "offered": assembly.tools if assembly else None,
        "sessions": sessions.list() if sessions else None,
        "agents": agents.list() if agents else None,
        "commands": bash.list() if bash else None,
        "checks": (invariants.names, invariants.violations) if invariants else None,
    }


async def everything(app: App) -> dict[str, Any]:
    """Describe both, once whatever was under way has come to rest."""
    await anyio.wait_all_tasks_blocked()
    return {**await app_state(app), **process_state()}


def programs() -> set[bytes]:
    """Return the command lines of every child; one that is ending has none."""
    found: set[bytes] = set()
    for pid in descendants(os.getpid()):
        with suppress(OSError):
            found.add(Path(f"/proc/{pid}/cmdline").read_bytes())
    return found


async def assert_as_before(app: App, before: dict[str, Any], children: set[bytes]) -> None:
    assert await everything(app) == before
    if app.get(BashExecutor) is None:
        assert descendants(os.getpid()) == []
    else:  # what runs commands stays, a few monitors ready, and sees the last one off in its time
        await eventually(lambda: programs() <= children)


# -- how each plugin is mounted and used ---------------------------------------------------------


def config_of(name: str, url: str) -> dict[str, Any] | None:
    match name:
        case "llm-deepseek":
            return {"base_url": url, "api_key_required": False}
        case "llm-replay":
            return {"script": ["hello"], "repeat_last": True}
        case _:
            return None


async def use_agent(app: App, model: str) -> None:
    async with open_agent(app, model=model) as agent:
        outcome = await agent.ask("hi")
        assert outcome.ok


async def use_llm(app: App, model: str) -> None:
    request = LlmRequest(model=model, messages=(Message("user", (TextBlock("hi"),)),))
    await app[LlmService].generate(request)


async def use_bash(app: App) -> None:
    """Leave something running in the background of a command, and a task beside it."""
    bash = app[BashExecutor]
    result = await bash.run(bash.resolve(BashRequest(command="sleep 60 & echo out")))
    assert result.stdout.text == "out\n"
    task = bash.start_task(bash.resolve(BashRequest(command="echo ready; exec sleep 60")))
    await eventually(lambda: "ready" in bash.read_output(task.id).delta)


async def use_bash_tools(app: App) -> None:
    result = await call_tool(app[ToolRegistry], "bash", {"command": "true", "description": "x"})
    assert not result.is_error


async def use_tools(app: App) -> None:
    async def body(arguments: Any, execution: Any) -> str:
        return "done"

    tools = app[ToolRegistry]
    effect = tools.register(app.ctx, Tool("probe", "Probes.", {"type": "object"}, body))
    assert not (await call_tool(tools, "probe", {})).is_error
    await effect.dispose()


async def use_sessions(app: App) -> None:
    async with app.ctx.scope(object()) as scope:
        session = app[LiveSessions].create(scope.ctx, "s")
        write_turn(session)
        await app[LiveSessions].flush(session)


async def use_store(app: App) -> None:
    session_id = uuid4().hex
    async with app.ctx.scope(object()) as scope:
        session = app[LiveSessions].create(scope.ctx, session_id)
        write_turn(session)
        await app[LiveSessions].flush(session)
    store = app[SessionPersistence]
    assert (await store.load(session_id)).events == session.events[:]
    await store.remove(session_id)


async def use_prompt(app: App) -> None:
    prompt = app[SystemPrompt]
    effects = [
        prompt.section(app.ctx, "probe", 5, "{{probe}}"),
        prompt.variable(app.ctx, "probe", "x"),
    ]
    assert "probe" in (await prompt.assemble()).variables
    for effect in effects:
        await effect.dispose()


async def use_nothing(app: App) -> None:
    pass


async def use_loop(app: App) -> None:
    replay = app.mount(PLUGINS["llm-replay"], config_of("llm-replay", ""))
    await replay.settled()
    await use_agent(app, "replay/scripted")
    await replay.dispose()


async def use_model(app: App) -> None:
    adapter = app[LlmService].register(app.ctx, ScriptedAdapter([text("x")]), "probe", ["probe"])
    await use_llm(app, "probe/probe")
    await adapter.dispose()


async def use_agents(app: App) -> None:
    agent, scope = stub_agent(app.ctx)
    effect = app[AgentRegistry].register(app.ctx, agent)
    assert app[AgentRegistry].list() == (agent,)
    await effect.dispose()
    await scope.dispose()


USES: dict[str, Use] = {
    "agent-core": use_loop,
    "agent-loop": use_loop,
    "agents": use_agents,
    "bash-local": use_bash,
    "invariants": use_nothing,
    "llm": use_model,
    "llm-deepseek": lambda app: use_llm(app, "deepseek/deepseek-flash"),
    "llm-replay": lambda app: use_llm(app, "replay/scripted"),
    "record": use_store,
    "session-persistence-jsonl": use_store,
    "session-persistence-sqlite": use_store,
    "sessions": use_sessions,
    "system-prompt": use_prompt,
    "tool-bash": use_bash_tools,
    "tools": use_tools,
}


async def warm_up(app: App) -> None:
    """Have the services that are not looked at start what they start once and keep."""
    bash = app.get(BashExecutor)
    if bash is not None:
        await bash.run(bash.resolve(BashRequest(command="true")))
    store = app.get(SessionPersistence)
    if store is not None:
        await store.list_snapshots()  # a database is opened once, and stays open with its store


async def mount_with_needs(app: App, plugin: Any, url: str, *, itself: bool = False) -> Any:
    """Mount what a plugin injects, and what that injects; then the plugin, if it is asked for."""
    mount = app.mount(plugin, config_of(plugin.name, url))
    if not mount.missing() and itself:
        await mount.settled()
        return mount
    needs = dict(mount.required)
    await mount.dispose()
    for key, kind in needs.items():
        if app.get(key) is None:
            await mount_with_needs(app, SERVICES.get(key, kind), url, itself=True)
    return await mount_with_needs(app, plugin, url, itself=True) if itself else None


@asynccontextmanager
async def wire() -> AsyncGenerator[str, None]:
    async with WireServer(success("hello")) as server:
        yield server.url


# -- the tests -----------------------------------------------------------------------------------


def test_every_plugin_is_looked_at() -> None:
    assert set(USES) == set(PLUGINS)


@pytest.mark.parametrize("name", sorted(PLUGINS))
async def test_a_plugin_leaves_nothing(name: str) -> None:
    plugin = PLUGINS[name]
    outside = process_state()
    async with wire() as url, App() as app:
        failures: list[Any] = []
        app.on_error(app.ctx, failures.append)
        await mount_with_needs(app, plugin, url)
        await warm_up(app)
        before, children = await everything(app), programs()
        for _ in range(2):
            mount = app.mount(plugin, config_of(name, url))
            await mount.settled()
            assert mount.state is MountState.ACTIVE, str(app.explain())
            await USES[name](app)
            await mount.dispose()
            await assert_as_before(app, before, children)
        assert failures == []
    await anyio.wait_all_tasks_blocked()
    assert process_state() == outside


@pytest.mark.parametrize("name", sorted(PLUGINS))
async def test_a_plugin_that_restarts_leaves_nothing(name: str) -> None:
    plugin = PLUGINS[name]
    async with wire() as url, App() as app:
        await mount_with_needs(app, plugin, url)
        await warm_up(app)
        bare, children = await everything(app), programs()
        mount = app.mount(plugin, config_of(name, url))
        await mount.settled()
        await mount.restart()
        once = await app_state(app)
        for _ in range(2):
            await USES[name](app)
            await mount.restart()
            assert await app_state(app) == once
        await mount.dispose()
        await assert_as_before(app, bare, children)


async def test_a_whole_deployment_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEEPSEEK_API_KEY", "sk-test")
    command = {"command": "sleep 60 & echo x", "description": "Leave a child behind"}
    script = [tool_call_success("bash", command), success("done")]
    async with WireServer(script * 2) as server:
        rows: list[Any] = [
            {"use": "llm-deepseek", "config": {"base_url": server.url}},
            {"use": "llm-replay", "config": {"script": ["x"]}},
            "tool-bash",
        ]
        deployment = {"model": "deepseek/deepseek-flash", "plugins": rows}
        await anyio.wait_all_tasks_blocked()
        before = process_state()
        for _ in range(2):
            async with open_app(deployment) as app, app.agent() as agent:
                assert (await agent.ask("go")).text == "done"
            assert descendants(os.getpid()) == []
            # the server hears of the closed connection in its own time
            await eventually(lambda: process_state() == before)


# -- the look itself -----------------------------------------------------------------------------


class Left(Service, key="left"):
    """A service that nobody needs."""


def leave_listener(app: App) -> object:
    return app.ctx.on(SessionCreated, lambda event: None)


def leave_task(app: App) -> object:
    return app.ctx.spawn(anyio.sleep_forever)


def leave_tool(app: App) -> object:
    async def body(arguments: Any, execution: Any) -> str:
        return ""

    tool = Tool("left", "Left behind.", {"type": "object"}, body)
    return app[ToolRegistry].register(app.ctx, tool)


def leave_descriptor(app: App) -> object:
    return app.ctx.defer(open(os.devnull, "rb").close)


def leave_thread(app: App) -> object:
    stop = threading.Event()
    threading.Thread(target=stop.wait, name="left").start()
    return app.ctx.defer(stop.set)


def leave_variable(app: App) -> object:
    os.environ["LEFT_BEHIND"] = "1"
    return app.ctx.defer(lambda: os.environ.pop("LEFT_BEHIND"))


def leave_model(app: App) -> object:
    return app[LlmService].register(app.ctx, ScriptedAdapter(), "left", ["left"])


LEFTOVERS: dict[str, Callable[[App], object]] = {
    "listeners": leave_listener,
    "tasks": leave_task,
    "tools": leave_tool,
    "offered": leave_tool,
    "descriptors": leave_descriptor,
    "threads": leave_thread,
    "environment": leave_variable,
    "models": leave_model,
    "effects": leave_listener,
    "sections": lambda app: app[SystemPrompt].section(app.ctx, "left", 1, "behind"),
    "variables": lambda app: app[SystemPrompt].variable(app.ctx, "left", "behind"),
    "sessions": lambda app: app[LiveSessions].create(app.ctx, "left"),
    "observers": lambda app: app.on_dispatch(app.ctx, lambda event, key, mode: None),
    "services": lambda app: app.ctx.provide(Left, Left(app.ctx)),
    "mounts": lambda app: app.ctx.scope(object()),
}


@pytest.mark.parametrize("kind", sorted(LEFTOVERS))
async def test_whatever_is_left_is_seen(kind: str) -> None:
    async with App() as app:
        await app.mount(PLUGINS["agent-core"]).settled()
        before = await everything(app)
        LEFTOVERS[kind](app)
        after = await everything(app)
        assert kind in {key for key in before if before[key] != after[key]}


async def test_a_child_that_is_left_is_seen() -> None:
    async with App() as app:
        await app.mount(PLUGINS["bash-local"]).settled()
        await warm_up(app)
        before = programs()
        bash = app[BashExecutor]
        bash.start_task(bash.resolve(BashRequest(command="exec sleep 60")))
        await eventually(lambda: not programs() <= before)
