"""Errors of the prompt service."""

from __future__ import annotations

from typing import ClassVar

from dsh.core import DshError

__all__ = ["PromptError"]


class PromptError(DshError):
    """A prompt could not be composed, assembled or rendered; the code says what was wrong."""

    DUPLICATE: ClassVar[str] = "PROMPT_DUPLICATE"
    """A section or variable of this name is already registered in this layer."""
    INVALID: ClassVar[str] = "PROMPT_INVALID"
    """A registration has an unusable name, order, text or provider."""
    PROTECTED: ClassVar[str] = "PROMPT_PROTECTED"
    """The name is protected, or it is already shadowed and so cannot be protected."""
    TOOL_ORDER: ClassVar[str] = "PROMPT_TOOL_ORDER"
    """The configured tool order names unknown tools, or a tool is named like its marker."""
    BAD_ASSEMBLY: ClassVar[str] = "PROMPT_BAD_ASSEMBLY"
    """A provider or listener returned something that is no part of a prompt."""
    MALFORMED_REFERENCE: ClassVar[str] = "PROMPT_MALFORMED_REFERENCE"
    """A section holds double braces that are no reference."""
    UNKNOWN_VARIABLE: ClassVar[str] = "PROMPT_UNKNOWN_VARIABLE"
    """A section refers to a variable nobody registered."""
    NO_VALUE: ClassVar[str] = "PROMPT_NO_VALUE"
    """A section refers to a variable that has no value in this assembly."""
