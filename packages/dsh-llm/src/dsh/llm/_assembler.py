"""Turns the chunks of a stream into the blocks of a message."""

from __future__ import annotations

from typing import cast

from dsh.core import JsonObject, JsonValue
from dsh.llm._chunks import (
    STOP,
    BlockEnd,
    BlockStart,
    Finish,
    FinishReason,
    ReasoningDelta,
    StreamChunk,
    TextDelta,
    TokenUsage,
    ToolCallDelta,
    UsageChunk,
)
from dsh.llm._content import (
    ContentBlock,
    Message,
    ReasoningBlock,
    ReplayState,
    TextBlock,
    ToolCallBlock,
)
from dsh.llm.errors import LlmError


class BlockAssembler:
    """Assembles one answer. Every consumer uses this one, so all agree on what was said.

    It is tolerant where `StreamGrammar` is strict: deltas need no block-start, blocks need no
    block-end, and what comes for a block that is already closed is ignored. Reading never changes
    anything and can be repeated at any time.
    """

    def __init__(self) -> None:
        self._partials: dict[int, _Partial] = {}
        self._usage: TokenUsage | None = None
        self._finish: Finish | None = None

    def push(self, chunk: StreamChunk) -> ContentBlock | None:
        """Take the next chunk.

        Returns:
            The completed block when the chunk is the first block-end of its block.

        Raises:
            LlmError: MALFORMED_RESPONSE, if it is no chunk of the protocol.
        """
        match chunk:
            case TextDelta(index=index) | ReasoningDelta(index=index):
                kind = "text" if isinstance(chunk, TextDelta) else "reasoning"
                partial = self._partials.get(index) or self._open(index, kind)
                if partial.block is None:
                    partial.text.append(chunk.text)
            case ToolCallDelta():
                partial = self._partials.get(chunk.index) or self._open(chunk.index, "tool-call")
                if partial.block is None:
                    partial.add_call(chunk)
            case BlockStart():
                if chunk.index not in self._partials:
                    self._open(chunk.index, chunk.block_type)
            case BlockEnd():
                partial = self._partials.get(chunk.index) or self._open(
                    chunk.index, chunk.block.type
                )
                if partial.block is None:
                    partial.block = chunk.block
                    return chunk.block
            case UsageChunk():
                self._usage = chunk.usage
            case Finish():
                self._finish = chunk
            case _:
                raise LlmError(
                    f"an answer's stream holds {chunk!r}, which is no chunk of the protocol",
                    code=LlmError.MALFORMED_RESPONSE,
                    hint="yield only the chunk classes of dsh.llm",
                )
        return None

    def _open(self, index: int, kind: str) -> _Partial:
        partial = self._partials[index] = _Partial(index, kind)
        return partial

    def blocks(self) -> tuple[ContentBlock, ...]:
        """Return the blocks in first-seen order, those still open as far as they have come.

        Raises:
            LlmError: MALFORMED_RESPONSE, if a block of a kind that has no deltas is open.
        """
        return tuple([partial.read() for partial in self._partials.values()])

    def message(self) -> Message:
        """Return the answer as an assistant message.

        After a finish of kind `max-tokens` it has no tool calls: their arguments may be cut off.

        Raises:
            LlmError: As `blocks` does.
        """
        blocks = self.blocks()
        kept = blocks
        if self.finish.kind == "max-tokens":
            kept = tuple([block for block in blocks if not isinstance(block, ToolCallBlock)])
        return Message("assistant", kept, self._replay(blocks, kept))

    def interrupted_blocks(self) -> tuple[ContentBlock, ...]:
        """Return what a person has seen of an answer that was broken off.

        That is every text and reasoning block with more than white space in it; tool calls never
        ran and are left out, as is any other open block.
        """
        found: list[ContentBlock] = []
        for partial in self._partials.values():
            block = partial.block or partial.visible()
            if isinstance(block, TextBlock | ReasoningBlock) and block.text.strip():
                found.append(block)
        return tuple(found)

    @property
    def usage(self) -> TokenUsage | None:
        """The last token counts seen, or None."""
        return self._usage

    @property
    def finish(self) -> FinishReason:
        """Why the answer ended; `stop` as long as no finish has come."""
        return STOP if self._finish is None else self._finish.reason

    @property
    def finished(self) -> bool:
        """Whether a finish has come."""
        return self._finish is not None

    def _replay(
        self, blocks: tuple[ContentBlock, ...], kept: tuple[ContentBlock, ...]
    ) -> ReplayState | None:
        """Return the replay state that fits the kept blocks."""
        replay = None if self._finish is None or self.finish.failed else self._finish.replay
        if replay is None or "blocks" not in replay.state:
            return replay
        entries = replay.state["blocks"]
        if not isinstance(entries, list) or len(entries) != len(blocks):
            return None
        if len(kept) == len(blocks):
            return replay
        remaining = [
            entry
            for entry, block in zip(entries, blocks, strict=True)
            if not isinstance(block, ToolCallBlock)
        ]
        state: JsonObject = {**replay.state, "blocks": cast("JsonValue", remaining)}
        return ReplayState(replay.provider, replay.model, state)


class _Partial:
    """A block in the making; `block` once it is closed."""

    __slots__ = ("arguments", "block", "id", "index", "kind", "name", "text")

    def __init__(self, index: int, kind: str) -> None:
        self.index = index
        self.kind = kind
        self.block: ContentBlock | None = None
        # Separate buffers: text that strays into a tool call must not corrupt its arguments.
        self.text: list[str] = []
        self.arguments: list[str] = []
        self.id = ""
        self.name = ""

    def add_call(self, chunk: ToolCallDelta) -> None:
        # An id that was given once stays, as the name does: the result has to find its call.
        if chunk.id:
            self.id = chunk.id
        if chunk.name:
            self.name = chunk.name
        self.arguments.append(chunk.arguments_delta)

    def visible(self) -> ContentBlock | None:
        if self.kind == "text":
            return TextBlock("".join(self.text))
        if self.kind == "reasoning":
            return ReasoningBlock("".join(self.text))
        return None

    def read(self) -> ContentBlock:
        block = self.block or self.visible()
        if block is not None:
            return block
        if self.kind == "tool-call":
            call_id = self.id or f"call-{self.index}"
            return ToolCallBlock(call_id, self.name, "".join(self.arguments))
        raise LlmError(
            f"block {self.index} of an answer is a {self.kind!r} and was never closed, "
            "so nobody knows what is in it",
            code=LlmError.MALFORMED_RESPONSE,
            hint="an adapter closes every block of a kind of its own with a block-end",
        )
