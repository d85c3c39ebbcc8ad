"""Answers of a given shape: `Agent.ask(..., output=...)`.

Built on public events alone, so it works with every loop: the schema travels in the prompt, and
a continuation listener on the agent's own context sends an answer that does not fit back to the
model as steering. The tool list and the system prompt stay as they are, so the request goes on
being an extension of the previous one and the provider's prompt cache keeps its worth.
"""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, cast

from pydantic import PydanticUserError, TypeAdapter, ValidationError

from dsh.agent._agent import Agent, failure_of
from dsh.agent._outcome import text_of
from dsh.agent._types import ContinuationDecision, Continue, HookContext, Prompt, Stop, blocks_of
from dsh.agent.errors import AgentFault, OutputInvalid
from dsh.agent.events import TurnContinuation
from dsh.core import JsonValue, Next, NotJsonError
from dsh.core import json as djson
from dsh.core.json_schema import faults, violations
from dsh.llm import Message, TextBlock
from dsh.session import (
    AssistantMessage,
    Completed,
    MaxTokens,
    MessageSource,
    PluginSource,
    Session,
    TurnStart,
)

if TYPE_CHECKING:
    from dsh.agent._receipt import Receipt

_SOURCE: Final = PluginSource("agent-output")
_FENCE: Final = re.compile(r"```[a-zA-Z]*\s*\n(.*?)```", re.DOTALL)
_INSTRUCTION: Final = (
    # a provider may join text blocks as they are: the blank line keeps the two texts apart
    "\n\nGive your final answer as one JSON value and nothing else: no other words, no code fence. "
    "It has to be valid against this JSON Schema:\n{schema}"
)
_CORRECTION: Final = (
    "The answer does not have the required form:\n{problems}\n"
    "Answer again with one JSON value that is valid against the JSON Schema, and nothing else."
)


class Unfit(Exception):
    """An answer does not have the required shape."""

    def __init__(self, problems: tuple[str, ...]) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


class Shape(ABC):
    """What an answer has to look like."""

    @abstractmethod
    def schema(self) -> Mapping[str, Any]:
        """Return the JSON Schema to tell the model."""

    @abstractmethod
    def accept(self, value: JsonValue) -> object:
        """Return the checked value, or raise `Unfit`."""

    def read(self, text: str) -> object:
        """Return the value of an answer, or raise `Unfit`."""
        for candidate in _candidates(text):
            try:
                value = djson.check(djson.loads(candidate), where="answer")
            except NotJsonError:
                continue
            return self.accept(value)
        raise Unfit(("the answer holds no JSON value",))


class TypeShape(Shape):
    """The shape of a type that pydantic understands."""

    def __init__(self, kind: type[object]) -> None:
        try:
            self._adapter: TypeAdapter[object] = TypeAdapter(kind)
            self._schema = self._adapter.json_schema()
        except PydanticUserError as error:
            raise AgentFault(
                f"the output type {kind!r} has no JSON Schema: {error.message}",
                code=AgentFault.INVALID_SCHEMA,
                hint="ask for a pydantic model, a dataclass, or a type made of JSON's types",
            ) from error

    def schema(self) -> Mapping[str, Any]:
        """Return the type's JSON Schema."""
        return self._schema

    def accept(self, value: JsonValue) -> object:
        """Return an instance of the type."""
        try:
            return self._adapter.validate_json(djson.dumps(value))
        except ValidationError as error:
            raise Unfit(tuple(_issues(error))) from error


class SchemaShape(Shape):
    """The shape a JSON Schema describes."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._schema = cast("dict[str, JsonValue]", djson.check(schema, where="output schema"))
        problems = faults(self._schema)
        if problems:
            raise AgentFault(
                "the output schema is not valid: " + "; ".join(problems),
                code=AgentFault.INVALID_SCHEMA,
                hint="correct the JSON Schema at the named places; `$ref` can only point into it",
            )

    def schema(self) -> Mapping[str, Any]:
        """Return the schema as given."""
        return self._schema

    def accept(self, value: JsonValue) -> object:
        """Return the value itself."""
        problems = violations(self._schema, value, root="answer", strict=True)
        if problems:
            raise Unfit(tuple(problems))
        return value


class Corrections:
    """Sends answers that do not fit back to the model, a limited number of times."""

    def __init__(self, session: Session, shape: Shape, retries: int) -> None:
        self._session = session
        self._shape = shape
        self._left = retries
        self.receipt: Receipt | None = None

    async def decide(
        self, event: TurnContinuation, next: Next[ContinuationDecision]
    ) -> ContinuationDecision:
        """Turn a stop on an unfit answer into another step."""
        decision = await next()
        if self.receipt is None or self.receipt.turn != event.turn:
            return decision
        if not isinstance(decision, Stop) or self._left <= 0:
            return decision
        try:
            self._shape.read(last_text(self._session))
        except Unfit as unfit:
            self._left -= 1
            problems = "\n".join(f"- {line}" for line in unfit.problems)
            text = _CORRECTION.format(problems=problems)
            return Continue(HookContext((TextBlock(text),), _SOURCE))
        return decision


async def ask_for_output(
    agent: Agent,
    content: Prompt,
    source: MessageSource | None,
    output: type[object] | Mapping[str, Any],
    retries: int,
) -> object:
    """Do what `Agent.ask` says about `output`."""
    shape = SchemaShape(output) if isinstance(output, Mapping) else TypeShape(output)
    text = _INSTRUCTION.format(schema=json.dumps(shape.schema(), ensure_ascii=False))
    corrections = Corrections(agent.session, shape, retries)
    listener = agent.ctx.on(TurnContinuation, corrections.decide, prepend=True)
    try:
        receipt = agent.send((*blocks_of(content), TextBlock(text)), source)
        corrections.receipt = receipt
        outcome = await agent.outcome_of(receipt)
    finally:
        listener.dispose_nowait()
    if not isinstance(outcome.reason, Completed | MaxTokens):
        raise failure_of(agent, outcome)
    try:
        return shape.read(outcome.text)
    except Unfit as unfit:
        if not outcome.ok:
            raise failure_of(agent, outcome) from unfit
        raise OutputInvalid(unfit.problems, outcome) from unfit


def last_text(session: Session) -> str:
    """Return the text of the open turn's last reply."""
    events = session.events
    for seq in range(len(events) - 1, -1, -1):
        data = events[seq].data
        if isinstance(data, AssistantMessage):
            return text_of(Message("assistant", data.content))
        if isinstance(data, TurnStart):
            break
    return ""


def _candidates(text: str) -> Iterator[str]:
    """Yield what may be the JSON value of an answer, likeliest first."""
    yield text.strip()
    for match in _FENCE.finditer(text):
        yield match.group(1).strip()
    decoder = json.JSONDecoder()
    for match in re.finditer(r"[{\[]", text):
        try:
            _, end = decoder.raw_decode(text, match.start())
        except (ValueError, RecursionError):
            continue
        yield text[match.start() : end]
        return


def _issues(error: ValidationError) -> Iterator[str]:
    for issue in error.errors(include_url=False, include_input=False):
        path = ".".join(str(part) for part in issue["loc"])
        yield f"{path}: {issue['msg']}" if path else issue["msg"]
