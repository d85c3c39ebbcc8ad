"""For those who write an agent loop: what every loop does alike.

A loop decides when a turn makes which step. What an agent promises whoever drives it, and what
stands in the log, is the same for all loops; it is here, so that a loop is its policy.

`Loop` makes and ends agents, `DrivenAgent` is what a loop derives its agents from.
`Policies` asks the decision events, `Requests` builds a request that the log can build again,
`Checkpoints` waits until the log is durable, `CallIds` mends tool calls, `Notes` places injected
context, `Pulse` wakes whoever waits; `checked_content` and the others check what is said at the
door, `failed` and `leaf_of` say what a turn failed of.
"""

from dsh.agent._pulse import Pulse
from dsh.agent._receipt import ReceiptBook
from dsh.agent.loopkit._checkpoints import Checkpoints
from dsh.agent.loopkit._content_checks import (
    checked_content,
    checked_prompt,
    checked_source,
    context_message,
)
from dsh.agent.loopkit._driven import DrivenAgent
from dsh.agent.loopkit._failures import UNKNOWN, failed, is_fatal, leaf_of, text_of_error
from dsh.agent.loopkit._loop import Load, Loop, Stored
from dsh.agent.loopkit._notes import Enclosed, Notes
from dsh.agent.loopkit._policies import Policies
from dsh.agent.loopkit._replies import CUT_OFF, CallIds, without_calls
from dsh.agent.loopkit._request import LoggedCall, Requests

__all__ = [
    "CUT_OFF",
    "UNKNOWN",
    "CallIds",
    "Checkpoints",
    "DrivenAgent",
    "Enclosed",
    "Load",
    "LoggedCall",
    "Loop",
    "Notes",
    "Policies",
    "Pulse",
    "ReceiptBook",
    "Requests",
    "Stored",
    "checked_content",
    "checked_prompt",
    "checked_source",
    "context_message",
    "failed",
    "is_fatal",
    "leaf_of",
    "text_of_error",
    "without_calls",
]
