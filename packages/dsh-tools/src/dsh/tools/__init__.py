"""The tool registry and the pipeline that runs a call."""

from dsh.agent import HookContext
from dsh.tools._arguments import InvalidArguments, parse_arguments
from dsh.tools._deadline import Deadline
from dsh.tools._decisions import Accept, Allow, Ask, Block, Deny, PostToolDecision, PreToolDecision
from dsh.tools._execution import ExecutionToken, ToolCallInput, ToolExecution
from dsh.tools._function import FunctionTool, tool
from dsh.tools._output import NO_OUTPUT
from dsh.tools._output_tool import OutputTool
from dsh.tools._pending import PendingCall
from dsh.tools._presentation import (
    CallView,
    Diff,
    DiffCard,
    DiffResult,
    GenericCard,
    GenericResult,
    Location,
    ResultView,
    TerminalCard,
    TerminalResult,
    ToolKind,
    ToolOutcome,
)
from dsh.tools._registry import ToolRegistry
from dsh.tools._results import ToolExecutionResult, ToolOutput
from dsh.tools._tool import CallPresenter, Concurrency, ResultPresenter, Tool, ToolBody
from dsh.tools._visibility import Guard
from dsh.tools.errors import (
    ToolArgsError,
    ToolCallError,
    ToolDecisionError,
    ToolDefinitionError,
    ToolNotFoundError,
    ToolOutputError,
    ToolRegistrationError,
    ToolTimeoutError,
)
from dsh.tools.events import (
    ToolExecute,
    ToolFinished,
    ToolPostExecute,
    ToolPreExecute,
    ToolsChange,
)

__all__ = [
    "NO_OUTPUT",
    "Accept",
    "Allow",
    "Ask",
    "Block",
    "CallPresenter",
    "CallView",
    "Concurrency",
    "Deadline",
    "Deny",
    "Diff",
    "DiffCard",
    "DiffResult",
    "ExecutionToken",
    "FunctionTool",
    "GenericCard",
    "GenericResult",
    "Guard",
    "HookContext",
    "InvalidArguments",
    "Location",
    "OutputTool",
    "PendingCall",
    "PostToolDecision",
    "PreToolDecision",
    "ResultPresenter",
    "ResultView",
    "TerminalCard",
    "TerminalResult",
    "Tool",
    "ToolArgsError",
    "ToolBody",
    "ToolCallError",
    "ToolCallInput",
    "ToolDecisionError",
    "ToolDefinitionError",
    "ToolExecute",
    "ToolExecution",
    "ToolExecutionResult",
    "ToolFinished",
    "ToolKind",
    "ToolNotFoundError",
    "ToolOutcome",
    "ToolOutput",
    "ToolOutputError",
    "ToolPostExecute",
    "ToolPreExecute",
    "ToolRegistrationError",
    "ToolRegistry",
    "ToolTimeoutError",
    "ToolsChange",
    "parse_arguments",
    "tool",
]
