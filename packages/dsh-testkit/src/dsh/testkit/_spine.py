"""A whole spine with a scripted model, for tests of what plugs into it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Final, TypeAlias

from dsh.agent import Agent, AgentOptions, Setup, open_agent
from dsh.core import App, Context, Mount, MountState, PluginLike
from dsh.invariants import Invariants, Violation
from dsh.llm import LlmService
from dsh.llm_replay import Entry, EntryFunction, ScriptedAdapter
from dsh.loader import choose_bundle, load_bundle
from dsh.system_prompt import PERSONA_SECTION, SystemPrompt
from dsh.testkit._defaults import APP
from dsh.testkit._failures import Failures
from dsh.tools import Tool, ToolRegistry

__all__ = ["MODEL", "PluginRow", "Script", "Spine", "mount_spine", "open_spine"]

MODEL: Final = "test/scripted"
"""Name of the scripted model of a `Spine`."""

PluginRow: TypeAlias = "PluginLike | tuple[PluginLike, object]"
"""A plugin, or a plugin and its configuration."""

Script: TypeAlias = "Iterable[Entry] | EntryFunction"
"""What a scripted model says: entries, one for each call, or a function for all calls."""


class Spine:
    """An app with the spine mounted: models, sessions, prompt, tools, agents, loop, invariants.

    The invariants check at level `full`, which holds every request against the log and every
    stream against the protocol.
    """

    def __init__(self, app: App, model: ScriptedAdapter, failures: Failures) -> None:
        self.app = app
        """The app."""
        self.model = model
        """The scripted model, registered as `test/scripted`."""
        self.failures = failures
        """What plugins raised without reaching anybody; see `Failures`."""
        self._invariants = app[Invariants]
        self._taken: tuple[Violation, ...] = ()

    async def mount(self, plugin: PluginLike, config: object = None) -> Mount:
        """Mount a plugin and wait until it has started.

        Args:
            plugin: The plugin.
            config: Its configuration.

        Raises:
            ConfigError: The configuration does not fit.
            Exception: What the start raised.
            AssertionError: The plugin waits for a service that nobody provides.
        """
        (mount,) = await self.mount_all([(plugin, config)])
        return mount

    async def mount_all(self, plugins: Iterable[PluginRow]) -> list[Mount]:
        """Mount plugins that may need each other, in any order, and wait until all have started.

        Args:
            plugins: The plugins, with their configuration where they have one.

        Raises:
            ConfigError: As `mount`.
            Exception: As `mount`.
            AssertionError: As `mount`.
        """
        return await _mount_all(self.app, plugins)

    def agent(
        self,
        *,
        model: str | None = MODEL,
        cwd: str | None = None,
        persona: str | None = None,
        tools: Iterable[Tool] = (),
        options: AgentOptions | None = None,
        agent_id: str | None = None,
        session_id: str | None = None,
        resume: str | None = None,
        setup: Setup | None = None,
    ) -> AbstractAsyncContextManager[Agent]:
        """Make an agent for the duration of a block; see `dsh.agent.open_agent`.

        Args:
            model: Name of the model, by default the scripted one.
            cwd: Absolute working directory of the new session. Not with `resume`: a stored session
                has its own.
            persona: Text of the persona section.
            tools: Tools of this agent alone.
            options: Further options.
            agent_id: Id in the registry.
            session_id: Id of the new session. Not with `resume` either.
            resume: Id of a stored session to go on with.
            setup: Composes the agent's scope before it is published.
        """
        own_tools = tuple(tools)

        async def compose(ctx: Context) -> Callable[[], None] | None:
            if persona is not None:
                ctx[SystemPrompt].section(ctx, PERSONA_SECTION, 0, persona)
            for tool in own_tools:
                ctx[ToolRegistry].register(ctx, tool)
            return None if setup is None else await setup(ctx)

        return open_agent(
            self.app,
            model=model,
            cwd=cwd,
            options=options,
            agent_id=agent_id,
            session_id=session_id,
            resume=resume,
            setup=compose,
        )

    @property
    def violations(self) -> tuple[Violation, ...]:
        """Invariants that were broken and that nobody has taken, oldest first."""
        taken = {id(item) for item in self._taken}
        return tuple(item for item in self._invariants.violations if id(item) not in taken)

    def take_violations(self) -> tuple[Violation, ...]:
        """Return the broken invariants so far and forget them: the test expected them."""
        taken = self.violations
        self._taken += taken
        return taken

    def check(self) -> None:
        """Fail if an invariant was broken, also where somebody has swallowed the error.

        Raises:
            AssertionError: One was, and nobody has taken it.
        """
        taken = self.take_violations()
        if taken:
            lines = "\n  ".join(f"{item.package}: {item.message}" for item in taken)
            raise AssertionError(
                "invariants were broken; a test that means to break them calls "
                f"`spine.take_violations()`:\n  {lines}"
            )


def _row(plugin: PluginRow) -> tuple[PluginLike, object]:
    return (plugin, None) if callable(plugin) else plugin


async def _mount_all(app: App, plugins: Iterable[PluginRow]) -> list[Mount]:
    mounts = [app.mount(*_row(plugin)) for plugin in plugins]
    # one that waits for a later one counts as settled until that has started: a round per link
    for _ in mounts:
        for mount in mounts:
            await mount.settled()
    waiting = [mount.name for mount in mounts if mount.state is MountState.PENDING]
    if waiting:
        raise AssertionError(
            f"plugins that wait for a service nobody provides: {', '.join(waiting)}\n"
            f"{app.explain()}"
        )
    return mounts


async def _mount_bundle(
    app: App, bundle: str | PluginLike | None, config: Mapping[str, Any]
) -> None:
    """Mount a bundle with the invariants at level full: its own if it has settings for them."""
    if bundle is None or isinstance(bundle, str):
        bundle = load_bundle(choose_bundle(bundle, where="the test", app=APP))
    full = {"level": "full"}
    known: Mapping[str, Any] = getattr(getattr(bundle, "Config", None), "model_fields", {})
    settings = {"invariants": full, **config} if "invariants" in known else config
    await _mount_all(app, [(bundle, settings or None)])
    if app.get(Invariants) is None:
        await _mount_all(app, [(Invariants, full)])


async def mount_spine(
    app: App,
    model: ScriptedAdapter,
    failures: Failures,
    *,
    plugins: Iterable[PluginRow] = (),
    config: Mapping[str, Any] | None = None,
    bundle: str | PluginLike | None = None,
) -> Spine:
    """Mount the spine in a running app; see `open_spine`."""
    await _mount_bundle(app, bundle, config or {})
    app[LlmService].register(app.ctx, model, "test")
    spine = Spine(app, model, failures)
    await spine.mount_all(plugins)
    return spine


@asynccontextmanager
async def open_spine(
    script: Script | ScriptedAdapter = (),
    *,
    plugins: Iterable[PluginRow] = (),
    config: Mapping[str, Any] | None = None,
    bundle: str | PluginLike | None = None,
) -> AsyncGenerator[Spine, None]:
    """Run an app with the spine and a scripted model.

    Leaving the block takes everything down, then fails if an invariant was broken or a plugin
    raised unnoticed. Where the block itself fails, that is what is raised.

    Args:
        script: What the model says; `spine.model.append` adds to it.
        plugins: Plugins to mount on top.
        config: Configuration of the bundle.
        bundle: The bundle, or the name of an installed one; by default the one that
            `dsh.loader.choose_bundle` picks, so that installing a sibling is enough.

    Yields:
        The spine, every part of it started.

    Raises:
        AssertionError: See above.
        SeamError: No bundle is installed, or several are equally good.
        PinError: A wheel has another version than the bundle pins.
    """
    model = script if isinstance(script, ScriptedAdapter) else ScriptedAdapter(script)
    failures = Failures()
    async with App() as app:
        failures.watch(app)
        spine = await mount_spine(
            app, model, failures, plugins=plugins, config=config, bundle=bundle
        )
        yield spine
        spine.check()
    failures.check()
