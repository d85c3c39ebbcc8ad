"""Errors of the adapter. Failed calls are `dsh.llm.errors.LlmError`s with the codes listed there.

One code is added: `INVALID_ENDPOINT` means that the connection is configured in a way that can
never work (a base URL that is none, an unreadable file of authorities, an unusable proxy).
"""

from __future__ import annotations

from typing import Final

__all__ = ["INVALID_ENDPOINT", "ProviderResponse"]

INVALID_ENDPOINT: Final = "INVALID_ENDPOINT"
"""The base URL, the proxy or the certificate authorities are not usable as configured."""


class ProviderResponse(Exception):
    """The provider's answer to a refused request; the cause of the `LlmError` that reports it."""

    def __init__(self, status: int, body: str) -> None:
        """Keep what came back.

        Args:
            status: The HTTP status.
            body: The body as text, without secrets, cut after 64 KiB.
        """
        super().__init__(f"HTTP {status}: {body[:1000]}")
        self.status = status
        self.body = body
