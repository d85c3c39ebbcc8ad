"""The gates: everything that must hold of the workspace, in one command.

Runs every gate, or the gates and groups named, two at a time. What a gate prints is shown only
when it fails; a table with the seconds of each comes last. Exits 1 if any gate failed, 130 after
Ctrl-C, which also ends what the gates have started.

Usage: `uv run python scripts/gates.py [--list] [NAME ...]`.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

ROOT = Path(__file__).resolve().parent.parent
AT_ONCE = 2
GRACE_S = 3.0
"""Seconds between asking a gate to end and ending it."""


@dataclass(frozen=True)
class Gate:
    """One gate.

    Args:
        name: What it is called on the command line.
        group: The gates it runs with under one name.
        command: The command, run in the root of the workspace; 0 is the only passing exit code.
        holds: What is true of the workspace while the gate passes.
    """

    name: str
    group: str
    command: str
    holds: str


# the slow ones first, so that two at once end together
GATES = (
    Gate(
        "gate-tests", "structure", "pytest -q -n 2 scripts/tests", "each gate fails when it should"
    ),
    Gate("docs", "doc-sync", "python scripts/check_docs.py", "examples run, links resolve"),
    Gate(
        "site",
        "doc-sync",
        "python scripts/build_site.py",
        "the documentation builds as a site without a warning",
    ),
    Gate("pyright", "code", "pyright", "strict types everywhere"),
    Gate("mypy", "code", "python scripts/check_types.py", "the public API types for mypy users"),
    Gate("ruff", "code", "ruff check .", "house rules, as lint families and bans"),
    Gate("format", "code", "ruff format --check .", "one layout"),
    Gate("lock", "structure", "uv lock --check", "the lock file fits the manifests"),
    Gate(
        "layering",
        "structure",
        "lint-imports",
        "no cycle among the wheels; only a bundle imports the loop",
    ),
    Gate(
        "workspace",
        "structure",
        "python scripts/check_workspace.py",
        "each wheel whole, its imports declared and public, its entry points sound",
    ),
    Gate(
        "conformance",
        "structure",
        "python scripts/check_conformance.py",
        "every case of `tests/conformance.md` names its test or the reason",
    ),
    Gate(
        "orientation",
        "doc-sync",
        "python scripts/orientation.py --check",
        "the page that says where things are says so truly",
    ),
    Gate(
        "generated",
        "doc-sync",
        "python scripts/generate.py --check",
        "the generated pages are those of this code",
    ),
    Gate(
        "docstrings",
        "doc-sync",
        "python scripts/check_docstrings.py",
        "the public API is documented and named by the rules",
    ),
    Gate(
        "events",
        "doc-sync",
        "python scripts/check_events.py",
        "events are sent as they are declared, and each is sent by somebody",
    ),
)


def groups(gates: Iterable[Gate]) -> list[str]:
    """Return the names of the groups, in the order of their first gate."""
    return list(dict.fromkeys(gate.group for gate in gates))


def choose(gates: Sequence[Gate], names: Sequence[str]) -> list[Gate]:
    """Return the gates that are named, or whose group is; all of them for no name.

    Raises:
        LookupError: A name is neither a gate nor a group.
    """
    known = {gate.name for gate in gates} | set(groups(gates))
    unknown = [name for name in names if name not in known]
    if unknown:
        raise LookupError(
            f"no gate or group {', '.join(unknown)}; there are the gates "
            f"{', '.join(gate.name for gate in gates)} and the groups {', '.join(groups(gates))}"
        )
    return [gate for gate in gates if not names or {gate.name, gate.group} & set(names)]


def table(gates: Iterable[Gate]) -> str:
    """Return the gates as a Markdown table, grouped."""
    lines = ["| gate | group | command, after `uv run` | holds |", "|---|---|---|---|"]
    every = list(gates)
    for group in groups(every):
        for gate in every:
            if gate.group == group:
                lines.append(f"| {gate.name} | {group} | `{gate.command}` | {gate.holds} |")
    return "\n".join(lines) + "\n"


@dataclass(frozen=True)
class Outcome:
    """How a gate ended, what it printed, and how many seconds it took."""

    gate: Gate
    code: int
    output: str
    seconds: float


class Runner:
    """Runs gates in a workspace, each in a process group of its own."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._running: set[subprocess.Popen[bytes]] = set()
        self._stopped = False
        self._lock = threading.Lock()

    def run(self, gate: Gate) -> Outcome:
        """Run one gate to its end."""
        began = time.monotonic()
        with tempfile.TemporaryFile() as output:
            try:
                code = self._wait(argv(gate.command), output.fileno())
            except OSError as error:
                return Outcome(gate, 127, f"cannot run it: {error}\n", time.monotonic() - began)
            output.seek(0)
            text = output.read().decode(errors="replace")
        return Outcome(gate, code, text, time.monotonic() - began)

    def _wait(self, command: list[str], output: int) -> int:
        # with the lock held, nothing can be started after `stop` has looked
        with self._lock:
            if self._stopped:
                return -signal.SIGTERM
            process = subprocess.Popen(
                command,
                cwd=self.root,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            self._running.add(process)
        try:
            return process.wait()
        finally:
            with self._lock:
                self._running.discard(process)

    def stop(self) -> None:
        """End every gate and what it has started; start no other."""
        with self._lock:
            self._stopped = True
            running = list(self._running)
        for process in running:
            _signal_group(process, signal.SIGTERM)
        deadline = time.monotonic() + GRACE_S
        for process in running:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, deadline - time.monotonic()))
            # also when the leader is gone: what it left behind is still in the group
            _signal_group(process, signal.SIGKILL)


def _signal_group(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)


def argv(command: str) -> list[str]:
    """Return a command with its program found: this environment's own before any other."""
    program, *arguments = command.split()
    if program == "python":
        return [sys.executable, *arguments]
    beside = str(Path(sys.executable).parent)
    found = shutil.which(program, path=beside) or shutil.which(program) or program
    return [found, *arguments]


def run_all(chosen: Sequence[Gate], root: Path) -> list[Outcome]:
    """Run the gates, showing each failure when it happens; return how they ended."""
    runner = Runner(root)
    outcomes: list[Outcome] = []
    with ThreadPoolExecutor(max_workers=AT_ONCE) as pool:
        try:
            for future in as_completed([pool.submit(runner.run, gate) for gate in chosen]):
                outcome = future.result()
                outcomes.append(outcome)
                if outcome.code:
                    _say(_failure(outcome))
        except BaseException:
            runner.stop()
            raise
    return sorted(outcomes, key=lambda outcome: chosen.index(outcome.gate))


def _failure(outcome: Outcome) -> str:
    head = f"=== {outcome.gate.name}: {outcome.gate.command}"
    return f"{head}\n{outcome.output.rstrip()}\n"


def summary(outcomes: Sequence[Outcome], seconds: float) -> str:
    """Return one line for each gate, and one for all, which took so many seconds."""
    lines = [
        f"{outcome.gate.name:<12} {'failed' if outcome.code else 'ok':<6} {outcome.seconds:6.1f} s"
        for outcome in outcomes
    ]
    failed = [outcome.gate.name for outcome in outcomes if outcome.code]
    if failed:
        again = f"uv run python scripts/gates.py {' '.join(failed)}"
        lines.append(
            f"gates: {len(failed)} of {len(outcomes)} failed in {seconds:.1f} s; again: {again}"
        )
    else:
        lines.append(f"gates: all {len(outcomes)} passed in {seconds:.1f} s")
    return "\n".join(lines) + "\n"


def _say(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def main(arguments: list[str] | None = None) -> int:
    """Run the gates that are named, or all."""
    parser = argparse.ArgumentParser(description="Run the gates of the workspace.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="a gate or a group of gates")
    parser.add_argument("--list", action="store_true", help="show the gates and run none")
    args = parser.parse_args(arguments)
    try:
        chosen = choose(GATES, args.names)
    except LookupError as error:
        parser.error(str(error))
    if args.list:
        _say(table(chosen))
        return 0
    signal.signal(signal.SIGTERM, _interrupt)
    began = time.monotonic()
    try:
        outcomes = run_all(chosen, ROOT)
    except KeyboardInterrupt:
        _say("gates: interrupted\n")
        return 130
    _say(summary(outcomes, time.monotonic() - began))
    return 1 if any(outcome.code for outcome in outcomes) else 0


if __name__ == "__main__":
    raise SystemExit(main())
