"""One task from the start of the app to its end."""

from __future__ import annotations

import gc
import signal
from collections.abc import Mapping
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import anyio

from dsh.agent import Agent, OutputInvalid, TurnFailed, turn_outcome
from dsh.cli._exit_codes import CLOSED_PIPE, ERROR, HANGUP, INTERRUPTED, OK, TERMINATED, USAGE
from dsh.cli._failures import describe, exit_code_of, show_stack, unwrap
from dsh.cli._logs import Logs
from dsh.cli._out import ClosedPipe
from dsh.cli._outcome import report_outcome
from dsh.cli._recording import check_ephemeral, is_kept
from dsh.cli._resume import ResumeFrom, session_to_resume
from dsh.cli._signals import Signals
from dsh.cli._store_trouble import explained_store_errors, with_store_trouble
from dsh.cli._view import Report, View
from dsh.cli.errors import CliError, UsageError
from dsh.core import DshError, JsonValue
from dsh.core import json as djson
from dsh.llm import LlmError, LlmService, Problem
from dsh.loader import BootError, Deployment, LoadedApp, bundle_hint, open_app
from dsh.session.events import SessionEventAppended
from dsh.tools import ToolRegistry

STOP_GRACE_S: Final = 15.0
"""How long a cancelled turn may take to end before the app is closed over it."""


@dataclass(frozen=True, slots=True)
class Task:
    """What to do, and within which bounds."""

    text: str
    """The task itself."""
    deployment: Deployment
    """What to do it with."""
    folder: Path
    """Where commands run."""
    model: str | None = None
    """Instead of the deployment's model."""
    effort: str | None = None
    """Instead of the deployment's effort."""
    max_steps: int | None = None
    max_tokens: int | None = None
    max_turn_tokens: int | None = None
    timeout_s: float | None = None
    """Longest time for all of it, in seconds."""
    schema: Mapping[str, JsonValue] | None = None
    """JSON Schema that the answer must fit."""
    past: ResumeFrom | None = None
    """The stored session to go on with."""
    ephemeral: bool = False
    """Whether nothing may be kept."""


class Refused(CliError):
    """The model cannot be called as things stand; nothing has been done."""

    exit_code = USAGE


@dataclass(frozen=True, slots=True)
class Stop:
    """Why a run is being ended from outside."""

    exit_code: int
    reason: str
    """For the log."""
    message: str | None
    """For the person."""
    unless_done: bool = False
    """A turn that completed all the same counts as completed."""


async def perform(task: Task, view: View, signals: Signals, logs: Logs) -> Report:
    """Do a task and return how it ended; the view has shown everything but the end.

    Args:
        task: The task.
        view: Where to show it.
        signals: What may interrupt it.
        logs: Opened once the app has started.
    """
    return await _Runner(task, view, signals, logs).run()


class _Runner:
    """One task under way; see `perform`."""

    def __init__(self, task: Task, view: View, signals: Signals, logs: Logs) -> None:
        self._task = task
        self._view = view
        self._signals = signals
        self._logs = logs
        self._scope = anyio.CancelScope()
        self._stop: Stop | None = None
        self._agent: Agent | None = None
        self._kept: str | None = None
        self._written = anyio.Event()
        self._report: Report | None = None
        self._error: BaseException | None = None

    async def run(self) -> Report:
        """Do the task, with everything that may end it beside it."""
        async with anyio.create_task_group() as group:
            group.start_soon(self._watch_signals)
            group.start_soon(self._write_out)
            if self._task.timeout_s is not None:
                group.start_soon(self._watch_time, self._task.timeout_s)
            try:
                with self._scope:
                    await self._work()
            except Exception as error:  # noqa: BLE001 - becomes the report
                self._error = unwrap(error)
            except BaseExceptionGroup as error:
                # code that raises KeyboardInterrupt ends the event loop, which is on its way to
                # tell `main`; here all that is left is to be gone in good order
                self._error = unwrap(error)
                self._view.err.line(
                    f"dsh: code raised {type(self._error).__name__}; no signal came"
                )
            group.cancel_scope.cancel()
        return self._final()

    # -- the work ----------------------------------------------------------------------------

    async def _work(self) -> None:
        task = self._task
        async with AsyncExitStack() as stack:
            app = await self._open(stack)
            self._logs.open()
            model = self._checked_model(app)
            check_ephemeral(app, task.ephemeral)
            app.ctx.on(SessionEventAppended, self._appended)
            with explained_store_errors(task.ephemeral, task.past):
                opened = app.agent(
                    model=model,
                    effort=task.effort,
                    cwd=task.folder if task.past is None else None,
                    max_steps=task.max_steps,
                    max_tokens=task.max_tokens,
                    max_turn_tokens=task.max_turn_tokens,
                    resume=await session_to_resume(app, task.past),
                )
                agent = await stack.enter_async_context(opened)
            # what has been made so far stays to the end; collections need not look at it
            gc.freeze()
            gc.enable()
            await self._talk(app, agent, model)

    async def _open(self, stack: AsyncExitStack) -> LoadedApp:
        task = self._task
        try:
            with explained_store_errors(task.ephemeral):
                return await stack.enter_async_context(open_app(task.deployment))
        except BootError as error:
            waiting = all(problem.kind == "pending" for problem in error.problems)
            if not (waiting and task.deployment.without_bundle):
                raise
            raise UsageError("no model service is mounted", hint=bundle_hint()) from error

    async def _talk(self, app: LoadedApp, agent: Agent, model: str) -> None:
        begin = agent.session.seq
        self._view.start(agent, model, app[ToolRegistry])
        if self._task.past is None:  # what a session went through before was shown then
            begin = 0
            for event in agent.session.events:
                self._view.event(event)
        self._agent = agent
        try:
            report = await self._ask(agent)
            self._report = with_store_trouble(report, agent.session.events[begin:])
        finally:
            self._agent = None
            if is_kept(app, agent):
                self._kept = agent.session.id

    async def _ask(self, agent: Agent) -> Report:
        task = self._task
        if task.schema is None:
            return report_outcome(await agent.ask(task.text, check=False))
        try:
            value = await agent.ask(task.text, output=task.schema)
        except TurnFailed as error:
            return report_outcome(error.outcome)
        except OutputInvalid as error:
            report = report_outcome(error.outcome)
            return Report(
                exit_code=ERROR,
                reason=report.reason,
                text=report.text,
                usage=report.usage,
                message=error.message,
                code=error.code,
                hint="the schema may be too strict for the model, or the task does not fit it",
            )
        turn = agent.session.last_turn
        text = djson.dumps(value).decode()
        return report_outcome(turn_outcome(agent.session, turn), text)

    def _checked_model(self, app: LoadedApp) -> str:
        """Return the full name of the model, if nothing is known to be in the way of using it.

        Raises:
            Refused: Nobody serves it, its key is missing, or it has no such effort.
        """
        name = self._task.model or self._task.deployment.model
        if name is None:
            raise UsageError("no model is named", hint="use --model, or set `model` in dsh.yaml")
        service = app.get(LlmService)
        if service is None:
            raise UsageError("no model service is mounted", hint=bundle_hint())
        problem = service.preflight(name, self._task.effort or self._task.deployment.effort)
        if problem is not None:
            raise self._refused(name, problem)
        return service.resolve(name).qualified

    def _refused(self, name: str, problem: Problem) -> Refused:
        past, message, hint = self._task.past, problem.message, problem.hint
        if problem.code == LlmError.UNSUPPORTED_REASONING_EFFORT:
            where = "--effort" if self._task.effort else self._task.deployment.where(("effort",))
            message = f"{where}: {message}"
        if past is not None and name == past.model and problem.code == LlmError.NO_ADAPTER:
            hint = "that is what the session asked before; go on with another: --model NAME"
        return Refused(message, code=problem.code, hint=hint)

    # -- output ------------------------------------------------------------------------------

    def _appended(self, event: SessionEventAppended) -> None:
        agent = self._agent
        if agent is None or event.session is not agent.session:
            return
        try:
            self._view.event(event.event)
        except CliError as error:
            self._output_failed(error)
        self._written.set()

    async def _write_out(self) -> None:
        """Write what was collected, once for all that one read of the network brought."""
        while True:
            await self._written.wait()
            self._written = anyio.Event()
            try:
                self._view.out.flush()
            except CliError as error:
                self._output_failed(error)

    def _output_failed(self, error: CliError) -> None:
        quiet = isinstance(error, ClosedPipe)
        code = CLOSED_PIPE if quiet else ERROR
        self._end(Stop(code, error.message, None if quiet else error.message))

    # -- ending it from outside --------------------------------------------------------------

    async def _watch_signals(self) -> None:
        number = await self._signals.wait()
        if number == signal.SIGINT:
            self._view.err.line("dsh: interrupting; once more to stop at once")
            self._end(Stop(INTERRUPTED, "interrupted", "interrupted"))
        elif number == signal.SIGTERM:
            self._end(Stop(TERMINATED, "terminated", "terminated"))
        else:
            self._end(Stop(HANGUP, "hangup", "the terminal was closed"))
        await self._give_up()

    async def _watch_time(self, seconds: float) -> None:
        await anyio.sleep(seconds)
        message = f"stopped: the time limit of {seconds:g} s is over"
        self._end(Stop(ERROR, "timeout", message, unless_done=True))
        await self._give_up()

    async def _give_up(self) -> None:
        await anyio.sleep(STOP_GRACE_S)
        self._scope.cancel()

    def _end(self, stop: Stop) -> None:
        """Have the turn end, or the start of the app where there is no turn yet."""
        if self._stop is not None:
            return
        self._stop = stop
        if self._agent is None:
            self._scope.cancel()
        else:
            with suppress(DshError):  # it is being disposed already
                self._agent.cancel(stop.reason)

    # -- the end -----------------------------------------------------------------------------

    def _final(self) -> Report:
        report = self._outcome()
        # a session that could not be kept is none to go on with
        kept = None if report.exit_code == USAGE else self._kept
        return replace(report, session_id=kept)

    def _outcome(self) -> Report:
        report, stop, error = self._report, self._stop, self._error
        done = report is not None and report.exit_code == OK
        if stop is not None and not (done and stop.unless_done):
            return Report(
                exit_code=stop.exit_code,
                reason=report.reason if report else {"kind": "aborted", "reason": stop.reason},
                text=report.text if report else "",
                usage=report.usage if report else None,
                message=stop.message,
            )
        if error is not None:
            show_stack(error)
            message, code, hint = describe(error)
            return Report(
                exit_code=exit_code_of(error),
                reason={"kind": "error", "message": message, "code": code},
                message=message,
                code=code,
                hint=hint,
            )
        assert report is not None  # the work either raises, is stopped, or reports
        return report
