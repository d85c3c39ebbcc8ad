"""Rendering: the strict scanner for references."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsh.system_prompt import AssembledSection, PromptAssembly, PromptError, render_prompt


def render(text: str, /, **variables: str | None) -> str:
    return render_prompt(PromptAssembly([AssembledSection("notes", 1, text)], [], variables))


def test_values_are_filled_in() -> None:
    assert render("model {{model}} in {{cwd}}.", model="m", cwd="/w") == "model m in /w."
    assert render("{{a}}{{a}}", a="x") == "xx"
    assert render("{{a}}", a="") == ""


def test_sections_are_joined_by_blank_lines_and_empty_ones_dropped() -> None:
    sections = [
        AssembledSection(name, 1, text)
        for name, text in (("a", "one"), ("b", ""), ("c", "{{nothing}}"), ("d", "two\n"))
    ]
    assembly = PromptAssembly(sections, [], {"nothing": ""})
    assert render_prompt(assembly) == "one\n\ntwo\n"
    assert render_prompt(PromptAssembly()) == ""


# case: P-07
@pytest.mark.parametrize(
    ("text", "code", "tokens"),
    [
        ("see {{nope}}", PromptError.UNKNOWN_VARIABLE, ["'nope'", "cwd, empty_one, model"]),
        ("in {{empty_one}}", PromptError.NO_VALUE, ["'empty_one'"]),
        ("{{ model }}", PromptError.MALFORMED_REFERENCE, ["{{ model }}"]),
        ("{{}}", PromptError.MALFORMED_REFERENCE, ["{{}}"]),
        ("{{Model}}", PromptError.MALFORMED_REFERENCE, ["{{Model}}"]),
        ("{{{model}}}", PromptError.MALFORMED_REFERENCE, ["{{{model}}}"]),
        ("{{a{b}} and {{model}}", PromptError.MALFORMED_REFERENCE, ["'{{a{b}} and {{mo'"]),
        ("{{ open and }} later", PromptError.MALFORMED_REFERENCE, ["{{ open and }}"]),
        ("{{model\n}}", PromptError.MALFORMED_REFERENCE, ["notes"]),
    ],
)
def test_bad_references(text: str, code: str, tokens: list[str]) -> None:
    with pytest.raises(PromptError) as caught:
        render(text, model="m", cwd="/", empty_one=None)
    assert caught.value.code == code
    assert all(token in str(caught.value) for token in ["'notes'", *tokens])


# case: P-07
def test_unknown_reference_without_any_variable() -> None:
    with pytest.raises(PromptError, match=r"\(none\)"):
        render("{{x}}")


# case: P-08
@pytest.mark.parametrize(
    "text", ["{{", "a {{ b", "${X:-{{fallback}", "{{{", "x }} y {{ z", "}}", "{ {model} }"]
)
def test_lone_braces_are_verbatim(text: str) -> None:
    assert render(text) == text


def test_a_group_after_a_lone_close() -> None:
    assert render("}} {{a}} {{", a="x") == "}} x {{"


# case: P-09
@pytest.mark.parametrize("name", ["constructor", "keys", "items", "get", "__class__"])
def test_attribute_names_are_no_variables(name: str) -> None:
    with pytest.raises(PromptError):
        render(f"{{{{{name}}}}}")
    if not name.startswith("_"):
        assert render(f"{{{{{name}}}}}", **{name: "mine"}) == "mine"


# case: P-10
def test_values_are_not_scanned_again() -> None:
    assert render("{{a}} {{b}}", a="{{b}}", b="}} {{a}}") == "{{b}} }} {{a}}"
    assert render("{{open}}x", open="{{") == "{{x"


_PIECES = st.lists(
    st.sampled_from(["{", "}", "{{", "}}", "{{a}}", "{{b}}", "{{ a }}", "a", " ", "\n", "{{zz}}"]),
    max_size=12,
)


def _reference(text: str, variables: dict[str, str | None]) -> str | None:
    """The scanner as three rules, one character at a time; None for an error."""
    out, at = "", 0
    while at < len(text):
        if not text.startswith("{{", at):
            out, at = out + text[at], at + 1
            continue
        group = re.compile(r"\{\{([^{}]*)\}\}").match(text, at)
        if group:
            value = variables.get(group[1])
            if re.fullmatch("[a-z][a-z0-9_]*", group[1]) is None or value is None:
                return None
            out, at = out + value, group.end()
        elif "}}" in text[at + 2 :]:
            return None
        else:
            out, at = out + "{{", at + 2
    return out


@given(_PIECES)
def test_the_scanner_follows_its_rules(pieces: list[str]) -> None:
    text = "".join(pieces)
    variables: dict[str, str | None] = {"a": "{{b}}", "b": "B", "c": None}
    expected = _reference(text, variables)
    if expected is None:
        with pytest.raises(PromptError, match="'notes'"):
            render(text, **variables)
    else:
        assert render(text, **variables) == expected


@given(st.text())
def test_text_without_double_braces_is_verbatim(text: str) -> None:
    if "{{" not in text:
        assert render(text) == text


def test_many_lone_openings_take_linear_time() -> None:
    text = "{{ " * 200_000
    assert render(text) == text
