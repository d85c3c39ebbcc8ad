"""The loop contract, on this loop."""

from __future__ import annotations

from typing import ClassVar

from acme_loop import AcmeLoop

from dsh.testkit.loop_contract import LoopContract


class TestAcmeLoop(LoopContract):
    loop = AcmeLoop
    impatient: ClassVar[object] = {"cancel_grace_s": 0.05, "close_grace_s": 0.05}
