"""A call that is settled before it is made."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from typing import TypeAlias

from dsh.llm._catalog import Catalog, ResolvedModel
from dsh.llm._chunks import StreamChunk
from dsh.llm._request import LlmCallConfig, LlmRequest
from dsh.llm._retry import RetryPolicy
from dsh.llm.errors import LlmError

Dispatch: TypeAlias = Callable[
    [LlmRequest, Catalog, ResolvedModel], AsyncGenerator[StreamChunk, None]
]


class PreparedCall:
    """One call whose adapter, configuration and retry policy no longer change.

    A caller that logs what it is going to ask prepares the call, logs `config`, and then streams
    exactly that. It holds for one call; registrations that change in between do not touch it.
    """

    def __init__(
        self,
        config: LlmCallConfig,
        route: ResolvedModel,
        defaults: frozenset[str],
        catalog: Catalog,
        dispatch: Dispatch,
    ) -> None:
        self._config = config
        self._route = route
        self._defaults = defaults
        self._catalog = catalog
        self._dispatch = dispatch
        self._retry = route.adapter.retry_policy(route.model)
        self._used = False

    @property
    def config(self) -> LlmCallConfig:
        """The configuration to log and to send: `provider/model`, defaults filled in."""
        return self._config

    @property
    def model(self) -> ResolvedModel:
        """The model, and the adapter that will serve it."""
        return self._route

    @property
    def retry(self) -> RetryPolicy:
        """How the call may be retried if it fails."""
        return self._retry

    @property
    def defaults(self) -> frozenset[str]:
        """The fields of `config` that the adapter's configuration supplied."""
        return self._defaults

    def stream(self, request: LlmRequest) -> AsyncGenerator[StreamChunk, None]:
        """Make the call; as `LlmService.stream`, with the adapter that was settled.

        A listener that redirects the request to another model is served by that model's adapter.

        Args:
            request: What to ask; its configuration is `config`.

        Raises:
            LlmError: INVALID_PREPARED_CALL, if the call was made already or the request's
                configuration is another one.
        """
        if self._used:
            raise LlmError(
                f"the prepared call of {self._config.model!r} was made already",
                code=LlmError.INVALID_PREPARED_CALL,
                hint="prepare a new one for every call",
            )
        if request.config != self._config:
            raise LlmError(
                f"the request's configuration {request.config!r} is not the prepared one, "
                f"{self._config!r}",
                code=LlmError.INVALID_PREPARED_CALL,
                hint="build the request from the prepared call's config",
            )
        self._used = True
        return self._dispatch(request, self._catalog, self._route)
