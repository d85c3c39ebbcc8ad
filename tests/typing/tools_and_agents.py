"""What the checkers must infer where people write tools, drive agents and open apps."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypedDict, assert_type

from pydantic import BaseModel, Field

from dsh.agent import Agent, AgentRegistry, OutputInvalid, Receipt, Run, TurnFailed, TurnOutcome
from dsh.agent_core import create_agent
from dsh.bash import BashExecutor, BashRequest, BashResult, BashSpec
from dsh.core import App, Effect, JsonValue, Mount, Next, Plugin, PluginConfig, inject, on, settings
from dsh.llm import LlmService, Message, TextBlock, TokenUsage
from dsh.loader import Deployment, LoadedApp, open_app, read_deployment, run_sync
from dsh.session import AssistantMessage, Session, SessionEvent, ToolResult, TurnEndReason
from dsh.session.events import SessionEventAppended
from dsh.tools import (
    Deny,
    FunctionTool,
    PreToolDecision,
    Tool,
    ToolExecution,
    ToolExecutionResult,
    ToolOutput,
    ToolPreExecute,
    ToolRegistry,
    tool,
)

# -- tools ---------------------------------------------------------------------------------------


class Place(TypedDict):
    name: str
    zip: str


class Weather(BaseModel):
    city: str
    degrees: float


@tool
async def weather(city: str, unit: Literal["C", "F"] = "C") -> Weather:
    """Tell the weather."""
    return Weather(city=city, degrees=21 if unit == "C" else 70)


@tool(name="find_places", timeout_ms=500, concurrent=True)
def find(query: str, limit: Annotated[int, Field(ge=1)] = 3) -> list[Place]:
    """Find places."""
    return [Place(name=query, zip="0")][:limit]


@tool
async def with_call(text: str, execution: ToolExecution) -> ToolOutput | str:
    """Look at the call itself."""
    assert_type(execution.agent, Agent | None)
    return text


class Notes(Plugin):
    """A plugin as people write them."""

    class Config(PluginConfig):
        prefix: str = ""

    config = settings(Config)
    tools = inject(ToolRegistry)
    bash = inject(BashExecutor)
    agents = inject(AgentRegistry, optional=True)

    async def start(self) -> None:
        assert_type(self.config, Notes.Config)
        assert_type(self.config.prefix, str)
        assert_type(self.tools, ToolRegistry)
        assert_type(self.bash, BashExecutor)
        assert_type(self.agents, AgentRegistry | None)
        assert_type(self.tools.register(self.ctx, weather), Effect)
        assert_type(self.tools.register(self.ctx, self.note), Effect)

    @tool
    async def note(self, text: str) -> int:
        """Remember a text."""
        return len(text)

    @tool(name="forget")
    def forget(self, text: str) -> None:
        """Forget a text."""

    @on(ToolPreExecute)
    async def gate(self, event: ToolPreExecute, next: Next[PreToolDecision]) -> PreToolDecision:
        assert_type(event.execution, ToolExecution)
        assert_type(event.execution.name, str)
        if event.execution.name == "forget":
            return Deny("never")
        return assert_type(await next(), PreToolDecision)

    @on(SessionEventAppended)
    def seen(self, event: SessionEventAppended) -> None:
        assert_type(event.session, Session)
        match event.event.data:
            case AssistantMessage() as reply:
                assert_type(reply.usage, TokenUsage | None)
            case ToolResult() as result:
                assert_type(result.is_error, bool)
            case _:
                pass

    async def run_command(self) -> str:
        spec = assert_type(self.bash.resolve(BashRequest(command="ls")), BashSpec)
        result = assert_type(await self.bash.run(spec), BashResult)
        assert_type(result.exit_code, int | None)
        return assert_type(result.stdout.text, str)


async def tools_are_called_like_their_functions(notes: Notes) -> None:
    assert_type(await weather("Oslo"), Weather)
    assert_type(await weather("Oslo", unit="F"), Weather)
    assert_type(find("Oslo", limit=1), list[Place])
    assert_type(await notes.note("x"), int)
    notes.forget("x")
    several: list[Tool] = [weather, find, with_call, notes.note, notes.forget]
    assert_type(several[0].name, str)


def takes_any_tool(one: FunctionTool[..., Any]) -> Tool:
    return one


# -- agents --------------------------------------------------------------------------------------


async def asked(agent: Agent) -> None:
    outcome = assert_type(await agent.ask("hi"), TurnOutcome)
    assert_type(outcome.text, str)
    assert_type(outcome.ok, bool)
    assert_type(outcome.message, Message | None)
    assert_type(outcome.usage, TokenUsage | None)
    assert_type(await agent.ask([TextBlock("hi")], check=False), TurnOutcome)


async def asked_for_a_shape(agent: Agent, schema: Mapping[str, Any]) -> None:
    answer = assert_type(await agent.ask("weather?", output=Weather), Weather)
    assert_type(answer.degrees, float)
    assert_type(await agent.ask("numbers?", output=list[int]), list[int])
    assert_type(await agent.ask("how many?", output=int, retries=0), int)
    assert_type(await agent.ask("place?", output=Place), Place)
    assert_type(await agent.ask("anything?", output=schema), JsonValue)


async def errors_tell_what_came_of_it(agent: Agent) -> None:
    try:
        await agent.ask("hi", output=Weather)
    except OutputInvalid as error:
        assert_type(error.violations, tuple[str, ...])
        assert_type(error.outcome, TurnOutcome)
    except TurnFailed as error:
        assert_type(error.outcome.text, str)
        assert_type(error.code, str)


async def followed(agent: Agent) -> None:
    async with agent.run("hi") as run:
        assert_type(run, Run)
        events: AsyncIterator[SessionEvent] = aiter(run)
        async for event in events:
            assert_type(event, SessionEvent)
            assert_type(event.type, str)
            assert_type(event.seq, int)
        assert_type(await run.done(), TurnOutcome)
        assert_type(run.receipt, Receipt)


async def driven(agent: Agent) -> None:
    receipt = assert_type(agent.send("hi"), Receipt)
    assert_type(await receipt.done(), TurnOutcome)
    assert_type(agent.steer("more"), Receipt)
    agent.inject("by the way")
    agent.cancel("enough")
    await agent.when_idle()
    assert_type(agent.status, Literal["idle", "running", "disposed"])
    assert_type(agent.session.derive_messages(), tuple[Message, ...])
    agent.ctx[ToolRegistry].register(agent.ctx, weather)


def reason_of(outcome: TurnOutcome) -> str:
    return assert_type(outcome.reason.kind, str)


def is_an_outcome_reason(reason: TurnEndReason) -> str:
    return reason.kind


# -- apps ----------------------------------------------------------------------------------------


async def opened(path: Path, deployment: Deployment) -> None:
    async with open_app({"model": "replay/scripted", "plugins": ["tool-bash"]}) as app:
        assert_type(app, LoadedApp)
        assert_type(app[LlmService], LlmService)
        assert_type(app.get(BashExecutor), BashExecutor | None)
        assert_type(app.mount(Notes), Mount)
        async with app.agent(model="replay/scripted", cwd=path, tools=[weather, find]) as agent:
            assert_type(agent, Agent)
    async with open_app(path), open_app("dsh.yaml"), open_app(deployment), open_app():
        pass
    async with open_app(plugins=[Notes, (Notes, {"prefix": "> "})]) as app:
        assert_type(app.deployment, Deployment)
    assert_type(read_deployment(project=path), Deployment)


async def by_hand(app: App) -> None:
    async with create_agent(app, model="test/scripted", tools=[weather]) as agent:
        assert_type(agent, Agent)
    result = await app[ToolRegistry].execute(_call())
    assert_type(result, ToolExecutionResult)


def _call() -> Any:
    return None


async def total(a: int, b: int) -> float:
    return a + b


def from_a_script() -> None:
    assert_type(run_sync(total, 1, 2), float)
