"""The page of errors and their stable codes."""

from __future__ import annotations

from catalog.links import ERRORS, Links, source_link
from catalog.markdown import Page
from catalog.render import (
    constructor,
    constructor_doc,
    doc_sections,
    kind_of,
    methods,
    nested,
    property_list,
    wheel_heading,
)
from catalog.shapes import Value, Workspace

_DEFAULT = "Where none of the others is given."


def render(workspace: Workspace) -> str:
    """Return the page."""
    links = Links(workspace, ERRORS)
    errors = [value for value in workspace.values if value.kind == "error"]
    page = Page("Errors")
    page.add(
        f"Every error derives from {links.named('dsh.core.DshError')} unless its entry says "
        "otherwise. `code` is stable and meant for programs; the wording of messages may change. "
        "`hint` says what to do, where that is known."
    )
    page.heading(2, "All codes")
    codes = sorted((code.code, one.path) for one in errors for code in one.codes)
    page.table(["Code", "Error"], ([f"`{code}`", links.named(path)] for code, path in codes))
    for wheel in workspace.wheels:
        mine = [one for one in errors if one.wheel == wheel.name]
        if mine:
            wheel_heading(page, wheel)
        for one in mine:
            page.heading(3, one.path)
            page.add(f"{kind_of(one, links)} Source: {source_link(one.source)}.")
            constructor(page, links, one)
            doc_sections(page, links, one.doc, one.wheel)
            constructor_doc(page, links, one)
            _codes(page, one)
            if one.properties:
                page.add("Properties and attributes:")
                property_list(page, links, one.properties)
            methods(page, links, one.methods, one.path.removeprefix("dsh."))
            nested(page, links, one.nested)
    return page.text()


def _codes(page: Page, error: Value) -> None:
    """Add the codes of an error: one as a line, several as a table with their meanings."""
    codes = error.codes
    if len(codes) == 1:
        (only,) = codes
        page.add(f"Code: `{only.code}`." if not only.doc else f"Code: `{only.code}`. {only.doc}")
        return
    page.table(
        ["Code", "Attribute", "Meaning"],
        (
            [f"`{one.code}`", f"`{one.name}`", one.doc or (_DEFAULT if one.name == "code" else "")]
            for one in codes
        ),
    )
