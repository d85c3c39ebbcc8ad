"""The loop contract is worth what it catches: loops that break one promise each."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import pytest

from dsh.agent import AgentOptions, Prompt, Receipt
from dsh.agent.events import PreStep
from dsh.agent.loopkit import CallIds, Load, Notes, Policies
from dsh.agent_loop import AgentLoop
from dsh.agent_loop._agent import LoopAgent
from dsh.agent_loop._queues import Queues
from dsh.core import DshError
from dsh.llm import Message, TextBlock
from dsh.session import MessageSource, Session, SessionData, SessionEvent
from dsh.testkit.loop_contract import CASES

pytestmark = pytest.mark.parametrize("oracle", ["full"], indirect=True)

IMPATIENT = {"cancel_grace_s": 0.05, "close_grace_s": 0.05}


class NoSteering(LoopAgent):
    def steer(self, content: Prompt, source: MessageSource | None = None) -> Receipt:
        return self.send(content, source)


class NoCancel(LoopAgent):
    def cancel(self, reason: str | None = None) -> None:
        return None


class HastyIdle(LoopAgent):
    async def when_idle(self) -> None:
        return None


class LosesContext(LoopAgent):
    def inject(self, content: Prompt, source: MessageSource | None = None) -> None:
        self.check("inject")


class TakesAnything(LoopAgent):
    def send(self, content: Prompt, source: MessageSource | None = None) -> Receipt:
        self.check("send")
        text = content if isinstance(content, str) else "blocks"
        return super().send((TextBlock(text),), source)


class ForgetsRecords(LoopAgent):
    def record(self, data: SessionData) -> SessionEvent:
        return self.session.append(data)


class DrivesInSetup(LoopAgent):
    def check(self, verb: str) -> None:
        return None


class Unflushed(LoopAgent):
    async def flush(self, step: int) -> None:
        self.flush_due = False


class Undropped(Queues):
    def drop_steering(self, why: str) -> None:
        return None


def keeps_steering(agent: LoopAgent) -> None:
    agent.queues = Undropped(agent.book)


class Unmended(CallIds):
    def mend(self, message: Message, turn: int, step: int) -> Message:
        return message


def leaves_ids(agent: LoopAgent) -> None:
    agent.call_ids = Unmended(agent.session)


class Unheld(Notes):
    def hold(self) -> None:
        return None


def injects_anywhere(agent: LoopAgent) -> None:
    agent.notes = Unheld(agent.session, lambda turn, objection: None)


def loop_of(
    kind: type[LoopAgent], spoil: Callable[[LoopAgent], None] = lambda agent: None
) -> type[AgentLoop]:
    class Broken(AgentLoop):
        """The shipped loop with agents of another kind, or spoiled ones."""

        name: ClassVar[str] = "broken-loop"

        def compose(self, agent_id: str, session: Session, options: AgentOptions) -> LoopAgent:
            agent = kind(self, agent_id, session, options)
            spoil(agent)
            return agent

    return Broken


class ForgetsTheStore(AgentLoop):
    """Has no store to resume from."""

    name: ClassVar[str] = "forgetful-loop"

    @property
    def load(self) -> Load | None:
        return None


class Unchecked(Policies):
    async def pre_step(self, event: PreStep) -> None:
        await event.agent.ctx.serial(event)


def takes_junk(agent: LoopAgent) -> None:
    agent.policies = Unchecked(agent.loop.ctx, agent)


BROKEN: dict[type[AgentLoop], str] = {
    loop_of(NoSteering): "steering-is-heard-between-two-steps",
    loop_of(NoCancel): "a-cancel-drops-what-is-queued",
    loop_of(HastyIdle): "idle-means-checkpointed",
    loop_of(LosesContext): "idle-context-has-a-turn-of-its-own",
    loop_of(TakesAnything): "bad-content-is-refused-at-the-door",
    loop_of(ForgetsRecords): "records-join-a-turn-or-make-one",
    loop_of(DrivesInSetup): "setup-registers-and-never-drives",
    loop_of(Unflushed): "idle-means-checkpointed",
    loop_of(LoopAgent, keeps_steering): "a-terminal-stop-discards-steering",
    loop_of(LoopAgent, leaves_ids): "ids-and-names-are-mended",
    loop_of(LoopAgent, injects_anywhere): "context-follows-the-results",
    loop_of(LoopAgent, takes_junk): "what-is-no-decision-fails-the-turn",
    ForgetsTheStore: "a-stored-session-goes-on",
}


@pytest.mark.parametrize(
    ("loop", "name"), BROKEN.items(), ids=[f"{i}-{name}" for i, name in enumerate(BROKEN.values())]
)
async def test_a_broken_promise_is_caught(loop: type[AgentLoop], name: str) -> None:
    (case,) = [case for case in CASES if case.name == name]
    with pytest.raises((AssertionError, TimeoutError, DshError)):
        await case(loop, IMPATIENT, IMPATIENT)
