"""An app with an agent loop and what it works with, and nothing else."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

from dsh.agent import AgentRegistry
from dsh.core import App, PluginLike
from dsh.invariants import Invariants
from dsh.llm import LlmAdapter, LlmService
from dsh.session import LiveSessions
from dsh.system_prompt import SystemPrompt
from dsh.tools import ToolRegistry

__all__ = ["loop_app"]

_PARTS: Final[tuple[PluginLike, ...]] = (
    LlmService,
    LiveSessions,
    SystemPrompt,
    ToolRegistry,
    AgentRegistry,
)


@asynccontextmanager
async def loop_app(
    loop: PluginLike,
    adapter: LlmAdapter | None = None,
    *,
    configs: Mapping[Any, object] | None = None,
    extras: Iterable[PluginLike] = (),
) -> AsyncGenerator[App, None]:
    """Run an app with a loop, the services it works with, and the invariants at level full.

    Nothing of a bundle is asked for: this is for tests of loops.

    Args:
        loop: The loop plugin.
        adapter: A model adapter, registered as `test`; a scripted model is `test/scripted`.
        configs: Configurations by plugin.
        extras: Further plugins, mounted before the loop.

    Yields:
        The app, every part of it settled.

    Raises:
        AssertionError: An invariant was broken.
    """
    given: dict[Any, object] = {Invariants: {"level": "full"}, **(configs or {})}
    async with App() as app:
        for plugin in (*_PARTS, Invariants, *extras, loop):
            app.mount(plugin, given.get(plugin))
        for mount in app.mounts:
            await mount.settled()
        if adapter is not None:
            app[LlmService].register(app.ctx, adapter, "test")
        yield app
        violations = app[Invariants].violations
        assert not violations, f"invariants were broken: {violations}"
