"""Effects: reversible registrations. A composite is undone newest first, a mount by `Mount`.

An effect belongs to the mount that made it until a composite takes it over by identity. Its
cleanup runs exactly once; every caller of `dispose()` waits for that one run.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias, cast

import anyio

from dsh.core._tasks import Host, failure_of
from dsh.core._waits import current_work
from dsh.core.errors import AbandonedError, InvalidEffectError

if TYPE_CHECKING:
    from dsh.core._mount import Mount

Cleanup: TypeAlias = Callable[[], object]
"""A sync or async callable that undoes something."""

Step: TypeAlias = "Cleanup | Effect | None"
EffectBody: TypeAlias = Callable[
    [],
    "Step | Awaitable[Step] | Generator[Step, None, object] | AsyncGenerator[Step, None]",
]


class Effect:
    """One reversible registration, or an ordered group of them.

    Awaiting an effect whose body is asynchronous waits until its set-up is complete and raises
    what the set-up raised.
    """

    __slots__ = (
        "_awaited",
        "_cleanups",
        "_disposing",
        "_holder",
        "_over",
        "_setup",
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
        self._setup: Host | None = None
        self._awaited = 0
        self._over: anyio.Event | None = None

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
        """Whether the set-up is over and every cleanup is known to be synchronous."""
        return (self._setup is None or self._setup.done.settled) and all(
            item.is_sync if isinstance(item, Effect) else not inspect.iscoroutinefunction(item)
            for item in self._cleanups
        )

    # -- set-up ------------------------------------------------------------------------------

    def __await__(self) -> Generator[Any, Any, Effect]:
        return self._ready().__await__()

    async def _ready(self) -> Effect:
        if self._setup is not None:
            self._awaited += 1
            try:
                with self.mount.app.waits.waiting(self, for_end=False):
                    await self._setup.done.wait()
            finally:
                self._awaited -= 1
        return self

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

    def _run_body(self, body: EffectBody) -> None:
        """Run `body` and collect what it gives; asynchronous bodies go on in a host task."""
        try:
            self._take(body())
        except Exception:
            self._roll_back()
            raise

    def _take(self, result: object) -> None:
        if isinstance(result, Effect):
            # an effect is awaitable itself; taken over, not awaited
            self._add(result)
        elif inspect.isgenerator(result):
            self._iterate(cast("Generator[object, None, object]", result))
        elif inspect.isawaitable(result):
            self._host(self._await_body(cast("Awaitable[object]", result)))
        elif inspect.isasyncgen(result):
            self._host(self._iterate_body(cast("AsyncGenerator[object, None]", result)))
        else:
            self._add(result)

    def _iterate(self, steps: Generator[object, None, object]) -> None:
        try:
            while True:
                self._add(next(steps))
        except StopIteration as stop:
            self._add(stop.value)
        finally:
            steps.close()

    async def _await_body(self, result: Awaitable[object]) -> None:
        self._add(await result)

    async def _iterate_body(self, steps: AsyncGenerator[object, None]) -> None:
        try:
            async for step in steps:
                self._add(step)
                if self._disposing or not self.mount.accepting:
                    break
        finally:
            await steps.aclose()

    def _host(self, setup: Awaitable[None]) -> None:
        async def run() -> None:
            try:
                await setup
            except Exception as error:
                await self._fail_setup(error)
                raise
            finally:
                if self.disposed:
                    # given up meanwhile: what came too late is undone at once
                    await self._undo_reporting()

        self._setup = Host(run)
        self.mount.app._start_host(self._setup.run, self.label, self)

    async def _fail_setup(self, error: Exception) -> None:
        if not self._awaited:
            self.mount.report(error, f"set-up of {self.label}")
        if not self._disposing:
            self._disposing = True
            await self._undo_reporting()

    def _roll_back(self) -> None:
        """Undo what a failing body had collected, waiting in a host task where needed."""
        if not self.is_sync:
            self.request_dispose()
            return
        try:
            self.dispose_nowait()
        except Exception as error:  # noqa: BLE001 - reported, the body's error went first
            self.mount.report(error, f"rolling back {self.label}")

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
            errors = await self._undo()
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
            self._undo_now(self._cleanups.pop(), errors)
        self._mark_disposed()
        raise_all(f"cleanups of {self.label!r} failed", errors)

    def end(self) -> None:
        """Forget the effect without running its cleanup: what it undoes is over already."""
        if not self._disposing:
            self._disposing = True
            self._cleanups.clear()
            self._mark_disposed()

    async def _undo(self) -> list[Exception]:
        errors: list[Exception] = []
        # a failing set-up undoes itself, and cannot wait for itself
        inside = current_work.get() is self
        # a cleanup that waits for this effect, or for what holds it, is then seen to be a cycle
        outer = current_work.set(self)
        try:
            with anyio.CancelScope(shield=True):
                if self._setup is not None and not inside:
                    await self._bounded(self._setup.done.settle, errors)
                    self._setup.cancel()
                await self._undo_parts(errors)
        except BaseException:
            # no shield stops an interrupt or a native cancellation: the rest goes on elsewhere
            self.mount.app._start_host(self._undo_reporting, self.label, None)
            raise
        finally:
            current_work.reset(outer)
        self._mark_disposed()
        return errors

    async def _undo_reporting(self) -> None:
        for error in await self._undo():
            self.mount.report(error, f"cleanup of {self.label}")

    async def _undo_parts(self, errors: list[Exception]) -> None:
        while self._cleanups:
            item = self._cleanups.pop()
            if isinstance(item, Effect):
                await self._dispose_child(item, errors)
            else:
                await self._bounded(item, errors)

    async def _dispose_child(self, child: Effect, errors: list[Exception]) -> None:
        await _collect(child.dispose, errors)
        if not child.disposed:
            # it waits for us: it ends on its own, and its mount still waits for that
            child._move_out()
            child.request_dispose()

    async def _bounded(self, cleanup: Cleanup, errors: list[Exception]) -> None:
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

    def _undo_now(self, item: Cleanup | Effect, errors: list[Exception]) -> None:
        try:
            if isinstance(item, Effect):
                item.dispose_nowait()
                return
            result = item()
            if inspect.isawaitable(result):
                self._finish_late(cast("Awaitable[object]", result))
                raise InvalidEffectError(
                    f"a cleanup of {self.label!r} turned out to be asynchronous and goes on in "
                    "the background",
                    hint="make it a coroutine function and await dispose()",
                )
        except Exception as error:  # noqa: BLE001 - one failing cleanup strands nothing
            errors.append(error)

    def _finish_late(self, cleanup: Awaitable[object]) -> None:
        late = Effect(self.mount, self.label)
        late.collect(lambda: cleanup)
        late.request_dispose()

    async def _wait_disposed(self) -> None:
        if self._over is None:
            self._over = anyio.Event()
        await self._over.wait()

    def _mark_disposed(self) -> None:
        self.disposed = True
        self._release()
        if self._over is not None:
            self._over.set()

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
