"""Prepared calls, configured defaults and whose replay state is whose."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from dsh.core import App, NextStream
from dsh.llm import (
    STOP,
    CallDefaults,
    Finish,
    LlmAdapter,
    LlmCallConfig,
    LlmError,
    LlmRequest,
    LlmService,
    Message,
    ModelInfo,
    ReplayState,
    RetryPolicy,
    StreamChunk,
    TextBlock,
)
from dsh.llm.events import LlmStream
from dsh.llm.testing import collect


class Recording(LlmAdapter):
    """Keeps what it is asked; configured like a user would."""

    def __init__(
        self, *, max_tokens: int | None = None, effort: str | None = None, retries: int = 5
    ) -> None:
        self.requests: list[LlmRequest] = []
        self._defaults = CallDefaults(max_tokens, effort)
        self._policy = RetryPolicy(max_retries=retries)

    async def stream(self, request: LlmRequest) -> AsyncGenerator[StreamChunk, None]:
        self.requests.append(request)
        yield Finish(STOP)

    def call_defaults(self, model: str) -> CallDefaults:
        return self._defaults

    def retry_policy(self, model: str) -> RetryPolicy:
        return self._policy


@asynccontextmanager
async def running(**adapters: LlmAdapter) -> AsyncGenerator[tuple[App, LlmService], None]:
    async with App() as app:
        await app.mount(LlmService).settled()
        llm = app[LlmService]
        for provider, adapter in adapters.items():
            llm.register(app.ctx, adapter, provider, ["m"])
        yield app, llm


def asking(config: LlmCallConfig, *messages: Message) -> LlmRequest:
    return LlmRequest(
        config.model,
        messages or (Message("user", (TextBlock("hi"),)),),
        temperature=config.temperature,
        max_tokens=config.max_tokens,
        stop=config.stop,
        reasoning_effort=config.reasoning_effort,
    )


async def test_a_prepared_call_says_what_it_will_do() -> None:
    adapter = Recording(retries=2)
    async with running(p=adapter) as (_, llm):
        call = await llm.prepare(LlmCallConfig("m", 0.3, stop=("END",)))
        assert call.config == LlmCallConfig("p/m", 0.3, stop=("END",))
        assert (call.model.provider, call.model.model) == ("p", "m")
        assert call.model.info == ModelInfo("m", provider="p")
        assert call.retry.max_retries == 2
        assert call.defaults == frozenset()
        assert await collect(call.stream(asking(call.config))) == [Finish(STOP)]
    (request,) = adapter.requests
    assert (request.model, request.temperature, request.stop) == ("m", 0.3, ("END",))


async def test_what_cannot_be_prepared_is_raised() -> None:
    async with running(p=Recording()) as (_, llm):
        with pytest.raises(LlmError) as caught:
            await llm.prepare(LlmCallConfig("nothing"))
        assert caught.value.code == LlmError.NO_ADAPTER


# case: LLM-14
async def test_a_prepared_call_is_made_once() -> None:
    adapter = Recording()
    async with running(p=adapter) as (_, llm):
        call = await llm.prepare(LlmCallConfig("m"))
        await collect(call.stream(asking(call.config)))
        with pytest.raises(LlmError, match="was made already") as caught:
            call.stream(asking(call.config))
        assert caught.value.code == LlmError.INVALID_PREPARED_CALL
    assert len(adapter.requests) == 1


# case: LLM-14
@pytest.mark.parametrize(
    "change",
    [
        {"model": "m"},
        {"temperature": 0.1},
        {"max_tokens": 5},
        {"stop": ()},
        {"stop": ("x",)},
        {"reasoning_effort": "high"},
    ],
)
async def test_a_prepared_call_takes_no_other_configuration(change: dict[str, Any]) -> None:
    adapter = Recording()
    async with running(p=adapter) as (_, llm):
        call = await llm.prepare(LlmCallConfig("m"))
        with pytest.raises(LlmError, match="not the prepared one") as caught:
            call.stream(replace(asking(call.config), **change))
        assert caught.value.code == LlmError.INVALID_PREPARED_CALL
        assert adapter.requests == []
        # a refused attempt does not use the call up
        await collect(call.stream(asking(call.config)))
    assert len(adapter.requests) == 1


# case: LLM-15
async def test_a_prepared_call_keeps_its_adapter_and_policy() -> None:
    old, new = Recording(retries=1), Recording(retries=2)
    async with running() as (app, llm):
        registration = llm.register(app.ctx, old, "p", ["m"])
        call = await llm.prepare(LlmCallConfig("p/m"))
        await registration.dispose()
        llm.register(app.ctx, new, "p", ["m"])
        await collect(call.stream(asking(call.config)))
        assert (len(old.requests), len(new.requests)) == (1, 0)
        assert call.retry.max_retries == 1
        later = await llm.prepare(LlmCallConfig("p/m"))
        await collect(later.stream(asking(later.config)))
        assert (len(old.requests), len(new.requests)) == (1, 1)
        assert later.retry.max_retries == 2


# case: LLM-11
async def test_a_listener_can_send_a_prepared_call_elsewhere() -> None:
    one, two = Recording(), Recording()

    async def redirect(
        event: LlmStream, next: NextStream[StreamChunk]
    ) -> AsyncGenerator[StreamChunk, None]:
        async with aclosing(next(LlmStream(replace(event.request, model="two/m")))) as chunks:
            async for chunk in chunks:
                yield chunk

    async with running(one=one, two=two) as (app, llm):
        app.ctx.on(LlmStream, redirect)
        call = await llm.prepare(LlmCallConfig("one/m"))
        await collect(call.stream(asking(call.config)))
    assert (len(one.requests), len(two.requests)) == (0, 1)


# case: LLM-16
async def test_configured_defaults_fill_what_a_request_leaves_open() -> None:
    adapter = Recording(max_tokens=100, effort="low")
    async with running(p=adapter) as (_, llm):
        call = await llm.prepare(LlmCallConfig("m"))
        assert call.config == LlmCallConfig("p/m", max_tokens=100, reasoning_effort="low")
        assert call.defaults == {"max_tokens", "reasoning_effort"}
        own = await llm.prepare(LlmCallConfig("m", max_tokens=7))
        assert own.config == LlmCallConfig("p/m", max_tokens=7, reasoning_effort="low")
        assert own.defaults == {"reasoning_effort"}
        await collect(llm.stream(asking(LlmCallConfig("m"))))
        await collect(llm.stream(asking(LlmCallConfig("m", max_tokens=7))))
        await collect(own.stream(asking(own.config)))
    assert [(request.max_tokens, request.reasoning_effort) for request in adapter.requests] == [
        (100, "low"),
        (7, "low"),
        (7, "low"),
    ]


# case: LLM-16
async def test_without_configured_defaults_nothing_is_sent() -> None:
    adapter = Recording()
    async with running(p=adapter) as (_, llm):
        assert (await llm.prepare(LlmCallConfig("m"))).config == LlmCallConfig("p/m")
        await collect(llm.stream(asking(LlmCallConfig("m"))))
    assert adapter.requests[0].max_tokens is None


async def test_what_does_not_suit_the_model_is_refused_and_not_clamped() -> None:
    adapter = Recording()
    async with running() as (app, llm):
        llm.register(app.ctx, adapter, "p", [ModelInfo("m", reasoning_efforts=("low", "high"))])
        for config, code in (
            (LlmCallConfig("m", reasoning_effort="extreme"), LlmError.UNSUPPORTED_REASONING_EFFORT),
            (LlmCallConfig("m", max_tokens=0), LlmError.INVALID_MAX_TOKENS),
        ):
            with pytest.raises(LlmError) as caught:
                await llm.prepare(config)
            assert caught.value.code == code
            (finish,) = await collect(llm.stream(asking(config)))
            assert isinstance(finish, Finish)
            assert finish.reason.code == code
        problem = llm.preflight("m", "extreme")
        assert problem is not None
        assert problem.code == LlmError.UNSUPPORTED_REASONING_EFFORT
        assert llm.preflight("m", "high") is None
        await llm.prepare(LlmCallConfig("m", reasoning_effort="high"))
        await llm.prepare(LlmCallConfig("p/undeclared", reasoning_effort="extreme"))
    assert adapter.requests == []


def answer(provider: str, model: str = "m", **state: Any) -> Message:
    return Message("assistant", (TextBlock("a"),), ReplayState(provider, model, state))


USER = Message("user", (TextBlock("hi"),))


# case: LLM-17
async def test_replay_state_goes_only_to_the_adapter_it_came_from() -> None:
    one, two = Recording(), Recording()
    async with running(one=one, two=two) as (_, llm):
        mine, theirs, gone = answer("one", id=1), answer("two", id=2), answer("gone", id=3)
        request = asking(LlmCallConfig("one/m"), USER, mine, theirs, gone)
        await collect(llm.stream(request))
        sent = one.requests[0].messages
        assert sent[0] is USER
        assert sent[1] is mine
        assert [message.replay for message in sent[2:]] == [
            ReplayState("two", "m", {}),
            ReplayState("gone", "m", {}),
        ]
        assert sent[2].content is theirs.content
        # the request and the messages the caller holds are as they were
        assert request.messages == (USER, mine, theirs, gone)
        assert theirs.replay == ReplayState("two", "m", {"id": 2})


# case: LLM-17
async def test_one_adapter_under_two_providers_keeps_its_state() -> None:
    adapter = Recording()
    async with running(one=adapter, two=adapter) as (_, llm):
        request = asking(LlmCallConfig("two/m"), USER, answer("one", "undeclared", id=1))
        await collect(llm.stream(request))
        assert adapter.requests[0].messages is request.messages


# case: LLM-17
async def test_a_prepared_call_keeps_the_state_of_its_own_adapter() -> None:
    old = Recording()
    async with running() as (app, llm):
        registration = llm.register(app.ctx, old, "p", ["m"])
        call = await llm.prepare(LlmCallConfig("p/m"))
        await registration.dispose()
        llm.register(app.ctx, Recording(), "p", ["m"])
        request = asking(call.config, USER, answer("p", id=1))
        await collect(call.stream(request))
        assert old.requests[0].messages is request.messages


async def test_a_stripped_message_stays_the_same_object() -> None:
    adapter = Recording()
    async with running(p=adapter) as (_, llm):
        request = asking(LlmCallConfig("m"), USER, answer("gone", id=1))
        await collect(llm.stream(request))
        adapter.requests[0].messages[1].memo["test"] = "encoded once"
        await collect(llm.stream(replace(request, temperature=1.0)))
        assert adapter.requests[1].messages[1].memo["test"] == "encoded once"


class Plain(LlmAdapter):
    """Overrides nothing it need not."""

    async def stream(self, request: LlmRequest) -> AsyncGenerator[StreamChunk, None]:
        yield Finish(STOP)


async def test_an_adapter_without_opinions_leaves_everything_open() -> None:
    async with running(p=Plain()) as (_, llm):
        call = await llm.prepare(LlmCallConfig("m"))
        assert (call.config, call.retry) == (LlmCallConfig("p/m"), RetryPolicy())
        assert llm.preflight("m") is None
        assert llm.models() == (ModelInfo("m", provider="p"),)
