"""Asking the listeners of an agent's decision events."""

from __future__ import annotations

import logging
from typing import Final, cast

from dsh.agent._agent import Agent
from dsh.agent._types import (
    AllowPrompt,
    BlockPrompt,
    ContinuationDecision,
    Continue,
    GiveUp,
    HookContext,
    PromptDecision,
    RequestErrorDecision,
    Retry,
    Stop,
)
from dsh.agent.errors import AgentFault
from dsh.agent.events import (
    AgentRequest,
    AgentRequestError,
    PreStep,
    PromptSubmit,
    SessionPrefix,
    StepResult,
    TurnContinuation,
    TurnStop,
)
from dsh.agent.loopkit._content_checks import checked_prompt, context_message
from dsh.agent.loopkit._failures import leaf_of
from dsh.core import Context
from dsh.llm import CancelSignal, ContentBlock, LlmCallConfig, Message
from dsh.session import MessageSource, freeze

_log: Final = logging.getLogger("dsh.agent")


class Policies:
    """Asks the policies of one agent, and takes nothing for an answer that is none.

    Each method dispatches one event with the default its declaration names. What a listener
    raises is raised here. Something that is no decision is an `AgentFault` of code
    `BAD_DECISION`; what a decision adds to the log is checked like everything that is said to
    an agent (`BAD_CONTENT`, `NotJsonError`).

    Args:
        ctx: Context to dispatch through: the loop's own.
        agent: Whose policies.
    """

    __slots__ = ("_agent", "_ctx")

    def __init__(self, ctx: Context, agent: Agent) -> None:
        self._ctx = ctx
        self._agent = agent

    async def prompt(
        self, content: tuple[ContentBlock, ...], source: MessageSource
    ) -> PromptDecision:
        """Ask `agent/prompt-submit`, inside the open turn and before the prompt is logged.

        Args:
            content: The prompt as it was sent.
            source: Who sent it.

        Returns:
            The decision. What it lets in or adds is checked and detached.
        """
        event = PromptSubmit(self._agent, content, source)
        decision = cast("object", await self._ctx.waterfall(event, _allow))
        if isinstance(decision, BlockPrompt):
            return decision
        if not isinstance(decision, AllowPrompt):
            raise no_decision(event.event_name, decision)
        rewritten = decision.content
        return AllowPrompt(
            None if rewritten is None else checked_prompt(rewritten),
            _detached(decision.additional_context),
        )

    async def prefix(self, signal: CancelSignal) -> tuple[Message, ...]:
        """Ask `agent/session-prefix`; once per agent, unless the turn was cancelled meanwhile.

        Args:
            signal: The turn's signal.

        Returns:
            The messages in front of the history; they cannot change any more.
        """
        event = SessionPrefix(self._agent, (), signal)
        composed = await self._ctx.waterfall(event, _given_prefix)
        messages = freeze(tuple(composed), where="session prefix")
        for message in messages:
            if not isinstance(message, Message):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise no_decision(event.event_name, message, "a tuple of messages")
        return messages

    async def pre_step(self, event: PreStep) -> None:
        """Ask `agent/pre-step`, right before the history becomes a request.

        Args:
            event: The step about to open.
        """
        result = cast("object", await self._ctx.serial(event))
        if result is not None:
            raise no_decision(event.event_name, result, "nothing")

    async def config(self, event: AgentRequest) -> LlmCallConfig:
        """Ask `agent/request`, inside the open step.

        Args:
            event: The step, with the configuration so far.

        Returns:
            The configuration; it names a model.

        Raises:
            AgentFault: Code `NO_MODEL`, and as always.
        """
        config = cast("object", await self._ctx.waterfall(event, _given_config))
        if not isinstance(config, LlmCallConfig):
            raise no_decision(event.event_name, config, "an LlmCallConfig")
        if not config.model:
            raise AgentFault(
                f"agent {self._agent.id!r} has no model",
                code=AgentFault.NO_MODEL,
                hint="set AgentOptions.model, or supply one in a listener of agent/request",
            )
        return config

    async def reply(self, event: StepResult) -> Message:
        """Ask `agent/step-result`, before the reply is logged.

        Args:
            event: The step, with the assembled reply.

        Returns:
            The reply to log.
        """
        message = cast("object", await self._ctx.waterfall(event, _given_message))
        if not isinstance(message, Message) or message.role != "assistant":
            raise no_decision(event.event_name, message, "an assistant message")
        return message

    async def again(self, event: AgentRequestError) -> bool:
        """Ask `agent/request-error`, after the failed step was closed.

        What breaks in here is logged and leaves the failure of the request as it is.

        Args:
            event: The step, and why it failed.

        Returns:
            Whether the request is made again.
        """
        try:
            decision = cast("object", await self._ctx.waterfall(event, _give_up))
            if not isinstance(decision, Retry | GiveUp):
                raise no_decision(event.event_name, decision)
        except Exception as error:  # noqa: BLE001 - the request's own failure is what counts
            _log.warning("agent %s: recovery failed: %s", self._agent.id, leaf_of(error))
            return False
        return isinstance(decision, Retry)

    async def goes_on(self, turn: int, wants_more: bool) -> ContinuationDecision:
        """Ask `agent/turn-continuation`, after a step that did not fail.

        Args:
            turn: The open turn.
            wants_more: Whether the step called tools or was steered.

        Returns:
            The decision. A reason to continue is checked and detached; log it as steering.
        """
        event = TurnContinuation(self._agent, turn, Continue() if wants_more else Stop())
        decision = cast("object", await self._ctx.waterfall(event, _given_decision))
        if isinstance(decision, Stop):
            return decision
        if not isinstance(decision, Continue):
            raise no_decision(event.event_name, decision)
        return Continue(_detached(decision.reason))

    async def stops_for_good(self, turn: int) -> bool:
        """Ask `agent/turn-stop`, after every step that did not fail.

        Args:
            turn: The open turn.

        Returns:
            Whether the turn ends here; waiting steering is then discarded.
        """
        event = TurnStop(self._agent, turn)
        verdict = cast("object", await self._ctx.serial(event))
        if verdict is not None and not isinstance(verdict, Stop):
            raise no_decision(event.event_name, verdict, "Stop() or nothing")
        return verdict is not None


def no_decision(event: str, value: object, wanted: str = "a decision") -> AgentFault:
    """Return the error for a listener that returned something else than what its event wants."""
    return AgentFault(
        f"a listener of {event} returned {value!r}, not {wanted}", code=AgentFault.BAD_DECISION
    )


def _detached(context: HookContext | None) -> HookContext | None:
    """Return what a decision adds, checked and copied."""
    if context is None:
        return None
    message = context_message(context)
    return HookContext(message.content, message.source)


async def _allow(event: PromptSubmit) -> PromptDecision:
    return AllowPrompt()


async def _given_prefix(event: SessionPrefix) -> tuple[Message, ...]:
    return event.prefix


async def _given_config(event: AgentRequest) -> LlmCallConfig:
    return event.config


async def _given_message(event: StepResult) -> Message:
    return event.message


async def _give_up(event: AgentRequestError) -> RequestErrorDecision:
    return GiveUp()


async def _given_decision(event: TurnContinuation) -> ContinuationDecision:
    return event.default
