"""Which checks run: two lists of patterns, a switch and a level."""

from __future__ import annotations

import re
from typing import Literal, TypeAlias

from pydantic import field_validator

from dsh.core import PluginConfig

__all__ = ["InvariantsConfig", "Level", "is_selected"]

Level: TypeAlias = Literal["basic", "full"]
"""`basic` is cheap enough for every run; `full` adds what only tests can afford."""


class InvariantsConfig(PluginConfig):
    """Configuration of the invariants service."""

    enabled: bool = True
    """Whether any check runs at all."""
    level: Level = "basic"
    """How much is checked; the environment variable `DSH_INVARIANTS` wins over it."""
    allow: tuple[str, ...] = ()
    """Regular expressions, case-sensitive and unanchored: run only the checks whose name one of
    them finds. Empty runs all."""
    block: tuple[str, ...] = ()
    """Regular expressions: leave out the checks whose name one of them finds. Wins over `allow`."""

    @field_validator("allow", "block")
    @classmethod
    def _sound(cls, patterns: tuple[str, ...]) -> tuple[str, ...]:
        for index, pattern in enumerate(patterns):
            if not pattern.strip():
                raise ValueError(f"pattern {index} is blank")
            if pattern != pattern.strip():
                raise ValueError(f"pattern {pattern!r} has spaces around it")
            if pattern in patterns[:index]:
                raise ValueError(f"pattern {pattern!r} is listed twice")
            try:
                re.compile(pattern)
            except re.error as error:
                raise ValueError(f"pattern {pattern!r} is no regular expression: {error}") from None
        return patterns


def is_selected(config: InvariantsConfig, name: str) -> bool:
    """Say whether the checks registered under `name` are to run, whatever the level."""
    if not config.enabled:
        return False
    if config.allow and not any(re.search(pattern, name) for pattern in config.allow):
        return False
    return not any(re.search(pattern, name) for pattern in config.block)
