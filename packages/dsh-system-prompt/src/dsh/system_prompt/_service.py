"""The prompt service: registration and assembly."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable
from typing import Annotated, ClassVar, Final, TypeVar

from pydantic import AfterValidator

from dsh.core import (
    AnonymousEntries,
    Context,
    Effect,
    NamedEntries,
    PluginConfig,
    ScopedLayers,
    Service,
    scope_of,
    settings,
)
from dsh.system_prompt._collect import (
    collect_sections,
    collect_tools,
    collect_variables,
    copy_schema,
)
from dsh.system_prompt._layer import Layer, Protection, Section
from dsh.system_prompt._order import check_tool_order, order_tools
from dsh.system_prompt._protect import restore
from dsh.system_prompt._render import VARIABLE_NAME
from dsh.system_prompt._types import (
    AssembleContext,
    PromptAssembly,
    SectionText,
    ToolProvider,
    VariableProvider,
)
from dsh.system_prompt.errors import PromptError
from dsh.system_prompt.events import SystemPromptAssemble, SystemPromptChange

T = TypeVar("T")

__all__ = ["IDENTITY", "IDENTITY_SECTION", "PERSONA_SECTION", "SystemPrompt"]

IDENTITY_SECTION: Final = "harness:identity"
"""Name of the built-in section that says what the model is part of; order -100."""

PERSONA_SECTION: Final = "deployment:persona"
"""Name of the built-in section that holds the configured persona; order 0."""

IDENTITY: Final = (
    "You are an AI agent that runs in DeepSeek Harness: you work on the user's task with the "
    "tools you are given, and what you do is recorded."
)
"""Text of the identity section."""


def _tool_order(order: tuple[str, ...] | None) -> tuple[str, ...] | None:
    if order is not None:
        check_tool_order(order)
    return order


class SystemPrompt(Service, key="system_prompt"):
    """Composes the system prompt and the list of tools for each request.

    Whoever has something to say registers it: sections of text, variables that sections refer
    to as `{{name}}`, providers of tool schemas. What is registered through an agent's context
    is seen by that agent alone, replaces the global entry of the same name, and leaves with the
    agent. Nothing is remembered between assemblies.
    """

    name: ClassVar[str] = "system-prompt"

    class Config(PluginConfig):
        """Configuration of the prompt."""

        persona: str = ""
        """Text of the `deployment:persona` section; empty leaves the section out of the prompt."""
        tool_order: Annotated[tuple[str, ...] | None, AfterValidator(_tool_order)] = None
        """Names of tools in the order in which to offer them, with `<unlisted-tools>` once where
        all others go. None: by name."""

    config = settings(Config)

    async def start(self) -> None:
        """Register the two built-in sections."""
        self._layers: ScopedLayers[Layer] = ScopedLayers(Layer, self._changed)
        self._replacements: AnonymousEntries[tuple[object, str]] = AnonymousEntries()
        self.section(self.ctx, IDENTITY_SECTION, -100, IDENTITY)
        self.section(self.ctx, PERSONA_SECTION, 0, self.config.persona)

    # --- registration ---------------------------------------------------------------------

    def section(self, ctx: Context, name: str, order: float, text: SectionText) -> Effect:
        """Add a section of text.

        Args:
            ctx: Owner; decides how long the section exists and who sees it.
            name: Unique in its layer; a scoped section replaces a global one of its name.
            order: Where it stands. Lower comes first, equal ones as registered; guidance about
                tools belongs between 100 and 199.
            text: The text, or a synchronous function that computes it at every assembly.

        Returns:
            The registration; disposing it removes the section.

        Raises:
            PromptError: The name is taken in this layer (`PROMPT_DUPLICATE`), is protected by
                an outer layer (`PROMPT_PROTECTED`), or something is unusable (`PROMPT_INVALID`).
        """
        if not name:
            raise PromptError("a section needs a name", code=PromptError.INVALID)
        if type(order) not in (int, float) or not math.isfinite(order):
            raise PromptError(
                f"order of section {name!r} is {order!r}, not a finite number",
                code=PromptError.INVALID,
            )
        _check_source(text, f"text of section {name!r}")
        entry = Section(name, order, text)
        key = scope_of(ctx)

        def enter(layer: Layer) -> Callable[[], object]:
            self._refuse_duplicate(layer, layer.sections, name, "section")
            outer = (above for above in self._layers.chain(key) if above is not layer)
            if any(name in entry.sections for above in outer for entry in above.protections):
                raise PromptError(
                    f"section {name!r} is protected, so it cannot be replaced in a scope",
                    code=PromptError.PROTECTED,
                    hint="choose another name",
                )
            undo = layer.sections.add(name, entry)
            if key is None:
                return undo
            forget = self._replacements.add((key, name))
            return lambda: (undo(), forget())

        return self._layers.register(ctx, enter, label=f"section {name}")

    def tools(self, ctx: Context, provider: ToolProvider) -> Effect:
        """Add a provider of tool schemas, called synchronously at every assembly.

        Args:
            ctx: Owner; decides how long it is asked and for whom.
            provider: Returns the schemas to offer, or a `ToolProviderResult`.

        Returns:
            The registration; disposing it ends the asking.

        Raises:
            PromptError: Code `PROMPT_INVALID` when it is not a synchronous callable.
        """
        _check_function(provider, "a tool provider")
        return self._layers.register(
            ctx, lambda layer: layer.providers.add(provider), label="tool provider"
        )

    def variable(self, ctx: Context, name: str, provider: VariableProvider) -> Effect:
        """Add a variable that sections can refer to as `{{name}}`.

        Args:
            ctx: Owner; decides how long it exists and for whom.
            name: Lower case letters, digits and underscores, starting with a letter.
            provider: The value, or a synchronous function that computes it at every assembly;
                None means that there is no value this time, and referring to it is an error.

        Returns:
            The registration; disposing it removes the variable.

        Raises:
            PromptError: The name is taken in this layer (`PROMPT_DUPLICATE`), or name or
                provider are unusable (`PROMPT_INVALID`).
        """
        if VARIABLE_NAME.fullmatch(name) is None:
            raise PromptError(
                f"{name!r} is no name for a variable",
                code=PromptError.INVALID,
                hint="use lower case letters, digits and underscores, starting with a letter",
            )
        _check_source(provider, f"variable {name!r}")

        def enter(layer: Layer) -> Callable[[], object]:
            self._refuse_duplicate(layer, layer.variables, name, "variable")
            return layer.variables.add(name, provider)

        return self._layers.register(ctx, enter, label=f"variable {name}")

    def protect(
        self, ctx: Context, sections: Iterable[str] = (), tools: Iterable[str] = ()
    ) -> Effect:
        """Keep sections and tools as they were collected, whatever assembly listeners do.

        A protected name that was not collected stays absent. Protections add up; one made through
        an agent's context counts for that agent's prompts only.

        Args:
            ctx: Owner; decides how long the protection holds and for whom.
            sections: Names of sections. Inner scopes can no longer replace them.
            tools: Names of tools.

        Returns:
            The registration; disposing it lifts the protection.

        Raises:
            PromptError: No name at all (`PROMPT_INVALID`), or a scope already replaces one of
                the sections (`PROMPT_PROTECTED`).
        """
        entry = Protection(_names(sections, "sections"), _names(tools, "tools"))
        if not entry.sections and not entry.tools:
            raise PromptError(
                "a protection needs at least one section or tool name", code=PromptError.INVALID
            )

        def enter(layer: Layer) -> Callable[[], object]:
            for name in sorted(entry.sections):
                if self._replaced_below(layer, name):
                    raise PromptError(
                        f"section {name!r} cannot be protected: a scope already replaces it",
                        code=PromptError.PROTECTED,
                        hint="protect it before scopes register sections",
                    )
            return layer.protections.add(entry)

        return self._layers.register(ctx, enter, label="prompt protection")

    # --- assembly -------------------------------------------------------------------------

    async def assemble(self, context: AssembleContext | None = None) -> PromptAssembly:
        """Collect everything for one request, let listeners change it, restore what is protected.

        Args:
            context: Whom it is for; None stands for nobody in particular, who sees the global
                layer only. `AssembleContext.for_agent(agent)` is the usual one.

        Returns:
            A prompt of the caller's own; render it with `render_prompt`.

        Raises:
            PromptError: The configured tool order does not fit (`PROMPT_TOOL_ORDER`), or a
                provider or listener returned something unusable (`PROMPT_BAD_ASSEMBLY`).
            Exception: What a provider or listener raised.
        """
        context = AssembleContext() if context is None else context
        layers = self._layers
        protected = [entry for one in layers.chain(context.scope) for entry in one.protections]
        variables = collect_variables(layers, context)
        sections = collect_sections(layers, context)
        tools, known = collect_tools(layers, context)
        assembly = PromptAssembly(
            sections, order_tools(tools, self.config.tool_order, known), variables
        )
        canonical_sections = list(assembly.sections) if protected else []
        canonical_tools = list(map(copy_schema, assembly.tools)) if protected else []
        result = await self.ctx.waterfall(SystemPromptAssemble(assembly, context), _base)
        result = _checked(result)
        if not protected:
            return result
        return PromptAssembly(
            restore(
                canonical_sections,
                result.sections,
                frozenset[str]().union(*(entry.sections for entry in protected)),
            ),
            restore(
                canonical_tools,
                result.tools,
                frozenset[str]().union(*(entry.tools for entry in protected)),
            ),
            result.variables,
        )

    # --- inside ---------------------------------------------------------------------------

    def _changed(self) -> None:
        self.ctx.emit(SystemPromptChange())

    def _refuse_duplicate(self, layer: Layer, table: NamedEntries[T], name: str, what: str) -> None:
        if name not in table:
            return
        if layer is self._layers.base:
            raise PromptError(
                f"{what} {name!r} is already registered",
                code=PromptError.DUPLICATE,
                hint="choose another name, or register it through agent.ctx to replace it for "
                "one agent",
            )
        raise PromptError(
            f"{what} {name!r} is already registered in this scope", code=PromptError.DUPLICATE
        )

    def _replaced_below(self, layer: Layer, name: str) -> bool:
        """Whether a scope that inherits from `layer` has a section of this name."""
        for key, section in self._replacements:
            inherited = self._layers.chain(key)
            if section == name and layer in inherited and layer is not self._layers.peek(key):
                return True
        return False


async def _base(event: SystemPromptAssemble) -> PromptAssembly:
    return event.assembly


def _checked(result: object) -> PromptAssembly:
    """Return a fresh assembly with the content of what the outermost listener returned."""
    if not isinstance(result, PromptAssembly):
        raise PromptError(
            f"a listener of 'system-prompt/assemble' returned a {type(result).__name__}, "
            "not a prompt assembly",
            code=PromptError.BAD_ASSEMBLY,
            hint="return `await next()` or another PromptAssembly",
        )
    return PromptAssembly(list(result.sections), list(result.tools), dict(result.variables))


def _names(names: Iterable[str], what: str) -> frozenset[str]:
    if isinstance(names, str):
        raise PromptError(
            f"{what} of a protection is the string {names!r}, not a collection of names",
            code=PromptError.INVALID,
        )
    return frozenset(names)


def _check_source(source: object, what: str) -> None:
    if not isinstance(source, str):
        _check_function(source, what)


def _check_function(function: object, what: str) -> None:
    if not callable(function) or inspect.iscoroutinefunction(function):
        raise PromptError(
            f"{what} is neither fixed nor a synchronous function",
            code=PromptError.INVALID,
            hint="prompts are assembled synchronously: keep the value current elsewhere",
        )
