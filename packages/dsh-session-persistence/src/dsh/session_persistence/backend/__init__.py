"""What a store of session logs is made of: a `Backend`, and the orchestration around it.

For providers; who only uses a store needs `dsh.session_persistence` alone, which loads none of
this.
"""

from dsh.session_persistence.backend._backend import Backend, StoredLog
from dsh.session_persistence.backend._checks import (
    check_batch,
    check_from_seq,
    check_header,
    repaired,
)
from dsh.session_persistence.backend._following_store import BackedPersistence
from dsh.session_persistence.backend._summary import SummaryFold, summarize

__all__ = [
    "BackedPersistence",
    "Backend",
    "StoredLog",
    "SummaryFold",
    "check_batch",
    "check_from_seq",
    "check_header",
    "repaired",
    "summarize",
]
