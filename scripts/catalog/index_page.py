"""The first page of the catalog."""

from __future__ import annotations

from catalog.markdown import COMMAND, Page
from catalog.shapes import Workspace

SECTIONS: dict[str, dict[str, str]] = {
    "Look something up": {
        "events-and-services.md": "Every event and every service, with signatures",
        "modules.md": "Every public module and what it offers",
        "kernel-api.md": "`Context`, `Plugin`, `App` and what else `dsh.core` offers",
        "classes-and-functions.md": "The other public classes and functions",
        "data-structures.md": "What events and services carry, and the open vocabularies",
        "session-events.md": "What stands in a session's log, in Python and on the wire",
        "errors.md": "Every error and its stable codes",
        "tools.md": "The tools a model can be given",
        "config.md": "What each plugin can be configured with",
        "dsh.schema.json": "The JSON Schema of a deployment file, for editors",
    },
    "See how it fits together": {
        "events-map.md": "Who dispatches and who listens to each event",
        "seams.md": "Who provides and who uses each service",
        "wheels.md": "Which wheel depends on which",
        "a-turn.md": "One turn as it was recorded, event by event",
    },
}
"""Headings of the index, each with its files and what they show, in reading order."""


def render(workspace: Workspace) -> str:
    """Return the page."""
    page = Page("Catalog")
    page.add(
        f"Reference of the {len(workspace.wheels)} wheels of this workspace: "
        f"{len(workspace.events)} events, {len(workspace.services)} services, "
        f"{len(workspace.payloads)} event types of the session log and {len(workspace.plugins)} "
        "plugins. Nothing here is edited by hand. Most pages are made from the declarations and "
        "docstrings in the sources without importing them. [config.md](config.md), its schema and "
        "[tools.md](tools.md) are read from the installed plugins, which are imported for it, and "
        "[a-turn.md](a-turn.md) is a turn that the generator runs and records."
    )
    page.add(
        "To change what a page says, change the docstring or the declaration it comes from, then "
        "write the pages anew:"
    )
    page.add(f"```sh no-run\n{COMMAND}\n```")
    page.add(
        f"`{COMMAND} --check` writes nothing, shows what differs and exits with 1 if anything "
        "does; CI runs it. It also fails when a declaration would leave a hole: an event without "
        "a docstring, a field nobody explains, a class that no public module exports."
    )
    for heading, files in SECTIONS.items():
        page.heading(2, heading)
        page.items(f"[{file}]({file}): {text}." for file, text in files.items())
    return page.text()
