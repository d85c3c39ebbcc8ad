"""The key: where it comes from, when it is refused, and that it is shown nowhere."""

from __future__ import annotations

import gc
import io
import logging
import os
import pickle
import traceback
from pathlib import Path
from typing import Any

import anyio
import pytest

from dsh.core import App, install_log_filter, secrets
from dsh.llm import (
    Finish,
    LlmError,
    LlmRequest,
    LlmService,
    Message,
    TextBlock,
    error_chain,
    normalize_failure,
    to_wire,
)
from dsh.llm.testing import collect
from dsh.llm_deepseek import DeepSeekAdapter, DeepSeekConfig, DeepSeekPlugin
from dsh.llm_deepseek._credentials import MAX_KEY_BYTES
from dsh.llm_replay import server as wire
from dsh.llm_replay.server import Behaviour, Send, WireServer

REQUEST = LlmRequest("deepseek-flash", (Message("user", (TextBlock("hi"),)),))


async def sent_key(adapter: DeepSeekAdapter, server: WireServer) -> str | None:
    await collect(adapter.stream(REQUEST))
    return server.attempts[-1].headers.get("authorization")


def adapter_for(server: WireServer, environ: dict[str, str], **config: Any) -> DeepSeekAdapter:
    return DeepSeekAdapter({"base_url": server.url, **config}, environ=environ)


# case: HTTP-19
@pytest.mark.parametrize("environ", [{}, {"DEEPSEEK_API_KEY": ""}, {"DEEPSEEK_API_KEY": " \n"}])
async def test_without_a_key_everything_works_but_the_request(environ: dict[str, str]) -> None:
    async with WireServer([wire.success()]) as server:
        adapter = adapter_for(server, environ)
        assert "deepseek-flash" in [model.id for model in adapter.models()]
        with pytest.raises(LlmError, match="DEEPSEEK_API_KEY") as caught:
            await collect(adapter.stream(REQUEST))
        assert caught.value.code == "MISSING_CREDENTIAL"
        assert "DEEPSEEK_API_KEY" in (caught.value.hint or "")
        assert server.connections == 0
        problem = adapter.preflight("deepseek-flash")
        assert problem is not None
        assert problem.code == "MISSING_CREDENTIAL"
        assert "DEEPSEEK_API_KEY" in problem.message


# case: HTTP-19
async def test_the_plugin_loads_without_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DEEPSEEK_API_KEY", raising=False)
    async with App() as app:
        await app.mount(LlmService).settled()
        await app.mount(DeepSeekPlugin).settled()
        llm = app[LlmService]
        assert "deepseek-v4-pro" in [model.id for model in llm.models()]
        problem = llm.preflight("deepseek/deepseek-flash")
        assert problem is not None
        assert problem.code == "MISSING_CREDENTIAL"
        last = (await collect(llm.stream(REQUEST)))[-1]
        assert isinstance(last, Finish)
        assert (last.reason.kind, last.reason.code) == ("error", "MISSING_CREDENTIAL")


# case: HTTP-20
@pytest.mark.parametrize(
    "bad", ["sk-bad\nkey-value", "sk-bad key-value", "sk-bad\x00key", "sk-b\u00e4d-key-value"]
)
async def test_a_key_no_header_can_carry_is_refused_and_not_shown(
    bad: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with WireServer([wire.success()]) as server:
        adapter = adapter_for(server, {"DEEPSEEK_API_KEY": bad})
        with caplog.at_level(logging.DEBUG), pytest.raises(LlmError) as caught:
            await collect(adapter.stream(REQUEST))
        error = caught.value
        assert error.code == "INVALID_CREDENTIAL"
        assert "DEEPSEEK_API_KEY" in error.message
        assert server.connections == 0
        for text in (everything_said(error), caplog.text, str(adapter.preflight("x"))):
            for part in (bad, *bad.split()):
                assert part not in text


# case: HTTP-21
async def test_a_key_that_is_set_later_counts_from_the_next_request() -> None:
    environ: dict[str, str] = {}
    async with WireServer(wire.success(), repeat_last=True) as server:
        adapter = adapter_for(server, environ)
        with pytest.raises(LlmError):
            await collect(adapter.stream(REQUEST))
        environ["DEEPSEEK_API_KEY"] = "sk-set-later"
        assert await sent_key(adapter, server) == "Bearer sk-set-later"
        environ["DEEPSEEK_API_KEY"] = "sk-changed"
        assert await sent_key(adapter, server) == "Bearer sk-changed"
        assert adapter.preflight("deepseek-flash") is None
        await adapter.aclose()


async def test_the_key_is_trimmed() -> None:
    async with WireServer([wire.success()]) as server:
        adapter = adapter_for(server, {"DEEPSEEK_API_KEY": "  sk-trimmed\r\n"})
        assert await sent_key(adapter, server) == "Bearer sk-trimmed"
        await adapter.aclose()


async def test_another_variable_may_hold_the_key() -> None:
    async with WireServer([wire.success()]) as server:
        environ = {"DEEPSEEK_API_KEY": "sk-not-this", "MY_KEY": "sk-this-one"}
        adapter = adapter_for(server, environ, api_key_env="MY_KEY")
        assert await sent_key(adapter, server) == "Bearer sk-this-one"
        await adapter.aclose()


async def test_the_stored_key_is_read_where_the_variable_is_not_set(tmp_path: Path) -> None:
    path = tmp_path / "key"
    environ: dict[str, str] = {}
    async with WireServer(wire.success(), repeat_last=True) as server:
        adapter = adapter_for(server, environ, key_file=str(path))
        with pytest.raises(LlmError, match="holds none") as caught:
            await collect(adapter.stream(REQUEST))
        assert caught.value.code == "MISSING_CREDENTIAL"
        assert "dsh login" in (caught.value.hint or "")
        path.write_text("sk-stored-key\n", encoding="utf-8")
        path.chmod(0o600)
        assert await sent_key(adapter, server) == "Bearer sk-stored-key"
        assert adapter.preflight("deepseek-flash") is None
        environ["DEEPSEEK_API_KEY"] = "sk-environment-wins"
        assert await sent_key(adapter, server) == "Bearer sk-environment-wins"
        await adapter.aclose()


async def test_a_stored_key_that_is_no_key(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_bytes(b"\xff\xfe broken")
    path.chmod(0o600)
    adapter = DeepSeekAdapter({"key_file": str(path)}, environ={})
    problem = adapter.preflight("x")
    assert problem is not None
    assert problem.code == "INVALID_CREDENTIAL"
    assert str(path) in problem.message
    unreadable = DeepSeekAdapter({"key_file": str(tmp_path)}, environ={}).preflight("x")
    assert unreadable is not None
    assert unreadable.code == "MISSING_CREDENTIAL"
    path.write_bytes(b"k" * (MAX_KEY_BYTES + 1))  # cut off, it would be a wrong key
    large = adapter.preflight("x")
    assert large is not None
    assert large.code == "MISSING_CREDENTIAL"
    assert "larger than" in large.message


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes here")
def test_a_pipe_in_the_place_of_a_key_is_refused_not_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "key"
    os.mkfifo(path)
    problem = DeepSeekAdapter({"key_file": str(path)}, environ={}).preflight("x")
    assert problem is not None
    assert problem.code == "MISSING_CREDENTIAL"
    assert "not a regular file" in problem.message


@pytest.mark.skipif(os.name != "posix", reason="file modes are a POSIX notion")
def test_a_stored_key_that_others_can_read_is_warned_of_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "key"
    path.write_text("sk-shared-key", encoding="utf-8")
    path.chmod(0o644)
    adapter = DeepSeekAdapter({"key_file": str(path)}, environ={})
    for _ in range(2):
        assert adapter.preflight("x") is None
    assert caplog.text.count("chmod 600") == 1
    assert "sk-shared-key" not in caplog.text


async def test_a_key_in_the_settings_wins_and_is_masked() -> None:
    async with WireServer([wire.success()]) as server:
        environ = {"DEEPSEEK_API_KEY": "sk-from-environment"}
        adapter = adapter_for(server, environ, api_key="sk-from-settings")
        assert secrets.contains("sk-from-settings")
        assert await sent_key(adapter, server) == "Bearer sk-from-settings"
        shown = f"{adapter.config!r} {adapter.config} {adapter.config.model_dump_json()}"
        assert "sk-from-settings" not in shown
        await adapter.aclose()


async def test_an_endpoint_without_keys_gets_none() -> None:
    async with WireServer(wire.success(), repeat_last=True) as server:
        adapter = adapter_for(server, {}, api_key_required=False)
        assert await sent_key(adapter, server) is None
        assert adapter.preflight("any") is None
        await adapter.aclose()


async def test_a_key_in_an_extra_header_is_a_secret() -> None:
    async with WireServer([wire.success()]) as server:
        headers = {"Api-Key": "header-secret-value", "Authorization": "Basic other-secret-value"}
        adapter = adapter_for(server, {}, api_key_required=False, extra_headers=headers)
        assert await sent_key(adapter, server) == "Basic other-secret-value"
        assert server.attempts[0].headers["api-key"] == "header-secret-value"
        assert secrets.contains("header-secret-value")
        assert secrets.redact("x other-secret-value") == f"x {secrets.MASK}"
        await adapter.aclose()


def everything_said(error: BaseException) -> str:
    """Return all that a log, a report or a debugger could show of a failure."""
    shown = [repr(error), str(error), error_chain(error), repr(normalize_failure(error))]
    shown.append("".join(traceback.format_exception(error)))
    seen: set[int] = set()
    pending: list[BaseException | None] = [error]
    while pending:
        current = pending.pop()
        if current is None or id(current) in seen:
            continue
        seen.add(id(current))
        shown.append(repr(vars(current)) + repr(current.args))
        frame = current.__traceback__
        while frame is not None:
            # The frames of the test itself hold the key; those of the adapter must not.
            name = frame.tb_frame.f_code.co_filename
            if "/tests/" not in name and "_pytest" not in name:
                shown.append(repr(frame.tb_frame.f_locals))
            frame = frame.tb_next
        pending += [current.__cause__, current.__context__, *getattr(current, "exceptions", ())]
    return "\n".join(shown)


ECHO = "sk-echoed-0123456789abcdef"


def echoing(status: int, content_type: str = "application/json") -> Behaviour:
    """An answer that repeats the key in every place it has."""
    body = f'{{"error":{{"message":"Incorrect key {ECHO}","type":"{ECHO}","code":"{ECHO}"}}}}'
    headers = (
        ("content-type", content_type),
        ("x-request-id", ECHO),
        ("location", f"https://elsewhere/{ECHO}"),
    )
    return Behaviour("echo", (Send(body.encode()),), status=status, headers=headers, sized=True)


# case: F-44
# case: HTTP-20
@pytest.mark.parametrize(
    "behaviour",
    [
        echoing(401),
        echoing(307),
        echoing(500, "text/html"),
        echoing(200),
        echoing(200, "text/html"),
        wire.events([{"error": {"message": f"bad key {ECHO}", "type": ECHO}}]),
        wire.malformed_json(text=f"{{ {ECHO}"),
        wire.finish_reason(ECHO),
        wire.connection_reset(),
        wire.partial_disconnect(),
        wire.partial_eof(),
        wire.stall(chunks=1),
    ],
    ids=lambda value: value.name,
)
@pytest.mark.parametrize("through_service", [False, True])
async def test_the_key_is_in_no_failure_and_no_log(
    behaviour: Behaviour, through_service: bool, caplog: pytest.LogCaptureFixture
) -> None:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    logging.getLogger().addHandler(handler)
    if behaviour.name == "echo":
        # The library logs the headers of the answer, so here the filter of the front doors helps.
        install_log_filter(handler)
        install_log_filter(caplog.handler)
    try:
        with caplog.at_level(logging.DEBUG):
            async with WireServer([behaviour]) as server, App() as app:
                config = {"base_url": server.url, "api_key": ECHO, "idle_timeout_s": 0.5}
                adapter = DeepSeekAdapter(config)
                source = adapter.stream(REQUEST)
                if through_service:
                    await app.mount(LlmService).settled()
                    await app.mount(DeepSeekPlugin, config).settled()
                    source = app[LlmService].stream(REQUEST)
                try:
                    said = repr([to_wire(chunk) for chunk in await collect(source)])
                except LlmError as error:
                    said = everything_said(error)
                    pickle.dumps((error.message, error.failure))
                await adapter.aclose()
                assert server.attempts[0].headers["authorization"] == f"Bearer {ECHO}"
    finally:
        logging.getLogger().removeHandler(handler)
        caplog.handler.filters.clear()
    assert ECHO not in said
    assert ECHO not in caplog.text
    assert ECHO not in stream.getvalue()


# case: F-44
async def test_a_refused_connection_shows_no_key() -> None:
    adapter = DeepSeekAdapter({"base_url": "http://127.0.0.1:9", "api_key": ECHO})
    with pytest.raises(LlmError) as caught:
        await collect(adapter.stream(REQUEST))
    assert ECHO not in everything_said(caught.value)
    await adapter.aclose()


# case: F-44
async def test_the_body_of_a_request_holds_no_key() -> None:
    async with WireServer([wire.success()]) as server:
        adapter = adapter_for(server, {"DEEPSEEK_API_KEY": ECHO})
        await collect(adapter.stream(REQUEST))
        assert ECHO not in repr(dict(server.attempts[0].body))
        await adapter.aclose()


async def test_a_wrong_setting_is_not_repeated() -> None:
    with pytest.raises(ValueError, match="api_key_env") as caught:
        DeepSeekConfig.model_validate({"api_key_env": [ECHO]})
    assert ECHO not in str(caught.value)
    with pytest.raises(ValueError, match="base_url") as caught:
        DeepSeekConfig(base_url=f"https://user:{ECHO}@host")
    assert ECHO not in str(caught.value)


async def test_a_failure_holds_no_frames_of_the_http_library() -> None:
    async with WireServer([wire.connection_reset()]) as server:
        adapter = adapter_for(server, {"DEEPSEEK_API_KEY": ECHO})
        with pytest.raises(LlmError) as caught:
            await collect(adapter.stream(REQUEST))
        cause = caught.value.__cause__
        while cause is not None:
            assert cause.__traceback__ is None
            cause = cause.__cause__
        await adapter.aclose()
    gc.collect()


def test_two_runs_of_a_loop_can_follow_each_other() -> None:
    async def ask() -> None:
        async with WireServer([wire.success()]) as server:
            adapter = adapter_for(server, {"DEEPSEEK_API_KEY": ECHO})
            await collect(adapter.stream(REQUEST))
            await adapter.aclose()

    for backend in ("asyncio", "trio", "asyncio"):
        anyio.run(ask, backend=backend)
