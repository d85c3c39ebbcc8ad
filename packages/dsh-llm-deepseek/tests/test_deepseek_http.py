"""The adapter against a server that speaks the wire, with every fault the wire knows."""

from __future__ import annotations

import gzip
import json
import logging
import socket
from contextlib import aclosing
from typing import Any

import anyio
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dsh.core import App, DshError
from dsh.core.testing import set_wall_clock
from dsh.llm import (
    BlockAssembler,
    Finish,
    FinishReason,
    LlmError,
    LlmFailure,
    LlmRequest,
    LlmService,
    Message,
    StreamChunk,
    TextBlock,
    TextDelta,
    TokenUsage,
    error_chain,
)
from dsh.llm.testing import collect
from dsh.llm_deepseek import DeepSeekAdapter, DeepSeekPlugin
from dsh.llm_deepseek._provider_errors import ERROR_BODY_BYTES
from dsh.llm_replay import server as wire
from dsh.llm_replay.server import Behaviour, Entry, Send, WireRequest, WireServer

KEY = "sk-http-test-key"
TEXT = "Hello from the scripted model."
HELLO = Message("user", (TextBlock("hello"),))


def request(*messages: Message, **fields: Any) -> LlmRequest:
    return LlmRequest("deepseek-flash", messages or (HELLO,), **fields)


def adapter_for(base_url: str, **config: Any) -> DeepSeekAdapter:
    return DeepSeekAdapter({"base_url": base_url, **config}, environ={"DEEPSEEK_API_KEY": KEY})


async def run(*script: Entry, **config: Any) -> list[StreamChunk]:
    """Make one request to a server with this script and hold the answer against the protocol."""
    async with WireServer(list(script)) as server:
        adapter = adapter_for(server.url, **config)
        try:
            return await collect(adapter.stream(request()))
        finally:
            await adapter.aclose()


async def failure_of(*script: Entry, **config: Any) -> LlmError:
    with pytest.raises(LlmError) as caught:
        await run(*script, **config)
    return caught.value


async def read_into(chunks: list[StreamChunk], adapter: DeepSeekAdapter) -> None:
    """Keep what arrives before a failure."""
    async with aclosing(adapter.stream(request())) as stream:
        async for chunk in stream:
            chunks.append(chunk)


def text_of(chunks: list[StreamChunk]) -> str:
    return "".join(chunk.text for chunk in chunks if isinstance(chunk, TextDelta))


def finish_of(chunks: list[StreamChunk]) -> FinishReason:
    last = chunks[-1]
    assert isinstance(last, Finish)
    return last.reason


async def test_what_is_rendered_is_what_is_sent() -> None:
    asked = request(HELLO, system="é 你好", max_tokens=9, temperature=0.5, stop=("x",))
    async with WireServer([wire.success(TEXT)]) as server:
        adapter = adapter_for(server.url, extra_body={"seed": 7})
        body = adapter.render(asked)
        await collect(adapter.stream(asked))
        attempt = server.attempts[0]
        assert attempt.headers["content-length"] == str(len(body))
        assert attempt.body == json.loads(body)
        assert KEY.encode() not in body
        await adapter.aclose()


# case: HTTP-01
async def test_an_answer_through_the_service() -> None:
    usage = wire.usage(10, 7, cached_tokens=4, reasoning_tokens=2)
    async with WireServer([wire.reasoning_success("hm", TEXT, usage=usage)], token=KEY) as server:
        async with App() as app:
            await app.mount(LlmService).settled()
            config = {"base_url": server.url, "api_key": KEY}
            await app.mount(DeepSeekPlugin, config).settled()
            chunks = await collect(app[LlmService].stream(request()))
        assembler = BlockAssembler()
        for chunk in chunks:
            assembler.push(chunk)
        assert assembler.message().content[1] == TextBlock(TEXT)
        assert assembler.usage == TokenUsage(6, 7, cache_read_tokens=4, reasoning_tokens=2)
        assert finish_of(chunks).kind == "stop"
        (attempt,) = server.attempts
        assert attempt.request.path == "/chat/completions"
        assert attempt.headers["authorization"] == f"Bearer {KEY}"
        assert attempt.headers["content-type"] == "application/json"
        assert attempt.headers["accept"] == "text/event-stream"
        assert attempt.headers["user-agent"].startswith("dsh/")
        assert attempt.headers["content-length"].isdigit()
        assert attempt.body["messages"] == [{"role": "user", "content": "hello"}]
        assert attempt.outcome == "completed"


async def test_only_the_headers_that_are_needed_are_sent() -> None:
    async with WireServer([wire.success()]) as server:
        adapter = adapter_for(server.url)
        asked = request(session_id="s-1", purpose="compaction")
        await collect(adapter.stream(asked))
        await adapter.aclose()
        assert set(server.attempts[0].headers) == {
            "host",
            "authorization",
            "accept",
            "accept-encoding",
            "content-type",
            "content-length",
            "user-agent",
        }


async def test_extra_headers_are_sent_and_may_replace_the_user_agent() -> None:
    headers = {"X-Title": "mine", "User-Agent": "other/1"}
    async with WireServer([wire.success()]) as server:
        adapter = adapter_for(server.url, extra_headers=headers)
        await collect(adapter.stream(request()))
        await adapter.aclose()
        sent = server.attempts[0].headers
        assert (sent["x-title"], sent["user-agent"]) == ("mine", "other/1")


@pytest.mark.parametrize("suffix", ["", "/", "/v1", "/v1/", "/v1/chat/completions"])
async def test_base_urls_with_and_without_a_path(suffix: str) -> None:
    async with WireServer([wire.success()]) as server:
        adapter = adapter_for(server.url + suffix)
        await collect(adapter.stream(request()))
        await adapter.aclose()
        expected = "/v1/chat/completions" if "v1" in suffix else "/chat/completions"
        assert server.attempts[0].request.path == expected


# case: SSE-08
# case: SSE-10
# case: SSE-12
# case: SSE-13
@pytest.mark.parametrize(
    ("behaviour", "text"),
    [
        (wire.split_every_byte(), "caf\u00e9 \u4f60\u597d \U0001f680"),
        (wire.crlf_framing(), TEXT),
        (wire.crlf_framing().split(1), TEXT),
        (wire.cr_framing(), TEXT),
        (wire.bom().split(1), TEXT),
        (wire.u2028_payload(), "one\u2028two\u0085three"),
        (wire.keepalive_then_success(), TEXT),
        (wire.events_after_done(), TEXT),
    ],
    ids=lambda value: getattr(value, "name", None),
)
async def test_hostile_framing(behaviour: Behaviour, text: str) -> None:
    assert text_of(await run(behaviour)) == text


@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.too_slow])
@given(offsets=st.lists(st.integers(1, 900), max_size=6, unique=True))
def test_any_pieces_on_the_wire_give_the_same_answer(offsets: list[int]) -> None:
    behaviour = wire.reasoning_success("caf\u00e9 \U0001f680", "\u4f60\u597d")
    cuts = [offset for offset in offsets if offset < len(behaviour.body)]

    async def both() -> tuple[list[StreamChunk], list[StreamChunk]]:
        return await run(behaviour), await run(behaviour.split_at(*cuts))

    whole, pieces = anyio.run(both)
    assert whole == pieces


# case: SSE-04
# case: SSE-05
# case: SSE-06
# case: SSE-07
@pytest.mark.parametrize(
    ("behaviour", "deltas"),
    [
        (wire.empty_body(), 0),
        (wire.stream_eof(), 0),
        (wire.partial_eof(), 2),
        (wire.partial_line(), 1),
        (wire.unterminated_done(), 4),
        (wire.malformed_event(), 0),
    ],
    ids=lambda value: getattr(value, "name", None),
)
async def test_an_answer_that_ends_early_is_stream_closed(
    behaviour: Behaviour, deltas: int
) -> None:
    chunks: list[StreamChunk] = []
    async with WireServer([behaviour]) as server:
        adapter = adapter_for(server.url)
        with pytest.raises(LlmError) as caught:
            await read_into(chunks, adapter)
        await adapter.aclose()
    assert caught.value.code == "STREAM_CLOSED"
    assert TEXT.startswith(text_of(chunks))
    assert len([c for c in chunks if isinstance(c, TextDelta)]) == deltas


# case: SSE-14
async def test_an_oversized_event_is_malformed_and_closes_the_connection() -> None:
    async with WireServer([wire.oversized_event(64 << 20), wire.success()]) as server:
        adapter = adapter_for(server.url)
        with pytest.raises(LlmError, match="16777216 bytes") as caught:
            await collect(adapter.stream(request()))
        assert caught.value.code == "MALFORMED_RESPONSE"
        assert await server.attempts[0].finished() == "client-aborted"
        await collect(adapter.stream(request()))
        assert server.connections == 2
        await adapter.aclose()


# case: TR-17
# case: TR-23
@pytest.mark.parametrize(
    ("behaviour", "code"),
    [
        (wire.malformed_json(), "MALFORMED_RESPONSE"),
        (wire.error_object_midstream(), "SERVER"),
        (wire.error_object_midstream("Insufficient Balance"), "QUOTA"),
        (wire.empty(), "EMPTY_RESPONSE"),
        (wire.finish_reason("content_filter"), "CONTENT_FILTER"),
    ],
    ids=lambda value: getattr(value, "name", value),
)
async def test_what_the_stream_says_of_its_failure_is_its_finish(
    behaviour: Behaviour, code: str
) -> None:
    reason = finish_of(await run(behaviour))
    assert (reason.kind, reason.code) == ("error", code)


# case: HTTP-03
# case: HTTP-06
# case: HTTP-07
# case: HTTP-08
# case: HTTP-25
@pytest.mark.parametrize(
    ("behaviour", "code"),
    [
        (wire.auth_error(), "AUTH"),
        (wire.forbidden(), "AUTH"),
        (wire.http_error(401, "You exceeded your current quota"), "AUTH"),
        (wire.rate_limit(), "RATE_LIMIT"),
        (wire.quota_exceeded(), "QUOTA"),
        (wire.http_error(429, "Insufficient Balance"), "QUOTA"),
        (wire.http_text(429, "Insufficient Balance"), "QUOTA"),
        (wire.http_error(503, "Your account balance is exhausted"), "QUOTA"),
        (wire.http_error(400, "Insufficient Balance"), "QUOTA"),
        (wire.context_overflow(), "CONTEXT_WINDOW_EXCEEDED"),
        (wire.http_error(422, "maximum context length is 5 tokens"), "CONTEXT_WINDOW_EXCEEDED"),
        (wire.invalid_request(), "INVALID_REQUEST"),
        (wire.http_error(400, "Invalid length of field name"), "INVALID_REQUEST"),
        (wire.http_402(), "QUOTA"),
        (wire.http_error(402, "payment please"), "QUOTA"),
        (wire.http_413(), "INVALID_REQUEST"),
        (wire.http_error(413, "Insufficient Balance"), "INVALID_REQUEST"),
        (wire.http_422(), "INVALID_REQUEST"),
        (wire.http_error(404, "no such model"), "HTTP_404"),
        (wire.http_error(418, "teapot"), "HTTP_418"),
        (wire.server_error(), "SERVER"),
        (wire.service_unavailable(), "SERVER"),
        (wire.http_error(599, "odd"), "SERVER"),
        (wire.redirect("https://example.org/elsewhere"), "HTTP_307"),
    ],
    ids=lambda value: getattr(value, "name", value),
)
async def test_http_statuses_have_codes(behaviour: Behaviour, code: str) -> None:
    error = await failure_of(behaviour)
    assert error.code == code
    assert error.failure is not None
    assert error.failure.status == behaviour.status


async def test_a_redirect_says_where_to() -> None:
    error = await failure_of(wire.redirect("https://example.org/elsewhere"))
    assert "https://example.org/elsewhere" in str(error)


# case: HTTP-04
async def test_a_rate_limit_keeps_its_facts() -> None:
    error = await failure_of(wire.rate_limit(retry_after=7))
    assert error.code == "RATE_LIMIT"
    assert error.failure == LlmFailure(429, 7000, "req-scripted")
    assert "Rate limit reached" in str(error)


# case: HTTP-05
@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("Thu, 01 Jan 2026 00:00:30 GMT", 30_000),
        ("Thu, 01 Jan 2026 00:00:00 GMT", None),
        ("Wed, 31 Dec 2025 23:59:59 GMT", None),
        ("Thu, 01 Jan 2026 00:00:30 +0000", 30_000),
        ("0", None),
        ("-5", None),
        ("1.5", 1500),
        ("nan", None),
        ("inf", None),
        ("soon", None),
        ("Thu, 99 Foo 2026", None),
        ("", None),
        (" 2 ", 2000),
    ],
)
async def test_retry_after_in_all_its_forms(value: str, expected: float | None) -> None:
    with set_wall_clock(lambda: 1767225600.0):
        error = await failure_of(wire.rate_limit(retry_after=value))
    assert error.failure is not None
    assert error.failure.retry_after_ms == expected


@pytest.mark.parametrize("name", ["x-request-id", "x-deepseek-request-id", "x-ds-trace-id"])
async def test_the_name_of_the_request_is_found(name: str) -> None:
    error = await failure_of(wire.http_error(500, headers={name: "r-7"}, request_id=None))
    assert error.failure == LlmFailure(500, None, "r-7")


# case: HTTP-09
@pytest.mark.parametrize(
    ("behaviour", "body"),
    [
        (wire.http_text(503, "<html>busy</html>", content_type="text/html"), "<html>busy</html>"),
        (wire.http_text(503, "not json"), "not json"),
        (wire.http_json(503, {"error": {"type": "x"}}), '{"error":{"type":"x"}}'),
        (wire.http_json(503, ["odd"]), '["odd"]'),
        (wire.http_text(503, ""), ""),
    ],
)
async def test_without_a_message_the_status_line_speaks(behaviour: Behaviour, body: str) -> None:
    error = await failure_of(behaviour)
    assert "HTTP 503" in error.message
    assert "Service Unavailable" in error.message
    cause = error.__cause__
    assert cause is not None
    assert getattr(cause, "body", None) == body
    assert getattr(cause, "status", None) == 503


@pytest.mark.parametrize(
    "value",
    [{"error": "plain words"}, {"message": "plain words"}, {"detail": "plain words"}],
)
async def test_other_shapes_of_error_bodies(value: object) -> None:
    assert "plain words" in (await failure_of(wire.http_json(400, value))).message


async def test_a_page_of_html_is_no_statement_about_the_account() -> None:
    page = "<html>Insufficient Balance is what our blog is about</html>"
    error = await failure_of(wire.http_text(503, page, content_type="text/html"))
    assert error.code == "SERVER"


async def test_error_bodies_are_read_up_to_a_limit() -> None:
    endless = Behaviour("big", tuple(Send(b"x" * 8192) for _ in range(200)), status=500)
    error = await failure_of(endless)
    assert error.code == "SERVER"
    assert len(getattr(error.__cause__, "body", "")) == ERROR_BODY_BYTES


# case: HTTP-10
async def test_a_refused_connection_names_the_endpoint_and_keeps_the_cause() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        adapter = adapter_for(f"http://127.0.0.1:{port}/v1")
        with pytest.raises(LlmError) as caught:
            await collect(adapter.stream(request()))
        await adapter.aclose()
    error = caught.value
    assert error.code == "TRANSPORT"
    assert f"http://127.0.0.1:{port}/v1" in error.message
    causes: list[BaseException] = []
    cause: BaseException | None = error
    while cause is not None:
        causes.append(cause)
        cause = cause.__cause__
    assert any(isinstance(item, OSError) for item in causes)
    assert "Connection refused" in error.message
    assert "ConnectionRefusedError" in error_chain(error)


async def test_a_host_that_does_not_exist() -> None:
    adapter = adapter_for("http://no-such-host.invalid")
    with pytest.raises(LlmError, match="no-such-host") as caught:
        await collect(adapter.stream(request()))
    assert caught.value.code == "TRANSPORT"
    await adapter.aclose()


# case: HTTP-11
@pytest.mark.parametrize(
    ("behaviour", "deltas"),
    [
        (wire.partial_disconnect(), 2),
        (wire.stream_disconnect(), 0),
        (wire.truncated(), 2),
        (wire.connection_reset(), 0),
        (wire.connection_close(), 0),
    ],
    ids=lambda value: getattr(value, "name", None),
)
async def test_a_lost_connection_is_transport(behaviour: Behaviour, deltas: int) -> None:
    chunks: list[StreamChunk] = []
    async with WireServer([behaviour]) as server:
        adapter = adapter_for(server.url)
        with pytest.raises(LlmError) as caught:
            await read_into(chunks, adapter)
        await adapter.aclose()
        assert caught.value.code == "TRANSPORT"
        assert server.url in caught.value.message
    assert sum(isinstance(chunk, TextDelta) for chunk in chunks) == deltas


# case: HTTP-24
@pytest.mark.parametrize("behaviour", [wire.server_error(), wire.rate_limit(), wire.partial_eof()])
async def test_one_call_is_one_request(behaviour: Behaviour) -> None:
    async with WireServer([behaviour], repeat_last=True) as server:
        adapter = adapter_for(server.url)
        with pytest.raises(LlmError):
            await collect(adapter.stream(request()))
        await adapter.aclose()
        assert len(server.attempts) == 1


# case: HTTP-26
async def test_a_json_error_with_status_200() -> None:
    error = await failure_of(wire.json_error_200())
    assert error.code == "SERVER"
    assert "The server had an error." in error.message
    assert (await failure_of(wire.json_error_200("Insufficient Balance"))).code == "QUOTA"


# case: HTTP-26
async def test_a_page_instead_of_a_stream() -> None:
    error = await failure_of(wire.wrong_content_type())
    assert error.code == "MALFORMED_RESPONSE"
    assert "text/html" in error.message
    assert "Maintenance" in error.message


async def test_a_whole_completion_instead_of_a_stream() -> None:
    value = {"object": "chat.completion", "choices": [{"message": {"content": "hi"}}]}
    error = await failure_of(wire.http_json(200, value))
    assert error.code == "MALFORMED_RESPONSE"
    assert "application/json" in error.message


@pytest.mark.parametrize("kind", ["text/plain", "application/json", ""])
@pytest.mark.parametrize("size", [1, 10_000])
async def test_a_stream_of_another_content_type_is_a_stream(kind: str, size: int) -> None:
    body = b"\n: hi\n\n" + wire.success().body
    answer = Behaviour("typed", (Send(body),), headers=(("content-type", kind),))
    assert text_of(await run(answer.split(size))) == TEXT


# case: HTTP-26
async def test_an_error_object_declared_as_a_stream() -> None:
    body = wire.json_error_200("Insufficient Balance").body
    error = await failure_of(Behaviour("typed", (Send(body),)))
    assert error.code == "QUOTA"


async def test_a_compressed_answer_is_understood() -> None:
    packed = gzip.compress(wire.success().body)
    headers = (("content-type", "text/event-stream"), ("content-encoding", "gzip"))
    assert text_of(await run(Behaviour("gzip", (Send(packed),), headers=headers))) == TEXT
    broken = await failure_of(Behaviour("gzip", (Send(b"no gzip"),), headers=headers))
    assert broken.code == "MALFORMED_RESPONSE"
    headers = (headers[0], ("content-encoding", "br"))
    foreign = await failure_of(Behaviour("br", (Send(b"x"),), headers=headers))
    assert foreign.code == "MALFORMED_RESPONSE"


# case: F-39
async def test_a_server_that_demands_the_reasoning_back() -> None:
    def strict(asked: WireRequest) -> Behaviour:
        for message in asked.messages:
            if message.get("tool_calls") and "reasoning_content" not in message:
                return wire.invalid_request("The reasoning_content must be passed back.")
        return wire.success("done")

    first = wire.tool_call_success("bash", {"command": "ls"}, reasoning="look around")
    plain = wire.tool_call_success("bash", {"command": "ls"})
    async with WireServer([first, strict, plain, strict]) as server:
        adapter = adapter_for(server.url)
        for reasoning in ("look around", ""):
            assembler = BlockAssembler()
            for chunk in await collect(adapter.stream(request())):
                assembler.push(chunk)
            answer = await collect(adapter.stream(request(HELLO, assembler.message())))
            assert text_of(answer) == "done"
            sent = server.attempts[-1].request.messages[-1]
            assert sent["reasoning_content"] == reasoning
        await adapter.aclose()


# case: HTTP-22
async def test_a_new_base_url_leaves_the_running_stream_alone() -> None:
    gate = wire.Gate()
    environ = {"DEEPSEEK_API_KEY": KEY}
    async with (
        WireServer([wire.held_success(gate)]) as old,
        WireServer([wire.success("new")]) as new,
    ):
        environ["DEEPSEEK_BASE_URL"] = old.url
        adapter = DeepSeekAdapter(environ=environ)
        async with aclosing(adapter.stream(request())) as stream:
            chunks = [await anext(stream)]
            environ["DEEPSEEK_BASE_URL"] = new.url
            assert text_of(await collect(adapter.stream(request()))) == "new"
            gate.open()
            chunks += [chunk async for chunk in stream]
        assert text_of(chunks) == TEXT
        assert len(old.attempts) == len(new.attempts) == 1
        await adapter.aclose()


# case: HTTP-23
async def test_settings_that_do_not_fit_leave_the_last_good_ones() -> None:
    async with WireServer([wire.success()]) as server:
        adapter = adapter_for(server.url, reasoning_effort="high")
        good = adapter.config
        for bad in ({"base_url": "nonsense"}, {"idle_timeout_s": -1}, {"unknown": 1}):
            with pytest.raises(ValueError, match="validation error"):
                adapter.configure({"reasoning_effort": "low", **bad})
        assert adapter.config is good
        await collect(adapter.stream(request()))
        assert server.attempts[0].body["reasoning_effort"] == "high"
        adapter.configure({"base_url": server.url, "reasoning_effort": "low"})
        server.append(wire.success())
        await collect(adapter.stream(request()))
        assert server.attempts[1].body["reasoning_effort"] == "low"
        await adapter.aclose()


async def test_an_unusable_base_url_in_the_environment_fails_the_request() -> None:
    environ = {"DEEPSEEK_API_KEY": KEY, "DEEPSEEK_BASE_URL": "https://user:pw-in-url@host"}
    adapter = DeepSeekAdapter(environ=environ)
    with pytest.raises(DshError, match="DEEPSEEK_BASE_URL") as caught:
        await collect(adapter.stream(request()))
    assert caught.value.code == "INVALID_ENDPOINT"
    assert "pw-in-url" not in str(caught.value)
    problem = adapter.preflight("deepseek-flash")
    assert problem is not None
    assert problem.code == "INVALID_ENDPOINT"


async def test_ipv6() -> None:
    async with WireServer([wire.success()], host="::1") as server:
        adapter = adapter_for(server.url)
        assert text_of(await collect(adapter.stream(request()))) == TEXT
        await adapter.aclose()


async def test_debug_logs_of_everybody_show_no_key(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        await run(wire.success())
    assert KEY not in caplog.text


def test_the_example_of_the_wire_is_json() -> None:
    # The server and the adapter must mean the same thing by a payload.
    assert json.loads(wire.success().body.split(b"\n\n")[0].removeprefix(b"data: "))
