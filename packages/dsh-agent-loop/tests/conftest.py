"""Every test of the loop runs plain, and once more with the invariants as oracle."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from dsh.agent_loop.testing import mounted_everywhere
from dsh.invariants import Invariants


@pytest.fixture(autouse=True, params=["plain", "invariants"])
def oracle(request: pytest.FixtureRequest) -> Generator[None]:
    extras = {} if request.param == "plain" else {Invariants: {"level": "full"}}
    with mounted_everywhere(extras):
        yield
