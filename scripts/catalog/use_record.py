"""What a scan of the sources has found so far."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from catalog.flow import Flow, Scope
from catalog.sources import Sources

UseKind: TypeAlias = Literal["dispatch", "listen", "observe", "inject", "read", "provide"]

GENERIC: dict[str, str] = {
    "dsh.invariants._service:Invariants._install": (
        "waits for the services that whoever registers the checks names"
    ),
}
"""Places whose event or service only the caller knows, with the reason; this list stays short.

An entry that excuses nothing any more is a finding.
"""

EVERY_EVENT = "*"
"""Name under which an observer of all dispatches is recorded."""


@dataclass(frozen=True, slots=True, order=True)
class Use:
    """One use of an event or of a service."""

    name: str
    """Name of the event, key of the service, or `EVERY_EVENT`."""
    kind: UseKind
    wheel: str
    file: str
    line: int
    where: str
    """Qualified name of the function or class around it; empty at the top level of a file."""
    how: str
    """The method or function that was called: `emit`, `on`, `inject`, `ctx[]` and so on."""
    optional: bool = False
    """Whether the user of a service does without it."""
    testing: bool = False
    """Whether it is there for tests only."""


@dataclass(frozen=True, slots=True, order=True)
class Finding:
    """Something wrong, or something that cannot be made out."""

    file: str
    line: int
    message: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.message}"


@dataclass(frozen=True, slots=True)
class Helper:
    """A function that dispatches, or listens to, the event it is given."""

    scope: Scope
    parameter: str
    position: int
    kind: Literal["dispatch", "listen"]
    how: str
    node: ast.Call
    """Where it hands its parameter on."""

    @property
    def name(self) -> str:
        """Name of the function."""
        return "" if isinstance(self.scope.node, ast.Lambda | ast.Module) else self.scope.node.name

    def argument(self, call: ast.Call) -> ast.expr | None:
        """Return what a call passes as the event."""
        for keyword in call.keywords:
            if keyword.arg == self.parameter:
                return keyword.value
        bound = self.scope.owner is not None and isinstance(call.func, ast.Attribute)
        position = self.position - 1 if bound and self._has_self() else self.position
        return call.args[position] if 0 <= position < len(call.args) else None

    def _has_self(self) -> bool:
        return "self" in self.scope.bindings


@dataclass
class Scan:
    """Collects uses and findings while the files are walked."""

    sources: Sources
    flow: Flow
    events: dict[str, str]
    """Names of events by the canonical name of their class."""
    services: dict[str, str]
    """Keys of services, likewise."""
    uses: set[Use] = field(default_factory=set[Use])
    findings: set[Finding] = field(default_factory=set[Finding])
    helpers: list[Helper] = field(default_factory=list[Helper])
    """Functions whose event only their callers know."""
    calls: list[tuple[ast.Call, Scope]] = field(default_factory=list[tuple[ast.Call, Scope]])
    """Every call there is, to find those of helpers."""
    excused: set[str] = field(default_factory=set[str])
    """Entries of `GENERIC` that were needed."""

    def use(
        self, kind: UseKind, name: str, how: str, node: ast.expr, scope: Scope, **more: Any
    ) -> None:
        """Record a use."""
        module = scope.module
        place = (module.wheel, module.file, node.lineno, scope.qualname)
        self.uses.add(Use(name, kind, *place, how, testing=module.testing, **more))

    def find(self, node: ast.expr, scope: Scope, message: str) -> None:
        """Record a finding, unless the place is excused."""
        place = f"{scope.module.name}:{scope.qualname}"
        if place in GENERIC:
            self.excused.add(place)
        else:
            self.findings.add(Finding(scope.module.file, node.lineno, message))

    def events_in(self, found: frozenset[str]) -> list[str]:
        """Return the names of the events among some classes."""
        return sorted(self.events[one] for one in found if one in self.events)
