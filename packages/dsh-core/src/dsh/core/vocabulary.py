"""Open vocabularies: families of value classes that any wheel adds to by declaring a subclass.

A member names its tag where it is declared, `class Poll(TurnTrigger, kind="acme-poll")`, and
from then on the family's wire form with that tag is read as that class. A tag that no live
class declares is the family's own affair; ours all keep such a value as it was.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, TypeVar, cast
from weakref import WeakValueDictionary

from pydantic import ConfigDict
from pydantic.alias_generators import to_camel

from dsh.core.errors import VocabularyError

if TYPE_CHECKING:
    from pydantic import TypeAdapter

__all__ = ["WIRE_CONFIG", "Vocabulary", "adapter_of"]

WIRE_CONFIG: Final = ConfigDict(
    alias_generator=to_camel,
    validate_by_name=False,
    extra="forbid",
    allow_inf_nan=False,
)
"""Pydantic configuration of a member: snake case inside, camel case outside, no unknown fields."""

T = TypeVar("T")

_ADAPTER: Final = "__dsh_wire_adapter__"
_WORD: Final = r"[a-z][a-z0-9]*(?:-[a-z0-9]+)*"


def adapter_of(cls: type[Any]) -> TypeAdapter[Any]:
    """Return the pydantic adapter of a dataclass; built on first use.

    Args:
        cls: The class. The adapter is kept on it, so that it does not outlive a reloaded plugin.
    """
    adapter = cls.__dict__.get(_ADAPTER)
    if adapter is None:
        from pydantic import TypeAdapter

        adapter = TypeAdapter(cls)
        setattr(cls, _ADAPTER, adapter)
    return cast("TypeAdapter[Any]", adapter)


class Vocabulary(Generic[T]):
    """The live classes of one family, by tag.

    Classes are held weakly: those of an unloaded plugin leave with it. A class that is declared
    again under the same module and name, as a reload does, takes the place of the earlier one.

    Args:
        what: What a tag is called in messages, "block type" for example.
        attribute: The class attribute that receives the tag.
        pattern: The form of a tag; words with dashes, separated by slashes, where None.
        form: That form for people, after "is not".
        error: Makes what is raised, from a message, `code` and `hint`.
        codes: The codes for a malformed tag and for one that is taken.
    """

    WORDS: ClassVar[re.Pattern[str]] = re.compile(rf"{_WORD}(?:/{_WORD})*")
    """The ordinary form of a tag."""

    def __init__(
        self,
        what: str,
        attribute: str,
        *,
        pattern: re.Pattern[str] | None = None,
        form: str = "made of lower-case words, dashes and slashes",
        error: Callable[..., Exception] = VocabularyError,
        codes: tuple[str, str] = (VocabularyError.BAD_KIND, VocabularyError.DUPLICATE_KIND),
    ) -> None:
        self.what = what
        """What a tag is called in messages."""
        self._attribute = attribute
        self._pattern = pattern or self.WORDS
        self._form = form
        self._error = error
        self._codes = codes
        self._classes: WeakValueDictionary[str, type[T]] = WeakValueDictionary()

    def declare(self, cls: type[T], tag: str | None) -> None:
        """Enter a class; to be called from `__init_subclass__` of the family's base.

        Args:
            cls: The new class.
            tag: Its tag. None on the second pass that `slots=True` makes over a dataclass, and
                for a class that is no member itself.

        Raises:
            VocabularyError: Or what `error` makes: the tag is malformed, or belongs to another
                live class.
        """
        if tag is None:
            known: object = cls.__dict__.get(self._attribute)
            if isinstance(known, str):
                self._classes[known] = cls
            return
        if self._pattern.fullmatch(tag) is None:
            raise self._error(
                f"{cls.__qualname__}: {self.what} {tag!r} is not {self._form}",
                code=self._codes[0],
                hint="use lower case letters, digits and dashes, `my-plugin/thing` for example",
            )
        other = self._classes.get(tag)
        if other is not None and _name(other) != _name(cls):
            raise self._error(
                f"{self.what} {tag!r} belongs to {_name(other)}, so {_name(cls)} cannot have it",
                code=self._codes[1],
                hint="choose another name",
            )
        setattr(cls, self._attribute, tag)
        self._classes[tag] = cls

    def get(self, tag: str) -> type[T] | None:
        """Return the class of a tag, or None if no live class declares it.

        Args:
            tag: The tag, as on the wire.
        """
        return self._classes.get(tag)

    def classes(self) -> Mapping[str, type[T]]:
        """Return every live class by its tag, sorted."""
        return dict(sorted(self._classes.items()))


def _name(cls: type) -> str:
    return f"{cls.__module__}:{cls.__qualname__}"
