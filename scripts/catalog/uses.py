"""Who uses what: every place that dispatches or hears an event, or that reaches for a service.

A scan of the syntax trees of all first-party sources. Nothing is imported, so a value is known by
where it comes from: a call of the event's class, a variable of the same function, an annotation, an
argument of a helper. What the scan cannot make out is a finding, never left out in silence.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from catalog.flow import Flow
from catalog.shapes import Workspace
from catalog.sources import Sources, read_sources
from catalog.use_helpers import follow_helpers
from catalog.use_record import EVERY_EVENT, GENERIC, Finding, Scan, Use, UseKind
from catalog.use_walker import KERNEL, UseWalker

__all__ = ["EVERY_EVENT", "GENERIC", "KERNEL", "Finding", "Use", "UseKind", "Uses", "scan"]


@dataclass(frozen=True, slots=True)
class Uses:
    """What a scan found; both tuples are sorted."""

    uses: tuple[Use, ...]
    findings: tuple[Finding, ...]
    sources: Sources

    def of(self, name: str, kind: UseKind) -> tuple[Use, ...]:
        """Return the uses of one event or service, of one kind."""
        return tuple(use for use in self.uses if use.name == name and use.kind == kind)


@lru_cache(maxsize=1)
def scan(workspace: Workspace) -> Uses:
    """Find every use of the events and services of a workspace in its sources."""
    sources = read_sources(workspace)
    run = Scan(
        sources,
        Flow(sources),
        {sources.canonical(event.path): event.name for event in workspace.events},
        {sources.canonical(service.path): service.key for service in workspace.services},
    )
    for module in sources.modules.values():
        if module.name != KERNEL and not module.name.startswith(f"{KERNEL}."):
            UseWalker(run, module).walk()
    follow_helpers(run)
    for place in sorted(GENERIC.keys() - run.excused):
        name, _, _ = place.partition(":")
        wheel = sources.modules.get(".".join(name.split(".")[:2]))
        if wheel is not None:
            run.findings.add(
                Finding(wheel.file, 1, f"GENERIC excuses {place}, which needs no excuse")
            )
    return Uses(tuple(sorted(run.uses)), tuple(sorted(run.findings)), sources)
