"""The wire server as its clients see it, over httpx and over bare sockets."""

from __future__ import annotations

import json
import ssl
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
import anyio.abc
import httpx
import pytest
import trustme

from dsh.llm_replay import server as wire
from dsh.llm_replay.server import Attempt, Behaviour, Gate, RandomBehaviour, WireRequest, WireServer

BODY = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "stream": True}


@dataclass
class Seen:
    """What a client got of one answer."""

    status: int = 0
    headers: httpx.Headers = field(default_factory=httpx.Headers)
    parts: list[bytes] = field(default_factory=list[bytes])
    error: str | None = None

    @property
    def body(self) -> bytes:
        return b"".join(self.parts)

    @property
    def payloads(self) -> list[Any]:
        lines = self.body.decode().split("\n")
        return [json.loads(x[6:]) for x in lines if x.startswith("data: {")]

    @property
    def text(self) -> str:
        deltas = [c["delta"] for p in self.payloads for c in p.get("choices", ())]
        return "".join(delta.get("content") or "" for delta in deltas)


async def ask(
    server: WireServer,
    client: httpx.AsyncClient,
    *,
    path: str = "/chat/completions",
    body: Any = BODY,
) -> Seen:
    seen = Seen()
    try:
        async with client.stream("POST", server.url + path, json=body) as response:
            seen.status = response.status_code
            seen.headers = response.headers
            async for part in response.aiter_raw():
                seen.parts.append(part)
    except httpx.TransportError as error:
        seen.error = type(error).__name__
    return seen


@asynccontextmanager
async def serving(
    *script: Any, **options: Any
) -> AsyncGenerator[tuple[WireServer, httpx.AsyncClient], None]:
    # A cancelled test must not leave a task behind, so everything is bounded.
    with anyio.fail_after(10):
        async with WireServer(script, **options) as server, httpx.AsyncClient() as client:
            yield server, client


@asynccontextmanager
async def raw(server: WireServer) -> AsyncGenerator[anyio.abc.SocketStream, None]:
    async with await anyio.connect_tcp(server.host, server.port) as stream:
        yield stream


async def read_all(stream: anyio.abc.SocketStream) -> bytes:
    data = b""
    try:
        while True:
            data += await stream.receive()
    except anyio.EndOfStream:
        return data


def request_bytes(body: bytes = b"{}", *lines: str, version: str = "1.1") -> bytes:
    head = [f"POST /chat/completions HTTP/{version}", "Host: x", *lines]
    head.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*head, "", ""]).encode() + body


async def test_a_success_streams_text_usage_and_done() -> None:
    async with serving(wire.success("Hello, world", chunk_size=5)) as (server, client):
        seen = await ask(server, client)
    assert seen.status == 200
    assert seen.headers["content-type"].startswith("text/event-stream")
    assert seen.text == "Hello, world"
    assert seen.payloads[-1]["choices"][0]["finish_reason"] == "stop"
    assert seen.payloads[-1]["usage"]["prompt_tokens"] == 10
    assert seen.body.endswith(b"data: [DONE]\n\n")


async def test_an_attempt_records_headers_body_chunks_and_outcome() -> None:
    finished: list[int] = []

    def note(attempt: Attempt) -> None:
        finished.append(attempt.number)

    async with serving("success", on_finished=note) as (
        server,
        client,
    ):
        await client.post(
            server.url + "/v1/chat/completions?x=1",
            json=BODY,
            headers={"Authorization": "Bearer k", "X-Thing": "y"},
        )
        attempt = await server.attempt(1)
        assert await attempt.finished() == "completed"
    assert attempt.number == 1
    assert attempt.request.path == "/v1/chat/completions?x=1"
    assert attempt.headers["x-thing"] == "y"
    assert attempt.headers["authorization"] == "Bearer k"
    assert attempt.body == BODY
    assert attempt.request.model == "m"
    assert attempt.request.last_text == "hi"
    assert (attempt.scripted, attempt.behaviour, attempt.status) == ("success", "success", 200)
    assert attempt.chunks_sent == 6
    assert not attempt.client_disconnected
    assert finished == [1]
    assert "authorization" not in attempt.as_json()["headers"]


async def test_the_script_is_first_in_first_out_and_its_end_is_loud() -> None:
    async with serving("rate_limit", "success") as (server, client):
        assert (await ask(server, client)).status == 429
        assert server.remaining == 1
        assert (await ask(server, client)).status == 200
        server.assert_consumed()
        over = await ask(server, client)
        assert over.status == 500
        assert json.loads(over.body)["error"]["code"] == "MOCK_SCRIPT_EXHAUSTED"
        assert server.attempts[-1].behaviour == "exhausted"
        server.append("success")
        with pytest.raises(AssertionError, match="1 script entries"):
            server.assert_consumed()
        assert (await ask(server, client)).status == 200


async def test_repeat_last_never_runs_out() -> None:
    async with serving("rate_limit", "success", repeat_last=True) as (server, client):
        found = [(await ask(server, client)).status for _ in range(4)]
    assert found == [429, 200, 200, 200]


async def test_one_entry_instead_of_a_list_serves_every_request() -> None:
    async with WireServer("success") as server, httpx.AsyncClient() as client:
        assert [(await ask(server, client)).status for _ in range(3)] == [200] * 3


async def test_what_is_no_model_call_does_not_consume_the_script() -> None:
    async with serving("success", token="secret") as (server, client):
        url = server.url + "/chat/completions"
        good = {"Authorization": "Bearer secret"}
        assert (await client.post(server.url + "/models", json=BODY)).status_code == 404
        assert (await client.get(url, headers=good)).status_code == 405
        assert (await client.post(url, json=BODY)).status_code == 401
        wrong = {"Authorization": "Bearer other"}
        assert (await client.post(url, json=BODY, headers=wrong)).status_code == 401
        assert (await client.post(url, content=b"{oops", headers=good)).status_code == 400
        assert (await client.post(url, content=b"[1]", headers=good)).status_code == 400
        assert server.attempts == []
        assert [r.status for r in server.rejections] == [404, 405, 401, 401, 400, 400]
        assert (await client.post(url, json=BODY, headers=good)).status_code == 200


async def test_a_function_answers_according_to_the_conversation() -> None:
    def answer(request: WireRequest) -> Behaviour | str:
        if request.tool_results:
            return wire.success(f"it said {request.tool_results[0]}")
        return wire.tool_call_success("bash", {"command": "ls"}, call_id="c1")

    async with WireServer(answer) as server, httpx.AsyncClient() as client:
        first = await ask(server, client)
        assert first.payloads[-1]["choices"][0]["finish_reason"] == "tool_calls"
        messages: list[dict[str, Any]] = [
            {"role": "user", "content": "list"},
            {"role": "assistant", "content": "", "tool_calls": []},
            {"role": "tool", "tool_call_id": "c1", "content": "a.txt"},
        ]
        second = await ask(server, client, body={"messages": messages})
        assert second.text == "it said a.txt"
        assert server.attempts[1].scripted == "answer"


async def test_a_failing_function_is_an_answer_that_says_so() -> None:
    def broken(request: WireRequest) -> Behaviour:
        raise KeyError("nope")

    async with serving(broken) as (server, client):
        seen = await ask(server, client)
    assert seen.status == 500
    assert "KeyError('nope')" in json.loads(seen.body)["error"]["message"]


async def test_random_entries_follow_the_seed_and_report_the_choice() -> None:
    entry = RandomBehaviour({"success": 1, "rate_limit": 1, "server_error": 1})

    async def run(seed: int) -> list[str]:
        async with WireServer(entry, seed=seed) as server, httpx.AsyncClient() as client:
            for _ in range(8):
                await ask(server, client)
            assert {a.scripted for a in server.attempts} == {"random"}
            return [a.behaviour for a in server.attempts]

    assert await run(7) == await run(7)
    assert len(set(await run(7))) > 1


@pytest.mark.parametrize(
    ("name", "status", "text"),
    [
        ("rate_limit", 429, "Rate limit"),
        ("server_error", 500, "error"),
        ("service_unavailable", 503, "overloaded"),
        ("auth_error", 401, "Authentication"),
        ("forbidden", 403, "may not"),
        ("invalid_request", 400, "Invalid"),
        ("context_overflow", 400, "maximum context length"),
        ("quota_exceeded", 429, "quota"),
        ("http_402", 402, "Insufficient Balance"),
        ("http_413", 413, "too large"),
        ("http_422", 422, "Invalid parameters"),
    ],
)
async def test_http_errors_carry_a_provider_error(name: str, status: int, text: str) -> None:
    async with serving(name) as (server, client):
        seen = await ask(server, client)
        assert server.attempts[0].outcome == "completed"
    assert seen.status == status
    assert seen.headers["x-request-id"] == "req-scripted"
    assert text in json.loads(seen.body)["error"]["message"]


async def test_retry_after_is_seconds_or_a_date() -> None:
    script = (wire.rate_limit(retry_after=7), "retry_after_date", wire.rate_limit(retry_after=None))
    async with serving(*script) as (server, client):
        found = [(await ask(server, client)).headers.get("retry-after") for _ in script]
    assert found[0] == "7"
    assert str(found[1]).endswith("GMT")
    assert found[2] is None


async def test_an_error_body_may_be_text_or_nothing_or_any_json() -> None:
    script = (
        wire.http_text(502, "bad gateway"),
        wire.http_text(500),
        wire.http_json(418, {"a": 1}),
    )
    async with serving(*script) as (server, client):
        found = [await ask(server, client) for _ in script]
    assert [(s.status, s.body) for s in found] == [
        (502, b"bad gateway"),
        (500, b""),
        (418, b'{"a":1}'),
    ]


@pytest.mark.parametrize(
    ("name", "error", "chunks", "outcome"),
    [
        ("stream_eof", None, 0, "completed"),
        ("empty_body", None, 0, "completed"),
        ("partial_eof", None, 3, "completed"),
        ("partial_line", None, 2, "completed"),
        ("truncated", "RemoteProtocolError", 3, "truncated"),
        ("stream_disconnect", "ReadError", 1, "reset"),
        ("partial_disconnect", "ReadError", 3, "reset"),
        ("connection_reset", "ReadError", 0, "reset"),
        ("connection_close", "RemoteProtocolError", 0, "truncated"),
    ],
)
async def test_broken_streams(name: str, error: str | None, chunks: int, outcome: str) -> None:
    async with serving(name) as (server, client):
        seen = await ask(server, client)
        attempt = await server.attempt()
        assert await attempt.finished() == outcome
    assert seen.error == error
    assert seen.body.count(b"data: {") - (name == "partial_line") == chunks
    assert attempt.chunks_sent == chunks
    assert b"[DONE]" not in seen.body


async def test_malformed_answers_arrive_as_scripted() -> None:
    script = ("malformed_json", "malformed_event", "wrong_content_type", "json_error_200")
    async with serving(*script) as (server, client):
        bad_json, bad_event, html, json_error = [await ask(server, client) for _ in script]
    assert b"data: {not json\n\n" in bad_json.body
    assert bad_event.body.startswith(b"!!!")
    assert not bad_event.body.endswith(b"\n\n")
    assert (html.status, html.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert (json_error.status, json_error.headers["content-type"]) == (200, "application/json")


async def test_an_error_object_can_come_in_the_middle() -> None:
    answer = wire.error_object_midstream("Insufficient Balance", chunks=2)
    async with serving(answer) as (server, client):
        seen = await ask(server, client)
    assert [("error" in p) for p in seen.payloads] == [False, False, True]
    assert seen.payloads[2]["error"]["message"] == "Insufficient Balance"


async def test_split_every_byte_reaches_an_http_client_byte_by_byte() -> None:
    async with serving("split_every_byte", wire.success("caf\u00e9").split(3)) as (server, client):
        seen = await ask(server, client)
        threes = await ask(server, client)
    assert {len(part) for part in seen.parts} == {1}
    assert "\U0001f680" in seen.text
    assert {len(part) for part in threes.parts[:-1]} == {3}
    assert threes.text == "caf\u00e9"


async def test_framing_variants_keep_the_text() -> None:
    script = ("crlf_framing", "cr_framing", "bom", "u2028_payload", "keepalive_then_success")
    async with serving(*script) as (server, client):
        crlf, cr, bom, separators, comments = [await ask(server, client) for _ in script]
    assert b"\r\n\r\n" in crlf.body
    assert b"\n" not in cr.body
    assert bom.body.startswith(b"\xef\xbb\xbfdata:")
    assert "\u2028".encode() in separators.body
    assert separators.text == "one\u2028two\u0085three"
    assert comments.body.startswith(b": keep-alive\n\n: keep-alive\n\n")


async def test_endings_of_a_stream_that_a_parser_must_not_trust() -> None:
    script = ("unterminated_done", "events_after_done", wire.finish_reason("content_filter"))
    async with serving(*script) as (server, client):
        unterminated, after, filtered = [await ask(server, client) for _ in script]
    assert unterminated.body.endswith(b"data: [DONE]")
    assert after.text.endswith("ignored")
    assert filtered.payloads[-1]["choices"][0]["finish_reason"] == "content_filter"


async def test_usage_variants() -> None:
    script = ("usage_trailing", "usage_attached_and_trailing")
    async with serving(*script) as (server, client):
        trailing, both = [await ask(server, client) for _ in script]
    assert trailing.payloads[-1]["choices"] == []
    assert [p["usage"]["prompt_tokens"] for p in both.payloads if "usage" in p] == [1, 10]


async def test_parallel_tool_calls_interleave() -> None:
    async with serving("tool_call_parallel_interleaved") as (server, client):
        seen = await ask(server, client)
    calls = [
        call
        for payload in seen.payloads
        for choice in payload["choices"]
        for call in choice["delta"].get("tool_calls", ())
    ]
    assert [call["index"] for call in calls[:4]] == [0, 1, 0, 1]
    arguments = {0: "", 1: ""}
    for call in calls:
        arguments[call["index"]] += call["function"]["arguments"]
    assert json.loads(arguments[1]) == {"command": "echo two"}


async def test_a_gate_stops_the_stream_where_the_test_wants_it() -> None:
    gate = Gate("middle")
    async with serving(wire.success("Hello there", chunk_size=4).hold(gate, after=2)) as (
        server,
        client,
    ):
        seen: list[Seen] = []

        async def run() -> None:
            seen.append(await ask(server, client))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run)
            await gate.reached()
            attempt = await server.attempt()
            assert attempt.outcome == "active"
            assert attempt.chunks_sent == 2
            assert not seen
            gate.open()
        assert seen[0].text == "Hello there"
        assert server.attempts[0].outcome == "completed"


async def test_a_gate_can_stand_before_the_status_line() -> None:
    gate = Gate()
    async with serving(wire.success().hold_before(gate)) as (server, client):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask, server, client)
            await gate.reached()
            assert server.attempts[0].bytes_sent == 0
            gate.open()
        assert server.attempts[0].outcome == "completed"


@pytest.mark.parametrize("name", ["stall", "stall_before_headers", "endless_comments"])
async def test_a_client_that_gives_up_is_noticed(name: str) -> None:
    async with serving(name) as (server, client):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask, server, client)
            await server.attempt()
            tasks.cancel_scope.cancel()
        attempt = await server.attempt()
        assert await attempt.finished() == "client-aborted"
        assert attempt.client_disconnected


async def test_a_client_that_leaves_at_a_gate_is_noticed() -> None:
    gate = Gate()
    async with serving(wire.success().hold(gate, after=1)) as (server, _):
        async with raw(server) as stream:
            await stream.send(request_bytes())
            await gate.reached()
            assert b"data: {" in await stream.receive()
        attempt = await server.attempt()
        assert await attempt.finished() == "client-aborted"
        assert attempt.chunks_sent == 1


async def test_the_end_of_the_server_ends_running_responses() -> None:
    async with httpx.AsyncClient() as client, anyio.create_task_group() as tasks:
        async with WireServer("stall") as server:
            tasks.start_soon(ask, server, client)
            attempt = await server.attempt()
        assert attempt.outcome == "server-stopped"


async def test_connections_are_kept_alive_and_counted() -> None:
    async with serving("success", "rate_limit", "success", "truncated", "success") as (
        server,
        client,
    ):
        for _ in range(5):
            await ask(server, client)
        assert [a.connection for a in server.attempts] == [1, 1, 1, 1, 2]
        assert server.connections == 2


async def test_a_bound_port_refuses_until_the_server_listens() -> None:
    async with serving("success", "success", listening=False) as (server, client):
        assert (await ask(server, client)).error == "ConnectError"
        server.listen()
        assert (await ask(server, client)).status == 200
        port = server.port
        server.refuse()
        assert (await ask(server, client)).error == "ConnectError"
        assert server.port == port
        server.listen()
        assert (await ask(server, client)).status == 200


async def test_listening_needs_an_entered_server() -> None:
    with pytest.raises(RuntimeError, match="enter the server"):
        WireServer().listen()


async def test_ipv6() -> None:
    try:
        server = WireServer("success", host="::1")
        await server.__aenter__()
    except OSError:
        pytest.skip("no IPv6 on this machine")
    try:
        assert server.url == f"http://[::1]:{server.port}"
        async with httpx.AsyncClient() as client:
            assert (await ask(server, client)).status == 200
    finally:
        await server.__aexit__()


async def test_tls() -> None:
    authority: Any = trustme.CA()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    trust = ssl.create_default_context()
    authority.configure_trust(trust)
    script = ["success", "success", "partial_disconnect"]
    async with WireServer(script, ssl_context=context) as server:
        assert server.url.startswith("https://")
        async with httpx.AsyncClient(verify=trust) as client:
            assert (await ask(server, client)).text == "Hello from the scripted model."
            assert (await ask(server, client)).status == 200
            assert server.connections == 1
            assert (await ask(server, client)).error == "ReadError"
        async with httpx.AsyncClient() as stranger:
            assert (await ask(server, stranger)).error == "ConnectError"


async def test_headers_can_be_added_and_replaced() -> None:
    answer = wire.success().with_headers(x_ds_trace_id="t1", content_type="application/x-ndjson")
    async with serving(answer) as (server, client):
        seen = await ask(server, client)
    assert seen.headers["x-ds-trace-id"] == "t1"
    assert seen.headers["content-type"] == "application/x-ndjson"


async def test_pacing_waits_between_payloads_only() -> None:
    paced = wire.slow_success("12345678901234567890", delay=0.001)
    waits = [step for step in paced.steps if isinstance(step, wire.Wait)]
    assert len(waits) == 4
    async with serving(paced, wire.success().delayed(0.001)) as (server, client):
        assert (await ask(server, client)).text == "12345678901234567890"
        assert (await ask(server, client)).status == 200


async def test_a_reset_is_seen_by_a_bare_socket_after_the_data() -> None:
    async with serving("partial_disconnect") as (server, _), raw(server) as stream:
        await stream.send(request_bytes())
        with pytest.raises(anyio.BrokenResourceError):
            await read_all(stream)


async def test_a_truncated_body_lacks_its_last_chunk() -> None:
    async with serving("truncated", "partial_eof") as (server, _):
        async with raw(server) as stream:
            await stream.send(request_bytes())
            assert not (await read_all(stream)).endswith(b"0\r\n\r\n")
        async with raw(server) as stream:
            await stream.send(request_bytes(b"{}", "Connection: close"))
            assert (await read_all(stream)).endswith(b"0\r\n\r\n")


async def test_http_1_0_gets_a_body_without_chunks() -> None:
    async with serving("success") as (server, _), raw(server) as stream:
        await stream.send(request_bytes(version="1.0"))
        answer = await read_all(stream)
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"transfer-encoding" not in head
    assert body.startswith(b"data: ")
    assert body.endswith(b"[DONE]\n\n")


async def test_a_request_may_arrive_in_pieces_chunked_and_after_a_continue() -> None:
    async with serving("success") as (server, _), raw(server) as stream:
        head = (
            b"POST /chat/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
            b"Expect: 100-continue\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        await stream.send(head[:30])
        await anyio.wait_all_tasks_blocked()
        await stream.send(head[30:])
        assert await stream.receive() == b"HTTP/1.1 100 Continue\r\n\r\n"
        await stream.send(b'4\r\n{"a"\r\n')
        await stream.send(b"3;x=y\r\n:1}\r\n0\r\nTrailer: t\r\n\r\n")
        assert (await read_all(stream)).startswith(b"HTTP/1.1 200 OK")
        assert server.attempts[0].body == {"a": 1}


async def test_pipelined_requests_are_answered_in_order() -> None:
    gate = Gate()
    script = (wire.success("one").hold(gate, after=1), "rate_limit")
    async with serving(*script) as (server, _), raw(server) as stream:
        await stream.send(request_bytes() + request_bytes(b"{}", "Connection: close"))
        await gate.reached()
        gate.open()
        answer = await read_all(stream)
    assert answer.index(b"200 OK") < answer.index(b"429 Too Many")


@pytest.mark.parametrize(
    "data",
    [
        b"nonsense\r\n\r\n",
        b"POST / HTTP/1.1\r\nno colon here\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: x\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    ],
)
async def test_a_malformed_request_is_refused_and_the_connection_closed(data: bytes) -> None:
    async with serving("success") as (server, _), raw(server) as stream:
        await stream.send(data)
        assert (await read_all(stream)).startswith(b"HTTP/1.1 400 ")
        assert server.attempts == []


async def test_a_client_that_leaves_inside_a_request_does_no_harm() -> None:
    async with serving("success") as (server, client):
        async with raw(server) as stream:
            await stream.send(b"POST /chat/completions HTTP/1.1\r\nContent-Le")
        async with raw(server) as stream:
            await stream.send(request_bytes(b"{}")[:-1])
        async with raw(server):
            pass
        assert (await ask(server, client)).status == 200


async def test_many_clients_are_served_at_once() -> None:
    gates = [Gate(str(number)) for number in range(20)]
    script = [wire.success(str(n)).hold(gate, after=1) for n, gate in enumerate(gates)]
    async with serving(*script) as (server, client):
        async with anyio.create_task_group() as tasks:
            for _ in gates:
                tasks.start_soon(ask, server, client)
            for gate in gates:
                await gate.reached()
            for gate in reversed(gates):
                gate.open()
        assert {a.outcome for a in server.attempts} == {"completed"}


async def test_a_long_answer_is_few_writes() -> None:
    answer = wire.success("x" * 160_000)
    assert len(answer.writes) < 70
    ready = wire.raw(answer.body, chunks=20_002)
    async with serving(answer, ready) as (server, client):
        first = await ask(server, client)
        second = await ask(server, client)
        assert first.body == second.body
        assert [a.chunks_sent for a in server.attempts] == [20_002, 20_002]


async def test_the_control_routes_read_the_record_and_open_gates() -> None:
    async with serving("success", control=True) as (server, client):
        server.append(wire.success().hold(server.gate("g"), after=1))
        await ask(server, client)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask, server, client)
            await server.gate("g").reached()
            status = (await client.get(server.url + "/__wire__/status")).json()
            assert status["gates"] == {"g": {"reached": True, "open": False}}
            assert (await client.post(server.url + "/__wire__/open/g")).json() == {"open": "g"}
        attempts = (await client.get(server.url + "/__wire__/attempts")).json()
        assert [a["outcome"] for a in attempts] == ["completed", "completed"]
        assert (await client.get(server.url + "/__wire__/what")).status_code == 404
    async with serving("success") as (server, client):
        assert (await client.get(server.url + "/__wire__/status")).status_code == 404


async def test_another_wire_has_a_route_and_bytes_of_its_own() -> None:
    hello = Behaviour("hello", (wire.Send(b"text Hel\n", 1), wire.Send(b"text lo\n", 1)))
    script = [hello, hello.cut(after=1)]
    async with WireServer(script, route="/say") as server, httpx.AsyncClient() as client:
        assert (await ask(server, client, path="/v1/say")).body == b"text Hel\ntext lo\n"
        assert (await ask(server, client, path="/v1/say")).body == b"text Hel\n"
        assert (await ask(server, client)).status == 404
        assert server.rejections[-1].reason.endswith("only POST .../say is served")
