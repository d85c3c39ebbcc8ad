"""What goes wrong around a model call, with stable codes."""

from __future__ import annotations

from typing import ClassVar

from dsh.core import DshError
from dsh.llm._chunks import FinishReason, LlmFailure


class LlmError(DshError):
    """A model call, a registration or a look-up failed.

    An adapter raises it to say more than a plain exception could; the service turns it into the
    finish of the stream. The codes are attributes of this class; an adapter may use others, such
    as `HTTP_418`.
    """

    NO_ADAPTER: ClassVar[str] = "NO_ADAPTER"
    """No registered adapter serves the model."""
    AMBIGUOUS_MODEL: ClassVar[str] = "AMBIGUOUS_MODEL"
    """More than one provider could be meant."""
    DUPLICATE_ADAPTER: ClassVar[str] = "DUPLICATE_ADAPTER"
    """The provider's model is already registered."""
    INVALID_ADAPTER: ClassVar[str] = "INVALID_ADAPTER"
    """A registration names no provider or no model, or is not of an adapter."""
    REGISTRATION_DISPOSED: ClassVar[str] = "REGISTRATION_DISPOSED"
    """A registration is used after its end."""
    INVALID_CATALOG: ClassVar[str] = "INVALID_CATALOG"
    """An adapter's list of models is malformed or lists an id twice."""
    INVALID_MODEL_INFO: ClassVar[str] = "INVALID_MODEL_INFO"
    """A model's description is malformed."""
    INVALID_CONTEXT: ClassVar[str] = "INVALID_CONTEXT"
    """A context window is not a positive integer."""
    INVALID_MAX_TOKENS: ClassVar[str] = "INVALID_MAX_TOKENS"
    """A limit of output tokens is not a positive integer."""
    INVALID_REASONING: ClassVar[str] = "INVALID_REASONING"
    """A model's reasoning efforts are malformed."""
    INVALID_PREPARED_CALL: ClassVar[str] = "INVALID_PREPARED_CALL"
    """A prepared call is used twice, or with another configuration."""
    INVALID_WIRE: ClassVar[str] = "INVALID_WIRE"
    """A value is not the wire form of what it should be."""
    MISSING_CREDENTIAL: ClassVar[str] = "MISSING_CREDENTIAL"
    """There is no key for the provider."""
    INVALID_CREDENTIAL: ClassVar[str] = "INVALID_CREDENTIAL"
    """The key has characters no header can carry."""
    AUTH: ClassVar[str] = "AUTH"
    """The provider refused the key."""
    QUOTA: ClassVar[str] = "QUOTA"
    """The account's balance or quota is used up."""
    RATE_LIMIT: ClassVar[str] = "RATE_LIMIT"
    """Too many requests for now."""
    CONTEXT_WINDOW_EXCEEDED: ClassVar[str] = "CONTEXT_WINDOW_EXCEEDED"
    """The conversation does not fit into the model's context."""
    INVALID_REQUEST: ClassVar[str] = "INVALID_REQUEST"
    """The provider refused the request as malformed or too large."""
    SERVER: ClassVar[str] = "SERVER"
    """The provider failed."""
    TRANSPORT: ClassVar[str] = "TRANSPORT"
    """The connection could not be made, or broke."""
    TIMEOUT: ClassVar[str] = "TIMEOUT"
    """The provider stayed silent for too long."""
    ABORTED: ClassVar[str] = "ABORTED"
    """The caller aborted the request."""
    STREAM_CLOSED: ClassVar[str] = "STREAM_CLOSED"
    """The stream ended before the answer did."""
    MALFORMED_RESPONSE: ClassVar[str] = "MALFORMED_RESPONSE"
    """The answer breaks the protocol."""
    EMPTY_RESPONSE: ClassVar[str] = "EMPTY_RESPONSE"
    """The answer has no content at all."""
    UNSUPPORTED_CONTENT: ClassVar[str] = "UNSUPPORTED_CONTENT"
    """The provider cannot take a block of the conversation."""
    UNSUPPORTED_REASONING_EFFORT: ClassVar[str] = "UNSUPPORTED_REASONING_EFFORT"
    """The model does not offer the reasoning effort."""
    UNSUPPORTED_OPTION: ClassVar[str] = "UNSUPPORTED_OPTION"
    """The adapter cannot pass an option on."""
    UNKNOWN_MODEL: ClassVar[str] = "UNKNOWN_MODEL"
    """The provider has no such model."""
    INVALID_REPLAY_STATE: ClassVar[str] = "INVALID_REPLAY_STATE"
    """An adapter cannot read its own replay state."""
    UNKNOWN: ClassVar[str] = "UNKNOWN"
    """An exception that says nothing of itself."""

    def __init__(
        self,
        message: str,
        *,
        code: str = "UNKNOWN",
        hint: str | None = None,
        failure: LlmFailure | None = None,
    ) -> None:
        """Make the error.

        Args:
            message: What was wrong, and where. Never contains a key.
            code: A stable code.
            hint: What to do about it.
            failure: More facts, such as the HTTP status.
        """
        super().__init__(message, code=code, hint=hint)
        self.failure = failure

    @classmethod
    def from_finish(cls, reason: FinishReason) -> LlmError:
        """Make the error that a finish of kind `error` or `aborted` stands for."""
        return cls(
            reason.message or f"the answer ended with {reason.kind!r}",
            code=reason.code or (cls.ABORTED if reason.kind == "aborted" else cls.UNKNOWN),
            failure=reason.failure,
        )
