"""Scopes: contexts whose registrations are seen for one key alone, an agent usually.

A scope composes; it is no authority boundary. Keys are compared by identity. A scope may name a
parent key when it is opened: registrations then inherit down, and events go up.
"""

from __future__ import annotations

import weakref
from types import TracebackType
from typing import TYPE_CHECKING, Any

from dsh.core.errors import ScopeError

if TYPE_CHECKING:
    from dsh.core._context import Context
    from dsh.core._effects import Effect
    from dsh.core._mount import Mount

_parents: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()


class Scope:
    """An open scope. `async with` disposes it at the end of the block."""

    __slots__ = ("_mount", "ctx", "effect", "key")

    def __init__(self, ctx: Context, mount: Mount, effect: Effect, key: object) -> None:
        self.ctx = ctx
        """Context of the scope, usable at once."""
        self.effect = effect
        """The effect that ends the scope; a composite may take it over."""
        self.key = key
        self._mount = mount

    def rebind(self, parent: object) -> None:
        """Name another parent for the key.

        Args:
            parent: Key of the scope to inherit from.

        Raises:
            ScopeError: The link would form a cycle, or the parent is no scope key.
            InactiveContextError: The scope has ended.
        """
        check_key(parent)
        self._mount.check_accepting("a scope's parent")
        self._mount.app._link_scope(self.key, parent, again=True)

    async def dispose(self) -> None:
        """End the scope; every caller waits for the same end."""
        await self._mount.dispose()

    async def __aenter__(self) -> Scope:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.dispose()


def scope_of(ctx: Context) -> object | None:
    """Return the key of the nearest scope `ctx` belongs to, or None."""
    return ctx.scope_key


def scope_chain(key: object | None) -> tuple[object, ...]:
    """Return `key`, its parent and so on, nearest first; empty for None."""
    chain: list[object] = []
    node = key
    while node is not None:
        chain.append(node)
        node = _parent_of(node)
    return tuple(chain)


def bind_parent(key: object, parent: object, *, again: bool = False) -> None:
    """Link `key` below `parent`.

    Raises:
        ScopeError: The key has a parent already, or the link would form a cycle.
    """
    if any(node is key for node in scope_chain(parent)):
        raise ScopeError(f"the parent link of scope {key!r} would form a cycle")
    if not again and _parent_of(key) is not None:
        raise ScopeError(f"scope {key!r} is already bound to a parent", hint="use Scope.rebind")
    try:
        _parents[key] = parent
    except TypeError as error:
        raise ScopeError(f"scope {key!r} cannot have a parent: {error}") from error


def unbind_parent(key: object) -> None:
    """Forget the parent of a scope that has ended."""
    if _parent_of(key) is not None:
        del _parents[key]


def check_key(key: object) -> None:
    """Refuse what cannot identify a scope.

    Raises:
        ScopeError: The key is nothing, or compared by value.
    """
    if key is None or type(key).__eq__ is not object.__eq__:
        raise ScopeError(
            f"{key!r} is no scope key", hint="use an object that is compared by identity"
        )


def _parent_of(key: object) -> object | None:
    try:
        return _parents.get(key)
    except TypeError:
        return None
