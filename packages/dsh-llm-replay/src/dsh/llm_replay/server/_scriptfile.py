"""Scripts as JSON files."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from dsh.llm_replay.server._behaviour import Behaviour
from dsh.llm_replay.server._gate import Gate
from dsh.llm_replay.server._record import WireRequest
from dsh.llm_replay.server._script import Entry, RandomBehaviour, ScriptError, behaviour

GateFinder = Callable[[str], Gate]
"""Finds or makes the gate of a name."""


@dataclass(frozen=True, slots=True)
class ScriptFile:
    """What a script file says."""

    entries: tuple[Entry, ...]
    """The entries in order."""
    repeat_last: bool = False
    """Whether the last entry serves all requests after the end."""
    token: str | None = None
    """The bearer token requests must carry."""
    seed: int = 0
    """Seed of random entries."""


def load_script(path: Path, gates: GateFinder) -> ScriptFile:
    """Read a script file.

    The file holds a list of entries, or an object `{script, repeatLast?, token?, seed?}`.

    Args:
        path: The file, JSON in UTF-8.
        gates: Finds the gates that `hold` names.

    Raises:
        ScriptError: If the file is not such a script; the message names file and entry.
        OSError: If the file cannot be read.
    """
    try:
        value: object = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ScriptError(f"{path}: not JSON: {error}") from error
    if not isinstance(value, (list, dict)):
        raise ScriptError(f"{path}: a script is a list of entries or an object with `script`")
    fields = cast("dict[str, Any]", {"script": value} if isinstance(value, list) else value)
    unknown = fields.keys() - {"script", "repeatLast", "token", "seed"}
    if unknown:
        raise ScriptError(f"{path}: unknown fields {', '.join(sorted(unknown))}")
    try:
        entries = parse_entries(fields.get("script", []), gates)
    except ScriptError as error:
        raise ScriptError(f"{path}: {error}") from error
    return ScriptFile(
        entries,
        bool(fields.get("repeatLast", False)),
        fields.get("token"),
        int(fields.get("seed", 0)),
    )


def parse_entries(values: Sequence[object], gates: GateFinder) -> tuple[Entry, ...]:
    """Turn JSON values into script entries.

    An entry is one of:

    - a string: the name of a behaviour, or `random`;
    - `{"behaviour": name, ...}`: a behaviour with its arguments, and the modifiers `hold` (a gate
      name, with `holdAfter`), `pace` (seconds), `delay` (seconds), `split` (bytes);
    - `{"text": ...}`: short for `success`;
    - `{"tool": name, "arguments": ..., "text"?: ...}`: short for `tool_call_success`;
    - `{"random": weights}`;
    - `{"rules": [{"when": regex, "then": entry}, ..., {"then": entry}]}`: the first rule whose
      pattern is found in the content of the last message answers.

    Raises:
        ScriptError: If an entry is none of these; the message names it by its position.
    """
    entries: list[Entry] = []
    for number, value in enumerate(values, 1):
        try:
            entries.append(_entry(value, gates))
        except ScriptError as error:
            raise ScriptError(f"entry {number}: {error}") from error
    return tuple(entries)


def _entry(value: object, gates: GateFinder) -> Entry:
    if isinstance(value, str):
        if value != "random":
            behaviour(value)
        return value
    if not isinstance(value, dict):
        raise ScriptError(f"an entry is a string or an object, not {type(value).__name__}")
    fields = dict(cast("dict[str, Any]", value))
    if "random" in fields:
        return RandomBehaviour(fields["random"])
    if "rules" in fields:
        return _Rules(fields["rules"], gates)
    return _built(fields, gates)


def _built(fields: dict[str, Any], gates: GateFinder) -> Behaviour:
    gate = fields.pop("hold", None)
    hold_after = int(fields.pop("holdAfter", 1))
    pace = fields.pop("pace", None)
    delay = fields.pop("delay", None)
    split = fields.pop("split", None)
    answer = _named(fields)
    if split is not None:
        answer = answer.split(int(split))
    if pace is not None:
        answer = answer.paced(float(pace))
    if gate is not None:
        answer = answer.hold(gates(gate), after=hold_after)
    return answer if delay is None else answer.delayed(float(delay))


def _named(fields: dict[str, Any]) -> Behaviour:
    if "behaviour" in fields:
        name = fields.pop("behaviour")
    elif "tool" in fields:
        name = "tool_call_success"
        fields["name"] = fields.pop("tool")
    elif "text" in fields:
        name = "success"
    else:
        raise ScriptError("an entry needs one of behaviour, text, tool, random or rules")
    return behaviour(str(name), **fields)


class _Rules:
    """Answers with the first rule that matches the last message."""

    def __init__(self, rules: Sequence[Mapping[str, Any]], gates: GateFinder) -> None:
        self.__name__ = "rules"
        self._rules: list[tuple[re.Pattern[str], Behaviour | str]] = []
        for rule in rules:
            answer = _entry(rule.get("then"), gates)
            if not isinstance(answer, (Behaviour, str)):
                raise ScriptError("`then` of a rule is a name or a behaviour")
            try:
                pattern = re.compile(str(rule.get("when", "")))
            except re.error as error:
                raise ScriptError(f"`when` is not a regular expression: {error}") from error
            self._rules.append((pattern, answer))

    def __call__(self, request: WireRequest) -> Behaviour | str:
        for pattern, answer in self._rules:
            if pattern.search(request.last_text):
                return answer
        raise ScriptError(f"no rule matches the last message {request.last_text[:80]!r}")
