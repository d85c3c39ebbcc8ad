"""What every agent loop has to do.

A loop's test file derives from `LoopContract` and names the loop:

    from dsh.testkit.loop_contract import LoopContract
    from my_wheel import MyLoop


    class TestMyLoop(LoopContract):
        loop = MyLoop
        impatient = {"cancel_grace_s": 0.05, "close_grace_s": 0.05}

The tests run under the anyio pytest plugin (`anyio_mode = "auto"`). Each opens an app with the
loop, a scripted model and the invariants at level full, and at its end every log is closed and
every request one that a strict provider takes. What a loop decides for itself (how many prompts
a turn takes in, whether tools overlap, when it has had enough) is not asked about: `loop_app` is
what a loop's own tests of that run in.
"""

from __future__ import annotations

from typing import ClassVar, Final

import pytest

from dsh.core import PluginLike
from dsh.testkit._case import leave_out
from dsh.testkit._loop_app import loop_app
from dsh.testkit._loop_bench import LoopBench, LoopCase
from dsh.testkit._loop_cancels import CANCELS
from dsh.testkit._loop_checkpoints import CHECKPOINTS
from dsh.testkit._loop_creation import CREATION
from dsh.testkit._loop_disposal import DISPOSAL
from dsh.testkit._loop_driving import DRIVING
from dsh.testkit._loop_failures import FAILURES
from dsh.testkit._loop_policies import POLICIES
from dsh.testkit._loop_tools import TOOLS
from dsh.testkit._loop_turns import TURNS

__all__ = ["CASES", "LoopBench", "LoopCase", "LoopContract", "loop_app"]

CASES: Final[tuple[LoopCase, ...]] = (
    *TURNS,
    *POLICIES,
    *TOOLS,
    *CHECKPOINTS,
    *DRIVING,
    *CANCELS,
    *DISPOSAL,
    *FAILURES,
    *CREATION,
)
"""Every case; `await case(loop, config)` runs one without pytest."""


class LoopContract:
    """What every agent loop does. Derive, name the loop, done."""

    loop: ClassVar[PluginLike]
    """The loop under test: the plugin, which derives from `dsh.agent.loopkit.Loop`."""
    config: ClassVar[object] = None
    """Its configuration."""
    impatient: ClassVar[object] = None
    """A configuration with which it waits as little as possible (fractions of a second) for
    tools, checkpoints and listeners that ignore a stop. Without one these cases take as long as
    the loop's graces."""
    without: ClassVar[tuple[str, ...]] = ()
    """Names of cases that the loop cannot meet; its documentation should say so."""

    @pytest.mark.parametrize("case", CASES, ids=str)
    async def test_loop_contract(self, case: LoopCase) -> None:
        """Run one case."""
        leave_out(case, self.without, CASES)
        await case(type(self).loop, self.config, self.impatient)
