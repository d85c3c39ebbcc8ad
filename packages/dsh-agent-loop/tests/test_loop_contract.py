"""The loop contract, on the shipped loop."""

from __future__ import annotations

from typing import ClassVar

import pytest

from dsh.agent_loop import AgentLoop
from dsh.testkit.loop_contract import LoopContract

pytestmark = pytest.mark.parametrize("oracle", ["full"], indirect=True)


class TestAgentLoop(LoopContract):
    loop = AgentLoop
    impatient: ClassVar[object] = {"cancel_grace_s": 0.05, "close_grace_s": 0.05}
