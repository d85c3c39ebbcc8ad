"""One request, ready to be sent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pydantic import SecretStr


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
    idle_s: float
    """See `DeepSeekConfig.idle_timeout_s`."""
    progress_s: float
    """See `DeepSeekConfig.progress_timeout_s`."""
    connect_s: float
    """See `DeepSeekConfig.connect_timeout_s`."""
