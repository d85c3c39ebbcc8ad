"""Prompt assembly: sections, variables and tool schemas."""

from dsh.system_prompt._render import render_prompt
from dsh.system_prompt._service import (
    IDENTITY,
    IDENTITY_SECTION,
    PERSONA_SECTION,
    SystemPrompt,
)
from dsh.system_prompt._types import (
    TOOL_ORDER_REST,
    AssembleContext,
    AssembledSection,
    PromptAssembly,
    SectionText,
    ToolProvider,
    ToolProviderResult,
    VariableProvider,
)
from dsh.system_prompt.errors import PromptError
from dsh.system_prompt.events import SystemPromptAssemble, SystemPromptChange

__all__ = [
    "IDENTITY",
    "IDENTITY_SECTION",
    "PERSONA_SECTION",
    "TOOL_ORDER_REST",
    "AssembleContext",
    "AssembledSection",
    "PromptAssembly",
    "PromptError",
    "SectionText",
    "SystemPrompt",
    "SystemPromptAssemble",
    "SystemPromptChange",
    "ToolProvider",
    "ToolProviderResult",
    "VariableProvider",
    "render_prompt",
]
