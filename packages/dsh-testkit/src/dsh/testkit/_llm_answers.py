"""Adapter contract: answers that succeed, however they arrive."""

from __future__ import annotations

import anyio

from dsh.llm import ReasoningBlock, TextBlock, TokenUsage, ToolCallBlock, ToolCallDelta
from dsh.llm_replay import server as wire
from dsh.testkit._llm_bench import Answer, Bench, cases_of

__all__ = ["ANSWERS"]

TEXT = "Grüße: 你好, 🚀 and a plain end."


async def _same_text(bench: Bench, behaviour: wire.Behaviour, text: str = TEXT) -> Answer:
    answer = await bench.ask(behaviour)
    answer.expect("stop")
    assert answer.ended == [TextBlock(text)]
    assert answer.text == text
    return answer


async def text_answer(bench: Bench) -> None:
    """Text comes as deltas of one block, then usage, then the finish."""
    answer = await _same_text(bench, wire.success(TEXT, usage=wire.usage(12, 7)))
    assert answer.usage == TokenUsage(12, 7)
    assert [chunk.type for chunk in answer.chunks[-3:]] == ["block-end", "usage", "finish"]
    assert len([chunk for chunk in answer.chunks if chunk.type == "text-delta"]) > 1


async def split_at_every_byte(bench: Bench) -> None:
    """Pieces of one byte, through characters and line ends, read like the whole."""
    await _same_text(bench, wire.success(TEXT, chunk_size=4).split(1))


async def split_in_two_anywhere(bench: Bench) -> None:
    """A body in two pieces reads the same wherever the cut is."""
    behaviour = wire.success("é🚀", chunk_size=1)
    for offset in range(1, len(behaviour.body), 5):
        await _same_text(bench, behaviour.split_at(offset), "é🚀")


async def comments_between_events(bench: Bench) -> None:
    """Comments that keep the connection alive are no content."""
    await _same_text(bench, wire.keepalive_then_success(TEXT))


async def crlf_line_ends(bench: Bench) -> None:
    """Lines may end with CR LF."""
    await _same_text(bench, wire.crlf_framing(TEXT))


async def byte_order_mark(bench: Bench) -> None:
    """A byte order mark in front of the stream is no content."""
    await _same_text(bench, wire.bom(TEXT))


async def line_separators_in_text(bench: Bench) -> None:
    """U+2028 and U+0085 are text; they end no line of the stream."""
    text = "one\u2028two\u0085three"
    await _same_text(bench, wire.u2028_payload(text), text)


async def nothing_after_the_end(bench: Bench) -> None:
    """What follows the end of the stream is not part of the answer."""
    await _same_text(bench, wire.events_after_done(TEXT))


async def reasoning_before_text(bench: Bench) -> None:
    """Reasoning is a block of its own, and what it cost is told."""
    behaviour = wire.reasoning_success(
        "Let me see.", TEXT, usage=wire.usage(9, 8, reasoning_tokens=3)
    )
    answer = await bench.ask(behaviour)
    answer.expect("stop")
    assert answer.ended == [ReasoningBlock("Let me see."), TextBlock(TEXT)]
    assert answer.usage == TokenUsage(9, 8, reasoning_tokens=3)


async def reasoning_alone(bench: Bench) -> None:
    """An answer that only reasons is an answer."""
    answer = await bench.ask(wire.reasoning_success("Let me see.", ""))
    answer.expect("stop")
    assert answer.ended == [ReasoningBlock("Let me see.")]


async def tool_call_in_fragments(bench: Bench) -> None:
    """The fragments of the arguments add up; each delta carries the id, the name once known."""
    arguments = '{"command":"echo 你好", "n": 1}'
    answer = await bench.ask(wire.tool_call_success("bash", arguments, chunk_size=3))
    answer.expect("tool-calls")
    assert answer.ended == [ToolCallBlock("call_1", "bash", arguments)]
    deltas = [chunk for chunk in answer.chunks if isinstance(chunk, ToolCallDelta)]
    assert "".join(delta.arguments_delta for delta in deltas) == arguments
    assert {delta.id for delta in deltas} == {"call_1"}
    assert "bash" in {delta.name for delta in deltas}


async def arguments_kept_verbatim(bench: Bench) -> None:
    """Arguments are text; nobody tidies them up, also where they are no JSON."""
    for arguments in ('{"a": 1,', '  {"b" : 1.0}\n', ""):
        answer = await bench.ask(wire.tool_call_success("bash", arguments))
        answer.expect("tool-calls")
        calls = [ToolCallBlock("call_1", "bash", arguments)]
        assert answer.calls == calls, f"{arguments!r} came as {answer.calls}"


async def parallel_tool_calls(bench: Bench) -> None:
    """Calls whose fragments alternate keep them apart."""
    calls = [("call_1", "bash", '{"command":"echo one"}'), ("call_2", "read", '{"path":"two"}')]
    for interleaved in (False, True):
        answer = await bench.ask(wire.tool_calls(calls, interleaved=interleaved, chunk_size=2))
        answer.expect("tool-calls")
        assert answer.calls == [ToolCallBlock(*call) for call in calls]


async def text_before_a_tool_call(bench: Bench) -> None:
    """Reasoning, text and a call in one answer are three blocks in that order."""
    behaviour = wire.tool_call_success("bash", "{}", text="Looking.", reasoning="Hm.")
    answer = await bench.ask(behaviour)
    answer.expect("tool-calls")
    assert answer.message.content == (
        ReasoningBlock("Hm."),
        TextBlock("Looking."),
        ToolCallBlock("call_1", "bash", "{}"),
    )


async def output_limit(bench: Bench) -> None:
    """An answer that was cut by the output limit says so and keeps its text."""
    answer = await bench.ask(wire.max_tokens(TEXT))
    answer.expect("max-tokens")
    assert answer.text == TEXT


async def filtered_answer(bench: Bench) -> None:
    """An answer that the provider filtered away does not pass for a success."""
    answer = await bench.ask(wire.finish_reason("content_filter"))
    answer.expect("error", "refusal")


async def usage_in_a_payload_of_its_own(bench: Bench) -> None:
    """Usage that follows the end of the answer still comes before the finish."""
    answer = await _same_text(bench, wire.usage_trailing(TEXT))
    assert answer.usage is not None
    assert answer.usage.input_tokens == 10


async def usage_twice(bench: Bench) -> None:
    """Of several usage samples the last one counts."""
    answer = await _same_text(bench, wire.usage_attached_and_trailing(TEXT))
    assert answer.usage is not None
    assert answer.usage.input_tokens == 10


async def usage_of_a_cache(bench: Bench) -> None:
    """Tokens read from the cache are counted apart from the others, as the counters say."""
    usage = wire.usage(10, 5, cached_tokens=4)
    answer = await bench.ask(wire.success(TEXT, usage=usage))
    assert answer.usage == TokenUsage(6, 5, cache_read_tokens=4)


async def no_usage(bench: Bench) -> None:
    """Without a sample there are no counts, not counts of zero."""
    deltas = [{"role": "assistant", "content": ""}, *wire.text_deltas(TEXT)]
    answer = await _same_text(bench, wire.stream(deltas))
    assert answer.usage is None


async def answers_at_the_same_time(bench: Bench) -> None:
    """One adapter serves any number of requests at once, each with its own answer."""
    gates = [wire.Gate(str(number)) for number in range(3)]
    answers: dict[str, Answer] = {}

    def behave(request: wire.WireRequest) -> wire.Behaviour:
        number = int(request.last_text)
        return wire.success(f"answer {number}", chunk_size=2).hold(gates[number], after=2)

    async def ask(number: int) -> None:
        request = bench.request(str(number))
        answers[str(number)] = await bench.ask(None, request)

    for _ in gates:
        bench.server.append(behave)
    async with anyio.create_task_group() as tasks:
        for number in range(len(gates)):
            tasks.start_soon(ask, number)
        for gate in gates:
            await gate.reached()
        for gate in reversed(gates):
            gate.open()
    assert {key: value.text for key, value in answers.items()} == {
        str(number): f"answer {number}" for number in range(len(gates))
    }


ANSWERS = cases_of(
    text_answer,
    split_at_every_byte,
    split_in_two_anywhere,
    comments_between_events,
    crlf_line_ends,
    byte_order_mark,
    line_separators_in_text,
    nothing_after_the_end,
    reasoning_before_text,
    reasoning_alone,
    tool_call_in_fragments,
    arguments_kept_verbatim,
    parallel_tool_calls,
    text_before_a_tool_call,
    output_limit,
    filtered_answer,
    usage_in_a_payload_of_its_own,
    usage_twice,
    usage_of_a_cache,
    no_usage,
    answers_at_the_same_time,
)
"""The cases of this subject."""
