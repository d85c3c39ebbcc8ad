"""Exit codes of the command."""

from __future__ import annotations

from typing import Final

OK: Final = 0
"""The turn completed."""
ERROR: Final = 1
"""Something went wrong while working."""
USAGE: Final = 2
"""The command line or the configuration is wrong; nothing was done."""
LIMIT: Final = 3
"""A limit ended the turn: the model's output limit, or `--max-steps` and its like."""
BLOCKED: Final = 4
"""The prompt or the answer was refused: by a policy, or by the model."""
HANGUP: Final = 129
INTERRUPTED: Final = 130
CLOSED_PIPE: Final = 141
TERMINATED: Final = 143
