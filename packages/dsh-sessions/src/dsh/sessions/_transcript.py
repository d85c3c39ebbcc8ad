"""What happened in a session, as a person reads it: one entry for each thing that was said."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from dsh.llm import (
    BlockEnd,
    ContentBlock,
    Finish,
    StreamChunk,
    TextBlock,
    TextDelta,
    ToolCallBlock,
    alt_text,
)
from dsh.session import (
    TOOL_NOT_STARTED,
    AssistantChunk,
    AssistantMessage,
    ContextMessage,
    Failed,
    Interrupted,
    PromptBlocked,
    RequestHeaderDelta,
    RequestHeaderSnapshot,
    SessionEvent,
    SteeringMessage,
    StepEnd,
    ToolCall,
    ToolResult,
    TurnEnd,
    TurnEndReason,
    TurnStart,
    UserMessage,
)
from dsh.sessions._text import plain

__all__ = ["Called", "Entry", "Noted", "Prompted", "Said", "TurnBegan", "TurnEnded", "entries"]


@dataclass(frozen=True, slots=True)
class TurnBegan:
    """A turn begins."""

    number: int
    time: int


@dataclass(frozen=True, slots=True)
class Prompted:
    """A person, or who speaks for one, said something."""

    text: str


@dataclass(frozen=True, slots=True)
class Said:
    """The model said something."""

    text: str
    how: Literal["whole", "interrupted", "unfinished"] = "whole"
    """Whether that is all of it; of an `unfinished` answer the log has no message, only the part
    that was streamed before it broke off."""


@dataclass(frozen=True, slots=True)
class Called:
    """The model had a tool do something."""

    name: str
    arguments: str
    result: str
    problem: str | None
    """What is wrong with the result; None if nothing is."""


@dataclass(frozen=True, slots=True)
class Noted:
    """Something else that belongs to the story."""

    label: str
    text: str


@dataclass(frozen=True, slots=True)
class TurnEnded:
    """A turn ends; with `open`, the log does and the turn does not."""

    number: int
    told: str
    completed: bool
    duration_ms: int | None


Entry = TurnBegan | Prompted | Said | Called | Noted | TurnEnded


def entries(events: Iterable[SessionEvent]) -> Iterator[Entry]:
    """Yield what happened in a log, or in a part of it that begins with a turn."""
    story = _Story()
    for event in events:
        yield from story.tell(event)
    yield from story.end()


class _Story:
    """What of the log so far is not told yet."""

    def __init__(self) -> None:
        self._calls: dict[str, tuple[str, str]] = {}
        self._streamed: dict[int, list[str]] = {}
        self._turn: TurnStart | None = None
        self._began = 0
        self._model: str | None = None

    def tell(self, event: SessionEvent) -> Iterator[Entry]:
        """Yield what an event adds."""
        match event.data:
            case TurnStart() as data:
                self._turn, self._began = data, event.time
                yield TurnBegan(data.turn, event.time)
            case AssistantChunk() as data:
                self._chunk(data.chunk)
            case StepEnd():
                yield from self._unfinished()
            case TurnEnd() as data:
                yield from self._unfinished()
                yield from self._unanswered()
                self._turn = None
                completed = data.reason.kind == "completed"
                told = reason_told(data.reason)
                yield TurnEnded(data.turn, told, completed, event.time - self._began)
            case AssistantMessage() as data:
                yield from self._answer(data)
            case ToolCall() as data:
                self._calls[data.call_id] = (data.name, data.arguments)
            case ToolResult() as data:
                yield self._result(data)
            case RequestHeaderSnapshot() | RequestHeaderDelta() as data:
                yield from self._header(data)
            case data:
                yield from _message(data)

    def end(self) -> Iterator[Entry]:
        """Yield what the end of the log leaves open."""
        yield from self._unfinished()
        yield from self._unanswered()
        if self._turn is not None:
            told = "open: somebody works on it right now, or it was killed"
            yield TurnEnded(self._turn.turn, told, False, None)

    def _chunk(self, chunk: StreamChunk) -> None:
        match chunk:
            case TextDelta(index, text):
                self._streamed.setdefault(index, []).append(text)
            case BlockEnd(index, TextBlock(text)):
                self._streamed[index] = [text]
            case Finish(reason) if reason.kind not in {"aborted", "error"}:
                self._streamed.clear()  # it came whole: what became of it is told by its message
            case _:
                return

    def _unfinished(self) -> Iterator[Entry]:
        texts = ["".join(parts) for parts in self._streamed.values()]
        self._streamed.clear()
        text = "\n".join(text for text in texts if text.strip())
        if text:
            yield Said(text, "unfinished")

    def _answer(self, data: AssistantMessage) -> Iterator[Entry]:
        self._streamed.clear()
        texts: list[str] = []
        for block in data.content:
            if isinstance(block, ToolCallBlock):
                self._calls[block.id] = (block.name, block.arguments)
            elif isinstance(block, TextBlock):
                texts.append(block.text)
            elif block.type != "reasoning":
                texts.append(f"[{block.type}] {alt_text(block) or ''}".rstrip())
        text = "\n".join(text for text in texts if text.strip())
        if text or data.interrupted:
            yield Said(text, "interrupted" if data.interrupted else "whole")

    def _result(self, data: ToolResult) -> Called:
        name, arguments = self._calls.pop(data.call_id, ("a tool", ""))
        problem: str | None = None
        if data.synthetic:
            code = data.error.code if data.error is not None else ""
            unknown = "interrupted while it ran; its outcome is unknown"
            problem = "interrupted before it ran" if code == TOOL_NOT_STARTED else unknown
        elif data.is_error:
            problem = "failed" if data.error is None else f"failed [{data.error.code}]"
        return Called(name, arguments, plain(data.content), problem)

    def _unanswered(self) -> Iterator[Entry]:
        for name, arguments in self._calls.values():
            yield Called(name, arguments, "", "no result is recorded")
        self._calls.clear()

    def _header(self, data: RequestHeaderSnapshot | RequestHeaderDelta) -> Iterator[Entry]:
        config = data.header.config if isinstance(data, RequestHeaderSnapshot) else data.config
        if config is not None and config.model != self._model:
            self._model = config.model
            yield Noted("model", config.model)


def _message(data: object) -> Iterator[Entry]:
    match data:
        case UserMessage(content=content):
            yield Prompted(_prompt(content))
        case SteeringMessage(content=content):
            yield Noted("steering", plain(content))
        case ContextMessage(content=content):
            yield Noted("context", plain(content))
        case PromptBlocked(content=content, reason=reason):
            yield Noted("blocked", f"{plain(content)}\n({reason})")
        case _:
            return


def _prompt(content: Iterable[ContentBlock]) -> str:
    return plain(content) or "(nothing that could be shown)"


def reason_told(reason: TurnEndReason) -> str:
    """Return how a turn ended, in a few words."""
    match reason:
        case Failed(message=message, code=code):
            return f"error: {message}" + (f" [{code}]" if code else "")
        case Interrupted():
            return "interrupted: the process ended before the turn did"
        case _:
            detail = getattr(reason, "reason", None) or getattr(reason, "message", None)
            return f"{reason.kind}: {detail}" if isinstance(detail, str) else reason.kind
