"""Checks of the tool pipeline: the order of its stages and what it ends with."""

from __future__ import annotations

from collections.abc import Iterable
from weakref import WeakKeyDictionary

from dsh.core import Context, Event
from dsh.invariants._immutable import mutable_part
from dsh.invariants._service import Reporter
from dsh.session import LiveSessions, Session
from dsh.tools import ExecutionToken, ToolExecution, ToolExecutionResult
from dsh.tools.events import ToolExecute, ToolFinished, ToolPostExecute, ToolPreExecute

__all__ = ["install"]


class _Calls:
    """The stages each execution has been through."""

    def __init__(self, report: Reporter, underway: Iterable[Session]) -> None:
        self._report = report
        # calls of a turn that was open at load may have passed stages nobody saw
        self._underway = WeakKeyDictionary({item: item.turn_open for item in underway})
        self._stages: WeakKeyDictionary[ExecutionToken, set[str]] = WeakKeyDictionary()

    def on_dispatch(self, event: Event, key: object, mode: str) -> None:
        match event:
            case ToolPreExecute(execution=execution):
                self._enter(execution, "pre-execute", once=True)
            case ToolExecute(execution=execution):
                self._enter(execution, "execute", after=("pre-execute",))
            case ToolPostExecute(execution=execution):
                self._enter(execution, "post-execute", after=("pre-execute", "execute"))
            case ToolFinished(execution=execution, result=result):
                self._enter(execution, "result", once=True)
                self._check_result(execution, result)
            case _:
                pass

    def _enter(
        self,
        execution: ToolExecution,
        stage: str,
        *,
        once: bool = False,
        after: tuple[str, ...] = (),
    ) -> None:
        report = self._report
        passed = self._stages.get(execution.token)
        if passed is None:
            if self._was_underway(execution):
                return
            passed = self._stages[execution.token] = set()
        where = f"call {execution.call_id!r} of {execution.name!r}"
        report.check("result" not in passed, f"{where} reaches {stage} after its result")
        report.check(not (once and stage in passed), f"{where} reaches {stage} twice")
        report.check(
            not after or any(stage in passed for stage in after),
            f"{where} reaches {stage} without {' or '.join(after)}",
        )
        passed.add(stage)

    def _was_underway(self, execution: ToolExecution) -> bool:
        if execution.agent is None:
            return False
        session = execution.agent.session
        turn = self._underway.get(session)
        return turn is not None and turn == session.turn_open

    def _check_result(self, execution: ToolExecution, result: ToolExecutionResult) -> None:
        report = self._report
        report.check(execution.name != "", "a tool call ends without a name")
        report.check(execution.call_id != "", f"a call of {execution.name!r} ends without an id")
        report.check(
            result.call_id == execution.call_id,
            f"the result of call {execution.call_id!r} is for {result.call_id!r}",
        )
        part = mutable_part(result, "result")
        report.check(part is None, f"the result of {execution.name!r} can still change: {part}")


def install(ctx: Context, report: Reporter) -> None:
    """Watch every call, except those of the turns that are open now."""
    store = ctx.get(LiveSessions)
    calls = _Calls(report, () if store is None else store.list())
    ctx.app.on_dispatch(ctx, calls.on_dispatch)
