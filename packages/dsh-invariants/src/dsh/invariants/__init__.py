"""Run-time invariants: what must always hold in a spine, checked where it happens."""

from dsh.invariants._selection import InvariantsConfig, Level
from dsh.invariants._service import Installer, Invariants, Reporter, Violation
from dsh.invariants._trace import SessionTrace, check_log
from dsh.invariants.errors import InvariantError, InvariantRegistrationError

__all__ = [
    "Installer",
    "InvariantError",
    "InvariantRegistrationError",
    "Invariants",
    "InvariantsConfig",
    "Level",
    "Reporter",
    "SessionTrace",
    "Violation",
    "check_log",
]
