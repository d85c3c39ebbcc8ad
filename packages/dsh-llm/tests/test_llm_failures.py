"""What becomes of exceptions, and how provider texts are told apart."""

from __future__ import annotations

import pytest

from dsh.core import secrets
from dsh.llm import (
    FinishReason,
    LlmError,
    LlmFailure,
    error_chain,
    is_context_window_exceeded,
    is_quota_exceeded,
    normalize_failure,
)

CONTEXT = [
    "This model's maximum context length is 4097 tokens. However, you requested 5000 tokens",
    "invalid_request_error context_length_exceeded Please shorten the conversation",
    "Your input exceeds the context window of this model. Please adjust your input",
    "prompt is too long: 210000 tokens > 200000 maximum",
    "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000",
    "The input token count (1100000) exceeds the maximum number of tokens allowed (1048576).",
    "Prompt contains 40000 tokens and is too large for model with 32768 maximum context length",
    "The decoder prompt (length 5000) is longer than the maximum model length of 4096.",
    "the request exceeds the available context size. try increasing the context size",
    "exceed_context_size_error",
    "Input is too long for requested model.",
    "This model's maximum prompt length is 131072 but the request contains 537812 tokens.",
    "Please reduce the length of the messages or completion.",
    "Context window overflow",
    "the conversation exceeds the model's context",
    "CONTEXT LENGTH EXCEEDED",
]

NOT_CONTEXT = [
    "",
    "Invalid value for 'stop': maximum length is 16",
    "string_above_max_length: string too long. Expected a string with maximum length 1048576",
    "name exceeds the maximum length of 64 characters",
    "Content-Length header is missing",
    "max_tokens must be at most 8192",
    "Request too large for gpt-4o on tokens per min (TPM): Limit 30000, Requested 40000",
    "413 Request Entity Too Large",
    "Rate limit reached",
    "the context of this error is unknown",
    "tool description is too long",
]

QUOTA = [
    "You exceeded your current quota, please check your plan and billing details.",
    "insufficient_quota insufficient_quota rate limit reached",
    "Insufficient Balance",
    "Your credit balance is too low to access the API",
    "Quota exceeded",
    "Usage limit reached for this workspace",
    "You have reached your specified API usage limits. You will regain access on 2026-01-01",
    "The account is out of credits",
    "You ran out of budget",
    "Your account balance has been exhausted",
    "This request requires more credits, or fewer max_tokens",
    "Billing hard limit has been reached",
    "credits depleted",
    "exceeded_current_quota_error",
    "Monthly budget exceeded",
    "insufficient account funds",
]

NOT_QUOTA = [
    "",
    "Rate limit exceeded, retry in 3 seconds",
    "Too Many Requests",
    "Rate limit reached for requests per min. Limit: 3 / min",
    "You have hit the TPM limit",
    "Quota exceeded for quota metric 'Generate requests' per minute",
    "Resource exhausted, try again later",
    "The server is overloaded",
    "balance the parentheses of the expression",
    "usage: model [options]",
    "Invalid API key",
]


# case: LLM-24
@pytest.mark.parametrize("text", CONTEXT)
def test_context_texts_are_recognised(text: str) -> None:
    assert is_context_window_exceeded(text)
    assert not is_quota_exceeded(text)


# case: LLM-24
@pytest.mark.parametrize("text", NOT_CONTEXT)
def test_other_texts_are_no_context_overflow(text: str) -> None:
    assert not is_context_window_exceeded(text)


# case: LLM-24
@pytest.mark.parametrize("text", QUOTA)
def test_quota_texts_are_recognised(text: str) -> None:
    assert is_quota_exceeded(text)
    assert not is_context_window_exceeded(text)


# case: LLM-24
@pytest.mark.parametrize("text", NOT_QUOTA)
def test_rate_limits_and_other_texts_are_no_quota(text: str) -> None:
    assert not is_quota_exceeded(text)


class _Hostile(Exception):
    def __getattribute__(self, name: str) -> object:
        raise RuntimeError("no")

    def __str__(self) -> str:
        raise RuntimeError("no")


class _Coded(Exception):
    def __init__(self, code: object, failure: object = None) -> None:
        super().__init__("it broke")
        self.code = code
        if failure is not None:
            self.failure = failure


class _Computed(Exception):
    code = "SERVER"

    @property
    def failure(self) -> LlmFailure:
        raise AssertionError("a property is not looked at")


# case: LLM-23
def test_a_hostile_exception_becomes_an_unknown_failure() -> None:
    failure = normalize_failure(_Hostile())
    assert failure == FinishReason(
        "error", "the model call failed with _Hostile, which does not say why", "UNKNOWN"
    )
    assert error_chain(_Hostile()) == "_Hostile"


# case: LLM-23
def test_facts_under_another_code_are_ignored() -> None:
    wire = {"code": "SERVER", "status": 503, "retryAfterMs": 20, "requestId": "r1"}
    assert normalize_failure(_Coded("SERVER", wire)).failure == LlmFailure(503, 20, "r1")
    assert normalize_failure(_Coded("AUTH", wire)).failure is None
    assert normalize_failure(_Coded(None, wire)).failure is None


# case: LLM-23
@pytest.mark.parametrize(
    "facts",
    [{"code": "SERVER", "status": 7}, {"code": "SERVER", "status": "503"}, "facts", 5],
)
def test_facts_that_are_none_are_ignored(facts: object) -> None:
    assert normalize_failure(_Coded("SERVER", facts)) == FinishReason("error", "it broke", "SERVER")


def test_facts_behind_a_property_are_not_read() -> None:
    assert normalize_failure(_Computed("x")) == FinishReason("error", "x", "SERVER")


def test_an_llm_error_keeps_its_code_and_facts() -> None:
    error = LlmError("busy", code=LlmError.RATE_LIMIT, failure=LlmFailure(429, 1500.0, "r"))
    assert normalize_failure(error) == FinishReason(
        "error", "busy", "RATE_LIMIT", LlmFailure(429, 1500.0, "r")
    )


def test_the_hint_of_an_error_stays_in_its_failure() -> None:
    error = LlmError("no such model", code=LlmError.NO_ADAPTER, hint="try another")
    assert normalize_failure(error).message == "no such model; try another"


def test_codes_that_are_no_text_read_as_unknown() -> None:
    assert normalize_failure(_Coded(404)).code == "UNKNOWN"
    assert normalize_failure(_Coded("")).code == "UNKNOWN"


def test_what_is_no_exception_is_a_failure_too() -> None:
    assert normalize_failure("text") == FinishReason("error", "text", "UNKNOWN")
    assert normalize_failure(None).code == "UNKNOWN"
    assert normalize_failure(ValueError()).message == (
        "the model call failed with ValueError, which does not say why"
    )


def test_an_abort_decides_kind_and_code() -> None:
    assert normalize_failure(OSError("reset"), aborted=True) == FinishReason(
        "aborted", "reset", "ABORTED"
    )
    assert normalize_failure(LlmError("stop", code=LlmError.ABORTED)).kind == "aborted"


def test_a_group_of_one_counts_as_its_member() -> None:
    inner = LlmError("busy", code=LlmError.SERVER, failure=LlmFailure(500))
    group = ExceptionGroup("outer", [ExceptionGroup("inner", [inner])])
    assert normalize_failure(group) == FinishReason("error", "busy", "SERVER", LlmFailure(500))
    two = ExceptionGroup("two went wrong", [ValueError("a"), ValueError("b")])
    assert normalize_failure(two).code == "UNKNOWN"


def test_secrets_are_masked() -> None:
    secrets.add("sk-failures-0123456789")
    error = ValueError("key sk-failures-0123456789 was refused")
    assert normalize_failure(error).message == "key [secret] was refused"
    assert error_chain(error) == "ValueError: key [secret] was refused"


def test_facts_out_of_range_are_refused_where_they_are_made() -> None:
    for status in (99, 600):
        with pytest.raises(ValueError, match="HTTP status"):
            LlmFailure(status=status)
    for wait in (0, -1, float("inf"), float("nan")):
        with pytest.raises(ValueError, match="retry_after_ms"):
            LlmFailure(retry_after_ms=wait)
    with pytest.raises(ValueError, match="request_id"):
        LlmFailure(request_id="")


def _raised(error: Exception, cause: BaseException | None = None) -> Exception:
    try:
        raise error from cause
    except Exception as caught:
        return caught


def test_the_chain_follows_causes_and_contexts() -> None:
    error = _raised(ValueError("outer"), _raised(KeyError("middle"), OSError("inner")))
    assert error_chain(error) == "ValueError: outer <- KeyError: 'middle' <- OSError: inner"
    handled = ValueError("second")
    handled.__context__ = OSError("first")
    assert error_chain(handled) == "ValueError: second <- OSError: first"
    handled.__suppress_context__ = True
    assert error_chain(handled) == "ValueError: second"


def test_the_chain_shows_the_members_of_groups() -> None:
    group = ExceptionGroup(
        "all addresses failed", [OSError("refused"), _raised(OSError("timed out"), OSError("slow"))]
    )
    assert error_chain(_raised(ValueError("connect"), group)) == (
        "ValueError: connect <- ExceptionGroup: all addresses failed (2 sub-exceptions) "
        "(OSError: refused; OSError: timed out <- OSError: slow)"
    )
    many = ExceptionGroup("many", [OSError(str(number)) for number in range(12)])
    assert error_chain(many).endswith("OSError: 7; and 4 more)")


def test_the_chain_leaves_out_what_repeats_its_wrapper() -> None:
    error = _raised(ValueError("request failed: reset by peer"), OSError("reset by peer"))
    assert error_chain(error) == "ValueError: request failed: reset by peer"


def test_the_chain_survives_a_cycle() -> None:
    first, second = ValueError("a"), ValueError("b")
    first.__cause__, second.__cause__ = second, first
    assert error_chain(first) == "ValueError: a <- ValueError: b"


def test_the_chain_of_what_is_no_exception_is_its_text() -> None:
    assert error_chain("text") == "str: text"


def test_an_error_is_made_of_a_finish() -> None:
    reason = FinishReason("error", "busy", "SERVER", LlmFailure(500))
    error = LlmError.from_finish(reason)
    assert (str(error), error.code, error.failure) == ("busy", "SERVER", LlmFailure(500))
    assert LlmError.from_finish(FinishReason("aborted")).code == "ABORTED"
    assert LlmError.from_finish(FinishReason("error")).code == "UNKNOWN"
