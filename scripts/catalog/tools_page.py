"""The page of the tools that the wheels offer a model.

Tools are made at run time, from settings among other things, so each plugin that asks for the
tool registry is started beside the spine, and what its agent is then offered is written down. No
model is called and no tool is run.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import anyio

from catalog.config_examples import example_settings
from catalog.config_fields import rows_of
from catalog.links import source_link
from catalog.live import LivePlugin, live_plugins, model_of, mounted_by_bundle, points_of
from catalog.markdown import Page, slug
from catalog.shapes import Workspace
from dsh.core import DshError
from dsh.loader import open_app
from dsh.loader.schema import settings_schema
from dsh.system_prompt import AssembleContext, AssembledSection, SystemPrompt
from dsh.tools import Tool, ToolRegistry

_FOLDER: Final = "/"
"""Where the agent works, so that no text can hold a path of this machine."""


@dataclass(frozen=True, slots=True)
class Offer:
    """What an agent gets: tools by name, and sections of the prompt by name."""

    tools: Mapping[str, Tool]
    """The tools."""
    sections: Mapping[str, AssembledSection]
    """The sections."""

    def without(self, other: Offer) -> Offer:
        """Return what is not in another offer, compared by name."""
        return Offer(
            {name: tool for name, tool in self.tools.items() if name not in other.tools},
            {name: item for name, item in self.sections.items() if name not in other.sections},
        )


def render(workspace: Workspace) -> str:
    """Return the page."""
    spine = anyio.run(_offered, None)
    offers = {
        item.name: anyio.run(_offered, item).without(spine) for item in tool_plugins(workspace)
    }
    plugins = {item.name: item for item in live_plugins(workspace)}
    bundles = sorted({name for _, name in points_of(workspace, "dsh.bundles")})
    if spine.tools and bundles:
        offers = {bundles[0]: spine, **offers}
    _refuse_silent(offers, plugins)
    page = Page("Tools")
    page.add(
        "The tools that the wheels of this workspace offer a model, as it sees them with the "
        "settings a plugin has by default. A deployment offers those of the plugins it names."
    )
    page.table(
        ["Tool", "Plugin", "What it does"],
        (
            [
                f"[`{name}`](#{slug(_heading(name, plugin))})",
                f"[{plugin}](#plugin-{plugin})",
                _first(tool.description),
            ]
            for plugin, offer in offers.items()
            for name, tool in offer.tools.items()
        ),
    )
    for name, offer in offers.items():
        if offer.tools:
            _plugin(page, plugins[name], offer)
    return page.text()


def tool_plugins(workspace: Workspace) -> list[LivePlugin]:
    """Return the plugins that ask for the tool registry and are no part of a bundle.

    Args:
        workspace: The workspace.
    """
    mounted = mounted_by_bundle(workspace)
    return [
        item
        for item in live_plugins(workspace)
        if item.target not in mounted and any(i.key == "tools" for i in item.plugin.injects)
    ]


def _refuse_silent(offers: Mapping[str, Offer], plugins: Mapping[str, LivePlugin]) -> None:
    """Refuse wheels that are there to offer tools and offer none.

    Raises:
        ValueError: Names them.
    """
    wheels = {item.plugin.wheel for item in plugins.values()}
    busy = {plugins[name].plugin.wheel for name, offer in offers.items() if offer.tools}
    silent = sorted(wheel for wheel in wheels - busy if wheel.startswith("dsh-tool-"))
    if silent:
        raise ValueError(f"no plugin of {', '.join(silent)} registers a tool when it starts")


async def _offered(item: LivePlugin | None) -> Offer:
    """Start the spine, and a plugin if one is given, and return what an agent is offered."""
    deployment = {"plugins": [] if item is None else [_row(item)]}
    try:
        async with open_app(deployment) as app, app.agent(cwd=_FOLDER) as agent:
            context = AssembleContext.for_agent(agent)
            assembly = await app[SystemPrompt].assemble(context)
            return Offer(
                {tool.name: tool for tool in app[ToolRegistry].visible(agent)},
                {section.name: section for section in assembly.sections},
            )
    except DshError as error:
        name = "the spine" if item is None else f"plugin {item.name!r}"
        raise ValueError(f"{name} does not start: {error}") from error


def _row(item: LivePlugin) -> dict[str, Any]:
    model = model_of(item.target)
    if model is None or not any(field.is_required() for field in model.model_fields.values()):
        return {"use": item.name}
    schema: Mapping[str, Any] = settings_schema(item.target)
    return {"use": item.name, "config": example_settings(item.name, model, schema)}


# -- how it looks --------------------------------------------------------------------------------


def _plugin(page: Page, item: LivePlugin, offer: Offer) -> None:
    page.heading(2, f"Plugin {item.name}")
    page.add(f"In `{item.plugin.wheel}`. Source: {source_link(item.plugin.source)}.")
    page.add(item.plugin.doc.text)
    for tool in offer.tools.values():
        _tool(page, tool, _heading(tool.name, item.name))
    if offer.sections:
        page.heading(3, f"Prompt of {item.name}")
        page.add("What it adds to the system prompt.")
    for section in offer.sections.values():
        page.add(f"Section `{section.name}`, order {section.order:g}:")
        page.add(_fenced("text", section.text))


def _heading(tool: str, plugin: str) -> str:
    """Return the heading of a tool; two plugins may be alternatives that offer the same one."""
    return f"Tool {tool} of {plugin}"


def _tool(page: Page, tool: Tool, heading: str) -> None:
    page.heading(3, heading)
    page.add(_fenced("text", tool.description))
    rows = rows_of(tool.parameters)
    page.table(
        ["Parameter", "Type", "Required", "Limits", "Meaning"],
        (
            [
                f"`{row.path}`",
                row.type,
                "yes" if row.default == "required" else _unless(row.default),
                row.limits,
                row.doc,
            ]
            for row in rows
        ),
    )
    if not rows:
        page.add("It takes no parameters.")
    page.add(_overlap(tool))
    if tool.timeout_ms is not None:
        page.add(f"Its time budget is {tool.timeout_ms:g} ms.")
    page.add("The schema of its parameters:")
    page.add(_fenced("json", json.dumps(tool.parameters, indent=2, ensure_ascii=False)))


def _unless(default: str) -> str:
    return f"no; {default} when absent" if default else "no"


def _overlap(tool: Tool) -> str:
    if tool.concurrent is True:
        return "Calls of it may overlap with other calls that may."
    if tool.concurrent is False:
        return "No other call runs beside one of it."
    return "Whether a call may overlap with others depends on its arguments."


def _first(text: str) -> str:
    return text.split("\n\n")[0].split(". ")[0].replace("\n", " ").rstrip(".") + "."


def _fenced(language: str, text: str) -> str:
    """Return a fenced block whose fence is longer than any inside it."""
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}{language}\n{text}\n{fence}"
