"""Replay of recorded sessions, and the wrapper that records calls."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import aclosing

from dsh.llm import (
    CallDefaults,
    LlmAdapter,
    LlmRequest,
    ModelInfo,
    Problem,
    RetryPolicy,
    StreamChunk,
)
from dsh.llm.errors import LlmError
from dsh.llm_replay._adapter import SCRIPTED, ScriptPlayer
from dsh.llm_replay._entries import Answer, Entry, Throw
from dsh.llm_replay._overrides import Override, script_of
from dsh.llm_replay._recording import RecordedSession
from dsh.llm_replay.errors import NotConsumedError, ReplayError


class ReplayAdapter(ScriptPlayer):
    """A model that repeats what it said in recorded sessions.

    Session ids differ from run to run, so recordings are bound by the order of first calls: the
    session that calls first gets the primary recording, the next ones get the children, oldest
    first. Calls without a session id share one recording.

    Args:
        primary: The recording of the main session.
        children: Recordings of its subagents and forks.
        override: Sidecar of the primary recording.
        auxiliary: Answers for requests with a `purpose`, by purpose. Such calls are not part of a
            log's chunks; without an entry here they take the next recorded answer.
        models: The models to declare.
        pace_ms: Milliseconds to wait before each chunk.
        placeholders: Whether `{{fromRequest:<regex>}}` is replaced in recorded strings.
        checkpoints: Whether other tasks get a turn before each chunk.

    Raises:
        ReplayError: If a recording has a call without finish that no patch replaces.
    """

    def __init__(
        self,
        primary: RecordedSession,
        children: Iterable[RecordedSession] = (),
        *,
        override: Override | None = None,
        auxiliary: Mapping[str, Entry] | None = None,
        models: Sequence[ModelInfo] = (SCRIPTED,),
        pace_ms: float = 0,
        placeholders: bool = True,
        checkpoints: bool = True,
    ) -> None:
        super().__init__(
            models=models,
            pace_ms=pace_ms,
            placeholders=placeholders,
            checkpoints=checkpoints,
            auxiliary=auxiliary,
        )
        ordered = sorted(children, key=lambda child: child.created_at)
        self._scripts = [
            _Script(primary.id, script_of(primary.calls, override)),
            *(_Script(child.id, script_of(child.calls)) for child in ordered),
        ]
        self._bound: dict[str | None, _Script] = {}

    def take(self, request: LlmRequest) -> Entry:
        """Consume the next answer of the recording that the request's session is bound to.

        Raises:
            ReplayError: Code `UNBOUND_SESSION` or `SCRIPT_EXHAUSTED`.
        """
        script = self._bound.get(request.session_id)
        if script is None:
            script = self._bind(request.session_id)
        if script.position == len(script.entries):
            raise ReplayError(
                f"recording {script.label} has {len(script.entries)} calls, and session "
                f"{request.session_id!r} makes another",
                code=ReplayError.SCRIPT_EXHAUSTED,
                hint="record again, or append an entry with a patch",
            )
        script.position += 1
        return script.entries[script.position - 1]

    def assert_consumed(self) -> None:
        """Check that every recording was bound and used up.

        Raises:
            NotConsumedError: If one was not; the message lists them all.
        """
        problems: list[str] = []
        for number, script in enumerate(self._scripts):
            left = len(script.entries) - script.position
            if number >= len(self._bound):
                problems.append(f"recording {script.label} was never bound to a session")
            elif left:
                problems.append(f"recording {script.label} has {left} calls left")
        if problems:
            raise NotConsumedError("; ".join(problems))

    def _bind(self, session_id: str | None) -> _Script:
        if len(self._bound) == len(self._scripts):
            raise ReplayError(
                f"session {session_id!r} calls the model, and all {len(self._scripts)} recordings "
                "belong to other sessions",
                code=ReplayError.UNBOUND_SESSION,
                hint="add the recording of this session",
            )
        script = self._scripts[len(self._bound)]
        self._bound[session_id] = script
        return script


class RecordingAdapter(LlmAdapter):
    """Passes calls on to another adapter and keeps what it answers.

    Args:
        inner: The adapter that does the work.
    """

    def __init__(self, inner: LlmAdapter) -> None:
        self._inner = inner
        self._answers: list[Answer | None] = []

    @property
    def answers(self) -> Sequence[Answer]:
        """What was answered, in the order of the calls; a script for `ScriptedAdapter`.

        A call that raised is a `Throw`. One that the consumer left early ends where it left.
        """
        return [answer for answer in self._answers if answer is not None]

    async def stream(self, request: LlmRequest) -> AsyncGenerator[StreamChunk, None]:
        """Stream the answer of the inner adapter."""
        chunks: list[StreamChunk] = []
        place = len(self._answers)
        self._answers.append(None)
        thrown: Throw | None = None
        try:
            async with aclosing(self._inner.stream(request)) as stream:
                async for chunk in stream:
                    chunks.append(chunk)
                    yield chunk
        except LlmError as error:
            thrown = Throw(error.message, error.code, tuple(chunks), error.failure)
            raise
        finally:
            self._answers[place] = thrown or tuple(chunks)

    def render(self, request: LlmRequest) -> bytes | None:
        """Ask the inner adapter."""
        return self._inner.render(request)

    def preflight(self, model: str) -> Problem | None:
        """Ask the inner adapter."""
        return self._inner.preflight(model)

    def models(self) -> Sequence[ModelInfo]:
        """List the models of the inner adapter."""
        return self._inner.models()

    def call_defaults(self, model: str) -> CallDefaults:
        """Ask the inner adapter."""
        return self._inner.call_defaults(model)

    def retry_policy(self, model: str) -> RetryPolicy:
        """Ask the inner adapter."""
        return self._inner.retry_policy(model)


class _Script:
    """The entries of one recording and how far they are used."""

    def __init__(self, label: str | None, entries: Sequence[Entry]) -> None:
        self.label = repr(label) if label else "without id"
        self.entries = entries
        self.position = 0
