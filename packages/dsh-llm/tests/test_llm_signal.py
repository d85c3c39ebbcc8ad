"""The cancellation signal."""

from __future__ import annotations

import logging
import math

import anyio
import anyio.lowlevel
import pytest

from dsh.llm import CancelSignal


def test_the_first_abort_wins() -> None:
    signal = CancelSignal()
    assert (signal.aborted, signal.reason) == (False, None)
    assert repr(signal) == "<CancelSignal not aborted>"
    assert signal.abort("user")
    assert not signal.abort("shutdown")
    assert (signal.aborted, signal.reason) == (True, "user")
    assert repr(signal) == "<CancelSignal aborted, reason='user'>"


def test_an_abort_needs_no_reason() -> None:
    signal = CancelSignal()
    signal.abort()
    signal.abort("late")
    assert (signal.aborted, signal.reason) == (True, None)


def test_callbacks_run_once_in_order_and_late_ones_at_once() -> None:
    signal, ran = CancelSignal(), list[str]()
    signal.on_abort(lambda: ran.append(f"first {signal.reason}"))
    signal.on_abort(lambda: ran.append("second"))
    signal.abort("user")
    signal.abort("again")
    assert ran == ["first user", "second"]
    remove = signal.on_abort(lambda: ran.append("late"))
    assert ran[2:] == ["late"]
    remove()


def test_a_callback_taken_back_does_not_run() -> None:
    signal, ran = CancelSignal(), list[str]()

    def nothing() -> None:
        ran.append("never")

    # the same function twice: each registration is its own
    first, second = signal.on_abort(nothing), signal.on_abort(nothing)
    first()
    first()
    signal.on_abort(second)
    kept = signal.on_abort(lambda: ran.append("kept"))
    third = signal.on_abort(nothing)
    third()
    second()
    signal.abort()
    assert ran == ["kept"]
    kept()


def test_callbacks_may_take_back_and_add_while_they_run() -> None:
    signal, ran = CancelSignal(), list[str]()

    def first() -> None:
        remove_second()
        signal.on_abort(lambda: ran.append("added"))
        ran.append("first")

    signal.on_abort(first)
    remove_second = signal.on_abort(lambda: ran.append("second"))
    signal.abort()
    assert ran == ["added", "first"]


def test_a_callback_that_raises_keeps_no_other_waiting(caplog: pytest.LogCaptureFixture) -> None:
    signal, ran = CancelSignal(), list[str]()

    def broken() -> None:
        raise ValueError("broken")

    signal.on_abort(broken)
    signal.on_abort(lambda: ran.append("second"))
    with caplog.at_level(logging.ERROR, "dsh.llm"):
        assert signal.abort()
    assert ran == ["second"]
    assert "callback" in caplog.text


async def test_wait_returns_the_reason() -> None:
    signal, reasons = CancelSignal(), list[str | None]()

    async def waiter() -> None:
        reasons.append(await signal.wait())

    with anyio.fail_after(5):
        async with anyio.create_task_group() as group:
            group.start_soon(waiter)
            group.start_soon(waiter)
            await anyio.wait_all_tasks_blocked()
            assert reasons == []
            signal.abort("user")
        assert reasons == ["user", "user"]
        assert await signal.wait() == "user"


async def test_a_cancelled_wait_leaves_nothing_behind() -> None:
    signal = CancelSignal()
    with anyio.move_on_after(0):
        await signal.wait()
    signal.abort()


async def test_a_block_is_left_when_the_signal_aborts_and_nobody_else_is() -> None:
    signal = CancelSignal()
    with anyio.fail_after(5) as outside:
        with signal.cancel_scope() as scope:
            signal.abort("user")
            await anyio.sleep_forever()
        await anyio.lowlevel.checkpoint()
    assert (scope.cancelled_caught, outside.cancel_called) == (True, False)


async def test_a_block_that_begins_after_the_abort_is_left_at_its_first_wait() -> None:
    signal, reached = CancelSignal(), list[str]()
    signal.abort()
    with signal.cancel_scope() as scope:
        reached.append("block")
        await anyio.lowlevel.checkpoint()
        reached.append("behind the wait")
    assert (reached, scope.cancelled_caught) == (["block"], True)


async def test_a_block_has_its_grace_from_the_abort_on() -> None:
    signal = CancelSignal()
    with anyio.fail_after(5), signal.cancel_scope(0.02) as scope:
        assert scope.deadline == math.inf
        signal.abort()
        assert scope.deadline <= anyio.current_time() + 0.02
        await anyio.lowlevel.checkpoint()
        assert not scope.cancel_called
        await anyio.sleep_forever()
    assert scope.cancelled_caught


async def test_a_block_that_is_over_is_not_told_of_the_abort() -> None:
    signal = CancelSignal()
    with signal.cancel_scope() as fine:
        await anyio.lowlevel.checkpoint()
    with pytest.raises(ValueError, match="broken"), signal.cancel_scope() as broken:
        raise ValueError("broken")
    signal.abort()
    assert (fine.cancel_called, broken.cancel_called) == (False, False)
