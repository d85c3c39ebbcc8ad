"""The durability seam: the abstract store of session logs."""

from dsh.session_persistence._checks import check_batch, check_from_seq, check_header, repaired
from dsh.session_persistence._service import SessionPersistence
from dsh.session_persistence._types import RawArtifact, SessionSnapshot, StoredSession
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
    "FormatUnsupported",
    "PersistenceError",
    "RawArtifact",
    "RawUnsupported",
    "SessionCorrupt",
    "SessionInUse",
    "SessionPersistence",
    "SessionSnapshot",
    "StoredSession",
    "StoredSessionExists",
    "StoredSessionNotFound",
    "check_batch",
    "check_from_seq",
    "check_header",
    "repaired",
]
