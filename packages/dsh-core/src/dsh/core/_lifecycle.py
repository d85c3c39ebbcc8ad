"""The lifecycle of a mount: what it should be loaded for, and the task that takes it there.

Decisions are made synchronously (`refresh` flips the visible state at once); execution happens in
one driver task, which exists only while there is something to do. A load under way is never
interrupted: the driver compares the target again when it has finished.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, Awaitable
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Final, cast

import anyio
import anyio.lowlevel

from dsh.core._effects import Effect
from dsh.core._plugins import Plugin, Service
from dsh.core._reading import start_failure
from dsh.core._tasks import failure_of, generator_body, stray_cancellation
from dsh.core.errors import AbandonedError, InvalidEffectError

if TYPE_CHECKING:
    from dsh.core._mount import Mount


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


MOVING: Final = frozenset({MountState.LOADING, MountState.UNLOADING})
RUNNING: Final = frozenset({MountState.LOADING, MountState.ACTIVE})
_IDLE = frozenset({MountState.PENDING, MountState.FAILED})


@dataclass(frozen=True, slots=True)
class Target:
    """What a mount is, or should be, loaded for."""

    seq: int
    tokens: tuple[int, ...]


class Lifecycle:
    """Drives one mount, which holds what is seen of that: state, error, configuration, effects."""

    __slots__ = (
        "_begun",
        "_body",
        "_drivers",
        "_driving",
        "_failed",
        "_loaded",
        "_mount",
        "_seq",
        "ending",
    )

    def __init__(self, mount: Mount) -> None:
        self._mount = mount
        self.ending = False
        """Whether disposal has been requested."""
        self._seq = 0
        self._loaded: Target | None = None
        self._failed: Target | None = None
        self._driving = False
        self._drivers = 0
        self._begun = 0
        self._body: anyio.CancelScope | None = None

    # -- what is asked for -------------------------------------------------------------------

    @property
    def busy(self) -> bool:
        """Whether a transition is under way."""
        return self._driving or self._mount.state in MOVING

    @property
    def is_wanted(self) -> bool:
        """Whether what is loaded, or being loaded, is to stay."""
        return self._mount.state in RUNNING and self._desired() == self._loaded

    def start_active(self) -> None:
        """Be active at once: a scope has nothing to load."""
        self._loaded = Target(0, ())
        self._mount.state = MountState.ACTIVE

    def restart(self) -> None:
        """Have the mount load again; also one that is loading now or has failed."""
        self._seq += 1
        self.refresh()
        self._wake()

    def end(self) -> None:
        """Have the mount disposed; asked again, nothing more happens."""
        if self.ending:
            return
        self.ending = True
        self._mount.app._mount_retired(self._mount)
        self.refresh()
        self._wake()

    def fail(self, error: Exception) -> None:
        """Have the mount unloaded, and not loaded again for what it was loaded for."""
        mount = self._mount
        if self._loaded is not None and mount.state in RUNNING and not self.ending:
            mount.error = error
            self._failed = self._loaded
            self.refresh()

    # -- the target --------------------------------------------------------------------------

    def refresh(self) -> None:
        """Recompute the target and, where it changed, flip the state and wake the driver."""
        mount = self._mount
        if mount.state is MountState.DISPOSED:
            return
        want = self._desired()
        if want == self._loaded:
            return
        if mount.state is MountState.ACTIVE:
            mount._set_state(MountState.UNLOADING)
        elif want is not None and mount.state in _IDLE:
            mount._set_state(MountState.LOADING)
        mount._notify()
        self._wake()

    def _desired(self) -> Target | None:
        # what is loaded stays until its turn comes among the effects of its parent
        if self.ending or (self._loaded is None and self._parent_leaving()):
            return None
        tokens: list[int] = []
        for key in self._mount.required:
            impl = self._mount._usable(key)
            if impl is None:
                return None
            tokens.append(impl.token)
        target = Target(self._seq, tuple(tokens))
        # what has failed once is not tried again until a service, or the sequence number, changes
        return None if target == self._failed else target

    def _parent_leaving(self) -> bool:
        node = self._mount.parent
        while node is not None:
            if node.ending or node.state in (MountState.UNLOADING, MountState.DISPOSED):
                return True
            node = node.parent
        return False

    # -- the driver --------------------------------------------------------------------------

    def _wake(self) -> None:
        if not self._driving:
            self._driving = True
            self._drivers += 1
            mount = self._mount
            mount.app._start_host(partial(self._drive, self._drivers), f"mount {mount.name}", mount)

    def rouse(self) -> None:
        """Have what is left done by a new driver, if the one there was has been killed.

        An event loop that closes over a KeyboardInterrupt cancels each task once, shields or not.
        A driver it meets leaves its work half done; one that was about to begin never does.
        """
        if self._begun < self._drivers:
            self._driving = False
        if self._mount.state is not MountState.DISPOSED:
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
            self._mount._notify()

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
            if want == self._loaded and self._mount.state is not MountState.UNLOADING:
                return False
            await self._unload()
        elif self.ending:
            await self._unload()
            self._mark_disposed()
            return False
        elif want is not None:
            await self._load(want)
        else:
            self._settle_idle()
            # who watches the state may have asked for something meanwhile
            return self.ending or self._desired() is not None
        return True

    def _settle_idle(self) -> None:
        mount = self._mount
        if self._failed is not None and self._failed.seq != self._seq:
            # the error is that of a start before the last restart or update
            mount.error = None
        mount._set_state(MountState.FAILED if mount.error is not None else MountState.PENDING)

    def _mark_disposed(self) -> None:
        mount = self._mount
        mount.app.services.undepend(mount)
        mount._set_state(MountState.DISPOSED)
        mount.app._mount_gone(mount)

    # -- loading -----------------------------------------------------------------------------

    async def _load(self, target: Target) -> None:
        mount = self._mount
        mount._set_state(MountState.LOADING)
        mount._hold_services()
        # set before the start: what changes meanwhile then differs from it, and is acted upon
        self._loaded = target
        try:
            mount.config = mount.definition.validate(mount.raw_config)
            with anyio.CancelScope() as self._body:
                await self._run_body()
            if self._body.cancelled_caught:
                raise AbandonedError(f"the start of {mount.name!r} was given up at shutdown")
        except (Exception, SystemExit) as raised:  # noqa: BLE001 - it is this mount's alone
            self._start_failed(target, start_failure(mount, failure_of(raised)))
            return
        except BaseException as raised:  # noqa: BLE001 - all but cancellations are raised again
            self._start_failed(target, stray_cancellation(raised))
            return
        finally:
            self._body = None
        if self._failed != target:
            # it is the failed one where something the start had set going has broken meanwhile
            mount.error = None
        if self._desired() == target:
            mount._set_state(MountState.ACTIVE)
            for registration in tuple(mount.impls):
                registration.notify()

    def _start_failed(self, target: Target, error: Exception) -> None:
        mount = self._mount
        self._failed = target
        mount.error = error
        mount.report(error, "start")
        mount._set_state(MountState.UNLOADING)

    async def _run_body(self) -> None:
        mount = self._mount
        result = self._begin()
        if inspect.isasyncgen(result):
            steps = cast("AsyncGenerator[object, None]", result)
            body = generator_body(steps, mount.name)
            await mount.ctx.enter(body, label=f"body of {mount.name}")
            return
        if inspect.isawaitable(result):
            result = await cast("Awaitable[object]", result)
        self._add_cleanup(result)

    def _begin(self) -> object:
        """Call the function, or make the instance and call its `start`."""
        mount, definition = self._mount, self._mount.definition
        if not definition.is_class:
            return definition.target(mount.ctx, mount.config)
        instance = cast("type[Plugin]", definition.target)(mount.ctx)
        mount.instance = instance
        if isinstance(instance, Service):
            mount.ctx.provide(type(instance).service_type, instance)
        for spec in definition.listeners:
            spec.bind(mount.ctx, instance)
        return instance.start()

    def _add_cleanup(self, result: object) -> None:
        if result is None or isinstance(result, Effect):
            return
        if not callable(result):
            raise InvalidEffectError(
                f"the start of {self._mount.name!r} returned {result!r}",
                hint="return a cleanup callable or nothing",
            )
        self._mount.ctx.defer(result)

    def interrupt_body(self) -> None:
        """Cancel a start under way; only the shutdown of the app does this."""
        if self._body is not None:
            self._body.cancel()

    # -- unloading ---------------------------------------------------------------------------

    async def _unload(self) -> None:
        mount = self._mount
        # one that waited with nothing registered has nothing to be seen undoing
        if self._loaded is not None or mount._effects:
            mount._set_state(MountState.UNLOADING)
        await mount._unwind()
        # what is left could not be waited for, and ends on its own
        mount._effects.clear()
        mount.store = {}
        mount.instance = None
        self._loaded = None
