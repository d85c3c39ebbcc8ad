"""What floor and dsh are both asked to do."""

from __future__ import annotations

PROMPT = "Do what has to be done, and say when you are ready."
"""What the agent is asked."""

AGENT_ROUNDS = 5
"""Tool rounds of each of many agents."""

THINKING_MS = 100
"""How long the model of many agents thinks before it answers, in milliseconds.

Long enough that all of them have a connection open at the same time, as with a real model.
"""
