"""The approval seam as an interface: values, log vocabulary, event, policy."""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from typing import Any

import pytest

from dsh.agent import Agent
from dsh.agent.testing import stub_agent
from dsh.approval import (
    AllowedOnce,
    Approval,
    ApprovalAsk,
    ApprovalAsked,
    ApprovalDecided,
    ApprovalError,
    ApprovalOutcome,
    ApprovalPolicy,
    ApprovalPolicySet,
    ApprovalRequest,
    Cancelled,
    Rejected,
    Unavailable,
    fold_policy,
    is_outcome,
    is_policy,
    set_policy,
)
from dsh.core import App, ConfigError, InvalidPluginError, Next, Plugin, inject, settings
from dsh.session import SessionData, SessionEvent, UnknownData, event_from_wire, event_to_wire

OUTCOMES: list[ApprovalOutcome] = [
    AllowedOnce(),
    Rejected(),
    Rejected("ask me first"),
    Cancelled(),
    Unavailable(),
]


class SaysNo(Approval):
    """Rejects everything."""

    class Config(Approval.Config):
        tone: str = "dry"

    config = settings(Config)

    async def request(self, request: ApprovalRequest) -> ApprovalOutcome:
        return Rejected(self.config.tone)

    def policy(self, agent: Agent) -> ApprovalPolicy:
        return fold_policy(agent.session.events) or self.config.policy


class Consumer(Plugin):
    """Reads the service by its interface."""

    approval = inject(Approval)
    seen: Approval | None = None

    async def start(self) -> None:
        Consumer.seen = self.approval


def test_outcomes_are_values() -> None:
    assert [outcome.kind for outcome in OUTCOMES] == [
        "allowed-once",
        "rejected",
        "rejected",
        "cancelled",
        "unavailable",
    ]
    assert Rejected("x") == Rejected("x") != Rejected()
    with pytest.raises(FrozenInstanceError):
        OUTCOMES[1].feedback = "x"  # pyright: ignore[reportAttributeAccessIssue]


def test_only_outcomes_are_outcomes() -> None:
    assert all(is_outcome(outcome) for outcome in OUTCOMES)
    odd: list[Any] = [None, True, "allowed-once", AllowedOnce, Rejected(5), object()]  # pyright: ignore[reportArgumentType]
    assert not any(is_outcome(value) for value in odd)
    assert is_policy("ask")
    assert is_policy("never")
    assert not any(is_policy(value) for value in (None, "", "always", True, ["ask"]))


@pytest.mark.parametrize(
    ("data", "wire"),
    [
        (
            ApprovalAsked("q1", "bash", "c1", "writes outside"),
            {"id": "q1", "toolName": "bash", "callId": "c1", "reason": "writes outside"},
        ),
        # absent is absent, never null
        (ApprovalAsked("q1", "bash"), {"id": "q1", "toolName": "bash"}),
        (ApprovalDecided("q1", "allowed-once"), {"id": "q1", "outcome": "allowed-once"}),
        (
            ApprovalDecided("q1", "rejected", "no"),
            {"id": "q1", "outcome": "rejected", "feedback": "no"},
        ),
        (ApprovalPolicySet("never"), {"policy": "never"}),
    ],
)
def test_the_log_vocabulary(data: SessionData, wire: dict[str, Any]) -> None:
    event = SessionEvent(3, 1_700_000_000_000, data)
    written = event_to_wire(event)
    assert written["data"] == wire
    assert written["type"] == data.event_type
    assert event_from_wire(written) == event
    assert not data.surface_eligible


@pytest.mark.parametrize(
    ("kind", "wire"),
    [
        ("approval/decided", {"id": "q1", "outcome": "maybe"}),
        ("approval/policy", {"policy": "always"}),
        ("approval/asked", {"id": "q1"}),
    ],
)
def test_other_words_are_kept_and_count_for_nothing(kind: str, wire: dict[str, Any]) -> None:
    written = event_to_wire(SessionEvent(3, 1_700_000_000_000, ApprovalPolicySet("ask")))
    read = event_from_wire({**written, "type": kind, "data": wire})
    assert read.data == UnknownData(kind, wire)
    assert fold_policy([read]) is None


async def test_the_policy_of_a_session_is_the_last_one_logged() -> None:
    async with App() as app:
        agent, _ = stub_agent(app.ctx)
        assert fold_policy(agent.session.events) is None
        set_policy(agent, "never")
        set_policy(agent, "ask")
        set_policy(agent, "never")
        assert fold_policy(agent.session.events) == "never"
        assert len(agent.session.events) == 3
        with pytest.raises(ApprovalError, match="always") as caught:
            set_policy(agent, "always")  # pyright: ignore[reportArgumentType]
        assert caught.value.code == ApprovalError.BAD_POLICY
        assert len(agent.session.events) == 3


async def test_a_provider_is_read_through_the_interface() -> None:
    async with App() as app:
        consumer = app.mount(Consumer)
        provider = app.mount(SaysNo, {"policy": "never", "tone": "curt"})
        await provider.settled()
        await consumer.settled()
        service = app[Approval]
        assert Consumer.seen is service
        agent, _ = stub_agent(app.ctx)
        assert await service.request(ApprovalRequest(agent, "bash")) == Rejected("curt")
        assert service.policy(agent) == "never"
        set_policy(agent, "ask")
        assert service.policy(agent) == "ask"


async def test_the_interface_cannot_be_mounted_and_its_config_is_checked() -> None:
    async with App() as app:
        with pytest.raises(InvalidPluginError):
            app.mount(Approval)
        with pytest.raises(ConfigError, match="policy"):
            await app.mount(SaysNo, {"policy": "always"}).settled()


async def test_answerers_of_the_agent_are_asked_in_order() -> None:
    async with App() as app:
        await app.mount(SaysNo).settled()
        agent, _ = stub_agent(app.ctx, "a")
        foreign, _ = stub_agent(app.ctx, "b")
        asked: list[str] = []

        async def unavailable(event: ApprovalAsk) -> ApprovalOutcome:
            return Unavailable()

        def answer(name: str, outcome: ApprovalOutcome | None) -> Any:
            async def listener(event: ApprovalAsk, next: Next[ApprovalOutcome]) -> ApprovalOutcome:
                asked.append(name)
                return await next() if outcome is None else outcome

            return listener

        app.ctx.on(ApprovalAsk, answer("global", None))
        agent.ctx.on(ApprovalAsk, answer("own", None))
        foreign.ctx.on(ApprovalAsk, answer("foreign", AllowedOnce()))
        question = ApprovalAsk(ApprovalRequest(agent, "bash", "c1"))
        assert await app.ctx.waterfall(question, unavailable) == Unavailable()
        assert asked == ["global", "own"]
        agent.ctx.on(ApprovalAsk, answer("first", AllowedOnce()), prepend=True)
        assert await app.ctx.waterfall(question, unavailable) == AllowedOnce()
        assert asked == ["global", "own", "first"]
