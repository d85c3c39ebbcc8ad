"""The page of public modules: what each is for, and what it offers."""

from __future__ import annotations

from catalog.links import MODULES, Links, source_link
from catalog.markdown import Page
from catalog.render import doc_sections, wheel_heading
from catalog.shapes import Workspace


def render(workspace: Workspace) -> str:
    """Return the page."""
    links = Links(workspace, MODULES)
    page = Page("Modules")
    page.add(
        "Every module that may be imported, by wheel, and the names it lists as public. A name "
        "leads to its entry in this catalog."
    )
    for wheel in workspace.wheels:
        wheel_heading(page, wheel)
        for one in workspace.modules:
            if one.wheel != wheel.name:
                continue
            page.heading(3, one.path)
            page.add(f"Source: {source_link(one.source)}.")
            doc_sections(page, links, one.doc, one.wheel)
            offers = ", ".join(links.named(path, name) for name, path in one.offers)
            page.add(f"Offers {offers}." if offers else "Offers no names.")
    return page.text()
