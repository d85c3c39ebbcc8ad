"""Events that reach their dispatch, or their listener, through a helper function."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from catalog.flow import Scope
from catalog.use_record import Helper, Scan


def follow_helpers(run: Scan) -> None:
    """Give each event that is handed to a helper to the place that hands it over."""
    seen: set[tuple[int, str, str]] = set()
    queue = list(run.helpers)
    while queue:
        helper = queue.pop(0)
        identity = (id(helper.scope.node), helper.parameter, helper.how)
        if identity in seen:
            continue
        seen.add(identity)
        callers = list(_callers(run, helper))
        for call, scope, event in callers:
            queue += _hand_over(run, helper, call, scope, event)
        if not callers:
            run.find(
                helper.node,
                helper.scope,
                f"{helper.scope.qualname} is handed its event by nobody the scan can see",
            )


def _callers(run: Scan, helper: Helper) -> Iterator[tuple[ast.Call, Scope, ast.expr]]:
    """Yield the calls of a helper, with what they pass."""
    for call, scope in run.calls:
        event = helper.argument(call)
        if event is None:
            continue
        if isinstance(call.func, ast.Attribute):
            named = call.func.attr == helper.name
            if named and (
                _is_own_method(run, helper, call.func, scope)
                or _passes_event(run, helper, event, scope)
            ):
                yield call, scope, event
        elif _is_called(run, helper, call.func, scope):
            yield call, scope, event


def _is_own_method(run: Scan, helper: Helper, func: ast.Attribute, scope: Scope) -> bool:
    """Whether a class calls a helper of its own, of a base or of a derived class."""
    if not (isinstance(func.value, ast.Name) and func.value.id == "self"):
        return False
    if scope.owner is None or helper.scope.owner is None:
        return False
    here, there = scope.owner.canonical, helper.scope.owner.canonical
    return there in run.sources.lineage(here) or here in run.sources.lineage(there)


def _is_called(run: Scan, helper: Helper, func: ast.expr, scope: Scope) -> bool:
    target = f"{helper.scope.module.name}.{helper.scope.qualname}"
    local = isinstance(func, ast.Name) and func.id == helper.name
    return run.sources.resolve(scope.module, func) == target or (
        # a function inside a function has no name outside of its file
        local and "." in helper.scope.qualname and scope.module is helper.scope.module
    )


def _passes_event(run: Scan, helper: Helper, event: ast.expr, scope: Scope) -> bool:
    follow = run.flow.instances if helper.kind == "dispatch" else run.flow.classes
    return bool(run.events_in(follow(event, scope)))


def _hand_over(
    run: Scan, helper: Helper, call: ast.Call, scope: Scope, event: ast.expr
) -> list[Helper]:
    follow = run.flow.instances if helper.kind == "dispatch" else run.flow.classes
    names = run.events_in(follow(event, scope))
    for name in names:
        run.use(helper.kind, name, helper.how, call, scope)
    if names:
        return []
    found = run.flow.parameter(event, scope)
    if found is not None:
        return [Helper(*found, helper.kind, helper.how, call)]
    run.find(call, scope, f"{helper.name}(...): which event it is handed cannot be seen")
    return []
