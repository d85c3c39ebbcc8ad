"""Checks that what the model sees is what the log says."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

from dsh.core import Context, NextStream
from dsh.invariants._immutable import mutable_part
from dsh.invariants._service import Reporter
from dsh.llm import LlmRequest, StreamChunk
from dsh.llm.events import LlmStream
from dsh.session import LiveSessions, rebuild_request
from dsh.session.errors import RebuildError

__all__ = ["check_request", "install"]


def check_request(request: LlmRequest, store: LiveSessions, report: Reporter) -> None:
    """Compare a request of the agent loop with what its session's log leads to.

    Requests of other makers and requests for sessions that are not live are not looked at.

    Raises:
        InvariantError: The request names no session, can still change, or differs from the log.
    """
    if not request.loop:
        return
    if request.session_id is None:
        report.fail("a request of the agent loop names no session")
    session = store.get(request.session_id)
    if session is None:
        return
    part = mutable_part(request.messages, "messages") or mutable_part(request.tools, "tools")
    report.check(part is None, f"a request of the agent loop can still change: {part}")
    turn, step = session.turn_open, session.step_open
    if turn is None or step is None:
        report.fail(f"a request for session {session.id!r} is made outside of a step")
    try:
        expected = rebuild_request(session.events, turn, step)
    except RebuildError:
        report.fail(f"a request for session {session.id!r} is made before its header was logged")
    for field in (
        "model",
        "messages",
        "system",
        "tools",
        "temperature",
        "max_tokens",
        "stop",
        "reasoning_effort",
    ):
        report.check(
            getattr(request, field) == getattr(expected, field),
            f"{field} of the request for session {session.id!r} differs from what the log says",
        )


def install(ctx: Context, report: Reporter) -> None:
    """Look at every request before any other listener sees it."""
    store = ctx[LiveSessions]

    async def look(
        event: LlmStream, next: NextStream[StreamChunk]
    ) -> AsyncGenerator[StreamChunk, None]:
        check_request(event.request, store, report)
        async with aclosing(next()) as chunks:
            async for chunk in chunks:
                yield chunk

    ctx.on(LlmStream, look, prepend=True)
