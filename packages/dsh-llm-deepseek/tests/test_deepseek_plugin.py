"""The plugin and its configuration in an app, and what importing the wheel costs."""

from __future__ import annotations

import importlib.metadata
import json
import subprocess
import sys
from typing import Any

import pytest

from dsh.core import App, ConfigError, MountState
from dsh.llm import (
    CallDefaults,
    LlmCallConfig,
    LlmError,
    LlmRequest,
    LlmService,
    Message,
    RetryPolicy,
    TextBlock,
)
from dsh.llm.testing import collect
from dsh.llm_deepseek import (
    MODELS,
    DeepSeekAdapter,
    DeepSeekConfig,
    DeepSeekPlugin,
    ModelEntry,
    RetrySettings,
)
from dsh.llm_replay import server as wire
from dsh.llm_replay.server import WireServer

HELLO = (Message("user", (TextBlock("hi"),)),)


def test_the_entry_point_names_the_plugin() -> None:
    (point,) = importlib.metadata.entry_points(group="dsh.plugins", name="llm-deepseek")
    assert point.load() is DeepSeekPlugin
    assert DeepSeekPlugin.name == "llm-deepseek"


async def test_the_plugin_comes_and_goes() -> None:
    async with App() as app:
        await app.mount(LlmService).settled()
        llm = app[LlmService]
        for _ in range(2):
            mount = app.mount(DeepSeekPlugin)
            await mount.settled()
            assert mount.state is MountState.ACTIVE
            assert llm.providers() == ("deepseek",)
            await mount.dispose()
            assert llm.providers() == ()


async def test_the_plugin_waits_for_the_model_service() -> None:
    async with App() as app:
        mount = app.mount(DeepSeekPlugin)
        await mount.settled()
        assert mount.state is MountState.PENDING
        await app.mount(LlmService).settled()
        await mount.settled()
        assert mount.state is MountState.ACTIVE


async def test_two_instances_serve_two_endpoints() -> None:
    async with (
        WireServer([wire.success("one")]) as one,
        WireServer([wire.success("two")]) as two,
        App() as app,
    ):
        await app.mount(LlmService).settled()
        key = {"api_key": "sk-two-endpoints"}
        await app.mount(DeepSeekPlugin, {"base_url": one.url, **key}).settled()
        other = {"provider": "local", "base_url": two.url, "models": [{"id": "qwen"}], **key}
        await app.mount(DeepSeekPlugin, other).settled()
        llm = app[LlmService]
        assert llm.providers() == ("deepseek", "local")
        for model, server in (("deepseek-flash", one), ("local/anything", two)):
            await collect(llm.stream(LlmRequest(model, HELLO)))
            assert server.attempts[0].body["model"] == model.rpartition("/")[2]
        assert llm.resolve("qwen").qualified == "local/qwen"


async def test_another_provider_needs_models() -> None:
    async with App() as app:
        await app.mount(LlmService).settled()
        with pytest.raises(ConfigError, match="models lists at least one model for 'local'"):
            await app.mount(DeepSeekPlugin, {"provider": "local"}).settled()


async def test_defaults_of_the_settings_reach_the_request() -> None:
    async with WireServer([wire.success()]) as server, App() as app:
        await app.mount(LlmService).settled()
        config = {
            "base_url": server.url,
            "api_key": "sk-defaults",
            "max_tokens": 77,
            "reasoning_effort": "low",
        }
        await app.mount(DeepSeekPlugin, config).settled()
        llm = app[LlmService]
        prepared = await llm.prepare(LlmCallConfig("deepseek-flash"))
        assert prepared.config.max_tokens == 77
        assert prepared.config.reasoning_effort == "low"
        await collect(llm.stream(LlmRequest("deepseek-flash", HELLO)))
        assert server.attempts[0].body["max_tokens"] == 77
        assert server.attempts[0].body["reasoning_effort"] == "low"


async def test_a_model_of_any_name_is_passed_on() -> None:
    async with WireServer([wire.success()]) as server, App() as app:
        await app.mount(LlmService).settled()
        await app.mount(DeepSeekPlugin, {"base_url": server.url, "api_key": "sk-any"}).settled()
        await collect(app[LlmService].stream(LlmRequest("deepseek/some/new-model", HELLO)))
        assert server.attempts[0].body["model"] == "some/new-model"


async def test_an_update_of_the_settings_counts_from_the_next_request() -> None:
    async with (
        WireServer([wire.success()]) as one,
        WireServer([wire.success()]) as two,
        App() as app,
    ):
        await app.mount(LlmService).settled()
        key = {"api_key": "sk-update"}
        mount = app.mount(DeepSeekPlugin, {"base_url": one.url, **key})
        await mount.settled()
        await collect(app[LlmService].stream(LlmRequest("deepseek-flash", HELLO)))
        await mount.update({"base_url": two.url, **key})
        await mount.settled()
        await collect(app[LlmService].stream(LlmRequest("deepseek-flash", HELLO)))
        assert (len(one.attempts), len(two.attempts)) == (1, 1)


def test_the_catalogue() -> None:
    assert [model.id for model in MODELS] == [
        "deepseek-flash",
        "deepseek-v4-pro",
        "deepseek-v4-flash",
        "deepseek-v4-flash-vision-exp",
    ]
    adapter = DeepSeekAdapter()
    assert tuple(adapter.models()) == MODELS
    assert {model.context_window for model in MODELS} == {1_000_000}
    assert DeepSeekAdapter({"provider": "other"}).models() == ()
    disabled = DeepSeekAdapter({"thinking": "disabled"})
    assert {model.reasoning_efforts for model in disabled.models()} == {("off",)}


def test_models_of_the_settings_replace_the_catalogue() -> None:
    entry = ModelEntry(id="m", context_window=5, max_tokens=2, reasoning_efforts=("low",))
    adapter = DeepSeekAdapter(DeepSeekConfig(models=(entry, ModelEntry(id="n"))))
    first, second = adapter.models()
    assert (first.id, first.context_window, first.reasoning_efforts) == ("m", 5, ("low",))
    assert second.reasoning_efforts == ("off", "low", "high", "max")
    assert adapter.call_defaults("m") == CallDefaults(max_tokens=2)
    assert adapter.call_defaults("n") == CallDefaults()


def test_the_retry_policy_of_the_settings() -> None:
    assert DeepSeekAdapter().retry_policy("m") == RetryPolicy()
    settings = {"retry": {"max_retries": 1, "retryable_codes": ["SERVER"], "max_delay_ms": 700}}
    assert DeepSeekAdapter(settings).retry_policy("m") == RetryPolicy(
        max_retries=1, retryable_codes=("SERVER",), max_delay_ms=700
    )
    assert RetrySettings(mode="always").policy().mode == "always"


@pytest.mark.parametrize(
    "config",
    [
        {"provider": ""},
        {"provider": "a/b"},
        {"provider": " a"},
        {"base_url": "api.deepseek.com"},
        {"base_url": "ftp://host"},
        {"base_url": "https://"},
        {"base_url": "https://host:port"},
        {"base_url": "https://user@host"},
        {"base_url": "https://host?x=1"},
        {"base_url": "https://host#x"},
        {"base_url": "https://ho st"},
        {"base_url": ""},
        {"api_key_env": ""},
        {"thinking": "maybe"},
        {"thinking": "enabled", "thinking_parameter": False},
        {"reasoning_effort": "medium"},
        {"reasoning_effort": "high", "thinking": "disabled"},
        {"max_tokens": 0},
        {"idle_timeout_s": 0},
        {"idle_timeout_s": float("inf")},
        {"idle_timeout_s": float("nan")},
        {"progress_timeout_s": 1e10},
        {"connect_timeout_s": -1},
        {"models": [{"id": ""}]},
        {"models": [{"id": "m", "windows": 1}]},
        {"extra_headers": {"Host": "x"}},
        {"extra_headers": {"content-length": "1"}},
        {"extra_headers": {"x y": "1"}},
        {"extra_headers": {"x": "a\nb"}},
        {"extra_headers": {"x": "\u00e9"}},
        {"extra_body": {"messages": []}},
        {"extra_body": {"stream": False}},
        {"extra_body": {"x": float("nan")}},
        {"extra_body": {"x": object()}},
        {"retry": {"max_retries": -1}},
        {"retry": {"initial_delay_ms": 5, "max_delay_ms": 1}},
        {"retry": {"retryable_codes": []}},
        {"retry": {"unknown": 1}},
        {"api_keyy": "x"},
    ],
)
def test_settings_that_do_not_fit_are_refused(config: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="validation error"):
        DeepSeekConfig.model_validate(config)


def test_settings_are_frozen() -> None:
    config = DeepSeekConfig()
    with pytest.raises(ValueError, match="frozen"):
        setattr(config, "provider", "x")  # noqa: B010 - the type checker refuses the plain form


# case: SER-20
async def test_a_request_for_an_effort_nobody_offers() -> None:
    async with WireServer([wire.success()]) as server:
        adapter = DeepSeekAdapter({"base_url": server.url, "api_key": "sk-effort"})
        asked = LlmRequest("deepseek-flash", HELLO, reasoning_effort="ultra")
        with pytest.raises(LlmError, match="ultra"):
            await collect(adapter.stream(asked))
        assert server.connections == 0


PROBE = """
import json, socket, sys
class Blocked(socket.socket):
    def __init__(self, *args, **kwargs):
        raise AssertionError("a socket is opened")
socket.socket = Blocked
import dsh.llm_deepseek as wheel
adapter = wheel.DeepSeekAdapter(environ={})
adapter.models(), adapter.preflight("deepseek-flash")
print(json.dumps(sorted(set(sys.modules) & {"httpx", "httpcore", "h11", "ssl", "trio", "asyncio"})))
"""


# case: F-47
def test_importing_the_wheel_opens_no_socket_and_loads_no_http_library() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROBE], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    loaded = json.loads(done.stdout)
    assert not {"httpx", "httpcore", "h11"} & set(loaded)
