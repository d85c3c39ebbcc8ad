"""Adapters that break the protocol in every way: what the consumer gets is decided by an oracle.

All sequences of up to three things an adapter can do are tried, four with `DSH_EXHAUSTIVE=1`.
"""

from __future__ import annotations

import itertools
import json
import logging
import os
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Any

import pytest
from pydantic import TypeAdapter

from dsh.core import App
from dsh.llm import (
    STOP,
    BlockEnd,
    BlockStart,
    ContentBlock,
    Finish,
    FinishReason,
    LlmAdapter,
    LlmError,
    LlmFailure,
    LlmRequest,
    LlmService,
    Message,
    ReasoningBlock,
    ReasoningDelta,
    ReplayState,
    StreamChunk,
    TextBlock,
    TextDelta,
    TokenUsage,
    ToolCallBlock,
    ToolCallDelta,
    UsageChunk,
)
from dsh.llm.testing import collect

LONGEST = 4 if os.environ.get("DSH_EXHAUSTIVE") else 3

RAISE = object()
FOREIGN: Any = {"type": "text-delta", "index": 0, "text": "a"}

ALPHABET: tuple[Any, ...] = (
    BlockStart(0, "text"),
    BlockStart(0, "tool-call"),
    BlockStart(1, "acme/chart"),
    TextDelta(0, "a"),
    ReasoningDelta(0, "r"),
    TextDelta(1, "b"),
    ToolCallDelta(0, "i", '{"', "t"),
    ToolCallDelta(0, "", "}"),
    BlockEnd(0, TextBlock("whole")),
    BlockEnd(0, ToolCallBlock("j", "t", "{}")),
    BlockEnd(1, ReasoningBlock("why")),
    UsageChunk(TokenUsage(5, 5)),
    UsageChunk(TokenUsage(2, 1)),
    Finish(STOP),
    Finish(FinishReason("max-tokens")),
    Finish(FinishReason("error", "in band", "SERVER")),
    Finish(FinishReason("acme/paused")),
    RAISE,
    FOREIGN,
    None,
)

Stream = Callable[[], Any]


class Hostile(LlmAdapter):
    """Yields what it is told to, which may be no chunk, and raises what is an exception."""

    acts: Sequence[Any] = ()
    make: Stream | None = None

    def stream(self, request: LlmRequest) -> AsyncGenerator[StreamChunk, None]:
        return self._acts() if self.make is None else self.make()

    async def _acts(self) -> AsyncGenerator[StreamChunk, None]:
        for act in self.acts:
            if act is RAISE:
                raise RuntimeError("broke")
            if isinstance(act, Exception):
                raise act
            yield act


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Keep no thousands of tracebacks."""
    caplog.set_level(logging.CRITICAL, "dsh.llm")


REQUEST = LlmRequest("m", (Message("user", (TextBlock("hi"),)),))


@asynccontextmanager
async def hostile() -> AsyncGenerator[tuple[Hostile, LlmService], None]:
    adapter = Hostile()
    async with App() as app:
        await app.mount(LlmService).settled()
        app[LlmService].register(app.ctx, adapter, "p", ["m"])
        yield adapter, app[LlmService]


def sequences() -> Iterator[tuple[Any, ...]]:
    for length in range(LONGEST + 1):
        yield from itertools.product(ALPHABET, repeat=length)


def expected_stream(acts: Sequence[Any]) -> tuple[list[StreamChunk], str, str | None]:
    """Return the chunks before the finish, and the kind and the code of the finish."""
    passed: list[StreamChunk] = []
    for act in acts:
        if act is RAISE:
            return passed, "error", LlmError.UNKNOWN
        if act is None or act is FOREIGN:
            return passed, "error", LlmError.MALFORMED_RESPONSE
        if isinstance(act, Finish):
            return passed, act.reason.kind, act.reason.code
        passed.append(act)
    return passed, "error", LlmError.STREAM_CLOSED


def expected_blocks(chunks: Sequence[StreamChunk]) -> list[ContentBlock] | None:
    """Return the blocks these chunks add up to; None if one of an unknown kind stays open."""
    blocks: list[ContentBlock] = []
    touching = [chunk for chunk in chunks if not isinstance(chunk, UsageChunk | Finish)]
    for index in dict.fromkeys(chunk.index for chunk in touching):
        mine = [chunk for chunk in touching if chunk.index == index]
        whole = [chunk.block for chunk in mine if isinstance(chunk, BlockEnd)]
        if whole:
            blocks.append(whole[0])
            continue
        first = mine[0]
        kind = first.block_type if isinstance(first, BlockStart) else first.type[: -len("-delta")]
        said = "".join(c.text for c in mine if isinstance(c, TextDelta | ReasoningDelta))
        calls = [chunk for chunk in mine if isinstance(chunk, ToolCallDelta)]
        if kind == "text":
            blocks.append(TextBlock(said))
        elif kind == "reasoning":
            blocks.append(ReasoningBlock(said))
        elif kind == "tool-call":
            ids = [call.id for call in calls if call.id] or [f"call-{index}"]
            names = [call.name for call in calls if call.name] or [""]
            arguments = "".join(call.arguments_delta for call in calls)
            blocks.append(ToolCallBlock(ids[-1], names[-1], arguments))
        else:
            return None
    return blocks


async def test_the_consumer_always_gets_exactly_one_finish() -> None:
    async with hostile() as (adapter, llm):
        for adapter.acts in sequences():
            passed, kind, code = expected_stream(adapter.acts)
            *seen, finish = await collect(llm.stream(REQUEST), check=False)
            assert seen == passed, adapter.acts
            assert isinstance(finish, Finish), adapter.acts
            assert (finish.reason.kind, finish.reason.code) == (kind, code), adapter.acts
            assert finish.reason.message or not finish.reason.failed, adapter.acts


async def test_the_whole_answer_is_well_formed_or_an_llm_error() -> None:
    wire = TypeAdapter(Message)
    async with hostile() as (adapter, llm):
        for adapter.acts in sequences():
            passed, kind, code = expected_stream(adapter.acts)
            blocks = expected_blocks(passed)
            if blocks is None and kind not in ("error", "aborted"):
                kind, code = "error", LlmError.MALFORMED_RESPONSE
            if kind == "error":
                with pytest.raises(LlmError) as caught:
                    await llm.generate(REQUEST)
                assert caught.value.code == code, adapter.acts
                continue
            assert blocks is not None
            if kind == "max-tokens":
                blocks = [block for block in blocks if not isinstance(block, ToolCallBlock)]
            result = await llm.generate(REQUEST)
            assert list(result.message.content) == blocks, adapter.acts
            dumped = wire.dump_json(result.message, by_alias=True)
            assert wire.validate_python(json.loads(dumped)) == result.message, adapter.acts
            usages = [chunk.usage for chunk in passed if isinstance(chunk, UsageChunk)]
            assert result.usage == (usages[-1] if usages else None), adapter.acts
            async with aclosing(llm.stream_blocks(REQUEST)) as stream:
                alone = [block async for block in stream]
            assert sorted(map(repr, alone)) == sorted(map(repr, blocks)), adapter.acts


NOTHING: Any = None
NO_BLOCK: Any = "x"
NO_TEXT: tuple[Any, ...] = (5, 1.5, True, b"a", [], {}, object())
NO_COUNT: tuple[Any, ...] = ("5", 1.5, True, b"a", [], {}, object())


def misfilled() -> Iterator[Any]:
    """Yield chunks of the protocol in which one field holds what it must not hold."""
    for value in (NOTHING, *NO_TEXT):
        yield BlockStart(0, value)
        yield TextDelta(0, value)
        yield ReasoningDelta(0, value)
        yield ToolCallDelta(0, value, "")
        yield ToolCallDelta(0, "i", value)
        yield BlockEnd(0, TextBlock(value))
        yield BlockEnd(0, ToolCallBlock(value, "t", ""))
        yield BlockEnd(0, ToolCallBlock("i", value, ""))
        yield BlockEnd(0, ToolCallBlock("i", "t", value))
        yield Finish(FinishReason(value))
    for value in NO_TEXT:
        yield ToolCallDelta(0, "i", "", value)
        yield Finish(FinishReason("error", value, "SERVER"))
        yield Finish(FinishReason("error", "no", value))
    for value in (NOTHING, *NO_COUNT):
        yield TextDelta(value, "a")
        yield BlockStart(value, "text")
        yield BlockEnd(value, TextBlock("a"))
        yield UsageChunk(TokenUsage(value, 1))
        yield UsageChunk(TokenUsage(1, value))
    for value in NO_COUNT:
        yield UsageChunk(TokenUsage(1, 1, value))
        yield UsageChunk(TokenUsage(1, 1, None, value))
        yield UsageChunk(TokenUsage(1, 1, None, None, value))
        yield Finish(STOP, value)
        yield Finish(FinishReason("error", "no", "SERVER", value))
    for value in (NOTHING, NO_BLOCK, *NO_TEXT):
        yield BlockEnd(0, value)
        yield UsageChunk(value)
        yield Finish(value)
        yield value
    yield Finish(STOP, ReplayState("p", "m", NOTHING))


async def test_a_chunk_with_a_field_of_another_type_is_a_malformed_answer() -> None:
    async with hostile() as (adapter, llm):
        for chunk in misfilled():
            adapter.acts = [TextDelta(0, "a"), chunk, Finish(STOP)]
            *seen, finish = await collect(llm.stream(REQUEST), check=False)
            assert seen == [TextDelta(0, "a")], chunk
            assert isinstance(finish, Finish)
            assert finish.reason.code == LlmError.MALFORMED_RESPONSE, chunk


@pytest.mark.parametrize(
    "facts",
    [
        {"status": 429.0},
        {"status": "429"},
        {"retry_after_ms": "5"},
        {"retry_after_ms": True},
        {"request_id": 5},
        {"request_id": b"r"},
    ],
)
def test_facts_of_another_type_are_refused_where_they_are_stated(facts: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"an HTTP status|retry_after_ms|request_id"):
        LlmFailure(**facts)


class _Iterator:
    """Iterates as it is told; its clean-up fails, is none, or works."""

    def __init__(self, step: Any, close: Any) -> None:
        self.__step, self.__close = step, close

    def __aiter__(self) -> _Iterator:
        return self

    def __anext__(self) -> Any:
        return self.__step()

    def aclose(self) -> Any:
        return self.__close()


async def _chunk() -> StreamChunk:
    return Finish(STOP)


async def _foreign() -> object:
    return None


async def _broken() -> StreamChunk:
    raise RuntimeError("broke")


async def _ended() -> StreamChunk:
    raise StopAsyncIteration


async def _closed() -> None:
    """Close without trouble."""


async def _close_fails() -> None:
    raise OSError("stuck")


def _sync() -> Iterator[StreamChunk]:
    yield Finish(STOP)


STEPS: list[tuple[Any, str | None]] = [
    (_chunk, None),
    (_foreign, LlmError.MALFORMED_RESPONSE),
    (_broken, LlmError.UNKNOWN),
    (_ended, LlmError.STREAM_CLOSED),
    (lambda: None, LlmError.UNKNOWN),
    (lambda: 1 / 0, LlmError.UNKNOWN),
]


@pytest.mark.parametrize(("step", "code"), STEPS)
@pytest.mark.parametrize("close", [_closed, _close_fails, lambda: None])
async def test_no_clean_up_takes_the_place_of_the_finish(
    step: Any, code: str | None, close: Any
) -> None:
    seen: list[StreamChunk] = []
    trouble: Exception | None = None
    async with hostile() as (adapter, llm):
        adapter.make = lambda: _Iterator(step, close)
        try:
            async with aclosing(llm.stream(REQUEST)) as chunks:
                async for chunk in chunks:
                    seen.append(chunk)
        except (OSError, TypeError) as error:
            trouble = error
    (finish,) = seen
    assert isinstance(finish, Finish)
    assert finish.reason.code == code
    assert (trouble is None) == (close is _closed)


@pytest.mark.parametrize(
    "make", [_sync, lambda: [Finish(STOP)], lambda: None, lambda: iter(()), _closed, object]
)
async def test_what_is_no_asynchronous_stream_is_an_invalid_adapter(make: Any) -> None:
    async with hostile() as (adapter, llm):
        adapter.make = make
        (finish,) = await collect(llm.stream(REQUEST))
    assert isinstance(finish, Finish)
    assert finish.reason.code == LlmError.INVALID_ADAPTER


@pytest.mark.parametrize("text", ["\udcff", "a\ud800b", "\x00"])
async def test_what_a_failure_says_can_be_stored(text: str) -> None:
    error = OSError(2, "no such file", text)
    vars(error)["code"] = text
    async with hostile() as (adapter, llm):
        adapter.acts = [error]
        (finish,) = await collect(llm.stream(REQUEST))
    TypeAdapter(StreamChunk).dump_json(finish)
