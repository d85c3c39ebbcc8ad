"""Where a person's files are kept, and private files that survive a crash."""

from dsh.paths._files import (
    MAX_FILE_BYTES,
    make_folder,
    read_private,
    sync_folder,
    write_private,
)
from dsh.paths._folders import state_folder, user_folder
from dsh.paths.errors import StateFileError

__all__ = [
    "MAX_FILE_BYTES",
    "StateFileError",
    "make_folder",
    "read_private",
    "state_folder",
    "sync_folder",
    "user_folder",
    "write_private",
]
