"""What a long conversation takes on disk, through the whole loop."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from dsh.core import PluginLike
from dsh.session_persistence import SessionPersistence, SessionSnapshot
from dsh.session_persistence_jsonl import JsonlPersistence
from dsh.session_persistence_sqlite import SqlitePersistence
from dsh.testkit import Spine, open_spine, text, tool_call
from dsh.tools import tool

TURNS = 4
ROUNDS = 55
"""Tool rounds of a turn, so 220 of them."""


@pytest.fixture
def anyio_backend() -> str:
    """What is stored does not depend on it, and a run takes seconds."""
    return "asyncio"


@tool
async def noop() -> str:
    """Do nothing."""
    return "ok"


async def stored(spine: Spine) -> SessionSnapshot:
    """Return what a listing tells of the only session."""
    (shown,) = await spine.app[SessionPersistence].list_snapshots()
    return shown


def bytes_at(place: str | None) -> int:
    """Return the size of a file."""
    assert place is not None
    return Path(place).stat().st_size


@pytest.mark.parametrize(
    ("store", "config", "most"),
    [
        (JsonlPersistence, {"folder": "sessions"}, 300_000),
        # a row of a table for each event takes more than a line
        (SqlitePersistence, {"file": "sessions.sqlite"}, 400_000),
    ],
    ids=["jsonl", "sqlite"],
)
async def test_a_store_grows_with_the_rounds(
    tmp_path: Path, store: PluginLike, config: dict[str, Any], most: int
) -> None:
    # case: F-23
    config = {name: str(tmp_path / place) for name, place in config.items()}
    config["write_after_ms"] = 60_000  # where a slow machine cuts an answer is left out
    script = [
        text("done") if number % (ROUNDS + 1) == ROUNDS else tool_call(f"call-{number}", "noop")
        for number in range(TURNS * (ROUNDS + 1))
    ]
    sizes: list[int] = []
    async with (
        open_spine(script, plugins=[(store, config)]) as spine,
        spine.agent(tools=[noop], session_id="s") as agent,
    ):
        for _ in range(TURNS):
            await agent.ask("go on")
            shown = await stored(spine)
            assert shown.summary.events == agent.session.seq
            sizes.append(shown.size or 0)
        place = spine.app[SessionPersistence].locate(agent.session.header)
    grown = [after - before for before, after in pairwise(sizes)]
    assert max(grown) < 1.05 * min(grown)
    assert sizes[-1] < 300_000
    assert bytes_at(place) < most


async def test_a_long_answer_is_stored_once(tmp_path: Path) -> None:
    answer = "".join(f"This is sentence number {number}. " for number in range(400))
    plugin = (JsonlPersistence, {"folder": str(tmp_path)})
    async with open_spine([text(answer)], plugins=[plugin]) as spine, spine.agent() as agent:
        assert (await agent.ask("tell me")).text == answer
        size = (await stored(spine)).size
    assert size is not None
    assert len(answer) < size < 1.5 * len(answer)
