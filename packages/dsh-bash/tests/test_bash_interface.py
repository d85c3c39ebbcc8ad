"""The interface alone: types, defaults, the task book. Providers run the contract suite."""

from __future__ import annotations

import dataclasses
import inspect
import os

import anyio
import pytest

from dsh.bash import (
    BashExecutor,
    BashRead,
    BashRequest,
    BashResult,
    BashSpawnError,
    BashSpec,
    BashTask,
    CollectedOutput,
    InvalidTimeoutError,
    OwnerToken,
    SandboxFacts,
    TaskBook,
    TaskListener,
    UnknownTaskError,
)
from dsh.bash.testing import bash_app, run
from dsh.core import App, ConfigError, Context, DshError, Effect, service_key


class Canned(BashExecutor):
    """An executor without processes: every command prints itself."""

    async def start(self) -> None:
        self.book = TaskBook(self.ctx.report)

    async def run(self, spec: BashSpec) -> BashResult:
        return BashResult(
            exit_code=0,
            signal=None,
            timed_out=False,
            aborted=False,
            timeout_ms=spec.timeout_ms,
            stdout=CollectedOutput(spec.command),
            stderr=CollectedOutput(""),
        )

    def start_task(self, spec: BashSpec) -> BashTask:
        return self.book.open(spec.command, spec.owner)

    def get(self, task_id: str) -> BashTask | None:
        return self.book.get(task_id)

    def list(self) -> tuple[BashTask, ...]:
        return self.book.list()

    def owner_of(self, task_id: str) -> OwnerToken | None:
        return self.book.owner_of(task_id)

    def read_output(self, task_id: str) -> BashRead:
        return BashRead(self.book.require(task_id), "")

    def kill(self, task_id: str) -> bool:
        task = self.book.require(task_id)
        running = not task.settled
        self.book.settle(task, "killed", None, "SIGKILL")
        return running

    def on_task_done(self, ctx: Context, fn: TaskListener) -> Effect:
        return self.book.on_done(ctx, fn)


def test_the_key_and_the_abstract_members() -> None:
    assert service_key(BashExecutor) == "bash"
    assert inspect.isabstract(BashExecutor)
    assert BashExecutor.__abstractmethods__ == {
        "run", "start_task", "get", "list", "owner_of", "read_output", "kill", "on_task_done",
    }  # fmt: skip


def test_a_spec_does_not_let_owner_and_mode_be_forgotten() -> None:
    required = {
        field.name for field in dataclasses.fields(BashSpec) if field.default is dataclasses.MISSING
    }
    assert required == {"command", "workdir", "timeout_ms", "owner", "sandbox_mode"}


def test_errors_are_caught_as_what_they_are() -> None:
    assert issubclass(BashSpawnError, OSError)
    assert issubclass(UnknownTaskError, LookupError)
    assert issubclass(InvalidTimeoutError, ValueError)
    for kind in (BashSpawnError, UnknownTaskError, InvalidTimeoutError):
        assert issubclass(kind, DshError)
    assert UnknownTaskError("bash-7").task_id == "bash-7"
    assert BashSpawnError("x", number=2).errno == 2


async def test_another_provider_stands_in() -> None:
    async with bash_app(Canned, {"cwd": "/srv"}) as (_, bash):
        assert (await run(bash, "hello")).stdout.text == "hello"
        assert bash.sandbox_mode is None
        spec = bash.resolve(BashRequest(command="x", workdir="a/../b", owner=OwnerToken("")))
        assert (spec.workdir, spec.owner, spec.sandbox_mode) == ("/srv/b", "", None)
        stated = bash.resolve(BashRequest(command="x", sandbox_mode="read-only"))
        assert stated.sandbox_mode == "read-only"


async def test_the_process_directory_is_the_last_resort() -> None:
    async with bash_app(Canned) as (_, bash):
        assert bash.resolve(BashRequest(command="x")).workdir == os.getcwd()
        with pytest.raises(InvalidTimeoutError):
            bash.resolve(BashRequest(command="x", timeout_ms=True))


async def test_every_provider_honours_the_shared_configuration() -> None:
    async with App() as app:
        for bad in ({"timeout_ms": 0}, {"max_timeout_ms": -1}, {"unknown": 1}):
            with pytest.raises(ConfigError):
                await app.mount(Canned, bad).settled()


async def test_a_second_provider_is_refused() -> None:
    async with App() as app:
        await app.mount(Canned).settled()
        with pytest.raises(DshError, match="bash"):
            await app.mount(Canned).settled()


async def test_the_book_settles_once() -> None:
    ended: list[BashTask] = []
    async with App() as app:
        book = TaskBook(app.ctx.report)
        effect = book.on_done(app.ctx, ended.append)
        task = book.open("x", None)
        facts = SandboxFacts("read-only", denied=False)
        book.settle(task, "completed", 0, None, facts)
        book.settle(task, "killed", 9, "SIGKILL")
        assert ended == [task]
        assert (task.status, task.exit_code, task.signal) == ("completed", 0, None)
        assert task.sandbox is facts
        with anyio.fail_after(1):
            await task.done()
        await effect.dispose()
        book.settle(book.open("y", None), "completed", 0, None)
        assert len(ended) == 1


async def test_a_task_that_was_marked_killed_stays_killed() -> None:
    async with App() as app:
        book = TaskBook(app.ctx.report)
        task = book.open("x", None)
        task.status = "killed"
        book.settle(task, "completed", 0, None)
        assert (task.status, task.exit_code) == ("killed", 0)


async def test_a_broken_listener_is_reported_and_the_others_still_hear() -> None:
    # case: BASH-15
    reported: list[str] = []
    heard: list[BashTask] = []

    def broken(task: BashTask) -> None:
        raise ValueError("broken")

    async with App() as app:
        book = TaskBook(lambda error, where: reported.append(f"{where}: {error}"))
        book.on_done(app.ctx, broken)
        book.on_done(app.ctx, heard.append)
        task = book.open("x", None)
        book.settle(task, "completed", 0, None)
        assert heard == [task]
        assert reported == ["a listener to the end of bash-1: broken"]
        book.silence()
        book.settle(book.open("y", None), "completed", 0, None)
        assert heard == [task]


async def test_the_book_forgets_the_oldest_that_are_over() -> None:
    async with App() as app:
        book = TaskBook(app.ctx.report, max_finished=2)
        running = book.open("running", None)
        left = book.open("left something", None)
        left.left = 1
        book.settle(left, "completed", 0, None)
        for number in range(4):
            book.settle(book.open(str(number), None), "completed", 0, None)
        assert [task.command for task in book.list()] == ["running", "left something", "2", "3"]
        assert book.get(running.id) is running
        with pytest.raises(UnknownTaskError):
            book.require("bash-3")
