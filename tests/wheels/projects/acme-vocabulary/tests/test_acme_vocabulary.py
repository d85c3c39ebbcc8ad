"""The feed reader, on a spine with a scripted model."""

from __future__ import annotations

from typing import cast

from acme_vocabulary import AcmeFeed, FeedPolled, Poll, Quiet

from dsh.agent import Agent
from dsh.llm_replay import text, tool_call
from dsh.session import ContextMessage, ToolResult, TurnEnd, TurnStart
from dsh.testkit import Spine, open_spine
from dsh.tools import Tool, ToolExecution

ITEMS = {"items": {"It rains": "https://acme.test/1", "It shines": "https://acme.test/2"}}


async def mounted(spine: Spine) -> AcmeFeed:
    mount = await spine.mount(AcmeFeed, ITEMS)
    return cast("AcmeFeed", mount.instance)


def logged(agent: Agent) -> list[object]:
    return [event.data for event in agent.session.events]


async def test_each_item_is_told_once() -> None:
    async with open_spine() as spine:
        feed = await mounted(spine)
        async with spine.agent() as agent:
            data = logged(agent)
            assert data[:2] == [TurnStart(1, Poll("news")), FeedPolled("news", 2)]
            assert [isinstance(item, ContextMessage) for item in data[2:]] == [True, True, False]
            assert data[-1] == TurnEnd(1, Quiet("2 new in news"))
            assert feed.poll(agent)
            assert logged(agent)[len(data) :] == [
                TurnStart(2, Poll("news")),
                FeedPolled("news", 0),
                TurnEnd(2, Quiet("0 new in news")),
            ]


async def test_the_feed_waits_while_the_loop_has_a_turn_open() -> None:
    async with open_spine([tool_call("c1", "look"), text("done")]) as spine:
        feed = await mounted(spine)

        async def look(arguments: object, execution: ToolExecution) -> str:
            assert execution.agent is not None
            return str(feed.poll(execution.agent))

        async with spine.agent(tools=[Tool("look", "Look.", {}, look)]) as agent:
            assert (await agent.ask("look")).ok
            (result,) = [item for item in logged(agent) if isinstance(item, ToolResult)]
            assert "False" in str(result.content)
            assert sum(isinstance(item, FeedPolled) for item in logged(agent)) == 1


async def test_what_the_feed_has_not_cannot_be_cited() -> None:
    script = [tool_call("c1", "cite", {"title": "It snows"}), text("no snow")]
    async with open_spine(script) as spine:
        await mounted(spine)
        async with spine.agent() as agent:
            assert (await agent.ask("cite the snow")).text == "no snow"
            (result,) = [item for item in logged(agent) if isinstance(item, ToolResult)]
            assert result.is_error
            assert "It snows" in str(result.content)
