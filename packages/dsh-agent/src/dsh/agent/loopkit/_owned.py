"""What ends with the mount that owns it, told the moment that mount begins to go."""

from __future__ import annotations

from abc import ABC, abstractmethod

from dsh.core import Mount


class Owned(ABC):
    """Something that ends with the mount that owns it."""

    @abstractmethod
    def owner_retires(self) -> None:
        """Stop at once: the owner's disposal has begun."""


class OwnedTable:
    """What is owned by which mount, to be stopped the moment the owner's disposal begins."""

    __slots__ = ("_by_owner",)

    def __init__(self) -> None:
        self._by_owner: dict[Mount, dict[Owned, None]] = {}

    def add(self, owner: Mount, owned: Owned) -> None:
        """Enter something."""
        self._by_owner.setdefault(owner, {})[owned] = None

    def discard(self, owner: Mount, owned: Owned) -> None:
        """Take something out, if it is there."""
        table = self._by_owner.get(owner, {})
        table.pop(owned, None)
        if not table:
            self._by_owner.pop(owner, None)

    def retire(self, mount: Mount) -> None:
        """Stop everything that a mount and the mounts below it own."""
        for owner in [owner for owner in self._by_owner if mount.owns(owner)]:
            for owned in list(self._by_owner.get(owner, ())):
                owned.owner_retires()
