"""The scripted model: entries, builders, waiting and aborting."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path

import anyio
import pytest
from trio.testing import MockClock

from dsh.llm import (
    BlockAssembler,
    BlockEnd,
    BlockStart,
    CancelSignal,
    Finish,
    FinishReason,
    LlmError,
    LlmFailure,
    LlmRequest,
    Message,
    ModelInfo,
    ReasoningBlock,
    StreamChunk,
    StreamGrammar,
    TextBlock,
    TextDelta,
    TokenUsage,
    ToolCallBlock,
    ToolCallDelta,
    ToolResultBlock,
    UsageChunk,
)
from dsh.llm_replay import (
    Answer,
    Gate,
    LlmReplay,
    NotConsumedError,
    RecordingAdapter,
    ReplayError,
    ScriptedAdapter,
    answer,
    error,
    fill,
    hang,
    hold,
    max_tokens,
    reasoning,
    request_text,
    text,
    throw,
    tool_call,
    tool_calls,
)


def ask(
    prompt: str = "hi", *, signal: CancelSignal | None = None, purpose: str | None = None
) -> LlmRequest:
    message = Message("user", (TextBlock(prompt),))
    return LlmRequest("scripted", (message,), signal=signal, purpose=purpose)


async def collect(adapter: ScriptedAdapter, request: LlmRequest | None = None) -> list[StreamChunk]:
    async with aclosing(adapter.stream(request or ask())) as stream:
        return [chunk async for chunk in stream]


def assembled(chunks: Sequence[StreamChunk]) -> BlockAssembler:
    assembler = BlockAssembler()
    for chunk in chunks:
        assembler.push(chunk)
    return assembler


def test_text_is_one_delta_per_character() -> None:
    assert text("hi") == (
        BlockStart(0, "text"),
        TextDelta(0, "h"),
        TextDelta(0, "i"),
        BlockEnd(0, TextBlock("hi")),
        UsageChunk(TokenUsage(10, 2)),
        Finish(FinishReason("stop")),
    )
    assert len(text("hello", size=5)) == 5


def test_max_tokens_differs_in_its_finish_only() -> None:
    assert max_tokens("hi")[:-1] == text("hi")[:-1]
    assert max_tokens("hi")[-1] == Finish(FinishReason("max-tokens"))


def test_a_tool_call_splits_its_arguments_and_names_the_tool_once() -> None:
    chunks = tool_call("c1", "bash", {"command": "ls"}, "look")
    assert [c for c in chunks if isinstance(c, ToolCallDelta)] == [
        ToolCallDelta(1, "c1", '{"comman', "bash"),
        ToolCallDelta(1, "c1", 'd":"ls"}'),
    ]
    done = assembled(chunks)
    assert done.message().content == (
        TextBlock("look"),
        ToolCallBlock("c1", "bash", '{"command":"ls"}'),
    )
    assert done.usage == TokenUsage(10, 5)
    assert done.finish.kind == "tool-calls"


@pytest.mark.parametrize(
    "chunks",
    [
        text("hello"),
        text(""),
        max_tokens("cut"),
        reasoning("think", "say"),
        reasoning("think"),
        tool_call("c", "t"),
        tool_calls([("a", "t", "{}"), ("b", "t", "")], "both"),
        answer(reasoning="r", text="t", calls=[("c", "n", "{}")], size=3),
        error("bad", chunks=text("ab")[:2]),
    ],
)
def test_every_builder_obeys_the_protocol(chunks: Sequence[StreamChunk]) -> None:
    grammar = StreamGrammar()
    assert [found for chunk in chunks if (found := grammar.push(chunk))] == []
    assert grammar.close() is None


async def test_each_call_consumes_an_entry_and_is_recorded() -> None:
    adapter = ScriptedAdapter([text("one"), lambda request: text(request_text(request).upper())])
    first, second = ask("a"), ask("b")
    assert assembled(await collect(adapter, first)).message().content == (TextBlock("one"),)
    assert adapter.remaining == 1
    with pytest.raises(NotConsumedError, match="1 of 2"):
        adapter.assert_consumed()
    assert assembled(await collect(adapter, second)).message().content == (TextBlock("B"),)
    adapter.assert_consumed()
    assert adapter.requests == [first, second]
    assert [call.outcome for call in adapter.calls] == ["completed", "completed"]


async def test_the_end_of_the_script_is_a_clear_error() -> None:
    adapter = ScriptedAdapter([text("one")])
    await collect(adapter)
    with pytest.raises(ReplayError, match=r"1 entries .* 2\. time; append an entry") as caught:
        await collect(adapter)
    assert caught.value.code == "SCRIPT_EXHAUSTED"
    assert adapter.calls[1].outcome == "raised"
    assert adapter.calls[1].error is caught.value
    adapter.append(text("more"))
    assert await collect(adapter) == list(text("more"))


async def test_one_function_or_repeat_last_answers_every_call() -> None:
    async def later(request: LlmRequest) -> Answer:
        await anyio.lowlevel.checkpoint()
        return text("async")

    for adapter in (ScriptedAdapter(later), ScriptedAdapter([text("async")], repeat_last=True)):
        for _ in range(3):
            assert await collect(adapter) == list(text("async"))
        adapter.assert_consumed()


async def test_requests_with_a_purpose_can_be_answered_apart() -> None:
    adapter = ScriptedAdapter([text("main")], auxiliary={"session-title": text("Title")})
    assert await collect(adapter, ask(purpose="session-title")) == list(text("Title"))
    assert await collect(adapter) == list(text("main"))


async def test_an_aborted_request_consumes_nothing() -> None:
    adapter = ScriptedAdapter([text("one")])
    signal = CancelSignal()
    signal.abort("stop")
    with pytest.raises(LlmError, match="aborted: stop") as caught:
        await collect(adapter, ask(signal=signal))
    assert caught.value.code == LlmError.ABORTED
    assert adapter.remaining == 1
    assert adapter.calls[0].outcome == "aborted"


async def test_the_signal_is_looked_at_before_each_chunk() -> None:
    adapter = ScriptedAdapter([text("hello")])
    signal = CancelSignal()
    seen: list[StreamChunk] = []

    async def run() -> None:
        async with aclosing(adapter.stream(ask(signal=signal))) as stream:
            async for chunk in stream:
                seen.append(chunk)
                if len(seen) == 3:
                    signal.abort()

    with pytest.raises(LlmError, match="aborted"):
        await run()
    assert len(seen) == 3
    assert adapter.calls[0].chunks_sent == 3


async def test_hang_waits_for_the_signal_after_its_chunks(tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    adapter = ScriptedAdapter([hang("wait", ready_file=ready)])
    signal = CancelSignal()
    seen: list[StreamChunk] = []
    caught: list[LlmError] = []

    async def run() -> None:
        try:
            async with aclosing(adapter.stream(ask(signal=signal))) as stream:
                async for chunk in stream:
                    seen.append(chunk)
        except LlmError as problem:
            caught.append(problem)

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run)
            call = await adapter.waiting()
            assert call is await adapter.started()
            assert seen == [BlockStart(0, "text"), TextDelta(0, "wait")]
            assert ready.exists()
            signal.abort("enough")
        assert await adapter.calls[0].finished() == "aborted"
    assert caught[0].code == LlmError.ABORTED


async def test_hang_without_a_signal_ends_by_cancellation() -> None:
    adapter = ScriptedAdapter([hang("")])
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(collect, adapter)
        await adapter.waiting()
        tasks.cancel_scope.cancel()
    assert adapter.calls[0].outcome == "closed"
    assert adapter.calls[0].chunks_sent == 0


@pytest.mark.parametrize("after", [0, 2, 99])
async def test_hold_stops_at_a_gate_and_goes_on(after: int) -> None:
    gate = Gate()
    adapter = ScriptedAdapter([hold(gate, text("hey"), after=after)])
    result: list[StreamChunk] = []

    async def run() -> None:
        result.extend(await collect(adapter))

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run)
            await gate.reached()
            assert adapter.calls[0].chunks_sent == min(after, len(text("hey")))
            gate.open()
    assert result == list(text("hey"))


async def test_an_abort_at_a_gate_is_prompt() -> None:
    gate = Gate()
    signal = CancelSignal()
    adapter = ScriptedAdapter([hold(gate, text("hey"))])

    async def run() -> None:
        with pytest.raises(LlmError, match="aborted"):
            await collect(adapter, ask(signal=signal))

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run)
            await gate.reached()
            signal.abort()
    assert not gate.is_open


async def test_throw_raises_after_its_chunks() -> None:
    facts = LlmFailure(503, 1500)
    adapter = ScriptedAdapter([throw("down", "SERVER", chunks=text("ab")[:2], failure=facts)])
    seen: list[StreamChunk] = []

    async def run() -> None:
        async with aclosing(adapter.stream(ask())) as stream:
            async for chunk in stream:
                seen.append(chunk)

    with pytest.raises(LlmError, match="down") as caught:
        await run()
    assert (caught.value.code, caught.value.failure) == ("SERVER", facts)
    assert seen == list(text("ab")[:2])


async def test_error_ends_with_an_error_finish() -> None:
    chunks = await collect(ScriptedAdapter([error("full", "QUOTA")]))
    assert chunks == [Finish(FinishReason("error", "full", "QUOTA"))]


async def test_a_consumer_may_leave_early_or_at_the_finish() -> None:
    adapter = ScriptedAdapter([text("hello"), text("a")])
    async with aclosing(adapter.stream(ask())) as stream:
        await anext(stream)
    async with aclosing(adapter.stream(ask())) as stream:
        async for chunk in stream:
            if isinstance(chunk, Finish):
                break
    assert [call.outcome for call in adapter.calls] == ["closed", "completed"]


@pytest.mark.parametrize(
    "anyio_backend", [("trio", {"clock": MockClock(autojump_threshold=0)})], ids=["trio"]
)
async def test_pace_delays_each_chunk() -> None:
    adapter = ScriptedAdapter([text("ab")], pace_ms=3_600_000)
    before = anyio.current_time()
    assert await collect(adapter) == list(text("ab"))
    assert anyio.current_time() - before == pytest.approx(3600 * len(text("ab")))


async def test_an_abort_while_pacing_is_prompt() -> None:
    slow = ScriptedAdapter([text("ab")], pace_ms=3_600_000)
    signal = CancelSignal()

    async def run() -> None:
        with pytest.raises(LlmError, match="aborted"):
            await collect(slow, ask(signal=signal))

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run)
            await slow.call()
            await anyio.wait_all_tasks_blocked()
            signal.abort()


async def test_checkpoints_can_be_left_out() -> None:
    adapter = ScriptedAdapter([text("x" * 100)], checkpoints=False)
    assert len(await collect(adapter)) == 104


def test_the_declared_model_can_be_another() -> None:
    assert [info.id for info in ScriptedAdapter().models()] == ["scripted"]
    assert ScriptedAdapter(models=[ModelInfo("m")]).models() == (ModelInfo("m"),)
    assert ScriptedAdapter().preflight("scripted") is None


# Placeholders


def conversation() -> LlmRequest:
    call = ToolCallBlock("c", "bash", '{"id": 1}')
    result = ToolResultBlock("c", (TextBlock("job-17 started, job-18 queued"),))
    return LlmRequest(
        "m",
        (
            Message("user", (TextBlock("start job-16"),)),
            Message("assistant", (ReasoningBlock("hm"), call)),
            Message("user", (result,)),
        ),
        system="be brief",
    )


def test_a_placeholder_is_the_last_match_its_group_or_the_whole() -> None:
    request = conversation()
    assert request_text(request).split("\n")[0] == "be brief"
    assert fill("{{fromRequest:job-\\d+}}", request) == "job-18"
    assert fill("<{{fromRequest:job-(\\d+)}}> {{fromRequest:be \\w+}}", request) == "<18> be brief"
    assert fill("{{fromRequest:job-\\d{2}}}!", request) == "job-18!"
    assert fill("{{other}}", request) == "{{other}}"


def test_placeholders_are_found_wherever_a_string_is() -> None:
    block = ToolCallBlock("c", "t", '{"job": "{{fromRequest:job-\\d+}}"}')
    assert fill(BlockEnd(0, block), conversation()) == BlockEnd(
        0, ToolCallBlock("c", "t", '{"job": "job-18"}')
    )
    plain = BlockEnd(0, TextBlock("x"))
    assert fill(plain, conversation()) is plain
    assert fill({"a": ["{{fromRequest:hm}}"]}, conversation()) == {"a": ["hm"]}


@pytest.mark.parametrize(
    ("template", "problem"),
    [
        ("{{fromRequest:absent}}", "matches nothing"),
        ("{{fromRequest:(}}", "no regular expression"),
        ("{{fromRequest:job", "not terminated"),
        ("{{fromRequest:" + "a" * 600 + "}}", "longer than 500"),
    ],
)
async def test_a_bad_placeholder_fails_loudly(template: str, problem: str) -> None:
    with pytest.raises(ReplayError, match=problem) as caught:
        fill(template, conversation())
    assert caught.value.code == "BAD_PLACEHOLDER"
    adapter = ScriptedAdapter([text(template, size=1000)])
    with pytest.raises(ReplayError, match=problem):
        await collect(adapter, conversation())
    verbatim = ScriptedAdapter([text(template, size=1000)], placeholders=False)
    assert await collect(verbatim) == list(text(template, size=1000))


def test_equal_questions_are_rendered_alike() -> None:
    adapter = ScriptedAdapter()
    asked = LlmRequest("scripted", (Message("user", (TextBlock("é"),)),), session_id="s", loop=True)
    body = adapter.render(asked)
    assert (
        body
        == (
            '{"model":"scripted","messages":[{"role":"user","content":[{"type":"text","text":"é"}]}]}'
        ).encode()
    )
    assert adapter.render(replace(asked, session_id="t", loop=False)) == body
    assert RecordingAdapter(adapter).render(asked) == body
    assert adapter.calls == [], "nobody was asked"


def test_the_plugin_is_found_by_its_name() -> None:
    assert LlmReplay.name == "llm-replay"
