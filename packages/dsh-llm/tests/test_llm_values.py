"""Small promises of the value types."""

from __future__ import annotations

import copy
import math
from dataclasses import FrozenInstanceError, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsh.llm import (
    FinishReason,
    LlmCallConfig,
    LlmRequest,
    Message,
    ModelInfo,
    RetryPolicy,
    TextBlock,
    TextDelta,
    TokenUsage,
    UnknownBlock,
)


def test_chunks_are_frozen_and_have_no_dict() -> None:
    chunk: Any = TextDelta(0, "a")
    with pytest.raises(FrozenInstanceError):
        chunk.text = "b"
    assert not hasattr(chunk, "__dict__")


def test_usage_adds_counter_by_counter() -> None:
    left = TokenUsage(1, 2, None, 4, None)
    right = TokenUsage(10, 20, 30, 40, None)
    assert left + right == TokenUsage(11, 22, 30, 44, None)
    assert right + left == left + right
    assert sum([left, right], TokenUsage(0, 0)) == left + right


def test_error_and_aborted_are_the_kinds_that_failed() -> None:
    kinds = ["stop", "tool-calls", "max-tokens", "refusal", "aborted", "error", "new"]
    assert [kind for kind in kinds if FinishReason(kind).failed] == ["aborted", "error"]


def test_the_memo_belongs_to_one_message_and_does_not_count() -> None:
    message = Message("user", (TextBlock("a"),))
    twin = Message("user", (TextBlock("a"),))
    message.memo["key"] = 1
    assert message == twin
    assert hash(message) == hash(twin)
    assert "memo" not in repr(message)
    assert twin.memo == {}
    assert replace(message, role="assistant").memo == {}
    assert copy.copy(message) == message


def test_an_unknown_block_is_of_no_known_kind() -> None:
    with pytest.raises(ValueError, match="known kind 'text'"):
        UnknownBlock("text", {})
    with pytest.raises(ValueError, match="besides 'type'"):
        UnknownBlock("image", {"type": "image"})


def test_configs_are_equal_field_by_field() -> None:
    config = LlmCallConfig("m", 0.5, 10, ("a",), "low")
    request = LlmRequest("m", (), "sys", None, 0.5, 10, ("a",), "low")
    assert request.config == config
    assert LlmCallConfig("m", stop=()) != LlmCallConfig("m")
    assert LlmCallConfig("m", stop=("a", "b")) != LlmCallConfig("m", stop=("b", "a"))


def test_a_model_has_a_qualified_name() -> None:
    assert ModelInfo("m", provider="p").qualified == "p/m"


def test_retry_delays_double_up_to_the_cap() -> None:
    policy = RetryPolicy()
    assert [policy.delay_ms(retry) for retry in (1, 2, 3, 4, 5, 6, 400)] == [
        500,
        1000,
        2000,
        4000,
        8000,
        10_000,
        10_000,
    ]


def test_jitter_scales_within_its_ratio() -> None:
    policy = RetryPolicy(initial_delay_ms=100, max_delay_ms=1000, jitter_ratio=0.1)
    assert math.isclose(policy.delay_ms(1, 0), 90)
    assert math.isclose(policy.delay_ms(1, 1), 110)
    assert math.isclose(policy.delay_ms(2, 0), 180)
    assert policy.delay_ms(9, 1) == 1000
    assert RetryPolicy(initial_delay_ms=0).delay_ms(50, 1) == 0


@given(st.integers(1, 10_000), st.floats(0, 1))
def test_no_delay_is_out_of_bounds(retry: int, spread: float) -> None:
    policy = RetryPolicy(initial_delay_ms=3, max_delay_ms=70, jitter_ratio=1)
    assert 0 <= policy.delay_ms(retry, spread) <= 70


@pytest.mark.parametrize(
    "fields",
    [
        {"max_retries": -1},
        {"retryable_codes": ()},
        {"retryable_codes": ("A", "A")},
        {"retryable_codes": ("",)},
        {"initial_delay_ms": -1},
        {"initial_delay_ms": 20_000},
        {"max_delay_ms": 2**31},
        {"max_delay_ms": math.nan},
        {"jitter_ratio": 1.1},
    ],
)
def test_a_policy_out_of_range_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"retr|delay|jitter"):
        RetryPolicy(**fields)


def test_a_policy_that_always_retries_has_no_budget_to_check() -> None:
    assert RetryPolicy("always", max_retries=-1, retryable_codes=()).mode == "always"
