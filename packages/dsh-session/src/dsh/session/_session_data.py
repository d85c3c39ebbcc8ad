"""The base class of event payloads and the registry of event types."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from pydantic import ConfigDict

from dsh.core import NotJsonError
from dsh.core.vocabulary import WIRE_CONFIG, Vocabulary
from dsh.session.errors import SessionTypeError

__all__ = [
    "SessionData",
    "UnknownData",
    "event_types",
    "is_spine",
    "no_payload",
    "registered_type",
    "type_name",
]

_TYPE_NAME: Final = re.compile(r"[a-z][a-z0-9-]*(?:/[a-z][a-z0-9-]*)+")

_types: Vocabulary[SessionData] = Vocabulary(
    "event type",
    "event_type",
    pattern=_TYPE_NAME,
    form="of the form family/name",
    error=SessionTypeError,
    codes=(SessionTypeError.BAD_EVENT_TYPE, SessionTypeError.DUPLICATE_EVENT_TYPE),
)


class SessionData:
    """Payload of one event type: a frozen slots dataclass whose fields survive JSON.

    Declaring a subclass registers it, so logs that contain the type load as that class::

        @dataclass(frozen=True, slots=True)
        class GoalSet(SessionData, type="goal/set"):
            \"\"\"A goal was set.\"\"\"

            text: str

    Fields are snake_case here and camelCase on the wire. Lists are tuples, free-form JSON is a
    `Mapping[str, Any]`. Only the spine's own types reach the model's history; a plugin's types
    are log-only.

    Raises:
        SessionTypeError: Code `BAD_EVENT_TYPE` when the name is not `family/name` in lower case,
            `DUPLICATE_EVENT_TYPE` when another live class has the type.
    """

    __slots__ = ()
    __pydantic_config__: ClassVar[ConfigDict] = WIRE_CONFIG
    event_type: ClassVar[str]
    """The type's name in the log, `family/name`."""
    surface_eligible: ClassVar[bool] = False
    """Whether events of this type stand in the model's history and need a surface operation."""

    def __init_subclass__(
        cls, type: str | None = None, surface: bool = False, **kwargs: Any
    ) -> None:
        super().__init_subclass__(**kwargs)
        if surface and not is_spine(cls):
            raise SessionTypeError(
                f"{cls.__qualname__}: only the spine's own types stand in the history",
                code=SessionTypeError.BAD_EVENT_TYPE,
                hint="leave surface=True out, and log a context/message for the model",
            )
        _types.declare(cls, type)
        if type is not None:
            cls.surface_eligible = surface


@dataclass(frozen=True, slots=True)
class UnknownData(SessionData):
    """Payload of a log-only type that no installed wheel declares; kept and written verbatim."""

    type: str
    """The type's name as read."""
    data: Mapping[str, Any]
    """The payload as on the wire."""
    ignorable: bool = False
    """Whether the writer marked the event as purely informational."""

    def __post_init__(self) -> None:
        known = _types.get(self.type)
        if known is not None and is_spine(known):
            raise SessionTypeError(
                f"UnknownData cannot stand for the spine's own type {self.type!r}",
                code=SessionTypeError.BAD_EVENT_TYPE,
                hint=f"use {known.__name__}",
            )


def is_spine(cls: type) -> bool:
    """Whether a class belongs to this wheel, so that every reader has it."""
    return cls.__module__.startswith("dsh.session.")


def type_name(data: SessionData) -> str:
    """Return the event type of a payload, also of one that no class declares.

    Raises:
        SessionTypeError: Code `BAD_EVENT_TYPE`: its class has no type.
    """
    try:
        return data.type if isinstance(data, UnknownData) else data.event_type
    except AttributeError:
        name = type(data).__name__
        raise SessionTypeError(
            f"{name} has no event type, so no log can hold it",
            code=SessionTypeError.BAD_EVENT_TYPE,
            hint=f'class {name}(SessionData, type="my-plugin/thing")',
        ) from None


def no_payload(value: object) -> NotJsonError:
    """Return the error of something that was given for the payload of an event and is none."""
    if isinstance(value, type):
        told, hint = f"the class {value.__name__}", f"log an instance: {value.__name__}(...)"
    else:
        told = type(value).__name__
        hint = "log an instance of a class that derives from dsh.session.SessionData"
    return NotJsonError(f"{told} is not JSON: no event payload", hint=hint)


def registered_type(name: str) -> type[SessionData] | None:
    """Return the payload class of an event type, or None if no live class declares it."""
    return _types.get(name)


def event_types() -> Mapping[str, type[SessionData]]:
    """Return every registered event type with its payload class, sorted by name."""
    return _types.classes()
