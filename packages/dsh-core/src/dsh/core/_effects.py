"""Effects: reversible registrations. A composite is undone newest first, a mount by `Mount`.

An effect belongs to the mount that made it until a composite takes it over by identity. Its
cleanup runs exactly once; every caller of `dispose()` waits for that one run. How a function that
gives cleanups is run is told in `_effect_bodies`.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Awaitable, Callable, Generator
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias, cast

import anyio

from dsh.core._tasks import Host, failure_of
from dsh.core._waits import Work, current_work
from dsh.core.errors import AbandonedError, InvalidEffectError

if TYPE_CHECKING:
    from dsh.core._mount import Mount

Cleanup: TypeAlias = Callable[[], object]
"""A sync or async callable that undoes something."""


class Effect:
    """One reversible registration, or an ordered group of them.

    Awaiting an effect whose body is asynchronous waits until its set-up is complete and raises
    what the set-up raised.
    """

    __slots__ = (
        "_cleanups",
        "_disposed_event",
        "_disposing",
        "_holder",
        "disposed",
        "label",
        "mount",
    )

    patient: ClassVar[bool] = False
    """Whether a cleanup may take as long as it needs: one that waits for another mount."""
    background: ClassVar[bool] = False
    """Whether it is a task that is cancelled where its end is needed."""

    def __init__(self, mount: Mount, label: str) -> None:
        self.label = label
        """What this registration is, for diagnosis."""
        self.mount = mount
        """The mount it belongs to."""
        self.disposed = False
        """Whether the cleanup has finished."""
        self._cleanups: list[Cleanup | Effect] = []
        self._holder: Effect | None = None
        self._disposing = False
        self._disposed_event: anyio.Event | None = None

    @property
    def name(self) -> str:
        """The label with the owner's name."""
        return f"{self.label} of {self.mount.name}"

    @property
    def children(self) -> tuple[Effect, ...]:
        """The effects this composite has taken over, oldest first."""
        return tuple(item for item in self._cleanups if isinstance(item, Effect))

    @property
    def is_sync(self) -> bool:
        """Whether every cleanup is known to be synchronous, and nothing is still being set up."""
        return all(
            item.is_sync if isinstance(item, Effect) else not inspect.iscoroutinefunction(item)
            for item in self._cleanups
        )

    def __await__(self) -> Generator[Any, Any, Effect]:
        return self._ready().__await__()

    async def _ready(self) -> Effect:
        """Wait for a set-up under way; here there is none."""
        return self

    # -- what it undoes ----------------------------------------------------------------------

    def collect(self, step: object) -> None:
        """Add one cleanup; an `Effect` is moved here from wherever it was.

        Args:
            step: A sync or async callable without arguments, an `Effect`, or None for nothing.

        Raises:
            InvalidEffectError: It is no cleanup, belongs to another mount, or comes too late.
        """
        if self.disposed:
            raise InvalidEffectError(
                f"effect {self.label!r} of {self.mount.name!r} is over and takes nothing more"
            )
        self._add(step)

    def _add(self, step: object) -> None:
        if step is None:
            return
        if isinstance(step, Effect):
            step._move_to(self)
            if step.disposed:
                return
        elif not callable(step):
            raise InvalidEffectError(
                f"effect {self.label!r} of {self.mount.name!r} gave {step!r}",
                hint="a body returns or yields a callable, an Effect or None",
            )
        self._cleanups.append(step)

    def _move_to(self, composite: Effect) -> None:
        """Hand ownership to `composite`; both must belong to one mount.

        Args:
            composite: The effect that disposes this one from now on.

        Raises:
            InvalidEffectError: They belong to two mounts.
        """
        if self.mount is not composite.mount:
            raise InvalidEffectError(
                f"effect {self.label!r} of {self.mount.name!r} cannot move into "
                f"{composite.label!r} of {composite.mount.name!r}"
            )
        self._release()
        self._holder = composite

    # -- the end -----------------------------------------------------------------------------

    async def dispose(self) -> None:
        """Undo the registration and wait until that is complete.

        Runs shielded: cancelling the caller does not tear a cleanup apart. Every cleanup runs,
        newest first, whatever the others raise.

        Raises:
            Exception: What the single failing cleanup raised, or an `ExceptionGroup` of several.
            LifecycleDeadlock: The end would wait for this very wait.
        """
        if self.disposed:
            return
        waits = self.mount.app.waits
        if self._disposing:
            with waits.waiting(self):
                await self._wait_disposed()
            return
        with waits.waiting(self, shielded=True):
            self._disposing = True
            errors = await self._run_cleanups()
        raise_all(f"cleanups of {self.label!r} failed", errors)

    def request_dispose(self) -> None:
        """Have the registration undone; returns at once, failures are reported."""

        async def run() -> None:
            try:
                await self.dispose()
            except Exception as error:  # noqa: BLE001 - nobody waits for it
                self.mount.report(error, f"cleanup of {self.label}")

        self.mount.app._start_host(run, self.label, None)

    def dispose_nowait(self) -> None:
        """Undo the registration at once, where every cleanup is synchronous.

        Raises:
            InvalidEffectError: A cleanup or the set-up is asynchronous; use `dispose()`.
        """
        if self._disposing:
            return
        if not self.is_sync:
            raise InvalidEffectError(
                f"effect {self.label!r} of {self.mount.name!r} has an asynchronous cleanup",
                hint="await dispose()",
            )
        self._disposing = True
        errors: list[Exception] = []
        while self._cleanups:
            self._run_cleanup_now(self._cleanups.pop(), errors)
        self._mark_disposed()
        raise_all(f"cleanups of {self.label!r} failed", errors)

    def discard(self) -> None:
        """Forget the effect without running its cleanup: what it undoes is over already."""
        if not self._disposing:
            self._disposing = True
            self._cleanups.clear()
            self._mark_disposed()

    async def _run_cleanups(self) -> list[Exception]:
        errors: list[Exception] = []
        caller = current_work.get()
        # a cleanup that waits for this effect, or for what holds it, is then seen to be a cycle
        outer = current_work.set(self)
        try:
            with anyio.CancelScope(shield=True):
                await self._end_setup(caller, errors)
                while self._cleanups:
                    await self._run_cleanup(self._cleanups.pop(), errors)
        except BaseException:
            # no shield stops an interrupt or a native cancellation: the rest goes on elsewhere
            self.mount.app._start_host(self._run_cleanups_reporting, self.label, None)
            raise
        finally:
            current_work.reset(outer)
        self._mark_disposed()
        return errors

    async def _run_cleanups_reporting(self) -> None:
        for error in await self._run_cleanups():
            self.mount.report(error, f"cleanup of {self.label}")

    async def _end_setup(self, caller: Work | None, errors: list[Exception]) -> None:
        """Wait for a set-up under way, which `caller` may be itself; here there is none."""

    async def _run_cleanup(self, item: Cleanup | Effect, errors: list[Exception]) -> None:
        if isinstance(item, Effect):
            await self._dispose_child(item, errors)
        else:
            await self._run_bounded(item, errors)

    async def _dispose_child(self, child: Effect, errors: list[Exception]) -> None:
        await _collect(child.dispose, errors)
        if not child.disposed:
            # it waits for us: it ends on its own, and its mount still waits for that
            child._move_out()
            child.request_dispose()

    async def _run_bounded(self, cleanup: Cleanup, errors: list[Exception]) -> None:
        """Run one cleanup within the teardown grace; give up what takes longer."""
        grace = math.inf if self.patient else self.mount.app.teardown_grace_s
        with anyio.move_on_after(grace) as scope:
            await _collect(cleanup, errors)
        if scope.cancelled_caught:
            errors.append(
                AbandonedError(
                    f"effect {self.label!r} did not end within {grace:g} s and was given up"
                )
            )

    def _run_cleanup_now(self, item: Cleanup | Effect, errors: list[Exception]) -> None:
        try:
            if isinstance(item, Effect):
                item.dispose_nowait()
                return
            result = item()
            if inspect.isawaitable(result):
                self._run_cleanup_late(cast("Awaitable[object]", result))
                raise InvalidEffectError(
                    f"a cleanup of {self.label!r} turned out to be asynchronous and goes on in "
                    "the background",
                    hint="make it a coroutine function and await dispose()",
                )
        except Exception as error:  # noqa: BLE001 - one failing cleanup strands nothing
            errors.append(error)

    def _run_cleanup_late(self, cleanup: Awaitable[object]) -> None:
        late = Effect(self.mount, self.label)
        late.collect(lambda: cleanup)
        late.request_dispose()

    async def _wait_disposed(self) -> None:
        if self._disposed_event is None:
            self._disposed_event = anyio.Event()
        await self._disposed_event.wait()

    def _mark_disposed(self) -> None:
        self.disposed = True
        self._release()
        if self._disposed_event is not None:
            self._disposed_event.set()

    # -- ownership ---------------------------------------------------------------------------

    def _move_out(self) -> None:
        """Go back from a composite to the mount."""
        self._holder = None
        self.mount._adopt(self)

    def _release(self) -> None:
        if self._holder is None:
            self.mount._forget(self)
        elif self in self._holder._cleanups:
            self._holder._cleanups.remove(self)
        self._holder = None

    def tree(self) -> str:
        """Return the label with the labels of what it holds, one a line."""
        lines = [self.label]
        for child in self.children:
            lines.extend("  " + line for line in child.tree().splitlines())
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"<Effect {self.label!r} of {self.mount.name!r}>"


class BackgroundTask(Effect):
    """A function that runs in a task of its own; the effect is over when it has ended.

    Args:
        mount: The mount it belongs to.
        label: Name for diagnosis.
        fn: What it runs.
    """

    __slots__ = ("host",)

    background = True

    def __init__(self, mount: Mount, label: str, fn: Callable[[], Awaitable[object]]) -> None:
        super().__init__(mount, label)
        self.host = Host(fn)
        self.collect(self.host.stop)

    async def dispose(self) -> None:
        """Cancel the task and wait for its end; a task that ends itself ends at its next await."""
        if current_work.get() is self:
            self.host.cancel()
        else:
            await super().dispose()


class MountEntry(Effect):
    """The parent's effect that stands for a mount; it is over when the mount is."""

    __slots__ = ("_child",)

    def __init__(self, parent: Mount, child: Mount) -> None:
        super().__init__(parent, f"mount {child.name}")
        self._child = child

    @property
    def is_sync(self) -> bool:
        """False: the end of a mount takes a task of its own."""
        return False

    async def dispose(self) -> None:
        """Dispose the mount and wait for its end."""
        await self._child.dispose()

    def request_dispose(self) -> None:
        """Have the mount disposed."""
        self._child.request_dispose()


async def _collect(cleanup: Cleanup, errors: list[Exception]) -> None:
    try:
        result = cleanup()
        if inspect.isawaitable(result):
            await result
    except (Exception, SystemExit) as error:  # noqa: BLE001 - one failing cleanup strands nothing
        errors.append(failure_of(error))


def raise_all(message: str, errors: list[Exception]) -> None:
    """Raise what was collected: nothing, the one error itself, or a group."""
    if len(errors) == 1:
        raise errors[0]
    if errors:
        raise ExceptionGroup(message, errors)
