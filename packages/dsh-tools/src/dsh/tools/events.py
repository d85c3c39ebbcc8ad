"""Events of the tool registry, in the order in which a call meets them."""

from __future__ import annotations

from dataclasses import dataclass

from dsh.core import Emit, Waterfall
from dsh.tools._decisions import PostToolDecision, PreToolDecision
from dsh.tools._execution import ToolExecution
from dsh.tools._results import ToolExecutionResult

__all__ = ["ToolExecute", "ToolFinished", "ToolPostExecute", "ToolPreExecute", "ToolsChange"]


@dataclass(frozen=True, slots=True)
class ToolPreExecute(
    Waterfall[PreToolDecision], name="tools/pre-execute", scope="execution.agent", realm="tools"
):
    """Allow, deny or ask before a tool runs. The base allows.

    Arguments cannot be changed here: what the model asked for is already logged. Guards run
    after this for everything that is not denied. A listener that raises, or that returns
    something else than a decision, refuses the call.
    """

    execution: ToolExecution
    """The call."""


@dataclass(frozen=True, slots=True)
class ToolExecute(
    Waterfall[ToolExecutionResult], name="tools/execute", scope="execution.agent", realm="tools"
):
    """Wrap the run of a tool: deadlines, caches, sandboxes, retries. The base runs the tool.

    A tool that raises is already an error result when `next()` returns. Returning a result of
    one's own without `next()` skips the tool. `next(ToolExecute(execution.with_arguments(…)))`
    runs it with other arguments. Denied calls do not come here.
    """

    execution: ToolExecution
    """The call; its `signal` may be replaced."""


@dataclass(frozen=True, slots=True)
class ToolPostExecute(
    Waterfall[PostToolDecision], name="tools/post-execute", scope="execution.agent", realm="tools"
):
    """Accept a result, replace its content, or block it. The base accepts it as it is.

    Runs for results and for denials, not when a policy or a wrapper broke down.
    """

    execution: ToolExecution
    """The call."""
    result: ToolExecutionResult
    """The result, immutable; only the returned decision counts."""


@dataclass(frozen=True, slots=True)
class ToolFinished(Emit, name="tools/result", scope="execution.agent", realm="tools"):
    """A call is over, with the outcome that is about to be logged. Exactly one per call."""

    execution: ToolExecution
    """The call; nothing of it can change any more."""
    result: ToolExecutionResult
    """The outcome, immutable through and through."""


@dataclass(frozen=True, slots=True)
class ToolsChange(Emit, name="tools/change", errors="raise", realm="tools"):
    """A tool or a restriction was added or removed.

    Of no scope: heard outside of scopes, and with `audience="all"`. A listener that raises while
    something is added rolls the addition back.
    """
