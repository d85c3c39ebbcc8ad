"""A whole spine with a scripted model, for tests of what plugs into it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Final, TypeAlias

from dsh.agent import Agent, AgentOptions, Setup
from dsh.agent_core import AgentCore, create_agent
from dsh.core import App, Mount, MountState, PluginLike
from dsh.invariants import Invariants, Violation
from dsh.llm import LlmService
from dsh.llm_replay import Entry, EntryFunction, ScriptedAdapter
from dsh.testkit._failures import Failures
from dsh.tools import Tool

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
        mounts = [self.app.mount(*_row(plugin)) for plugin in plugins]
        for mount in mounts:
            await mount.settled()
        waiting = [mount.name for mount in mounts if mount.state is MountState.PENDING]
        if waiting:
            raise AssertionError(
                f"plugins that wait for a service nobody provides: {', '.join(waiting)}\n"
                f"{self.app.explain()}"
            )
        return mounts

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
        """Make an agent for the duration of a block; see `dsh.agent_core.create_agent`.

        Args:
            model: Name of the model, by default the scripted one.
            cwd: Absolute working directory of a new session.
            persona: Text of the persona section.
            tools: Tools of this agent alone.
            options: Further options.
            agent_id: Id in the registry.
            session_id: Id of the new session.
            resume: Id of a stored session to go on with.
            setup: Composes the agent's scope before it is published.
        """
        return create_agent(
            self.app,
            model=model,
            cwd=cwd,
            persona=persona,
            tools=tools,
            options=options,
            agent_id=agent_id,
            session_id=session_id,
            resume=resume,
            setup=setup,
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


async def mount_spine(
    app: App,
    model: ScriptedAdapter,
    failures: Failures,
    *,
    plugins: Iterable[PluginRow] = (),
    config: Mapping[str, Any] | None = None,
) -> Spine:
    """Mount the spine in a running app; see `open_spine`."""
    settings = {"invariants": {"level": "full"}, **(config or {})}
    await app.mount(AgentCore, settings).settled()
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
) -> AsyncGenerator[Spine, None]:
    """Run an app with the spine and a scripted model.

    Leaving the block takes everything down, then fails if an invariant was broken or a plugin
    raised unnoticed. Where the block itself fails, that is what is raised.

    Args:
        script: What the model says; `spine.model.append` adds to it.
        plugins: Plugins to mount on top.
        config: Configuration of the bundle `dsh.agent_core.AgentCore`.

    Yields:
        The spine, every part of it started.

    Raises:
        AssertionError: See above.
    """
    model = script if isinstance(script, ScriptedAdapter) else ScriptedAdapter(script)
    failures = Failures()
    async with App() as app:
        failures.watch(app)
        spine = await mount_spine(app, model, failures, plugins=plugins, config=config)
        yield spine
        spine.check()
    failures.check()
