"""The script: which behaviour serves which request."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from dsh.llm_replay.server import _catalog, _faults
from dsh.llm_replay.server._behaviour import Behaviour
from dsh.llm_replay.server._record import WireRequest

_STREAMS: Final = (
    "success reasoning_success tool_call_success tool_calls tool_call_parallel_interleaved "
    "max_tokens finish_reason slow_success usage_trailing usage_attached_and_trailing "
    "keepalive_then_success split_every_byte crlf_framing cr_framing bom u2028_payload"
)
_BROKEN: Final = (
    "empty empty_body stream_eof partial_eof partial_line truncated stream_disconnect "
    "partial_disconnect connection_reset connection_close stall stall_before_headers "
    "endless_comments malformed_json malformed_event wrong_content_type json_error_200 "
    "unterminated_done events_after_done oversized_event error_object_midstream http_error "
    "http_text http_json rate_limit retry_after_date server_error service_unavailable auth_error "
    "forbidden invalid_request context_overflow quota_exceeded http_402 http_413 http_422 redirect"
)

BEHAVIOURS: Final[Mapping[str, Callable[..., Behaviour]]] = {
    **{name: getattr(_catalog, name) for name in _STREAMS.split()},
    **{name: getattr(_faults, name) for name in _BROKEN.split()},
}
"""Every named behaviour and the function that builds it; arguments are keywords."""

RANDOM_WEIGHTS: Final[Mapping[str, int]] = {
    "success": 48,
    "slow_success": 10,
    "partial_disconnect": 10,
    "connection_reset": 5,
    "stream_disconnect": 5,
    "empty": 5,
    "rate_limit": 5,
    "server_error": 4,
    "max_tokens": 2,
    "stall": 2,
    "service_unavailable": 2,
    "partial_eof": 1,
    "malformed_json": 1,
}
"""The mixture of a `RandomBehaviour` without weights of its own."""


class ScriptError(ValueError):
    """A script names something that does not exist or gives it the wrong arguments."""


@dataclass(frozen=True, slots=True)
class RandomBehaviour:
    """A script entry that draws a behaviour with the seeded generator of the server."""

    weights: Mapping[str, int] = field(default_factory=lambda: RANDOM_WEIGHTS)
    """Behaviour names and their weights."""


BehaviourFunction: TypeAlias = Callable[[WireRequest], "Behaviour | str"]
"""Answers a request by looking at it."""

Entry: TypeAlias = "Behaviour | str | RandomBehaviour | BehaviourFunction"
"""One entry of a script; a string is the name of a behaviour, or `random`."""

Script: TypeAlias = "Sequence[Entry] | Entry"
"""A sequence of entries, one per request; a single entry that is no sequence serves them all."""


def behaviour(name: str, /, **params: Any) -> Behaviour:
    """Build a behaviour by name.

    Args:
        name: A key of `BEHAVIOURS`.
        params: Keyword arguments of that function.

    Raises:
        ScriptError: If the name is unknown or the arguments do not fit.
    """
    build = BEHAVIOURS.get(name)
    if build is None:
        raise ScriptError(f"unknown behaviour {name!r}; known are {', '.join(sorted(BEHAVIOURS))}")
    try:
        return build(**params)
    except TypeError as error:
        raise ScriptError(f"behaviour {name!r}: {error}") from error


class ScriptRunner:
    """Walks through a script, first entry first.

    Args:
        script: The script.
        repeat_last: Whether the last entry serves every request after the end.
        seed: Seed of the generator behind random entries.
    """

    def __init__(self, script: Script, *, repeat_last: bool = False, seed: int = 0) -> None:
        if isinstance(script, (Behaviour, str, RandomBehaviour)) or callable(script):
            self._entries: list[Entry] = [script]
            self._repeat_last = True
        else:
            self._entries = list(script)
            self._repeat_last = repeat_last
        self._random = random.Random(seed)
        self._position = 0
        for entry in self._entries:
            _check(entry)

    @property
    def remaining(self) -> int:
        """Entries that no request has consumed."""
        return max(0, len(self._entries) - self._position)

    def append(self, entry: Entry) -> None:
        """Add an entry at the end.

        Raises:
            ScriptError: If it is the name of an unknown behaviour.
        """
        _check(entry)
        self._entries.append(entry)

    def next(self, request: WireRequest) -> tuple[str, Behaviour]:
        """Consume one entry.

        Returns:
            The name of the entry and the behaviour; behaviour `exhausted` when none is left and
            `script_error` when a function raised.
        """
        entry = self._take()
        if entry is None:
            return "exhausted", _faults.exhausted(request.number)
        if isinstance(entry, RandomBehaviour):
            return "random", self._draw(entry)
        if isinstance(entry, Behaviour):
            return entry.name, entry
        if isinstance(entry, str):
            return entry, self._named(entry)
        name = getattr(entry, "__name__", type(entry).__name__)
        try:
            answer = entry(request)
            return name, self._named(answer) if isinstance(answer, str) else answer
        except Exception as error:  # noqa: BLE001 - any failure becomes an answer the test sees
            return name, _faults.script_error(error)

    def _take(self) -> Entry | None:
        if self._position < len(self._entries):
            self._position += 1
            return self._entries[self._position - 1]
        return self._entries[-1] if self._repeat_last and self._entries else None

    def _named(self, name: str) -> Behaviour:
        return self._draw(RandomBehaviour()) if name == "random" else behaviour(name)

    def _draw(self, entry: RandomBehaviour) -> Behaviour:
        names = list(entry.weights)
        return behaviour(self._random.choices(names, list(entry.weights.values()))[0])


def _check(entry: Entry) -> None:
    names: Sequence[str] = ()
    if isinstance(entry, str) and entry != "random":
        names = (entry,)
    elif isinstance(entry, RandomBehaviour):
        names = tuple(entry.weights)
    for name in names:
        behaviour(name)
