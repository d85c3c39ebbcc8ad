"""Tells kinds of provider errors apart by what they say.

Providers agree on no code for these two, and both arrive under statuses that also mean other
things, so the text decides. The families below cover the wording of the OpenAI-compatible
services, Anthropic, Google and the common local servers. They are matched against lower-case words
separated by single spaces, so `insufficient_quota` and "Insufficient quota!" look the same.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Final

_CONTEXT: Final = (
    r"context (?:length|window|size|limit) (?:is |was |has been )?(?:exceeded|overflow)",
    r"exceed\w* (?:\w+ ){0,5}?context (?:length|window|size|limit)",
    r"exceed\w* (?:the )?model s context",
    r"(?:larger|longer) than (?:\w+ ){0,4}?(?:context|model length)",
    r"too (?:long|large) for (?:\w+ ){0,4}?(?:context|model)",
    r"context (?:length|window)? ?overflow",
    r"maximum (?:context|prompt) length is",
    r"(?:prompt|input|conversation) (?:is|are) too (?:long|large)",
    r"(?:input|prompt) token count (?:\w+ )*?exceeds",
    r"reduce the length of (?:the|your) (?:messages|prompt|input)",
    r"exceed context size",
)

_QUOTA: Final = (
    r"insufficient (?:\w+ )?(?:quota|balance|credits?|funds)",
    r"exceed\w* (?:your |the )?current quota",
    r"(?:balance|credits?|funds) (?:\w+ ){0,3}?(?:exhausted|depleted|too low|used up)",
    r"(?:out of|no more|requires more|not enough) (?:credits?|budget|funds|balance)",
    r"billing hard limit",
)

_QUOTA_UNLESS_RATE: Final = (
    r"(?:quota|usage limits?|spending limits?|budget) (?:\w+ ){0,3}?(?:exceeded|exhausted|reached)",
    r"(?:exceed\w*|reached|exhausted|hit) (?:\w+ ){0,4}?"
    r"(?:quota|usage limits?|spending limits?|budget)",
)

_RATE: Final = (
    r"rate limit",
    r"too many requests",
    r"(?:per|a|each) (?:second|minute|min|hour)\b",
    r"\b[rt]p[msh]\b",
)


def is_context_window_exceeded(text: str) -> bool:
    """Say whether a provider's error means that the conversation is too long for the model.

    Args:
        text: The error's code, type and message, joined by spaces.
    """
    return _found(_CONTEXT, _words(text))


def is_quota_exceeded(text: str) -> bool:
    """Say whether a provider's error means that the account's balance or quota is used up.

    A quota that is counted by the minute is a rate limit and does not count.

    Args:
        text: The error's code, type and message, joined by spaces.
    """
    words = _words(text)
    if _found(_QUOTA, words):
        return True
    return _found(_QUOTA_UNLESS_RATE, words) and not _found(_RATE, words)


def _words(text: str) -> str:
    return " ".join(re.findall(r"[a-z0-9]+", text.lower()))


def _found(family: tuple[str, ...], words: str) -> bool:
    return _compiled(family).search(words) is not None


@cache
def _compiled(family: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile(r"\b(?:" + "|".join(family) + ")")
