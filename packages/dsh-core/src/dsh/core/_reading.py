"""Who may read which service by `ctx[Service]`: what is declared, inherited, or of the root.

Also what is told of a plugin that reads one as an attribute it has not declared.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from dsh.core._plugins import Service, key_of
from dsh.core._services import Impl, Realm, type_name
from dsh.core.errors import MissingServiceError

if TYPE_CHECKING:
    from dsh.core._context import Context
    from dsh.core._mount import Mount


def read(ctx: Context, service: Any) -> Any:
    """Return the service that code of `ctx` may read.

    1. What its owner injects or provides itself.
    2. What a mount above it does, no further up than the border of the realm.
    3. What the root provides in that realm.

    The nearest one wins. Where a mount declares the key, none above it is asked, also while what
    it injects is absent.

    Raises:
        MissingServiceError: It is not declared, or injected and not active.
    """
    key = key_of(service)
    realm = ctx.realm_of(key)
    root = ctx.app.root
    mount: Mount | None = ctx.owner
    while mount is not None:
        impl = _held(mount, key, realm)
        if impl is not None:
            return impl.value
        if mount.injects(key) and mount.ctx.realm_of(key) == realm:
            raise MissingServiceError(key, ctx.owner.name, "inactive", type_name(service))
        parent = mount.parent
        if parent is not None and parent.ctx.realm_of(key) != mount.ctx.realm_of(key):
            break
        mount = parent
    impl = ctx.app.services.find(key, realm)
    if impl is not None and impl.mount is root:
        return impl.value
    # the root declares nothing and may read everything
    reason: Literal["inactive", "undeclared"]
    reason = "inactive" if ctx.owner is root else "undeclared"
    raise MissingServiceError(key, ctx.owner.name, reason, type_name(service))


def start_failure(mount: Mount, error: Exception) -> Exception:
    """Return what to tell of a start that raised `error`.

    An attribute that is missing and called like a service is one that nobody injected.
    """
    if not isinstance(error, AttributeError) or mount.instance is None:
        return error
    key = error.name
    if key is None or error.obj is not mount.instance or mount.injects(key):
        return error
    impl = mount.app.services.find(key, mount.ctx.realm_of(key))
    interface = _interface(key, Service) if impl is None else impl.interface
    if interface is None:
        return error
    told = MissingServiceError(key, mount.name, "undeclared", type_name(interface))
    told.__cause__ = error
    return told


def _interface(key: str, base: type[Any]) -> type[Any] | None:
    """Return the class under `base` that declared the key; it need not be provided yet."""
    for cls in base.__subclasses__():
        found = cls if cls.__dict__.get("service_key") == key else _interface(key, cls)
        if found is not None:
            return found
    return None


def _held(mount: Mount, key: str, realm: Realm) -> Impl | None:
    """Return what `mount` has under `key` in a realm: injected, or its own."""
    impl = mount.store.get(key)
    if impl is None and mount.injects(key) and key not in mount.required:
        # optional: not waited for, so looked up at each read
        impl = mount.app.services.find(key, realm)
        if impl is not None and not impl.mount._provides_now:
            impl = None
    if impl is not None and impl.realm == realm:
        return impl
    for registration in mount.impls:
        own = registration.impl
        if own.key == key and own.realm == realm and not own.withdrawn:
            return own
    return None
