"""The page of errors and their stable codes."""

from __future__ import annotations

from catalog.links import ERRORS, Links, source_link
from catalog.markdown import Page
from catalog.render import constructor, doc_sections, kind_of, methods, property_list, wheel_heading
from catalog.shapes import Workspace


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
    codes = sorted((code, one.path) for one in errors for code, _ in one.codes)
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
            if one.codes:
                page.add("Codes: " + ", ".join(f"`{code}`" for code, _ in one.codes) + ".")
            shown = [item for item in one.properties if item.default is None]
            property_list(page, links, shown)
            methods(page, links, one.methods, one.path.removeprefix("dsh."))
    return page.text()
