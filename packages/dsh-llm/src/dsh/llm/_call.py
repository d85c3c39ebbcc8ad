"""From a request to an adapter's stream: the one place where adapter trouble becomes a finish."""

from __future__ import annotations

import inspect
import logging
import reprlib
from collections.abc import AsyncGenerator
from dataclasses import replace
from operator import attrgetter
from typing import Any, Final, cast

from dsh.core import secrets
from dsh.llm._adapter import LlmAdapter
from dsh.llm._catalog import Catalog, ResolvedModel
from dsh.llm._chunks import Finish, FinishReason, StreamChunk
from dsh.llm._content import Message, ReplayState
from dsh.llm._normalize import error_chain, normalize_failure
from dsh.llm._request import LlmCallConfig, LlmRequest
from dsh.llm._soundness import is_sound
from dsh.llm.errors import LlmError

_log = logging.getLogger("dsh.llm")

_STRIPPED: Final = "dsh.llm/stripped"
_replay_of: Final = attrgetter("replay")


async def call(
    catalog: Catalog, request: LlmRequest, route: ResolvedModel | None = None
) -> AsyncGenerator[StreamChunk, None]:
    """Call the adapter that serves the request and pass its stream on.

    The stream always ends with exactly one finish, unless the consumer leaves early or is
    cancelled. What the adapter raises, its silence about the end, and a chunk that is none become
    that finish; what its clean-up raises after that reaches the consumer.

    Args:
        catalog: Where to look up the model, and whose replay state is whose.
        request: What to ask, as it left the last listener.
        route: The model's adapter, if it is settled already.
    """
    try:
        if request.signal is not None and request.signal.aborted:
            raise LlmError(_aborted(request), code=LlmError.ABORTED)
        if route is None:
            route = catalog.resolve(request.model)
        chunks = _opened(route.adapter, outgoing(catalog, route, request))
        step = chunks.__anext__
    except Exception as error:  # noqa: BLE001 - every failure to call is the finish of the stream
        failure = _failure(error, request)
    else:
        try:
            while True:
                try:
                    chunk = await step()
                except StopAsyncIteration:
                    failure = _closed(route, request)
                    break
                except Exception as error:  # noqa: BLE001 - as above
                    failure = _failure(error, request)
                    break
                if not is_sound(chunk):
                    failure = _unsound(route, chunk)
                    break
                if isinstance(chunk, Finish):
                    yield _stamped(chunk, route)
                    return
                yield chunk
            # Before the clean-up, whose own trouble must not take the place of the finish.
            yield Finish(failure)
            return
        finally:
            await chunks.aclose()
    yield Finish(failure)


def outgoing(catalog: Catalog, route: ResolvedModel, request: LlmRequest) -> LlmRequest:
    """Return the request as the adapter gets it.

    Raises:
        LlmError: The configuration does not suit the model.
    """
    config = completed(request.config, route)
    messages = _stripped(catalog, route.adapter, request.messages)
    if messages is request.messages and config == request.config and config.model == route.model:
        return request
    return replace(
        request,
        model=route.model,
        messages=messages,
        max_tokens=config.max_tokens,
        reasoning_effort=config.reasoning_effort,
    )


def completed(config: LlmCallConfig, route: ResolvedModel) -> LlmCallConfig:
    """Return the configuration with the adapter's defaults where it says nothing.

    Raises:
        LlmError: INVALID_MAX_TOKENS or UNSUPPORTED_REASONING_EFFORT.
    """
    max_tokens, effort = config.max_tokens, config.reasoning_effort
    if max_tokens is None or effort is None:
        defaults = route.adapter.call_defaults(route.model)
        max_tokens = defaults.max_tokens if max_tokens is None else max_tokens
        effort = defaults.reasoning_effort if effort is None else effort
    if max_tokens is not None and max_tokens < 1:
        raise LlmError(
            f"an answer of {route.qualified!r} cannot be limited to {max_tokens!r} tokens",
            code=LlmError.INVALID_MAX_TOKENS,
            hint="max_tokens is a positive integer, or None",
        )
    offered = () if route.info is None else route.info.reasoning_efforts
    if effort is not None and offered and effort not in offered:
        raise LlmError(
            f"{route.qualified!r} does not offer the reasoning effort {effort!r}",
            code=LlmError.UNSUPPORTED_REASONING_EFFORT,
            hint=f"use one of {', '.join(repr(item) for item in offered)}",
        )
    if max_tokens == config.max_tokens and effort == config.reasoning_effort:
        return config
    return replace(config, max_tokens=max_tokens, reasoning_effort=effort)


def _opened(adapter: LlmAdapter, request: LlmRequest) -> AsyncGenerator[StreamChunk, None]:
    chunks: Any = adapter.stream(request)
    if hasattr(chunks, "__anext__") and hasattr(chunks, "aclose"):
        return cast("AsyncGenerator[StreamChunk, None]", chunks)
    if inspect.iscoroutine(chunks):
        chunks.close()
    raise LlmError(
        f"{type(adapter).__name__}.stream returned {type(chunks).__name__}, not a stream",
        code=LlmError.INVALID_ADAPTER,
        hint="write it as an async generator: `async def stream` with `yield`",
    )


def _stripped(
    catalog: Catalog, adapter: LlmAdapter, messages: tuple[Message, ...]
) -> tuple[Message, ...]:
    """Empty the replay states that belong to another adapter."""
    if not any(map(_replay_of, messages)):
        return messages
    foreign = False
    result: list[Message] = []
    for message in messages:
        replay = message.replay
        if (
            replay is None
            or not replay.state
            or catalog.owner(replay.provider, replay.model) is adapter
        ):
            result.append(message)
        else:
            foreign = True
            result.append(_without_state(message, replay))
    return tuple(result) if foreign else messages


def _without_state(message: Message, replay: ReplayState) -> Message:
    # One twin per message, so that an adapter's memo on it lasts from request to request.
    twin = message.memo.get(_STRIPPED)
    if twin is None:
        twin = replace(message, replay=ReplayState(replay.provider, replay.model, {}))
        message.memo[_STRIPPED] = twin
    return twin


def _stamped(chunk: Finish, route: ResolvedModel) -> Finish:
    """Write on a replay state whose it is, which an adapter need not know."""
    replay = chunk.replay
    if replay is None or (replay.provider == route.provider and replay.model == route.model):
        return chunk
    return Finish(chunk.reason, ReplayState(route.provider, route.model, replay.state))


def _failure(error: Exception, request: LlmRequest) -> FinishReason:
    aborted = request.signal is not None and request.signal.aborted
    failure = normalize_failure(error, aborted=aborted)
    if failure.code == LlmError.UNKNOWN:
        # An exception without a code is a bug somewhere; the finish alone would hide where.
        _log.warning("a call of model %r failed", request.model, exc_info=error)
    else:
        _log.debug("a call of model %r failed: %s", request.model, error_chain(error))
    return failure


def _closed(route: ResolvedModel, request: LlmRequest) -> FinishReason:
    if request.signal is not None and request.signal.aborted:
        return FinishReason("aborted", _aborted(request), LlmError.ABORTED)
    return FinishReason(
        "error",
        f"the stream of {route.qualified!r} ended before the answer did",
        LlmError.STREAM_CLOSED,
    )


def _unsound(route: ResolvedModel, chunk: object) -> FinishReason:
    shown = secrets.redact(reprlib.repr(chunk))
    message = f"the stream of {route.qualified!r} holds {shown}, which is no chunk of the protocol"
    _log.warning("%s; an adapter yields the chunk classes of dsh.llm, filled as declared", message)
    return FinishReason("error", message, LlmError.MALFORMED_RESPONSE)


def _aborted(request: LlmRequest) -> str:
    reason = None if request.signal is None else request.signal.reason
    return f"the request was aborted: {reason}" if reason else "the request was aborted"
