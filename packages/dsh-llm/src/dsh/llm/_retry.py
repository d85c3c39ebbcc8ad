"""How a provider's failed calls may be retried."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

RETRYABLE_CODES = ("EMPTY_RESPONSE", "RATE_LIMIT", "SERVER", "TIMEOUT", "TRANSPORT")
"""Codes of failures that another attempt can cure."""

MAX_DELAY_MS = 2**31 - 1
"""The longest delay a policy may name."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """When to call again after a failure, and how long to wait first.

    This is data: adapters make one attempt, and the retry plugin reads the policy of the call that
    failed.

    Raises:
        ValueError: A field is out of range.
    """

    mode: Literal["normal", "always"] = "normal"
    """`normal` retries the listed codes a limited number of times; `always` retries anything that
    nobody else recovered, for as long as it takes."""
    max_retries: int = 5
    """How often to call again, in normal mode."""
    retryable_codes: tuple[str, ...] = RETRYABLE_CODES
    """Which failures to retry, in normal mode."""
    initial_delay_ms: float = 500
    """The wait before the first retry, in milliseconds; doubled for each further one."""
    max_delay_ms: float = 10_000
    """The longest wait, in milliseconds, and the longest the provider may ask for."""
    jitter_ratio: float = 0.1
    """How far a wait may stray from its value, as a fraction of it."""

    def __post_init__(self) -> None:
        if self.mode == "normal":
            self._check_budget()
        if not 0 <= self.initial_delay_ms <= self.max_delay_ms <= MAX_DELAY_MS:
            raise ValueError(
                "the delays of a retry policy are ordered 0 <= initial_delay_ms <= max_delay_ms "
                f"<= {MAX_DELAY_MS}, not {self.initial_delay_ms!r} and {self.max_delay_ms!r}"
            )
        if not 0 <= self.jitter_ratio <= 1:
            raise ValueError(f"jitter_ratio lies between 0 and 1, not {self.jitter_ratio!r}")

    def _check_budget(self) -> None:
        if self.max_retries < 0:
            raise ValueError(f"max_retries is zero or more, not {self.max_retries!r}")
        codes = self.retryable_codes
        if not codes or "" in codes or len(set(codes)) != len(codes):
            raise ValueError(f"retryable_codes are distinct and at least one, not {codes!r}")

    def delay_ms(self, retry: int, spread: float = 0.5) -> float:
        """Return the wait before the `retry`-th retry, in milliseconds.

        Args:
            retry: Which retry, counted from 1.
            spread: A random number from 0 to 1 that places the wait within its jitter.
        """
        # Beyond this exponent every initial delay that is not zero has passed the cap.
        base = min(math.ldexp(self.initial_delay_ms, min(retry - 1, 64)), self.max_delay_ms)
        scaled = base * (1 + self.jitter_ratio * (2 * spread - 1))
        return min(scaled, self.max_delay_ms)
