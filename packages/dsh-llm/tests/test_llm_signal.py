"""The cancellation signal."""

from __future__ import annotations

import logging

import anyio
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


async def test_it_cancels_a_scope() -> None:
    signal, scope = CancelSignal(), anyio.CancelScope()
    remove = signal.on_abort(scope.cancel)
    with anyio.fail_after(5), scope:
        signal.abort("user")
        await anyio.sleep_forever()
    remove()
    assert scope.cancelled_caught
