"""The service that routes requests to adapters."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import ClassVar

from dsh.core import Context, Service
from dsh.llm._adapter import LlmAdapter, ModelInfo, Problem
from dsh.llm._assembler import BlockAssembler
from dsh.llm._call import call, completed, outgoing
from dsh.llm._catalog import Catalog, ResolvedModel
from dsh.llm._chunks import FinishReason, StreamChunk, TokenUsage
from dsh.llm._content import ContentBlock, Message, ToolCallBlock
from dsh.llm._normalize import normalize_failure
from dsh.llm._prepared import PreparedCall
from dsh.llm._registry import AdapterRegistration, Registry
from dsh.llm._request import LlmCallConfig, LlmRequest
from dsh.llm.errors import LlmError
from dsh.llm.events import AdaptersUpdated, LlmStream


@dataclass(frozen=True, slots=True)
class GenerateResult:
    """A whole answer."""

    message: Message
    """The answer as an assistant message."""
    usage: TokenUsage | None
    """What it cost; None if the provider did not say."""
    finish: FinishReason
    """Why it ended."""


class LlmService(Service, key="llm"):
    """Calls models. Adapters register here; everybody else streams from here.

    A model is named `provider/model`, or by its bare id where exactly one provider declares it.
    With a registered provider in front, an id nobody declares is passed on to that provider.
    """

    name: ClassVar[str] = "llm"

    async def start(self) -> None:
        """Begin with no adapters."""
        self._registry = Registry(self._announce)

    def register(
        self,
        ctx: Context,
        adapter: LlmAdapter,
        provider: str = "deepseek",
        models: Sequence[str | ModelInfo] | None = None,
    ) -> AdapterRegistration:
        """Let an adapter serve models for as long as `ctx` is alive. All or nothing.

        Args:
            ctx: The owner; the registration leaves with it.
            adapter: Who serves the models.
            provider: The name in front of the models. Several adapters may share one, each with
                models of its own.
            models: The models; by default those the adapter lists. An id the adapter describes
                brings its description along.

        Returns:
            The handle to change or end the registration.

        Raises:
            LlmError: DUPLICATE_ADAPTER if a model is taken or listed twice; INVALID_ADAPTER for a
                bad provider name or no models; INVALID_CATALOG, INVALID_MODEL_INFO,
                INVALID_CONTEXT, INVALID_MAX_TOKENS or INVALID_REASONING for a bad description.
        """
        return self._registry.register(ctx, adapter, provider, models)

    def providers(self) -> tuple[str, ...]:
        """Return the providers that serve a model, in order of registration."""
        return self._registry.catalog.providers

    def models(self) -> tuple[ModelInfo, ...]:
        """Return the declared models in order of registration, with their provider filled in."""
        return self._registry.catalog.models

    def resolve(self, model: str) -> ResolvedModel:
        """Find out what a model's name stands for.

        Args:
            model: `provider/model` or a bare id.

        Returns:
            The adapter that serves it, and the model under both its names.

        Raises:
            LlmError: NO_ADAPTER if nobody serves it, with the nearest name; AMBIGUOUS_MODEL if
                the name could mean several.
        """
        return self._registry.catalog.resolve(model)

    def preflight(self, model: str, reasoning_effort: str | None = None) -> Problem | None:
        """Say what keeps a model from being called as things stand; nothing is sent.

        Args:
            model: `provider/model` or a bare id.
            reasoning_effort: The effort it would be asked for; the configured one if not given.

        Returns:
            The problem, or None if nothing is known to be in the way.
        """
        try:
            route = self.resolve(model)
            completed(LlmCallConfig(model, reasoning_effort=reasoning_effort), route)
            return route.adapter.preflight(route.model)
        except LlmError as error:
            return Problem(error.message, error.code, error.hint)
        except Exception as error:  # noqa: BLE001 - an adapter that cannot say is a problem too
            failure = normalize_failure(error)
            return Problem(failure.message or "", failure.code or LlmError.UNKNOWN)

    def render(self, request: LlmRequest) -> bytes | None:
        """Return the bytes that would be sent for a request; makes no I/O and asks no listener.

        Together with `dsh.session.rebuild_request` this shows what the model was told, from the
        log alone.

        Args:
            request: What would be asked; the adapter's defaults fill what it leaves open.

        Returns:
            The body as the adapter of its model writes it; None if that has no wire form.

        Raises:
            LlmError: As `resolve`, as `prepare`, and what the adapter has against the request.
        """
        catalog = self._registry.catalog
        route = catalog.resolve(request.model)
        return route.adapter.render(outgoing(catalog, route, request))

    async def prepare(self, config: LlmCallConfig) -> PreparedCall:
        """Settle one call before it is made, so that it can be logged first.

        Args:
            config: What the caller wants; the adapter's defaults fill what it leaves open.

        Returns:
            The call, to be made once; its configuration is complete.

        Raises:
            LlmError: As `resolve`; INVALID_MAX_TOKENS; UNSUPPORTED_REASONING_EFFORT.
        """
        catalog = self._registry.catalog
        route = catalog.resolve(config.model)
        full = replace(completed(config, route), model=route.qualified)
        defaults = frozenset(
            name
            for name in ("max_tokens", "reasoning_effort")
            if getattr(full, name) != getattr(config, name)
        )
        return PreparedCall(full, route, defaults, catalog, self._dispatch)

    def stream(self, request: LlmRequest) -> AsyncGenerator[StreamChunk, None]:
        """Call a model and stream the answer; nothing happens before the first chunk is asked for.

        The stream ends with exactly one finish. Trouble with the adapter (none registered, an
        exception, a stream that breaks off) is a finish of kind `error` or `aborted`, never an
        exception; what an `llm/stream` listener raises is raised here. Consume it inside `async
        with aclosing(...)`, so that leaving early closes the connection in time.

        Args:
            request: What to ask.

        Returns:
            The chunks of the answer.
        """
        return self.ctx.stream(LlmStream(request), self._innermost)

    async def stream_blocks(self, request: LlmRequest) -> AsyncGenerator[ContentBlock, None]:
        """Call a model and yield each block of the answer once it is complete.

        Tool calls come after the end of the answer, since only then it is known that they are
        whole.

        Args:
            request: What to ask.

        Yields:
            The blocks, in the order in which they are complete.

        Raises:
            LlmError: The answer failed or was aborted; blocks may have come before.
        """
        assembler = BlockAssembler()
        seen: set[int] = set()
        async with aclosing(self.stream(request)) as chunks:
            async for chunk in chunks:
                block = assembler.push(chunk)
                if block is not None and not isinstance(block, ToolCallBlock):
                    seen.add(id(block))
                    yield block
        message = _answer(assembler)
        for block in message.content:
            if id(block) not in seen:
                yield block

    async def generate(self, request: LlmRequest) -> GenerateResult:
        """Call a model and return the whole answer.

        Args:
            request: What to ask.

        Returns:
            The answer as a message, with its usage and its finish.

        Raises:
            LlmError: The answer failed or was aborted.
        """
        assembler = BlockAssembler()
        async with aclosing(self.stream(request)) as chunks:
            async for chunk in chunks:
                assembler.push(chunk)
        return GenerateResult(_answer(assembler), assembler.usage, assembler.finish)

    def _innermost(self, event: LlmStream) -> AsyncGenerator[StreamChunk, None]:
        return call(self._registry.catalog, event.request)

    def _dispatch(
        self, request: LlmRequest, catalog: Catalog, route: ResolvedModel
    ) -> AsyncGenerator[StreamChunk, None]:
        def innermost(event: LlmStream) -> AsyncGenerator[StreamChunk, None]:
            if event.request.model != request.model:
                return self._innermost(event)
            return call(catalog, event.request, route)

        return self.ctx.stream(LlmStream(request), innermost)

    def _announce(self) -> None:
        self.ctx.emit(AdaptersUpdated())


def _answer(assembler: BlockAssembler) -> Message:
    if assembler.finish.failed:
        raise LlmError.from_finish(assembler.finish)
    return assembler.message()
