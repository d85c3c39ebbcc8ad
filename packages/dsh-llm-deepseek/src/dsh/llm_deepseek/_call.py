"""One request, ready to be sent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pydantic import SecretStr

from dsh.llm_deepseek._limits import Limits


@dataclass(frozen=True, slots=True)
class Call:
    """Everything one request needs to know, gathered before the first byte is sent."""

    provider: str
    """Who is asked, for messages."""
    body: bytes = field(repr=False)
    """What is asked."""
    key: SecretStr | None
    """The key."""
    key_name: str
    """Where the key is looked for, for messages."""
    headers: Mapping[str, str] = field(repr=False)
    """The headers, without the key; names in lower case."""
    limits: Limits
    """How long it may wait."""
