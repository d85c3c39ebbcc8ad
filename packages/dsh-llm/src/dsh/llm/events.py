"""The events of the model seam."""

from __future__ import annotations

from dataclasses import dataclass

from dsh.core import Emit, StreamWaterfall
from dsh.llm._chunks import StreamChunk
from dsh.llm._request import LlmRequest


@dataclass(frozen=True, slots=True)
class LlmStream(StreamWaterfall[StreamChunk], name="llm/stream", realm="llm"):
    """A model is called; a listener may wrap, replace or redirect the stream.

    The adapter is chosen after the last listener, by the request that reaches it, so a listener
    redirects a call by passing `next` an event with another request. Below the listeners trouble
    with an adapter has already become a finish chunk; what a listener raises reaches the caller.
    The event has no scope: a listener that stands in one hears it only with `audience="all"`, and
    tells sessions apart by `request.session_id`.
    """

    request: LlmRequest
    """What is asked."""


@dataclass(frozen=True, slots=True)
class AdaptersUpdated(Emit, name="llm/adapters-updated", realm="llm"):
    """The set of registered models changed; the service already answers by the new one."""
