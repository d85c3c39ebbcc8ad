"""Contexts: the handle through which a plugin reads services and registers effects."""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from anyio.streams.memory import MemoryObjectReceiveStream
from typing_extensions import TypeForm

from dsh.core import _dispatch, _timers
from dsh.core._channels import listen
from dsh.core._effect_bodies import BodyEffect, EffectBody
from dsh.core._effects import BackgroundTask, Cleanup, Effect
from dsh.core._events import (
    Emit,
    Event,
    Next,
    NextStream,
    Parallel,
    Serial,
    StreamWaterfall,
    Waterfall,
)
from dsh.core._plugins import PluginLike, function_definition, service_key
from dsh.core._services import Impl, Label, Predicate, Registration, type_name
from dsh.core._subscribe import subscribe
from dsh.core._tasks import Resident
from dsh.core.errors import AppStateError, MissingServiceError

if TYPE_CHECKING:
    from dsh.core._app import App
    from dsh.core._mount import Mount
    from dsh.core._scope import Scope

T = TypeVar("T")
R = TypeVar("R")
EmitT = TypeVar("EmitT", bound=Emit)
ParallelT = TypeVar("ParallelT", bound=Parallel)
StreamT = TypeVar("StreamT", bound="StreamWaterfall[Any]")
WaterfallT = TypeVar("WaterfallT", bound="Waterfall[Any]")

Audience = Literal["scoped", "all"]


class Context:
    """Where a plugin stands: who owns what it registers, and which services it sees.

    Contexts form a tree. A derived context may resolve a service in another realm (`isolate`) or
    belong to a scope (`scope`); everything else it takes from its parent, live.
    """

    __slots__ = ("__weakref__", "_labels", "app", "isolated", "owner", "parent", "tag")

    def __init__(
        self, app: App, parent: Context | None, owner: Mount, tag: object, labels: dict[str, Label]
    ) -> None:
        self.app = app
        self.parent = parent
        self.owner = owner
        """The mount that owns what is registered through this context."""
        self.tag = tag
        self._labels = labels
        self.isolated: bool = bool(labels) or (parent is not None and parent.isolated)
        """Whether any service resolves in another realm than the root's."""

    def derive(self, *, owner: Mount | None = None, tag: object = None) -> Context:
        """Return a child context, of another mount or in another scope where given.

        Args:
            owner: Mount that owns what is registered through the child; this context's own by
                default.
            tag: Scope key of the child; this context's own by default.
        """
        scope = self.tag if tag is None else tag
        return Context(self.app, self, self.owner if owner is None else owner, scope, {})

    def isolate(self, service: Any, label: str | None = None) -> Context:
        """Return a child context that resolves one service in another realm.

        Args:
            service: The class that declared the key, or the key itself.
            label: Name of a realm to share with other contexts; a fresh private one if omitted.
        """
        labels = {_key(service): object() if label is None else label}
        return Context(self.app, self, self.owner, self.tag, labels)

    def label(self, key: str) -> Label:
        """Return the realm in which this context resolves `key`; None is the root realm."""
        # most contexts are in the root realm throughout; they answer without a walk
        node: Context | None = self if self.isolated else None
        while node is not None:
            if key in node._labels:
                return node._labels[key]
            node = node.parent
        return None

    # -- plugins and effects -----------------------------------------------------------------

    def mount(self, plugin: PluginLike, config: object = None) -> Mount:
        """Start an instance of a plugin, owned by this context's owner; returns at once.

        Args:
            plugin: A `Plugin` class, or a function or async generator taking `(ctx, config)`.
            config: A mapping, or an instance of the plugin's `Config`.

        Returns:
            The mount, not loaded yet; `await mount.settled()` waits for its start.

        Raises:
            InvalidPluginError: The object is no plugin.
            InactiveContextError: The owner is unloading, failed or disposed.
        """
        return self.app._mount_at(self, plugin, config)

    def when(
        self, services: tuple[Any, ...], body: Callable[[Context], object], *, name: str = "when"
    ) -> Mount:
        """Run `body` while all of `services` are there; undo what it registered when one goes.

        Args:
            services: The classes that declared the keys, or the keys.
            body: A sync or async function of its own context, or an async generator with one
                `yield`.
            name: Name for diagnosis.

        Returns:
            The mount that stands for the body; disposing it ends both.
        """
        definition = function_definition(lambda ctx, _: body(ctx), name, services, None)
        return self.app._mount_at(self, definition, None)

    def defer(self, fn: Cleanup, label: str | None = None) -> Effect:
        """Register a sync or async callable to run when the owner is unloaded.

        Args:
            fn: The cleanup, without arguments.
            label: Name for diagnosis; made from the name of `fn` by default.

        Returns:
            The registration; disposing it runs `fn` now.
        """
        effect = self._new_effect(label or f"defer {getattr(fn, '__name__', 'cleanup')}")
        effect.collect(fn)
        self.owner._adopt(effect)
        return effect

    def effect(self, body: EffectBody, label: str = "effect") -> Effect:
        """Run `body` and register what it gives as one reversible effect.

        A body returns a cleanup, an `Effect` or nothing, or yields several; asynchronous bodies go
        on in a task of the kernel, and awaiting the effect waits for them.

        Args:
            body: A function without arguments; see above.
            label: Name for diagnosis.

        Returns:
            The effect. Disposing it runs the cleanups, newest first.

        Raises:
            InactiveContextError: The owner is unloading, failed or disposed.
            InvalidEffectError: The body gave something that is no cleanup.
        """
        self.owner.check_accepting(label)
        effect = BodyEffect(self.owner, label)
        # owned before its body runs: an unload that begins in there must see it
        self.owner._adopt(effect)
        effect.run(body)
        return effect

    async def enter(self, manager: AbstractAsyncContextManager[T], label: str | None = None) -> T:
        """Enter an async context manager in a task of its own; it is left at unload.

        Cancelling the call cancels the entering, or leaves what has just been entered.

        Args:
            manager: The context manager, not entered yet.
            label: Name for diagnosis; made from its type by default.

        Returns:
            What entering gave.

        Raises:
            Exception: What entering raised.
        """
        effect = self._new_effect(label or f"enter {type(manager).__name__}")
        resident = Resident(self.owner, manager)
        effect.collect(resident.leave)

        async def run() -> None:
            await resident.run()
            effect.discard()

        self._run(effect, run)
        try:
            with self.app.waits.waiting(effect, for_end=False):
                return await resident.entered.wait()
        except BaseException:
            resident.abandon()
            raise

    def spawn(
        self,
        fn: Callable[..., Awaitable[object]],
        *args: object,
        label: str | None = None,
        on_error: Literal["report", "fail"] = "report",
    ) -> Effect:
        """Run `fn(*args)` in the background; disposing the effect cancels it and waits.

        Args:
            fn: An async function.
            args: Its arguments.
            label: Name for diagnosis.
            on_error: What an exception does: it is reported, or the plugin also fails.

        Returns:
            The effect that stands for the task; it ends with it.
        """
        label = label or f"spawn {getattr(fn, '__name__', 'task')}"
        self.owner.check_accepting(label)
        effect = BackgroundTask(self.owner, label, lambda: fn(*args))

        async def run() -> None:
            await effect.host.run()
            effect.discard()
            error = effect.host.done.error
            if error is not None and on_error == "fail":
                self.owner._fail(error, effect.label)
            elif error is not None:
                self.owner.report(error, effect.label)

        self._run(effect, run)
        return effect

    def on_update(self, hook: Callable[[Any, Callable[[], Any]], Awaitable[None]]) -> Effect:
        """Register `async hook(config, next)`, consulted before an update restarts the plugin.

        Not calling `next` means the configuration was applied live.

        Args:
            hook: Told the new configuration, already validated, and `next`, which goes on to the
                next hook and finally to the restart.

        Returns:
            The registration.
        """
        hooks = self.owner.update_hooks
        effect = self.defer(lambda: hooks.remove(hook), "update hook")
        hooks.append(hook)
        return effect

    async def stopping(self) -> None:
        """Wait until the owner is to be unloaded.

        A start is never interrupted; a slow one may watch this and leave early.
        """
        await self.owner.stopping()

    def timeout(self, seconds: float, fn: Callable[[], object]) -> Effect:
        """Call `fn` (sync or async) once after `seconds`.

        Args:
            seconds: How long to wait.
            fn: What to call; a failure is reported.

        Returns:
            The timer; disposing it cancels the call.
        """
        return _timers.timeout(self, seconds, fn)

    def interval(self, seconds: float, fn: Callable[[], object]) -> Effect:
        """Call `fn` (sync or async) every `seconds`, never two at a time.

        Args:
            seconds: Time from the end of one call to the next; the first comes after it too.
            fn: What to call; a failure is reported and the calls go on.

        Returns:
            The timer; disposing it ends the calls.
        """
        return _timers.interval(self, seconds, fn)

    def debounce(self, seconds: float, fn: Callable[[], object]) -> Callable[[], None]:
        """Return a trigger that calls `fn` once `seconds` after its last use.

        Args:
            seconds: How long no further use may come.
            fn: What to call, sync or async; a failure is reported.
        """
        return _timers.debounce(self, seconds, fn)

    def throttle(self, seconds: float, fn: Callable[[], object]) -> Callable[[], None]:
        """Return a trigger that calls `fn` at once, then at most once per `seconds`.

        Args:
            seconds: Least time between two calls.
            fn: What to call, sync or async; a failure is reported.
        """
        return _timers.throttle(self, seconds, fn)

    def report(self, error: BaseException, where: str) -> None:
        """Report a contained failure once, under the owner's name.

        Args:
            error: What was raised.
            where: What the code was doing, for the log.
        """
        self.owner.report(error, where)

    def scope(self, key: object, parent: object | None = None) -> Scope:
        """Open a scope: a context whose registrations are seen for `key` alone.

        Args:
            key: Identity of the scope, compared by identity; an agent, usually.
            parent: Key of a scope whose registrations this one inherits.

        Returns:
            The scope; its `ctx` is what its members register through.

        Raises:
            ScopeError: The key is not usable, or the parent link would form a cycle.
        """
        return self.app._open_scope(self, key, parent)

    def _new_effect(self, label: str) -> Effect:
        self.owner.check_accepting(label)
        return Effect(self.owner, label)

    def _run(self, effect: Effect, fn: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Own `effect`, and run the task that ends it."""
        self.owner._adopt(effect)
        try:
            self.app._start_host(fn, effect.label, effect)
        except AppStateError:
            effect.discard()
            raise

    # -- services ----------------------------------------------------------------------------

    def provide(
        self, service: Any, value: object, *, check: Predicate | None = None
    ) -> Registration:
        """Provide `value` under the key of `service`, visible while the owner is active.

        Args:
            service: The class that declared the key.
            value: An instance of it.
            check: Told the consumer's context, says whether the service is available to it.

        Returns:
            The handle that replaces the value or, disposed, withdraws the service.

        Raises:
            TypeError: `value` is no instance of `service`.
            ServiceConflictError: The key has a provider in this realm.
            InactiveContextError: The owner is unloading, failed or disposed.
        """
        mount = self.owner
        key = service_key(service)
        mount.check_accepting(f"service {key!r}")
        impl = Impl(service, self.label(key), value, mount, check)
        self.app.services.add(impl)
        registration = Registration(mount, impl)
        mount._adopt(registration)
        mount.impls.append(registration)
        if mount._provides_now:
            registration.notify()
        return registration

    @overload
    def get(self, service: str, *, strict: bool = True) -> Any: ...
    @overload
    def get(self, service: TypeForm[T], *, strict: bool = True) -> T | None: ...
    def get(self, service: Any, *, strict: bool = True) -> Any:
        """Return a service or None; needs no `inject` and never raises.

        Args:
            service: The class that declared the key, or the key itself.
            strict: Only a provider that has finished its start counts.
        """
        key = _key(service)
        impl = self.app.services.find(key, self.label(key))
        if impl is None or (strict and not impl.mount._provides_now):
            return None
        return impl.value

    @overload
    def __getitem__(self, service: str) -> Any: ...
    @overload
    def __getitem__(self, service: TypeForm[T]) -> T: ...
    def __getitem__(self, service: Any) -> Any:
        """Return a service this plugin injects or provides, or inherits from its ancestors.

        Raises:
            MissingServiceError: It is not declared, or injected and not active.
        """
        key = _key(service)
        mount: Mount | None = self.owner
        label = self.label(key)
        while mount is not None:
            # 1. what a mount, or one it was mounted below, injects or provides itself
            impl = mount._readable(key, label)
            if impl is not None:
                return impl.value
            if mount.injects(key) and mount.ctx.label(key) == label:
                raise self._missing(key, "inactive", service)
            parent = mount.parent
            if parent is not None and parent.ctx.label(key) != mount.ctx.label(key):
                break  # 2. no further up than the border of the realm
            mount = parent
        impl = self.app.services.find(key, label)
        if impl is not None and impl.mount is self.app.root:
            return impl.value  # 3. what the root provides in that realm
        # the root declares nothing and may read everything
        raise self._missing(
            key, "inactive" if self.owner is self.app.root else "undeclared", service
        )

    def _missing(
        self, key: str, reason: Literal["undeclared", "inactive"], service: Any
    ) -> MissingServiceError:
        return MissingServiceError(key, self.owner.name, reason, type_name(service))

    # -- events ------------------------------------------------------------------------------

    @overload
    def on(
        self,
        event: type[EmitT],
        fn: Callable[[EmitT], None],
        *,
        prepend: bool = False,
        audience: Audience = "scoped",
    ) -> Effect: ...
    @overload
    def on(
        self,
        event: type[ParallelT],
        fn: Callable[[ParallelT], Awaitable[None]],
        *,
        prepend: bool = False,
        audience: Audience = "scoped",
    ) -> Effect: ...
    @overload
    def on(
        self,
        event: type[Serial[R]],
        fn: Callable[[Any], Awaitable[R | None]],
        *,
        prepend: bool = False,
        audience: Audience = "scoped",
    ) -> Effect: ...
    @overload
    def on(
        self,
        event: type[Waterfall[R]],
        fn: Callable[[Any, Next[R]], Awaitable[R]],
        *,
        prepend: bool = False,
        audience: Audience = "scoped",
    ) -> Effect: ...
    @overload
    def on(
        self,
        event: type[StreamWaterfall[T]],
        fn: Callable[[Any, NextStream[T]], AsyncGenerator[T, None]],
        *,
        prepend: bool = False,
        audience: Audience = "scoped",
    ) -> Effect: ...
    def on(
        self,
        event: type[Event],
        fn: Callable[..., Any],
        *,
        prepend: bool = False,
        audience: Audience = "scoped",
    ) -> Effect:
        """Listen to an event for as long as the owner is loaded.

        Args:
            event: The event class; its base is the mode.
            fn: The listener, in the shape that mode asks for.
            prepend: Be first, which in a waterfall is outermost.
            audience: `all` also hears dispatches about other scopes.

        Returns:
            The registration; disposing it ends the listening.

        Raises:
            EventModeError: The function does not suit the mode.
            InactiveContextError: The owner is unloading, failed or disposed.
        """
        return listen(self, event, fn, prepend, audience, once=False)

    def once(
        self,
        event: type[Event],
        fn: Callable[..., Any],
        *,
        prepend: bool = False,
        audience: Audience = "scoped",
    ) -> Effect:
        """Listen to the next dispatch only; removed before the listener runs.

        Args:
            event: The event class; its base is the mode.
            fn: The listener, in the shape that mode asks for.
            prepend: Be first, which in a waterfall is outermost.
            audience: As for `on`.

        Returns:
            The registration; disposing it before the dispatch ends the listening.

        Raises:
            EventModeError: The function does not suit the mode.
            InactiveContextError: The owner is unloading, failed or disposed.
        """
        return listen(self, event, fn, prepend, audience, once=True)

    def subscribe(
        self, event: type[EmitT], buffer: float = math.inf, *, audience: Audience = "scoped"
    ) -> MemoryObjectReceiveStream[EmitT]:
        """Return a stream of the event, for observers that must await.

        It ends with the owner. Closing it unsubscribes; like every stream of anyio it wants to be
        closed, `with ctx.subscribe(...) as events`.

        Args:
            event: An `Emit` event class.
            buffer: How many events may wait; further ones are dropped, and the first of a run of
                drops is reported.
            audience: As for `on`.
        """
        return subscribe(self, event, buffer, audience)

    def emit(self, event: Emit) -> None:
        """Tell every listener, in order.

        Args:
            event: The event; its class says whether a listener that raises reaches the caller.
        """
        _dispatch.emit(self, event)

    async def parallel(self, event: Parallel) -> None:
        """Run every listener concurrently and wait for all.

        Args:
            event: The event.

        Raises:
            ExceptionGroup: Every failure, always as a group.
        """
        await _dispatch.parallel(self, event)

    async def serial(self, event: Serial[R]) -> R | None:
        """Ask listeners one by one; the first result that is not None wins.

        Args:
            event: The event.

        Returns:
            That result, or None when no listener gave one.
        """
        return await _dispatch.serial(self, event)

    async def waterfall(self, event: Waterfall[R], default: Callable[[Any], Awaitable[R]]) -> R:
        """Run listeners around `default`, the first registered outermost.

        Args:
            event: The event.
            default: The innermost behaviour, given the event that reached it.

        Returns:
            What the outermost listener returned, or the default without any.
        """
        return await _dispatch.waterfall(self, event, default)

    def stream(
        self, event: StreamWaterfall[T], default: Callable[[Any], AsyncGenerator[T, None]]
    ) -> AsyncGenerator[T, None]:
        """Run listeners around a stream; closing the result closes every inner stream.

        Args:
            event: The event.
            default: The innermost stream, given the event that reached it.

        Returns:
            The outermost stream, not begun; consume it inside `aclosing`.
        """
        return _dispatch.stream(self, event, default)

    def __repr__(self) -> str:
        return f"<Context of {self.owner.name!r}>"


def _key(service: Any) -> str:
    return service if isinstance(service, str) else service_key(service)
