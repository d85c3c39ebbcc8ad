"""Check and freeze payloads on their way into the log, in one walk and without recursion.

What comes out shares everything that cannot change with what went in, and holds copies of the
rest, so that no later mutation by the caller reaches the log and no reader can change it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any, Final, NoReturn, SupportsIndex, TypeVar, cast
from weakref import WeakKeyDictionary

from dsh.core import NotJsonError
from dsh.core import json as djson

__all__ = ["FrozenDict", "FrozenList", "freeze", "mend_text", "thaw"]

_T = TypeVar("_T")

_DECLARE: Final = "declare it @dataclass(frozen=True, slots=True)"


def _refuse(self: object, *args: object, **kwargs: object) -> NoReturn:
    raise TypeError("this value is part of a session log and cannot change; copy it first")


class FrozenDict(dict[str, Any]):
    """A JSON object inside the log: reads like a dict, refuses every change."""

    __slots__ = ()
    __setitem__ = _refuse
    __delitem__ = _refuse
    __ior__ = _refuse
    clear = _refuse
    pop = _refuse
    popitem = _refuse
    setdefault = _refuse
    update = _refuse

    def __copy__(self) -> dict[str, Any]:
        """Return an ordinary dict with the same items."""
        return dict(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> dict[str, Any]:
        """Return ordinary dicts and lists all the way down."""
        return cast("dict[str, Any]", thaw(self))

    def __reduce_ex__(self, protocol: SupportsIndex) -> tuple[Any, ...]:
        """Pickle as what it is, since item assignment is refused."""
        return (FrozenDict, (dict(self),))


class FrozenList(list[Any]):
    """A JSON list inside the log: reads like a list, refuses every change."""

    __slots__ = ()
    __setitem__ = _refuse
    __delitem__ = _refuse
    __iadd__ = _refuse
    __imul__ = _refuse
    append = _refuse
    clear = _refuse
    extend = _refuse
    insert = _refuse
    pop = _refuse
    remove = _refuse
    reverse = _refuse
    sort = _refuse

    def __copy__(self) -> list[Any]:
        """Return an ordinary list with the same items."""
        return list(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> list[Any]:
        """Return ordinary dicts and lists all the way down."""
        return cast("list[Any]", thaw(self))

    def __reduce_ex__(self, protocol: SupportsIndex) -> tuple[Any, ...]:
        """Pickle as what it is, since appending is refused."""
        return (FrozenList, (list(self),))


def freeze(value: _T, *, where: str = "value", mend: bool = False) -> _T:
    """Return `value`, checked to be lossless JSON and detached from every mutable container.

    Dataclasses are walked field by field (fields that do not take part in comparison are no data
    and stay as they are); a list directly in a dataclass becomes a tuple; JSON objects and lists
    become read-only. Values that are immutable all through are returned as they are.

    Args:
        value: A payload, a content block, a sequence of blocks, a JSON value.
        where: Names the place in the error, an event type for example.
        mend: Replace lone surrogates by U+FFFD instead of refusing them.

    Raises:
        NotJsonError: Code `NOT_JSON` names the path and what stands there; code `JSON_TOO_DEEP`
            says that the nesting exceeds `dsh.core.json.MAX_DEPTH`.
    """
    if _is_flat(value):
        return value
    stack: list[_Frame] = []
    current: object = value
    while True:
        if _is_container(current):
            _guard(stack, current, where)
            frame = _open(current, stack, where)
            stack.append(frame)
        else:
            done = _leaf(current, stack, where, mend)
            if not stack:
                return cast("_T", done)
            frame = stack[-1]
            frame.put(current, done)
        while len(frame.out) == len(frame.items):
            built = frame.close()
            stack.pop()
            if not stack:
                return cast("_T", built)
            stack[-1].put(frame.source, built)
            frame = stack[-1]
        current = frame.items[len(frame.out)]


def _is_flat(value: object) -> bool:
    """Whether a value is a frozen dataclass of small integers and plain texts, as most are."""
    names = _data_fields(type(value)) if hasattr(type(value), "__dataclass_params__") else None
    if names is None:
        return False
    for name in names:
        item: object = getattr(value, name)
        if isinstance(item, str) and type(item) is str:
            if not item.isascii():
                return False
        elif isinstance(item, int) and type(item) in (int, bool):
            if abs(item) > djson.MAX_INTEGER:
                return False
        elif item is not None:
            return False
    return True


def thaw(value: Any) -> Any:
    """Return a logged JSON value as ordinary dicts and lists that may change.

    Recursion is safe here: `freeze` has bounded the depth.
    """
    if isinstance(value, dict):
        return {key: thaw(item) for key, item in cast("dict[str, object]", value).items()}
    if isinstance(value, list):
        return [thaw(item) for item in cast("list[object]", value)]
    return value


def mend_text(text: str) -> str:
    """Return `text` with surrogate pairs joined and lone surrogates replaced by U+FFFD."""
    if text.isascii():
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


class _Frame:
    """One container being walked: what it is, its children, what became of them so far."""

    __slots__ = ("changed", "in_json", "items", "keys", "out", "source")

    def __init__(
        self, source: object, keys: tuple[str, ...] | None, items: list[object], in_json: bool
    ) -> None:
        self.source = source
        self.keys = keys
        self.items = items
        self.in_json = in_json
        self.out: list[object] = []
        self.changed = False

    def put(self, before: object, after: object) -> None:
        self.out.append(after)
        if before is not after:
            self.changed = True

    def close(self) -> object:
        source, keys = self.source, self.keys
        if isinstance(source, Mapping):
            if type(self.source) is FrozenDict and not self.changed:
                return self.source
            return FrozenDict(zip(cast("tuple[str, ...]", keys), self.out, strict=True))
        if isinstance(source, list | tuple):
            return self._close_sequence()
        if not self.changed:
            return source
        pairs = zip(cast("tuple[str, ...]", keys), self.items, self.out, strict=True)
        changes = {key: after for key, before, after in pairs if before is not after}
        return replace(cast("Any", source), **changes)

    def _close_sequence(self) -> object:
        wanted: type = FrozenList if self.in_json else tuple
        if type(self.source) is wanted and not self.changed:
            return self.source
        return wanted(self.out)


def _is_container(value: object) -> bool:
    kind = type(value)
    if kind is str or kind is int or value is None:
        return False
    return isinstance(value, list | tuple | Mapping) or (
        is_dataclass(value) and not isinstance(value, type)
    )


def _guard(stack: list[_Frame], value: object, where: str) -> None:
    if len(stack) >= djson.MAX_DEPTH:
        raise NotJsonError(
            f"{where} is not JSON: nested deeper than {djson.MAX_DEPTH} levels",
            code=NotJsonError.TOO_DEEP,
        )
    if any(frame.source is value for frame in stack):
        raise NotJsonError(f"{_path(stack, where)} is not JSON: it contains itself")


def _open(value: object, stack: list[_Frame], where: str) -> _Frame:
    in_json = bool(stack) and (stack[-1].in_json or isinstance(stack[-1].source, Mapping))
    if isinstance(value, Mapping):
        pairs = list(cast("Mapping[object, object]", value).items())
        for key, _ in pairs:
            if type(key) is not str:
                raise NotJsonError(
                    f"{_path(stack, where)} is not JSON: key {key!r} is not a string"
                )
            _leaf(key, stack, where, mend=False)
        keys = cast("tuple[str, ...]", tuple(key for key, _ in pairs))
        return _Frame(cast("object", value), keys, [item for _, item in pairs], in_json=True)
    if isinstance(value, list | tuple):
        return _Frame(cast("object", value), None, list(cast("Iterable[object]", value)), in_json)
    if in_json:
        raise NotJsonError(f"{_path(stack, where)} is not JSON: {type(value).__name__}")
    names = _data_fields(type(value))
    if names is None:
        raise NotJsonError(
            f"{_path(stack, where)} is not JSON: {type(value).__name__} can change",
            hint=_DECLARE,
        )
    return _Frame(value, names, [getattr(value, name) for name in names], in_json=False)


def _leaf(value: object, stack: list[_Frame], where: str, mend: bool) -> object:
    kind = type(value)
    if value is None or kind is bool or (kind is str and cast("str", value).isascii()):
        return value
    if mend and kind is str:
        return mend_text(cast("str", value))
    if not stack and kind.__module__ != "builtins":
        told = f"{where} is not JSON: {kind.__name__} is no dataclass"
        raise NotJsonError(told, hint=_DECLARE)
    return djson.check(value, where=_path(stack, where))


_fields: WeakKeyDictionary[type, tuple[str, ...] | None] = WeakKeyDictionary()


def _data_fields(cls: type[Any]) -> tuple[str, ...] | None:
    """Return the names of a dataclass's fields, or None if its instances can change."""
    if cls not in _fields:
        frozen = cls.__dataclass_params__.frozen
        names = tuple(item.name for item in fields(cls) if item.compare)
        _fields[cls] = names if frozen else None
    return _fields[cls]


def _path(stack: list[_Frame], where: str) -> str:
    path = where
    for frame in stack:
        index = len(frame.out)
        path = f"{path}[{index}]" if frame.keys is None else f"{path}.{frame.keys[index]}"
    return path
