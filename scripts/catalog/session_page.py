"""The page of the session log: its header, its envelope and every event type."""

from __future__ import annotations

from catalog.examples import example
from catalog.links import SESSION, Links, payload_heading, source_link
from catalog.markdown import Page
from catalog.render import doc_sections, field_table, property_list, wheel_heading
from catalog.shapes import Payload, Workspace

_SPINE = "dsh-session"

PLACES = {
    "turn/start": "between turns: it opens one",
    "turn/end": "in the open turn, which it names, while no step is open",
    "step/start": "in the open turn, which it names, while no step is open",
}
"""Where the events that open and close things stand."""


def place(payload: Payload) -> str:
    """Say where in a log an event may stand; `append` refuses it elsewhere."""
    names = {item.name for item in payload.fields}
    if payload.wheel == _SPINE:
        if payload.type in PLACES:
            return PLACES[payload.type]
        if {"turn", "step"} <= names:
            return "in the open step, which it names with its turn"
        if "turn" in names:
            return "in the open turn, which it names, inside and outside of steps"
    return "anywhere in an open turn"


def render(workspace: Workspace) -> str:
    """Return the page."""
    links = Links(workspace, SESSION)
    page = Page("Session events")
    page.add(
        "A session is an append-only log of events, and the only truth about what happened: the "
        "model's history is derived from it. This page lists every event type with its fields, "
        "here in Python (`snake_case`) and in a stored log or `--json` output (`camelCase`)."
    )
    _overview(page, links, workspace)
    _line(page, links, workspace)
    _own_types(page, links)
    for wheel in workspace.wheels:
        mine = [one for one in workspace.payloads if one.wheel == wheel.name]
        if mine:
            wheel_heading(page, wheel)
        for payload in mine:
            _payload(page, links, workspace, payload)
    return page.text()


def _overview(page: Page, links: Links, workspace: Workspace) -> None:
    page.heading(2, "All event types")
    page.table(
        ["Type", "Class", "Kind", "Purpose"],
        (
            [links.named(one.path, one.type), f"`{one.path}`", one.kind, one.doc.summary]
            for one in workspace.payloads
        ),
    )
    page.add(
        "**surface**: the event stands in the history that the model reads, and carries a surface "
        "operation that says where. **log-only**: it never reaches the model."
    )


def _line(page: Page, links: Links, workspace: Workspace) -> None:
    values = {value.path: value for value in workspace.values}
    envelope = values.get("dsh.session.SessionEvent")
    header = values.get("dsh.session.SessionHeader")
    if envelope is not None:
        page.heading(2, "The envelope")
        page.add(
            f"Every line is a {links.named(envelope.path, envelope.cls)}. `type` names the type "
            'of `data`. A surface operation is `"append"` or `{"op": "replace", "start": '
            '3, "end": 5}`. `ignorable` marks what a reader that does not know the type may '
            "skip. Fields that are absent in Python are left out; a field a reader does not know "
            "is an error in the envelope and in the spine's own types, and is kept in others."
        )
        field_table(page, links, envelope.fields, wire=True)
    if header is not None:
        page.heading(2, "The header")
        page.add(f"{header.doc.text} In Python it is {links.named(header.path, header.cls)}.")
        field_table(page, links, header.fields, wire=True)


def _own_types(page: Page, links: Links) -> None:
    page.heading(2, "Types of your own")
    page.add(
        f"A plugin adds a type by deriving from {links.named('dsh.session.SessionData')} with "
        '`type="family/name"`; declaring the class registers it. Its events are log-only. A log '
        "that holds a type nobody declares loads it as "
        f"{links.named('dsh.session.UnknownData')} and writes it back unchanged."
    )


def _payload(page: Page, links: Links, workspace: Workspace, payload: Payload) -> None:
    page.heading(3, payload_heading(payload))
    page.add(f"`{payload.path}`, {payload.kind}. Source: {source_link(payload.source)}.")
    doc_sections(page, links, payload.doc, payload.wheel)
    page.add(f"Stands {place(payload)}.")
    field_table(page, links, payload.fields, wire=True)
    if payload.properties:
        page.add("Properties:")
        property_list(page, links, payload.properties)
    line = example(workspace, payload)
    if line is not None:
        page.add(f"```json\n{line}\n```")
