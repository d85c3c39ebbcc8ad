"""What every model adapter has to do.

A provider's test file derives from `LlmContract` and makes the adapter:

    from dsh.testkit.llm_contract import Endpoint, LlmContract
    from my_wheel import MyAdapter


    class TestMyAdapter(LlmContract):
        def make(self, endpoint: Endpoint) -> MyAdapter:
            return MyAdapter(endpoint.url, endpoint.key, timeout_s=endpoint.timeout_s)

The tests run under the anyio pytest plugin (`anyio_mode = "auto"`). Each drives the adapter against
a server on a local port that speaks the chat-completions wire and breaks it in one way: grammar
and usage, framing, fragments of tool calls, every kind of failure and its code, truncation at any
byte, cancellation, secrets. Nothing needs a key or a network.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import AbstractAsyncContextManager
from typing import ClassVar, Final

import pytest

from dsh.llm import LlmAdapter
from dsh.testkit._case import leave_out
from dsh.testkit._llm_answers import ANSWERS
from dsh.testkit._llm_bench import Answer, Bench, Endpoint, LlmCase, MakeAdapter
from dsh.testkit._llm_cancel import CANCEL
from dsh.testkit._llm_failures import FAILURES
from dsh.testkit._llm_requests import REQUESTS

__all__ = ["CASES", "Answer", "Bench", "Endpoint", "LlmCase", "LlmContract", "MakeAdapter"]

CASES: Final[tuple[LlmCase, ...]] = (*ANSWERS, *FAILURES, *CANCEL, *REQUESTS)
"""Every case; `await case(make)` runs one without pytest."""


class LlmContract(ABC):
    """What every adapter does. Derive, make the adapter, done."""

    without: ClassVar[tuple[str, ...]] = ()
    """Names of cases that the adapter cannot meet; its documentation should say so."""

    @abstractmethod
    def make(self, endpoint: Endpoint) -> LlmAdapter | AbstractAsyncContextManager[LlmAdapter]:
        """Make the adapter under test, without retries of its own.

        Args:
            endpoint: Where it asks, with which key, and how long it waits.

        Returns:
            The adapter. What has to be closed is returned as a context manager, or has an
            `aclose` method.
        """

    @pytest.mark.parametrize("case", CASES, ids=str)
    async def test_llm_contract(self, case: LlmCase) -> None:
        """Run one case."""
        leave_out(case, self.without, CASES)
        await case(self.make)
