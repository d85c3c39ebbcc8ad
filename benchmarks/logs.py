"""Session logs of the kinds that are stored and read again."""

from __future__ import annotations

import random
from collections.abc import Generator, Sequence

from benchmarks.children import ROOT
from dsh.llm import (
    BlockEnd,
    BlockStart,
    Finish,
    FinishReason,
    StreamChunk,
    TextBlock,
    TextDelta,
    TokenUsage,
    ToolCallBlock,
    ToolCallDelta,
    UsageChunk,
)
from dsh.session import (
    APPEND,
    AssistantChunk,
    AssistantMessage,
    Completed,
    MessageTrigger,
    Session,
    SessionData,
    SessionEvent,
    StepEnd,
    StepStart,
    SurfaceOp,
    ToolCall,
    ToolResult,
    TurnEnd,
    TurnStart,
    UserMessage,
    UserSource,
)

STARTED = 1_700_000_000_000
"""When the logs begin, in epoch milliseconds."""

GAPS_MS = (5, 40)
"""The least and the most time between two deltas."""

DELTA_CHARS = (3, 6)
"""The shortest and the longest delta."""


class Answers:
    """The log of a session whose model answers with prose, at the pace of a provider.

    The time is that of the log alone: nothing waits.

    Args:
        prose: What it answers with, again and again.
    """

    def __init__(self, prose: str) -> None:
        self.events: list[SessionEvent] = []
        self._prose = prose
        self._at = 0
        self._time = STARTED
        self._turn = 0
        self._dice = random.Random(1)

    def turn(self, deltas: int) -> str:
        """Add a turn with one answer of so many deltas; return the answer."""
        self._turn += 1
        turn = self._turn
        self._add(TurnStart(turn, MessageTrigger(UserSource())))
        self._add(UserMessage((TextBlock("Tell me all about it."),), UserSource()), APPEND)
        self._add(StepStart(turn, 1))
        first = len(self.events)
        self._chunk(BlockStart(0, "text"))
        pieces = list(self._pieces(deltas))
        for piece in pieces:
            self._time += self._dice.randint(*GAPS_MS)
            self._chunk(TextDelta(0, piece))
        block = TextBlock("".join(pieces))
        usage = TokenUsage(10, deltas)
        for chunk in (BlockEnd(0, block), UsageChunk(usage), Finish(FinishReason("stop"))):
            self._chunk(chunk)
        seqs = tuple(range(first, len(self.events)))
        self._add(AssistantMessage(turn, 1, (block,), usage), APPEND, seqs)
        self._add(StepEnd(turn, 1))
        self._add(TurnEnd(turn, Completed()))
        return block.text

    def _pieces(self, count: int) -> Generator[str]:
        for _ in range(count):
            size = self._dice.randint(*DELTA_CHARS)
            if self._at + size > len(self._prose):
                self._at = 0
            yield self._prose[self._at : self._at + size]
            self._at += size

    def _chunk(self, chunk: StreamChunk) -> None:
        self._add(AssistantChunk(self._turn, 1, chunk))

    def _add(
        self,
        data: SessionData,
        surface_op: SurfaceOp | None = None,
        source_event_seqs: tuple[int, ...] | None = None,
    ) -> None:
        seq = len(self.events)
        self.events.append(SessionEvent(seq, self._time, data, surface_op, source_event_seqs))


def prose() -> str:
    """Return some English of the repository, in paragraphs."""
    pages = sorted(page for page in ROOT.glob("docs/**/*.md") if "catalog" not in page.parts)
    lines = (line for page in pages for line in page.read_text("utf-8").splitlines())
    # what is wrapped in the source is one line in an answer; tables and programs are none
    words = " ".join(line for line in lines if line[:1].isalpha())
    return words.replace(". ", ".\n\n", len(words) // 1000)


def begin_turn(session: Session) -> None:
    """Append the beginning of a turn."""
    session.append(TurnStart(1, MessageTrigger(UserSource())))


def write_round(session: Session, step: int) -> None:
    """Append a step of the open turn as a loop does, in which a tool is called."""
    call_id = f"call-{step}"
    call = ToolCallBlock(call_id, "echo", '{"text":"hello"}')
    chunks: Sequence[StreamChunk] = (
        BlockStart(0, "tool-call"),
        ToolCallDelta(0, call_id, '{"text"', "echo"),
        ToolCallDelta(0, call_id, ':"hello"}'),
        BlockEnd(0, call),
        UsageChunk(TokenUsage(10, 5)),
        Finish(FinishReason("tool-calls")),
    )
    session.append(StepStart(1, step))
    seqs = [session.append(AssistantChunk(1, step, chunk)).seq for chunk in chunks]
    session.append(AssistantMessage(1, step, (call,), TokenUsage(10, 5)), APPEND, seqs)
    called = session.append(ToolCall(1, step, call_id, call.name, call.arguments))
    result = ToolResult(1, step, call_id, (TextBlock("hello"),))
    session.append(result, APPEND, (called.seq,))
    session.append(StepEnd(1, step))
