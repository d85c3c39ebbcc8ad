"""What can be mutated, and the tests that judge it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Target:
    """Code that is changed, and the tests that have to notice.

    Args:
        name: What it is called on the command line.
        mutate: Patterns of the files that are changed, relative to the namespace `dsh`.
        wheels: The folders of the wheels whose code it is, or is copied beside it.
        tests: Files and folders of tests, relative to the workspace.
        first: The tests that the first pass runs, as pytest's `-k` takes it.
        later: Tests that take seconds, which only the second pass runs.
        never: Tests that count the frames of the stack, where mutmut puts one more.
        floor: The share of mutants, in percent, that the tests have to kill.
    """

    name: str
    mutate: tuple[str, ...]
    wheels: tuple[str, ...]
    tests: tuple[str, ...]
    first: str = "not trio"
    later: tuple[str, ...] = ()
    never: tuple[str, ...] = ()
    floor: float = 90.0


# A wheel is judged by its own tests alone: what only another wheel's tests notice is a gap here.
TARGETS = (
    Target(
        "dsh-llm-deepseek",
        mutate=("llm_deepseek/_sse.py",),
        wheels=("packages/dsh-llm-deepseek",),
        tests=("packages/dsh-llm-deepseek/tests/test_deepseek_sse.py",),
    ),
    Target(
        "dsh-session",
        mutate=("session/*",),
        wheels=("packages/dsh-session",),
        tests=("packages/dsh-session/tests",),
        later=(
            "test_session_codec.py::test_every_event_is_written_and_read_as_its_wire_form",
            "test_session_codec.py::test_random_payloads_are_of_every_type",
            "test_session_codec.py::test_what_is_bent_reads_or_fails_in_the_same_way",
            "test_session_codec.py::test_bent_columns_read_or_fail_as_the_wire_form_does",
            "test_session_enclosure.py::test_an_event_costs_less_than_a_kilobyte_beyond_its_text",
            "test_session_enclosure.py::test_messages_and_results_stay_below_a_kilobyte_too",
            "test_session_enclosure.py::test_a_thousand_rounds_derive_without_walking_the_history",
            "test_session_log.py::test_the_history_equals_that_of_a_fresh_session_at_all_times",
        ),
    ),
    Target(
        "dsh-tools",
        mutate=("tools/*",),
        wheels=("packages/dsh-tools",),
        tests=("packages/dsh-tools/tests",),
        later=(
            "test_tool_function.py::test_the_docstring_parser_is_loaded_only_when_needed",
            "test_tool_threads.py",
        ),
        never=("test_tool_function.py::test_local_types_are_found",),
    ),
    Target(
        "dsh-core",
        mutate=("core/*",),
        wheels=("packages/dsh-core",),
        tests=("packages/dsh-core/tests",),
        later=(
            "test_scale.py",
            "test_waits.py::test_a_long_chain_of_waits_is_followed",
            "test_worlds.py::test_whatever_happens_nothing_is_left",
        ),
    ),
    Target(
        "dsh-agent-loop",
        mutate=("agent_loop/*", "agent/loopkit/*"),
        wheels=("packages/dsh-agent-loop", "packages/dsh-agent"),
        tests=("packages/dsh-agent-loop/tests", "packages/dsh-agent/tests"),
        first="not trio and not invariants",
        later=("test_loop_properties.py", "test_loop_sweep.py"),
    ),
    Target(
        "dsh-session-persistence",
        mutate=("session_persistence/*",),
        wheels=("packages/dsh-session-persistence",),
        tests=("packages/dsh-session-persistence/tests",),
    ),
)

TEST_TOOLS = "*/testing.py"
"""What tests are made with. Its faults show in the tests, so it is not changed."""
