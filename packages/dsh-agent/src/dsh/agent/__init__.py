"""The agent handle, its values and errors, and the registry of live agents.

The events are in `dsh.agent.events`, what every agent loop is built of is in `dsh.agent.loopkit`, a
loopless agent for tests is in `dsh.agent.testing`.
"""

from dsh.agent._agent import Agent
from dsh.agent._open import open_agent
from dsh.agent._outcome import Blocked, Dropped, OutcomeReason, TurnOutcome, text_of, turn_outcome
from dsh.agent._receipt import Receipt, ReceiptBook
from dsh.agent._registry import AgentFactory, AgentHandle, AgentRegistry
from dsh.agent._run import Run
from dsh.agent._types import (
    AgentOptions,
    AgentStatus,
    AllowPrompt,
    BlockPrompt,
    ContinuationDecision,
    Continue,
    CreateAgent,
    GiveUp,
    HookContext,
    Prompt,
    PromptDecision,
    RequestErrorDecision,
    ResumeAgent,
    Retry,
    SessionStartSource,
    Setup,
    Stop,
    blocks_of,
)
from dsh.agent.errors import AgentDisposed, AgentFault, OutputInvalid, TurnFailed

__all__ = [
    "Agent",
    "AgentDisposed",
    "AgentFactory",
    "AgentFault",
    "AgentHandle",
    "AgentOptions",
    "AgentRegistry",
    "AgentStatus",
    "AllowPrompt",
    "BlockPrompt",
    "Blocked",
    "ContinuationDecision",
    "Continue",
    "CreateAgent",
    "Dropped",
    "GiveUp",
    "HookContext",
    "OutcomeReason",
    "OutputInvalid",
    "Prompt",
    "PromptDecision",
    "Receipt",
    "ReceiptBook",
    "RequestErrorDecision",
    "ResumeAgent",
    "Retry",
    "Run",
    "SessionStartSource",
    "Setup",
    "Stop",
    "TurnFailed",
    "TurnOutcome",
    "blocks_of",
    "open_agent",
    "text_of",
    "turn_outcome",
]
