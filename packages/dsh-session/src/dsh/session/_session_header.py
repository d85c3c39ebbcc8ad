"""What is known about a session besides its log."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

from pydantic import ConfigDict

from dsh.core.vocabulary import WIRE_CONFIG
from dsh.session._open_union import Whole

__all__ = ["SESSION_FORMAT_VERSION", "SessionHeader", "SessionMeta"]

SESSION_FORMAT_VERSION: Final = 0
"""Version of the header and event forms that this wheel writes, and the only one it reads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionHeader:
    """A session's metadata. It is no event and the model never sees it."""

    __pydantic_config__: ClassVar[ConfigDict] = WIRE_CONFIG
    version: Whole = SESSION_FORMAT_VERSION
    """Version of the log's form."""
    id: str
    """The session's id; an opaque string."""
    created_at: Whole
    """Epoch milliseconds."""
    cwd: str | None = None
    """Absolute path of the working directory."""
    parent_session: str | None = None
    """Id of the session this one was forked from."""
    seed_length: Whole | None = None
    """Number of leading events inherited from the parent."""
    origin: str | None = None
    """Who made it, where not a person: `subagent`."""
    delegation_depth: Whole | None = None
    """How many agents stand between this one and a person."""
    agent_preset: str | None = None
    """Name of the preset the agent was made from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionMeta:
    """What the maker of a session says about it; `sessions` adds id and version."""

    cwd: str | None = None
    """Absolute path of the working directory."""
    created_at: int | None = None
    """Epoch milliseconds; now if None."""
    parent_session: str | None = None
    """Id of the session it was forked from."""
    seed_length: int | None = None
    """How many events of the seed were inherited. A resume passes the stored number."""
    origin: str | None = None
    """`subagent` where an agent made it."""
    delegation_depth: int | None = None
    """How many agents stand between it and a person."""
    agent_preset: str | None = None
    """Name of the preset the agent was made from."""

    @classmethod
    def of(cls, header: SessionHeader) -> SessionMeta:
        """Return what a stored header says, for a session that goes on under its old id."""
        return cls(
            cwd=header.cwd,
            created_at=header.created_at,
            parent_session=header.parent_session,
            seed_length=header.seed_length,
            origin=header.origin,
            delegation_depth=header.delegation_depth,
            agent_preset=header.agent_preset,
        )
