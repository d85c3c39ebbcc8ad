"""The order in which tools are offered to the model."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from dsh.llm import ToolSchema
from dsh.system_prompt._types import TOOL_ORDER_REST
from dsh.system_prompt.errors import PromptError

__all__ = ["check_tool_order", "order_tools"]


def check_tool_order(order: Sequence[str]) -> None:
    """Refuse a configured order that could not be applied.

    Raises:
        ValueError: A name is listed twice, or the marker for the rest is not listed.
    """
    doubles = sorted({name for name in order if order.count(name) > 1})
    if doubles:
        raise ValueError(f"tool_order lists {', '.join(map(repr, doubles))} more than once")
    if TOOL_ORDER_REST not in order:
        raise ValueError(
            f"tool_order must say where all other tools go: add {TOOL_ORDER_REST!r} to the list"
        )


def order_tools(
    tools: Sequence[ToolSchema], order: Sequence[str] | None, known: Collection[str]
) -> list[ToolSchema]:
    """Sort tools by name, or as configured with the unlisted ones by name at the marker.

    Names compare by code point, whatever the locale; equal names keep their order.

    Raises:
        PromptError: Code `PROMPT_TOOL_ORDER` when a tool is named like the marker, or when the
            configured order lists names that are not in `known`.
    """
    if any(tool.name == TOOL_ORDER_REST for tool in tools):
        raise PromptError(
            f"a tool is named {TOOL_ORDER_REST!r}, which is the marker of the tool order",
            code=PromptError.TOOL_ORDER,
            hint="rename the tool",
        )
    by_name = sorted(tools, key=lambda tool: tool.name)
    if order is None:
        return by_name
    unknown = [name for name in order if name != TOOL_ORDER_REST and name not in known]
    if unknown:
        names = ", ".join(map(repr, unknown))
        raise PromptError(
            f"tool_order lists unknown tools {names}; known tools: "
            f"{', '.join(sorted(known)) or '(none)'}",
            code=PromptError.TOOL_ORDER,
            hint="correct the names, or mount what provides them",
        )
    rest = [tool for tool in by_name if tool.name not in order]
    ordered: list[ToolSchema] = []
    for name in order:
        if name == TOOL_ORDER_REST:
            ordered.extend(rest)
        else:
            ordered.extend(tool for tool in tools if tool.name == name)
    return ordered
