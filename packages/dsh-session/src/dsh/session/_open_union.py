"""Open unions inside payloads: `{"kind": ..., fields}`, with unknown kinds kept verbatim."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, TypeAlias, cast

from pydantic import ConfigDict, GetCoreSchemaHandler, Strict, ValidationError
from pydantic_core import CoreSchema, core_schema

from dsh.core import VocabularyError
from dsh.core.vocabulary import WIRE_CONFIG, Vocabulary, adapter_of
from dsh.session._session_data import is_spine

__all__ = ["Family", "Flag", "OpenUnion", "Undeclared", "Whole"]

Whole: TypeAlias = Annotated[int, Strict()]
"""An integer that is read as such: no text, no boolean, no 1.0."""

Flag: TypeAlias = Annotated[bool, Strict()]
"""A boolean that is read as such."""


class Family(Vocabulary["OpenUnion"]):
    """The live members of one family, and what stands for the kinds that no member declares."""

    stand_in: Callable[[str, Mapping[str, Any]], OpenUnion]
    """Makes such a value of its tag and its other fields: the family's `Undeclared` class."""


class OpenUnion:
    """Base of a family of tagged values; a family derives from it and members from the family.

    A family needs one class that also derives from `Undeclared`; it has no tag of its own.

    Args of the class statement:
        kind: The tag of a member.
        family: What a tag is called in messages; given by a family and by nobody else.
    """

    __slots__ = ()
    __pydantic_config__: ClassVar[ConfigDict] = WIRE_CONFIG
    kinds: ClassVar[Family]
    """The live members of the family, a `dsh.core.vocabulary.Vocabulary`."""
    kind: str
    """The tag on the wire."""

    def __init_subclass__(
        cls, kind: str | None = None, family: str | None = None, **kwargs: Any
    ) -> None:
        super().__init_subclass__(**kwargs)
        if family is not None:
            cls.kinds = Family(family, "kind")
        elif Undeclared in cls.__bases__:
            cls.kinds.stand_in = cls
        else:
            cls.kinds.declare(cls, kind)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Build the schema; of a family the one of all its members, present and future."""
        if "kinds" not in cls.__dict__:
            return handler(source)
        return core_schema.no_info_plain_validator_function(
            cls._load, serialization=core_schema.plain_serializer_function_ser_schema(_dump)
        )

    @classmethod
    def _load(cls, value: object) -> OpenUnion:
        if isinstance(value, cls):
            return value
        if not isinstance(value, Mapping):
            raise ValueError("expected an object with a kind")
        fields = dict(cast("Mapping[str, Any]", value))
        kind = fields.pop("kind", None)
        if not isinstance(kind, str):
            raise ValueError("kind must be a string")
        member = cls.kinds.get(kind)
        if member is not None:
            try:
                return cast("OpenUnion", adapter_of(member).validate_python(fields))
            except ValidationError:
                if is_spine(member):
                    raise
        return cls.kinds.stand_in(kind, fields)


@dataclass(frozen=True, slots=True)
class Undeclared:
    """What the classes share that stand for kinds nobody here knows."""

    kinds: ClassVar[Family]
    kind: str
    """The tag, as on the wire."""
    data: Mapping[str, Any]
    """The remaining fields, as on the wire."""

    def __post_init__(self) -> None:
        known = self.kinds.get(self.kind)
        if known is not None and is_spine(known):
            raise VocabularyError(
                f"{type(self).__name__} cannot stand for the spine's own kind {self.kind!r}",
                hint=f"use {known.__name__}",
            )
        if "kind" in self.data:
            raise VocabularyError(
                f"the data of an {type(self).__name__} holds the fields besides 'kind'",
                hint="leave the key out",
            )


def _dump(value: OpenUnion) -> dict[str, Any]:
    if isinstance(value, Undeclared):
        return {"kind": value.kind, **value.data}
    fields = adapter_of(type(value)).dump_python(
        value, mode="json", by_alias=True, exclude_none=True
    )
    return {"kind": value.kind, **fields}
