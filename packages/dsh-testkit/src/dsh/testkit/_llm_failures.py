"""Adapter contract: answers that fail, break off, or never begin."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from dsh.llm import LlmError, TextDelta
from dsh.llm_replay import server as wire
from dsh.testkit._llm_bench import Bench, LlmCase, cases_of
from dsh.testkit._logs import recorded_logs

__all__ = ["FAILURES"]

TEXT = "An answer of several pieces that never comes to its end."
SAYS = "what the provider has to say"


def _status(status: int, behaviour: wire.Behaviour, *codes: str) -> LlmCase:
    """Make the case of one HTTP error."""

    async def check(bench: Bench) -> None:
        answer = await bench.ask_for_failure(behaviour, *codes)
        failure = answer.finish.failure
        assert failure is not None, "the failure lacks its facts"
        assert failure.status == status, f"the failure has status {failure.status}, not {status}"
        await bench.works()

    name = behaviour.name.replace("_", "-").removeprefix("http-")
    return LlmCase(f"status-{status}" if name == str(status) else f"status-{status}-{name}", check)


STATUSES = (
    _status(400, wire.invalid_request(SAYS), LlmError.INVALID_REQUEST),
    _status(400, wire.context_overflow(), LlmError.CONTEXT_WINDOW_EXCEEDED),
    _status(401, wire.auth_error(SAYS), LlmError.AUTH),
    _status(402, wire.http_402(), LlmError.QUOTA),
    _status(403, wire.forbidden(SAYS), LlmError.AUTH),
    _status(413, wire.http_413(SAYS), LlmError.INVALID_REQUEST),
    _status(418, wire.http_error(418, SAYS), "HTTP_418"),
    _status(422, wire.http_422(SAYS), LlmError.INVALID_REQUEST),
    _status(429, wire.rate_limit(SAYS), LlmError.RATE_LIMIT),
    _status(429, wire.quota_exceeded(), LlmError.QUOTA),
    _status(500, wire.server_error(SAYS), LlmError.SERVER),
    _status(503, wire.service_unavailable(SAYS), LlmError.SERVER),
)


async def provider_message(bench: Bench) -> None:
    """A person learns what the provider said, with its name for the request."""
    answer = await bench.ask_for_failure(wire.http_error(400, SAYS), says=SAYS)
    assert answer.finish.failure is not None
    assert answer.finish.failure.request_id == "req-scripted"


async def error_without_a_message(bench: Bench) -> None:
    """A body that is empty, no JSON, or JSON of another shape still makes a clear failure."""
    for behaviour in (
        wire.http_text(500),
        wire.http_text(502, "<h1>Bad gateway</h1>", content_type="text/html"),
        wire.http_json(500, ["unexpected"]),
        wire.http_json(500, {"error": "just text"}),
    ):
        await bench.ask_for_failure(behaviour, LlmError.SERVER)


async def wait_asked_for(bench: Bench) -> None:
    """How long the provider asks to wait is handed on; nonsense is not."""
    answer = await bench.ask_for_failure(wire.rate_limit(retry_after=7), LlmError.RATE_LIMIT)
    assert answer.finish.failure is not None
    assert answer.finish.failure.retry_after_ms == 7000
    answer = await bench.ask_for_failure(wire.retry_after_date(seconds=60), LlmError.RATE_LIMIT)
    assert answer.finish.failure is not None
    assert 0 < (answer.finish.failure.retry_after_ms or 0) <= 60_000
    for given in (0, "soon", None):
        answer = await bench.ask_for_failure(wire.rate_limit(retry_after=given))
        assert answer.finish.failure is not None
        assert answer.finish.failure.retry_after_ms is None, f"retry-after {given!r}"


async def no_answer_at_all(bench: Bench) -> None:
    """A complete stream without any content is a failure, and so is a body of nothing."""
    await bench.ask_for_failure("empty", LlmError.EMPTY_RESPONSE)
    await bench.ask_for_failure("empty_body", LlmError.EMPTY_RESPONSE, LlmError.STREAM_CLOSED)
    await bench.works()


async def end_before_the_end(bench: Bench) -> None:
    """A stream that ends in good order but too early is no success; what came is kept."""
    answer = await bench.ask_for_failure(wire.partial_eof(TEXT), LlmError.STREAM_CLOSED)
    assert answer.text
    assert TEXT.startswith(answer.text)
    await bench.ask_for_failure("stream_eof", LlmError.STREAM_CLOSED, LlmError.EMPTY_RESPONSE)
    answer = await bench.ask_for_failure(wire.partial_line(TEXT), LlmError.STREAM_CLOSED)
    assert TEXT.startswith(answer.text)
    await bench.works()


async def cut_anywhere(bench: Bench) -> None:
    """Wherever the body ends, the answer is a failure, and no cut call passes for a whole one."""
    arguments = '{"command":"ls"}'
    behaviour = wire.tool_call_success("bash", arguments, text="Hi.")
    for offset in range(0, behaviour.body.index(b"[DONE]"), 11):
        answer = await bench.ask_for_failure(behaviour.cut_bytes(offset))
        assert "Hi.".startswith(answer.text)
        assert all(call.arguments == arguments for call in answer.calls), f"cut at byte {offset}"


async def connection_lost(bench: Bench) -> None:
    """A connection that breaks in the middle is a failure of the transport; what came is kept."""
    ends: tuple[wire.End, ...] = ("reset", "truncate")
    for end in ends:
        gate = wire.Gate()
        start = wire.success(TEXT).cut(after=4)
        behaviour = replace(start, steps=(*start.steps, wire.Hold(gate)), end=end)
        before = len(bench.server.attempts)
        answer = await bench.ask(behaviour, on_chunk=_open_at_text(gate))
        answer.expect_failure(LlmError.TRANSPORT, *([LlmError.STREAM_CLOSED] * (end != "reset")))
        assert answer.text
        assert TEXT.startswith(answer.text)
        assert len(bench.server.attempts) == before + 1
    await bench.works()


async def no_response(bench: Bench) -> None:
    """A connection that breaks before any response is a failure of the transport."""
    await bench.ask_for_failure("connection_reset", LlmError.TRANSPORT)
    await bench.ask_for_failure("connection_close", LlmError.TRANSPORT)
    await bench.works()


async def connection_refused(bench: Bench) -> None:
    """Nobody listening is a failure of the transport that names the endpoint."""
    bench.server.refuse()
    answer = await bench.ask()
    answer.expect_failure(LlmError.TRANSPORT)
    assert str(bench.server.port) in (answer.finish.message or ""), answer.finish.message
    bench.server.listen()
    await bench.works()


async def nonsense(bench: Bench) -> None:
    """What is no stream of payloads is a failure, and the text before it is kept."""
    answer = await bench.ask_for_failure("malformed_json", LlmError.MALFORMED_RESPONSE)
    assert answer.text == "Hello"
    await bench.ask_for_failure("wrong_content_type", LlmError.MALFORMED_RESPONSE)
    await bench.ask_for_failure(
        "malformed_event", LlmError.STREAM_CLOSED, LlmError.MALFORMED_RESPONSE
    )
    await bench.works()


async def long_nonsense_is_cut(bench: Bench) -> None:
    """A message quotes little of what was malformed."""
    answer = await bench.ask_for_failure(wire.malformed_json(text="{" + "x" * 100_000))
    assert len(answer.finish.message or "") < 5_000


async def error_inside_the_stream(bench: Bench) -> None:
    """An error object in the stream is the provider's failure, not the end of the stream."""
    answer = await bench.ask_for_failure(wire.error_object_midstream(SAYS, chunks=3), says=SAYS)
    assert answer.text
    assert answer.finish.code != LlmError.STREAM_CLOSED
    quota = wire.error_object_midstream("You exceeded your current quota.", done=False)
    await bench.ask_for_failure(quota, LlmError.QUOTA)
    await bench.works()


async def error_in_place_of_a_stream(bench: Bench) -> None:
    """Status 200 with an error object is the provider's failure."""
    answer = await bench.ask_for_failure(wire.json_error_200(SAYS), says=SAYS)
    assert answer.finish.code != LlmError.STREAM_CLOSED


async def silence(bench: Bench) -> None:
    """A server that says nothing for too long is given up, and the connection is closed."""
    for number, behaviour in enumerate((wire.stall(chunks=2), wire.stall_before_headers()), 1):
        await bench.ask_for_failure(behaviour, LlmError.TIMEOUT)
        await bench.left(number)
    await bench.works()


async def no_secret_is_told(bench: Bench) -> None:
    """The key is in no message and no log record, also where the provider repeats it."""
    key = bench.endpoint.key
    echoes: tuple[Callable[[str], Any], ...] = (
        wire.auth_error,
        wire.server_error,
        wire.error_object_midstream,
        wire.json_error_200,
        lambda text: wire.http_text(400, text),
        lambda text: wire.malformed_json(text=f"{{{text}"),
    )
    with recorded_logs() as records:
        for echo in echoes:
            await bench.ask_for_failure(echo(f"the key {key} is not known"))
        await bench.works()
    assert not [line for line in records if key in line], "a log record shows the key"


def _open_at_text(gate: wire.Gate) -> Callable[[object], None]:
    """Return what opens a gate as soon as text has arrived."""

    def look(chunk: object) -> None:
        if isinstance(chunk, TextDelta):
            gate.open()

    return look


FAILURES = (
    *STATUSES,
    *cases_of(
        provider_message,
        error_without_a_message,
        wait_asked_for,
        no_answer_at_all,
        end_before_the_end,
        cut_anywhere,
        connection_lost,
        no_response,
        connection_refused,
        nonsense,
        long_nonsense_is_cut,
        error_inside_the_stream,
        error_in_place_of_a_stream,
        no_secret_is_told,
    ),
    *cases_of(silence, timeout_s=0.3),
)
"""The cases of this subject."""
