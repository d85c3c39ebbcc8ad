"""The page of the kernel: what every plugin stands on."""

from __future__ import annotations

from dataclasses import replace

from catalog.links import KERNEL, Links, function_heading, source_link
from catalog.markdown import Page
from catalog.render import method, value
from catalog.shapes import Value, Workspace

CHAPTERS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    (
        "Writing a plugin",
        "A plugin is a class with a lifecycle. It declares what it injects, how it is configured "
        "and what it listens to.",
        ("Plugin", "Service", "PluginConfig", "inject", "settings", "on", "Inject", "Settings"),
    ),
    (
        "Contexts and registrations",
        "A context is what a plugin reads services from and registers through; every "
        "registration is an effect that can be taken back.",
        ("Context", "Effect", "Registration", "Scope"),
    ),
    (
        "Events",
        "An event derives from one of five modes; `Next` is what the listener of a waterfall "
        "calls.",
        (
            "Event",
            "Emit",
            "Parallel",
            "Serial",
            "Waterfall",
            "StreamWaterfall",
            "Next",
            "NextStream",
        ),
    ),
    (
        "The app and its mounts",
        "An app holds the tree of mounted plugins and says why something is not active.",
        ("App", "Mount", "MountState", "Explanation", "MountReport", "MissingService", "Failure"),
    ),
)
"""The classes and functions most plugins meet, by subject; the rest follows by name."""

_INTERNAL_TEXT = {
    "App": "channel has_scope observers",
    "Context": "derive realm_of",
    "Effect": "discard collect",
    "Mount": "check_accepting wait_state accepting busy store entry background",
    "Registration": "impl",
}
INTERNAL = {name: frozenset(text.split()) for name, text in _INTERNAL_TEXT.items()}
"""Members that composition tools and tests call besides the kernel; what only the kernel calls
has an underscore."""


def render(workspace: Workspace) -> str:
    """Return the page.

    Raises:
        ValueError: A chapter or the list of internal members names what is no longer there.
    """
    links = Links(workspace, KERNEL)
    page = Page("Kernel API")
    page.add(
        "What `dsh.core` offers: everything here is imported from there unless its heading says "
        "otherwise. Its errors are on [errors](errors.md). Members that only the kernel itself "
        "and composition tools call are left out; they are documented in the sources."
    )
    values = {
        one.path: one
        for one in workspace.values
        if one.path.startswith("dsh.core.") and one.kind != "error"
    }
    functions = {one.path: one for one in workspace.functions if one.path.startswith("dsh.core.")}
    if not values and not functions:
        return page.text()
    gone = sorted(INTERNAL.keys() - {one.cls for one in values.values()})
    if gone:
        raise ValueError(
            f"the kernel page hides members of {', '.join(gone)}, which dsh.core does not offer; "
            "update INTERNAL in scripts/catalog/kernel_page.py"
        )
    chosen = [f"dsh.core.{name}" for _, _, names in CHAPTERS for name in names]
    rest = sorted((set(values) | set(functions)) - set(chosen))
    chapters = [
        (title, text, [f"dsh.core.{name}" for name in names]) for title, text, names in CHAPTERS
    ]
    chapters.append(("More", "Values, helpers and modules.", rest))
    for title, text, paths in chapters:
        page.heading(2, title)
        known = [path for path in paths if path in values or path in functions]
        if len(known) != len(paths):
            lost = ", ".join(sorted(set(paths) - set(known)))
            raise ValueError(
                f"the kernel page lists {lost}, which dsh.core does not offer; "
                "update CHAPTERS in scripts/catalog/kernel_page.py"
            )
        page.add(text)
        page.add(
            "Here: " + ", ".join(links.named(p, p.removeprefix("dsh.core.")) for p in known) + "."
        )
        for path in known:
            if path in values:
                value(page, links, _shown(values[path]))
            else:
                one = functions[path]
                method(page, links, one, function_heading(one), level=3)
                page.add(f"Import: `{one.path}`. Source: {source_link(one.source)}.")
    return page.text()


def _shown(one: Value) -> Value:
    hidden = INTERNAL.get(one.cls, frozenset())
    names = {item.name for item in one.methods} | {item.name for item in one.properties}
    if hidden - names:
        raise ValueError(
            f"the kernel page hides {', '.join(sorted(hidden - names))} of {one.cls}, which it "
            "has not; update INTERNAL in scripts/catalog/kernel_page.py"
        )
    return replace(
        one,
        methods=tuple(item for item in one.methods if item.name not in hidden),
        properties=tuple(item for item in one.properties if item.name not in hidden),
    )
