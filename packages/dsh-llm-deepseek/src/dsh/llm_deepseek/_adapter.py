"""The adapter: one request to a chat-completions endpoint, one stream of chunks."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from dsh.core import secrets, version_of
from dsh.llm import (
    CallDefaults,
    LlmAdapter,
    LlmError,
    LlmRequest,
    ModelInfo,
    Problem,
    RetryPolicy,
    StreamChunk,
)
from dsh.llm_deepseek._answer import Answer
from dsh.llm_deepseek._call import Call
from dsh.llm_deepseek._config import DeepSeekConfig
from dsh.llm_deepseek._credentials import KeySource
from dsh.llm_deepseek._endpoint import EndpointResolver
from dsh.llm_deepseek._limits import Limits, Watch
from dsh.llm_deepseek._provider_errors import aborted
from dsh.llm_deepseek._serialize import Serializer
from dsh.llm_deepseek._wire import EVENT_STREAM

if TYPE_CHECKING:
    import httpcore

    from dsh.llm_deepseek._http._clients import ClientPool

_SENSITIVE: Final = ("key", "token", "auth", "secret", "cookie")


class DeepSeekAdapter(LlmAdapter):
    """Speaks to DeepSeek, or to any other server with the same interface.

    One instance serves any number of concurrent requests in one event loop. It opens no connection
    and reads no key before the first request; `aclose` closes the connections that rest.
    """

    def __init__(
        self,
        config: DeepSeekConfig | Mapping[str, Any] | None = None,
        *,
        environ: Mapping[str, str] | None = None,
        network: httpcore.AsyncNetworkBackend | None = None,
    ) -> None:
        """Make the adapter.

        Args:
            config: The settings, or the fields of them; None for the defaults.
            environ: Where variables are read, the process environment if None.
            network: Opens connections, for tests; None for real ones.

        Raises:
            pydantic.ValidationError: The settings do not fit.
        """
        source = os.environ if environ is None else environ
        self._keys = KeySource(source)
        self._endpoints = EndpointResolver(source)
        self._network = network
        self._pool: ClientPool | None = None
        self._common: Mapping[str, str] | None = None
        self.configure({} if config is None else config)

    @property
    def config(self) -> DeepSeekConfig:
        """The settings that the next request will use."""
        return self._config

    def configure(self, config: DeepSeekConfig | Mapping[str, Any]) -> None:
        """Replace the settings as a whole; requests that run keep theirs.

        Args:
            config: The new settings, or the fields of them.

        Raises:
            pydantic.ValidationError: They do not fit; the previous ones stay in force.
        """
        if not isinstance(config, DeepSeekConfig):
            config = DeepSeekConfig.model_validate(config)
        for name, value in config.extra_headers.items():
            if any(word in name.lower() for word in _SENSITIVE):
                secrets.add(value)
                secrets.add(value.rpartition(" ")[2])
        if config.api_key is not None:
            secrets.add(config.api_key.get_secret_value())
        self._serializer = Serializer(config)
        self._common = None
        self._config = config

    async def stream(self, request: LlmRequest) -> AsyncGenerator[StreamChunk, None]:
        """Ask the model once and yield the answer as it arrives.

        What the provider says about the answer, also that it failed, arrives as the finish.

        Args:
            request: What to ask; `request.model` is the name the endpoint knows.

        Raises:
            LlmError: There is no answer, or it broke off. `failure` holds the HTTP status, the
                wait the provider asks for and its name for the request, where it gave them.
        """
        # Imported here, so that a program which never asks a model never loads the HTTP library.
        from dsh.llm_deepseek._http._exchange import Exchange

        if request.signal is not None and request.signal.aborted:
            raise aborted()
        call = self._call(request)
        pool = await self._current_pool()
        watch = Watch(call.limits, request.signal)
        async with Exchange(pool, call, watch) as exchange:
            data = await exchange.accept()
            answer = Answer(call.provider, exchange.request_id, watch.progressed)
            while data:
                for chunk in answer.feed(data):
                    if watch.aborted:
                        raise aborted()
                    yield chunk
                if answer.over:
                    break
                data = await exchange.read()
            exchange.complete = answer.complete
            for chunk in answer.end():
                yield chunk

    def render(self, request: LlmRequest) -> bytes:
        """Return the body that is sent for a request, with the settings as they are now.

        Args:
            request: What to ask; `request.model` is the name the endpoint knows.

        Returns:
            The body, UTF-8 JSON; neither key nor headers are part of it.

        Raises:
            LlmError: `UNSUPPORTED_REASONING_EFFORT` or `UNSUPPORTED_CONTENT`.
        """
        return self._serializer.body(request)

    def preflight(self, model: str) -> Problem | None:
        """Say whether the settings and the key are usable; sends nothing.

        A key file, where one is configured and the variable is not set, is read.

        Args:
            model: The name of the model; any name can be called.
        """
        try:
            self._endpoints.resolve(self._config)
            self._keys.find(self._config, self._config.provider)
        except LlmError as error:
            return Problem(error.message, error.code, error.hint)
        return None

    def models(self) -> Sequence[ModelInfo]:
        """List the models of the settings."""
        return self._config.catalogue()

    def call_defaults(self, model: str) -> CallDefaults:
        """Return what the settings say about `model`.

        Args:
            model: The name the endpoint knows.
        """
        config = self._config
        return CallDefaults(config.default_max_tokens(model), config.reasoning_effort)

    def retry_policy(self, model: str) -> RetryPolicy:
        """Return the retry policy of the settings.

        Args:
            model: The name the endpoint knows.
        """
        return self._config.retry.policy()

    async def aclose(self) -> None:
        """Close the connections that rest; those in use close with their requests."""
        pool, self._pool = self._pool, None
        if pool is not None:
            await pool.aclose()

    def _call(self, request: LlmRequest) -> Call:
        """Gather what one request needs; settings that change later do not reach it."""
        config = self._config
        return Call(
            provider=config.provider,
            body=self.render(request),
            key=self._keys.find(config, config.provider),
            key_name=config.api_key_env,
            headers=self._headers(),
            limits=Limits(
                config.idle_timeout_s, config.progress_timeout_s, config.connect_timeout_s
            ),
        )

    def _headers(self) -> Mapping[str, str]:
        """Return the headers of every request but the one that carries the key."""
        if self._common is None:
            extra = self._config.extra_headers
            self._common = {
                "accept": EVENT_STREAM,
                "accept-encoding": "identity",
                "content-type": "application/json",
                "user-agent": f"dsh/{version_of('dsh-llm-deepseek') or '0'}",
                **{name.lower(): value for name, value in extra.items()},
            }
        return self._common

    async def _current_pool(self) -> ClientPool:
        """Return the clients of the endpoint as it is now."""
        from dsh.llm_deepseek._http._clients import ClientPool

        endpoint = self._endpoints.resolve(self._config)
        pool = self._pool
        if pool is not None and pool.endpoint == endpoint:
            return pool
        new = self._pool = ClientPool(endpoint, self._network)
        if pool is not None:
            await pool.aclose()
        return new
