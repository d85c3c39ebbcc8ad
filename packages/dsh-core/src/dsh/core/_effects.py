"""Effects: reversible registrations, unwound newest first.

An effect belongs to the mount that made it until a composite takes it over by identity. Its
cleanup runs exactly once; every caller of `dispose()` waits for that one run.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import anyio

from dsh.core._tasks import Outcome
from dsh.core.errors import DshError, InvalidEffectError

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
        "_cleanups",
        "_disposing",
        "_done",
        "_holder",
        "_setup",
        "_stopping",
        "_waiters",
        "label",
        "mount",
        "patient",
    )

    def __init__(self, mount: Mount, label: str) -> None:
        self.label = label
        """What this registration is, for diagnosis."""
        self.mount = mount
        self.patient = False
        """Whether a cleanup may take as long as it needs: one that waits for another mount."""
        self._cleanups: list[Cleanup | Effect] = []
        self._holder: Effect | None = None
        self._disposing = False
        self._stopping = False
        self._done = False
        self._setup: Outcome[None] | None = None
        self._waiters: list[anyio.Event] = []

    @property
    def disposed(self) -> bool:
        """Whether the cleanup has finished."""
        return self._done

    @property
    def children(self) -> tuple[Effect, ...]:
        """The effects this composite has taken over, oldest first."""
        return tuple(item for item in self._cleanups if isinstance(item, Effect))

    def __await__(self) -> Generator[Any, Any, Effect]:
        return self._ready().__await__()

    async def _ready(self) -> Effect:
        if self._setup is not None:
            await self._setup.wait()
        return self

    def collect(self, step: object) -> None:
        """Add one cleanup; an `Effect` is moved here from wherever it was."""
        if step is None:
            return
        if isinstance(step, Effect):
            step.move_to(self)
        elif not callable(step):
            raise InvalidEffectError(
                f"effect {self.label!r} of {self.mount.name!r} gave {step!r}",
                hint="a body returns or yields a callable, an Effect or None",
            )
        self._cleanups.append(step)

    def move_to(self, composite: Effect) -> None:
        """Hand ownership to `composite`; both must belong to one mount."""
        if self.mount is not composite.mount:
            raise InvalidEffectError(
                f"effect {self.label!r} of {self.mount.name!r} cannot move into "
                f"{composite.label!r} of {composite.mount.name!r}"
            )
        self._release()
        self._holder = composite

    async def dispose(self) -> None:
        """Undo the registration and wait until that is complete.

        Runs shielded: cancelling the caller does not tear a cleanup apart. Every cleanup runs,
        newest first, whatever the others raise.

        Raises:
            Exception: What the single failing cleanup raised, or an `ExceptionGroup` of several.
        """
        if self._done:
            return
        if self._disposing:
            done = anyio.Event()
            self._waiters.append(done)
            await done.wait()
            return
        self._disposing = True
        self._stopping = True
        errors: list[Exception] = []
        try:
            with anyio.CancelScope(shield=True):
                if self._setup is not None:
                    await self._bounded(self._setup.settle, errors)
                await self._unwind(errors)
        finally:
            self._finish()
        _raise_all(self.label, errors)

    def dispose_nowait(self) -> None:
        """Undo the registration at once, where every cleanup is synchronous.

        Raises:
            InvalidEffectError: A cleanup or the set-up is asynchronous; use `dispose()`.
        """
        if self._disposing:
            return
        if (self._setup is not None and not self._setup.settled) or not self.is_sync:
            raise InvalidEffectError(
                f"effect {self.label!r} of {self.mount.name!r} has an asynchronous cleanup",
                hint="await dispose()",
            )
        self._disposing = True
        errors: list[Exception] = []
        while self._cleanups:
            self._undo_now(self._cleanups.pop(), errors)
        self._finish()
        _raise_all(self.label, errors)

    @property
    def is_sync(self) -> bool:
        """Whether every cleanup collected so far is known to be synchronous."""
        return all(
            item.is_sync if isinstance(item, Effect) else not inspect.iscoroutinefunction(item)
            for item in self._cleanups
        )

    def run_body(self, body: EffectBody) -> None:
        """Run `body` and collect what it gives; asynchronous bodies go on in a host task."""
        try:
            self._take(body())
        except Exception:
            self._roll_back()
            raise

    def _take(self, result: object) -> None:
        if isinstance(result, Effect):
            # an effect is awaitable itself; taken over, not awaited
            self.collect(result)
        elif inspect.isgenerator(result):
            steps = cast("Generator[object, None, object]", result)
            while True:
                try:
                    step = next(steps)
                except StopIteration as stop:
                    self.collect(stop.value)
                    return
                self.collect(step)
        elif inspect.isawaitable(result):
            self._host(self._await_body(cast("Awaitable[object]", result)))
        elif inspect.isasyncgen(result):
            self._host(self._iterate_body(cast("AsyncGenerator[object, None]", result)))
        else:
            self.collect(result)

    def _host(self, setup: Awaitable[None]) -> None:
        outcome: Outcome[None] = Outcome()
        self._setup = outcome

        async def run() -> None:
            try:
                with anyio.CancelScope(shield=True):
                    await setup
            except Exception as error:  # noqa: BLE001 - handed to whoever awaits the effect
                await self._fail_setup(error)
                outcome.fail(error)
            else:
                outcome.succeed(None)

        self.mount.app.start_host(run, self.label, self.mount)

    async def _fail_setup(self, error: Exception) -> None:
        errors: list[Exception] = []
        if not self._disposing:
            self._disposing = True
            await self._unwind(errors)
            self._finish()
        for late in errors:
            error.add_note(f"cleanup of {self.label!r} also failed: {late!r}")

    async def _await_body(self, result: Awaitable[object]) -> None:
        self.collect(await result)

    async def _iterate_body(self, steps: AsyncGenerator[object, None]) -> None:
        try:
            async for step in steps:
                self.collect(step)
                if self._stopping or not self.mount.accepting:
                    break
        finally:
            await steps.aclose()

    async def _unwind(self, errors: list[Exception]) -> None:
        while self._cleanups:
            item = self._cleanups.pop()
            if isinstance(item, Effect):
                await _collect(item.dispose, errors)
            else:
                await self._bounded(item, errors)

    async def _bounded(self, cleanup: Cleanup, errors: list[Exception]) -> None:
        """Run one cleanup within the teardown grace; give up what takes longer."""
        grace = math.inf if self.patient else self.mount.app.teardown_grace_s
        with anyio.move_on_after(grace) as scope:
            await _collect(cleanup, errors)
        if scope.cancelled_caught:
            errors.append(
                AbandonedEffect(
                    f"cleanup of {self.label!r} did not finish within {grace:g} s and was given up"
                )
            )

    def _undo_now(self, item: Cleanup | Effect, errors: list[Exception]) -> None:
        try:
            if isinstance(item, Effect):
                item.dispose_nowait()
            else:
                result = item()
                if inspect.iscoroutine(result):
                    result.close()
                    raise InvalidEffectError(
                        f"a cleanup of {self.label!r} turned out to be asynchronous",
                        hint="make it a coroutine function and await dispose()",
                    )
        except Exception as error:  # noqa: BLE001 - one failing cleanup strands nothing
            errors.append(error)

    def _roll_back(self) -> None:
        """Undo what a failing body had collected, waiting in a host task where needed."""
        if self.is_sync:
            errors: list[Exception] = []
            self._disposing = True
            while self._cleanups:
                self._undo_now(self._cleanups.pop(), errors)
            self._finish()
            for error in errors:
                self.mount.report(error, f"rolling back {self.label}")
            return

        async def unwind() -> None:
            try:
                await self.dispose()
            except Exception as error:  # noqa: BLE001 - reported, the body's error went first
                self.mount.report(error, f"rolling back {self.label}")

        self.mount.app.start_host(unwind, self.label, self.mount)

    def end(self) -> None:
        """Forget the effect without running its cleanup: what it undoes is over already."""
        if not self._disposing:
            self._disposing = True
            self._cleanups.clear()
            self._finish()

    def _finish(self) -> None:
        self._done = True
        self._release()
        for waiter in self._waiters:
            waiter.set()
        self._waiters.clear()

    def _release(self) -> None:
        if self._holder is None:
            self.mount.forget(self)
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


async def _collect(cleanup: Cleanup, errors: list[Exception]) -> None:
    try:
        result = cleanup()
        if inspect.isawaitable(result):
            await result
    except Exception as error:  # noqa: BLE001 - one failing cleanup strands nothing
        errors.append(error)


def _raise_all(label: str, errors: list[Exception]) -> None:
    if len(errors) == 1:
        raise errors[0]
    if errors:
        raise ExceptionGroup(f"cleanups of {label!r} failed", errors)


class AbandonedEffect(DshError):
    """A cleanup did not finish within the teardown grace and was given up."""

    code = "TEARDOWN_TIMEOUT"
