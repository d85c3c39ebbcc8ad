"""Wire form of headers and events: what a store keeps and what `--json` prints."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

from pydantic import ValidationError

from dsh.core import NotJsonError
from dsh.core import json as djson
from dsh.core.vocabulary import adapter_of
from dsh.session._event import APPEND, Replace, SessionEvent, SurfaceOp
from dsh.session._freeze import thaw
from dsh.session._session_data import SessionData, UnknownData, is_spine, registered_type, type_name
from dsh.session._session_header import SESSION_FORMAT_VERSION, SessionHeader
from dsh.session.errors import SessionFormatError

__all__ = ["event_from_wire", "event_to_wire", "header_from_wire", "header_to_wire"]

_ENVELOPE: Final = frozenset(
    {"type", "seq", "time", "data", "surfaceOp", "sourceEventSeqs", "ignorable"}
)


def event_to_wire(event: SessionEvent) -> dict[str, Any]:
    """Return an event as a JSON object in camelCase; absent fields are left out."""
    data = event.data
    wire: dict[str, Any] = {
        "type": type_name(data),
        "seq": event.seq,
        "time": event.time,
        "data": _payload_to_wire(data),
    }
    if isinstance(data, UnknownData) and data.ignorable:
        wire["ignorable"] = True
    op = event.surface_op
    if isinstance(op, Replace):
        wire["surfaceOp"] = {"op": "replace", "start": op.start, "end": op.end}
    elif op is not None:
        wire["surfaceOp"] = "append"
    if event.source_event_seqs is not None:
        wire["sourceEventSeqs"] = list(event.source_event_seqs)
    return wire


def event_from_wire(wire: Mapping[str, Any]) -> SessionEvent:
    """Read an event.

    A log-only type that no live class declares, or whose declared class does not fit what was
    written, comes back as `UnknownData`; nothing of it is lost.

    Raises:
        SessionFormatError: Code `UNKNOWN_SURFACE_TYPE` names a type that stands in the history
            and is not known; `MALFORMED_EVENT` says what of the envelope or of the payload of
            one of the spine's own types cannot be read.
    """
    event_type, seq, time = wire.get("type"), wire.get("seq"), wire.get("time")
    if not isinstance(event_type, str):
        raise _malformed(event_type, seq, "its type is no string")
    if type(seq) is not int or type(time) is not int:
        raise _malformed(event_type, seq, "seq and time must be integers")
    foreign = sorted(set(wire) - _ENVELOPE)
    if foreign:
        raise _malformed(event_type, seq, f"unknown fields {', '.join(foreign)}")
    surface = _surface_from_wire(event_type, seq, wire.get("surfaceOp"))
    cls = registered_type(event_type)
    if surface is not None and (cls is None or not cls.surface_eligible):
        raise SessionFormatError(
            f"the event at seq {seq} has type {event_type!r}, which stands in the model's "
            "history and is not known here",
            code=SessionFormatError.UNKNOWN_SURFACE_TYPE,
            hint="open this session with the version that wrote it, or a newer one",
        )
    data = _payload_from_wire(cls, event_type, seq, wire)
    return SessionEvent(seq, time, data, surface, _sources(event_type, seq, wire))


def header_to_wire(header: SessionHeader) -> dict[str, Any]:
    """Return a header as a JSON object in camelCase; absent fields are left out."""
    return cast("dict[str, Any]", _dump(header))


def header_from_wire(wire: Mapping[str, Any]) -> SessionHeader:
    """Read a header; the version is looked at before anything else.

    Raises:
        SessionFormatError: Code `UNSUPPORTED_VERSION` when another version wrote it;
            `MALFORMED_HEADER` says what cannot be read.
    """
    version = wire.get("version")
    if type(version) is int and version != SESSION_FORMAT_VERSION:
        newer = version > SESSION_FORMAT_VERSION
        raise SessionFormatError(
            f"session {wire.get('id')!r} is stored in format {version}, and this version reads "
            f"format {SESSION_FORMAT_VERSION}",
            code=SessionFormatError.UNSUPPORTED_VERSION,
            hint="upgrade to read it; it is left as it is"
            if newer
            else "open it with the version that wrote it; it is left as it is",
        )
    if type(version) is not int:
        raise SessionFormatError(
            "a session header lacks its version", code=SessionFormatError.MALFORMED_HEADER
        )
    try:
        header = cast("SessionHeader", adapter_of(SessionHeader).validate_python(dict(wire)))
    except ValidationError as error:
        raise SessionFormatError(
            f"the header of session {wire.get('id')!r} cannot be read: {_first(error)}",
            code=SessionFormatError.MALFORMED_HEADER,
        ) from error
    if header.created_at < 0:
        raise SessionFormatError(
            f"the header of session {header.id!r} has a negative createdAt",
            code=SessionFormatError.MALFORMED_HEADER,
        )
    return header


def _payload_to_wire(data: SessionData) -> Any:
    if isinstance(data, UnknownData):
        return thaw(data.data)
    return _dump(data)


def _payload_from_wire(
    cls: type[SessionData] | None, event_type: str, seq: int, wire: Mapping[str, Any]
) -> SessionData:
    raw = wire.get("data")
    if not isinstance(raw, Mapping):
        raise _malformed(event_type, seq, "its data is no object")
    raw = cast("Mapping[str, Any]", raw)
    if cls is not None:
        try:
            return cast("SessionData", adapter_of(cls).validate_python(raw))
        except ValidationError as error:
            if is_spine(cls):
                raise _malformed(event_type, seq, _first(error)) from error
    try:
        kept = cast("dict[str, Any]", djson.check(raw, where=f"{event_type} at seq {seq}"))
    except NotJsonError as error:
        raise _malformed(event_type, seq, error.message) from error
    return UnknownData(event_type, kept, wire.get("ignorable") is True)


def _surface_from_wire(event_type: str, seq: int, op: object) -> SurfaceOp | None:
    if op is None:
        return None
    if op == "append":
        return APPEND
    if isinstance(op, Mapping):
        fields = cast("Mapping[str, Any]", op)
        start, end = fields.get("start"), fields.get("end")
        if fields.get("op") == "replace" and type(start) is int and type(end) is int:
            return Replace(start, end)
    raise _malformed(event_type, seq, "its surfaceOp is neither append nor a replace")


def _sources(event_type: str, seq: int, wire: Mapping[str, Any]) -> tuple[int, ...] | None:
    found = wire.get("sourceEventSeqs")
    if found is None:
        return None
    if isinstance(found, list):
        items = cast("list[object]", found)
        seqs = tuple(item for item in items if type(item) is int)
        if len(seqs) == len(items):
            return seqs
    raise _malformed(event_type, seq, "its sourceEventSeqs is no list of integers")


def _dump(value: object) -> Any:
    return adapter_of(type(value)).dump_python(value, mode="json", by_alias=True, exclude_none=True)


def _malformed(event_type: object, seq: object, problem: str) -> SessionFormatError:
    return SessionFormatError(
        f"the event at seq {seq!r} of type {event_type!r} cannot be read: {problem}",
        code=SessionFormatError.MALFORMED_EVENT,
    )


def _first(error: ValidationError) -> str:
    found = error.errors(include_url=False, include_input=False)[0]
    path = ".".join(str(part) for part in found["loc"])
    return f"{path}: {found['msg']}" if path else found["msg"]
