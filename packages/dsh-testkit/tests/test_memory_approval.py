"""The approval service whose answers a test writes down."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from dsh.agent import Agent
from dsh.approval import (
    AllowedOnce,
    ApprovalAsk,
    ApprovalAsked,
    ApprovalDecided,
    ApprovalError,
    ApprovalOutcome,
    ApprovalRequest,
    Cancelled,
    Rejected,
    Unavailable,
    set_policy,
)
from dsh.core import Next
from dsh.llm import CancelSignal
from dsh.session import Aborted, InjectionTrigger, PluginSource, TurnEnd, TurnStart
from dsh.testkit import (
    Failures,
    MemoryApproval,
    Spine,
    assert_balanced,
    never_answered,
    open_spine,
    soon,
    text,
    tool_call,
    tool_results,
    turn_reasons,
)
from dsh.tools import Ask, PreToolDecision, ToolPreExecute, ToolRegistry, tool


@tool
async def deploy(target: str) -> str:
    """Deploy something.

    Args:
        target: Where to.
    """
    return f"deployed to {target}"


async def ask_first(event: ToolPreExecute, next: Next[PreToolDecision]) -> PreToolDecision:
    return Ask("deploying is serious")


@pytest.fixture
async def asking(spine: Spine) -> Spine:
    """A spine with a tool that needs consent."""
    spine.app[ToolRegistry].register(spine.app.ctx, deploy)
    spine.app.ctx.on(ToolPreExecute, ask_first)
    return spine


def decisions(agent: Agent) -> list[tuple[str, str | None]]:
    """Return what the log says about questions; each has its own id and one end."""
    asked = [e.data for e in agent.session.events if isinstance(e.data, ApprovalAsked)]
    decided = [e.data for e in agent.session.events if isinstance(e.data, ApprovalDecided)]
    assert [item.id for item in asked] == [item.id for item in decided]
    assert len({item.id for item in asked}) == len(asked)
    return [(item.outcome, item.feedback) for item in decided]


# case: T-14
async def test_answers_are_given_in_order(
    asking: Spine, agent: Agent, approval: MemoryApproval
) -> None:
    approval.answer(AllowedOnce(), Rejected("not on a Friday"), lambda request: AllowedOnce())
    for number in range(4):
        asking.model.append(tool_call(f"c{number}", "deploy", {"target": "prod"}))
    asking.model.append(text("done"))
    outcome = await soon(agent.ask("ship it"))
    assert outcome.text == "done"
    results = tool_results(agent.session.events)
    assert [result.is_error for result in results] == [False, True, False, True]
    assert decisions(agent) == [
        ("allowed-once", None),
        ("rejected", "not on a Friday"),
        ("allowed-once", None),
        ("unavailable", None),
    ]
    assert approval.outcomes[0] == AllowedOnce()
    first = approval.requests[0]
    assert (first.agent, first.tool_name, first.call_id) == (agent, "deploy", "c0")
    assert first.reason == "deploying is serious"
    assert approval.remaining == 0
    assert_balanced(agent.session.events)


async def test_a_question_is_logged_inside_its_turn_before_anybody_is_asked(
    asking: Spine, agent: Agent, approval: MemoryApproval
) -> None:
    seen: list[str] = []

    def answer(request: ApprovalRequest) -> ApprovalOutcome:
        seen.append(request.agent.session.events[-1].type)
        return AllowedOnce()

    approval.answer(answer)
    asking.model.append(tool_call("c", "deploy", {"target": "prod"}), text("done"))
    await soon(agent.ask("ship it"))
    assert seen == ["approval/asked"]
    wire = [event for event in agent.session.events if event.type.startswith("approval/")]
    assert [event.type for event in wire] == ["approval/asked", "approval/decided"]


async def test_without_a_turn_nothing_is_logged(agent: Agent, approval: MemoryApproval) -> None:
    with pytest.raises(ApprovalError) as caught:
        await approval.request(ApprovalRequest(agent, "deploy"))
    assert caught.value.code == ApprovalError.NO_OPEN_TURN
    assert len(agent.session.events) == 0
    assert approval.requests == []


async def in_a_turn(agent: Agent, approval: MemoryApproval, **fields: Any) -> ApprovalOutcome:
    """Put a question while a turn is open that no loop drives."""
    session = agent.session
    session.append(TurnStart(session.last_turn + 1, InjectionTrigger(PluginSource("test"))))
    try:
        return await approval.request(ApprovalRequest(agent, "deploy", **fields))
    finally:
        session.append(TurnEnd(session.last_turn, Aborted()))


async def test_listeners_come_before_the_script(
    spine: Spine, agent: Agent, approval: MemoryApproval
) -> None:
    async def busy(event: ApprovalAsk, next: Next[ApprovalOutcome]) -> ApprovalOutcome:
        return await next()

    async def decides(event: ApprovalAsk, next: Next[ApprovalOutcome]) -> ApprovalOutcome:
        return Rejected("by a listener")

    approval.answer(AllowedOnce())
    agent.ctx.on(ApprovalAsk, busy)
    assert await in_a_turn(agent, approval) == AllowedOnce()
    entry = agent.ctx.on(ApprovalAsk, decides)
    assert await in_a_turn(agent, approval) == Rejected("by a listener")
    await entry.dispose()
    async with spine.agent() as other:
        other.ctx.on(ApprovalAsk, decides)
        assert await in_a_turn(agent, approval) == Unavailable()


async def test_policy_never_asks_nobody(
    spine: Spine, agent: Agent, approval: MemoryApproval
) -> None:
    asked: list[ApprovalRequest] = []

    async def listen(event: ApprovalAsk, next: Next[ApprovalOutcome]) -> ApprovalOutcome:
        asked.append(event.request)
        return await next()

    spine.app.ctx.on(ApprovalAsk, listen, prepend=True)
    approval.otherwise = AllowedOnce()
    assert approval.policy(agent) == "ask"
    set_policy(agent, "never")
    assert approval.policy(agent) == "never"
    assert await in_a_turn(agent, approval) == Rejected()
    set_policy(agent, "ask")
    assert await in_a_turn(agent, approval) == AllowedOnce()
    assert len(asked) == 1


async def test_the_configured_policy_holds_until_a_session_says_otherwise() -> None:
    row = (MemoryApproval, {"policy": "never"})
    async with open_spine(plugins=[row]) as spine, spine.agent() as agent:
        approval = spine.app["approval"]
        assert await in_a_turn(agent, approval) == Rejected()
        set_policy(agent, "ask")
        assert await in_a_turn(agent, approval) == Unavailable()


async def test_broken_answers_are_no_consent(
    agent: Agent, approval: MemoryApproval, failures: Failures
) -> None:
    def raises(request: ApprovalRequest) -> ApprovalOutcome:
        raise ValueError("no idea")

    rogue: Any = "yes"
    approval.answer(raises, rogue, lambda request: rogue)
    for _ in range(3):
        assert await in_a_turn(agent, approval) == Unavailable()
    (failure,) = failures.take()
    assert str(failure.error) == "no idea"


async def test_an_aborted_question_asks_nobody(agent: Agent, approval: MemoryApproval) -> None:
    signal = CancelSignal()
    signal.abort()
    approval.answer(AllowedOnce())
    assert await in_a_turn(agent, approval, signal=signal) == Cancelled()
    assert approval.remaining == 1


async def test_cancel_withdraws_an_open_question(
    asking: Spine, agent: Agent, approval: MemoryApproval
) -> None:
    approval.answer(never_answered)
    asking.model.append(tool_call("c", "deploy", {"target": "prod"}))
    receipt = agent.send("ship it")
    await soon(approval.asked())
    await anyio.wait_all_tasks_blocked()
    agent.cancel("changed my mind")
    await soon(receipt.done())
    assert decisions(agent) == [("cancelled", None)]
    assert turn_reasons(agent.session.events) == [Aborted("changed my mind")]
    assert_balanced(agent.session.events)


async def test_a_question_that_is_torn_down_gets_its_end(
    spine: Spine, agent: Agent, approval: MemoryApproval
) -> None:
    approval.answer(never_answered)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(in_a_turn, agent, approval)
        await soon(approval.asked())
        await anyio.wait_all_tasks_blocked()
        tasks.cancel_scope.cancel()
    assert decisions(agent) == [("cancelled", None)]
