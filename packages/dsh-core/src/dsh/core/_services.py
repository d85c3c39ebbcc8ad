"""Service registrations: who provides which key, in which realm, and who depends on it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from dsh.core._effects import Effect
from dsh.core._plugins import service_key
from dsh.core.errors import ServiceConflictError, ServiceOwnershipError

if TYPE_CHECKING:
    from dsh.core._context import Context
    from dsh.core._mount import Mount

Realm: TypeAlias = object
"""Identity of a realm; `None` is the root's."""

Predicate: TypeAlias = "Callable[[Context], bool]"


class Impl:
    """One provided value. The token is unique per registration, so a re-provide is a change."""

    __slots__ = (
        "check",
        "interface",
        "key",
        "mount",
        "origin",
        "realm",
        "token",
        "value",
        "withdrawn",
    )

    def __init__(
        self,
        interface: type[Any],
        realm: Realm,
        value: object,
        mount: Mount,
        check: Predicate | None,
    ) -> None:
        self.interface = interface
        self.key = service_key(interface)
        self.realm = realm
        self.mount = mount
        self.check = check
        self.value = self.checked(value)
        self.token = mount.app._next_token()
        self.withdrawn = False
        self.origin: Impl = self
        """What the registration began with; consumers of any of its values use this."""

    def checked(self, value: object) -> object:
        """Return `value` if it may be provided under this key.

        Raises:
            TypeError: It is no instance of the interface.
        """
        if not isinstance(value, self.interface):
            raise TypeError(
                f"{self.mount.name!r} provides {value!r} as {self.key!r}, which must be a "
                f"{type_name(self.interface)}"
            )
        return value

    def successor(self, value: object) -> Impl:
        """Return the same registration with another value and a token of its own."""
        heir = Impl(self.interface, self.realm, value, self.mount, self.check)
        heir.origin = self.origin
        return heir

    def available_to(self, consumer: Context) -> bool:
        """Whether `consumer` may be loaded with this value now."""
        if self.withdrawn or not self.mount._provides_now:
            return False
        if self.check is None:
            return True
        try:
            return self.check(consumer)
        except Exception as error:  # noqa: BLE001 - a broken predicate means unavailable
            self.mount.report(error, f"availability check of service {self.key!r}")
            return False


class Registration(Effect):
    """The provider's handle on a service it provides."""

    __slots__ = ("_impl",)

    patient = True

    def __init__(self, mount: Mount, impl: Impl) -> None:
        super().__init__(mount, f"provide {impl.key}")
        self._impl = impl
        self.collect(self._withdraw)

    @property
    def impl(self) -> Impl:
        """The registered value with its key and realm."""
        return self._impl

    def replace(self, value: object, *, reload: bool = False) -> None:
        """Swap the value.

        Args:
            value: The new value; an instance of the same interface.
            reload: Also unload and reload every consumer, as a new provider would; until it has
                let go, a consumer keeps the value it was loaded with. Without it, consumers see
                the new value at their next read.

        Raises:
            TypeError: `value` is no instance of the interface.
            ServiceOwnershipError: The service has been withdrawn.
        """
        impl = self._impl
        if impl.withdrawn:
            raise ServiceOwnershipError(
                f"service {impl.key!r} of {self.mount.name!r} has been withdrawn"
            )
        if reload:
            self._impl = impl.successor(value)
            self.mount.app.services.swap(self._impl)
            self.notify()
        else:
            impl.value = impl.checked(value)

    async def _withdraw(self) -> None:
        """Take the service away and wait until every consumer has let go."""
        impl, services = self._impl, self.mount.app.services
        services.remove(impl)
        for user in services.users(impl):
            try:
                await user._wait_released(impl)
            except Exception as error:  # noqa: BLE001 - teardown goes on whatever happens
                self.mount.report(error, f"waiting for {user.name} to let go of {impl.key}")
        if self in self.mount.impls:
            self.mount.impls.remove(self)

    def notify(self) -> None:
        """Have every dependent look at this service again, after its availability changed."""
        self.mount.app.services.notify(self._impl.key, self._impl.realm)


class ServiceTable:
    """Every live registration of an app, and the index of dependents."""

    __slots__ = ("_dependents", "_impls")

    def __init__(self) -> None:
        self._impls: dict[tuple[str, Realm], Impl] = {}
        self._dependents: dict[str, dict[Mount, None]] = {}

    def find(self, key: str, realm: Realm) -> Impl | None:
        """Return the registration under `key` in that realm, ready or not."""
        return self._impls.get((key, realm))

    def add(self, impl: Impl) -> None:
        """Enter a registration.

        Raises:
            ServiceConflictError: The key is taken in that realm.
        """
        present = self._impls.get((impl.key, impl.realm))
        if present is not None:
            raise ServiceConflictError(impl.key, present.mount.name, impl.mount.name)
        self._impls[impl.key, impl.realm] = impl

    def swap(self, impl: Impl) -> None:
        """Put a registration's next value in the place of its last."""
        self._impls[impl.key, impl.realm] = impl

    def remove(self, impl: Impl) -> None:
        """Take a registration out and have its dependents look again."""
        if not impl.withdrawn:
            impl.withdrawn = True
            del self._impls[impl.key, impl.realm]
            self.notify(impl.key, impl.realm)

    def users(self, impl: Impl) -> list[Mount]:
        """Return the mounts that are loaded with `impl`."""
        return [mount for mount in self._dependents.get(impl.key, ()) if mount._uses(impl)]

    def notify(self, key: str, realm: Realm) -> None:
        """Have the dependents of a key in one realm recompute their target."""
        for mount in list(self._dependents.get(key, ())):
            if mount.ctx.realm_of(key) == realm:
                mount._lifecycle.refresh()

    def depend(self, mount: Mount, key: str) -> None:
        """Index `mount` as a dependent of `key`."""
        self._dependents.setdefault(key, {})[mount] = None

    def undepend(self, mount: Mount) -> None:
        """Remove `mount` from the index."""
        for key in mount.required:
            dependents = self._dependents.get(key, {})
            dependents.pop(mount, None)
            if not dependents:
                self._dependents.pop(key, None)

    def keys(self) -> list[str]:
        """Return the keys that have a registration in the root realm, sorted."""
        return sorted(key for key, realm in self._impls if realm is None)


def type_name(service: Any) -> str:
    """Return how a service is named in a hint."""
    return getattr(service, "__name__", str(service))
