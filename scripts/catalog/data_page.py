"""The page of value types: what events, services and the log carry."""

from __future__ import annotations

from catalog.links import DATA, Links, page_of
from catalog.markdown import Page, code
from catalog.render import value, wheel_heading
from catalog.shapes import Value, Workspace

OPEN_UNIONS = {
    "dsh.llm.ContentBlock": (
        "Content blocks",
        "A wheel adds a kind by deriving a dataclass from it, `class Citation(ContentBlock, "
        'type="acme/citation")`. A block of a kind that no imported wheel declares is read as '
        "{other} and written back unchanged.",
        "dsh.llm.UnknownBlock",
    ),
    "dsh.llm.StreamChunk": (
        "Stream chunks",
        "The chunks themselves are a closed set; what they carry is not. A `block-start` may name "
        "any kind of block, and its `block-end` brings it. A finish may have a kind of its own, "
        "which counts as success.",
        None,
    ),
    "dsh.session.TurnTrigger": (
        "Turn triggers",
        "A wheel that opens turns for a reason of its own derives from it, "
        '`class Poll(TurnTrigger, kind="acme-poll")`. Any other kind is read as {other}.',
        "dsh.session.OtherTrigger",
    ),
    "dsh.session.TurnEndReason": (
        "Turn-end reasons",
        "A loop that ends turns for a reason of its own derives from it, "
        '`class Quiet(TurnEndReason, kind="acme-quiet")`. Any other kind is read as {other}.',
        "dsh.session.OtherReason",
    ),
    "dsh.session.MessageSource": (
        "Message sources",
        "A plugin names itself with `PluginSource`; a source with more to say derives from it, "
        '`class Cron(MessageSource, kind="acme-cron")`. Any other kind is read as {other}.',
        "dsh.session.OtherSource",
    ),
}
"""What wheels extend: title, how it is done, and the class that carries the rest."""


def render(workspace: Workspace) -> str:
    """Return the page."""
    links = Links(workspace, DATA)
    page = Page("Data structures")
    page.add(
        "The public value types by wheel: what events carry, what services take and return. "
        "Dataclasses are frozen unless their text says otherwise. Classes with behaviour are on "
        "[classes and functions](classes-and-functions.md), errors on [errors](errors.md), the "
        "kernel's own on [kernel API](kernel-api.md), log entries on "
        "[session events](session-events.md)."
    )
    _open_vocabularies(page, links, workspace)
    for wheel in workspace.wheels:
        mine = [one for one in workspace.values if one.wheel == wheel.name and page_of(one) == DATA]
        if not mine:
            continue
        wheel_heading(page, wheel)
        page.add("Here: " + ", ".join(links.named(one.path, one.cls) for one in mine) + ".")
        for one in mine:
            value(page, links, one)
    return page.text()


def _open_vocabularies(page: Page, links: Links, workspace: Workspace) -> None:
    known = {one.path: one for one in workspace.values}
    if not any(path in known for path in OPEN_UNIONS):
        return
    page.heading(2, "Open vocabularies")
    page.add(
        "These families are matched by class in Python and by a tag on the wire. Wheels add to "
        "them, and nobody loses what they do not know. The READMEs of dsh-llm and dsh-session say "
        "what each reader does with a kind it does not know."
    )
    for path, (title, how, other) in OPEN_UNIONS.items():
        union = known.get(path)
        if union is None:
            continue
        page.heading(3, title)
        told = how if other is None else how.format(other=links.named(other))
        page.add(f"Type {links.named(path)}. {told}")
        page.table(["Tag on the wire", "Class", "Meaning"], _members(links, union, known))


def _members(links: Links, union: Value, known: dict[str, Value]) -> list[list[str]]:
    rows: list[list[str]] = []
    members = [(name, path) for name, path in union.refs if path in known]
    if union.kind == "class":
        found = [one for one in known.values() if union.path in one.bases]
        members = [(one.cls, one.path) for one in sorted(found, key=lambda one: one.tag is None)]
    for name, path in sorted(members, key=lambda pair: union.text.find(pair[0])):
        member = known[path]
        if member.kind == "dataclass":
            tag = "any other" if member.tag is None else code(member.tag)
            rows.append([tag, links.named(path, name), member.doc.summary])
    return rows
