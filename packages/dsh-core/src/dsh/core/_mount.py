"""Mounts: live instances of plugins, driven towards the target their dependencies allow.

Decisions are made synchronously (`refresh` flips the visible state at once); execution happens in
one driver task, which exists only while there is something to do. A load under way is never
interrupted: the driver compares the target again when it has finished.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, cast

import anyio
import anyio.lowlevel

from dsh.core._effects import AbandonedEffect, Effect
from dsh.core._logging import Failure
from dsh.core._plugins import Plugin, PluginDef, Service, service_key
from dsh.core._services import Impl, Registration
from dsh.core._waits import current_mount
from dsh.core.errors import InactiveContextError, InvalidEffectError

if TYPE_CHECKING:
    from dsh.core._app import App
    from dsh.core._context import Context


class MountState(StrEnum):
    """Where a mount is in its life."""

    PENDING = "pending"
    """Waits for a service it injects."""
    LOADING = "loading"
    ACTIVE = "active"
    UNLOADING = "unloading"
    FAILED = "failed"
    DISPOSED = "disposed"
    """The end; a disposed mount never comes back."""


@dataclass(frozen=True, slots=True)
class Target:
    """What a mount is, or should be, loaded for."""

    seq: int
    tokens: tuple[int, ...]


class Mount:
    """One live instance of a plugin: its dependencies, configuration, state and effects."""

    def __init__(
        self, app: App, definition: PluginDef, parent: Mount | None, origin: Context, raw: object
    ) -> None:
        self.app = app
        self.definition = definition
        self.name = definition.name
        """Display name; the loader may set the name of its row."""
        self.parent = parent
        self.ctx = origin.derive(owner=self)
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
        self._seq = 0
        self._loaded: Target | None = None
        self._failed: Target | None = None
        self._ending = False
        self._driving = False
        self._body: anyio.CancelScope | None = None
        self._waiters: list[anyio.Event] = []

    # -- what others ask ---------------------------------------------------------------------

    @property
    def accepting(self) -> bool:
        """Whether something may be registered here now.

        A start under way may always register: what it has opened must find its way to a cleanup,
        also when disposal was asked for meanwhile.
        """
        if self.state is MountState.LOADING:
            return True
        return self.state in _ACCEPTING and not self._ending

    @property
    def provides_now(self) -> bool:
        """Whether services provided here are visible to dependents."""
        return self.state is MountState.ACTIVE and not self._ending

    @property
    def ending(self) -> bool:
        """Whether disposal has been requested."""
        return self._ending

    @property
    def busy(self) -> bool:
        """Whether a transition is under way."""
        return self._driving or self.state in _MOVING

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

    def uses(self, impl: Impl) -> bool:
        """Whether this mount is loaded, or being loaded, with `impl`."""
        return self.store.get(impl.key) is impl

    def missing(self) -> list[str]:
        """Return the keys this mount waits for."""
        return [key for key in self.required if self._usable(key) is None]

    # -- registration ------------------------------------------------------------------------

    def check_accepting(self, what: str) -> None:
        """Refuse a registration on a mount that is going away.

        Raises:
            InactiveContextError: The mount is unloading, failed or disposed.
        """
        if not self.accepting:
            raise InactiveContextError(what, self.name, self.state.value)

    def adopt(self, effect: Effect) -> None:
        """Own `effect` until it is disposed or moved."""
        self._effects[effect] = None

    def forget(self, effect: Effect) -> None:
        """Stop owning `effect`."""
        self._effects.pop(effect, None)

    def require(self, *services: Any) -> None:
        """Add required services before the first activation (a deployment row may)."""
        for service in services:
            key = service if isinstance(service, str) else service_key(service)
            self.required.setdefault(key, service)
            self.app.services.depend(self, key)
        self.refresh()

    # -- lifecycle ---------------------------------------------------------------------------

    async def settled(self) -> Mount:
        """Wait until no transition is under way; waiting for a service counts as settled.

        Raises:
            Exception: What the plugin's start or configuration raised.
            LifecycleDeadlock: The plugin waits for its own start.
        """
        with self.app.waits.waiting(self, for_end=False):
            while self.busy:
                await self._changed()
        if self.error is not None:
            raise self.error
        return self

    async def wait_state(self, *states: MountState) -> MountState:
        """Wait until the mount is in one of `states` and return it."""
        while self.state not in states:
            await self._changed()
        return self.state

    async def restart(self) -> None:
        """Unload and load again, and wait until that has settled.

        Raises:
            InactiveContextError: The mount is disposed.
        """
        self.request_restart()
        await self.settled()

    def request_restart(self) -> None:
        """Have the mount load again; also one that is loading now or has failed."""
        if self._ending:
            raise InactiveContextError("a restart", self.name, self.state.value)
        self._seq += 1
        self.refresh()

    async def update(self, config: object) -> None:
        """Apply a new configuration: through an update hook, else by a restart.

        Raises:
            ConfigError: The configuration does not fit; the mount keeps running with the old one.
            InactiveContextError: The mount is disposed.
        """
        if self._ending:
            raise InactiveContextError("an update", self.name, self.state.value)
        candidate = self.definition.validate(config)
        self.raw_config = config
        hooks = tuple(self.update_hooks) if self.state is MountState.ACTIVE else ()

        async def restart() -> None:
            await self.restart()

        step: Callable[[], Any] = restart
        for hook in reversed(hooks):
            step = _bind_hook(hook, candidate, step)
        await step()

    def request_dispose(self) -> None:
        """Have the mount disposed; safe anywhere, returns at once."""
        if self._ending:
            return
        self._ending = True
        self.app.mount_retired(self)
        self.refresh()
        self._wake()

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

    def fail(self, error: Exception, where: str) -> None:
        """Record that something the plugin runs has broken, and unload it."""
        self.report(error, where)
        if self._loaded is not None and not self._ending:
            self.error = error
            self._failed = self._loaded
            self.refresh()

    def report(self, error: BaseException, where: str) -> None:
        """Report a contained failure once, with this plugin's name."""
        self.app.report(Failure(self.name, where, error))

    # -- the target --------------------------------------------------------------------------

    def refresh(self) -> None:
        """Recompute the target and, where it changed, flip the state and wake the driver."""
        if self.state is MountState.DISPOSED:
            return
        want = self._desired()
        if want == self._loaded:
            return
        if self.state is MountState.ACTIVE:
            self._set_state(MountState.UNLOADING)
        elif want is not None and self.state in _IDLE:
            self._set_state(MountState.LOADING)
        self._wake()

    def _desired(self) -> Target | None:
        if self._ending or (self._loaded is None and self._parent_leaving()):
            return None
        tokens: list[int] = []
        for key in self.required:
            impl = self._usable(key)
            if impl is None:
                return None
            tokens.append(impl.token)
        target = Target(self._seq, tuple(tokens))
        return None if target == self._failed else target

    def _parent_leaving(self) -> bool:
        node = self.parent
        while node is not None:
            if node.ending or node.state in (MountState.UNLOADING, MountState.DISPOSED):
                return True
            node = node.parent
        return False

    def _usable(self, key: str) -> Impl | None:
        impl = self.app.services.find(key, self.ctx.label(key))
        if impl is None or not impl.available_to(self.ctx):
            return None
        return impl

    # -- the driver --------------------------------------------------------------------------

    def _wake(self) -> None:
        if not self._driving:
            self._driving = True
            self.app.start_host(self._drive, f"mount {self.name}", self)

    async def _drive(self) -> None:
        current_mount.set(self)
        try:
            with anyio.CancelScope(shield=True):
                await anyio.lowlevel.checkpoint()
                while await self._step():
                    pass
        finally:
            self._driving = False
            self._notify()

    async def _step(self) -> bool:
        """Take one step towards the target; False when there is none to take."""
        want = self._desired()
        if self._loaded is not None:
            if want == self._loaded and self.state is not MountState.UNLOADING:
                return False
            await self._unload()
        elif self._ending:
            await self._unload()
            self._finish()
            return False
        elif want is not None:
            await self._load(want)
        else:
            self._rest()
            return False
        return True

    def _rest(self) -> None:
        state = MountState.FAILED if self.error is not None else MountState.PENDING
        self._set_state(state)

    def _finish(self) -> None:
        self.app.services.undepend(self)
        self._set_state(MountState.DISPOSED)
        self.app.mount_gone(self)

    async def _load(self, target: Target) -> None:
        self._set_state(MountState.LOADING)
        self.store = {}
        for key in self.required:
            impl = self._usable(key)
            if impl is not None:
                self.store[key] = impl
        self._loaded = target
        try:
            self.config = self.definition.validate(self.raw_config)
            with anyio.CancelScope() as self._body:
                await self._run_body()
            if self._body.cancelled_caught:
                raise AbandonedEffect(f"the start of {self.name!r} was given up at shutdown")
        except Exception as error:  # noqa: BLE001 - the failure belongs to this mount alone
            self._failed = target
            self.error = error
            self.report(error, "start")
            self._set_state(MountState.UNLOADING)
            return
        finally:
            self._body = None
        self.error = None
        if self._desired() == target:
            self._set_state(MountState.ACTIVE)
            for registration in self.impls:
                registration.notify()

    async def _run_body(self) -> None:
        definition = self.definition
        if not definition.is_class:
            await self._run_function(definition.target)
            return
        instance = cast("type[Plugin]", definition.target)(self.ctx)
        self.instance = instance
        if isinstance(instance, Service):
            self.ctx.provide(type(instance).service_type, instance)
        for spec in definition.listeners:
            spec.bind(self.ctx, instance)
        self._add_cleanup(await instance.start())

    async def _run_function(self, fn: Callable[..., Any]) -> None:
        result = fn(self.ctx, self.config)
        if inspect.isasyncgen(result):
            generator = cast("AsyncGenerator[object, None]", result)
            manager = asynccontextmanager(lambda: generator)
            await self.ctx.enter(manager(), label=f"body of {self.name}")
            return
        if inspect.isawaitable(result):
            result = await result
        self._add_cleanup(result)

    def _add_cleanup(self, result: object) -> None:
        if result is None or isinstance(result, Effect):
            return
        if not callable(result):
            raise InvalidEffectError(
                f"the start of {self.name!r} returned {result!r}",
                hint="return a cleanup callable or nothing",
            )
        self.ctx.defer(result)

    def interrupt_body(self) -> None:
        """Cancel a start under way; only the shutdown of the app does this."""
        if self._body is not None:
            self._body.cancel()

    async def _unload(self) -> None:
        """Withdraw services and wait for their consumers, then unwind effects newest first."""
        if self._loaded is not None or self._effects:
            self._set_state(MountState.UNLOADING)
        for registration in reversed(list(self.impls)):
            await self.withdraw(registration)
        while self._effects:
            await self._unwind_last()
        self.store = {}
        self.instance = None
        self.update_hooks.clear()
        self._loaded = None

    async def withdraw(self, registration: Registration) -> None:
        """Take a service away and wait until every consumer has let go of it."""
        if registration in self.impls:
            self.impls.remove(registration)
        for user in self.app.services.withdraw(registration.impl):
            try:
                await user.released(registration.impl)
            except Exception as error:  # noqa: BLE001 - teardown goes on whatever happens
                self.report(error, f"waiting for {user.name} to let go of {registration.impl.key}")

    async def released(self, impl: Impl) -> None:
        """Wait until this mount is no longer loaded with `impl`."""
        if not self.uses(impl):
            return
        with self.app.waits.waiting(self, for_end=False):
            while self.uses(impl):
                await self._changed()

    async def _unwind_last(self) -> None:
        effect = next(reversed(self._effects))
        try:
            await effect.dispose()
        except Exception as error:  # noqa: BLE001 - one failing cleanup strands nothing
            self.report(error, f"cleanup of {effect.label}")
        self._effects.pop(effect, None)

    # -- change notification -----------------------------------------------------------------

    def _set_state(self, state: MountState) -> None:
        if state is self.state:
            return
        previous, self.state = self.state, state
        self.app.mount_changed(self, previous)
        self._notify()

    def _notify(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            waiter.set()

    async def _changed(self) -> None:
        event = anyio.Event()
        self._waiters.append(event)
        await event.wait()

    def start_active(self) -> None:
        """Be active at once: a scope has nothing to load."""
        self._loaded = Target(0, ())
        self.state = MountState.ACTIVE

    def __repr__(self) -> str:
        return f"<Mount {self.name!r} {self.state.value}>"


def _bind_hook(
    hook: Callable[..., Any], config: object, inner: Callable[[], Any]
) -> Callable[[], Any]:
    async def step() -> None:
        await hook(config, inner)

    return step


_ACCEPTING = frozenset({MountState.PENDING, MountState.ACTIVE})
_MOVING = frozenset({MountState.LOADING, MountState.UNLOADING})
_IDLE = frozenset({MountState.PENDING, MountState.FAILED})
