"""The wire: names and shapes of what is sent and of what comes back.

Requests are built from these types. Answers are read key by key instead, because a server may send
anything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, NotRequired, TypedDict

if TYPE_CHECKING:
    from dsh.core import JsonObject

PATH: Final = "/chat/completions"
"""What follows the base URL."""

EVENT_STREAM: Final = "text/event-stream"
"""The content type of a streamed answer."""

REQUEST_ID_HEADERS: Final = ("x-request-id", "x-deepseek-request-id", "x-ds-trace-id")
"""Where providers put their name for a request, the first one found wins."""


class WireFunction(TypedDict):
    """The function of a tool call."""

    name: str
    arguments: str


class WireToolCall(TypedDict):
    """One tool call of an assistant message."""

    id: str
    type: Literal["function"]
    function: WireFunction


class WireMessage(TypedDict):
    """One message. The order of the fields is the order of the bytes."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str
    reasoning_content: NotRequired[str]
    tool_calls: NotRequired[list[WireToolCall]]
    tool_call_id: NotRequired[str]


class WireToolFunction(TypedDict):
    """The function of a tool."""

    name: str
    description: str
    parameters: JsonObject


class WireTool(TypedDict):
    """One tool the model may call."""

    type: Literal["function"]
    function: WireToolFunction
