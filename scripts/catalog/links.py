"""Where each entry of the catalog stands, so that pages can link to it."""

from __future__ import annotations

from catalog.markdown import slug
from catalog.shapes import Event, Method, Payload, Refs, ServiceClass, Value, Workspace

EVENTS = "events-and-services.md"
SESSION = "session-events.md"
DATA = "data-structures.md"
CLASSES = "classes-and-functions.md"
KERNEL = "kernel-api.md"
ERRORS = "errors.md"
CONFIG = "config.md"
MODULES = "modules.md"

FAMILIES = frozenset(
    {
        "dsh.llm.ContentBlock",
        "dsh.session.MessageSource",
        "dsh.session.TurnEndReason",
        "dsh.session.TurnTrigger",
    }
)
"""Bases of value types that wheels add to; they stand with their members."""


def page_of(value: Value) -> str:
    """Return the page a value stands on."""
    if value.kind == "error":
        return ERRORS
    if value.path.startswith("dsh.core."):
        return KERNEL
    return CLASSES if value.kind == "class" and value.path not in FAMILIES else DATA


def event_heading(event: Event) -> str:
    """Return the heading of an event."""
    return f"Event {event.name}"


def service_heading(service: ServiceClass) -> str:
    """Return the heading of a service."""
    return f"Service {service.key}"


def payload_heading(payload: Payload) -> str:
    """Return the heading of an event type of the log."""
    return payload.type


def value_heading(value: Value) -> str:
    """Return the heading of a value; a constant may differ from a class in case alone."""
    return f"{value.path} (constant)" if value.kind == "constant" else value.path


def function_heading(function: Method) -> str:
    """Return the heading of a function; a class may differ from it in case alone."""
    return f"{function.path} (function)"


class Links:
    """Knows the page and anchor of every public path.

    Args:
        workspace: What the pages are made from.
        page: The page that links; links within it are short.
    """

    def __init__(self, workspace: Workspace, page: str) -> None:
        self._page = page
        places: dict[str, tuple[str, str]] = {}
        for function in workspace.functions:
            home = KERNEL if function.path.startswith("dsh.core.") else CLASSES
            places[function.path] = (home, function_heading(function))
        for value in workspace.values:
            places[value.path] = (page_of(value), value_heading(value))
        for event in workspace.events:
            places[event.path] = (EVENTS, event_heading(event))
        for payload in workspace.payloads:
            places[payload.path] = (SESSION, payload_heading(payload))
        for service in workspace.services:
            places[service.path] = (EVENTS, service_heading(service))
        self._places = places
        self._errors: dict[str, list[str]] = {}
        self._wheel_of: dict[str, str] = {}
        for value in workspace.values:
            if value.kind == "error":
                self._errors.setdefault(value.cls, []).append(value.path)
                self._wheel_of[value.path] = value.wheel
        self._keys = {service.key: service.path for service in workspace.services}

    def url(self, path: str) -> str | None:
        """Return where a public path is described, or None."""
        place = self._places.get(path)
        if place is None:
            return None
        page, heading = place
        return f"{'' if page == self._page else page}#{slug(heading)}"

    def named(self, path: str, text: str | None = None) -> str:
        """Return a path or text as code, linked where there is something to link to."""
        shown = f"`{text or path}`"
        url = self.url(path)
        return shown if url is None else f"[{shown}]({url})"

    def service(self, key: str) -> str:
        """Return a service key as code, linked to its entry."""
        return self.named(self._keys.get(key, ""), key)

    def of(self, refs: Refs) -> dict[str, str]:
        """Return the targets of the names in a type text."""
        found = {name: self.url(path) for name, path in refs}
        return {name: url for name, url in found.items() if url is not None}

    def error(self, name: str, wheel: str) -> str:
        """Return the name of an error from a docstring, linked where it is clear which it is."""
        paths = self._errors.get(name.split(".")[-1], [])
        own = [path for path in paths if self._wheel_of[path] == wheel]
        clear = own or paths
        return self.named(clear[0], name) if len(clear) == 1 else f"`{name}`"


def plugin_link(name: str) -> str:
    """Return the name of an installed plugin, linked to what it can be configured with."""
    return f"[`{name}`]({CONFIG}#{slug(f'Plugin {name}')})"


def source_link(source: str) -> str:
    """Return a link from a page to a source file."""
    return f"[{source}](../../{source})"
