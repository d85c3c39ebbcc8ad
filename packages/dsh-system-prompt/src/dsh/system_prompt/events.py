"""Events of the prompt service."""

from __future__ import annotations

from dataclasses import dataclass

from dsh.core import Emit, Waterfall
from dsh.system_prompt._types import AssembleContext, PromptAssembly

__all__ = ["SystemPromptAssemble", "SystemPromptChange"]


@dataclass(frozen=True, slots=True)
class SystemPromptAssemble(
    Waterfall[PromptAssembly],
    name="system-prompt/assemble",
    scope="context.scope",
    realm="system_prompt",
):
    """Change a prompt after it was collected and before it is rendered.

    Change the lists of `assembly` in place and return `await next()`, or return another
    assembly. Returning without `next()` leaves out every listener further in. Protected
    sections and tools are put back afterwards, whatever happens here.
    """

    assembly: PromptAssembly
    """The collected prompt: sections by order, tools in their final order."""
    context: AssembleContext
    """Whom it is for."""


@dataclass(frozen=True, slots=True)
class SystemPromptChange(Emit, name="system-prompt/change", errors="raise", realm="system_prompt"):
    """A section, variable, tool provider or protection was added or removed.

    Of no scope: heard outside of scopes, and with `audience="all"`. A listener that raises while
    something is added rolls the addition back.
    """
