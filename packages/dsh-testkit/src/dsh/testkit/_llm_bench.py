"""The bench on which an adapter is tried: a server with faults on one side, checks on the other."""

from __future__ import annotations

import inspect
import secrets
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias, cast

import anyio

from dsh.llm import (
    BlockAssembler,
    BlockEnd,
    Finish,
    FinishReason,
    LlmAdapter,
    LlmError,
    LlmRequest,
    Message,
    ReasoningDelta,
    StreamChunk,
    StreamGrammar,
    TextBlock,
    TextDelta,
    TokenUsage,
    ToolCallBlock,
    error_chain,
    normalize_failure,
)
from dsh.llm_replay.server import Attempt, Behaviour, WireServer
from dsh.testkit._case import ContractCase, named

__all__ = ["Answer", "Bench", "Endpoint", "LlmCase", "MakeAdapter", "cases_of"]

LIMIT_S: Final = 30.0

PATIENT_S: Final = 20.0
"""Longest silence an adapter sits through, where a case is not about silence."""

MODEL: Final = "contract-model"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """What an adapter is made for."""

    url: str
    """Base URL, without a trailing slash; requests go to `/chat/completions` below it."""
    key: str = field(repr=False)
    """The bearer token; the server refuses requests without it."""
    model: str
    """Name of the model that is called."""
    timeout_s: float
    """Longest silence of the server, in seconds, before the adapter gives up."""


MakeAdapter: TypeAlias = (
    "Callable[[Endpoint], LlmAdapter | AbstractAsyncContextManager[LlmAdapter]]"
)
"""Makes the adapter to be tried, without retries of its own.

What has to be closed is returned as a context manager, or has an `aclose` method."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What an adapter made of one response."""

    chunks: tuple[StreamChunk, ...]
    """Everything it yielded."""
    finish: FinishReason
    """Its finish, or the one that its exception stands for."""
    error: Exception | None
    """What it raised."""

    @property
    def text(self) -> str:
        """The visible text, unfinished blocks included."""
        return "".join(chunk.text for chunk in self.chunks if isinstance(chunk, TextDelta))

    @property
    def reasoning(self) -> str:
        """The reasoning, unfinished blocks included."""
        return "".join(chunk.text for chunk in self.chunks if isinstance(chunk, ReasoningDelta))

    @property
    def ended(self) -> list[object]:
        """The blocks that were closed, in the order of their ends."""
        return [chunk.block for chunk in self.chunks if isinstance(chunk, BlockEnd)]

    @property
    def calls(self) -> list[ToolCallBlock]:
        """The tool calls that were closed."""
        return [block for block in self.ended if isinstance(block, ToolCallBlock)]

    @property
    def usage(self) -> TokenUsage | None:
        """The token counts."""
        return self.assembled.usage

    @property
    def message(self) -> Message:
        """The assembled answer."""
        return self.assembled.message()

    @property
    def assembled(self) -> BlockAssembler:
        """The answer as the loop puts it together."""
        assembler = BlockAssembler()
        for chunk in self.chunks:
            assembler.push(chunk)
        return assembler

    def expect(self, *kinds: str) -> None:
        """Fail unless the finish is of one of these kinds."""
        assert self.finish.kind in kinds, (
            f"the answer ends with {self.finish}, expected {' or '.join(kinds)}"
        )

    def expect_failure(self, *codes: str) -> None:
        """Fail unless the answer failed, with one of these codes if some are given."""
        assert self.finish.failed, f"the answer passes for a success: {self.finish}, {self.text!r}"
        assert self.finish.message, f"the failure says nothing: {self.finish}"
        assert self.finish.code, f"the failure has no code: {self.finish}"
        if codes:
            assert self.finish.code in codes, (
                f"the failure is {self.finish.code}, expected {' or '.join(codes)}: "
                f"{self.finish.message}"
            )
        else:
            assert self.finish.code != LlmError.UNKNOWN, f"the failure has no code: {self.finish}"


class Bench:
    """One adapter, one server, and the questions a case puts."""

    def __init__(self, endpoint: Endpoint, server: WireServer, adapter: LlmAdapter) -> None:
        self.endpoint = endpoint
        """Where the adapter asks."""
        self.server = server
        """Who answers; its script is empty."""
        self.adapter = adapter
        """What is tried."""

    def request(self, text: str = "Say something.", **fields: Any) -> LlmRequest:
        """Build a request with one prompt."""
        return LlmRequest(self.endpoint.model, (Message("user", (TextBlock(text),)),), **fields)

    async def ask(
        self,
        behaviour: Behaviour | str | None = None,
        request: LlmRequest | None = None,
        *,
        on_chunk: Callable[[StreamChunk], object] | None = None,
    ) -> Answer:
        """Ask once, read to the end, and hold what came against the protocol.

        Args:
            behaviour: What the server does; None leaves it to what is scripted.
            request: What to ask; a prompt if None.
            on_chunk: Called with each chunk, before the next one is asked for.
        """
        if behaviour is not None:
            self.server.append(behaviour)
        request = request or self.request()
        chunks: list[StreamChunk] = []
        error: Exception | None = None
        try:
            async with aclosing(self.adapter.stream(request)) as stream:
                async for chunk in stream:
                    chunks.append(chunk)
                    if on_chunk is not None:
                        on_chunk(chunk)
        except Exception as raised:  # noqa: BLE001 - raising is one of the two ways to fail
            error = raised
        self._check_wire()
        return self._judged(request, chunks, error)

    async def ask_for_failure(
        self, behaviour: Behaviour | str, *codes: str, says: str | None = None
    ) -> Answer:
        """Ask once and fail unless the answer is one failure after exactly one attempt.

        Args:
            behaviour: What the server does.
            codes: The codes that are right.
            says: Words that the message has to contain.
        """
        before = len(self.server.attempts)
        answer = await self.ask(behaviour)
        answer.expect_failure(*codes)
        attempts = len(self.server.attempts) - before
        assert attempts == 1, f"the adapter made {attempts} attempts; retrying is not its business"
        if says is not None:
            message = answer.finish.message or ""
            assert says in message, f"{message!r} does not say what the provider said: {says!r}"
        return answer

    async def works(self) -> None:
        """Fail unless an ordinary request succeeds now."""
        answer = await self.ask("success")
        answer.expect("stop")

    async def left(self, number: int = 1) -> Attempt:
        """Wait until the server has noticed that the adapter left the `number`-th response."""
        attempt = await self.server.attempt(number)
        outcome = await attempt.finished()
        assert outcome == "client-aborted", (
            f"the connection was not closed: the response ended {outcome!r}"
        )
        return attempt

    def _judged(
        self, request: LlmRequest, chunks: list[StreamChunk], error: Exception | None
    ) -> Answer:
        grammar = StreamGrammar()
        found = [grammar.push(chunk) for chunk in chunks]
        found.append(grammar.close(raised=error is not None))
        broken = [f"{item.rule}: {item.message}" for item in found if item is not None]
        assert not broken, "the stream breaks the protocol: " + "; ".join(broken)
        finishes = [chunk.reason for chunk in chunks if isinstance(chunk, Finish)]
        assert not (finishes and error), f"the stream raises after its finish: {error!r}"
        aborted = request.signal is not None and request.signal.aborted
        finish = finishes[0] if finishes else normalize_failure(error, aborted=aborted)
        self._check_secret(finish, error)
        return Answer(tuple(chunks), finish, error)

    def _check_wire(self) -> None:
        refused = self.server.rejections
        if refused and not self.server.attempts:
            last = refused[-1]
            raise AssertionError(
                f"the adapter asked {last.method} {last.path}, and the server of this suite, "
                f"which speaks chat completions, refused it: {last.reason}; an adapter of "
                "another wire is tested as docs/cookbook/adding-an-llm-adapter.md says"
            )

    def _check_secret(self, finish: FinishReason, error: Exception | None) -> None:
        shown = [repr(finish)]
        if error is not None:
            shown += [str(error), repr(error), error_chain(error)]
        for text in shown:
            assert self.endpoint.key not in text, "the failure shows the key"


@dataclass(frozen=True, slots=True)
class LlmCase(ContractCase[Bench]):
    """One thing that every adapter has to do; call it with what makes the adapter."""

    timeout_s: float = PATIENT_S
    """The `timeout_s` of the endpoint."""
    limit_s: float = LIMIT_S
    """Seconds the case may take; one that takes longer hangs."""

    async def __call__(self, make: MakeAdapter) -> None:
        """Make an adapter and try it.

        Raises:
            AssertionError: The adapter does not do it.
            TimeoutError: It hangs.
        """
        with anyio.fail_after(self.limit_s):
            async with open_bench(make, self.timeout_s) as bench:
                await self.check(bench)


@asynccontextmanager
async def open_bench(make: MakeAdapter, timeout_s: float) -> AsyncGenerator[Bench, None]:
    """Start a server and make an adapter for it."""
    key = f"sk-contract-{secrets.token_hex(12)}"
    async with WireServer(token=key) as server:
        endpoint = Endpoint(server.url, key, MODEL, timeout_s)
        async with _opened(make(endpoint)) as adapter:
            yield Bench(endpoint, server, adapter)


@asynccontextmanager
async def _opened(
    made: LlmAdapter | AbstractAsyncContextManager[LlmAdapter],
) -> AsyncGenerator[LlmAdapter, None]:
    if not isinstance(made, LlmAdapter):
        async with made as adapter:
            yield adapter
        return
    try:
        yield made
    finally:
        # Most adapters have connections to close, though the interface does not ask for it.
        close = getattr(made, "aclose", None)
        if inspect.iscoroutinefunction(close):
            await cast("Any", close)()


def cases_of(*checks: Callable[[Bench], Any], timeout_s: float = PATIENT_S) -> tuple[LlmCase, ...]:
    """Make cases of functions, named like them."""
    return tuple(LlmCase(named(check), check, timeout_s) for check in checks)
