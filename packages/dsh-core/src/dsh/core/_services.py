"""Service registrations: who provides which key, in which realm, and who depends on it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from dsh.core._effects import Effect
from dsh.core.errors import ServiceConflictError, ServiceOwnershipError

if TYPE_CHECKING:
    from dsh.core._context import Context
    from dsh.core._mount import Mount

Label: TypeAlias = object
"""Identity of a realm; `None` is the root's."""

Predicate: TypeAlias = "Callable[[Context], bool]"


class Impl:
    """One provided value. The token is unique per registration, so a re-provide is a change."""

    __slots__ = ("check", "key", "label", "mount", "token", "value", "withdrawn")

    def __init__(
        self, key: str, label: Label, value: object, mount: Mount, check: Predicate | None
    ) -> None:
        self.key = key
        self.label = label
        self.value = value
        self.mount = mount
        self.check = check
        self.token = mount.app.next_token()
        self.withdrawn = False

    def available_to(self, consumer: Context) -> bool:
        """Whether `consumer` may be loaded with this value now."""
        if self.withdrawn or not self.mount.provides_now:
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

    def __init__(self, mount: Mount, impl: Impl) -> None:
        super().__init__(mount, f"provide {impl.key}")
        self.patient = True
        self._impl = impl

    @property
    def impl(self) -> Impl:
        """The registered value with its key and realm."""
        return self._impl

    def replace(self, value: object, *, reload: bool = False) -> None:
        """Swap the value in place.

        Args:
            value: The new value; an instance of the same interface.
            reload: Also unload and reload every consumer, as a new provider would.

        Raises:
            ServiceOwnershipError: The service has been withdrawn.
        """
        if self._impl.withdrawn:
            raise ServiceOwnershipError(
                f"service {self._impl.key!r} of {self.mount.name!r} has been withdrawn"
            )
        self._impl.value = value
        if reload:
            self._impl.token = self.mount.app.next_token()
            self.notify()

    def notify(self) -> None:
        """Have every dependent look at this service again, after its availability changed."""
        self.mount.app.services.notify(self._impl.key, self._impl.label)


class ServiceTable:
    """Every live registration of an app, and the index of dependents."""

    __slots__ = ("_dependents", "_impls")

    def __init__(self) -> None:
        self._impls: dict[tuple[str, Label], Impl] = {}
        self._dependents: dict[str, dict[Mount, None]] = {}

    def find(self, key: str, label: Label) -> Impl | None:
        """Return the registration under `key` in that realm, ready or not."""
        return self._impls.get((key, label))

    def add(self, impl: Impl) -> None:
        """Enter a registration.

        Raises:
            ServiceConflictError: The key is taken in that realm.
        """
        present = self._impls.get((impl.key, impl.label))
        if present is not None:
            raise ServiceConflictError(impl.key, present.mount.name, impl.mount.name)
        self._impls[impl.key, impl.label] = impl

    def withdraw(self, impl: Impl) -> list[Mount]:
        """Take a registration out and return the mounts that were loaded with it."""
        if impl.withdrawn:
            return []
        impl.withdrawn = True
        if self._impls.get((impl.key, impl.label)) is impl:
            del self._impls[impl.key, impl.label]
        users = [m for m in self._dependents.get(impl.key, ()) if m.uses(impl)]
        self.notify(impl.key, impl.label)
        return users

    def notify(self, key: str, label: Label) -> None:
        """Have the dependents of a key in one realm recompute their target."""
        for mount in list(self._dependents.get(key, ())):
            if mount.ctx.label(key) is label or mount.ctx.label(key) == label:
                mount.refresh()

    def depend(self, mount: Mount, key: str) -> None:
        """Index `mount` as a dependent of `key`."""
        self._dependents.setdefault(key, {})[mount] = None

    def undepend(self, mount: Mount) -> None:
        """Remove `mount` from the index."""
        for key in mount.required:
            self._dependents.get(key, {}).pop(mount, None)

    def keys(self) -> list[str]:
        """Return the keys that have a registration in the root realm, sorted."""
        return sorted(key for key, label in self._impls if label is None)


def type_name(service: Any) -> str:
    """Return how a service is named in a hint."""
    return getattr(service, "__name__", str(service))
