"""Models without a provider: scripted ones, recorded ones, and a server that speaks the wire.

`ScriptedAdapter` plays answers built by `text`, `tool_call` and their like; `ReplayAdapter`
repeats a recorded session; `LlmReplay` is the plugin that offers either to a deployment. The
server for real adapters is in `dsh.llm_replay.server`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from dsh.llm_replay._adapter import SCRIPTED, ScriptedAdapter, ScriptPlayer
    from dsh.llm_replay._builders import (
        answer,
        error,
        hang,
        hold,
        max_tokens,
        opening,
        reasoning,
        text,
        throw,
        tool_call,
        tool_calls,
    )
    from dsh.llm_replay._calls import CallOutcome, ModelCall
    from dsh.llm_replay._encode import (
        behaviour_of,
        encode_chunks,
        payloads,
        wire_script,
        wire_usage,
    )
    from dsh.llm_replay._entries import Answer, Entry, EntryFunction, Hang, Held, Throw
    from dsh.llm_replay._overrides import (
        Override,
        Patch,
        load_override,
        override_from,
        script_of,
    )
    from dsh.llm_replay._placeholders import fill, request_text
    from dsh.llm_replay._plugin import LlmReplay
    from dsh.llm_replay._recording import (
        Extract,
        RecordedCall,
        RecordedSession,
        Row,
        derive_calls,
        load_recording,
        recorded,
        save_recording,
    )
    from dsh.llm_replay._replay import RecordingAdapter, ReplayAdapter
    from dsh.llm_replay._steps import (
        Step,
        ToolStep,
        dump_script,
        entries_from,
        entry_from,
        load_script,
    )
    from dsh.llm_replay.errors import NotConsumedError, ReplayError
    from dsh.llm_replay.server import Gate

__all__ = [
    "SCRIPTED",
    "Answer",
    "CallOutcome",
    "Entry",
    "EntryFunction",
    "Extract",
    "Gate",
    "Hang",
    "Held",
    "LlmReplay",
    "ModelCall",
    "NotConsumedError",
    "Override",
    "Patch",
    "RecordedCall",
    "RecordedSession",
    "RecordingAdapter",
    "ReplayAdapter",
    "ReplayError",
    "Row",
    "ScriptPlayer",
    "ScriptedAdapter",
    "Step",
    "Throw",
    "ToolStep",
    "answer",
    "behaviour_of",
    "derive_calls",
    "dump_script",
    "encode_chunks",
    "entries_from",
    "entry_from",
    "error",
    "fill",
    "hang",
    "hold",
    "load_override",
    "load_recording",
    "load_script",
    "max_tokens",
    "opening",
    "override_from",
    "payloads",
    "reasoning",
    "recorded",
    "request_text",
    "save_recording",
    "script_of",
    "text",
    "throw",
    "tool_call",
    "tool_calls",
    "wire_script",
    "wire_usage",
]

# Loaded on first use: the server below this package is a program of its own that needs neither the
# model seam nor sessions, and importing it runs this file.
_HOMES: Final = {
    name: home
    for home, names in {
        "_adapter": "SCRIPTED ScriptPlayer ScriptedAdapter",
        "_calls": "CallOutcome ModelCall",
        "_builders": (
            "answer error hang hold max_tokens opening reasoning text throw tool_call tool_calls"
        ),
        "_encode": "behaviour_of encode_chunks payloads wire_script wire_usage",
        "_entries": "Answer Entry EntryFunction Hang Held Throw",
        "_overrides": "Override Patch load_override override_from script_of",
        "_placeholders": "fill request_text",
        "_plugin": "LlmReplay",
        "_recording": (
            "Extract RecordedCall RecordedSession Row derive_calls load_recording "
            "recorded save_recording"
        ),
        "_replay": "RecordingAdapter ReplayAdapter",
        "_steps": "Step ToolStep dump_script entries_from entry_from load_script",
        "errors": "NotConsumedError ReplayError",
        "server": "Gate",
    }.items()
    for name in names.split()
}


def __getattr__(name: str) -> Any:
    """Import a public name on first use.

    Raises:
        AttributeError: If the package has no such name.
    """
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"{__name__}.{home}"), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
