"""Prompt assembly: sections, variables and tool schemas."""

__all__: list[str] = []
