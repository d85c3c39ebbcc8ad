"""The public face: every promised name is there, wherever it is loaded from."""

from __future__ import annotations

from importlib import import_module

import pytest

import dsh.llm_replay as replay
from dsh.llm_replay import server


@pytest.mark.parametrize("name", replay.__all__)
def test_a_public_name_is_loaded_on_first_use(name: str) -> None:
    assert getattr(replay, name) is not None
    assert name in dir(replay)


def test_the_lazy_table_and_the_list_of_names_agree() -> None:
    homes = vars(replay)["_HOMES"]
    assert sorted(homes) == sorted(replay.__all__)
    assert all(import_module(f"dsh.llm_replay.{home}") for home in homes.values())


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        vars(replay)["__getattr__"]("nothing")


def test_every_behaviour_is_a_public_function_of_the_server() -> None:
    assert set(server.BEHAVIOURS) <= set(server.__all__)
    assert all(hasattr(server, name) for name in server.__all__)
