"""Events as bytes: what `event_to_wire` and `event_from_wire` mean, without the objects between.

A long session has a hundred thousand events, nearly all of them deltas of a stream. So deltas are
written by hand, and the spine's own types are read by one pydantic schema each, from the text
straight into the event. Whatever does not fit its schema takes the long way, which also words the
refusal.
"""

from __future__ import annotations

from collections.abc import Callable
from json.encoder import encode_basestring as _quoted
from typing import Annotated, Any, Final, NamedTuple, TypeAlias, cast

from pydantic import GetCoreSchemaHandler, TypeAdapter, ValidationError
from pydantic_core import (
    CoreSchema,
    PydanticSerializationError,
    SchemaValidator,
    from_json,
)
from pydantic_core import core_schema as cs

from dsh.core import NotJsonError
from dsh.core import json as djson
from dsh.core.vocabulary import adapter_of
from dsh.llm import (
    BlockEnd,
    BlockStart,
    Finish,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    UsageChunk,
)
from dsh.session._event import APPEND, Replace, SessionEvent, SurfaceOp
from dsh.session._event_types import AssistantChunk
from dsh.session._freeze import thaw
from dsh.session._session_data import SessionData, UnknownData, is_spine, registered_type, type_name
from dsh.session._wire import event_from_wire
from dsh.session.errors import SessionFormatError

__all__ = ["EventRow", "decode_event", "encode_event", "event_from_row", "event_to_row"]


class EventRow(NamedTuple):
    """An event as a row of a table."""

    type: str
    """The event type."""
    seq: int
    """Index in the log."""
    time: int
    """Epoch milliseconds."""
    data: str
    """The payload as JSON."""
    surface_op: str | None = None
    """The surface operation as JSON."""
    source_event_seqs: str | None = None
    """The cited events as JSON."""
    ignorable: int | None = None
    """1 where the type is unknown and was marked as purely informational."""


def encode_event(event: SessionEvent) -> bytes:
    """Return an event's wire form as compact JSON, in one line without its end.

    Raises:
        NotJsonError: The event was never admitted by a session and is no JSON.
    """
    data = event.data
    written = _encode_data(data)
    event_type = _quoted(type_name(data))
    parts = [f'{{"type":{event_type},"seq":{event.seq},"time":{event.time},"data":{written}']
    if isinstance(data, UnknownData) and data.ignorable:
        parts.append(',"ignorable":true')
    if event.surface_op is not None:
        parts.append(f',"surfaceOp":{_encode_op(event.surface_op)}')
    if event.source_event_seqs is not None:
        parts.append(f',"sourceEventSeqs":{_encode_seqs(event.source_event_seqs)}')
    parts.append("}")
    return _sound("".join(parts), data)


def decode_event(line: bytes) -> SessionEvent:
    """Read an event from its JSON text; see `event_from_wire`.

    Raises:
        SessionFormatError: As `event_from_wire`; a text that is no JSON object is
            `MALFORMED_EVENT`.
    """
    read = _reader(line)
    if read is not None:
        try:
            return read(line)
        except ValidationError:
            pass  # what is wrong with it, or another spelling of the same, is told below
    wire = _parsed(line, "an event")
    if not isinstance(wire, dict):
        raise _malformed("an event is no JSON object")
    return event_from_wire(cast("dict[str, Any]", wire))


def event_to_row(event: SessionEvent) -> EventRow:
    """Return an event as a row.

    Raises:
        NotJsonError: The event was never admitted by a session and is no JSON.
    """
    data = event.data
    written = _encode_data(data)
    if not written.isascii():
        _sound(written, data)
    op, seqs = event.surface_op, event.source_event_seqs
    return EventRow(
        type_name(data),
        event.seq,
        event.time,
        written,
        None if op is None else _encode_op(op),
        None if seqs is None else _encode_seqs(seqs),
        1 if isinstance(data, UnknownData) and data.ignorable else None,
    )


def event_from_row(
    event_type: object,
    seq: object,
    time: object,
    data: object,
    surface_op: object = None,
    source_event_seqs: object = None,
    ignorable: object = None,
) -> SessionEvent:
    """Read an event from the values of an `EventRow`, in that order; see `event_from_wire`.

    Anything may stand in a column, so anything is taken.

    Raises:
        SessionFormatError: As `event_from_wire`; a column that should hold JSON and does not is
            `MALFORMED_EVENT`.
    """
    cls = _spine_type(event_type) if isinstance(event_type, str) and ignorable is None else None
    if cls is not None and type(seq) is int and type(time) is int:
        try:
            payload = adapter_of(cls).validate_json(cast("str", data))
            op = None if surface_op is None else _OP.validate_json(cast("str", surface_op))
            seqs = (
                None
                if source_event_seqs is None
                else _SEQS.validate_json(cast("str", source_event_seqs))
            )
        except (TypeError, ValueError):
            pass  # what is wrong, or another spelling of the same, is told below
        else:
            if op is None or cls.surface_eligible:
                return SessionEvent(seq, time, payload, op, seqs)
    where = f"the event at seq {seq!r} of type {event_type!r}"
    wire: dict[str, Any] = {
        "type": event_type,
        "seq": seq,
        "time": time,
        "data": _parsed(data, f"{where}: its data"),
    }
    if surface_op is not None:
        wire["surfaceOp"] = _parsed(surface_op, f"{where}: its surfaceOp")
    if source_event_seqs is not None:
        wire["sourceEventSeqs"] = _parsed(source_event_seqs, f"{where}: its sourceEventSeqs")
    if ignorable is not None:
        wire["ignorable"] = ignorable == 1
    return event_from_wire(wire)


# --- writing ------------------------------------------------------------------------------


def _sound(text: str, data: SessionData) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise NotJsonError(f"{type_name(data)} is not JSON: lone surrogate in a string") from error


def _encode_data(data: SessionData) -> str:
    if type(data) is AssistantChunk:
        written = _encode_delta(data)
        if written is not None:
            return written
    if isinstance(data, UnknownData):
        return djson.dumps(thaw(data.data)).decode()
    try:
        # the serializer itself: the adapter's method around it costs as much again
        write = adapter_of(type(data)).serializer.to_json
        return write(data, by_alias=True, exclude_none=True).decode()
    except PydanticSerializationError as error:
        raise NotJsonError(f"{type_name(data)} is not JSON: {error}") from error


def _encode_delta(data: AssistantChunk) -> str | None:
    """Return a delta as JSON, or None if it is another chunk or its fields are no deltas'."""
    chunk = data.chunk
    try:
        if isinstance(chunk, TextDelta | ReasoningDelta):
            rest = f'"text":{_quoted(chunk.text)}'
        elif isinstance(chunk, ToolCallDelta):
            name = "" if chunk.name is None else f'"name":{_quoted(chunk.name)},'
            rest = (
                f'"id":{_quoted(chunk.id)},{name}"argumentsDelta":{_quoted(chunk.arguments_delta)}'
            )
        else:
            return None
    except TypeError:
        return None
    turn, step, index = data.turn, data.step, chunk.index
    if not (type(turn) is int and type(step) is int and type(index) is int):
        return None
    return (
        f'{{"turn":{turn},"step":{step},"chunk":{{"type":"{chunk.type}","index":{index},{rest}}}}}'
    )


def _encode_op(op: SurfaceOp) -> str:
    if isinstance(op, Replace):
        return f'{{"op":"replace","start":{op.start},"end":{op.end}}}'
    return '"append"'


def _encode_seqs(seqs: tuple[int, ...]) -> str:
    return f"[{','.join(map(str, seqs))}]"


# --- reading ------------------------------------------------------------------------------

_HEAD: Final = b'{"type":"'
_CHUNK: Final = b'"chunk":{"type":"'
"""How `encode_event` starts an event, and the chunk in it."""

_Reader: TypeAlias = Callable[[bytes], SessionEvent]

_readers: Final[dict[bytes, _Reader | None]] = {}
_MOST: Final = 1000
"""So many type names are remembered; a log can hold any."""


def _reader(line: bytes) -> _Reader | None:
    """Return what reads whole events of the spine's type that a line starts with, if it does."""
    if not line.startswith(_HEAD):
        return None
    tag = line[9 : line.find(b'"', 9)]
    if tag == b"assistant/chunk":
        start = line.find(_CHUNK) + 17
        tag = line[start : line.find(b'"', start)]
    try:
        return _readers[tag]
    except KeyError:
        reader = _make_reader(tag.decode("ascii", "replace"))
        if len(_readers) < _MOST:
            _readers[tag] = reader
        return reader


def _make_reader(tag: str) -> _Reader | None:
    if tag in _DELTAS:
        schema = _Envelope(AssistantChunk, _delta_schema(_DELTAS[tag]))
    else:
        cls = _spine_type(tag) or (AssistantChunk if tag in _CHUNKS else None)
        if cls is None:
            return None
        schema = _Envelope(cls)
    # the adapter itself is a function call more, for each of a hundred thousand events
    validator = TypeAdapter[SessionEvent](Annotated[SessionEvent, schema]).validator
    return cast("_Reader", validator.validate_json)


def _spine_type(name: str) -> type[SessionData] | None:
    cls = registered_type(name)
    return cls if cls is not None and is_spine(cls) else None


class _Envelope:
    """Annotation of a schema that takes the events `event_from_wire` takes, of one spine type.

    Other types are left to that function: a plugin's class may read differently from text than
    from objects, and what does not fit it is kept as `UnknownData`.
    """

    __slots__ = ("_cls", "_schema")

    def __init__(self, cls: type[SessionData], schema: CoreSchema | None = None) -> None:
        self._cls = cls
        self._schema = schema

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        cls = self._cls
        whole = cs.int_schema(strict=True)
        op = _op_schema() if cls.surface_eligible else cs.none_schema()
        fields = [
            cs.dataclass_field("type", cs.literal_schema([cls.event_type]), init_only=True),
            cs.dataclass_field("seq", whole),
            cs.dataclass_field("time", whole),
            cs.dataclass_field("data", self._schema or handler.generate_schema(cls)),
            cs.dataclass_field(
                "surface_op",
                cs.with_default_schema(op, default=None),
                validation_alias="surfaceOp",
            ),
            cs.dataclass_field(
                "source_event_seqs",
                cs.with_default_schema(_seqs_schema(), default=None),
                validation_alias="sourceEventSeqs",
            ),
        ]
        return _closed(SessionEvent, fields)


_DELTAS: Final[dict[str, type[TextDelta | ReasoningDelta | ToolCallDelta]]] = {
    cls.type: cls for cls in (TextDelta, ReasoningDelta, ToolCallDelta)
}
_CHUNKS: Final = frozenset(cls.type for cls in (BlockStart, BlockEnd, UsageChunk, Finish))


def _delta_schema(cls: type[TextDelta | ReasoningDelta | ToolCallDelta]) -> CoreSchema:
    """Return the schema of a chunk event with this delta, which saves looking for its kind."""
    whole, text = cs.int_schema(strict=True), cs.str_schema(strict=True)
    delta = [
        cs.dataclass_field("type", cs.literal_schema([cls.type]), init_only=True),
        cs.dataclass_field("index", whole),
    ]
    if cls is ToolCallDelta:
        delta += [
            cs.dataclass_field("id", text),
            cs.dataclass_field("arguments_delta", text, validation_alias="argumentsDelta"),
            cs.dataclass_field("name", cs.with_default_schema(text, default=None)),
        ]
    else:
        delta.append(cs.dataclass_field("text", text))
    chunk = [
        cs.dataclass_field("turn", whole),
        cs.dataclass_field("step", whole),
        cs.dataclass_field("chunk", _closed(cls, delta)),
    ]
    return _closed(AssistantChunk, chunk)


def _closed(cls: type[Any], fields: list[cs.DataclassField]) -> CoreSchema:
    names = [field["name"] for field in fields if not field.get("init_only")]
    args = cs.dataclass_args_schema(cls.__name__, fields, extra_behavior="forbid")
    return cs.dataclass_schema(cls, args, names, slots=True, frozen=True)


def _op_schema() -> CoreSchema:
    return cs.no_info_plain_validator_function(_read_op)


def _read_op(value: object) -> SurfaceOp | None:
    if value is None:
        return None
    if value == "append":
        return APPEND
    raise ValueError("another surface operation")


def _seqs_schema() -> CoreSchema:
    return cs.nullable_schema(cs.tuple_variable_schema(cs.int_schema(strict=True), strict=False))


_OP: Final = SchemaValidator(_op_schema())
_SEQS: Final = SchemaValidator(_seqs_schema())


def _parsed(text: object, what: str) -> object:
    if isinstance(text, str | bytes):
        try:
            return from_json(text, allow_inf_nan=False)
        except ValueError:
            pass  # it may be nested deeper than that parser goes
        try:
            return djson.loads(text)
        except NotJsonError as error:
            raise _malformed(f"{what} is no JSON: {error.message}") from error
    raise _malformed(f"{what} is no text")


def _malformed(problem: str) -> SessionFormatError:
    return SessionFormatError(problem, code=SessionFormatError.MALFORMED_EVENT)
