"""The behaviours by name: broken streams, lost connections and HTTP errors."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from email.utils import formatdate
from typing import Any, Final

from dsh.llm_replay.server._behaviour import Behaviour, Send, Stall, Wait
from dsh.llm_replay.server._catalog import (
    DEFAULT_TEXT,
    DISCONNECT_DELAY,
    events,
    stream,
    success,
)
from dsh.llm_replay.server._payloads import DONE, chunk, comment, dumps, error_body, event

JSON_TYPE: Final = "application/json"


def empty() -> Behaviour:
    """A complete stream without any content, finish `stop`."""
    return stream([{"role": "assistant", "content": ""}], name="empty")


def empty_body() -> Behaviour:
    """Status 200 and a body of zero bytes."""
    return Behaviour("empty_body", sized=True)


def stream_eof() -> Behaviour:
    """A stream that ends at once, without `[DONE]`."""
    return Behaviour("stream_eof")


def partial_eof(text: str = DEFAULT_TEXT, *, chunks: int = 3) -> Behaviour:
    """Some payloads, then an orderly end of the body without `[DONE]`."""
    return success(text).cut(after=chunks).named("partial_eof")


def partial_line(text: str = DEFAULT_TEXT, *, chunks: int = 2) -> Behaviour:
    """Some payloads and half of another, then an orderly end of the body."""
    base = success(text).cut(after=chunks)
    half = event(chunk({"content": "never delivered"}))[:-30]
    return replace(base, name="partial_line", steps=(*base.steps, Send(half)))


def truncated(text: str = DEFAULT_TEXT, *, chunks: int = 3) -> Behaviour:
    """Some payloads, then the connection is closed although the HTTP body is not complete."""
    return success(text).cut(after=chunks, end="truncate").named("truncated")


def stream_disconnect(*, delay: float = DISCONNECT_DELAY) -> Behaviour:
    """The first payload, then a TCP reset."""
    return partial_disconnect(chunks=1, delay=delay).named("stream_disconnect")


def partial_disconnect(
    text: str = DEFAULT_TEXT, *, chunks: int = 3, delay: float = DISCONNECT_DELAY
) -> Behaviour:
    """Some payloads, a pause of `delay` seconds, then a TCP reset."""
    base = success(text).cut(after=chunks, end="reset")
    return replace(base, name="partial_disconnect", steps=(*base.steps, Wait(delay)))


def connection_reset() -> Behaviour:
    """A TCP reset instead of a response."""
    return Behaviour("connection_reset", status=0, end="reset")


def connection_close() -> Behaviour:
    """An orderly end of the connection instead of a response."""
    return Behaviour("connection_close", status=0, end="truncate")


def stall(text: str = DEFAULT_TEXT, *, chunks: int = 0) -> Behaviour:
    """Headers and `chunks` payloads, then silence until the client gives up."""
    return success(text).stalled(after=chunks).named("stall")


def stall_before_headers() -> Behaviour:
    """Silence from the start, not even a status line, until the client gives up."""
    return Behaviour("stall_before_headers", before=(Stall(),))


def endless_comments(*, every: float = 0.02) -> Behaviour:
    """Comments for ever, one each `every` seconds, and never a payload."""
    # Long enough for any test; a loop step would complicate the model for one case.
    steps = tuple(s for _ in range(10_000) for s in (Send(comment()), Wait(every)))
    return Behaviour("endless_comments", (*steps, Stall()))


def malformed_json(*, text: str = "{not json") -> Behaviour:
    """A payload that is not JSON, in a stream that is otherwise complete."""
    payloads = [chunk({"content": "Hello"}), text.encode(), chunk({}, finish_reason="stop")]
    return events(payloads, name="malformed_json")


def malformed_event() -> Behaviour:
    """Lines that are no fields of an event stream, a payload without its blank line, the end."""
    lines = b"!!! not an event\nda ta: {}\n" + event(chunk({"content": "Hello"}))[:-1]
    return Behaviour("malformed_event", (Send(lines),))


def wrong_content_type() -> Behaviour:
    """Status 200 with a page of HTML."""
    page = b"<!doctype html><title>Maintenance</title><p>Back soon.</p>"
    return _sized("wrong_content_type", page, content_type="text/html; charset=utf-8")


def json_error_200(message: str = "The server had an error.") -> Behaviour:
    """Status 200 whose body is a JSON error object."""
    return _sized("json_error_200", dumps(error_body(message, type="server_error")))


def unterminated_done(text: str = DEFAULT_TEXT) -> Behaviour:
    """A complete stream but for the blank line behind `[DONE]`."""
    base = success(text)
    steps = (*base.steps[:-1], Send(DONE.rstrip(b"\n")))
    return replace(base, name="unterminated_done", steps=steps)


def events_after_done(text: str = DEFAULT_TEXT) -> Behaviour:
    """A complete stream with another payload behind `[DONE]`."""
    base = success(text)
    extra = Send(event(chunk({"content": "ignored"})), 1)
    return replace(base, name="events_after_done", steps=(*base.steps, extra))


def oversized_event(size: int = 17 * 1024 * 1024) -> Behaviour:
    """One payload of more than `size` bytes."""
    big = event(chunk({"content": "x" * size}))
    return Behaviour("oversized_event", (Send(big, 1), Send(DONE)))


def error_object_midstream(
    message: str = "The server had an error while answering.",
    *,
    type: str = "server_error",
    code: str | None = None,
    chunks: int = 2,
    done: bool = True,
) -> Behaviour:
    """Some payloads, then an error object in the stream.

    Args:
        message: The message of the provider.
        type: The `type` of the error object.
        code: The `code` of the error object.
        chunks: How many payloads come first.
        done: Whether `[DONE]` follows.
    """
    base = success().cut(after=chunks)
    tail = [Send(event(error_body(message, type=type, code=code)))]
    if done:
        tail.append(Send(DONE))
    return replace(base, name="error_object_midstream", steps=(*base.steps, *tail))


def http_error(
    status: int,
    message: str = "The request failed.",
    *,
    type: str = "invalid_request_error",
    code: str | None = None,
    headers: Mapping[str, str] | None = None,
    request_id: str | None = "req-scripted",
) -> Behaviour:
    """Any HTTP status with an error object as body.

    Args:
        status: The HTTP status.
        message: The message of the provider.
        type: The `type` of the error object.
        code: The `code` of the error object.
        headers: More response headers.
        request_id: The `x-request-id` header, left out if None.
    """
    extra = dict(headers or {})
    if request_id is not None:
        extra["x-request-id"] = request_id
    body = dumps(error_body(message, type=type, code=code))
    return _sized(f"http_{status}", body, status=status, headers=extra)


def http_text(status: int, text: str = "", *, content_type: str = "text/plain") -> Behaviour:
    """Any HTTP status with a body that is not JSON, possibly empty."""
    return _sized(f"http_{status}", text.encode(), status=status, content_type=content_type)


def http_json(status: int, value: Any) -> Behaviour:
    """Any HTTP status with any JSON body."""
    return _sized(f"http_{status}", dumps(value), status=status)


def rate_limit(
    message: str = "Rate limit reached, slow down.", *, retry_after: float | str | None = 1
) -> Behaviour:
    """Status 429; `retry_after` is the header value, None leaves the header out."""
    headers = {} if retry_after is None else {"retry-after": str(retry_after)}
    answer = http_error(429, message, type="rate_limit_error", headers=headers)
    return answer.named("rate_limit")


def retry_after_date(*, seconds: float = 30) -> Behaviour:
    """Status 429 with an HTTP date `seconds` from now (negative: in the past) to wait for."""
    date = formatdate(time.time() + seconds, usegmt=True)
    return rate_limit(retry_after=date).named("retry_after_date")


def server_error(message: str = "The server had an error.") -> Behaviour:
    """Status 500."""
    return http_error(500, message, type="server_error").named("server_error")


def service_unavailable(message: str = "The server is overloaded.") -> Behaviour:
    """Status 503."""
    return http_error(503, message, type="server_error").named("service_unavailable")


def auth_error(message: str = "Authentication fails, check the API key.") -> Behaviour:
    """Status 401."""
    return http_error(401, message, type="authentication_error").named("auth_error")


def forbidden(message: str = "This key may not use the model.") -> Behaviour:
    """Status 403."""
    return http_error(403, message, type="permission_error").named("forbidden")


def invalid_request(message: str = "Invalid value for field messages.") -> Behaviour:
    """Status 400."""
    return http_error(400, message).named("invalid_request")


def context_overflow(
    message: str = "This model's maximum context length is 131072 tokens, you asked for 200000.",
) -> Behaviour:
    """Status 400 with the text of an overflowing context."""
    answer = http_error(400, message, code="context_length_exceeded")
    return answer.named("context_overflow")


def quota_exceeded(message: str = "You exceeded your current quota.") -> Behaviour:
    """Status 429 with the text of an exhausted quota."""
    answer = http_error(429, message, type="insufficient_quota", code="insufficient_quota")
    return answer.named("quota_exceeded")


def http_402(message: str = "Insufficient Balance") -> Behaviour:
    """Status 402, the provider's word for an empty account."""
    return http_error(402, message, type="unknown_error").named("http_402")


def http_413(message: str = "The request body is too large.") -> Behaviour:
    """Status 413."""
    return http_error(413, message).named("http_413")


def http_422(message: str = "Invalid parameters.") -> Behaviour:
    """Status 422."""
    return http_error(422, message).named("http_422")


def redirect(location: str, *, status: int = 307) -> Behaviour:
    """A redirect."""
    return _sized("redirect", b"", status=status, headers={"location": location})


def exhausted(requests: int) -> Behaviour:
    """What the server answers when its script has no entry left."""
    message = (
        f"the script of the test server has no entry for request {requests}; "
        "add one or start the server with repeat_last"
    )
    return http_error(
        500, message, type="mock_error", code="MOCK_SCRIPT_EXHAUSTED", request_id=None
    ).named("exhausted")


def script_error(error: Exception) -> Behaviour:
    """What the server answers when a behaviour function raised."""
    message = f"the behaviour function of the test server raised {error!r}"
    return http_error(
        500, message, type="mock_error", code="MOCK_SCRIPT_ERROR", request_id=None
    ).named("script_error")


def _sized(
    name: str,
    body: bytes,
    *,
    status: int = 200,
    content_type: str = JSON_TYPE,
    headers: Mapping[str, str] | None = None,
) -> Behaviour:
    fields = (("content-type", content_type), *(headers or {}).items())
    steps = (Send(body),) if body else ()
    return Behaviour(name, steps, status=status, headers=fields, sized=True)
