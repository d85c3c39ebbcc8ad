"""The small broken project of `dsh demo`, and what the scripted model says to it."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Final

from dsh.llm_replay.server import Behaviour, Entry, WireRequest, success, tool_call_success

TASK: Final = "The tests of this project fail. Find out why and make them pass."

MODULE: Final = '''\
"""Titles as they appear in URLs."""

import re


def slug(title: str) -> str:
    """Return the words of a title in lower case, joined with hyphens."""
    words = re.findall(r"[a-z0-9]+", title)
    return "-".join(words)
'''

TESTS: Final = """\
import unittest

from slugs import slug


class SlugTest(unittest.TestCase):
    def test_words_are_joined(self):
        self.assertEqual(slug("one two"), "one-two")

    def test_capital_letters_are_kept_as_small_ones(self):
        self.assertEqual(slug("Hello World"), "hello-world")

    def test_punctuation_is_dropped(self):
        self.assertEqual(slug("What, again?"), "what-again")


if __name__ == "__main__":
    unittest.main()
"""


def write_project(folder: Path) -> None:
    """Write the project into a folder."""
    (folder / "slugs.py").write_text(MODULE, encoding="utf-8")
    (folder / "test_slugs.py").write_text(TESTS, encoding="utf-8")


def test_command() -> str:
    """Return the shell command that runs the project's tests."""
    return f"{shlex.quote(sys.executable)} -B -m unittest -q"


def script() -> list[Entry]:
    """Return the model's part: what it says and does, one entry per request."""
    repair = (
        "sed 's/, title)/, title.lower())/' slugs.py > slugs.new && mv slugs.new slugs.py "
        "&& cat slugs.py"
    )
    return [
        step("call_1", "I will run the tests first.", test_command(), "Run the tests"),
        step(
            "call_2",
            "`Hello World` loses its capital letters: the result is `ello-orld`. "
            "I will look at the code.",
            "cat slugs.py",
            "Show the code",
        ),
        step(
            "call_3",
            "The pattern only knows small letters, and the title is not lowered before. "
            "I will lower it.",
            repair,
            "Lower the title",
        ),
        step("call_4", "Now the tests again.", test_command(), "Run the tests again"),
        _conclusion,
    ]


def step(call_id: str, text: str, command: str, description: str) -> Behaviour:
    """Return an answer that says something and runs a command."""
    arguments = {"command": command, "description": description}
    return tool_call_success("bash", arguments, call_id=call_id, text=text)


def _conclusion(request: WireRequest) -> Behaviour:
    """Judge by what the last command really printed, script or not."""
    results = request.tool_results
    if results and "OK" in results[-1] and "FAILED" not in results[-1]:
        return success(
            "The tests pass. `slug` looked for small letters only, so capital letters were lost; "
            "it now lowers the title first. The tests themselves are as they were."
        )
    return success("The tests still fail; this is not what the script expected.")
