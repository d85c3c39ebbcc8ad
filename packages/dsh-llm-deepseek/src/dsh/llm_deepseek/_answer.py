"""One streamed answer: bytes in, chunks out."""

from __future__ import annotations

from collections.abc import Callable

from dsh.llm import LlmError, StreamChunk
from dsh.llm_deepseek._provider_errors import facts_of
from dsh.llm_deepseek._sse import MAX_EVENT_BYTES, SseDecoder
from dsh.llm_deepseek._translate import Translator


class Answer:
    """Decodes and translates one answer, a network read at a time."""

    __slots__ = ("_decoder", "_progressed", "_provider", "_request_id", "_translator")

    def __init__(
        self, provider: str, request_id: str | None, progressed: Callable[[], object]
    ) -> None:
        """Start an answer.

        Args:
            provider: Who answers, for messages.
            request_id: The provider's name for the request.
            progressed: Called for every read that completes a payload.
        """
        self._provider = provider
        self._request_id = request_id
        self._progressed = progressed
        self._decoder = SseDecoder()
        self._translator = Translator(provider, request_id)

    @property
    def complete(self) -> bool:
        """Whether the terminal event has been read."""
        return self._decoder.done

    @property
    def over(self) -> bool:
        """Whether reading on is pointless."""
        decoder = self._decoder
        return decoder.done or decoder.overflow or self._translator.failure is not None

    def feed(self, data: bytes) -> list[StreamChunk]:
        """Return the chunks of the events that `data` completes."""
        payloads = self._decoder.feed(data)
        if not payloads:
            return []
        self._progressed()
        return self._translator.push(payloads)

    def end(self) -> list[StreamChunk]:
        """Return the chunks that close the answer.

        Raises:
            LlmError: `STREAM_CLOSED` or `MALFORMED_RESPONSE`, the answer cannot be closed.
        """
        if self._translator.failure is None:
            if self._decoder.overflow:
                raise self._error(
                    f"{self._provider} sent an event of more than {MAX_EVENT_BYTES} bytes",
                    LlmError.MALFORMED_RESPONSE,
                )
            if not self._decoder.done:
                raise self._error(
                    f"{self._provider} ended the stream before the answer was complete",
                    LlmError.STREAM_CLOSED,
                )
        return self._translator.end()

    def _error(self, message: str, code: str) -> LlmError:
        return LlmError(message, code=code, failure=facts_of(self._request_id))
