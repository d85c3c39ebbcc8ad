"""The plugin."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, Literal

from dsh.core import settings
from dsh.paths import user_folder
from dsh.session_persistence import PersistenceError
from dsh.session_persistence.backend import BackedPersistence, Backend
from dsh.session_persistence_jsonl._backend import JsonlBackend

__all__ = ["JsonlPersistence"]


class JsonlPersistence(BackedPersistence):
    """Keeps each session in a file of JSON lines."""

    name: ClassVar[str] = "session-persistence-jsonl"

    class Config(BackedPersistence.Config):
        """Configuration."""

        folder: str | None = None
        """Where the sessions are kept; `$DSH_HOME/sessions` if it is left out."""
        compression: Literal["none", "zstd"] = "none"
        """How new sessions are stored. `zstd` needs the extra of that name."""
        pack_chunks: bool = True
        """Write the chunks of an answer as one row and its text once, in a fraction of the room."""

    config = settings(Config)

    def make_backend(self) -> Backend:
        """Return a backend on the configured folder.

        Raises:
            PersistenceError: No folder is configured, and there is no home.
        """
        config = self.config
        if config.folder is not None:
            root = Path(config.folder).expanduser().absolute()
        else:
            home = user_folder()
            if home is None:
                raise PersistenceError(
                    "there is no home folder to keep sessions in",
                    hint="set HOME or DSH_HOME, or configure `folder`",
                )
            root = home / "sessions"
        return JsonlBackend(
            root, compressed=config.compression == "zstd", packed=config.pack_chunks
        )
