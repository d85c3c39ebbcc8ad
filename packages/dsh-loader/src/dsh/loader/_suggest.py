"""The nearest match of a misspelt name."""

from __future__ import annotations

from collections.abc import Iterable


def nearest(word: str, options: Iterable[str]) -> str | None:
    """Return the option closest to `word`, if one is close enough to be what was meant."""
    # only an error message needs it
    from difflib import get_close_matches

    known = sorted(set(options))
    folded = {name.replace("_", "-").lower(): name for name in reversed(known)}
    wanted = word.replace("_", "-").lower()
    if wanted in folded:
        return folded[wanted]
    found = get_close_matches(wanted, folded, n=1, cutoff=0.6)
    return folded[found[0]] if found else None


def did_you_mean(word: str, options: Iterable[str], *, what: str) -> str:
    """Return a hint: the nearest match, or the list of what there is."""
    known = sorted(set(options))
    close = nearest(word, known)
    if close is not None:
        return f"did you mean {close!r}?"
    return f"{what}: {', '.join(known)}" if known else f"there are no {what}"
