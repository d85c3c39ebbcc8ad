"""The plugin in an app, and scripts served over the wire."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest

from dsh.core import App, ConfigError, EntryPoint
from dsh.llm import (
    BlockEnd,
    Finish,
    FinishReason,
    LlmFailure,
    LlmRequest,
    LlmService,
    Message,
    StreamChunk,
    TextBlock,
    TokenUsage,
    ToolCallBlock,
    UsageChunk,
    to_wire,
)
from dsh.llm_replay import (
    Answer,
    LlmReplay,
    ReplayError,
    behaviour_of,
    encode_chunks,
    error,
    hang,
    hold,
    max_tokens,
    payloads,
    reasoning,
    text,
    throw,
    tool_calls,
    wire_script,
    wire_usage,
)
from dsh.llm_replay.server import Gate, WireServer


def ask(model: str = "replay/scripted", **fields: Any) -> LlmRequest:
    return LlmRequest(model, (Message("user", (TextBlock("hi"),)),), **fields)


async def reply(app: App, request: LlmRequest | None = None) -> str:
    result = await app[LlmService].generate(request or ask())
    return "".join(b.text for b in result.message.content if isinstance(b, TextBlock))


async def mounted(app: App, config: dict[str, Any]) -> LlmReplay:
    await app.mount(LlmService).settled()
    mount = app.mount(LlmReplay, config)
    await mount.settled()
    assert isinstance(mount.instance, LlmReplay)
    return mount.instance


async def test_a_script_in_the_configuration_answers_calls() -> None:
    async with App() as app:
        plugin = await mounted(app, {"script": ["one", {"tool": "bash"}, {"error": "no"}]})
        assert app[LlmService].providers() == ("replay",)
        assert await reply(app) == "one"
        assert await reply(app, ask("scripted")) == ""
        finish = await last(app)
        assert (finish.kind, finish.message) == ("error", "no")
        finish = await last(app)
        assert (finish.kind, finish.code) == ("error", "SCRIPT_EXHAUSTED")
        assert len(plugin.adapter.requests) == 4


async def last(app: App) -> FinishReason:
    async with aclosing(app[LlmService].stream(ask())) as stream:
        chunks = [chunk async for chunk in stream]
    assert isinstance(chunks[-1], Finish)
    return chunks[-1].reason


async def test_a_recording_with_sidecar_and_children(tmp_path: Path) -> None:
    primary, child, override = tmp_path / "p", tmp_path / "c", tmp_path / "o"
    primary.write_text(log(text("one"), text("two")), encoding="utf-8")
    child.write_text(log(text("child")), encoding="utf-8")
    override.write_text('{"patches": [{"at": 1, "entry": "patched"}]}')
    config = {
        "recording": str(primary),
        "children": [str(child)],
        "override": str(override),
        "auxiliary": {"session-title": "Title"},
    }
    async with App() as app:
        plugin = await mounted(app, config)
        assert await reply(app, ask(purpose="session-title")) == "Title"
        said = [await reply(app, ask(session_id=live)) for live in "aba"]
        assert said == ["one", "child", "patched"]
        plugin.adapter.assert_consumed()


async def test_a_script_file(tmp_path: Path) -> None:
    path = tmp_path / "script.json"
    path.write_text('["from a file"]')
    async with App() as app:
        await mounted(app, {"script_file": str(path), "repeat_last": True})
        assert [await reply(app) for _ in range(2)] == ["from a file"] * 2


async def test_the_model_can_have_other_names_and_leaves_with_the_plugin() -> None:
    async with App() as app:
        await app.mount(LlmService).settled()
        mount = app.mount(LlmReplay, {"script": ["x"], "models": ["deepseek/a", "other/b/c"]})
        await mount.settled()
        names = [info.qualified for info in app[LlmService].models()]
        assert names == ["deepseek/a", "other/b/c"]
        assert await reply(app, ask("other/b/c")) == "x"
        await mount.dispose()
        assert app[LlmService].models() == ()


async def test_every_call_of_the_app_can_be_intercepted() -> None:
    async with App() as app:
        await mounted(app, {"script": ["mine"], "intercept": True})
        assert await reply(app, ask("nobody/knows")) == "mine"
        async with aclosing(app[LlmService].stream(ask("nobody/knows"))) as stream:
            chunks = [chunk async for chunk in stream]
        assert isinstance(chunks[-1], Finish)
        assert chunks[-1].reason.code == "SCRIPT_EXHAUSTED"


async def test_answers_that_were_never_asked_for_are_reported() -> None:
    async with App() as app:
        found: list[str] = []
        app.on_error(app.ctx, lambda failure: found.append(str(failure.error)))
        await app.mount(LlmService).settled()
        mount = app.mount(LlmReplay, {"script": ["a", "b"], "require_consumed": True})
        await mount.settled()
        await reply(app)
        await mount.dispose()
        assert any("1 of 2 script entries" in message for message in found)


WRONG: list[tuple[dict[str, Any], str]] = [
    ({}, "exactly one of"),
    ({"script": ["a"], "recording": "x"}, "exactly one of"),
    ({"script": ["a"], "override": "x"}, "belong to a recording"),
    ({"script": ["a"], "models": ["bare"]}, "provider/model"),
    ({"script": ["a"], "models": []}, "at least one model"),
    ({"script": [{}]}, "a step needs one of"),
    ({"script": ["a"], "colour": 1}, "colour"),
]


@pytest.mark.parametrize(("config", "problem"), WRONG)
async def test_a_wrong_configuration_is_refused(config: dict[str, Any], problem: str) -> None:
    async with App() as app:
        await app.mount(LlmService).settled()
        with pytest.raises(ConfigError, match=problem):
            await app.mount(LlmReplay, config).settled()


async def test_a_malformed_recording_fails_the_start(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("{}")
    async with App() as app:
        await app.mount(LlmService).settled()
        with pytest.raises(ReplayError, match="event 0"):
            await app.mount(LlmReplay, {"recording": str(path)}).settled()


def test_the_entry_point_is_the_plugin() -> None:
    project = tomllib.loads(
        Path(__file__).parents[1].joinpath("pyproject.toml").read_text(encoding="utf-8")
    )["project"]
    value = project["entry-points"]["dsh.plugins"][LlmReplay.name]
    assert EntryPoint(LlmReplay.name, value, "dsh.plugins", "d", "1").load() is LlmReplay


def log(*answers: Sequence[StreamChunk]) -> str:
    rows = [
        {"type": "assistant/chunk", "data": {"turn": 1, "step": n, "chunk": to_wire(chunk)}}
        for n, answer in enumerate(answers, 1)
        for chunk in answer
    ]
    return "\n".join(json.dumps(row) for row in rows)


# Chunks as bytes of the wire


def deltas(chunks: Sequence[StreamChunk]) -> list[dict[str, Any]]:
    return [p["choices"][0]["delta"] for p in payloads(chunks) if p.get("choices")]


def test_an_answer_becomes_the_payloads_a_provider_would_send() -> None:
    found = list(payloads(reasoning("ab", "c")))
    assert [p["choices"][0]["delta"] for p in found] == [
        {"role": "assistant", "content": ""},
        {"reasoning_content": "a"},
        {"reasoning_content": "b"},
        {"content": "c"},
        {},
    ]
    assert found[-1]["choices"][0]["finish_reason"] == "stop"
    assert found[-1]["usage"] == {
        "prompt_tokens": 10,
        "completion_tokens": 3,
        "total_tokens": 13,
    }
    assert encode_chunks(text("x")).endswith(b"data: [DONE]\n\n")
    assert not encode_chunks(text("x"), done=False).endswith(b"data: [DONE]\n\n")


def test_tool_calls_are_numbered_apart_from_other_blocks() -> None:
    found = deltas(tool_calls([("a", "t", "{}"), ("b", "u", '{"x":1}')], "text"))
    calls = [delta["tool_calls"][0] for delta in found if "tool_calls" in delta]
    assert [call["index"] for call in calls] == [0, 0, 1, 1]
    assert calls[0] == {
        "index": 0,
        "type": "function",
        "id": "a",
        "function": {"name": "t", "arguments": "{"},
    }
    assert calls[3] == {"index": 1, "function": {"arguments": ":1}"}} or "name" not in calls[3]


def test_a_block_without_deltas_is_sent_whole() -> None:
    chunks = [
        BlockEnd(0, TextBlock("whole")),
        BlockEnd(1, ToolCallBlock("c", "t", "{}")),
        Finish(FinishReason("max-tokens")),
    ]
    found = list(payloads(chunks))
    assert found[1]["choices"][0]["delta"] == {"content": "whole"}
    assert found[2]["choices"][0]["delta"]["tool_calls"][0]["function"]["name"] == "t"
    assert found[3]["choices"][0]["finish_reason"] == "length"


def test_usage_counts_cached_tokens_as_prompt() -> None:
    found = wire_usage(TokenUsage(6, 5, 4, None, 2))
    assert found["prompt_tokens"] == 10
    assert found["prompt_cache_hit_tokens"] == 4
    assert found["completion_tokens_details"] == {"reasoning_tokens": 2}
    last = list(payloads([UsageChunk(TokenUsage(1, 1)), Finish(FinishReason("refusal"))]))[-1]
    assert last["choices"][0]["finish_reason"] == "refusal"


async def test_a_script_can_be_served_over_the_wire() -> None:
    gate = Gate()
    facts = LlmFailure(429, 1500)
    answers: list[Answer] = [
        max_tokens("cut"),
        error("slow down", "RATE_LIMIT", failure=facts),
        throw("down", "SERVER", failure=LlmFailure(503)),
        error("midway", "SERVER", chunks=text("ab")[:3]),
        throw("lost", chunks=text("ab")[:3]),
        hold(gate, text("held"), after=3),
    ]
    async with WireServer(wire_script(answers)) as server, httpx.AsyncClient() as client:
        url = server.url + "/chat/completions"
        cut, limited, down, midway = [await client.post(url, json={}) for _ in range(4)]
        assert '"finish_reason":"length"' in cut.text
        assert (limited.status_code, limited.headers["retry-after"]) == (429, "2")
        assert down.status_code == 503
        assert '"message":"midway"' in midway.text
        with pytest.raises(httpx.ReadError):
            await client.post(url, json={})
        assert server.attempts[4].chunks_sent == 3
        async with anyio.create_task_group() as tasks:

            async def read() -> None:
                assert (await client.post(url, json={})).text.endswith("[DONE]\n\n")

            tasks.start_soon(read)
            await gate.reached()
            # The role comes first, then two of the three deltas before the gate.
            assert server.attempts[5].chunks_sent == 3
            gate.open()


async def test_a_hanging_answer_stalls_on_the_wire() -> None:
    async with WireServer([behaviour_of(hang("w"))]) as server, httpx.AsyncClient() as client:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(client.post, server.url + "/chat/completions")
            tasks.cancel_scope.cancel()
        assert [step for step in behaviour_of(hang("w")).steps if "Stall" in repr(step)]
