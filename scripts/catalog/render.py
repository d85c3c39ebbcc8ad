"""How fields, methods and docstrings look on every page."""

from __future__ import annotations

from collections.abc import Sequence

from catalog.links import Links, source_link, value_heading
from catalog.markdown import Page, code, one_line
from catalog.members import PROTOCOL
from catalog.shapes import Doc, Field, Method, Value, Wheel
from catalog.tree import without_metadata


def wheel_heading(page: Page, wheel: Wheel) -> None:
    """Open the part of a page that belongs to a wheel."""
    page.heading(2, wheel.name)
    page.add(f"`{wheel.module}`, {wheel.role}. {wheel.description}.")


def field_table(page: Page, links: Links, fields: Sequence[Field], *, wire: bool = False) -> None:
    """Add a table of fields.

    Args:
        page: The page.
        links: The page's links.
        fields: What to list.
        wire: Show the name on the wire too.
    """
    head = ["Field", *(["On the wire"] if wire else []), "Type", "Default", "Meaning"]
    rows: list[list[str]] = []
    for item in fields:
        default = "required" if item.default is None else f"`{item.default}`"
        if not item.init:
            default = "no argument"
        names = [f"`{item.name}`", *([f"`{camel(item.name)}`"] if wire else [])]
        rows.append([*names, code(item.shown, links.of(item.refs)), default, item.doc])
    page.table(head, rows)


def camel(name: str) -> str:
    """Return a field's name on the wire."""
    first, *rest = name.split("_")
    return first + "".join(part[:1].upper() + part[1:] for part in rest)


def property_list(page: Page, links: Links, properties: Sequence[Field]) -> None:
    """Add properties and attributes."""
    page.items(
        f"`{item.name}`"
        + (f": {code(item.shown, links.of(item.refs))}" if item.type else "")
        + (f". {one_line(item.doc)}" if item.doc else "")
        for item in properties
    )


def method(page: Page, links: Links, item: Method, heading: str, level: int = 4) -> None:
    """Add a method or function under a heading of its own."""
    page.heading(level, heading)
    known = links.of(item.refs)
    for text in item.overloads or (item.signature,):
        page.add(code(text, known))
    page.items(f"`{name}` is {code(text)}." for name, text in item.aliases)
    if item.abstract:
        page.add("Abstract: a subclass implements it.")
    doc_sections(page, links, item.doc, item.wheel)


def doc_sections(page: Page, links: Links, doc: Doc, wheel: str) -> None:
    """Add a docstring: its prose, then its parameters, results and errors."""
    page.add(doc.text)
    if doc.params:
        page.add("Parameters:")
        page.items(f"`{item.name}`: {one_line(item.text)}" for item in doc.params)
    if doc.returns:
        page.add(f"Returns: {doc.returns}")
    if doc.yields:
        page.add(f"Yields: {doc.yields}")
    if doc.raises:
        page.add("Raises:")
        page.items(f"{links.error(item.name, wheel)}: {one_line(item.text)}" for item in doc.raises)


def value(page: Page, links: Links, item: Value) -> None:
    """Add a value type, an alias, a constant or a class with behaviour."""
    page.heading(3, value_heading(item))
    page.add(f"{kind_of(item, links)} Source: {source_link(item.source)}.")
    constructor(page, links, item)
    doc_sections(page, links, item.doc, item.wheel)
    constructor_doc(page, links, item)
    if item.text:
        page.add(f"{'Is' if item.kind == 'alias' else 'Value:'} {_assigned(item, links)}")
    if item.kind == "enum":
        page.table(
            ["Member", "Value", "Meaning"],
            ([f"`{one.name}`", f"`{one.default}`", one.doc] for one in item.fields),
        )
    else:
        field_table(page, links, item.fields)
    if item.properties:
        page.add("Properties and attributes:")
        property_list(page, links, item.properties)
    methods(page, links, item.methods, item.path.removeprefix("dsh."))
    nested(page, links, item.nested)


def nested(page: Page, links: Links, items: Sequence[Value]) -> None:
    """Add the classes inside of a class, below it."""
    for item in items:
        page.heading(4, item.path.removeprefix("dsh."))
        page.add(kind_of(item, links))
        doc_sections(page, links, item.doc, item.wheel)
        field_table(page, links, item.fields)
        property_list(page, links, item.properties)
        methods(page, links, item.methods, item.path.removeprefix("dsh."))
        nested(page, links, item.nested)


def methods(page: Page, links: Links, items: Sequence[Method], owner: str) -> None:
    """Add the methods of a class; special ones that need no words share a line."""
    silent = [PROTOCOL[one.name] for one in items if one.name in PROTOCOL and not one.doc]
    if silent:
        page.add(f"Supports {', '.join(silent)}.")
    for one in items:
        if one.doc or one.name not in PROTOCOL:
            method(page, links, one, f"{owner}.{one.name}")


def constructor(page: Page, links: Links, item: Value) -> None:
    """Add how a class is made, before the text that explains the parameters."""
    made = item.constructor
    if made is not None:
        page.add(code(made.signature.removesuffix(" -> None"), links.of(made.refs)))


def constructor_doc(page: Page, links: Links, item: Value) -> None:
    """Add what the constructor says itself, after the text of the class."""
    if item.constructor is not None:
        doc_sections(page, links, item.constructor.doc, item.wheel)


_KINDS = {
    "dataclass": "Dataclass",
    "enum": "Enumeration",
    "model": "Configuration model",
    "typed-dict": "Typed dictionary",
    "protocol": "Protocol",
    "alias": "Type",
    "constant": "Constant",
    "error": "Error",
    "class": "Class",
}


def kind_of(item: Value, links: Links) -> str:
    """Say in a sentence what sort of thing a value is."""
    text = "Abstract class" if item.abstract else _KINDS[item.kind]
    shown = [base for base in item.bases if not _is_plumbing(base)]
    if shown and item.kind not in {"protocol", "enum"}:
        text += ", derived from " + ", ".join(links.named(base) for base in shown)
    if item.tag is not None:
        text += f", on the wire `{item.tag}`"
    return text + "."


def _is_plumbing(base: str) -> bool:
    """Whether a base says nothing to a reader: private helpers, and what the kind says already."""
    private = any(part.startswith("_") for part in base.split("."))
    return private or base.split("[")[0].split(".")[-1] in {
        "ABC", "Generic", "Protocol", "BaseModel", "TypedDict", "WireValue", "Tagged",
    }  # fmt: skip


def _assigned(item: Value, links: Links) -> str:
    return code(without_metadata(item.text), links.of(item.refs)) + "."
