"""Children that stay: live streams in both directions."""

from __future__ import annotations

import os
import sys

import anyio
import pytest

from dsh.process import Supervisor
from dsh.process.testing import is_alive

ECHO = "import sys\nfor line in sys.stdin: print('>' + line, end='', flush=True)\n"


async def test_a_conversation(supervisor: Supervisor) -> None:
    async with await supervisor.spawn(
        [sys.executable, "-c", ECHO], stdin="pipe", stderr=supervisor.collector("stderr")
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        assert child.stderr is None
        for word in (b"one\n", b"two\n"):
            await child.stdin.send(word)
            with anyio.fail_after(5):
                assert await child.stdout.receive() == b">" + word
        await child.stdin.aclose()
        with anyio.fail_after(5):
            assert (await child.wait()).code == 0
            with pytest.raises(anyio.EndOfStream):
                await child.stdout.receive()
    assert child.is_gone
    assert child.ended_by is None


async def test_leaving_a_child_kills_it(supervisor: Supervisor) -> None:
    async with await supervisor.spawn(["cat"], stdin="pipe") as child:
        pass
    assert child.is_gone
    assert not is_alive(child.pid)


async def test_writing_waits_for_the_reader_and_fails_when_it_is_gone(
    supervisor: Supervisor,
) -> None:
    child = await supervisor.spawn(["sleep", "60"], stdin="pipe")
    assert child.stdin is not None
    with anyio.move_on_after(0.05) as scope:
        await child.stdin.send(b"x" * (1 << 20))
    assert scope.cancelled_caught, "the pipe is full"
    child.kill()
    await child.wait_gone()
    with pytest.raises(anyio.BrokenResourceError):
        await child.stdin.send(b"x")
    await child.aclose()
    with pytest.raises(anyio.ClosedResourceError):
        await child.stdin.send(b"x")


async def test_closing_a_stream_wakes_its_reader(supervisor: Supervisor) -> None:
    child = await supervisor.spawn(["sleep", "60"], stderr="null")
    stream = child.stdout
    assert stream is not None
    with pytest.raises(anyio.WouldBlock):
        stream.receive_nowait()
    async with anyio.create_task_group() as tasks:

        async def read() -> None:
            with pytest.raises(anyio.ClosedResourceError):
                await stream.receive()

        tasks.start_soon(read)
        await anyio.wait_all_tasks_blocked()
        await stream.aclose()
    await child.aclose()


async def test_a_child_can_share_descriptors_of_the_harness(supervisor: Supervisor) -> None:
    reading, writing = os.pipe()
    try:
        child = await supervisor.spawn(["echo", "direct"], stdout=writing, stderr="stdout")
        assert (await child.wait()).code == 0
        assert os.read(reading, 100) == b"direct\n"
        os.fstat(writing)  # stays the caller's
    finally:
        os.close(reading)
        os.close(writing)


async def test_output_thrown_away(supervisor: Supervisor) -> None:
    child = await supervisor.spawn(["bash", "-c", "yes | head -c 1M"], stdout="null", stderr="null")
    assert child.stdout is None
    with anyio.fail_after(5):
        assert (await child.wait()).code == 0


async def test_children_lists_what_runs(supervisor: Supervisor) -> None:
    one = await supervisor.spawn(["sleep", "60"])
    two = await supervisor.spawn(["sleep", "60"])
    assert supervisor.children == (one, two)
    await one.aclose()
    assert supervisor.children == (two,)
    assert await two.count() == 1
    await two.aclose()
    assert await two.count() == 0
