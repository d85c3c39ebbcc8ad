"""Mounts: live instances of plugins, driven towards the target their dependencies allow.

Decisions are made synchronously (`_refresh` flips the visible state at once); execution happens in
one driver task, which exists only while there is something to do. A load under way is never
interrupted: the driver compares the target again when it has finished.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, cast

import anyio
import anyio.lowlevel

from dsh.core._context import Context
from dsh.core._effects import Effect
from dsh.core._logging import Failure
from dsh.core._plugins import Plugin, PluginDef, Service, service_key
from dsh.core._services import Impl, Label, Registration
from dsh.core._tasks import failure_of, generator_body
from dsh.core.errors import (
    AbandonedError,
    InactiveContextError,
    InvalidEffectError,
    InvalidPluginError,
)

if TYPE_CHECKING:
    from dsh.core._app import App


class MountState(StrEnum):
    """Where a mount is in its life."""

    PENDING = "pending"
    """Waits for a service it injects."""
    LOADING = "loading"
    """Starts; a start under way is never interrupted."""
    ACTIVE = "active"
    """Started; what it provides can be used."""
    UNLOADING = "unloading"
    """Withdraws its services, then undoes its effects, newest first."""
    FAILED = "failed"
    """Its start raised; a restart, an update or a change of its services tries again."""
    DISPOSED = "disposed"
    """The end; a disposed mount never comes back."""


@dataclass(frozen=True, slots=True)
class Target:
    """What a mount is, or should be, loaded for."""

    seq: int
    tokens: tuple[int, ...]


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
        self._seq = 0
        self._loaded: Target | None = None
        self._failed: Target | None = None
        self._ending = False
        self._driving = False
        self._drivers = 0
        self._begun = 0
        self._body: anyio.CancelScope | None = None
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
        return self.state in _ACCEPTING and not self._ending

    @property
    def _provides_now(self) -> bool:
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

    def _uses(self, impl: Impl) -> bool:
        """Whether this mount is loaded, or being loaded, with the registration of `impl`."""
        held = self.store.get(impl.key)
        return held is not None and held.origin is impl.origin

    def injects(self, key: str) -> bool:
        """Whether this mount declares that it uses `key`, optionally or not."""
        return key in self.required or key in self.definition.injects

    def _readable(self, key: str, label: Label) -> Impl | None:
        """Return what this mount may read under `key` in a realm: injected, or its own."""
        impl = self.store.get(key)
        if impl is None and self.injects(key) and key not in self.required:
            impl = self.app.services.find(key, label)
            if impl is not None and not impl.mount._provides_now:
                impl = None
        if impl is not None and impl.label == label:
            return impl
        for registration in self.impls:
            own = registration.impl
            if own.key == key and own.label == label and not own.withdrawn:
                return own
        return None

    def missing(self) -> list[str]:
        """Return the keys this mount waits for."""
        return [key for key in self.required if self._usable(key) is None]

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
            key = service if isinstance(service, str) else service_key(service)
            self.required.setdefault(key, service)
            self.app.services.depend(self, key)
        self._refresh()

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
        while self.state in _RUNNING and self._desired() == self._loaded:
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
        self._seq += 1
        self._refresh()
        self._wake()

    def _check_restartable(self, what: str) -> None:
        if self._ending:
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
        if self._ending:
            return
        self._ending = True
        self.app._mount_retired(self)
        self._refresh()
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

    def _fail(self, error: Exception, where: str) -> None:
        """Unload the plugin because something it runs has broken: `error`, while it did `where`."""
        self.report(error, where)
        if self._loaded is not None and self.state in _RUNNING and not self._ending:
            self.error = error
            self._failed = self._loaded
            self._refresh()

    def report(self, error: BaseException, where: str) -> None:
        """Report the contained failure `error` once; `where` is what the plugin was doing."""
        self.app.report(Failure(self.name, where, error))

    # -- the target --------------------------------------------------------------------------

    def _refresh(self) -> None:
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
        self._notify()
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
        # what has failed once is not tried again until a service, or the sequence number, changes
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
            self._drivers += 1
            self.app._start_host(partial(self._drive, self._drivers), f"mount {self.name}", self)

    def _rouse(self) -> None:
        """Have what is left done by a new driver, if the one there was has been killed.

        An event loop that closes over a KeyboardInterrupt cancels each task once, shields or not.
        A driver it meets leaves its work half done; one that was about to begin never does.
        """
        if self._begun < self._drivers:
            self._driving = False
        if self.state is not MountState.DISPOSED:
            self._wake()

    async def _drive(self, number: int) -> None:
        if number < self._drivers:
            return  # taken for dead, it has been replaced
        self._begun = number
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
        # loaded?  what is wanted            step
        # yes      the same, not UNLOADING   none: at rest
        # yes      anything else             unload, then look again
        # no       the end                   undo what was registered while pending; DISPOSED
        # no       a target                  load it
        # no       nothing                   rest: FAILED with an error, else PENDING
        want = self._desired()
        if self._loaded is not None:
            if want == self._loaded and self.state is not MountState.UNLOADING:
                return False
            await self._unload()
        elif self._ending:
            await self._unload()
            self._mark_disposed()
            return False
        elif want is not None:
            await self._load(want)
        else:
            self._settle_idle()
            # who watches the state may have asked for something meanwhile
            return self._ending or self._desired() is not None
        return True

    def _settle_idle(self) -> None:
        if self._failed is not None and self._failed.seq != self._seq:
            # the error is that of a start before the last restart or update
            self.error = None
        state = MountState.FAILED if self.error is not None else MountState.PENDING
        self._set_state(state)

    def _mark_disposed(self) -> None:
        self.app.services.undepend(self)
        self._set_state(MountState.DISPOSED)
        self.app._mount_gone(self)

    async def _load(self, target: Target) -> None:
        self._set_state(MountState.LOADING)
        found = {key: self.app.services.find(key, self.ctx.label(key)) for key in self.required}
        self.store = {key: impl for key, impl in found.items() if impl is not None}
        self._loaded = target
        try:
            self.config = self.definition.validate(self.raw_config)
            with anyio.CancelScope() as self._body:
                await self._run_body()
            if self._body.cancelled_caught:
                raise AbandonedError(f"the start of {self.name!r} was given up at shutdown")
        except (Exception, SystemExit) as raised:  # noqa: BLE001 - it is this mount's alone
            error = failure_of(raised)
            self._failed = target
            self.error = error
            self.report(error, "start")
            self._set_state(MountState.UNLOADING)
            return
        finally:
            self._body = None
        if self._failed != target:
            # it is the failed one where something the start had set going has broken meanwhile
            self.error = None
        if self._desired() == target:
            self._set_state(MountState.ACTIVE)
            for registration in tuple(self.impls):
                registration.notify()

    async def _run_body(self) -> None:
        result = self._begin()
        if inspect.isasyncgen(result):
            steps = cast("AsyncGenerator[object, None]", result)
            await self.ctx.enter(generator_body(steps, self.name), label=f"body of {self.name}")
            return
        if inspect.isawaitable(result):
            result = await cast("Awaitable[object]", result)
        self._add_cleanup(result)

    def _begin(self) -> object:
        """Call the function, or make the instance and call its `start`."""
        definition = self.definition
        if not definition.is_class:
            return definition.target(self.ctx, self.config)
        instance = cast("type[Plugin]", definition.target)(self.ctx)
        self.instance = instance
        if isinstance(instance, Service):
            self.ctx.provide(type(instance).service_type, instance)
        for spec in definition.listeners:
            spec.bind(self.ctx, instance)
        return instance.start()

    def _add_cleanup(self, result: object) -> None:
        if result is None or isinstance(result, Effect):
            return
        if not callable(result):
            raise InvalidEffectError(
                f"the start of {self.name!r} returned {result!r}",
                hint="return a cleanup callable or nothing",
            )
        self.ctx.defer(result)

    def _interrupt_body(self) -> None:
        """Cancel a start under way; only the shutdown of the app does this."""
        if self._body is not None:
            self._body.cancel()

    async def _unload(self) -> None:
        if self._loaded is not None or self._effects:
            self._set_state(MountState.UNLOADING)
        await self._unwind()
        # what is left could not be waited for, and ends on its own
        self._effects.clear()
        self.store = {}
        self.instance = None
        self._loaded = None

    async def _unwind(self) -> None:
        """Withdraw services and wait for their consumers, then undo effects newest first."""
        for registration in reversed(tuple(self.impls)):
            await self._withdraw(registration)
        for effect in reversed(self.effects):
            if effect in self._effects:
                await self._undo(effect)

    async def _undo(self, effect: Effect) -> None:
        try:
            await effect.dispose()
        except Exception as error:  # noqa: BLE001 - one failing cleanup strands nothing
            self.report(error, f"cleanup of {effect.label}")
            if not effect.disposed:
                effect.request_dispose()

    async def _withdraw(self, registration: Registration) -> None:
        """Take the service of `registration` away and wait until every consumer has let go."""
        impl = registration.impl
        self.app.services.withdraw(impl)
        for user in self.app.services.users(impl):
            try:
                await user._released(impl)
            except Exception as error:  # noqa: BLE001 - teardown goes on whatever happens
                self.report(error, f"waiting for {user.name} to let go of {impl.key}")
        if registration in self.impls:
            self.impls.remove(registration)

    async def _released(self, impl: Impl) -> None:
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

    def _start_active(self) -> None:
        """Be active at once: a scope has nothing to load."""
        self._loaded = Target(0, ())
        self.state = MountState.ACTIVE

    def __repr__(self) -> str:
        return f"<Mount {self.name!r} {self.state.value}>"


_ACCEPTING = frozenset({MountState.PENDING, MountState.ACTIVE})
_MOVING = frozenset({MountState.LOADING, MountState.UNLOADING})
_RUNNING = frozenset({MountState.LOADING, MountState.ACTIVE})
_IDLE = frozenset({MountState.PENDING, MountState.FAILED})
