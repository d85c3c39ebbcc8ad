"""Turns an assembly into the text the model reads."""

from __future__ import annotations

import re
from typing import Final

from dsh.system_prompt._types import AssembledSection, PromptAssembly
from dsh.system_prompt.errors import PromptError

__all__ = ["VARIABLE_NAME", "render_prompt"]

VARIABLE_NAME: Final = re.compile(r"[a-z][a-z0-9_]*")
"""What a variable may be called; matched against the whole name."""

_GROUP: Final = re.compile(r"\{\{([^{}]*)\}\}")
_QUOTE_LENGTH: Final = 16


def render_prompt(assembly: PromptAssembly) -> str:
    """Fill in the references of every section and join what is not empty with blank lines.

    `{{name}}` stands for a variable. A substituted value is never scanned again. There is no
    escape: double braces with a later `}}` in the same section can only come from a variable.

    Returns:
        The prompt; empty when no section has text, and the request then has no system field.

    Raises:
        PromptError: Codes `PROMPT_MALFORMED_REFERENCE`, `PROMPT_UNKNOWN_VARIABLE`,
            `PROMPT_NO_VALUE`; the message names the section.
    """
    texts = (_fill(section, assembly.variables) for section in assembly.sections)
    return "\n\n".join(text for text in texts if text)


def _fill(section: AssembledSection, variables: dict[str, str | None]) -> str:
    text = section.text
    at = text.find("{{")
    if at < 0:
        return text
    parts: list[str] = []
    done = 0
    # the last close decides for every lone opening, so it is looked up once, not per opening
    last_close = text.rfind("}}")
    while at >= 0:
        parts.append(text[done:at])
        group = _GROUP.match(text, at)
        if group is not None:
            parts.append(_value(group[1], section, variables))
            done = group.end()
        elif last_close >= at + 2:
            raise PromptError(
                f"section {section.name!r} has a malformed reference near "
                f"{text[at : at + _QUOTE_LENGTH]!r}",
                code=PromptError.MALFORMED_REFERENCE,
                hint="write {{name}}; braces that are no reference have to come from a variable",
            )
        else:
            parts.append("{{")
            done = at + 2
        at = text.find("{{", done)
    parts.append(text[done:])
    return "".join(parts)


def _value(name: str, section: AssembledSection, variables: dict[str, str | None]) -> str:
    if VARIABLE_NAME.fullmatch(name) is None:
        raise PromptError(
            f"section {section.name!r} has a malformed reference {{{{{name[:_QUOTE_LENGTH]}}}}}",
            code=PromptError.MALFORMED_REFERENCE,
            hint="a name is lower case letters, digits and underscores, without spaces",
        )
    if name not in variables:
        known = ", ".join(sorted(variables)) or "(none)"
        raise PromptError(
            f"section {section.name!r} refers to the unknown variable {name!r}; "
            f"registered variables: {known}",
            code=PromptError.UNKNOWN_VARIABLE,
        )
    value = variables[name]
    if value is None:
        raise PromptError(
            f"section {section.name!r} refers to {name!r}, which has no value for this assembly",
            code=PromptError.NO_VALUE,
        )
    return value
