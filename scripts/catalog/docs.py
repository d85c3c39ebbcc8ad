"""Docstrings as Markdown, in the parts the pages show."""

from __future__ import annotations

import re
from collections.abc import Iterator
from textwrap import dedent

import griffe

from catalog.shapes import Doc, Item


def read_doc(docstring: griffe.Docstring | None) -> Doc:
    """Split a docstring of the Google style into its parts."""
    if docstring is None:
        return Doc()
    texts: list[str] = []
    params: list[Item] = []
    raises: list[Item] = []
    returns = yields = ""
    # detached from its function: the parser would mix annotations into what the text says
    detached = griffe.Docstring(docstring.value)
    for section in griffe.parse_google(
        detached, returns_multiple_items=False, returns_named_value=False, warnings=False
    ):
        match section:
            case griffe.DocstringSectionParameters():
                params += [Item(item.name, markdown(item.description)) for item in section.value]
            case griffe.DocstringSectionAttributes():
                params += [Item(item.name, markdown(item.description)) for item in section.value]
            case griffe.DocstringSectionRaises():
                raises += [
                    Item(str(item.annotation), markdown(item.description)) for item in section.value
                ]
            case griffe.DocstringSectionReturns() | griffe.DocstringSectionYields():
                # a colon in the prose reads as a type to the parser; put it back
                said = [_rejoin(item.annotation, item.description) for item in section.value]
                if isinstance(section, griffe.DocstringSectionReturns):
                    returns = markdown("\n".join(said))
                else:
                    yields = markdown("\n".join(said))
            case griffe.DocstringSectionText():
                texts.append(markdown(section.value))
            case _:
                texts.append(markdown(_raw(section)))
    text = "\n\n".join(text for text in texts if text)
    return Doc(text, tuple(params), returns, yields, tuple(raises))


def read_text(docstring: griffe.Docstring | None) -> str:
    """Return the docstring of a field or a property as Markdown."""
    return "" if docstring is None else markdown(docstring.value)


def _rejoin(annotation: object, description: str) -> str:
    return f"{annotation}: {description}" if annotation else description


def _raw(section: griffe.DocstringSection) -> str:
    if isinstance(section, griffe.DocstringSectionAdmonition):
        return f"**{section.title or section.value.kind}**\n\n{section.value.description}"
    return str(section.value)


def markdown(text: str) -> str:
    """Return the prose of a docstring as Markdown: indented blocks become fences, `::` a colon.

    Paragraphs are joined to one line each, so that a page changes only where words do.
    """
    return "\n\n".join(_blocks(dedent(text).strip("\n").rstrip()))


def _blocks(text: str) -> Iterator[str]:
    for chunk in _paragraphs(text):
        first = chunk[0]
        if first.startswith("    "):
            code = dedent("\n".join(chunk)).strip("\n")
            yield f"```text\n{code}\n```"
        elif re.match(r"([-*]|\d+\.) ", first.lstrip()):
            yield "\n".join(_list_items(chunk))
        else:
            line = " ".join(part.strip() for part in chunk)
            yield line.removesuffix("::") + ":" if line.endswith("::") else line


def _paragraphs(text: str) -> Iterator[list[str]]:
    """Split at blank lines, except inside an indented block."""
    chunk: list[str] = []
    lines = text.split("\n")
    for index, line in enumerate(lines):
        if line.strip():
            starts_code = bool(chunk) and line.startswith("    ") != chunk[0].startswith("    ")
            if starts_code and (line.startswith("    ") is False or chunk[-1].endswith("::")):
                yield chunk
                chunk = []
            chunk.append(line)
        elif chunk:
            following = next((later for later in lines[index:] if later.strip()), "")
            if chunk[0].startswith("    ") and following.startswith("    "):
                chunk.append("")
            else:
                yield chunk
                chunk = []
    if chunk:
        yield chunk


def _list_items(chunk: list[str]) -> Iterator[str]:
    current = ""
    for line in chunk:
        if re.match(r"([-*]|\d+\.) ", line.lstrip()):
            if current:
                yield current
            current = line.strip()
        else:
            current += " " + line.strip()
    yield current
