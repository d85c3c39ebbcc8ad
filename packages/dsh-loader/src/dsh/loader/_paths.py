"""Where a project's deployment file is."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

FILE_NAME: Final = "dsh.yaml"
"""Name of a deployment file, in the user's folder and in a project."""


def find_project_file(cwd: Path) -> Path | None:
    """Return the nearest `dsh.yaml` from `cwd` upwards to the repository root.

    Outside a repository only `cwd` itself is looked at, so a file that a stranger left in `/tmp`
    or another shared ancestor is never picked up.
    """
    here = Path(os.path.abspath(cwd))
    found: Path | None = None
    for folder in (here, *here.parents):
        candidate = folder / FILE_NAME
        if found is None and os.path.lexists(candidate):
            found = candidate
        if os.path.lexists(folder / ".git"):
            return found
    own = here / FILE_NAME
    return own if found == own else None
