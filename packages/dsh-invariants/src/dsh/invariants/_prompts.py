"""Checks of an assembled prompt, after every listener had its way."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from dsh.core import Context, Next
from dsh.invariants._service import Reporter
from dsh.system_prompt import PromptAssembly
from dsh.system_prompt.events import SystemPromptAssemble

__all__ = ["check_assembly", "install"]

_VARIABLE: Final = re.compile(r"[a-z][a-z0-9_]*")


def check_assembly(assembly: PromptAssembly, report: Reporter) -> None:
    """Look at what an assembly has become.

    Raises:
        InvariantError: A name is empty or there twice, or a text or value is none.
    """
    _check_names("section", (item.name for item in assembly.sections), report)
    for section in assembly.sections:
        report.check(type(section.text) is str, f"the text of section {section.name!r} is no text")
    _check_names("tool", (tool.name for tool in assembly.tools), report)
    for name, value in assembly.variables.items():
        report.check(
            _VARIABLE.fullmatch(name) is not None, f"{name!r} is no name for a prompt variable"
        )
        report.check(
            value is None or type(value) is str, f"the prompt variable {name!r} is no text"
        )


def _check_names(what: str, names: Iterable[object], report: Reporter) -> None:
    seen: set[object] = set()
    for name in names:
        report.check(isinstance(name, str) and name != "", f"a prompt {what} has no name")
        report.check(name not in seen, f"the prompt {what} {name!r} is there twice")
        seen.add(name)


def install(ctx: Context, report: Reporter) -> None:
    """Look at what the outermost listener would return."""

    async def look(event: SystemPromptAssemble, next: Next[PromptAssembly]) -> PromptAssembly:
        assembly = await next()
        check_assembly(assembly, report)
        return assembly

    ctx.on(SystemPromptAssemble, look, prepend=True)
