"""What a docstring says about a function and its parameters."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, Literal

__all__ = ["FunctionDoc", "read_docstring"]

# The parser is loaded only for docstrings that have sections at all: importing it costs more
# than everything else a tool needs.
_SPHINX: Final = re.compile(r"^:(?:param|parameter|arg|argument|return|returns|raises)\b", re.M)
_NUMPY: Final = re.compile(r"^(?:Parameters|Other Parameters|Returns|Raises)\n-{3,}\s*$", re.M)
_GOOGLE: Final = re.compile(
    r"^(?:Args|Arguments|Params|Parameters|Keyword Args|Keyword Arguments|Returns|Yields|Raises):"
    r"\s*$",
    re.M,
)


@dataclass(frozen=True, slots=True)
class FunctionDoc:
    """The parts of a docstring a tool uses."""

    text: str = ""
    """The prose, without the sections about parameters, results and errors."""
    parameters: dict[str, str] = field(default_factory=dict[str, str])
    """Descriptions by parameter, each on one line."""


def read_docstring(function: Callable[..., Any]) -> FunctionDoc:
    """Read the docstring of `function`: google, numpy and sphinx styles are understood."""
    doc = (inspect.getdoc(function) or "").strip()
    style = _style(doc)
    if style is None:
        return FunctionDoc(doc)
    import griffe

    prose: list[str] = []
    parameters: dict[str, str] = {}
    for section in griffe.Docstring(doc).parse(style, warnings=False):
        if isinstance(section, griffe.DocstringSectionText):
            prose.append(section.value.strip())
        elif isinstance(
            section,
            griffe.DocstringSectionParameters | griffe.DocstringSectionOtherParameters,
        ):
            for item in section.value:
                parameters[item.name] = " ".join(item.description.split())
    return FunctionDoc("\n\n".join(text for text in prose if text), parameters)


def _style(doc: str) -> Literal["google", "numpy", "sphinx"] | None:
    if _SPHINX.search(doc):
        return "sphinx"
    if _NUMPY.search(doc):
        return "numpy"
    return "google" if _GOOGLE.search(doc) else None
