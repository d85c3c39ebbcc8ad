"""Errors of the tool registry. `execute` raises none of them: there they become error results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from dsh.core import DshError

__all__ = [
    "ToolArgsError",
    "ToolCallError",
    "ToolDecisionError",
    "ToolDefinitionError",
    "ToolNotFoundError",
    "ToolOutputError",
    "ToolRegistrationError",
    "ToolTimeoutError",
]


class ToolNotFoundError(DshError, LookupError):
    """The model called a tool that its agent does not see."""

    UNKNOWN_TOOL: ClassVar[str] = "UNKNOWN_TOOL"

    def __init__(self, name: str, hint: str | None = None) -> None:
        super().__init__(f"unknown tool {name!r}", code=self.UNKNOWN_TOOL, hint=hint)
        self.name = name


class ToolArgsError(DshError, ValueError):
    """The arguments of a call do not fit the tool; `violations` has one sentence each."""

    INVALID_ARGS: ClassVar[str] = "INVALID_ARGS"

    def __init__(self, violations: Sequence[str]) -> None:
        self.violations = tuple(violations)
        super().__init__("invalid arguments: " + "; ".join(self.violations), code=self.INVALID_ARGS)


class ToolCallError(DshError):
    """A call cannot be considered at all."""

    UNKNOWN_PARENT: ClassVar[str] = "UNKNOWN_PARENT"
    """It names a parent that the registry did not make."""

    def __init__(self, message: str) -> None:
        super().__init__(message, code=self.UNKNOWN_PARENT)


class ToolDefinitionError(DshError, ValueError):
    """A tool is declared in a way that cannot work."""

    INVALID_TOOL: ClassVar[str] = "INVALID_TOOL"

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message, code=self.INVALID_TOOL, hint=hint)


class ToolRegistrationError(DshError):
    """A tool, restriction or guard cannot be registered here; the code says why."""

    DUPLICATE: ClassVar[str] = "DUPLICATE_TOOL"
    """A tool of this name is already registered in this layer."""
    UNSCOPED: ClassVar[str] = "RESTRICTION_UNSCOPED"
    """A restriction needs an agent's context; this one belongs to nobody."""
    EMPTY: ClassVar[str] = "RESTRICTION_EMPTY"
    """The restriction would restrict nothing."""
    UNKNOWN_NAMES: ClassVar[str] = "RESTRICTION_UNKNOWN_NAMES"
    """The restriction names tools that the scope does not inherit."""
    BAD_NAMES: ClassVar[str] = "RESTRICTION_BAD_NAMES"
    """The names are not a collection of strings."""
    BAD_GUARD: ClassVar[str] = "INVALID_GUARD"
    """The guard is not a synchronous callable."""


class ToolDecisionError(DshError, TypeError):
    """A policy returned something that is not a decision; the call is refused."""

    BAD_PRE_DECISION: ClassVar[str] = "INVALID_PRE_DECISION"
    """A `tools/pre-execute` listener."""
    BAD_POST_DECISION: ClassVar[str] = "INVALID_POST_DECISION"
    """A `tools/post-execute` listener."""
    BAD_GUARD_RESULT: ClassVar[str] = "INVALID_GUARD_RESULT"
    """A guard."""
    BAD_APPROVAL: ClassVar[str] = "INVALID_APPROVAL_OUTCOME"
    """The approval service."""


class ToolOutputError(DshError, TypeError):
    """A tool or a `tools/execute` wrapper produced something that cannot be a result."""

    INVALID_RESULT: ClassVar[str] = "INVALID_RESULT"

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message, code=self.INVALID_RESULT, hint=hint)


class ToolTimeoutError(DshError, TimeoutError):
    """A call took longer than its tool declares."""

    TIMEOUT: ClassVar[str] = "TOOL_TIMEOUT"

    def __init__(self, message: str) -> None:
        super().__init__(message, code=self.TIMEOUT)
