"""Fixtures of the whole workspace: every async test runs on asyncio and on trio."""

from __future__ import annotations

import gc

import pytest


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def pytest_collection_finish() -> None:
    """Leave the thousands of collected tests out of every collection of garbage that follows."""
    gc.collect()
    gc.freeze()


def pytest_sessionfinish() -> None:
    """Show them to the collector again: what is loaded from here on may ask who refers to what."""
    gc.unfreeze()
