"""Who may read which service by `ctx[Service]`: what is declared, inherited, or of the root."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dsh.core._plugins import key_of
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
    reason = "inactive" if ctx.owner is root else "undeclared"
    raise MissingServiceError(key, ctx.owner.name, reason, type_name(service))


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
