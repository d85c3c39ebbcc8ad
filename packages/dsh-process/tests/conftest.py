"""A supervisor per test."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from dsh.process import Supervisor


@pytest.fixture
async def supervisor() -> AsyncIterator[Supervisor]:
    async with Supervisor() as entered:
        yield entered
