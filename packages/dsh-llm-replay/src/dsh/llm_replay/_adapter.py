"""Adapters that play answers from a script instead of asking a provider."""

from __future__ import annotations

import inspect
import json
from abc import abstractmethod
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace

import anyio
import anyio.lowlevel

from dsh.llm import CancelSignal, Finish, LlmAdapter, LlmRequest, ModelInfo, StreamChunk, to_wire
from dsh.llm.errors import LlmError
from dsh.llm_replay._calls import CallOutcome, ModelCall
from dsh.llm_replay._entries import Answer, Entry, EntryFunction, Hang, Held, Throw
from dsh.llm_replay._placeholders import fill
from dsh.llm_replay.errors import NotConsumedError, ReplayError
from dsh.llm_replay.server import Gate

SCRIPTED = ModelInfo("scripted", name="Scripted model", context_window=128_000)
"""The model scripted adapters declare unless told otherwise."""


class ScriptPlayer(LlmAdapter):
    """What the scripted and the replaying adapter share: playing entries and keeping records.

    Args:
        models: The models to declare.
        pace_ms: Milliseconds to wait before each chunk.
        placeholders: Whether `{{fromRequest:<regex>}}` is replaced in scripted strings.
        checkpoints: Whether other tasks get a turn before each chunk; off for benchmarks.
        auxiliary: Answers for requests with a `purpose`, by purpose; they do not consume the
            script.
    """

    def __init__(
        self,
        *,
        models: Sequence[ModelInfo] = (SCRIPTED,),
        pace_ms: float = 0,
        placeholders: bool = True,
        checkpoints: bool = True,
        auxiliary: Mapping[str, Entry] | None = None,
    ) -> None:
        self._models = tuple(models)
        self._pace = pace_ms / 1000
        self._placeholders = placeholders
        self._checkpoints = checkpoints
        self._auxiliary = dict(auxiliary or {})
        self._calls: list[ModelCall] = []
        self._changed = anyio.Event()

    @property
    def calls(self) -> Sequence[ModelCall]:
        """Every call so far, oldest first."""
        return self._calls

    @property
    def requests(self) -> Sequence[LlmRequest]:
        """The request of every call so far, oldest first."""
        return [call.request for call in self._calls]

    async def call(self, number: int = 1) -> ModelCall:
        """Wait until the model was called for the `number`-th time, counted from 1."""
        while len(self._calls) < number:
            await self._changed.wait()
        return self._calls[number - 1]

    async def started(self, number: int = 1) -> ModelCall:
        """Wait until the consumer has dealt with the first chunk of the `number`-th call."""
        call = await self.call(number)
        await call.started()
        return call

    async def waiting(self, number: int = 1) -> ModelCall:
        """Wait until the `number`-th call hangs or stands at a gate."""
        call = await self.call(number)
        await call.waiting()
        return call

    def models(self) -> Sequence[ModelInfo]:
        """List the declared models."""
        return self._models

    def render(self, request: LlmRequest) -> bytes:
        """Return the request as JSON, in the form of `dsh.llm.to_wire`.

        Which session asks, and whether a loop does, is not part of it: equal questions give equal
        bytes.

        Args:
            request: What would be asked.
        """
        asked = replace(request, session_id=None, loop=False)
        text = json.dumps(to_wire(asked), ensure_ascii=False, separators=(",", ":"))
        return text.encode()

    @abstractmethod
    def take(self, request: LlmRequest) -> Entry:
        """Consume the entry that answers a request.

        Raises:
            ReplayError: If there is none.
        """

    async def stream(self, request: LlmRequest) -> AsyncGenerator[StreamChunk, None]:
        """Play the next entry.

        The signal is looked at before every chunk, and waiting ends promptly when it aborts.

        Raises:
            LlmError: What the entry says; code `ABORTED` after an abort.
            ReplayError: If the script has no entry for the call.
        """
        call = ModelCall(len(self._calls) + 1, request)
        self._calls.append(call)
        self._changed.set()
        self._changed = anyio.Event()
        outcome: CallOutcome = "closed"
        failure: Exception | None = None
        try:
            await anyio.lowlevel.checkpoint()
            answer = await self._answer(request)
            chunks, stop_after = _plan(answer)
            for position, chunk in enumerate(chunks):
                if position == stop_after:
                    await self._wait(answer, call)
                await self._breathe(request.signal)
                _check(request.signal)
                call.chunks_sent += 1
                # A consumer may stop reading at the finish.
                outcome = "completed" if isinstance(chunk, Finish) else "closed"
                yield fill(chunk, request) if self._placeholders else chunk
                call.note_started()
            await self._after(answer, call, stop_after == len(chunks))
            outcome = "completed"
        except Exception as error:
            failure = error
            outcome = "aborted" if _is_abort(error) else "raised"
            raise
        finally:
            call.finish(outcome, failure)

    async def _breathe(self, signal: CancelSignal | None) -> None:
        if self._pace:
            await _sleep(self._pace, signal)
        elif self._checkpoints:
            await anyio.lowlevel.checkpoint()

    async def _answer(self, request: LlmRequest) -> Answer:
        _check(request.signal)
        entry = self._auxiliary.get(request.purpose or "") or self.take(request)
        if not callable(entry):
            return entry
        answer = entry(request)
        if inspect.isawaitable(answer):
            answer = await answer
        return answer

    async def _after(self, answer: Answer, call: ModelCall, wait: bool) -> None:
        """Do what comes after the last chunk."""
        if wait or isinstance(answer, Hang):
            await self._wait(answer, call)
        if isinstance(answer, Throw):
            _check(call.request.signal)
            message = fill(answer.message, call.request) if self._placeholders else answer.message
            raise LlmError(message, code=answer.code, failure=answer.failure)

    async def _wait(self, answer: Answer, call: ModelCall) -> None:
        signal = call.request.signal
        if isinstance(answer, Hang) and answer.ready_file is not None:
            await anyio.Path(answer.ready_file).touch()
        call.note_waiting()
        if isinstance(answer, Held):
            await _pass(answer.gate, signal)
        elif signal is None:
            await anyio.sleep_forever()
        else:
            await signal.wait()
        _check(signal)


class ScriptedAdapter(ScriptPlayer):
    """A model that plays a script: every call consumes the next entry.

    An entry is a sequence of chunks (see the builders), a function of the request that returns
    one, or `Throw`, `Hang` and `Held`. A function in place of the whole script answers every call.

    Args:
        script: The entries, or a function for all calls.
        repeat_last: Whether the last entry answers every call after the end.
        models: The models to declare.
        pace_ms: Milliseconds to wait before each chunk.
        placeholders: Whether `{{fromRequest:<regex>}}` is replaced in scripted strings.
        checkpoints: Whether other tasks get a turn before each chunk; off for benchmarks.
        auxiliary: Answers for requests with a `purpose`, by purpose; they do not consume the
            script.
    """

    def __init__(
        self,
        script: Iterable[Entry] | EntryFunction = (),
        *,
        repeat_last: bool = False,
        models: Sequence[ModelInfo] = (SCRIPTED,),
        pace_ms: float = 0,
        placeholders: bool = True,
        checkpoints: bool = True,
        auxiliary: Mapping[str, Entry] | None = None,
    ) -> None:
        super().__init__(
            models=models,
            pace_ms=pace_ms,
            placeholders=placeholders,
            checkpoints=checkpoints,
            auxiliary=auxiliary,
        )
        self._script: list[Entry] = [script] if callable(script) else list(script)
        self._repeat_last = repeat_last or callable(script)
        self._position = 0

    @property
    def remaining(self) -> int:
        """Entries that no call has consumed."""
        return len(self._script) - self._position

    def append(self, *entries: Entry) -> None:
        """Add entries at the end of the script."""
        self._script.extend(entries)

    def take(self, request: LlmRequest) -> Entry:
        """Consume the next entry.

        Raises:
            ReplayError: Code `SCRIPT_EXHAUSTED`, if none is left.
        """
        if self._position < len(self._script):
            self._position += 1
            return self._script[self._position - 1]
        if self._repeat_last and self._script:
            return self._script[-1]
        raise ReplayError(
            f"the script has {len(self._script)} entries and the model was called "
            f"for the {len(self._calls)}. time",
            code=ReplayError.SCRIPT_EXHAUSTED,
            hint="append an entry, or pass repeat_last=True",
        )

    def assert_consumed(self) -> None:
        """Check that calls have consumed the whole script.

        Raises:
            NotConsumedError: If entries are left over.
        """
        if self.remaining and not (self._repeat_last and self._position):
            raise NotConsumedError(
                f"{self.remaining} of {len(self._script)} script entries were never asked for"
            )


def _plan(answer: Answer) -> tuple[Sequence[StreamChunk], int]:
    """Return the chunks and the number of them before the gate, -1 without one."""
    match answer:
        case Held(chunks=chunks, after=after):
            return chunks, min(after, len(chunks))
        case Throw(chunks=chunks) | Hang(chunks=chunks):
            return chunks, -1
        case _:
            return answer, -1


def _check(signal: CancelSignal | None) -> None:
    if signal is not None and signal.aborted:
        reason = "" if signal.reason is None else f": {signal.reason}"
        raise LlmError(f"the request was aborted{reason}", code=LlmError.ABORTED)


def _is_abort(error: Exception) -> bool:
    return isinstance(error, LlmError) and error.code == LlmError.ABORTED


async def _sleep(seconds: float, signal: CancelSignal | None) -> None:
    if signal is None:
        await anyio.sleep(seconds)
        return
    with anyio.move_on_after(seconds):
        await signal.wait()


async def _pass(gate: Gate, signal: CancelSignal | None) -> None:
    """Wait at a gate until it opens or the signal aborts."""
    with nullcontext() if signal is None else signal.cancel_scope():
        await gate.pass_through()
