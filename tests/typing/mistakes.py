"""What the checkers must refuse: each line here is a mistake, and an unused ignore is an error."""

from __future__ import annotations

from pydantic import BaseModel

from dsh.agent import Agent
from dsh.agent.events import AgentStatusChanged, PromptSubmit
from dsh.core import App, Next, Plugin, inject, on
from dsh.llm import LlmCallConfig, TextBlock
from dsh.loader import open_app
from dsh.session import Session, TurnStart
from dsh.session.events import SessionEventAppended
from dsh.tools import Deny, PreToolDecision, ToolPreExecute, ToolRegistry, tool


class Weather(BaseModel):
    degrees: float


@tool
async def weather(city: str) -> Weather:
    """Tell the weather."""
    return Weather(degrees=len(city))


async def calls_that_do_not_fit(agent: Agent) -> None:
    await weather(5)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await weather()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    await agent.ask(5)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]
    await agent.ask("x", output=Weather, check=False)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
    agent.send([1])  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]
    agent.status = "idle"  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]


def values_that_cannot_change(session: Session, config: LlmCallConfig, block: TextBlock) -> None:
    config.model = "other"  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]
    block.text = "other"  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]
    session.append("turn/start")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    TurnStart(1)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


class Gate(Plugin):
    tools = inject(ToolRegistry)

    async def start(self) -> None:
        self.tools.register(weather)  # type: ignore[call-arg, arg-type]  # pyright: ignore[reportCallIssue]
        self.tools.register(self.ctx, len)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]

    @on(SessionEventAppended)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    async def late(self, event: SessionEventAppended) -> None: ...

    @on(ToolPreExecute)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    def early(self, event: ToolPreExecute, next: Next[PreToolDecision]) -> PreToolDecision:
        return Deny("x")

    @on(ToolPreExecute)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    async def lonely(self, event: ToolPreExecute) -> PreToolDecision:
        return Deny("x")

    @on(PromptSubmit)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    async def mistaken(self, event: PromptSubmit, next: Next[PreToolDecision]) -> PreToolDecision:
        return Deny("x")


async def dispatches_in_the_wrong_mode(
    app: App, gate: ToolPreExecute, told: AgentStatusChanged
) -> None:
    app.ctx.emit(gate)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await app.ctx.parallel(told)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await app.ctx.serial(told)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


async def apps_that_do_not_exist() -> None:
    open_app(5)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    open_app(plugin=[Gate])  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    async with open_app() as app, app.agent(modle="x"):  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
        pass
