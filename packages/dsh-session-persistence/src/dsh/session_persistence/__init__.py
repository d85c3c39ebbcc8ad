"""The durability seam: the abstract store of session logs."""

from dsh.session_persistence._backed import BackedPersistence
from dsh.session_persistence._backend import Backend, StoredLog
from dsh.session_persistence._checks import check_batch, check_from_seq, check_header, repaired
from dsh.session_persistence._integrity import Damage, IntegrityReport
from dsh.session_persistence._service import SessionPersistence
from dsh.session_persistence._summary import SessionSummary, SummaryFold, summarize
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
    "BackedPersistence",
    "Backend",
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
    "StoredLog",
    "StoredSession",
    "StoredSessionExists",
    "StoredSessionNotFound",
    "SummaryFold",
    "check_batch",
    "check_from_seq",
    "check_header",
    "repaired",
    "summarize",
]
