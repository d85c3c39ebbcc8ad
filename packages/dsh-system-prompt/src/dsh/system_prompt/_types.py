"""The values of a prompt assembly."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from dsh.agent import Agent
from dsh.llm import ToolSchema

__all__ = [
    "TOOL_ORDER_REST",
    "AssembleContext",
    "AssembledSection",
    "PromptAssembly",
    "SectionText",
    "ToolProvider",
    "ToolProviderResult",
    "VariableProvider",
]

TOOL_ORDER_REST: Final = "<unlisted-tools>"
"""In `tool_order`: where every tool goes that is not listed."""


@dataclass(frozen=True, slots=True)
class AssembleContext:
    """Whom a prompt is assembled for. Both fields may be None; providers must cope."""

    agent: Agent | None = None
    """The agent the prompt is for, for providers that need its session or options."""
    scope: object | None = None
    """The scope key that selects the layers; in practice the same agent."""

    @classmethod
    def for_agent(cls, agent: Agent) -> AssembleContext:
        """Return the context of an agent's own prompt: it is both the agent and the scope."""
        return cls(agent=agent, scope=agent)


SectionText: TypeAlias = str | Callable[[AssembleContext], str]
"""Text of a section, fixed or computed (synchronously) at every assembly."""

VariableProvider: TypeAlias = str | Callable[[AssembleContext], str | None]
"""Value of a variable, fixed or computed; None means that there is none this time."""


@dataclass(frozen=True, slots=True)
class ToolProviderResult:
    """What a tool provider contributes to one assembly."""

    schemas: Sequence[ToolSchema]
    """The tools to offer."""
    known_names: Sequence[str] | None = None
    """Names that exist even if they are not offered this time. None: the names of `schemas`."""


ToolProvider: TypeAlias = Callable[[AssembleContext], ToolProviderResult | Sequence[ToolSchema]]
"""Called at every assembly, synchronously."""


@dataclass(frozen=True, slots=True)
class AssembledSection:
    """A section with its text resolved; references in the text are not yet filled in."""

    name: str
    """Unique within the assembly."""
    order: float
    """Where it stands; lower comes first."""
    text: str
    """The text, which may refer to variables as `{{name}}`."""


@dataclass(slots=True)
class PromptAssembly:
    """A prompt on its way to the model. Listeners may change the lists in place."""

    sections: list[AssembledSection] = field(default_factory=list[AssembledSection])
    """In the order in which they are rendered."""
    tools: list[ToolSchema] = field(default_factory=list[ToolSchema])
    """In the order in which they are offered."""
    variables: dict[str, str | None] = field(default_factory=dict[str, "str | None"])
    """Values for references; None: registered, but without a value this time."""
