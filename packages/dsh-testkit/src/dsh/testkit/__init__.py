"""What plugin authors test their plugins with.

An app, a spine and an agent to be driven, with a scripted model and the invariants on; services
in memory; checks of logs and requests; contract suites for providers. The same things are pytest
fixtures, see the README. The contract suites are `dsh.testkit.llm_contract`,
`dsh.testkit.persistence_contract`, `dsh.testkit.loop_contract` and `dsh.testkit.bash_contract`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from dsh.agent.testing import StubAgent, stub_agent
    from dsh.llm.testing import collect, violations
    from dsh.llm_replay import (
        Entry,
        Gate,
        ReplayAdapter,
        ScriptedAdapter,
        answer,
        error,
        hang,
        hold,
        load_recording,
        max_tokens,
        opening,
        reasoning,
        request_text,
        save_recording,
        text,
        throw,
        tool_call,
        tool_calls,
    )
    from dsh.llm_replay.server import WireServer, serve_in_thread
    from dsh.session.testing import (
        assert_balanced,
        reloaded,
        types_of,
        user_texts,
        worked_turn,
        write_turn,
    )
    from dsh.session_persistence.testing import MemoryDisk, MemoryPersistence
    from dsh.testkit._approval import (
        AnswerFunction,
        MemoryApproval,
        ScriptedAnswer,
        never_answered,
    )
    from dsh.testkit._failures import Failures
    from dsh.testkit._programs import (
        Completed,
        needs_program,
        run_unprivileged,
        unprivileged,
    )
    from dsh.testkit._spine import MODEL, PluginRow, Script, Spine, mount_spine, open_spine
    from dsh.testkit._trace import (
        StatusTrace,
        assert_paired,
        assert_paired_request,
        boundary_counts,
        captured_requests,
        rebuilt_requests,
        request_parts,
        soon,
        status_trace,
        tool_results,
        turn_numbers,
        turn_reasons,
        until_idle,
    )
    from dsh.tools.testing import call_tool, run_tool, text_of

__all__ = [
    "MODEL",
    "AnswerFunction",
    "Completed",
    "Entry",
    "Failures",
    "Gate",
    "MemoryApproval",
    "MemoryDisk",
    "MemoryPersistence",
    "PluginRow",
    "ReplayAdapter",
    "Script",
    "ScriptedAdapter",
    "ScriptedAnswer",
    "Spine",
    "StatusTrace",
    "StubAgent",
    "WireServer",
    "answer",
    "assert_balanced",
    "assert_paired",
    "assert_paired_request",
    "boundary_counts",
    "call_tool",
    "captured_requests",
    "collect",
    "error",
    "hang",
    "hold",
    "load_recording",
    "max_tokens",
    "mount_spine",
    "needs_program",
    "never_answered",
    "open_spine",
    "opening",
    "reasoning",
    "rebuilt_requests",
    "reloaded",
    "request_parts",
    "request_text",
    "run_tool",
    "run_unprivileged",
    "save_recording",
    "serve_in_thread",
    "soon",
    "status_trace",
    "stub_agent",
    "text",
    "text_of",
    "throw",
    "tool_call",
    "tool_calls",
    "tool_results",
    "turn_numbers",
    "turn_reasons",
    "types_of",
    "unprivileged",
    "until_idle",
    "user_texts",
    "violations",
    "worked_turn",
    "write_turn",
]

# Loaded on first use: pytest imports this package in every run of every project that has the
# wheel, and must not pay for, or meddle with, what the run does not use.
_HOMES: Final = {
    name: home
    for home, names in {
        "dsh.agent.testing": "StubAgent stub_agent",
        "dsh.llm.testing": "collect violations",
        "dsh.llm_replay": (
            "Entry Gate ReplayAdapter ScriptedAdapter answer error hang hold load_recording "
            "max_tokens opening reasoning request_text save_recording text throw tool_call "
            "tool_calls"
        ),
        "dsh.llm_replay.server": "WireServer serve_in_thread",
        "dsh.session.testing": (
            "assert_balanced reloaded types_of user_texts worked_turn write_turn"
        ),
        "dsh.session_persistence.testing": "MemoryDisk MemoryPersistence",
        "dsh.testkit._approval": "AnswerFunction MemoryApproval ScriptedAnswer never_answered",
        "dsh.testkit._failures": "Failures",
        "dsh.testkit._programs": "Completed needs_program run_unprivileged unprivileged",
        "dsh.testkit._spine": "MODEL PluginRow Script Spine mount_spine open_spine",
        "dsh.testkit._trace": (
            "StatusTrace assert_paired assert_paired_request boundary_counts captured_requests "
            "rebuilt_requests request_parts soon status_trace tool_results turn_numbers "
            "turn_reasons until_idle"
        ),
        "dsh.tools.testing": "call_tool run_tool text_of",
    }.items()
    for name in names.split()
}


def __getattr__(name: str) -> Any:
    """Import a public name on first use.

    Raises:
        AttributeError: The package has no such name.
    """
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(home), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
