"""What makes a value of this package understand its wire form wherever pydantic meets it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler
    from pydantic_core import CoreSchema


class WireValue:
    """Base of every value with a wire form; a pydantic field of such a type just works."""

    __slots__ = ()

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        # Imported here so that a program that never loads or dumps pays for no schema.
        from dsh.llm._decode import schema_of

        return schema_of(cls)


class WireUnion:
    """Annotation of a union alias: which family of values the `type` key chooses from."""

    __slots__ = ("family",)

    def __init__(self, family: str) -> None:
        self.family = family

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        from dsh.llm._decode import FAMILIES

        # Through a class, because pydantic lifts the definitions out of a class's schema only.
        return handler.generate_schema(FAMILIES[self.family])

    def __repr__(self) -> str:
        return f"WireUnion({self.family!r})"
