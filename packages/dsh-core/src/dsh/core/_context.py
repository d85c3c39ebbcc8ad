"""Contexts: the handle through which a plugin reads services and registers effects."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from typing_extensions import TypeForm

from dsh.core import _timers
from dsh.core._context_events import EventMethods
from dsh.core._effects import BackgroundTask, Effect
from dsh.core._plugins import PluginLike, function_definition, key_of, service_key
from dsh.core._reading import read
from dsh.core._services import Impl, Predicate, Registration
from dsh.core._tasks import Resident
from dsh.core.errors import AppStateError, InvalidEffectError

if TYPE_CHECKING:
    from dsh.core._mount import Mount
    from dsh.core._scope import Scope

T = TypeVar("T")


class Context(EventMethods):
    """Where a plugin stands: who owns what it registers, and which services it sees.

    Contexts form a tree. A derived context may resolve a service in another realm (`isolate`) or
    belong to a scope (`scope`); everything else it takes from its parent, live.
    """

    __slots__ = ()

    def derive(self, *, owner: Mount | None = None, scope_key: object = None) -> Context:
        """Return a child context, of another mount or in another scope where given.

        Args:
            owner: Mount that owns what is registered through the child; this context's own by
                default.
            scope_key: Scope key of the child; this context's own by default.
        """
        scope = self.scope_key if scope_key is None else scope_key
        return Context(self.app, self, self.owner if owner is None else owner, scope, {})

    def isolate(self, service: Any, label: str | None = None) -> Context:
        """Return a child context that resolves one service in another realm.

        Args:
            service: The class that declared the key, or the key itself.
            label: Name of a realm to share with other contexts; a fresh private one if omitted.
        """
        realms = {key_of(service): object() if label is None else label}
        return Context(self.app, self, self.owner, self.scope_key, realms)

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

        Raises:
            InvalidEffectError: `fn` cannot be called; a coroutine cannot.
        """
        if not callable(fn):
            raise InvalidEffectError(
                f"spawn was given {fn!r}",
                hint="give it the function and its arguments: ctx.spawn(work, 1)",
            )
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
        impl = Impl(service, self.realm_of(key), value, mount, check)
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
        key = key_of(service)
        impl = self.app.services.find(key, self.realm_of(key))
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
        return read(self, service)
