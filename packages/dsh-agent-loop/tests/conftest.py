"""Every test of the loop runs with the invariants as they are shipped, and with all of them."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True, params=["basic", "full"])
def oracle(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DSH_INVARIANTS", request.param)
