"""The durability seam: the abstract store of session logs, for whoever uses one.

What a store is made of is in `dsh.session_persistence.backend`, which is not loaded by this.
"""

from dsh.session_persistence._integrity import Damage, IntegrityReport
from dsh.session_persistence._service import SessionPersistence
from dsh.session_persistence._types import (
    RawArtifact,
    SessionSnapshot,
    SessionSummary,
    StoredSession,
    UnreadableSession,
)
from dsh.session_persistence.errors import (
    AppendRefused,
    FormatUnsupported,
    PersistenceError,
    RawUnsupported,
    SessionCorrupt,
    SessionInUse,
    StoredSessionExists,
    StoredSessionNotFound,
)

__all__ = [
    "AppendRefused",
    "Damage",
    "FormatUnsupported",
    "IntegrityReport",
    "PersistenceError",
    "RawArtifact",
    "RawUnsupported",
    "SessionCorrupt",
    "SessionInUse",
    "SessionPersistence",
    "SessionSnapshot",
    "SessionSummary",
    "StoredSession",
    "StoredSessionExists",
    "StoredSessionNotFound",
    "UnreadableSession",
]
