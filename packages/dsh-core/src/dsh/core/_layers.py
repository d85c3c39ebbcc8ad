"""Layered registries: one global layer, and one per scope that registered something."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Generator, Iterator, Mapping
from operator import attrgetter
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from dsh.core._scope import scope_chain, scope_of

if TYPE_CHECKING:
    from dsh.core._context import Context
    from dsh.core._effects import Effect

V = TypeVar("V")


class Table(Protocol):
    """What a layer is made of."""

    def __len__(self) -> int:
        """Return the number of entries; an empty layer is dropped."""
        ...


L = TypeVar("L", bound=Table)


class ScopedLayers(Generic[L]):
    """The layers of one registry.

    Args:
        make_layer: Makes an empty layer. Its `len` must count every entry it holds.
        on_change: Called after each registration and each undo; if it raises during a
            registration, that registration is rolled back.
    """

    def __init__(
        self, make_layer: Callable[[], L], on_change: Callable[[], object] | None = None
    ) -> None:
        self._make = make_layer
        self._on_change = on_change
        self.base: L = make_layer()
        """The layer everybody sees."""
        self._scoped: dict[object, L] = {}

    def peek(self, key: object | None) -> L | None:
        """Return the layer of exactly this scope, if it has one.

        Args:
            key: The scope key; None has no layer of its own.
        """
        return self._scoped.get(key) if key is not None else None

    def chain(self, key: object | None) -> tuple[L, ...]:
        """Return the layers a scope sees: global, farthest ancestor, ..., its own.

        Args:
            key: The scope key; None sees the global layer alone.
        """
        scoped = (self._scoped.get(node) for node in reversed(scope_chain(key)))
        return (self.base, *(layer for layer in scoped if layer is not None))

    def merge(self, key: object | None, pick: Callable[[L], Mapping[str, V]]) -> dict[str, V]:
        """Return the named entries a scope sees; a nearer one replaces its twin in place.

        Args:
            key: The scope key; None sees the global layer alone.
            pick: Reads the named entries of one layer.
        """
        merged: dict[str, V] = {}
        for layer in self.chain(key):
            merged.update(pick(layer))
        return merged

    def register(
        self,
        owner: Context,
        action: Callable[[L], Callable[[], object]],
        *,
        label: str,
        notify: bool = True,
    ) -> Effect:
        """Run `action` on the layer of `owner`'s scope and own its undo.

        Args:
            owner: Decides both lifetime and visibility.
            action: Enters something into the layer and returns the synchronous undo.
            label: Name of the effect.
            notify: Whether `on_change` is told.

        Returns:
            The registration; disposing it runs the undo.

        Raises:
            InactiveContextError: The owner is unloading, failed or disposed.
            Exception: What `action` or `on_change` raised; nothing is left behind.
        """
        key = scope_of(owner)

        def body() -> Generator[Callable[[], object], None, None]:
            layer = self._layer(key)
            try:
                undo = action(layer)
            except Exception:
                self._reclaim(key, layer)
                raise

            def remove() -> None:
                try:
                    undo()
                finally:
                    self._reclaim(key, layer)
                    if notify:
                        self._changed()

            yield remove
            if notify:
                self._changed()

        return owner.effect(body, label)

    def _layer(self, key: object | None) -> L:
        if key is None:
            return self.base
        layer = self._scoped.get(key)
        if layer is None:
            layer = self._scoped[key] = self._make()
        return layer

    def _reclaim(self, key: object | None, layer: L) -> None:
        if key is not None and len(layer) == 0 and self._scoped.get(key) is layer:
            del self._scoped[key]

    def _changed(self) -> None:
        if self._on_change is not None:
            self._on_change()


class _Slot(Generic[V]):
    __slots__ = ("live", "order", "value")

    def __init__(self, value: V, order: int) -> None:
        self.value = value
        self.order = order
        self.live = True


class AnonymousEntries(Generic[V]):
    """A table of values in insertion order; equal values are independent entries.

    Iteration is live: entries added meanwhile are seen, removed ones are not. When the table has
    drained, iterators that are still open end, and later entries are new to everybody.
    """

    def __init__(self) -> None:
        # one list is one generation; a drained table begins another
        self._slots: list[_Slot[V]] = []
        self._count = 0
        self._added = 0
        self._compacted = 0

    def add(self, value: V) -> Callable[[], None]:
        """Enter `value`.

        Returns:
            The undo; calling it again does nothing.
        """
        self._added += 1
        slot = _Slot(value, self._added)
        self._slots.append(slot)
        self._count += 1

        def undo() -> None:
            if slot.live:
                slot.live = False
                self._count -= 1
                self._compact()

        return undo

    def _compact(self) -> None:
        if self._count == 0:
            self._slots = []
        elif self._count * 2 < len(self._slots):
            self._slots[:] = [slot for slot in self._slots if slot.live]
            self._compacted += 1

    def __iter__(self) -> Iterator[V]:
        slots, compacted = self._slots, self._compacted
        position = seen = 0
        while True:
            if compacted != self._compacted:
                compacted = self._compacted
                position = bisect_right(slots, seen, key=_order)
            if position >= len(slots):
                return
            slot = slots[position]
            position += 1
            if slot.live:
                seen = slot.order
                yield slot.value

    def __len__(self) -> int:
        return self._count


_order = attrgetter("order")


class NamedEntries(Generic[V]):
    """A table of unique names in insertion order; iterates names as `AnonymousEntries` does."""

    def __init__(self) -> None:
        self._names: AnonymousEntries[str] = AnonymousEntries()
        self._entries: dict[str, V] = {}

    def add(self, name: str, value: V) -> Callable[[], None]:
        """Enter `value` under a name that is free; a registry says in its own words if it is not.

        Args:
            name: The name.
            value: The entry.

        Returns:
            The undo, which never removes a later entry of the name.

        Raises:
            ValueError: The name is taken.
        """
        if name in self._entries:
            raise ValueError(f"there is an entry called {name!r} already")
        self._entries[name] = value
        undo_name = self._names.add(name)
        live = True

        def undo() -> None:
            nonlocal live
            if live:
                live = False
                del self._entries[name]
                undo_name()

        return undo

    @property
    def entries(self) -> Mapping[str, V]:
        """The entries, live."""
        return self._entries

    def get(self, name: str) -> V | None:
        """Return the entry of `name`, if there is one."""
        return self._entries.get(name)

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._entries)
