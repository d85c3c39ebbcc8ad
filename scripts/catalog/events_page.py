"""The page of events and services."""

from __future__ import annotations

from catalog.links import (
    EVENTS,
    Links,
    event_heading,
    plugin_link,
    service_heading,
    source_link,
)
from catalog.markdown import Page, code
from catalog.render import (
    doc_sections,
    field_table,
    methods,
    nested,
    property_list,
    wheel_heading,
)
from catalog.shapes import Event, ServiceClass, Workspace

_MODES = {
    "emit": (
        "Emit",
        "def listener(event: {cls}) -> None",
        "Synchronous listeners run in order.",
    ),
    "parallel": (
        "Parallel",
        "async def listener(event: {cls}) -> None",
        "All listeners run at once and are all awaited; what fails is raised together as an "
        "`ExceptionGroup`.",
    ),
    "serial": (
        "Serial",
        "async def listener(event: {cls}) -> {result} | None",
        "Listeners are asked one by one; the first result that is not None wins. What a listener "
        "raises reaches the dispatcher.",
    ),
    "waterfall": (
        "Waterfall",
        "async def listener(event: {cls}, next: Next[{result}]) -> {result}",
        "Each listener runs around the ones after it and the default; it calls `next()` at most "
        "once, `next.again()` for retries. What a listener raises reaches the dispatcher.",
    ),
    "stream": (
        "StreamWaterfall",
        "def listener(event: {cls}, next: NextStream[{result}]) -> AsyncGenerator[{result}, None]",
        "A waterfall over asynchronous generators, which are always closed.",
    ),
}


def render(workspace: Workspace) -> str:
    """Return the page."""
    links = Links(workspace, EVENTS)
    page = Page("Events and services")
    page.add(
        "Every event a plugin can listen to and every service it can inject, as the sources "
        "declare them. Who dispatches and who listens is in the [map of events](events-map.md), "
        "who provides and who uses a service in the [graph of seams](seams.md); configuration is "
        "in [config](config.md)."
    )
    _overview(page, links, workspace)
    for wheel in workspace.wheels:
        services = [one for one in workspace.services if one.wheel == wheel.name]
        events = [one for one in workspace.events if one.wheel == wheel.name]
        if services or events:
            wheel_heading(page, wheel)
        for service in services:
            _service(page, links, service)
        for event in events:
            _event(page, links, event)
    return page.text()


def _overview(page: Page, links: Links, workspace: Workspace) -> None:
    page.heading(2, "All services")
    page.table(
        ["Key", "Inject", "Purpose"],
        (
            [
                links.named(one.path, one.key),
                f"`inject({one.cls})` from `{one.path.rpartition('.')[0]}`",
                one.doc.summary,
            ]
            for one in workspace.services
        ),
    )
    page.heading(2, "All events")
    page.table(
        ["Event", "Class", "Mode", "Purpose"],
        (
            [links.named(one.path, one.name), f"`{one.path}`", one.mode, one.doc.summary]
            for one in workspace.events
        ),
    )
    page.heading(2, "Modes")
    page.add(
        "The base class of an event is its mode: what listeners look like, what they may give "
        "back and what happens when one fails. A listener is a method marked `@on(Event)` of a "
        "plugin, or a function given to `ctx.on(Event, listener)`."
    )
    page.table(
        ["Mode", "Base", "Listener", "Dispatch"],
        (
            [
                mode,
                links.named(f"dsh.core.{base}", base),
                f"`{shape.format(cls='E', result='R')}`",
                says,
            ]
            for mode, (base, shape, says) in _MODES.items()
        ),
    )


def _event(page: Page, links: Links, event: Event) -> None:
    page.heading(3, event_heading(event))
    page.add(f"`{event.path}`, {event.mode}. Source: {source_link(event.source)}.")
    doc_sections(page, links, event.doc, event.wheel)
    shape = _MODES[event.mode][1].format(cls=event.cls, result=event.result)
    shape = shape.replace("Never | None", "None")
    facts = [f"Listener: {code(shape, links.of(event.refs))}"]
    if event.mode == "emit":
        facts.append(
            "Failures: a listener that raises stops the dispatch, and the dispatcher gets what "
            "it raised"
            if event.errors == "raise"
            else "Failures: contained; a listener that raises is reported and the others run"
        )
    facts.append(
        f"Scope: `{event.scope}`; heard in that scope and by listeners that stand in none"
        if event.scope
        else "Scope: none; heard by listeners that stand in none"
    )
    if event.realm:
        facts.append(f"Realm: that of service {links.service(event.realm)}")
    page.items(f"{fact}." for fact in facts)
    field_table(page, links, event.fields)


def _service(page: Page, links: Links, service: ServiceClass) -> None:
    page.heading(3, service_heading(service))
    nature = "abstract: a provider implements it" if service.abstract else "ready to mount"
    page.add(f"`{service.path}`, {nature}. Source: {source_link(service.source)}.")
    doc_sections(page, links, service.doc, service.wheel)
    page.add("Provided by:")
    page.items(_providers(service) or ["no wheel of this workspace."])
    if service.properties:
        page.add("Properties and attributes:")
        property_list(page, links, service.properties)
    methods(page, links, service.methods, service.cls)
    nested(page, links, service.nested)


def _providers(service: ServiceClass) -> list[str]:
    lines: list[str] = []
    for one in service.providers:
        text = f"`{one.path}` of `{one.wheel}`"
        if one.entry_points:
            names = ", ".join(plugin_link(name) for name in one.entry_points)
            text += f", installed as plugin {names}"
        else:
            text += ", mounted by whoever imports it"
        if one.seam:
            text += f", listed under `dsh.seam.{service.key}`: it can be chosen unnamed"
        lines.append(f"{text}.")
    return lines
