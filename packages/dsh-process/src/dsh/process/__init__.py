"""Supervised child processes: no orphan, no zombie, no unbounded output.

`Supervisor` starts children, `Child` is one of them, `OutputCollector` keeps what they write.
"""

from dsh.process._child import Child, ExitStatus
from dsh.process._environment import child_environment, is_secret_name
from dsh.process._output import OutputCollector, OutputRead, OutputSnapshot
from dsh.process._plan import Stdin, Stdout
from dsh.process._run import CancelLike, Ending, finish
from dsh.process._spill import SpillFile, SpillStore
from dsh.process._streams import FdReceiveStream, FdSendStream
from dsh.process._supervisor import Supervisor
from dsh.process.errors import (
    MonitorLostError,
    ProcessError,
    SpawnError,
    SupervisorClosedError,
    UnsupportedPlatformError,
)

__all__ = [
    "CancelLike",
    "Child",
    "Ending",
    "ExitStatus",
    "FdReceiveStream",
    "FdSendStream",
    "MonitorLostError",
    "OutputCollector",
    "OutputRead",
    "OutputSnapshot",
    "ProcessError",
    "SpawnError",
    "SpillFile",
    "SpillStore",
    "Stdin",
    "Stdout",
    "Supervisor",
    "SupervisorClosedError",
    "UnsupportedPlatformError",
    "child_environment",
    "finish",
    "is_secret_name",
]
