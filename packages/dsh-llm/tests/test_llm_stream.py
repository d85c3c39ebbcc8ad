"""Streaming through the service: one finish, whatever the adapter does."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from typing import Any, cast

import anyio
import pytest
from anyio.lowlevel import checkpoint

from dsh.core import App, NextStream
from dsh.llm import (
    STOP,
    BlockEnd,
    BlockStart,
    CancelSignal,
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
    UsageChunk,
)
from dsh.llm.events import LlmStream
from dsh.llm.testing import collect

Body = Callable[[LlmRequest], AsyncGenerator[StreamChunk, None]]


class Script(LlmAdapter):
    """Runs a function as the stream and keeps the requests."""

    def __init__(self, body: Body) -> None:
        self._body = body
        self.requests: list[LlmRequest] = []

    def stream(self, request: LlmRequest) -> AsyncGenerator[StreamChunk, None]:
        self.requests.append(request)
        return self._body(request)


def saying(text: str) -> list[StreamChunk]:
    return [BlockStart(0, "text"), TextDelta(0, text), BlockEnd(0, TextBlock(text)), Finish(STOP)]


def script(*chunks: StreamChunk, then: Exception | None = None) -> Script:
    async def body(request: LlmRequest) -> AsyncGenerator[StreamChunk, None]:
        for chunk in chunks:
            await checkpoint()
            yield chunk
        if then is not None:
            raise then

    return Script(body)


def asking(model: str = "m", **options: Any) -> LlmRequest:
    return LlmRequest(model, (Message("user", (TextBlock("hi"),)),), **options)


@asynccontextmanager
async def running(**adapters: LlmAdapter) -> AsyncGenerator[tuple[App, LlmService], None]:
    async with App() as app:
        await app.mount(LlmService).settled()
        llm = app[LlmService]
        for provider, adapter in adapters.items():
            llm.register(app.ctx, adapter, provider, [f"{provider}-model"])
        yield app, llm


# case: B-05
async def test_a_request_goes_to_the_adapter_of_its_model() -> None:
    one, two = script(*saying("one")), script(*saying("two"))
    async with running(one=one, two=two) as (_, llm):
        assert await collect(llm.stream(asking("one-model"))) == saying("one")
        assert await collect(llm.stream(asking("two/two-model"))) == saying("two")
        assert await collect(llm.stream(asking("two/undeclared"))) == saying("two")
    assert [request.model for request in one.requests] == ["one-model"]
    assert [request.model for request in two.requests] == ["two-model", "undeclared"]


async def test_a_request_that_fits_reaches_the_adapter_as_it_is() -> None:
    adapter = script(*saying("a"))
    async with running(p=adapter) as (_, llm):
        request = asking("p-model", temperature=0.5, signal=CancelSignal(), loop=True)
        await collect(llm.stream(request))
        assert adapter.requests[0] is request


# case: B-05
# case: LLM-07
async def test_an_unknown_model_is_one_failed_finish() -> None:
    async with running(p=script(*saying("a"))) as (_, llm):
        (finish,) = await collect(llm.stream(asking("nothing")))
        assert isinstance(finish, Finish)
        assert (finish.reason.kind, finish.reason.code) == ("error", LlmError.NO_ADAPTER)
        assert "'nothing'" in (finish.reason.message or "")


class _Refusing(LlmAdapter):
    """Raises when it is called, or returns what cannot be iterated."""

    def __init__(self, error: Exception | None) -> None:
        self._error = error

    def stream(self, request: LlmRequest) -> AsyncGenerator[StreamChunk, None]:
        if self._error is not None:
            raise self._error
        return cast("Any", object())


class _Coroutine(LlmAdapter):
    def stream(self, request: LlmRequest) -> AsyncGenerator[StreamChunk, None]:
        async def forgot_to_yield() -> None:
            """Never awaited, and never left behind."""

        return cast("Any", forgot_to_yield())


BUSY = LlmError("busy", code=LlmError.SERVER, failure=LlmFailure(503, 20.0, "r"))
FAILED = Finish(FinishReason("error", "busy", "SERVER", LlmFailure(503, 20.0, "r")))


# case: LLM-08
async def test_an_adapter_that_raises_when_called_is_one_failed_finish() -> None:
    async with running(p=_Refusing(BUSY)) as (_, llm):
        assert await collect(llm.stream(asking("p-model"))) == [FAILED]


# case: LLM-08
@pytest.mark.parametrize(
    ("adapter", "name"), [(_Refusing(None), "object"), (_Coroutine(), "coroutine")]
)
async def test_an_adapter_without_a_stream_is_one_failed_finish(
    adapter: LlmAdapter, name: str
) -> None:
    async with running(p=adapter) as (_, llm):
        (finish,) = await collect(llm.stream(asking("p-model")))
        assert isinstance(finish, Finish)
        assert finish.reason.code == LlmError.INVALID_ADAPTER
        assert f"returned {name}, not a stream" in (finish.reason.message or "")


# case: LLM-08
@pytest.mark.parametrize("after", [0, 1, 2])
async def test_an_adapter_that_raises_later_is_one_failed_finish(after: int) -> None:
    chunks = saying("a")[:after]
    async with running(p=script(*chunks, then=BUSY)) as (_, llm):
        assert await collect(llm.stream(asking("p-model"))) == [*chunks, FAILED]


async def test_an_exception_without_a_code_is_logged_with_its_traceback(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG, "dsh.llm")
    async with running(p=script(then=KeyError("bug")), q=script(then=BUSY)) as (_, llm):
        (finish,) = await collect(llm.stream(asking("p-model")))
        assert finish == Finish(FinishReason("error", "'bug'", "UNKNOWN"))
        await collect(llm.stream(asking("q-model")))
    bug, busy = [record for record in caplog.records if record.name == "dsh.llm"]
    assert (bug.levelname, bug.exc_info is not None) == ("WARNING", True)
    assert (busy.levelname, busy.exc_info) == ("DEBUG", None)
    assert "LlmError: busy" in busy.getMessage()


async def test_a_stream_that_breaks_off_is_closed_with_a_failure() -> None:
    chunks = saying("a")[:2]
    async with running(p=script(*chunks), q=script()) as (_, llm):
        *rest, finish = await collect(llm.stream(asking("p-model")))
        assert rest == chunks
        assert finish == Finish(
            FinishReason(
                "error", "the stream of 'p/p-model' ended before the answer did", "STREAM_CLOSED"
            )
        )
        (alone,) = await collect(llm.stream(asking("q-model")))
        assert isinstance(alone, Finish)


async def test_a_failure_in_band_passes_as_it_is() -> None:
    finish = Finish(FinishReason("error", "filtered", "CONTENT_FILTER"))
    async with running(p=script(finish)) as (_, llm):
        assert await collect(llm.stream(asking("p-model"))) == [finish]


async def test_nothing_follows_the_finish() -> None:
    closed: list[str] = []

    async def body(request: LlmRequest) -> AsyncGenerator[StreamChunk, None]:
        try:
            yield Finish(STOP)
            yield TextDelta(0, "late")
        finally:
            closed.append("yes")

    async with running(p=Script(body)) as (_, llm):
        assert await collect(llm.stream(asking("p-model"))) == [Finish(STOP)]
        assert closed == ["yes"]


# case: LLM-09
async def test_a_plain_exception_while_aborted_is_an_abort() -> None:
    signal = CancelSignal()

    async def body(request: LlmRequest) -> AsyncGenerator[StreamChunk, None]:
        yield BlockStart(0, "text")
        signal.abort("user")
        raise OSError("connection reset")

    async with running(p=Script(body)) as (_, llm):
        chunks = await collect(llm.stream(asking("p-model", signal=signal)))
        assert chunks[1:] == [Finish(FinishReason("aborted", "connection reset", "ABORTED"))]


# case: LLM-09
async def test_a_stream_that_ends_while_aborted_is_an_abort() -> None:
    signal = CancelSignal()

    async def body(request: LlmRequest) -> AsyncGenerator[StreamChunk, None]:
        yield BlockStart(0, "text")
        signal.abort()

    async with running(p=Script(body)) as (_, llm):
        chunks = await collect(llm.stream(asking("p-model", signal=signal)))
        assert chunks[1:] == [Finish(FinishReason("aborted", "the request was aborted", "ABORTED"))]


async def test_the_code_aborted_is_an_abort_without_a_signal() -> None:
    error = LlmError("gave up", code=LlmError.ABORTED)
    async with running(p=script(then=error)) as (_, llm):
        assert await collect(llm.stream(asking("p-model"))) == [
            Finish(FinishReason("aborted", "gave up", "ABORTED"))
        ]


async def test_an_aborted_request_never_reaches_the_adapter() -> None:
    adapter = script(*saying("a"))
    signal = CancelSignal()
    signal.abort("by the user")
    async with running(p=adapter) as (_, llm):
        assert await collect(llm.stream(asking("p-model", signal=signal))) == [
            Finish(FinishReason("aborted", "the request was aborted: by the user", "ABORTED"))
        ]
    assert adapter.requests == []


async def test_cancellation_from_outside_is_no_finish() -> None:
    got: list[StreamChunk] = []
    hanging = anyio.Event()

    async def body(request: LlmRequest) -> AsyncGenerator[StreamChunk, None]:
        yield BlockStart(0, "text")
        hanging.set()
        await anyio.sleep_forever()

    async with running(p=Script(body)) as (_, llm):

        async def consume() -> None:
            async with aclosing(llm.stream(asking("p-model"))) as chunks:
                async for chunk in chunks:
                    got.append(chunk)

        with anyio.fail_after(5):
            async with anyio.create_task_group() as group:
                group.start_soon(consume)
                await hanging.wait()
                group.cancel_scope.cancel()
    assert got == [BlockStart(0, "text")]


# case: LLM-10
@pytest.mark.parametrize("before", [True, False])
async def test_what_a_listener_raises_is_raised(before: bool) -> None:
    async def listener(
        event: LlmStream, next: NextStream[StreamChunk]
    ) -> AsyncGenerator[StreamChunk, None]:
        if before:
            raise ValueError("mine")
        async with aclosing(next()) as chunks:
            async for chunk in chunks:
                yield chunk
                raise ValueError("mine")

    async with running(p=script(*saying("a"))) as (app, llm):
        app.ctx.on(LlmStream, listener)
        with pytest.raises(ValueError, match="mine"):
            await collect(llm.stream(asking("p-model")))


# case: LLM-10
async def test_what_the_consumer_throws_in_is_raised() -> None:
    async with running(p=script(*saying("a"))) as (_, llm):
        chunks = llm.stream(asking("p-model"))
        await anext(chunks)
        with pytest.raises(ValueError, match="mine"):
            await chunks.athrow(ValueError("mine"))


# case: LLM-11
async def test_a_listener_can_send_the_request_elsewhere() -> None:
    one, two = script(*saying("one")), script(*saying("two"))

    async def redirect(
        event: LlmStream, next: NextStream[StreamChunk]
    ) -> AsyncGenerator[StreamChunk, None]:
        async with aclosing(next(LlmStream(replace(event.request, model="two/m")))) as chunks:
            async for chunk in chunks:
                yield chunk

    async with running(one=one, two=two) as (app, llm):
        app.ctx.on(LlmStream, redirect)
        assert await collect(llm.stream(asking("one-model"))) == saying("two")
        assert await collect(llm.stream(asking("no/such"))) == saying("two")
    assert one.requests == []


# case: LLM-12
async def test_a_listener_can_answer_itself() -> None:
    adapter = script(*saying("a"))

    async def answer(
        event: LlmStream, next: NextStream[StreamChunk]
    ) -> AsyncGenerator[StreamChunk, None]:
        for chunk in saying("mine"):
            yield chunk

    async with running(p=adapter) as (app, llm):
        effect = app.ctx.on(LlmStream, answer)
        assert await collect(llm.stream(asking("p-model"))) == saying("mine")
        assert adapter.requests == []
        await effect.dispose()
        assert await collect(llm.stream(asking("p-model"))) == saying("a")


# case: B-05
async def test_listeners_wrap_the_stream_first_outermost() -> None:
    def marking(mark: str) -> Any:
        async def listener(
            event: LlmStream, next: NextStream[StreamChunk]
        ) -> AsyncGenerator[StreamChunk, None]:
            async with aclosing(next()) as chunks:
                async for chunk in chunks:
                    yield TextDelta(0, mark + chunk.text) if isinstance(chunk, TextDelta) else chunk

        return listener

    async with running(p=script(*saying("a"))) as (app, llm):
        app.ctx.on(LlmStream, marking("outer "))
        app.ctx.on(LlmStream, marking("inner "))
        chunks = await collect(llm.stream(asking("p-model")))
        assert chunks[1] == TextDelta(0, "outer inner a")


async def test_a_listener_can_call_again() -> None:
    adapter = script(then=BUSY)

    async def retry(
        event: LlmStream, next: NextStream[StreamChunk]
    ) -> AsyncGenerator[StreamChunk, None]:
        async with aclosing(next.again()) as chunks:
            first = [chunk async for chunk in chunks]
        assert first == [FAILED]
        async with aclosing(next.again()) as chunks:
            async for chunk in chunks:
                yield chunk

    async with running(p=adapter) as (app, llm):
        app.ctx.on(LlmStream, retry)
        assert await collect(llm.stream(asking("p-model"))) == [FAILED]
    assert len(adapter.requests) == 2


def cleaning(log: list[str], error: Exception | None = None) -> Script:
    async def body(request: LlmRequest) -> AsyncGenerator[StreamChunk, None]:
        try:
            yield BlockStart(0, "text")
            yield TextDelta(0, "a")
        finally:
            log.append("cleaning")
            await checkpoint()
            log.append("clean")
            if error is not None:
                raise error

    return Script(body)


# case: LLM-13
async def test_leaving_early_waits_for_the_adapters_clean_up() -> None:
    log: list[str] = []
    async with running(p=cleaning(log)) as (_, llm):
        async with aclosing(llm.stream(asking("p-model"))) as chunks:
            assert await anext(chunks) == BlockStart(0, "text")
            assert log == []
        assert log == ["cleaning", "clean"]


# case: LLM-13
async def test_what_the_clean_up_raises_reaches_the_consumer() -> None:
    log: list[str] = []
    async with running(p=cleaning(log, OSError("stuck"))) as (_, llm):
        chunks = llm.stream(asking("p-model"))
        await anext(chunks)
        with pytest.raises(OSError, match="stuck"):
            await chunks.aclose()
        assert log == ["cleaning", "clean"]


# case: LLM-13
@pytest.mark.parametrize("error", [None, OSError("stuck")])
async def test_leaving_early_reaches_the_adapter_through_careless_listeners(
    error: Exception | None,
) -> None:
    log: list[str] = []

    async def careless(
        event: LlmStream, next: NextStream[StreamChunk]
    ) -> AsyncGenerator[StreamChunk, None]:
        async for chunk in next():
            yield chunk

    async with running(p=cleaning(log, error)) as (app, llm):
        app.ctx.on(LlmStream, careless)
        chunks = llm.stream(asking("p-model"))
        await anext(chunks)
        if error is None:
            await chunks.aclose()
        else:
            with pytest.raises(OSError, match="stuck"):
                await chunks.aclose()
        assert log == ["cleaning", "clean"]


async def test_nothing_is_called_before_the_first_chunk_is_asked_for() -> None:
    adapter = script(*saying("a"))
    async with running(p=adapter) as (_, llm):
        await llm.stream(asking("p-model")).aclose()
        assert adapter.requests == []


async def test_the_service_writes_the_route_on_a_replay_state() -> None:
    bare, stamped = ReplayState("", "", {"id": 1}), ReplayState("p", "p-model", {"id": 1})
    async with running(p=script(Finish(STOP, bare)), q=script(Finish(STOP, stamped))) as (_, llm):
        assert await collect(llm.stream(asking("p-model"))) == [Finish(STOP, stamped)]
        (other,) = await collect(llm.stream(asking("q/p-model")))
        assert other == Finish(STOP, ReplayState("q", "p-model", {"id": 1}))


CALL = ToolCallBlock("c", "t", "{}")
WHOLE: list[StreamChunk] = [
    BlockStart(0, "reasoning"),
    BlockStart(1, "text"),
    BlockStart(2, "tool-call"),
    ReasoningDelta(0, "hm"),
    BlockEnd(2, CALL),
    BlockEnd(1, TextBlock("a")),
    BlockEnd(0, ReasoningBlock("hm")),
    UsageChunk(TokenUsage(3, 4)),
]


async def test_generate_returns_the_whole_answer() -> None:
    async with running(p=script(*WHOLE, Finish(FinishReason("tool-calls")))) as (_, llm):
        result = await llm.generate(asking("p-model"))
        assert result.message == Message("assistant", (ReasoningBlock("hm"), TextBlock("a"), CALL))
        assert result.usage == TokenUsage(3, 4)
        assert result.finish == FinishReason("tool-calls")


async def test_generate_raises_what_went_wrong() -> None:
    async with running(p=script(*WHOLE, then=BUSY)) as (_, llm):
        with pytest.raises(LlmError, match="busy") as caught:
            await llm.generate(asking("p-model"))
        assert (caught.value.code, caught.value.failure) == ("SERVER", BUSY.failure)


async def listed(
    blocks: AsyncGenerator[ContentBlock, None], into: list[ContentBlock] | None = None
) -> list[ContentBlock]:
    seen = [] if into is None else into
    async with aclosing(blocks):
        async for block in blocks:
            seen.append(block)
    return seen


async def test_stream_blocks_yields_blocks_as_they_close_and_calls_last() -> None:
    open_text = TextDelta(3, "never closed")
    finish = Finish(STOP)
    async with running(p=script(*WHOLE, open_text, finish)) as (_, llm):
        seen = await listed(llm.stream_blocks(asking("p-model")))
    assert seen == [TextBlock("a"), ReasoningBlock("hm"), CALL, TextBlock("never closed")]


async def test_stream_blocks_leaves_out_calls_that_may_be_cut() -> None:
    async with running(p=script(*WHOLE, Finish(FinishReason("max-tokens")))) as (_, llm):
        seen = await listed(llm.stream_blocks(asking("p-model")))
    assert seen == [TextBlock("a"), ReasoningBlock("hm")]


async def test_stream_blocks_raises_after_the_blocks_that_came() -> None:
    seen: list[ContentBlock] = []
    async with running(p=script(*WHOLE, then=BUSY)) as (_, llm):
        with pytest.raises(LlmError, match="busy"):
            await listed(llm.stream_blocks(asking("p-model")), seen)
    assert seen == [TextBlock("a"), ReasoningBlock("hm")]


async def test_collect_holds_a_stream_against_the_protocol() -> None:
    async with running(p=script(TextDelta(0, "a"), Finish(STOP))) as (_, llm):
        with pytest.raises(AssertionError, match="delta-to-closed"):
            await collect(llm.stream(asking("p-model")))
        assert len(await collect(llm.stream(asking("p-model")), check=False)) == 2
