"""Mounts: live instances of plugins, what others ask and want of one, and what it owns.

The order in which a mount is undone is decided here (`_unwind`); when it is loaded and unloaded,
by its `Lifecycle`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import anyio

from dsh.core._context import Context
from dsh.core._effects import Effect
from dsh.core._lifecycle import Lifecycle, MountState
from dsh.core._logging import Failure
from dsh.core._plugins import PluginDef, key_of
from dsh.core._services import Impl, Registration
from dsh.core.errors import InactiveContextError, InvalidPluginError

if TYPE_CHECKING:
    from dsh.core._app import App


_ACCEPTING = frozenset({MountState.PENDING, MountState.ACTIVE})


class Mount:
    """One live instance of a plugin: its dependencies, configuration, state and effects."""

    background: ClassVar[bool] = False
    """A transition under way is never cancelled."""

    def __init__(
        self,
        app: App,
        definition: PluginDef,
        parent: Mount | None,
        origin: Context | None,
        raw: object,
    ) -> None:
        self.app = app
        self.definition = definition
        self.name = definition.name
        """Display name; the loader may set the name of its row."""
        self.parent = parent
        self.ctx = origin.derive(owner=self) if origin else Context(app, None, self, None, {})
        self.raw_config = raw
        self.config: object = None
        """The validated configuration of the last activation."""
        self.state = MountState.PENDING
        self.error: Exception | None = None
        self.instance: object = None
        self.entry: Effect | None = None
        """The effect of the parent that stands for this mount."""
        self.required: dict[str, Any] = {
            key: item.type for key, item in definition.injects.items() if not item.optional
        }
        self.store: dict[str, Impl] = {}
        """The registrations this mount was loaded with, by key."""
        self.impls: list[Registration] = []
        self.update_hooks: list[Callable[..., Any]] = []
        self._effects: dict[Effect, None] = {}
        self._lifecycle = Lifecycle(self)
        self._change: anyio.Event | None = None

    # -- what others ask ---------------------------------------------------------------------

    @property
    def accepting(self) -> bool:
        """Whether something may be registered here now.

        A start under way may always register: what it has opened must find its way to a cleanup,
        also when disposal was asked for meanwhile.
        """
        if self.state is MountState.LOADING:
            return True
        return self.state in _ACCEPTING and not self.ending

    @property
    def _provides_now(self) -> bool:
        """Whether services provided here are visible to dependents."""
        return self.state is MountState.ACTIVE and not self._lifecycle.ending

    @property
    def ending(self) -> bool:
        """Whether disposal has been requested."""
        return self._lifecycle.ending

    @property
    def busy(self) -> bool:
        """Whether a transition is under way."""
        return self._lifecycle.busy

    @property
    def effects(self) -> tuple[Effect, ...]:
        """Live effects, oldest first."""
        return tuple(self._effects)

    def owns(self, other: Mount) -> bool:
        """Whether `other` is this mount or was mounted below it."""
        node: Mount | None = other
        while node is not None:
            if node is self:
                return True
            node = node.parent
        return False

    def _uses(self, impl: Impl) -> bool:
        """Whether this mount is loaded, or being loaded, with the registration of `impl`."""
        held = self.store.get(impl.key)
        return held is not None and held.origin is impl.origin

    def injects(self, key: str) -> bool:
        """Whether this mount declares that it uses `key`, optionally or not."""
        return key in self.required or key in self.definition.injects

    def missing(self) -> list[str]:
        """Return the keys this mount waits for."""
        return [key for key in self.required if self._usable(key) is None]

    def _usable(self, key: str) -> Impl | None:
        impl = self.app.services.find(key, self.ctx.realm_of(key))
        if impl is None or not impl.available_to(self.ctx):
            return None
        return impl

    def _hold_services(self) -> None:
        """Keep the registrations there are now: the mount is loaded with these, whatever comes."""
        found = {key: self.app.services.find(key, self.ctx.realm_of(key)) for key in self.required}
        self.store = {key: impl for key, impl in found.items() if impl is not None}

    # -- registration ------------------------------------------------------------------------

    def check_accepting(self, what: str) -> None:
        """Refuse a registration on a mount that is going away.

        Args:
            what: What is to be registered, for the message.

        Raises:
            InactiveContextError: The mount is unloading, failed or disposed.
        """
        if not self.accepting:
            raise InactiveContextError(what, self.name, self.state.value)

    def _adopt(self, effect: Effect) -> None:
        """Own `effect` until it is disposed or moved."""
        self._effects[effect] = None

    def _forget(self, effect: Effect) -> None:
        """Stop owning `effect`."""
        self._effects.pop(effect, None)

    def require(self, *services: Any) -> None:
        """Add `services` (keys, or their classes) to wait for, before the first activation."""
        if self.state is MountState.DISPOSED:
            return
        for service in services:
            key = key_of(service)
            self.required.setdefault(key, service)
            self.app.services.depend(self, key)
        self._lifecycle.refresh()

    # -- lifecycle ---------------------------------------------------------------------------

    async def settled(self) -> Mount:
        """Wait until no transition is under way; waiting for a service counts as settled.

        Returns:
            The mount itself, so that mounting and waiting fit into one expression.

        Raises:
            Exception: What the plugin's start or configuration raised.
            LifecycleDeadlock: The plugin waits for its own start.
        """
        if self.busy:
            with self.app.waits.waiting(self, for_end=False):
                while self.busy:
                    await self._changed()
        if self.error is not None:
            raise self.error
        return self

    async def wait_state(self, *states: MountState) -> MountState:
        """Wait until the mount is in one of `states`.

        Returns:
            The state it is in.
        """
        while self.state not in states:
            await self._changed()
        return self.state

    async def stopping(self) -> None:
        """Wait until what is loaded, or being loaded, is to be undone."""
        while self._lifecycle.is_wanted:
            await self._changed()

    async def restart(self) -> None:
        """Unload and load again, and wait until that has settled.

        Raises:
            InactiveContextError: The mount is disposed.
        """
        self.request_restart()
        await self.settled()

    def request_restart(self) -> None:
        """Have the mount load again; also one that is loading now or has failed."""
        self._check_restartable("a restart")
        self._lifecycle.restart()

    def _check_restartable(self, what: str) -> None:
        if self.ending:
            raise InactiveContextError(what, self.name, self.state.value)
        if self.definition.target is None:
            raise InvalidPluginError(
                f"the {self.name} is no plugin that could start again", hint="restart what is in it"
            )

    async def update(self, config: object) -> None:
        """Apply a new configuration: through an update hook, else by a restart.

        Args:
            config: A mapping, or an instance of the plugin's `Config`.

        Raises:
            ConfigError: The configuration does not fit; the mount keeps running with the old one.
            InactiveContextError: The mount is disposed.
        """
        self._check_restartable("an update")
        candidate = self.definition.validate(config)
        hooks = tuple(self.update_hooks) if self.state is MountState.ACTIVE else ()
        taken = False

        async def restart() -> None:
            nonlocal taken
            taken = True
            self.raw_config = config
            await self.restart()

        step: Callable[[], Any] = restart
        for hook in reversed(hooks):
            step = partial(hook, candidate, step)
        await step()
        if not taken:
            # a hook has applied it live, so it is what a later restart begins with
            self.raw_config = config

    def request_dispose(self) -> None:
        """Have the mount disposed; safe anywhere, returns at once."""
        self._lifecycle.end()

    async def dispose(self) -> None:
        """Dispose and wait for the end; every caller waits for the same end.

        Raises:
            LifecycleDeadlock: The end would wait for this very wait.
        """
        if self.state is MountState.DISPOSED:
            return
        with self.app.waits.waiting(self):
            self.request_dispose()
            await self.wait_state(MountState.DISPOSED)

    def _fail(self, error: Exception, where: str) -> None:
        """Unload the plugin because something it runs has broken: `error`, while it did `where`."""
        self.report(error, where)
        self._lifecycle.fail(error)

    def report(self, error: BaseException, where: str) -> None:
        """Report the contained failure `error` once; `where` is what the plugin was doing."""
        self.app.report(Failure(self.name, where, error))

    # -- the end -----------------------------------------------------------------------------

    async def _unwind(self) -> None:
        """Withdraw services and wait for their consumers, then undo effects newest first."""
        for registration in reversed(tuple(self.impls)):
            await registration._withdraw()
        for effect in reversed(self.effects):
            # a cleanup before this one may have disposed of it, or taken it over
            if effect in self._effects:
                await self._undo(effect)

    async def _undo(self, effect: Effect) -> None:
        try:
            await effect.dispose()
        except Exception as error:  # noqa: BLE001 - one failing cleanup strands nothing
            self.report(error, f"cleanup of {effect.label}")
            if not effect.disposed:
                effect.request_dispose()

    async def _wait_released(self, impl: Impl) -> None:
        """Wait until this mount is no longer loaded with `impl`."""
        if not self._uses(impl):
            return
        with self.app.waits.waiting(self, for_end=False):
            while self._uses(impl):
                await self._changed()

    # -- change notification -----------------------------------------------------------------

    def _set_state(self, state: MountState) -> None:
        if state is self.state:
            return
        previous, self.state = self.state, state
        self.app._mount_changed(self, previous)
        self._notify()

    def _notify(self) -> None:
        if self._change is not None:
            self._change.set()
            self._change = None

    async def _changed(self) -> None:
        if self._change is None:
            self._change = anyio.Event()
        await self._change.wait()

    def __repr__(self) -> str:
        return f"<Mount {self.name!r} {self.state.value}>"
