"""The way of a call: policies, a person, guards, the tool, judgement."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from dataclasses import replace
from typing import Final, assert_never, cast
from weakref import WeakSet

from dsh.approval import (
    AllowedOnce,
    Approval,
    ApprovalRequest,
    Cancelled,
    Rejected,
    Unavailable,
    is_outcome,
)
from dsh.core import Context, JsonObject, JsonValue, ScopedLayers
from dsh.llm import ContentBlock
from dsh.tools._arguments import InvalidArguments, fixed_arguments
from dsh.tools._content import checked_contexts, checked_result, clean_content
from dsh.tools._deadline import run_in_time
from dsh.tools._decisions import Accept, Allow, Ask, Block, Deny, PostToolDecision, PreToolDecision
from dsh.tools._execution import ExecutionToken, ToolCallInput, ToolExecution
from dsh.tools._failure import PolicyFailed, failure, is_harness_error
from dsh.tools._results import ToolExecutionResult
from dsh.tools._visibility import Layer, visible_tools
from dsh.tools.errors import (
    ToolArgsError,
    ToolCallError,
    ToolDecisionError,
    ToolNotFoundError,
    ToolOutputError,
)
from dsh.tools.events import ToolExecute, ToolPostExecute, ToolPreExecute

__all__ = ["Pipeline"]

_NO_REASON: Final = "no reason was given"


class Pipeline:
    """Runs the stages of calls. Holds nothing between them.

    Args:
        ctx: Context the events are dispatched from.
        layers: The registry's layers.
        tokens: Tokens of executions the registry made.
    """

    def __init__(
        self, ctx: Context, layers: ScopedLayers[Layer], tokens: WeakSet[ExecutionToken]
    ) -> None:
        self._ctx = ctx
        self._layers = layers
        self._tokens = tokens

    def prepare(self, call: ToolCallInput) -> tuple[ToolExecution, ToolExecutionResult | None]:
        """Make the execution of a call.

        Returns:
            The execution, and the error result when the call cannot even be considered. The
            execution has then neither arguments nor a parent.
        """
        try:
            if call.parent is not None and call.parent not in self._tokens:
                raise ToolCallError(
                    f"call {call.call_id!r} names a parent that is no execution of this registry"
                )
            execution = ToolExecution(
                call.call_id,
                call.name,
                _usable(call.arguments),
                agent=call.agent,
                parent=call.parent,
                signal=call.signal,
            )
        except Exception as error:  # noqa: BLE001 - a call never raises, it gets an error result
            shell = ToolExecution(
                call.call_id, call.name, None, agent=call.agent, signal=call.signal
            )
            return shell, failure(call.call_id, error)
        self._tokens.add(execution.token)
        return execution, None

    async def admit(self, execution: ToolExecution, approval: Approval | None) -> str | None:
        """Ask policies, a person if one has to be asked, and guards.

        Returns:
            Why the call is denied, or None.

        Raises:
            Exception: A policy, the approval service or a guard broke down.
        """
        decision = await self._consult(ToolPreExecute(execution))
        match decision:
            case Allow():
                pass
            case Deny(reason) if type(reason) is str:
                return reason or _NO_REASON
            case Ask(reason) if reason is None or type(reason) is str:
                denial = await _ask(execution, reason, approval)
                if denial is not None:
                    return denial
            case _:
                raise ToolDecisionError(
                    f"a listener of 'tools/pre-execute' returned {_describe(decision)}, which is "
                    "no decision",
                    code=ToolDecisionError.BAD_PRE_DECISION,
                    hint="return `await next()`, Allow(), Deny(reason) or Ask(reason)",
                )
        return self._guarded(execution)

    async def perform(self, execution: ToolExecution) -> ToolExecutionResult:
        """Run the tool inside its wrappers.

        Raises:
            Exception: A wrapper raised, or returned something else than a result of this call.
        """
        made: list[ToolExecutionResult] = []

        async def dispatch(event: ToolExecute) -> ToolExecutionResult:
            if event.execution.token is not execution.token:
                raise ToolOutputError(
                    "a listener of 'tools/execute' passed on another execution than its own"
                )
            made.append(await self._dispatch(event.execution))
            return made[-1]

        result = await self._ctx.waterfall(ToolExecute(execution), dispatch)
        if any(result is one for one in made):
            return result
        return checked_result(result, execution.call_id)

    async def judge(
        self, execution: ToolExecution, result: ToolExecutionResult
    ) -> ToolExecutionResult:
        """Let policies accept or block a result.

        Raises:
            Exception: A policy raised, or returned something that is no decision.
        """
        # a shell of its own: what it holds cannot change
        shown = ToolPostExecute(execution, replace(result))
        decision = cast("object", await self._ctx.waterfall(shown, _accept))
        match decision:
            case Accept(content, contexts):
                return replace(
                    result,
                    content=result.content if content is None else _decided(content),
                    additional_context=result.additional_context
                    if contexts is None
                    else checked_contexts(contexts),
                )
            case Block(feedback, contexts):
                return ToolExecutionResult(
                    result.call_id,
                    _decided(feedback),
                    is_error=True,
                    additional_context=() if contexts is None else checked_contexts(contexts),
                )
            case _:
                raise ToolDecisionError(
                    f"a listener of 'tools/post-execute' returned {_describe(decision)}, which "
                    "is no decision",
                    code=ToolDecisionError.BAD_POST_DECISION,
                    hint="return `await next()`, Accept(...) or Block(...)",
                )

    async def _consult(self, event: ToolPreExecute) -> object:
        """Ask the policies; what one raises that is no harness error is reported as its plugin's.

        Raises:
            PolicyFailed: A policy broke down.
        """
        blamed: list[str] = []

        def blame(owner: Context, error: Exception) -> None:
            if not is_harness_error(error):
                owner.report(error, f"listener of {event.event_name}")
                blamed.append(owner.owner.name)

        try:
            # listeners are plugins: what comes back need not be what the types promise
            return await self._ctx.waterfall(event, _allow, on_failure=blame)
        except Exception as error:
            if not blamed or is_harness_error(error):
                raise
            raise PolicyFailed(blamed[-1], error) from error

    def _guarded(self, execution: ToolExecution) -> str | None:
        for layer in self._layers.chain(execution.agent):
            for guard in layer.guards:
                reason: object = guard(execution)
                if reason is None:
                    continue
                if type(reason) is str:
                    return reason or _NO_REASON
                if inspect.iscoroutine(reason):
                    reason.close()
                raise ToolDecisionError(
                    f"a guard returned {_describe(reason)}, neither a reason nor None",
                    code=ToolDecisionError.BAD_GUARD_RESULT,
                )
        return None

    async def _dispatch(self, execution: ToolExecution) -> ToolExecutionResult:
        try:
            tools = visible_tools(self._layers.chain(execution.agent))
            tool = tools.get(execution.name)
            if tool is None:
                raise ToolNotFoundError(execution.name, _suggestion(execution.name, tools))
            output = await run_in_time(self._ctx, tool, execution)
            return ToolExecutionResult(execution.call_id, tuple(output.content), meta=output.meta)
        except Exception as error:  # noqa: BLE001 - what a tool raises is its result
            return failure(execution.call_id, error)


async def _allow(event: ToolPreExecute) -> PreToolDecision:
    return Allow()


async def _accept(event: ToolPostExecute) -> PostToolDecision:
    return Accept()


async def _ask(
    execution: ToolExecution, reason: str | None, approval: Approval | None
) -> str | None:
    """Put the question to a person and return why the call is denied, or None."""
    name = execution.name
    if approval is None:
        return reason or f"{name} needs approval, and nobody can be asked here"
    if execution.agent is None:
        return reason or f"{name} needs approval, and a call without an agent cannot ask for it"
    outcome = await approval.request(
        ApprovalRequest(execution.agent, name, execution.call_id, reason, execution.signal)
    )
    if not is_outcome(outcome):
        raise ToolDecisionError(
            f"the approval service answered {_describe(outcome)}, which is no outcome",
            code=ToolDecisionError.BAD_APPROVAL,
        )
    match outcome:
        case AllowedOnce():
            return None
        case Rejected(None):
            return f"the user rejected this call of {name}"
        case Rejected(feedback):
            return f"the user rejected this call of {name}: {feedback}"
        case Cancelled():
            return f"the request to approve this call of {name} was cancelled"
        case Unavailable():
            return f"{name} needs approval, and nobody was available to give it"
        case _:
            assert_never(outcome)


def _usable(arguments: JsonValue | InvalidArguments) -> JsonObject:
    if isinstance(arguments, InvalidArguments):
        raise ToolArgsError([arguments.problem])
    return fixed_arguments(arguments)


def _decided(content: object) -> tuple[ContentBlock, ...]:
    return clean_content(content, "content of the decision")


def _suggestion(name: str, tools: Iterable[str]) -> str | None:
    # only a mistake pays for this import
    import difflib

    close = difflib.get_close_matches(name, list(tools), n=1)
    return f"did you mean {close[0]!r}?" if close else None


def _describe(value: object) -> str:
    return f"a {type(value).__name__}"
