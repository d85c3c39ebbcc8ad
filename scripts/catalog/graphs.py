"""The pages that show how the parts hang together: events, services, wheels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import groupby
from pathlib import PurePosixPath

from catalog.links import Links
from catalog.markdown import Page
from catalog.mermaid import Graph, node_id
from catalog.shapes import Event, Provider, ServiceClass, Wheel, Workspace
from catalog.uses import EVERY_EVENT, Use, Uses, scan

EVENTS_MAP = "events-map.md"
SEAMS = "seams.md"
WHEELS = "wheels.md"

NOBODY = "-"

ROLES = {
    "kernel": "the kernel",
    "library": "libraries",
    "interface": "interfaces",
    "provider": "providers",
    "consumer": "consumers",
    "bundle": "bundles",
    "testkit": "test kits",
    "app": "apps",
}
"""Titles of the layers, lowest first."""


# --- events ---------------------------------------------------------------------------------


def render_events_map(workspace: Workspace) -> str:
    """Return the page that says who sends and who hears each event."""
    uses, links = scan(workspace), Links(workspace, EVENTS_MAP)
    page = Page("Who sends and who hears each event")
    page.add(
        "Read from the sources of every wheel. A dash means that no wheel of this workspace "
        "listens: the event is there for plugins. What only tests and test kits do is marked "
        "*tests*, and dotted in the diagrams."
    )
    for family, found in groupby(workspace.events, key=lambda event: event.name.split("/")[0]):
        events = list(found)
        page.heading(2, family)
        page.table(
            ("event", "mode", "scope", "sent by", "heard by"),
            [
                (
                    links.named(event.path, event.name),
                    event.mode,
                    f"`{event.scope}`" if event.scope else NOBODY,
                    _files(uses.of(event.name, "dispatch")),
                    _files(uses.of(event.name, "listen")),
                )
                for event in events
            ],
        )
        page.add(_event_graph(events, uses))
    observers = uses.of(EVERY_EVENT, "observe")
    if observers:
        page.heading(2, "Every dispatch")
        page.add(
            "`App.on_dispatch` shows its observers each event before any listener gets it. These "
            f"look at what they check in that way: {_files(observers)}."
        )
    return page.text()


def _files(uses: Iterable[Use]) -> str:
    """Return links to the files of some uses, those for tests last."""
    cells: dict[str, None] = {}
    for use in sorted(uses, key=lambda use: (use.testing, use.wheel, use.file)):
        link = f"[{use.wheel}/{PurePosixPath(use.file).name}](../../{use.file})"
        cells[_marked(link, use.testing)] = None
    return ", ".join(cells) or NOBODY


def _marked(text: str, testing: bool) -> str:
    return f"{text} *tests*" if testing else text


def _event_graph(events: list[Event], uses: Uses) -> str:
    graph = Graph("LR")
    for event in events:
        here = graph.node("event", event.name, f"{event.name}<br/>{event.mode}", "([])")
        for wheel, testing in _wheels(uses.of(event.name, "dispatch")).items():
            graph.edge(graph.node("from", wheel), _arrow(testing), here)
        for wheel, testing in _wheels(uses.of(event.name, "listen")).items():
            graph.edge(here, _arrow(testing), graph.node("to", wheel))
    return graph.text()


def _wheels(uses: Iterable[Use]) -> dict[str, bool]:
    """Return the wheels of some uses, each with whether only its tests are meant."""
    found: dict[str, bool] = {}
    for use in uses:
        found[use.wheel] = found.get(use.wheel, True) and use.testing
    return dict(sorted(found.items()))


def _arrow(dotted: bool) -> str:
    return "-.->" if dotted else "-->"


# --- services -------------------------------------------------------------------------------


def render_seams(workspace: Workspace) -> str:
    """Return the page that says who provides and who uses each service."""
    uses, links = scan(workspace), Links(workspace, SEAMS)
    page = Page("Services and seams")
    page.add(
        "A service is reached by its key. Who needs one waits until it is there and leaves with "
        "it; who uses one when it is there runs without it, too. Test kits use services as well "
        "and are left out here; a provider marked *tests* is one for tests. In the diagrams a "
        "dotted arrow is a use that can do without."
    )
    for title, text, abstract in (
        (
            "Seams",
            "Abstract services, made to have several providers. The loader picks one of those that "
            "are installed: [dsh-loader](../../packages/dsh-loader/README.md).",
            True,
        ),
        (
            "Other services",
            "Concrete services: the class that declares the key also provides it.",
            False,
        ),
    ):
        services = [one for one in workspace.services if one.abstract is abstract]
        page.heading(2, title)
        page.add(text)
        page.table(
            ("key", "class", "wheel", "providers", "needed by", "used when there by"),
            [_service_row(workspace, one, uses, links) for one in services],
        )
        page.add(_service_graph(workspace, services, uses))
    return page.text()


def consumers(service: ServiceClass, uses: Uses) -> dict[str, bool]:
    """Return the wheels that use a service of another wheel, and whether they can do without."""
    found: dict[str, bool] = {}
    for kind in ("inject", "read"):
        for use in uses.of(service.key, kind):
            if not use.testing and use.wheel != service.wheel:
                found[use.wheel] = found.get(use.wheel, True) and use.optional
    return dict(sorted(found.items()))


def _service_row(
    workspace: Workspace, service: ServiceClass, uses: Uses, links: Links
) -> tuple[str, ...]:
    users = consumers(service, uses)
    return (
        links.service(service.key),
        f"[`{service.cls}`](../../{service.source})",
        service.wheel,
        ", ".join(_provider_cells(workspace, service, uses)) or NOBODY,
        ", ".join(wheel for wheel, optional in users.items() if not optional) or NOBODY,
        ", ".join(wheel for wheel, optional in users.items() if optional) or NOBODY,
    )


def _provider_cells(workspace: Workspace, service: ServiceClass, uses: Uses) -> list[str]:
    cells = [
        _marked(
            "itself"
            if provider.path == service.path
            else f"[`{provider.cls}`](../../{provider.source}) of {provider.wheel}",
            _for_tests(workspace, provider),
        )
        for provider in service.providers
    ]
    provided = uses.of(service.key, "provide")
    return cells + [_marked(f"[{use.wheel}](../../{use.file})", use.testing) for use in provided]


def _for_tests(workspace: Workspace, provider: Provider) -> bool:
    name = PurePosixPath(provider.source).stem
    return name == "testing" or workspace.wheel_of[provider.wheel].role == "testkit"


def _service_graph(workspace: Workspace, services: Iterable[ServiceClass], uses: Uses) -> str:
    graph = Graph("LR")
    for service in services:
        label = f"{service.key}<br/>{service.wheel}"
        here = graph.node("service", service.key, label, "{{}}")
        for wheel, optional in consumers(service, uses).items():
            graph.edge(graph.node("user", wheel), _arrow(optional), here)
        others = {
            provider.wheel: _for_tests(workspace, provider)
            for provider in service.providers
            if provider.path != service.path
        }
        others |= {use.wheel: use.testing for use in uses.of(service.key, "provide")}
        for wheel, testing in others.items():
            edge = "-. provided for tests by .-" if testing else "-- provided by ---"
            graph.edge(here, edge, graph.node("provider", wheel))
    return graph.text()


# --- wheels ---------------------------------------------------------------------------------


def render_wheels(workspace: Workspace) -> str:
    """Return the page of the wheels: what each is and what it depends on."""
    page = Page("The wheels")
    page.add(
        "An arrow points at what is depended on; an arrow that follows from others is not drawn, "
        "and the table has them all. Which role may depend on which is checked: "
        "[architecture](../architecture.md)."
    )
    page.add(_wheel_graph(workspace))
    page.table(
        ("wheel", "role", "what it is", "own wheels", "other distributions"),
        [
            (
                f"[{wheel.name}](../../{wheel.folder}/README.md)",
                wheel.role,
                wheel.description,
                ", ".join(name.removeprefix("dsh-") for name in wheel.dependencies) or NOBODY,
                ", ".join(f"`{need}`" for need in wheel.foreign) or NOBODY,
            )
            for wheel in sorted(workspace.wheels, key=_by_layer)
        ],
    )
    return page.text()


def _by_layer(wheel: Wheel) -> tuple[int, str, str]:
    order = list(ROLES)
    place = order.index(wheel.role) if wheel.role in ROLES else len(order)
    return (place, wheel.role, wheel.name)


def _wheel_graph(workspace: Workspace) -> str:
    graph = Graph("BT")
    ordered = sorted(workspace.wheels, key=_by_layer)
    for role, found in groupby(ordered, key=lambda wheel: wheel.role):
        with graph.frame("layer", role, ROLES.get(role, role)):
            for wheel in found:
                graph.node("wheel", wheel.name)
    direct = {wheel.name: frozenset(wheel.dependencies) for wheel in workspace.wheels}
    for name, needs in sorted(reduced(direct).items()):
        for need in sorted(needs):
            graph.edge(node_id("wheel", name), "-->", node_id("wheel", need))
    return graph.text()


def reduced(direct: Mapping[str, frozenset[str]]) -> dict[str, frozenset[str]]:
    """Return the transitive reduction of a graph without cycles.

    Args:
        direct: What each node depends on.
    """
    reach: dict[str, frozenset[str]] = {}

    def below(node: str) -> frozenset[str]:
        if node not in reach:
            reach[node] = frozenset()  # a cycle would end here
            needs = direct.get(node, frozenset())
            reach[node] = needs.union(*(below(need) for need in needs))
        return reach[node]

    return {
        node: frozenset(
            need for need in needs if not any(need in below(other) for other in needs - {need})
        )
        for node, needs in direct.items()
    }
