"""The page of classes with behaviour and of functions, outside of the kernel."""

from __future__ import annotations

from catalog.links import CLASSES, Links, function_heading, page_of, source_link
from catalog.markdown import Page
from catalog.render import method, value, wheel_heading
from catalog.shapes import Workspace


def render(workspace: Workspace) -> str:
    """Return the page."""
    links = Links(workspace, CLASSES)
    page = Page("Classes and functions")
    page.add(
        "Public classes with behaviour, and public functions, by wheel. Services are on "
        "[events and services](events-and-services.md), the kernel on "
        "[kernel API](kernel-api.md), plain values on [data structures](data-structures.md)."
    )
    for wheel in workspace.wheels:
        classes = [
            one for one in workspace.values if one.wheel == wheel.name and page_of(one) == CLASSES
        ]
        functions = [
            one
            for one in workspace.functions
            if one.wheel == wheel.name and not one.path.startswith("dsh.core.")
        ]
        if not classes and not functions:
            continue
        wheel_heading(page, wheel)
        named = [links.named(one.path, one.cls) for one in classes]
        named += [links.named(one.path, f"{one.name}()") for one in functions]
        page.add("Here: " + ", ".join(named) + ".")
        for one in classes:
            value(page, links, one)
        for one in functions:
            method(page, links, one, function_heading(one), level=3)
            page.add(f"Import: `{one.path}`. Source: {source_link(one.source)}.")
    return page.text()
