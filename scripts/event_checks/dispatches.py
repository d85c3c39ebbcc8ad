"""Each event is dispatched in its mode, by its scope, and by somebody."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from catalog.flow import Flow
from catalog.shapes import Event, Workspace
from catalog.sources import Module, Sources, dotted_name
from catalog.uses import KERNEL, Finding, Uses


def check_modes(workspace: Workspace, uses: Uses) -> Iterator[Finding]:
    """Check that every dispatch uses the method of the event's mode."""
    for event in workspace.events:
        for use in uses.of(event.name, "dispatch"):
            if use.how != event.mode:
                yield Finding(
                    use.file,
                    use.line,
                    f"{event.name} is of mode {event.mode}, but dispatched with `{use.how}`",
                )


def check_senders(workspace: Workspace, uses: Uses) -> Iterator[Finding]:
    """Check that somebody dispatches every event."""
    for event in workspace.events:
        if not uses.of(event.name, "dispatch"):
            yield Finding(
                event.source,
                _line(uses.sources, event),
                f"nobody dispatches {event.name}; dispatch it or remove {event.cls}",
            )


def check_scopes(workspace: Workspace, uses: Uses) -> Iterator[Finding]:
    """Check that the scope of every event is a path that its fields have.

    Each part is looked up in the classes that the part before it is annotated with. Where an
    annotation leads out of sight, the rest is taken on trust.
    """
    flow = Flow(uses.sources)
    for event in workspace.events:
        if event.scope is None:
            continue
        owners = frozenset({uses.sources.canonical(event.path)})
        for part in event.scope.split("."):
            known = sorted(one for one in owners if one in uses.sources.classes)
            steps = {one: flow.attribute(one, part) for one in known}
            for owner in (one for one, step in steps.items() if step is None):
                name = owner.rpartition(".")[2]
                yield Finding(
                    event.source,
                    _line(uses.sources, event),
                    f"the scope of {event.name} is {event.scope}, but {name} has no {part}",
                )
            owners = frozenset[str]().union(*(step or () for step in steps.values()))


def check_bypasses(uses: Uses) -> Iterator[Finding]:
    """Check that nobody but the kernel reads who listens: that would leave the scope out."""
    for module in uses.sources.modules.values():
        if module.name == KERNEL or module.name.startswith(f"{KERNEL}."):
            continue
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Attribute) and _reaches_in(module, node):
                yield Finding(
                    module.file,
                    node.lineno,
                    f"`{ast.unparse(node)}` goes past the scope of an event; dispatch it "
                    "through a context",
                )


def _reaches_in(module: Module, node: ast.Attribute) -> bool:
    owner = dotted_name(node.value) or ""
    if node.attr in ("channel", "channels"):
        return owner.rpartition(".")[2] in ("app", "_app")
    return module.names.get(owner.partition(".")[0], "") == f"{KERNEL}._dispatch"


def _line(sources: Sources, event: Event) -> int:
    info = sources.classes.get(sources.canonical(event.path))
    return 1 if info is None else info.node.lineno
