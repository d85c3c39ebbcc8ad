"""Calls that need a person's consent."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, ClassVar

import pytest

from dsh.agent import Agent
from dsh.agent.testing import stub_agent
from dsh.approval import (
    AllowedOnce,
    Approval,
    ApprovalOutcome,
    ApprovalPolicy,
    ApprovalRequest,
    Cancelled,
    Rejected,
    Unavailable,
)
from dsh.core import App, Next
from dsh.llm import CancelSignal
from dsh.tools import Ask, PreToolDecision, Tool, ToolRegistry
from dsh.tools.events import ToolPostExecute, ToolPreExecute
from dsh.tools.testing import call_tool, text_of, tools_app


class Answers(Approval):
    """Answers every question with `answer`, or raises it."""

    answer: ClassVar[Any] = AllowedOnce()

    async def start(self) -> None:
        self.asked: list[ApprovalRequest] = []

    async def request(self, request: ApprovalRequest) -> ApprovalOutcome:
        self.asked.append(request)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def policy(self, agent: Agent) -> ApprovalPolicy:
        return "ask"


@asynccontextmanager
async def asking_app(
    reason: str | None, answer: Any = None
) -> AsyncGenerator[tuple[App, ToolRegistry, list[str]]]:
    async with tools_app() as (app, tools):
        if answer is not None:
            provider = type("TestAnswers", (Answers,), {"answer": answer})
            await app.mount(provider).settled()
        ran: list[str] = []

        async def ask(event: ToolPreExecute, next: Next[PreToolDecision]) -> PreToolDecision:
            return Ask(reason)

        made = Tool("bash", "d", {}, lambda arguments, call: ran.append(call.call_id))
        tools.register(app.ctx, made)
        app.ctx.on(ToolPreExecute, ask)
        yield app, tools, ran


# case: T-13
@pytest.mark.parametrize(
    ("reason", "token"), [("writes outside", "Error: writes outside"), (None, "bash")]
)
async def test_without_an_approval_service(reason: str | None, token: str) -> None:
    async with asking_app(reason) as (app, tools, ran):
        agent, _ = stub_agent(app.ctx)
        result = await call_tool(tools, "bash", agent=agent)
        assert result.is_error
        assert token in text_of(result)
        assert result.error is None
        assert ran == []


# case: T-14
async def test_allowed_once_runs_and_forwards_the_call() -> None:
    async with asking_app("writes outside", AllowedOnce()) as (app, tools, ran):
        agent, _ = stub_agent(app.ctx)
        signal = CancelSignal()
        result = await call_tool(tools, "bash", call_id="c9", agent=agent, signal=signal)
        assert not result.is_error
        assert ran == ["c9"]
        service = app[Approval]
        assert isinstance(service, Answers)
        assert service.asked == [ApprovalRequest(agent, "bash", "c9", "writes outside", signal)]
        # consent does not overrule a guard
        tools.guard(app.ctx, lambda execution: "guarded")
        assert text_of(await call_tool(tools, "bash", agent=agent)) == "Error: guarded"
        assert ran == ["c9"]


# case: T-14
async def test_the_other_outcomes_deny_in_different_words() -> None:
    texts: list[str] = []
    outcomes = (Rejected(), Rejected("use the other file"), Cancelled(), Unavailable())
    for outcome in outcomes:
        async with asking_app(None, outcome) as (app, tools, ran):
            agent, _ = stub_agent(app.ctx)
            posts: list[bool] = []

            async def post(
                event: ToolPostExecute, next: Next[Any], posts: list[bool] = posts
            ) -> Any:
                posts.append(event.result.is_error)
                return await next()

            app.ctx.on(ToolPostExecute, post)
            result = await call_tool(tools, "bash", agent=agent)
            assert result.is_error
            assert result.error is None
            assert posts == [True]
            assert ran == []
            texts.append(text_of(result))
    assert len(set(texts)) == len(outcomes)
    assert all("bash" in text for text in texts)
    assert texts[0].endswith("the user rejected this call of bash")
    assert texts[1].endswith(": use the other file")


# case: T-14
async def test_a_call_without_an_agent_asks_nobody() -> None:
    async with asking_app(None, AllowedOnce()) as (app, tools, ran):
        result = await call_tool(tools, "bash")
        assert result.is_error
        assert "without an agent" in text_of(result)
        service = app[Approval]
        assert isinstance(service, Answers)
        assert service.asked == []
        assert ran == []


# case: T-14
@pytest.mark.parametrize(
    "answer",
    ["allowed-once", True, AllowedOnce, Rejected(5), RuntimeError("no window")],  # pyright: ignore[reportArgumentType]
    ids=repr,
)
async def test_a_rogue_answer_is_an_error_result(answer: Any) -> None:
    async with asking_app(None, answer) as (app, tools, ran):
        agent, _ = stub_agent(app.ctx)
        result = await call_tool(tools, "bash", agent=agent)
        assert result.is_error
        assert ran == []
        if not isinstance(answer, Exception):
            assert result.error is not None
            assert result.error.code == "INVALID_APPROVAL_OUTCOME"


async def test_a_question_without_a_valid_reason_is_refused() -> None:
    async with asking_app(5, AllowedOnce()) as (app, tools, ran):  # pyright: ignore[reportArgumentType]
        agent, _ = stub_agent(app.ctx)
        result = await call_tool(tools, "bash", agent=agent)
        assert result.error is not None
        assert result.error.code == "INVALID_PRE_DECISION"
        assert ran == []
