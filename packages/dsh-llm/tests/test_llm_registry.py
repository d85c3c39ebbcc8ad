"""Registering adapters and finding models."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any, ClassVar, cast

import pytest

from dsh.core import App, Context, EventModeError, Failure, Plugin, inject
from dsh.llm import (
    STOP,
    CallDefaults,
    Finish,
    LlmAdapter,
    LlmError,
    LlmRequest,
    LlmService,
    ModelInfo,
    Problem,
    ResolvedModel,
    StreamChunk,
)
from dsh.llm.events import AdaptersUpdated


class Silent(LlmAdapter):
    """Answers with nothing, and lists the models it is given."""

    def __init__(self, *models: ModelInfo) -> None:
        self._models = models

    async def stream(self, request: LlmRequest) -> AsyncGenerator[StreamChunk, None]:
        yield Finish(STOP)

    def models(self) -> Sequence[ModelInfo]:
        return self._models


@asynccontextmanager
async def running() -> AsyncGenerator[tuple[App, LlmService], None]:
    async with App() as app:
        await app.mount(LlmService).settled()
        yield app, app[LlmService]


def names(llm: LlmService) -> list[str]:
    return [info.qualified for info in llm.models()]


# case: B-05
# case: LLM-01
async def test_a_taken_model_is_refused_and_nothing_of_the_newcomer_stays() -> None:
    async with running() as (app, llm):
        first = Silent()
        llm.register(app.ctx, first, models=["a", "b"])
        with pytest.raises(LlmError, match="'deepseek/b' is registered already") as caught:
            llm.register(app.ctx, Silent(), models=["b", "c"])
        assert caught.value.code == LlmError.DUPLICATE_ADAPTER
        assert names(llm) == ["deepseek/a", "deepseek/b"]
        assert llm.resolve("b").adapter is first
        assert llm.resolve("deepseek/b").adapter is first


# case: LLM-02
@pytest.mark.parametrize(
    ("models", "code"),
    [
        ([], LlmError.INVALID_ADAPTER),
        (None, LlmError.INVALID_ADAPTER),
        (["a", "b", "a"], LlmError.DUPLICATE_ADAPTER),
        (["a", ""], LlmError.INVALID_ADAPTER),
        (["a", " b"], LlmError.INVALID_ADAPTER),
        ([ModelInfo("a"), ModelInfo("b", name="")], LlmError.INVALID_MODEL_INFO),
        ([ModelInfo("a"), ModelInfo("b", context_window=0)], LlmError.INVALID_CONTEXT),
        ([ModelInfo("a", context_window=cast("Any", 1.5))], LlmError.INVALID_CONTEXT),
        ([ModelInfo("b", max_output_tokens=-1)], LlmError.INVALID_MAX_TOKENS),
        ([ModelInfo("b", reasoning_efforts=("low", "low"))], LlmError.INVALID_REASONING),
        ([ModelInfo("b", reasoning_efforts=("",))], LlmError.INVALID_REASONING),
    ],
)
async def test_a_bad_list_of_models_registers_nothing(
    models: list[str | ModelInfo] | None, code: str
) -> None:
    async with running() as (app, llm):
        with pytest.raises(LlmError) as caught:
            llm.register(app.ctx, Silent(), models=models)
        assert caught.value.code == code
        assert llm.models() == ()
        assert llm.providers() == ()


@pytest.mark.parametrize("provider", ["", "a/b", " a"])
async def test_a_bad_provider_name_is_refused(provider: str) -> None:
    async with running() as (app, llm):
        with pytest.raises(LlmError, match="cannot be the name of a provider"):
            llm.register(app.ctx, Silent(), provider, ["m"])


async def test_what_is_no_adapter_is_refused() -> None:
    async with running() as (app, llm):
        with pytest.raises(LlmError, match="registered as an adapter and is none") as caught:
            llm.register(app.ctx, cast("Any", object()), models=["m"])
        assert caught.value.code == LlmError.INVALID_ADAPTER


@pytest.mark.parametrize(
    "catalog", [(ModelInfo("a"), ModelInfo("a")), (ModelInfo(""),), (cast("Any", "a"),)]
)
async def test_a_bad_catalog_of_an_adapter_is_refused(catalog: tuple[ModelInfo, ...]) -> None:
    async with running() as (app, llm):
        with pytest.raises(LlmError) as caught:
            llm.register(app.ctx, Silent(*catalog), models=["x"])
        assert caught.value.code == LlmError.INVALID_CATALOG


async def test_models_come_from_the_adapter_unless_they_are_named() -> None:
    async with running() as (app, llm):
        big = ModelInfo("big", context_window=1000)
        llm.register(app.ctx, Silent(big, ModelInfo("small")), "p")
        llm.register(app.ctx, Silent(big), "q", ["big", "other"])
        assert names(llm) == ["p/big", "p/small", "q/big", "q/other"]
        assert llm.models()[2] == ModelInfo("big", context_window=1000, provider="q")
        assert llm.providers() == ("p", "q")


# case: LLM-03
async def test_a_disposed_registration_frees_its_models_and_cannot_change() -> None:
    async with running() as (app, llm):
        registration = llm.register(app.ctx, Silent(), models=["a"])
        assert (registration.provider, registration.disposed) == ("deepseek", False)
        assert [info.id for info in registration.models] == ["a"]
        await registration.dispose()
        await registration.dispose()
        assert registration.disposed
        assert llm.models() == ()
        with pytest.raises(LlmError) as caught:
            registration.replace(["b"])
        assert caught.value.code == LlmError.REGISTRATION_DISPOSED
        llm.register(app.ctx, Silent(), models=["a"]).dispose_nowait()
        assert llm.models() == ()
        assert repr(registration) == "<AdapterRegistration 'deepseek': ended>"


class Provider(Plugin):
    """A plugin that brings an adapter."""

    llm = inject(LlmService)
    adapter: ClassVar[LlmAdapter] = Silent()

    async def start(self) -> None:
        self.llm.register(self.ctx, self.adapter, models=["a"])


# case: B-05
# case: LLM-04
async def test_models_leave_with_the_plugin_that_brought_them() -> None:
    async with running() as (app, llm):
        mount = app.mount(Provider)
        await mount.settled()
        assert names(llm) == ["deepseek/a"]
        await mount.restart()
        assert names(llm) == ["deepseek/a"]
        await mount.dispose()
        assert names(llm) == []
        with pytest.raises(LlmError):
            llm.resolve("a")


# case: LLM-05
async def test_replace_is_one_change_without_a_gap() -> None:
    async with running() as (app, llm):
        registration = llm.register(app.ctx, Silent(), models=["a"])
        seen: list[list[str]] = []

        def look(event: AdaptersUpdated) -> None:
            seen.append(names(llm))

        app.ctx.on(AdaptersUpdated, look)
        registration.replace(["x", "y"])
        assert seen == [["deepseek/x", "deepseek/y"]]
        registration.replace([])
        assert llm.providers() == ()
        registration.replace(["a"])
        assert names(llm) == ["deepseek/a"]
        registration.dispose_nowait()
        assert len(seen) == 4
        assert seen[3] == []


async def test_a_refused_replacement_changes_nothing() -> None:
    async with running() as (app, llm):
        llm.register(app.ctx, Silent(), models=["a"])
        registration = llm.register(app.ctx, Silent(), models=["b"])
        seen: list[AdaptersUpdated] = []
        app.ctx.on(AdaptersUpdated, seen.append)
        for bad in (["c", "a"], ["c", "c"]):
            with pytest.raises(LlmError) as caught:
                registration.replace(bad)
            assert caught.value.code == LlmError.DUPLICATE_ADAPTER
        assert names(llm) == ["deepseek/a", "deepseek/b"]
        assert [info.id for info in registration.models] == ["b"]
        assert seen == []


# case: LLM-06
async def test_a_listener_that_raises_spoils_nothing() -> None:
    async with running() as (app, llm):
        failures: list[Failure] = []
        heard: list[list[str]] = []

        def broken(event: AdaptersUpdated) -> None:
            raise RuntimeError("no")

        def later(event: AdaptersUpdated) -> None:
            heard.append(names(llm))

        app.on_error(app.ctx, failures.append)
        app.ctx.on(AdaptersUpdated, broken)
        app.ctx.on(AdaptersUpdated, later)
        llm.register(app.ctx, Silent(), models=["a"])
        assert heard == [["deepseek/a"]]
        assert [str(failure.error) for failure in failures] == ["no"]


# case: LLM-06
async def test_an_async_listener_is_refused_when_it_is_registered() -> None:
    async with running() as (app, _):

        async def listener(event: AdaptersUpdated) -> None:
            raise AssertionError("never called")

        with pytest.raises(EventModeError):
            app.ctx.on(AdaptersUpdated, cast("Any", listener))


async def test_a_listener_may_end_the_registration_it_is_told_of() -> None:
    async with running() as (app, llm):
        kept = llm.register(app.ctx, Silent(), models=["a"])

        def end(event: AdaptersUpdated) -> None:
            if not kept.disposed:
                kept.dispose_nowait()

        app.ctx.on(AdaptersUpdated, end)
        kept.replace(["b"])
        assert kept.disposed
        assert llm.models() == ()


async def test_nothing_is_registered_on_a_context_that_has_ended() -> None:
    async with running() as (app, llm):
        kept: list[Context] = []

        def plugin(ctx: Context, config: object) -> None:
            kept.append(ctx)

        mount = app.mount(plugin)
        await mount.settled()
        await mount.dispose()
        with pytest.raises(Exception, match="inactive context"):
            llm.register(kept[0], Silent(), models=["a"])
        assert llm.models() == ()


async def test_names_resolve_qualified_or_bare() -> None:
    async with running() as (app, llm):
        one, two = Silent(), Silent()
        info = ModelInfo("fast", context_window=10)
        llm.register(app.ctx, one, "one", [info, "org/model"])
        llm.register(app.ctx, two, "two", ["slow"])
        declared = ResolvedModel("one", "fast", one, ModelInfo("fast", None, 10, provider="one"))
        assert llm.resolve("fast") == declared
        assert llm.resolve("one/fast") == declared
        assert llm.resolve("org/model").qualified == "one/org/model"
        assert llm.resolve("one/org/model").model == "org/model"
        assert llm.resolve("two/new") == ResolvedModel("two", "new", two)


async def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    async with running() as (app, llm):
        with pytest.raises(LlmError, match="no adapter is registered at all"):
            llm.resolve("deepseek-flash")
        llm.register(app.ctx, Silent(), models=["deepseek-flash", "deepseek-pro"])
        for typo, nearest in (
            ("deepseek-flsh", "'deepseek-flash'"),
            ("deepsek/deepseek-pro", "'deepseek/deepseek-pro'"),
        ):
            with pytest.raises(LlmError) as caught:
                llm.resolve(typo)
            assert caught.value.code == LlmError.NO_ADAPTER
            assert f"did you mean {nearest}?" in str(caught.value)
        for odd in ("", "/", "deepseek/", "/deepseek-pro", "something else"):
            with pytest.raises(LlmError, match="no registered adapter serves"):
                llm.resolve(odd)


async def test_a_bare_name_of_two_providers_is_ambiguous() -> None:
    async with running() as (app, llm):
        llm.register(app.ctx, Silent(), "one", ["m"])
        llm.register(app.ctx, Silent(), "two", ["m"])
        with pytest.raises(LlmError, match="'one/m', 'two/m'") as caught:
            llm.resolve("m")
        assert caught.value.code == LlmError.AMBIGUOUS_MODEL
        assert llm.resolve("two/m").provider == "two"


async def test_adapters_may_share_a_provider() -> None:
    async with running() as (app, llm):
        one, two = Silent(), Silent()
        llm.register(app.ctx, one, "p", ["a"])
        second = llm.register(app.ctx, two, "p", ["b"])
        assert llm.providers() == ("p",)
        assert (llm.resolve("p/a").adapter, llm.resolve("b").adapter) == (one, two)
        with pytest.raises(LlmError, match="none of them declares") as caught:
            llm.resolve("p/c")
        assert caught.value.code == LlmError.AMBIGUOUS_MODEL
        second.replace([])
        assert llm.resolve("p/c").adapter is one


class Keyless(Silent):
    def preflight(self, model: str) -> Problem | None:
        if model == "broken":
            raise OSError("cannot say")
        return Problem(f"no key for {model}", LlmError.MISSING_CREDENTIAL, "set one")


async def test_preflight_asks_the_adapter() -> None:
    async with running() as (app, llm):
        llm.register(app.ctx, Silent(), "open", ["a"])
        llm.register(app.ctx, Keyless(), "keyless", ["b"])
        assert llm.preflight("a") is None
        assert llm.preflight("keyless/c") == Problem(
            "no key for c", "MISSING_CREDENTIAL", "set one"
        )
        missing = llm.preflight("zzz")
        assert missing is not None
        assert missing.code == LlmError.NO_ADAPTER
        assert missing.hint is not None
        assert llm.preflight("keyless/broken") == Problem("cannot say", "UNKNOWN")


class Written(Silent):
    """Has a wire form: what it is asked, as text."""

    def render(self, request: LlmRequest) -> bytes | None:
        return f"{request.model} {request.max_tokens} {len(request.messages)}".encode()

    def call_defaults(self, model: str) -> CallDefaults:
        return CallDefaults(max_tokens=7)


async def test_render_asks_the_adapter_for_what_it_would_send() -> None:
    async with running() as (app, llm):
        llm.register(app.ctx, Silent(), provider="mute", models=["m"])
        llm.register(app.ctx, Written(), provider="wire", models=["w"])
        assert llm.render(LlmRequest("mute/m", ())) is None
        assert llm.render(LlmRequest("wire/w", ())) == b"w 7 0"
        assert llm.render(LlmRequest("w", (), max_tokens=3)) == b"w 3 0"
        for model, code in (("nobody", LlmError.NO_ADAPTER), ("w", LlmError.INVALID_MAX_TOKENS)):
            with pytest.raises(LlmError) as caught:
                llm.render(LlmRequest(model, (), max_tokens=0))
            assert caught.value.code == code
