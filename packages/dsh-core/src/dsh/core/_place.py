"""Where a context stands: who owns what is registered there, in which scope and in which realms."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from dsh.core._effect_bodies import BodyEffect, EffectBody
from dsh.core._effects import Cleanup, Effect
from dsh.core._services import Realm
from dsh.core.errors import InvalidEffectError

if TYPE_CHECKING:
    from dsh.core._app import App
    from dsh.core._mount import Mount


class Place:
    """A node of the context tree, and the registrations everything else is made of."""

    __slots__ = ("__weakref__", "_realms", "app", "isolated", "owner", "parent", "scope_key")

    def __init__(
        self,
        app: App,
        parent: Place | None,
        owner: Mount,
        scope_key: object,
        realms: dict[str, Realm],
    ) -> None:
        self.app = app
        self.parent = parent
        self.owner = owner
        """The mount that owns what is registered through this context."""
        self.scope_key = scope_key
        """Key of the nearest scope this belongs to, or None."""
        self._realms = realms
        self.isolated: bool = bool(realms) or (parent is not None and parent.isolated)
        """Whether any service resolves in another realm than the root's."""

    def realm_of(self, key: str) -> Realm:
        """Return the realm in which this context resolves `key`; None is the root realm."""
        # most contexts are in the root realm throughout; they answer without a walk
        node: Place | None = self if self.isolated else None
        while node is not None:
            if key in node._realms:
                return node._realms[key]
            node = node.parent
        return None

    def defer(self, fn: Cleanup, label: str | None = None) -> Effect:
        """Register a sync or async callable to run when the owner is unloaded.

        Args:
            fn: The cleanup, without arguments.
            label: Name for diagnosis; made from the name of `fn` by default.

        Returns:
            The registration; disposing it runs `fn` now.

        Raises:
            InvalidEffectError: `fn` is no cleanup.
        """
        if not (isinstance(cast("object", fn), Effect) or callable(fn)):
            raise InvalidEffectError(
                f"defer was given {fn!r}",
                hint="give it the function, not its result: ctx.defer(close)",
            )
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

    def report(self, error: BaseException, where: str) -> None:
        """Report a contained failure once, under the owner's name.

        Args:
            error: What was raised.
            where: What the code was doing, for the log.
        """
        self.owner.report(error, where)

    def _new_effect(self, label: str) -> Effect:
        self.owner.check_accepting(label)
        return Effect(self.owner, label)

    def __repr__(self) -> str:
        return f"<Context of {self.owner.name!r}>"
