"""Checks that streams obey the protocol, and that the model registry can be read."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

from dsh.core import Context, Event, NextStream
from dsh.invariants._service import Reporter
from dsh.llm import LlmService, StreamChunk, StreamGrammar
from dsh.llm.events import AdaptersUpdated, LlmStream

__all__ = ["install"]


def install(ctx: Context, report: Reporter) -> None:
    """Look at every chunk of every stream, outermost."""
    llm = ctx[LlmService]

    async def look(
        event: LlmStream, next: NextStream[StreamChunk]
    ) -> AsyncGenerator[StreamChunk, None]:
        grammar = StreamGrammar()
        async with aclosing(next()) as chunks:
            async for chunk in chunks:
                violation = grammar.push(chunk)
                if violation is not None:
                    report.fail(f"{violation.rule}: {violation.message}")
                yield chunk
        # what raises ends the stream by itself and does not come here
        violation = grammar.close()
        if violation is not None:
            report.fail(f"{violation.rule}: {violation.message}")

    def on_dispatch(event: Event, key: object, mode: str) -> None:
        if isinstance(event, AdaptersUpdated):
            _check_registry(llm, report)

    ctx.on(LlmStream, look, prepend=True)
    ctx.app.on_dispatch(ctx, on_dispatch)


def _check_registry(llm: LlmService, report: Reporter) -> None:
    providers = set(llm.providers())
    for model in llm.models():
        report.check(
            model.provider in providers,
            f"model {model.id!r} is listed for {model.provider!r}, which is not registered",
        )
