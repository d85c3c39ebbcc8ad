"""Gate: events are dispatched as they are declared, and services and streams used in the open.

Holds, of every wheel's sources: each dispatch uses the method of its event's mode and goes through
a context; the scope of each event is a path its fields have; each event has a sender; what is
dispatched, listened to or injected can be made out; every consumed stream sits in `aclosing`. Of
the sources and the Markdown pages: an event that is spoken of exists.

Usage: `python scripts/check_events.py [ROOT]`. Prints one line per finding; exits 1 if any.
"""

from __future__ import annotations

import sys
from pathlib import Path

from catalog.model import load_workspace
from catalog.uses import Finding, Uses, scan
from command_line import gate_parser
from event_checks.dispatches import check_bypasses, check_modes, check_scopes, check_senders
from event_checks.mentions import check_mentions
from event_checks.streams import check_streams

ROOT = Path(__file__).resolve().parent.parent


def check(root: Path) -> tuple[list[Finding], Uses]:
    """Return every finding of the workspace at `root`, sorted, and the uses it was found in."""
    workspace = load_workspace(root)
    uses = scan(workspace)
    findings = {
        *uses.findings,
        *check_modes(workspace, uses),
        *check_senders(workspace, uses),
        *check_scopes(workspace, uses),
        *check_bypasses(uses),
        *check_streams(uses.sources),
        *check_mentions(workspace),
    }
    return sorted(findings), uses


def main(arguments: list[str] | None = None) -> int:
    """Run the gate on the workspace given, or on this one."""
    root: Path = gate_parser(__doc__, ROOT).parse_args(arguments).root
    findings, uses = check(root)
    for finding in findings:
        sys.stdout.write(f"{finding}\n")
    counts = {kind: sum(use.kind == kind for use in uses.uses) for kind in ("dispatch", "listen")}
    sys.stdout.write(
        f"events: {counts['dispatch']} dispatches, {counts['listen']} listeners, "
        f"{len(findings)} findings\n"
    )
    return 1 if findings else 0


if __name__ == "__main__":
    raise SystemExit(main())
