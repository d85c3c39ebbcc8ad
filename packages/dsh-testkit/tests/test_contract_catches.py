"""A contract is worth what it catches: adapters and stores that break one rule each."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import ClassVar

import httpx
import pytest

from dsh.llm import (
    STOP,
    BlockEnd,
    BlockStart,
    Finish,
    LlmAdapter,
    LlmError,
    LlmRequest,
    StreamChunk,
    TextBlock,
    TextDelta,
    ToolCallBlock,
    UsageChunk,
)
from dsh.llm_deepseek import DeepSeekAdapter
from dsh.session import SessionEvent, event_from_wire, event_to_wire
from dsh.session_persistence import (
    IntegrityReport,
    PersistenceError,
    SessionSnapshot,
    StoredSession,
    UnreadableSession,
)
from dsh.session_persistence.backend import StoredLog
from dsh.session_persistence.testing import MemoryBackend
from dsh.testkit import MemoryDisk, MemoryPersistence, llm_contract, persistence_contract
from dsh.testkit.llm_contract import Endpoint

Chunks = AsyncGenerator[StreamChunk, None]


class Wrapped(LlmAdapter):
    """DeepSeek's adapter, with something in front of it that spoils its answers."""

    def __init__(self, endpoint: Endpoint) -> None:
        config = {
            "base_url": endpoint.url,
            "api_key": endpoint.key,
            "idle_timeout_s": endpoint.timeout_s,
        }
        self.key = endpoint.key
        self.inner = DeepSeekAdapter(config, environ={})

    def stream(self, request: LlmRequest) -> Chunks:
        return self.inner.stream(request)

    async def aclose(self) -> None:
        await self.inner.aclose()


class UsageComesLast(Wrapped):
    async def stream(self, request: LlmRequest) -> Chunks:
        held: list[StreamChunk] = []
        async with aclosing(self.inner.stream(request)) as chunks:
            async for chunk in chunks:
                if isinstance(chunk, UsageChunk):
                    held.append(chunk)
                else:
                    yield chunk
        for chunk in held:
            yield chunk


class NeverFinishes(Wrapped):
    async def stream(self, request: LlmRequest) -> Chunks:
        async with aclosing(self.inner.stream(request)) as chunks:
            async for chunk in chunks:
                if not isinstance(chunk, Finish):
                    yield chunk


class MakesTheBestOfIt(Wrapped):
    async def stream(self, request: LlmRequest) -> Chunks:
        open_blocks: dict[int, str] = {}
        try:
            async with aclosing(self.inner.stream(request)) as chunks:
                async for chunk in chunks:
                    match chunk:
                        case BlockStart(index):
                            open_blocks[index] = ""
                        case TextDelta(index, text):
                            open_blocks[index] += text
                        case BlockEnd(index):
                            del open_blocks[index]
                        case _:
                            pass
                    yield chunk
        except LlmError:
            for index, text in open_blocks.items():
                yield BlockEnd(index, TextBlock(text))
            yield Finish(STOP)


class Retries(Wrapped):
    async def stream(self, request: LlmRequest) -> Chunks:
        for again in (True, False):
            try:
                async with aclosing(self.inner.stream(request)) as chunks:
                    async for chunk in chunks:
                        yield chunk
                return
            except LlmError:
                if not again:
                    raise


class Deaf(Wrapped):
    def stream(self, request: LlmRequest) -> Chunks:
        return self.inner.stream(replace(request, signal=None))


class TellsTheKey(Wrapped):
    async def stream(self, request: LlmRequest) -> Chunks:
        try:
            async with aclosing(self.inner.stream(request)) as chunks:
                async for chunk in chunks:
                    yield chunk
        except LlmError as error:
            raise LlmError(f"{error} (key {self.key})", code=error.code) from None


class HasNoCodes(Wrapped):
    async def stream(self, request: LlmRequest) -> Chunks:
        try:
            async with aclosing(self.inner.stream(request)) as chunks:
                async for chunk in chunks:
                    yield chunk
        except LlmError as error:
            raise RuntimeError(str(error)) from None


class TidiesArguments(Wrapped):
    async def stream(self, request: LlmRequest) -> Chunks:
        async with aclosing(self.inner.stream(request)) as chunks:
            async for chunk in chunks:
                if isinstance(chunk, BlockEnd) and isinstance(chunk.block, ToolCallBlock):
                    call = replace(chunk.block, arguments=chunk.block.arguments.strip() or "{}")
                    yield BlockEnd(chunk.index, call)
                else:
                    yield chunk


class ReadsOn(Wrapped):
    def __init__(self, endpoint: Endpoint) -> None:
        super().__init__(endpoint)
        self.kept: list[Chunks] = []

    async def stream(self, request: LlmRequest) -> Chunks:
        chunks = self.inner.stream(request)
        self.kept.append(chunks)
        async for chunk in chunks:
            yield chunk

    async def aclose(self) -> None:
        for chunks in self.kept:
            await chunks.aclose()
        await super().aclose()


def llm_case(name: str) -> llm_contract.LlmCase:
    (case,) = [case for case in llm_contract.CASES if case.name == name]
    return case


@pytest.mark.parametrize(
    ("make", "name", "words"),
    [
        (UsageComesLast, "text-answer", "after-finish"),
        (NeverFinishes, "text-answer", "missing-finish"),
        (MakesTheBestOfIt, "end-before-the-end", "passes for a success"),
        (MakesTheBestOfIt, "connection-lost", "passes for a success"),
        (Retries, "status-500-server-error", "2 attempts"),
        (Deaf, "aborted-before-it-begins", "expected aborted"),
        (Deaf, "abort-wins-over-what-has-arrived", "expected aborted"),
        (TellsTheKey, "no-secret-is-told", "shows the key"),
        (HasNoCodes, "status-401-auth-error", "expected AUTH"),
        (TidiesArguments, "arguments-kept-verbatim", "came as"),
    ],
)
async def test_a_broken_adapter_is_caught(
    make: Callable[[Endpoint], LlmAdapter], name: str, words: str
) -> None:
    with pytest.raises(AssertionError, match=words):
        await llm_case(name)(make)


@pytest.mark.parametrize(
    ("make", "name"), [(ReadsOn, "left-while-streaming"), (Deaf, "aborted-while-streaming")]
)
async def test_an_adapter_that_hangs_is_caught(
    make: Callable[[Endpoint], LlmAdapter], name: str
) -> None:
    with pytest.raises(TimeoutError):
        await replace(llm_case(name), limit_s=0.5)(make)


class Forgetful(MemoryPersistence):
    async def append(self, session_id: str, events: Sequence[SessionEvent]) -> None:
        await super().append(session_id, list(events)[:-1])


class Shares(MemoryPersistence):
    """Hands out the very events it was given."""

    async def append(self, session_id: str, events: Sequence[SessionEvent]) -> None:
        await super().append(session_id, events)
        self.given = tuple(events)

    async def load(self, session_id: str) -> StoredSession:
        return StoredSession((await super().load(session_id)).header, self.given)


class NeverRepairs(MemoryPersistence):
    async def load(self, session_id: str) -> StoredSession:
        header = (await self.inspect(session_id)).header
        return StoredSession(header, await self.read_from(session_id, 0))


class RepairsInMemory(MemoryPersistence):
    async def load(self, session_id: str) -> StoredSession:
        return await self.inspect(session_id)


class WritesLate(MemoryPersistence):
    async def append(self, session_id: str, events: Sequence[SessionEvent]) -> None:
        self.ctx.spawn(super().append, session_id, events)


class Spoiled(MemoryPersistence):
    """Has a backend that breaks one rule."""

    backend: ClassVar[type[MemoryBackend]]

    def make_backend(self) -> MemoryBackend:
        return self.backend(self.config.disk)


class LocksNothing(Spoiled):
    class backend(MemoryBackend):
        def acquire(self, session_id: str) -> None: ...


class NeverLetsGo(Spoiled):
    class backend(MemoryBackend):
        def close(self) -> None: ...

        def release(self, session_id: str) -> None: ...


class CountsPerSession(Spoiled):
    class backend(MemoryBackend):
        def revision(self, session_id: str) -> str | None:
            found = super().revision(session_id)
            return None if found is None else str(len(self.read(session_id).events))


class ForgetsSummaries(Spoiled):
    class backend(MemoryBackend):
        def list(self, archived: bool) -> Iterable[SessionSnapshot]:
            return [
                SessionSnapshot(item.header, item.revision, archived)
                for item in super().list(archived)
            ]


class Slanders(Spoiled):
    class backend(MemoryBackend):
        def unreadable(self) -> Iterable[UnreadableSession]:
            return [
                UnreadableSession("there", PersistenceError("it looks odd"), item.header.id)
                for item in self.list(True)
            ]


class TrustsChecksums(MemoryPersistence):
    async def verify(self, session_id: str) -> IntegrityReport:
        return IntegrityReport(session_id, None, len(await self.read_from(session_id, 0)))


class MendsText(Spoiled):
    class backend(MemoryBackend):
        def read(self, session_id: str) -> StoredLog:
            log = super().read(session_id)
            text = json.dumps([event_to_wire(event) for event in log.events])
            rows = json.loads(text.replace("\\u2028", "\\n"))
            return replace(log, events=tuple(map(event_from_wire, rows)))


class IgnoresCase(Spoiled):
    class backend(MemoryBackend):
        def read(self, session_id: str) -> StoredLog:
            names = {name.lower(): name for name in self.disk_names()}
            return super().read(names.get(session_id.lower(), session_id))

        def disk_names(self) -> tuple[str, ...]:
            return tuple(item.header.id for item in self.list(False))


@pytest.mark.parametrize(
    ("provider", "name"),
    [
        (ForgetsSummaries, "summaries-tell-the-log"),
        (Slanders, "what-is-listed-is-readable"),
        (TrustsChecksums, "logs-that-no-session-accepts-are-damaged"),
        (MendsText, "any-text"),
        (IgnoresCase, "any-id"),
        (Forgetful, "round-trip"),
        (Shares, "data-is-taken-at-the-call"),
        (NeverRepairs, "interrupted-turn-is-closed"),
        (RepairsInMemory, "interrupted-turn-is-closed"),
    ],
)
async def test_a_broken_store_is_caught(provider: type[MemoryPersistence], name: str) -> None:
    (case,) = [case for case in persistence_contract.CASES if case.name == name]
    with pytest.raises(AssertionError):
        await case(provider, {"disk": MemoryDisk()})


@pytest.mark.parametrize(
    ("provider", "name"),
    [
        (LocksNothing, "one-writer-at-a-time"),
        (NeverLetsGo, "one-writer-at-a-time"),
        (CountsPerSession, "a-new-session-has-a-new-revision"),
    ],
)
async def test_a_store_that_mixes_processes_up_is_caught(
    provider: type[MemoryPersistence], name: str
) -> None:
    (case,) = [case for case in persistence_contract.CASES if case.name == name]
    with pytest.raises((AssertionError, PersistenceError)):
        await case(provider, {"disk": MemoryDisk()})


async def test_a_store_whose_writes_come_late_is_caught() -> None:
    (case,) = [case for case in persistence_contract.CASES if case.name == "round-trip"]
    with pytest.raises(Exception, match="no stored session"):
        await case(WritesLate, {"disk": MemoryDisk()})


class SpeaksAnotherWire(Wrapped):
    """An adapter whose requests are no chat completions."""

    def __init__(self, endpoint: Endpoint) -> None:
        super().__init__(endpoint)
        self.url = endpoint.url

    async def stream(self, request: LlmRequest) -> Chunks:
        async with httpx.AsyncClient() as client:
            response = await client.post(f"{self.url}/say", json={"model": request.model})
        raise LlmError(response.text, code=LlmError.SERVER)
        yield  # a generator


async def test_an_adapter_of_another_wire_is_told_that_the_suite_is_not_for_it() -> None:
    case = llm_contract.CASES[0]
    with pytest.raises(AssertionError, match="another wire is tested as") as told:
        await case(SpeaksAnotherWire)
    assert "asked POST /say" in str(told.value)
