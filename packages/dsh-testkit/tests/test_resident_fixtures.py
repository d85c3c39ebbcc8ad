"""Context managers that fixtures hold open, on both event loops."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.abc
import pytest

from dsh.core import App
from dsh.testkit._resident import resident

SEEN: list[int] = []


@pytest.fixture
async def held(anyio_backend: object) -> AsyncGenerator[App, None]:
    SEEN[:] = [anyio.get_current_task().id]
    async with resident(App()) as app:
        yield app
    SEEN.append(anyio.get_current_task().id)


async def test_set_up_and_test_share_a_task(held: App) -> None:
    assert [anyio.get_current_task().id] == SEEN
    held.ctx.spawn(anyio.sleep_forever)


@asynccontextmanager
async def group() -> AsyncGenerator[anyio.abc.TaskGroup, None]:
    async with anyio.create_task_group() as tasks:
        yield tasks
        tasks.cancel_scope.cancel()


async def boom() -> None:
    raise ValueError("boom")


async def stop() -> None:
    pytest.fail("stop")


async def break_inside(how: Callable[[], Coroutine[Any, Any, None]], reached: list[str]) -> None:
    async with resident(group()) as tasks:
        tasks.start_soon(how)
        await anyio.wait_all_tasks_blocked()
        await anyio.lowlevel.checkpoint()
        reached.append("the end of the block")


async def test_what_breaks_inside_reaches_nobody_until_the_end() -> None:
    reached: list[str] = []
    with pytest.raises(ExceptionGroup) as caught:
        await break_inside(boom, reached)
    assert reached == ["the end of the block"]
    assert caught.group_contains(ValueError, match="boom")


async def test_an_outcome_of_pytest_is_kept_too() -> None:
    reached: list[str] = []
    with pytest.raises(BaseExceptionGroup) as caught:
        await break_inside(stop, reached)
    assert reached
    assert caught.group_contains(pytest.fail.Exception)


@asynccontextmanager
async def locked() -> AsyncGenerator[None, None]:
    raise PermissionError("locked")
    yield


@asynccontextmanager
async def stuck() -> AsyncGenerator[None, None]:
    yield
    raise PermissionError("stuck")


async def test_entering_and_leaving_may_fail() -> None:
    for manager, words in ((locked(), "locked"), (stuck(), "stuck")):
        with pytest.raises(PermissionError, match=words):
            async with resident(manager):
                pass


async def test_what_the_block_raises_is_raised() -> None:
    with pytest.raises(ExceptionGroup) as caught:
        async with resident(group()):
            raise KeyError("mine")
    assert caught.group_contains(KeyError, match="mine")
