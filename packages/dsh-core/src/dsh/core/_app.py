"""The app: the root of the context tree and the owner of every task."""

from __future__ import annotations

import contextvars
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, overload

import anyio
from anyio.abc import TaskGroup
from typing_extensions import TypeForm

from dsh.core._audience import Channel
from dsh.core._context import Context
from dsh.core._effects import Effect, MountEntry
from dsh.core._events import Event
from dsh.core._lifecycle import MountState
from dsh.core._logging import Failure, log_failure
from dsh.core._mount import Mount
from dsh.core._observers import Observers
from dsh.core._plugins import PluginDef, PluginLike, definition_of
from dsh.core._scope import Scope, bind_parent, check_key, unbind_parent
from dsh.core._services import ServiceTable
from dsh.core._waits import WaitGraph, Work, current_work
from dsh.core.errors import AppStateError

if TYPE_CHECKING:
    from dsh.core._explain import Explanation

T = TypeVar("T")

DispatchObserver = Callable[[Event, object, str], None]
MountObserver = Callable[[Mount], None]
StatusObserver = Callable[[Mount, MountState], None]
FailureObserver = Callable[[Failure], None]

_ROOT = PluginDef(target=None, name="root", config_model=None, injects={})
_SCOPE = PluginDef(target=None, name="scope", config_model=None, injects={})


class App:
    """One running composition of plugins.

    Enter and leave it in one task: `async with App() as app`. Leaving disposes everything, newest
    first, and waits for it.

    Args:
        teardown_grace_s: Seconds one cleanup may take before it is reported and given up.
        close_grace_s: Seconds that plugins still starting get when the app is closed.
    """

    def __init__(self, *, teardown_grace_s: float = 30.0, close_grace_s: float = 5.0) -> None:
        self.teardown_grace_s = teardown_grace_s
        self.close_grace_s = close_grace_s
        self.services = ServiceTable()
        self.waits = WaitGraph()
        self._dispatch_observers: Observers[DispatchObserver] = Observers("on_dispatch")
        self._mount_observers: Observers[MountObserver] = Observers("on_mount")
        self._retired_observers: Observers[MountObserver] = Observers("on_retired")
        self._status_observers: Observers[StatusObserver] = Observers("on_status")
        self._failure_observers: Observers[FailureObserver] = Observers("on_error")
        self.channels: dict[type[Event], Channel] = {}
        """Every event class that was listened to or dispatched here."""
        self._scopes: dict[object, int] = {}
        self._mounts: dict[Mount, None] = {}
        self._tasks: TaskGroup | None = None
        self._base: contextvars.Context = contextvars.Context()
        self._token = 0
        self.root = Mount(self, _ROOT, None, None, None)
        """The mount everything else is mounted below."""
        self.root._lifecycle.start_active()

    # -- entering and leaving ----------------------------------------------------------------

    async def __aenter__(self) -> Self:
        if self._tasks is not None or self.root.ending:
            raise AppStateError(
                "this app has been entered already",
                code=AppStateError.ENTERED,
                hint="make another App",
            )
        self._base = contextvars.copy_context()
        self._tasks = anyio.create_task_group()
        await self._tasks.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        tasks = self._tasks
        if tasks is None:
            return
        try:
            # also where the task is cancelled, plugins are undone in order
            with anyio.CancelScope(shield=True):
                await self._close(at_once=error is not None)
        finally:
            tasks.cancel_scope.cancel()
            try:
                # the body's error is ours to pass on, not the task group's to wrap
                await tasks.__aexit__(None, None, None)
            finally:
                self._tasks = None

    async def _close(self, *, at_once: bool) -> None:
        self.root.request_dispose()
        if not at_once:
            with anyio.move_on_after(self.close_grace_s):
                await self.root.wait_state(MountState.DISPOSED)
        while True:
            for mount in tuple(self._mounts):
                mount._lifecycle.interrupt_body()
            # in turns: what goes away may have something else start, which is given up as well
            with anyio.move_on_after(1):
                await self.root.wait_state(MountState.DISPOSED)
                return
            # an interrupt may have killed drivers, and nobody else does what they left
            for mount in (self.root, *self._mounts):
                mount._lifecycle.rouse()

    async def reset(self) -> None:
        """Dispose everything mounted or registered at the root; the app stays usable."""
        await self.root._unwind()

    # -- the root context --------------------------------------------------------------------

    @property
    def ctx(self) -> Context:
        """The root context."""
        return self.root.ctx

    def mount(self, plugin: PluginLike, config: object = None) -> Mount:
        """Start an instance of a plugin at the root; see `Context.mount`.

        Args:
            plugin: A `Plugin` class, or a function or async generator taking `(ctx, config)`.
            config: A mapping, or an instance of the plugin's `Config`.

        Returns:
            The mount, not loaded yet; `await mount.settled()` waits for its start.
        """
        return self._mount_at(self.ctx, plugin, config)

    @overload
    def get(self, service: str, *, strict: bool = True) -> Any: ...
    @overload
    def get(self, service: TypeForm[T], *, strict: bool = True) -> T | None: ...
    def get(self, service: Any, *, strict: bool = True) -> Any:
        """Return a service or None; see `Context.get`.

        Args:
            service: The class that declared the key, or the key itself.
            strict: Only a provider that has finished its start counts.
        """
        return self.ctx.get(service, strict=strict)

    @overload
    def __getitem__(self, service: str) -> Any: ...
    @overload
    def __getitem__(self, service: TypeForm[T]) -> T: ...
    def __getitem__(self, service: Any) -> Any:
        """Return an active service.

        Raises:
            MissingServiceError: There is none.
        """
        value = self.ctx.get(service)
        return self.ctx[service] if value is None else value

    def explain(self) -> Explanation:
        """Say of every mount what it is doing, and why what is not active is not.

        Returns:
            The state of every mount, the cycles and the waits; `str()` of it is for people.
        """
        from dsh.core._explain import explain

        return explain(self)

    # -- observers ---------------------------------------------------------------------------

    @property
    def observers(self) -> tuple[DispatchObserver, ...]:
        """Who sees every dispatch before its listeners, oldest first."""
        return self._dispatch_observers.fns

    def on_dispatch(self, ctx: Context, fn: DispatchObserver) -> Effect:
        """Have `fn(event, key, mode)` see every dispatch before its listeners; a raise vetoes.

        Args:
            ctx: Owner of the observer.
            fn: Told the event, its scope key or None, and the name of its mode.

        Returns:
            The registration.
        """
        return self._dispatch_observers.add(ctx, fn)

    def on_error(self, ctx: Context, fn: FailureObserver) -> Effect:
        """Have `fn(failure)` see every contained failure, after it was logged.

        Args:
            ctx: Owner of the observer.
            fn: Told each failure.

        Returns:
            The registration.
        """
        return self._failure_observers.add(ctx, fn)

    def on_mount(self, ctx: Context, fn: MountObserver) -> Effect:
        """Have `fn(mount)` see each new mount before its dependencies are looked at.

        A raise undoes the mount and escapes to whoever mounted it.

        Args:
            ctx: Owner of the observer.
            fn: Told each mount.

        Returns:
            The registration.
        """
        return self._mount_observers.add(ctx, fn)

    def on_retired(self, ctx: Context, fn: MountObserver) -> Effect:
        """Have `fn(mount)` see each mount whose disposal begins.

        Args:
            ctx: Owner of the observer.
            fn: Told each mount.

        Returns:
            The registration.
        """
        return self._retired_observers.add(ctx, fn)

    def on_status(self, ctx: Context, fn: StatusObserver) -> Effect:
        """Have `fn(mount, previous_state)` see each change of state.

        Args:
            ctx: Owner of the observer.
            fn: Told the mount and the state it had before.

        Returns:
            The registration.
        """
        return self._status_observers.add(ctx, fn)

    def report(self, failure: Failure) -> None:
        """Log a contained failure once and tell the observers.

        Args:
            failure: What failed, and whose code it was.
        """
        log_failure(failure)
        for fn in self._failure_observers.fns:
            try:
                fn(failure)
            except Exception as error:  # noqa: BLE001 - reporting must not fail
                log_failure(Failure("root", "on_error observer", error))

    # -- kernel internals --------------------------------------------------------------------

    @property
    def mounts(self) -> tuple[Mount, ...]:
        """Every mount that is not disposed, scopes included, oldest first."""
        return tuple(self._mounts)

    def _next_token(self) -> int:
        """Return a number no registration had before."""
        self._token += 1
        return self._token

    def channel(self, event: type[Event]) -> Channel:
        """Return the listeners of an event class, an empty channel if there are none yet.

        Args:
            event: The event class.
        """
        channel = self.channels.get(event)
        if channel is None:
            channel = self.channels[event] = Channel(event)
        return channel

    def _start_host(
        self, fn: Callable[[], Coroutine[Any, Any, object]], name: str, work: Work | None
    ) -> None:
        """Run `fn`, which must not raise, as a task with the app's own context variables.

        `work` is what cannot end before the task has, for wait-cycle detection.
        """
        tasks = self._running()
        context = self._base.copy()
        context.run(current_work.set, work)

        def start() -> None:
            tasks.start_soon(fn, name=name)

        context.run(start)

    def _running(self) -> TaskGroup:
        if self._tasks is None:
            raise AppStateError("this app is not running", hint="use `async with App()`")
        return self._tasks

    def _mount_at(self, origin: Context, plugin: PluginLike | PluginDef, config: object) -> Mount:
        """Mount below the owner of `origin`, whose realms and scope the mount takes over."""
        self._running()
        owner = origin.owner
        definition = plugin if isinstance(plugin, PluginDef) else definition_of(plugin)
        owner.check_accepting(f"plugin {definition.name!r}")
        mount = Mount(self, definition, owner, origin, config)
        self._own(owner, mount)
        for key in mount.required:
            self.services.depend(mount, key)
        self._publish(mount)
        if not mount.ending:
            mount._lifecycle.refresh()
        return mount

    def _own(self, owner: Mount, mount: Mount) -> Effect:
        effect = MountEntry(owner, mount)
        owner._adopt(effect)
        mount.entry = effect
        self._mounts[mount] = None
        return effect

    def _publish(self, mount: Mount) -> None:
        for fn in self._mount_observers.fns:
            try:
                fn(mount)
            except Exception:
                mount.request_dispose()
                raise

    def _mount_retired(self, mount: Mount) -> None:
        """Tell observers that a mount's disposal begins."""
        self._tell(self._retired_observers, mount)

    def _mount_changed(self, mount: Mount, previous: MountState) -> None:
        """Tell observers of a change of state."""
        self._tell(self._status_observers, mount, previous)

    def _mount_gone(self, mount: Mount) -> None:
        """Forget a disposed mount."""
        self._mounts.pop(mount, None)
        if mount.entry is not None:
            mount.entry.discard()

    def _tell(self, observers: Observers[Any], *args: object) -> None:
        for fn in observers.fns:
            try:
                fn(*args)
            except Exception as error:  # noqa: BLE001 - observers never steer the lifecycle
                self.report(Failure("root", f"{observers.label} observer", error))

    # -- scopes ------------------------------------------------------------------------------

    def _open_scope(self, origin: Context, key: object, parent: object | None) -> Scope:
        """Open a scope below the owner of `origin`; see `Context.scope`."""
        check_key(key)
        origin.owner.check_accepting("a scope")
        if parent is not None:
            check_key(parent)
            self._link_scope(key, parent)
        place = origin.derive(scope_key=key)
        mount = Mount(self, _SCOPE, origin.owner, place, None)
        mount._lifecycle.start_active()
        effect = self._own(origin.owner, mount)
        self._scopes[key] = self._scopes.get(key, 0) + 1
        mount.ctx.defer(lambda: self._close_scope(key), "scope")
        return Scope(mount.ctx, mount, effect, key)

    def _link_scope(self, key: object, parent: object, *, again: bool = False) -> None:
        """Put a scope below another one; who hears what may change by that."""
        bind_parent(key, parent, again=again)
        self._forget_audiences()

    def _close_scope(self, key: object) -> None:
        self._scopes[key] -= 1
        if self._scopes[key] == 0:
            del self._scopes[key]
            unbind_parent(key)
            self._forget_audiences()

    def _forget_audiences(self) -> None:
        for channel in self.channels.values():
            channel.forget()

    def has_scope(self, key: object) -> bool:
        """Whether a scope of `key` is open."""
        return key in self._scopes
