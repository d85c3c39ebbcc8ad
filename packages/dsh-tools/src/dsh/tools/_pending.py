"""A call between its two halves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dsh.core import Context
from dsh.session import ErrorInfo
from dsh.tools._execution import ToolExecution
from dsh.tools._failure import error_result, failure
from dsh.tools._pipeline import Pipeline
from dsh.tools._results import ToolExecutionResult
from dsh.tools.events import ToolFinished

if TYPE_CHECKING:
    from dsh.approval import Approval

__all__ = ["PendingCall"]


class PendingCall:
    """A call whose policies, guards and approval are through; `run` does the rest.

    Made by `ToolRegistry.begin`. Run it once, or abandon it; either way observers of
    `tools/result` see exactly one outcome.
    """

    def __init__(
        self,
        ctx: Context,
        pipeline: Pipeline,
        execution: ToolExecution,
        outcome: ToolExecutionResult | None,
    ) -> None:
        self._ctx = ctx
        self._pipeline = pipeline
        self._execution = execution
        self._denied: ToolExecutionResult | None = None
        self._outcome = outcome
        self._notified = False

    @property
    def execution(self) -> ToolExecution:
        """The call as listeners see it."""
        return self._execution

    @property
    def refused(self) -> bool:
        """Whether the tool will not run: denied, malformed, or a policy broke down."""
        return self._denied is not None or self._outcome is not None

    @property
    def result(self) -> ToolExecutionResult | None:
        """The outcome once there is one; nobody can change it."""
        return self._outcome

    async def admit(self, approval: Approval | None) -> None:
        """Run the first half; `ToolRegistry.begin` has done it already."""
        if self._outcome is not None:
            return
        try:
            reason = await self._pipeline.admit(self._execution, approval)
        except Exception as error:  # noqa: BLE001 - a broken policy refuses the call
            self._outcome = failure(self._execution.call_id, error)
            return
        if reason is not None:
            self._denied = error_result(self._execution.call_id, reason)

    async def run(self, *, notify: bool = True) -> ToolExecutionResult:
        """Run the tool inside its wrappers and let policies judge the result. Never raises.

        Args:
            notify: Tell observers at once. A loop that lets calls overlap passes False and
                calls `notify` in call order.

        Returns:
            The outcome. When the call was abandoned meanwhile, that one.
        """
        if self._outcome is None:
            outcome = await self._finish()
            if self._outcome is None:
                self._settle(outcome)
        return self._told(notify)

    def abandon(self, message: str, code: str, *, notify: bool = True) -> ToolExecutionResult:
        """Give up on a call: because it never ran, or because nobody waits for it any longer.

        What the tool still returns is dropped. A call that has an outcome keeps it.

        Args:
            message: What the model is told.
            code: Stable code of the error.
            notify: Tell observers at once.

        Returns:
            The outcome.
        """
        if self._outcome is None:
            error = ErrorInfo("ToolCallAbandoned", code)
            self._settle(error_result(self._execution.call_id, message, error))
        return self._told(notify)

    def notify(self) -> None:
        """Tell observers of `tools/result` what the call came to; once, however often called.

        Raises:
            Exception: What an observer of all dispatches (`app.on_dispatch`) raised; listeners
                are contained.
        """
        if self._notified or self._outcome is None:
            return
        self._notified = True
        self._execution.close()
        self._ctx.emit(ToolFinished(self._execution, self._outcome))

    def _told(self, notify: bool) -> ToolExecutionResult:
        if notify:
            try:
                self.notify()
            except Exception as error:  # noqa: BLE001 - a broken rule is loud, as the outcome
                self._outcome = failure(self._execution.call_id, error)
        assert self._outcome is not None
        return self._outcome

    async def _finish(self) -> ToolExecutionResult:
        execution = self._execution
        try:
            result = self._denied or await self._pipeline.perform(execution)
            return await self._pipeline.judge(execution, result)
        except Exception as error:  # noqa: BLE001 - a broken wrapper or policy is the outcome
            return failure(execution.call_id, error)

    def _settle(self, outcome: ToolExecutionResult) -> None:
        self._outcome = outcome
        self._execution.close()
