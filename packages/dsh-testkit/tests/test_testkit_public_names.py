"""What the wheel offers under which name."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import dsh.testkit
from dsh.bash.testing import BashContract
from dsh.testkit import bash_contract, llm_contract, loop_contract, persistence_contract
from dsh.testkit._case import leave_out


def test_every_name_is_there() -> None:
    assert dsh.testkit.__all__ == sorted(
        dsh.testkit.__all__, key=lambda name: (not name.isupper(), not name[0].isupper(), name)
    )
    for name in dsh.testkit.__all__:
        assert getattr(dsh.testkit, name) is not None
    assert set(dsh.testkit.__all__) <= set(dir(dsh.testkit))


def test_type_checkers_see_the_same_names() -> None:
    tree = ast.parse(Path(dsh.testkit.__file__).read_text(encoding="utf-8"))
    (block,) = [node for node in tree.body if isinstance(node, ast.If)]
    imported = [
        alias.name
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    ]
    assert sorted(imported) == sorted(dsh.testkit.__all__)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        dsh.testkit.__getattr__("nothing")


def test_the_bash_suite_is_that_of_the_seam() -> None:
    assert bash_contract.BashContract is BashContract


@pytest.mark.parametrize("contract", [llm_contract, loop_contract, persistence_contract])
def test_the_cases_of_a_contract_have_names_of_their_own(contract: object) -> None:
    cases = getattr(contract, "CASES")  # noqa: B009 - the modules share no type
    names = [str(case) for case in cases]
    assert len(set(names)) == len(names)
    assert all(name == name.lower() and " " not in name for name in names)


def test_leaving_cases_out() -> None:
    first, second = llm_contract.CASES[:2]
    leave_out(first, [second.name], llm_contract.CASES)
    with pytest.raises(pytest.skip.Exception):
        leave_out(first, [first.name], llm_contract.CASES)
    with pytest.raises(ValueError, match="no-such-case"):
        leave_out(first, ["no-such-case"], llm_contract.CASES)
    with pytest.raises(ValueError, match=f"did you mean '{first.name}'"):
        leave_out(second, [first.name[:-2]], llm_contract.CASES)
