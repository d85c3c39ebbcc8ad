"""Open vocabularies: declaring, refusing, reloading and letting go of classes."""

from __future__ import annotations

import gc
import re
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest

from dsh.core import VocabularyError
from dsh.core.vocabulary import Vocabulary, adapter_of


class Shape:
    """The base of a family, as a wheel would write it."""

    kinds: ClassVar[Vocabulary[Shape]] = Vocabulary("shape", "kind")
    __slots__ = ()

    def __init_subclass__(cls, kind: str | None = None, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.kinds.declare(cls, kind)


def test_the_class_that_slots_make_is_the_one_found() -> None:
    @dataclass(frozen=True, slots=True)
    class Circle(Shape, kind="circle"):
        radius: int

    assert Shape.kinds.get("circle") is Circle
    assert Shape.kinds.classes()["circle"] is Circle
    assert adapter_of(Circle).validate_python({"radius": 2}) == Circle(2)
    assert adapter_of(Circle) is adapter_of(Circle)


def test_a_tag_belongs_to_one_class() -> None:
    class Mine(Shape, kind="acme/mine"):
        pass

    with pytest.raises(VocabularyError, match="belongs to") as caught:

        class Other(Shape, kind="acme/mine"):  # pyright: ignore[reportUnusedClass]
            pass

    assert caught.value.code == VocabularyError.DUPLICATE_KIND
    assert Shape.kinds.get("acme/mine") is Mine


def test_the_same_class_again_takes_the_place_of_the_first() -> None:
    def declare() -> type[Shape]:
        class Again(Shape, kind="again"):
            pass

        return Again

    first, second = declare(), declare()
    assert Shape.kinds.get("again") is second is not first


def test_a_class_that_is_gone_is_found_no_more() -> None:
    def declare() -> None:
        @dataclass(frozen=True, slots=True)
        class Short(Shape, kind="short-lived"):
            size: int

        assert adapter_of(Short).validate_python({"size": 1}) == Short(1)
        assert Shape.kinds.get("short-lived") is Short

    declare()
    gc.collect()
    assert Shape.kinds.get("short-lived") is None
    assert "short-lived" not in Shape.kinds.classes()


@pytest.mark.parametrize("tag", ["", "Upper", "a/", "/b", "a b", "a_b", "-a", "a--b", "a-", "é"])
def test_a_malformed_tag_is_refused(tag: str) -> None:
    problem = re.escape(f"shape {tag!r} is not made of lower-case words")
    with pytest.raises(VocabularyError, match=problem) as caught:

        class Bad(Shape, kind=tag):  # pyright: ignore[reportUnusedClass]
            pass

    assert caught.value.code == VocabularyError.BAD_KIND
    assert Shape.kinds.get(tag) is None
    assert isinstance(caught.value, TypeError)


def test_a_subclass_without_a_tag_is_no_member() -> None:
    before = Shape.kinds.classes()

    class Base(Shape):  # pyright: ignore[reportUnusedClass]
        pass

    assert Shape.kinds.classes() == before
