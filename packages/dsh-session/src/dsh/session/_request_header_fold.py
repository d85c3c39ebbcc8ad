"""The request header in force: snapshots and deltas folded over a log."""

from __future__ import annotations

from collections.abc import Iterable

from dsh.session._event import SessionEvent
from dsh.session._event_types import RequestHeaderDelta, RequestHeaderSnapshot
from dsh.session._request_header import (
    RequestHeader,
    apply_system,
    apply_tools,
    canonical_header,
    diff_system,
    diff_tools,
)
from dsh.session.errors import HeaderFoldError

__all__ = ["apply_header_delta", "diff_header", "fold_request_header"]


def fold_request_header(
    events: Iterable[SessionEvent], start: RequestHeader | None = None
) -> RequestHeader | None:
    """Return the header in force after `events`, or None if none was ever logged.

    Args:
        events: A log or a part of one.
        start: The header in force before them.

    Raises:
        HeaderFoldError: A delta stands before any snapshot, or does not fit: the log is corrupt.
    """
    header = start
    for event in events:
        data = event.data
        if isinstance(data, RequestHeaderSnapshot):
            header = canonical_header(data.header)
        elif isinstance(data, RequestHeaderDelta):
            if header is None:
                raise HeaderFoldError(
                    f"request/header-delta at seq {event.seq} stands before any request/header: "
                    "the log is corrupt"
                )
            header = apply_header_delta(header, data)
    return header


def diff_header(old: RequestHeader, new: RequestHeader) -> RequestHeaderDelta | None:
    """Return the amendment that leads from `old` to `new`, or None if they are equal.

    Both are taken in canonical form. The amendment may fall short where tools changed their
    order; apply it and compare before relying on it.
    """
    old, new = canonical_header(old), canonical_header(new)
    if old == new:
        return None
    system = None if old.system == new.system else diff_system(old.system, new.system)
    tools = None if old.tools == new.tools else diff_tools(old.tools or (), new.tools or ())
    config = None if old.config == new.config else new.config
    same_prefix = old.message_prefix == new.message_prefix
    return RequestHeaderDelta(
        system=system,
        tools=tools,
        config=config,
        message_prefix=None if same_prefix else new.message_prefix or (),
    )


def apply_header_delta(header: RequestHeader, delta: RequestHeaderDelta) -> RequestHeader:
    """Return the amended header in canonical form.

    Raises:
        HeaderFoldError: The amendment does not fit this header.
    """
    try:
        system = (
            header.system if delta.system is None else apply_system(header.system, delta.system)
        )
    except ValueError as error:
        raise HeaderFoldError(
            f"request/header-delta does not fit the header before it: {error}; the log is corrupt"
        ) from error
    prefix = header.message_prefix if delta.message_prefix is None else delta.message_prefix
    return canonical_header(
        RequestHeader(
            config=header.config if delta.config is None else delta.config,
            system=system,
            tools=header.tools
            if delta.tools is None
            else apply_tools(header.tools or (), delta.tools),
            message_prefix=prefix,
        )
    )
