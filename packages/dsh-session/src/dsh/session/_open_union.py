"""Open unions inside payloads: `{"kind": ..., fields}`, with unknown kinds kept verbatim."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Self, TypeAlias, cast

from pydantic import ConfigDict, GetCoreSchemaHandler, Strict, ValidationError
from pydantic_core import CoreSchema, core_schema

from dsh.core import VocabularyError
from dsh.core.vocabulary import WIRE_CONFIG, Vocabulary, adapter_of

__all__ = ["Flag", "OpenUnion", "Undeclared", "Whole"]

Whole: TypeAlias = Annotated[int, Strict()]
"""An integer that is read as such: no text, no boolean, no 1.0."""

Flag: TypeAlias = Annotated[bool, Strict()]
"""A boolean that is read as such."""


class OpenUnion:
    """Base of a family of tagged values; a family derives from it and members from the family.

    Args of the class statement:
        kind: The tag of a member.
        family: What a tag is called in messages; given by a family and by nobody else.
    """

    __slots__ = ()
    __pydantic_config__: ClassVar[ConfigDict] = WIRE_CONFIG
    kinds: ClassVar[Vocabulary[OpenUnion]]
    """The live members of the family."""
    kind: str
    """The tag on the wire."""

    def __init_subclass__(
        cls, kind: str | None = None, family: str | None = None, **kwargs: Any
    ) -> None:
        super().__init_subclass__(**kwargs)
        if family is not None:
            cls.kinds = Vocabulary(family, "kind")
        else:
            cls.kinds.declare(cls, kind)

    @classmethod
    def undeclared(cls, kind: str, data: Mapping[str, Any]) -> Self:
        """Return what stands for a kind that no live class declares."""
        raise NotImplementedError

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
        return cls.undeclared(kind, fields)


class Undeclared:
    """What the classes share that stand for kinds nobody here knows."""

    __slots__ = ()
    kinds: ClassVar[Vocabulary[OpenUnion]]
    kind: str
    data: Mapping[str, Any]

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


def is_spine(cls: type) -> bool:
    """Whether a class belongs to this wheel, so that every reader has it."""
    return cls.__module__.startswith("dsh.session.")


def _dump(value: OpenUnion) -> dict[str, Any]:
    if isinstance(value, Undeclared):
        return {"kind": value.kind, **value.data}
    fields = adapter_of(type(value)).dump_python(
        value, mode="json", by_alias=True, exclude_none=True
    )
    return {"kind": value.kind, **fields}
