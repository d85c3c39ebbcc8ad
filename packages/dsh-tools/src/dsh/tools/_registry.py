"""The tool registry: who sees which tool, and the way into the pipeline."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import ClassVar, cast
from weakref import WeakSet

from dsh.approval import Approval
from dsh.core import Context, Effect, JsonObject, ScopedLayers, Service, inject, scope_of
from dsh.llm import ToolSchema
from dsh.system_prompt import AssembleContext, SystemPrompt, ToolProviderResult
from dsh.tools._arguments import InvalidArguments, parse_arguments
from dsh.tools._execution import ExecutionToken, ToolCallInput
from dsh.tools._pending import PendingCall
from dsh.tools._pipeline import Pipeline
from dsh.tools._presentation import CallView, GenericCard, GenericResult, ResultView, ToolOutcome
from dsh.tools._results import ToolExecutionResult
from dsh.tools._tool import Tool
from dsh.tools._visibility import (
    Guard,
    Layer,
    Restriction,
    inherited_names,
    known_names,
    visible_tools,
)
from dsh.tools.errors import ToolDefinitionError, ToolRegistrationError
from dsh.tools.events import ToolsChange

__all__ = ["ToolRegistry"]


class ToolRegistry(Service, key="tools"):
    """Holds the tools and runs their calls.

    What is registered through an agent's context is seen by that agent alone, replaces the
    global tool of the same name, and leaves with the agent. Prompt, look-up and execution all
    use the same view.
    """

    name: ClassVar[str] = "tools"

    system_prompt = inject(SystemPrompt)
    approval = inject(Approval, optional=True)

    async def start(self) -> None:
        """Offer the tools to the prompt."""
        self._layers: ScopedLayers[Layer] = ScopedLayers(Layer, self._changed)
        self._pipeline = Pipeline(self.ctx, self._layers, WeakSet[ExecutionToken]())
        self.system_prompt.tools(self.ctx, self._provide)

    # --- registration ---------------------------------------------------------------------

    def register(self, ctx: Context, tool: Tool) -> Effect:
        """Add a tool.

        Args:
            ctx: Owner; decides how long the tool exists and who sees it.
            tool: The tool.

        Returns:
            The registration; disposing it removes the tool.

        Raises:
            ToolRegistrationError: Code `DUPLICATE_TOOL` when the name is taken in this layer.
            ToolDefinitionError: It is no tool, or its types cannot be resolved.
        """
        if not isinstance(cast("object", tool), Tool):
            raise ToolDefinitionError(
                f"{tool!r} is no tool", hint="decorate a function with @tool, or make a Tool"
            )
        tool.prepare()

        def enter(layer: Layer) -> Callable[[], object]:
            if tool.name in layer.tools:
                raise self._duplicate(tool.name, layer)
            return layer.tools.add(tool.name, tool)

        return self._layers.register(ctx, enter, label=f"tool {tool.name}")

    def restrict(
        self,
        ctx: Context,
        *,
        allow: Iterable[str] | None = None,
        deny: Iterable[str] | None = None,
    ) -> Effect:
        """Hide inherited tools from a scope: from its prompts and from its calls.

        Restrictions add up and are lifted one by one. They are evaluated at each look-up, so a tool
        registered later is hidden by an allow list and shown by a deny list. Tools of the scope
        itself are never hidden.

        Args:
            ctx: Owner, a scoped context: whose view is masked, and for how long.
            allow: The only names to let through; None lets all through.
            deny: Names to hide.

        Returns:
            The registration; disposing it shows the tools again.

        Raises:
            ToolRegistrationError: The context has no scope (`RESTRICTION_UNSCOPED`), nothing
                is restricted (`RESTRICTION_EMPTY`), a name is not inherited
                (`RESTRICTION_UNKNOWN_NAMES`), or the names are no names
                (`RESTRICTION_BAD_NAMES`).
        """
        key = scope_of(ctx)
        if key is None:
            raise ToolRegistrationError(
                "a restriction needs a scoped context",
                code=ToolRegistrationError.UNSCOPED,
                hint="restrict through agent.ctx; to hide a tool from everybody, do not mount it",
            )
        allowed = None if allow is None else _names(allow, "allow")
        denied = frozenset[str]() if deny is None else _names(deny, "deny")
        if allowed is None and not denied:
            raise ToolRegistrationError(
                "this restriction would be a no-op", code=ToolRegistrationError.EMPTY
            )
        mask = Restriction(allowed, denied)

        def enter(layer: Layer) -> Callable[[], object]:
            known = inherited_names(self._layers.chain(key), layer)
            unknown = sorted((denied | (allowed or frozenset())).difference(known))
            if unknown:
                names = ", ".join(map(repr, unknown))
                raise ToolRegistrationError(
                    f"the restriction names {'an ' if len(unknown) == 1 else ''}unknown "
                    f"tool{'' if len(unknown) == 1 else 's'} {names}; inherited tools: "
                    f"{', '.join(sorted(known)) or '(none)'}",
                    code=ToolRegistrationError.UNKNOWN_NAMES,
                )
            return layer.restrictions.add(mask)

        return self._layers.register(ctx, enter, label="tool restriction")

    def guard(self, ctx: Context, fn: Guard) -> Effect:
        """Add a veto that runs after every policy and cannot be overruled.

        Guards run for every call that is not denied, those of outer layers first; the first reason
        denies. Two registrations of one function are independent.

        Args:
            ctx: Owner; decides how long the guard stands and for whose calls.
            fn: Takes the execution and returns why the call is denied, or None.

        Returns:
            The registration; disposing it removes the guard.

        Raises:
            ToolRegistrationError: Code `INVALID_GUARD` when it is not a synchronous callable.
        """
        if not callable(fn) or inspect.iscoroutinefunction(fn):
            raise ToolRegistrationError(
                "a guard is a synchronous function",
                code=ToolRegistrationError.BAD_GUARD,
                hint="listen to 'tools/pre-execute' to decide asynchronously",
            )
        return self._layers.register(
            ctx, lambda layer: layer.guards.add(fn), label="tool guard", notify=False
        )

    # --- look-up --------------------------------------------------------------------------

    def visible(self, scope: object | None = None) -> tuple[Tool, ...]:
        """Return the tools a scope sees: global ones as registered, then its own.

        Args:
            scope: The scope key, an agent usually; None sees the global tools.
        """
        return tuple(visible_tools(self._layers.chain(scope)).values())

    def get(self, name: str, scope: object | None = None) -> Tool | None:
        """Return the tool a scope sees under a name, or None.

        Args:
            name: The name.
            scope: The scope key, an agent usually; None sees the global tools.
        """
        return visible_tools(self._layers.chain(scope)).get(name)

    def schemas(self, scope: object | None = None) -> tuple[ToolSchema, ...]:
        """Return what the model of a scope is offered; the caller's own copies.

        Args:
            scope: The scope key, an agent usually; None sees the global tools.
        """
        return tuple(tool.schema for tool in self.visible(scope))

    def known_names(self, scope: object | None = None) -> tuple[str, ...]:
        """Return every name a scope could see if nothing were restricted.

        Args:
            scope: The scope key, an agent usually; None knows the global tools.
        """
        return tuple(known_names(self._layers.chain(scope)))

    def concurrent(self, call: ToolCallInput) -> bool:
        """Tell whether a call may overlap with other such calls; never raises.

        Unknown tools and arguments that do not fit are exclusive.

        Args:
            call: The call, not begun yet.
        """
        if not isinstance(call.arguments, dict):
            return False
        tool = self.get(call.name, call.agent)
        return tool is not None and tool.is_concurrent(call.arguments)

    # --- execution ------------------------------------------------------------------------

    async def execute(self, call: ToolCallInput) -> ToolExecutionResult:
        """Run a call through the whole pipeline.

        Never raises: whatever goes wrong is an error result. Only the cancellation of the
        surrounding task passes through.

        Args:
            call: The call.

        Returns:
            The outcome, after every observer has seen it.
        """
        pending = await self.begin(call)
        return await pending.run()

    async def begin(self, call: ToolCallInput) -> PendingCall:
        """Run the first half of a call: the policies, a person where one is asked, the guards.

        For loops that let calls overlap: begin them in call order, run them together, and
        commit what they come to in call order. Never raises, like `execute`.

        Args:
            call: The call.

        Returns:
            The second half, also for a call that is refused. It has to be run or abandoned.
        """
        execution, refusal = self._pipeline.prepare(call)
        pending = PendingCall(self.ctx, self._pipeline, execution, refusal)
        await pending.admit(self.approval)
        return pending

    # --- presentation ---------------------------------------------------------------------

    def call_view(
        self, name: str, arguments: JsonObject | str, scope: object | None = None
    ) -> CallView:
        """Return how a call looks; never raises.

        Args:
            name: Name of the tool; one that no longer exists gets a generic card.
            arguments: The arguments, also as the text in a log.
            scope: Whose tool it is.
        """
        parsed = parse_arguments(arguments) if isinstance(arguments, str) else arguments
        tool = self.get(name, scope)
        if isinstance(parsed, InvalidArguments):
            return GenericCard(name, raw_input=parsed.text)
        return GenericCard(name, raw_input=parsed) if tool is None else tool.call_view(parsed)

    def result_view(
        self,
        name: str,
        arguments: JsonObject | str,
        outcome: ToolOutcome,
        scope: object | None = None,
    ) -> ResultView:
        """Return how a result looks; never raises.

        Args:
            name: Name of the tool; one that no longer exists gets a generic view.
            arguments: The arguments of the call, also as the text in a log.
            outcome: The logged result.
            scope: Whose tool it is.
        """
        parsed = parse_arguments(arguments) if isinstance(arguments, str) else arguments
        tool = self.get(name, scope)
        if tool is None or isinstance(parsed, InvalidArguments):
            return GenericResult()
        return tool.result_view(parsed, outcome)

    # --- inside ---------------------------------------------------------------------------

    def _changed(self) -> None:
        self.ctx.emit(ToolsChange())

    def _provide(self, context: AssembleContext) -> ToolProviderResult:
        # the prompt service copies every schema it collects
        schemas = [tool.shared_schema() for tool in self.visible(context.scope)]
        return ToolProviderResult(schemas, self.known_names(context.scope))

    def _duplicate(self, name: str, layer: Layer) -> ToolRegistrationError:
        if layer is self._layers.base:
            return ToolRegistrationError(
                f"tool {name!r} is already registered",
                code=ToolRegistrationError.DUPLICATE,
                hint="choose another name, or register it through agent.ctx to replace it for "
                "one agent",
            )
        return ToolRegistrationError(
            f"tool {name!r} is already registered in this scope",
            code=ToolRegistrationError.DUPLICATE,
        )


def _names(names: Iterable[str], what: str) -> frozenset[str]:
    if isinstance(names, str):
        raise ToolRegistrationError(
            f"{what} is the string {names!r}, not a collection of names",
            code=ToolRegistrationError.BAD_NAMES,
        )
    collected = list(names)
    if not all(isinstance(name, str) for name in cast("list[object]", collected)):
        raise ToolRegistrationError(
            f"{what} holds something that is no name", code=ToolRegistrationError.BAD_NAMES
        )
    return frozenset(collected)
