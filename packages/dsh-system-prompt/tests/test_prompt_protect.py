"""Putting protected entries back, for every way of spoiling them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dsh.system_prompt import AssembledSection
from dsh.system_prompt._protect import restore

_NAMES = st.sampled_from("abcdef")


# case: P-11
@given(
    st.lists(_NAMES, unique=True),
    st.lists(st.tuples(_NAMES, st.booleans()), max_size=10),
    st.sets(_NAMES),
)
def test_restored_lists(
    canonical_names: list[str], result: list[tuple[str, bool]], protected: set[str]
) -> None:
    canonical = [AssembledSection(name, 1, "canonical") for name in canonical_names]
    spoiled = [AssembledSection(name, 2, "kept" if keep else "fake") for name, keep in result]
    restored = restore(canonical, spoiled, protected)
    # exactly the canonical entries under the protected names, in canonical order
    assert [entry for entry in restored if entry.name in protected] == [
        entry for entry in canonical if entry.name in protected
    ]
    # and whatever else there was, untouched and in its order
    assert [entry for entry in restored if entry.name not in protected] == [
        entry for entry in spoiled if entry.name not in protected
    ]
    # each stands before every later unprotected neighbour that survived
    for index, entry in enumerate(canonical):
        if entry.name in protected:
            later = {other.name for other in canonical[index + 1 :]} - protected
            place = restored.index(entry)
            assert not any(other.name in later for other in restored[:place])
