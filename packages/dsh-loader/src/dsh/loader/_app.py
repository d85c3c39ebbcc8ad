"""An app made from a deployment."""

from __future__ import annotations

import inspect
import os
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Self, TypeAlias, cast

from dsh.core import App, Mount, PluginLike
from dsh.loader._boot import Boot
from dsh.loader._choice import SeamChoice
from dsh.loader._deployment import CALLER_LABEL, Deployment, compose
from dsh.loader._layers import read_deployment
from dsh.loader._sources import LayerKind, mapping_layer
from dsh.loader.errors import BootError, Problem

if TYPE_CHECKING:
    from dsh.agent import Agent, Setup
    from dsh.core import Context

ConfigSource: TypeAlias = "Deployment | Mapping[str, object] | str | os.PathLike[str] | None"
PluginWithConfig: TypeAlias = "PluginLike | tuple[PluginLike, Mapping[str, Any]]"
Prepare: TypeAlias = Callable[["LoadedApp"], "Awaitable[object] | object"]


class LoadedApp(App):
    """An app whose plugins come from a deployment; made by `open_app`, active once entered.

    Enter and leave it in one task.
    """

    def __init__(
        self,
        deployment: Deployment,
        *,
        plugins: Iterable[PluginWithConfig] = (),
        prepare: Prepare | None = None,
    ) -> None:
        super().__init__()
        self.deployment = deployment
        """What the app was made from."""
        self._prepare = prepare
        self._boot = Boot(self, deployment, [_pair(item) for item in plugins])

    @property
    def rows(self) -> Mapping[str, Mount]:
        """The mount of each row, of the bundle and of each chosen provider, by name."""
        return self._boot.rows

    @property
    def bundle(self) -> SeamChoice | None:
        """The bundle that was chosen, and why; none before the start, or if none is wanted."""
        return self._boot.bundle

    @property
    def seams(self) -> Mapping[str, SeamChoice]:
        """The provider chosen for each service key that needed one, and why."""
        return self._boot.seams

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        try:
            await self._run_prepare()
            await self._boot.run()
        except BaseException as error:
            await self.__aexit__(type(error), error, error.__traceback__)
            raise
        return self

    async def _run_prepare(self) -> None:
        if self._prepare is None:
            return
        try:
            result = self._prepare(self)
            if inspect.isawaitable(result):
                await result
        except Exception as error:
            told = f"host preparation failed: {type(error).__name__}: {error}"
            raise BootError([Problem("host", "failed", told, error)]) from error

    def agent(
        self,
        *,
        model: str | None = None,
        cwd: str | os.PathLike[str] | None = None,
        effort: str | None = None,
        max_steps: int | None = None,
        max_tokens: int | None = None,
        max_turn_tokens: int | None = None,
        tools: Iterable[Any] = (),
        setup: Setup | None = None,
        agent_id: str | None = None,
        session_id: str | None = None,
        resume: str | None = None,
    ) -> AbstractAsyncContextManager[Agent]:
        """Create an agent that is disposed at the end of the block.

            async with app.agent() as agent:
                print((await agent.ask("hi")).text)

        What is not given is taken from the deployment.

        Args:
            model: `provider/model`, or a bare name that one provider declares.
            cwd: Working directory of its commands; the process's if not given. Not with `resume`,
                which goes on in the folder of the session.
            effort: Reasoning effort, one the model declares.
            max_steps: Model requests of one turn.
            max_tokens: Output tokens of one model request.
            max_turn_tokens: Output tokens of one turn.
            tools: Tools of this agent alone, on top of those the deployment gives everybody.
            setup: Composes the agent's scope further, before it is published.
            agent_id: Registry id; made up when absent.
            session_id: Id of the new session; made up when absent. Not with `resume` either.
            resume: Id of a stored session to go on with, instead of a new one.

        Raises:
            TypeError: `resume` is given together with `cwd` or `session_id`.
            MissingServiceError: No bundle with an agent loop is mounted.
        """
        if resume is not None and not (cwd is None and session_id is None):
            raise TypeError(
                "a session that is resumed has its own folder and id: leave out cwd and session_id"
            )
        # the agent wheels are loaded by the bundle; an app without one never pays for them
        from dsh.agent import AgentOptions, open_agent

        deployment, limits = self.deployment, self.deployment.limits
        options = AgentOptions(
            model=model or deployment.model,
            reasoning_effort=effort or deployment.effort,
            max_steps=max_steps if max_steps is not None else limits.max_steps,
            max_tokens=max_tokens if max_tokens is not None else limits.max_tokens,
            max_turn_tokens=(
                max_turn_tokens if max_turn_tokens is not None else limits.max_turn_tokens
            ),
        )
        return open_agent(
            self,
            cwd=None if resume is not None else os.path.abspath(cwd or "."),
            options=options,
            agent_id=agent_id,
            session_id=session_id,
            resume=resume,
            setup=_composition(tuple(tools), setup),
        )


def open_app(
    config: ConfigSource = None,
    *,
    plugins: Iterable[PluginWithConfig] = (),
    prepare: Prepare | None = None,
) -> LoadedApp:
    """Make an app from a deployment, to be entered with `async with`.

    Entering it mounts the bundle, the rows and a provider for every service that something
    needs, and waits until all of it is active. Neither the user's nor a project's file is read:
    for that, pass what `read_deployment` returns.

    Args:
        config: A deployment; a mapping with the same keys as `dsh.yaml`; the path of a file;
            nothing for the bundle alone.
        plugins: Plugin classes or functions to mount as well, each alone or with its settings.
        prepare: Called with the app before anything is mounted, for services only the host has.

    Raises:
        ConfigFileError: The file is missing, unreadable or no strict YAML.
        ConfigKeyError: A key is unknown or of the wrong kind.
        InterpolationError: An expression cannot be resolved.

    Entering it raises:
        PluginNameError: A row names a plugin that is not installed.
        PinError: A wheel has another version than the bundle pins.
        RowError: A plugin could not be imported.
        ConfigKeyError: A setting is unknown or does not fit.
        SeamError: Several providers of a service, or several bundles, are equally good, or the
            named one is absent.
        BootError: Something did not become active; says what and why.
    """
    return LoadedApp(_deployment(config), plugins=plugins, prepare=prepare)


def _composition(tools: tuple[Any, ...], setup: Setup | None) -> Setup | None:
    """Return a set-up that registers tools first; the registry is asked for by its key."""
    if not tools:
        return setup

    async def compose(ctx: Context) -> Callable[[], None] | None:
        for tool in tools:
            ctx["tools"].register(ctx, tool)
        return None if setup is None else await setup(ctx)

    return compose


def _deployment(config: ConfigSource) -> Deployment:
    if isinstance(config, Deployment):
        return config
    if isinstance(config, Mapping):
        return compose([mapping_layer(config, LayerKind.CALLER, CALLER_LABEL)])
    if config is None:
        return compose([])
    return read_deployment(user=False, config=config)


def _pair(item: PluginWithConfig) -> tuple[PluginLike, object]:
    given: Any = item
    if isinstance(given, tuple):
        plugin, config = cast("tuple[PluginLike, Mapping[str, Any]]", given)
        return plugin, config
    return cast("PluginLike", given), None
