"""What a provider implements, and what it says about its models."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass

from dsh.llm._chunks import StreamChunk
from dsh.llm._request import LlmRequest
from dsh.llm._retry import RetryPolicy
from dsh.llm._wire_value import WireValue


@dataclass(frozen=True, slots=True)
class ModelInfo(WireValue):
    """What an adapter says about a model. Advisory: an undeclared model can be called too."""

    id: str
    """The id the provider uses."""
    name: str | None = None
    """The name to show a person; None shows the id."""
    context_window: int | None = None
    """How many tokens fit into one request and its answer together."""
    max_output_tokens: int | None = None
    """The most tokens one answer can have."""
    reasoning_efforts: tuple[str, ...] = ()
    """The values `reasoning_effort` may take, weakest first; empty leaves them unchecked."""
    input_modalities: tuple[str, ...] = ("text",)
    """What the model reads."""
    provider: str = ""
    """The provider it is registered under. Filled in by the service."""

    @property
    def qualified(self) -> str:
        """The name that always resolves to this model, `provider/id`."""
        return f"{self.provider}/{self.id}"


@dataclass(frozen=True, slots=True)
class Problem:
    """Why a model cannot be called as things stand, found without calling it."""

    message: str
    """What is wrong."""
    code: str
    """A stable code, one of those of `LlmError`."""
    hint: str | None = None
    """What to do about it."""


@dataclass(frozen=True, slots=True)
class CallDefaults:
    """What the user configured for a model, to be used where a request says nothing."""

    max_tokens: int | None = None
    """The most tokens to write."""
    reasoning_effort: str | None = None
    """How hard to think."""


class LlmAdapter(ABC):
    """Speaks to one provider. One instance serves any number of concurrent requests."""

    @abstractmethod
    def stream(self, request: LlmRequest) -> AsyncGenerator[StreamChunk, None]:
        """Call the model once and yield the answer as it arrives.

        The stream obeys the protocol: a block is opened before and closed after its deltas, usage
        comes once and before the finish, the finish comes once and last. It fails by raising
        (preferably an `LlmError`) or by yielding a finish of kind `error` or `aborted`. It makes
        one attempt: retrying is not the adapter's business. It reacts to `request.signal`
        promptly, also while it waits for the next byte, and never yields inside a cancel scope
        or a task group.

        Args:
            request: What to ask. `request.model` is the id the provider uses, without a provider
                in front; configured defaults are already filled in. Read only.
        """

    def render(self, request: LlmRequest) -> bytes | None:
        """Return the body that `stream` would send for a request; no I/O.

        An adapter with a wire form of its own renders with the code that sends, so that the two
        cannot differ.

        Args:
            request: As `stream` gets it.

        Returns:
            The bytes; None if this adapter has no wire form.

        Raises:
            LlmError: The request cannot be sent like this.
        """
        return None

    def preflight(self, model: str) -> Problem | None:
        """Say what keeps `model` from being called, such as a missing key; sends nothing.

        It may read local files, and is called on the event loop.

        Args:
            model: The id the provider uses.
        """
        return None

    def models(self) -> Sequence[ModelInfo]:
        """List the models the adapter knows, best first."""
        return ()

    def call_defaults(self, model: str) -> CallDefaults:
        """Say what the user configured for `model`; used where a request says nothing.

        Args:
            model: The id the provider uses.
        """
        return CallDefaults()

    def retry_policy(self, model: str) -> RetryPolicy:
        """Say how failed calls of `model` may be retried by whoever retries.

        Args:
            model: The id the provider uses.
        """
        return RetryPolicy()
