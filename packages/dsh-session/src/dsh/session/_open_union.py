"""Wire form of open tagged unions: `{"kind": ..., fields}` with unknown kinds kept verbatim."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Final, TypeAlias, cast

from pydantic import ConfigDict, GetCoreSchemaHandler, Strict, TypeAdapter
from pydantic.alias_generators import to_camel
from pydantic_core import CoreSchema, core_schema

__all__ = ["WIRE_CONFIG", "Flag", "OpenUnion", "Tagged", "Whole", "adapter_of"]

WIRE_CONFIG: Final = ConfigDict(
    alias_generator=to_camel,
    validate_by_name=False,
    extra="forbid",
    allow_inf_nan=False,
)
"""Snake case inside, camel case outside, no unknown fields."""

Whole: TypeAlias = Annotated[int, Strict()]
"""An integer that is read as such: no text, no boolean, no 1.0."""

Flag: TypeAlias = Annotated[bool, Strict()]
"""A boolean that is read as such."""

_ADAPTER: Final = "__dsh_wire_adapter__"


def adapter_of(cls: type[Any]) -> TypeAdapter[Any]:
    """Return the pydantic adapter of a dataclass; built on first use."""
    # kept on the class itself, so that it does not outlive a reloaded plugin
    adapter = cls.__dict__.get(_ADAPTER)
    if adapter is None:
        adapter = TypeAdapter(cls)
        setattr(cls, _ADAPTER, adapter)
    return cast("TypeAdapter[Any]", adapter)


class Tagged:
    """Base of one known member of an open union."""

    __slots__ = ()
    __pydantic_config__: ClassVar[ConfigDict] = WIRE_CONFIG
    kind: ClassVar[str]
    """The tag on the wire."""


class OpenUnion:
    """Annotation that carries a union to and from `{"kind": ..., fields}`.

    Args:
        known: The members with a kind of their own.
        other: Made as `other(kind, data)` for every kind not among `known`.
    """

    __slots__ = ("_by_kind", "_other")

    def __init__(self, known: tuple[type[Tagged], ...], other: type[Any]) -> None:
        self._by_kind: dict[str, type[Tagged]] = {cls.kind: cls for cls in known}
        self._other = other

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """Build the schema; members get their own adapters when a value first needs one."""
        return core_schema.no_info_plain_validator_function(
            self._load,
            serialization=core_schema.plain_serializer_function_ser_schema(self._dump),
        )

    def _load(self, value: object) -> object:
        if isinstance(value, Tagged | self._other):
            return value
        if not isinstance(value, Mapping):
            raise ValueError("expected an object with a kind")
        fields = dict(cast("Mapping[str, Any]", value))
        kind = fields.pop("kind", None)
        if not isinstance(kind, str):
            raise ValueError("kind must be a string")
        cls = self._by_kind.get(kind)
        if cls is None:
            return self._other(kind, fields)
        return adapter_of(cls).validate_python(fields)

    def _dump(self, value: Any) -> dict[str, Any]:
        if isinstance(value, self._other):
            return {"kind": value.kind, **value.data}
        cls = cast("type[Tagged]", type(value))
        fields = adapter_of(cls).dump_python(value, mode="json", by_alias=True, exclude_none=True)
        return {"kind": cls.kind, **fields}
