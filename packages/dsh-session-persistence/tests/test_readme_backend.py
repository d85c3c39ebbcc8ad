"""The backend that the README shows does everything a store has to do."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

README = Path(__file__).parent.parent / "README.md"


def shown() -> dict[str, Any]:
    """Run the README's programs; return what they define."""
    names: dict[str, Any] = {"__name__": "readme"}
    for block in re.findall(r"```python\n(.*?)```", README.read_text("utf-8"), re.DOTALL):
        exec(compile(block, str(README), "exec", dont_inherit=True), names)
    return names


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


TestFolder: Any = shown()["TestFolder"]
