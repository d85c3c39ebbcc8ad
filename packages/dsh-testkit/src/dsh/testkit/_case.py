"""Cases of a contract: values that a test is parametrised with."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Generic, TypeVar

import pytest

__all__ = ["ContractCase", "leave_out", "named"]

B = TypeVar("B")


@dataclass(frozen=True, slots=True)
class ContractCase(Generic[B]):
    """One thing that a contract demands."""

    name: str
    """Short name, words joined by dashes; the id of the test."""
    check: Callable[[B], Awaitable[None]]
    """Fails unless what stands on the bench does as demanded."""

    def __str__(self) -> str:
        return self.name


def named(check: Callable[..., object]) -> str:
    """Return the name of the case that a function checks."""
    return check.__name__.replace("_", "-")


def leave_out(case: ContractCase[Any], names: Iterable[str], cases: Iterable[object]) -> None:
    """Skip a case that the provider says it cannot meet.

    Args:
        case: The case that is about to run.
        names: What the provider leaves out.
        cases: Every case of the contract.

    Raises:
        ValueError: The provider leaves out something that is no case.
    """
    left_out = set(names)
    known = [str(each) for each in cases]
    unknown = sorted(left_out.difference(known))
    if unknown:
        close = get_close_matches(unknown[0], known, n=1)
        hint = f"; did you mean {close[0]!r}?" if close else "; the id of a test ends in its name"
        raise ValueError(f"no case of the contract is named {', '.join(unknown)}{hint}")
    if case.name in left_out:
        pytest.skip("the provider leaves this case out")
