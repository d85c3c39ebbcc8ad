"""Configuration of one endpoint."""

from __future__ import annotations

import re
from typing import Annotated, Any, Final, Literal, Self

from pydantic import ConfigDict, Field, SecretStr, field_validator, model_validator

from dsh.core import DshError, PluginConfig
from dsh.core import json as djson
from dsh.llm import ModelInfo, RetryPolicy
from dsh.llm_deepseek._catalog import EFFORTS, MODELS
from dsh.llm_deepseek._endpoint import check_base_url

MAX_SECONDS: Final = 2_147_483.0
"""Longest time limit."""

DEFAULT_PROVIDER: Final = "deepseek"

Seconds = Annotated[float, Field(gt=0, le=MAX_SECONDS)]
Tokens = Annotated[int, Field(gt=0)]

_OWN_FIELDS: Final = frozenset(
    {"model", "messages", "stream", "stream_options", "tools", "temperature", "stop"}
    | {"max_tokens", "max_completion_tokens", "thinking", "reasoning_effort"}
)
_OWN_HEADERS: Final = frozenset(
    {"host", "connection", "content-length", "content-type", "transfer-encoding"}
    | {"accept", "accept-encoding", "expect", "upgrade"}
)
_HEADER_NAME: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_HEADER_VALUE: Final = re.compile(r"[\x20-\x7e]*")
_RETRY: Final = RetryPolicy()
_PLAIN_EFFORTS: Final = ("minimal", "low", "medium", "high")


class _Base(PluginConfig):
    # Importing the wheel must cost next to nothing, so validators are built on first use and the
    # docstrings of fields are left to tools that read the source. A wrong value is not repeated in
    # the error, since it may be a key in the wrong place.
    model_config = ConfigDict(
        defer_build=True, use_attribute_docstrings=False, hide_input_in_errors=True
    )


class ModelEntry(_Base):
    """A model to list."""

    id: str = Field(min_length=1)
    """The name the endpoint knows it by."""
    name: str | None = None
    """The name to show a person."""
    context_window: Tokens | None = None
    """How many tokens fit into a request and its answer together."""
    max_output_tokens: Tokens | None = None
    """The most tokens one answer can have."""
    max_tokens: Tokens | None = None
    """How many tokens to ask for where the request does not say; wins over the setting of the
    same name for all models."""
    reasoning_efforts: tuple[str, ...] | None = None
    """The reasoning efforts it offers, weakest first; unset: those of the endpoint."""


class RetrySettings(_Base):
    """When failed calls may be repeated. The adapter never repeats one itself."""

    mode: Literal["normal", "always"] = "normal"
    """`normal` repeats the listed failures up to `max_retries` times, `always` every failure that
    nothing else cures, for as long as it takes."""
    max_retries: int = Field(default=_RETRY.max_retries, ge=0)
    """How often to repeat, in normal mode."""
    retryable_codes: tuple[str, ...] = _RETRY.retryable_codes
    """Which failures to repeat, in normal mode."""
    initial_delay_ms: float = Field(default=_RETRY.initial_delay_ms, ge=0)
    """Pause before the first repetition, in milliseconds; it doubles with each further one."""
    max_delay_ms: float = Field(default=_RETRY.max_delay_ms, ge=0)
    """Longest pause, in milliseconds."""
    jitter_ratio: float = Field(default=_RETRY.jitter_ratio, ge=0, le=1)
    """How far a pause may stray from its value, as a fraction of it."""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        self.policy()
        return self

    def policy(self) -> RetryPolicy:
        """Return the policy in the form the model seam reads."""
        return RetryPolicy(**dict(self))


class DeepSeekConfig(_Base):
    """One DeepSeek account, or any other server that speaks chat completions."""

    provider: str = Field(default=DEFAULT_PROVIDER, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    """Name under which the endpoint is registered, the part of a model name before the slash."""
    base_url: str | None = None
    """URL in front of `/chat/completions`; unset: `DEEPSEEK_BASE_URL`, otherwise DeepSeek."""
    api_key: SecretStr | None = None
    """The key itself, for programs that have it; wins over both other places."""
    api_key_env: str = Field(default="DEEPSEEK_API_KEY", min_length=1)
    """Environment variable that holds the key, read for every request."""
    key_file: str | None = None
    """File that holds the key and nothing else, read where the variable is not set."""
    api_key_required: bool = True
    """Whether a request without a key is an error; false sends it without one."""
    thinking: Literal["enabled", "disabled"] | None = None
    """Whether the model thinks before it answers; unset: as the provider decides."""
    reasoning_effort: str | None = None
    """How hard to think where a request does not say; `off` switches thinking off."""
    reasoning_efforts: tuple[str, ...] | None = None
    """The efforts the endpoint offers; unset: off, low, high and max, or minimal, low, medium and
    high where `thinking_parameter` is false."""
    thinking_parameter: bool = True
    """Whether the endpoint knows the field `thinking`. Where it is false an effort is sent as
    `reasoning_effort` alone, as the other providers have it."""
    reasoning_passback: bool = True
    """Whether the model's reasoning is sent back with the conversation. DeepSeek demands it on
    turns with tool calls; an endpoint that refuses the unknown field needs false."""
    max_tokens: Tokens | None = None
    """The most tokens of an answer where a request does not say; unset: as the provider decides."""
    max_tokens_parameter: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    """The name of the field that carries it."""
    models: tuple[ModelEntry, ...] | None = None
    """Models to list; unset: DeepSeek's for the provider `deepseek`, otherwise none. A model that
    is not listed can be called all the same."""
    idle_timeout_s: Seconds = 300.0
    """Longest wait for any byte of an answer, in seconds."""
    progress_timeout_s: Seconds = 600.0
    """Longest wait for a payload, in seconds; comments that keep the connection alive are none."""
    connect_timeout_s: Seconds = 30.0
    """Longest wait for a connection, in seconds."""
    ca_file: str | None = None
    """PEM file of the certificate authorities to trust instead of the usual ones; unset:
    `SSL_CERT_FILE` or `SSL_CERT_DIR`, otherwise those of the system."""
    extra_headers: dict[str, str] = Field(default_factory=dict[str, str])
    """Headers to send with every request."""
    extra_body: dict[str, Any] = Field(default_factory=dict[str, Any])
    """Fields to add to the body of every request."""
    retry: RetrySettings = Field(default_factory=lambda: RetrySettings())
    """When whoever repeats failed calls may do so."""

    @field_validator("base_url")
    @classmethod
    def _check_base_url(cls, value: str | None) -> str | None:
        try:
            return None if value is None else check_base_url(value, "base_url")
        except DshError as error:
            raise ValueError(str(error)) from None

    @field_validator("extra_body")
    @classmethod
    def _check_body(cls, value: dict[str, Any]) -> dict[str, Any]:
        if taken := sorted(_OWN_FIELDS & value.keys()):
            raise ValueError(f"{', '.join(taken)} cannot be set here")
        djson.check(value, where="extra_body")
        return value

    @field_validator("extra_headers")
    @classmethod
    def _check_headers(cls, value: dict[str, str]) -> dict[str, str]:
        for name, text in value.items():
            if name.lower() in _OWN_HEADERS:
                raise ValueError(f"the header {name} cannot be set here")
            if not _HEADER_NAME.fullmatch(name) or not _HEADER_VALUE.fullmatch(text):
                raise ValueError(f"{name!r} is no header name, or its value is not printable ASCII")
        return value

    @model_validator(mode="after")
    def _check_thinking(self) -> Self:
        if self.thinking is not None and not self.thinking_parameter:
            raise ValueError("thinking needs an endpoint with thinking_parameter: true")
        if self.reasoning_effort is not None and self.reasoning_effort not in self.efforts:
            raise ValueError(f"reasoning_effort is one of {', '.join(self.efforts)}")
        return self

    @property
    def efforts(self) -> tuple[str, ...]:
        """The reasoning efforts a request may ask for."""
        if self.thinking == "disabled":
            return ("off",)
        if self.reasoning_efforts is not None:
            return self.reasoning_efforts
        return EFFORTS if self.thinking_parameter else _PLAIN_EFFORTS

    def catalogue(self) -> tuple[ModelInfo, ...]:
        """Return the models to list."""
        if self.models is None:
            if self.provider != DEFAULT_PROVIDER:
                return ()
            return tuple(
                ModelInfo(
                    model.id,
                    model.name,
                    model.context_window,
                    model.max_output_tokens,
                    self.efforts,
                    model.input_modalities,
                )
                for model in MODELS
            )
        return tuple(
            ModelInfo(
                entry.id,
                entry.name,
                entry.context_window,
                entry.max_output_tokens,
                self.efforts if entry.reasoning_efforts is None else entry.reasoning_efforts,
            )
            for entry in self.models
        )

    def default_max_tokens(self, model: str) -> int | None:
        """Return how many tokens to ask for where a request does not say."""
        entry = next((entry for entry in self.models or () if entry.id == model), None)
        return self.max_tokens if entry is None or entry.max_tokens is None else entry.max_tokens
