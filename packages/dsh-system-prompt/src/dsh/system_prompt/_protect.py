"""Puts protected entries back after listeners changed an assembly."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Protocol, TypeVar

__all__ = ["Named", "restore"]


class Named(Protocol):
    """An entry that is protected by its name."""

    @property
    def name(self) -> str:
        """The entry's name."""
        ...


N = TypeVar("N", bound=Named)


def restore(canonical: Sequence[N], result: Iterable[N], protected: Collection[str]) -> list[N]:
    """Return `result` with exactly the canonical entries under every protected name.

    Whatever stands under a protected name is taken out. Each canonical entry of such a name
    goes right before the first survivor that follows it in the canonical order and is not
    protected itself, or to the end when none survived.
    """
    kept = [entry for entry in result if entry.name not in protected]
    for index, entry in enumerate(canonical):
        if entry.name not in protected:
            continue
        # what follows a later entry also follows an earlier one, so canonical order is kept
        followers = {later.name for later in canonical[index + 1 :]}.difference(protected)
        at = (place for place, other in enumerate(kept) if other.name in followers)
        kept.insert(next(at, len(kept)), entry)
    return kept
