"""What a run shows: an answer with tool lines beside it, or one JSON event a line."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Final

from dsh.agent import Agent
from dsh.cli._failures import error_object, say
from dsh.cli._out import Err, Out, share_terminal
from dsh.cli._text import one_line
from dsh.cli._tool_lines import ToolLines
from dsh.core import json as djson
from dsh.llm import (
    BlockEnd,
    ContentBlock,
    ReasoningBlock,
    TextBlock,
    TextDelta,
    TokenUsage,
    ToolCallBlock,
    ToolResultBlock,
    alt_text,
    to_wire,
)
from dsh.session import (
    AssistantChunk,
    AssistantMessage,
    SessionEvent,
    ToolCall,
    ToolResult,
    event_to_wire,
)
from dsh.sessions import short_id
from dsh.tools import ToolRegistry

RESUME_WITH: Final = "resume with: dsh run --resume"
"""What stands before the id of the session that was kept."""

_SHOWN: Final = (TextBlock, ReasoningBlock, ToolCallBlock, ToolResultBlock)
"""Blocks that are shown in other ways, or on purpose not at all."""


@dataclass(frozen=True, slots=True)
class Report:
    """How a run ended."""

    exit_code: int
    """What the process returns."""
    reason: dict[str, Any]
    """The reason in its wire form, with its `kind`."""
    text: str = ""
    """The final answer."""
    usage: TokenUsage | None = None
    """Tokens of all model requests."""
    message: str | None = None
    """What the person should be told; `None` if all went well."""
    code: str | None = None
    """Stable code of the failure, if it was one."""
    hint: str | None = None
    """What to do about it."""
    session_id: str | None = None
    """The session that was kept, if one was."""


class View(ABC):
    """Shows one run.

    Args:
        out: Standard output.
        err: Standard error.
    """

    def __init__(self, out: Out, err: Err) -> None:
        self.out = out
        self.err = err

    @abstractmethod
    def start(self, agent: Agent, model: str, tools: ToolRegistry) -> None:
        """Begin: the agent exists and has been asked nothing yet.

        Args:
            agent: The agent.
            model: The model's full name.
            tools: Knows the tools that the agent sees.
        """

    @abstractmethod
    def event(self, event: SessionEvent) -> None:
        """Show one event of the agent's log."""

    @abstractmethod
    def end(self, report: Report) -> None:
        """Finish: everything is closed."""

    def tell(self, report: Report) -> None:
        """Write the message of a report to stderr."""
        if report.message:
            say(report.message, report.hint)


class TextView(View):
    """The answer on stdout as it comes, tool calls and their outcomes on stderr.

    Args:
        out: Standard output.
        err: Standard error.
        quiet: Show no tool lines.
        final_only: Show the final answer alone, once it is known.
    """

    def __init__(self, out: Out, err: Err, *, quiet: bool, final_only: bool) -> None:
        super().__init__(out, err)
        self._quiet = quiet
        self._final_only = final_only
        self._shared = share_terminal(out, err)
        self._lines = ToolLines()

    def start(self, agent: Agent, model: str, tools: ToolRegistry) -> None:
        """Remember how tool calls look."""
        self._lines = ToolLines(tools, agent)

    def event(self, event: SessionEvent) -> None:
        """Show text as it comes and one line for each call and each result."""
        data = event.data
        if isinstance(data, AssistantChunk):
            chunk = data.chunk
            if isinstance(chunk, TextDelta) and not self._final_only:
                self.out.write(chunk.text)
            elif isinstance(chunk, BlockEnd) and not isinstance(chunk.block, _SHOWN):
                self._note(_foreign(chunk.block))
        elif isinstance(data, AssistantMessage):
            self._end_line()
        elif isinstance(data, ToolCall):
            self._note(self._lines.call(data))
        elif isinstance(data, ToolResult):
            self._note(self._lines.result(data))

    def end(self, report: Report) -> None:
        """Finish the line, and say why the run ended if it did not complete."""
        if self._final_only and report.message is None:
            self.out.write(report.text)
        self._end_line()
        self.out.flush()
        self.tell(report)
        if report.session_id is not None and not self._quiet:
            self.err.line(f"{RESUME_WITH} {short_id(report.session_id)}", dim=True)

    def _end_line(self) -> None:
        if not self.out.at_line_start:
            self.out.write("\n")

    def _note(self, line: str) -> None:
        if self._quiet:
            return
        if self._shared or self.out.pending:
            # what was said before the call is to be read before it
            if self._shared:
                self._end_line()
            self.out.flush()
        self.err.line(line, dim=True)


def _foreign(block: ContentBlock) -> str:
    """Return a line for a block of a kind that some wheel added."""
    return one_line(f"[{block.type}] {alt_text(block) or ''}").rstrip()


class JsonView(View):
    """One JSON object a line: `run/start`, the events of the log as they are, `run/end`."""

    def __init__(self, out: Out, err: Err) -> None:
        super().__init__(out, err)
        self._started = False

    def start(self, agent: Agent, model: str, tools: ToolRegistry) -> None:
        """Frame the run."""
        self._started = True
        self._line(
            {
                "type": "run/start",
                "version": 1,
                "agentId": agent.id,
                "sessionId": agent.session.id,
                "model": model,
                "cwd": agent.session.header.cwd,
            }
        )

    def event(self, event: SessionEvent) -> None:
        """Print one event in its wire form."""
        self._line(event_to_wire(event))

    def end(self, report: Report) -> None:
        """Frame the run; where none has begun, print a `run/error`."""
        self._line(self._last(report) if self._started else self._error(report))
        self.out.flush()
        self.tell(report)

    @staticmethod
    def _last(report: Report) -> dict[str, Any]:
        line: dict[str, Any] = {"type": "run/end", "reason": report.reason, "text": report.text}
        if report.usage is not None:
            line["usage"] = to_wire(report.usage)
        if report.message is not None and "message" not in report.reason:
            line["message"] = report.message
        line["exitCode"] = report.exit_code
        return line

    @staticmethod
    def _error(report: Report) -> dict[str, Any]:
        code = report.code or str(report.reason["kind"]).upper()
        return error_object(report.message or code, code, report.hint, report.exit_code)

    def _line(self, value: dict[str, Any]) -> None:
        self.out.write(djson.dumps(value).decode() + "\n")
