"""The pytest plugin: fixtures and one marker.

pytest loads this module in every run of every project that has the wheel installed, so importing
it imports nothing but pytest, and it does nothing unless a test asks for something by name.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from dsh.agent import Agent
    from dsh.core import App, PluginLike
    from dsh.llm_replay import ScriptedAdapter
    from dsh.llm_replay.server import WireServer
    from dsh.session_persistence.testing import MemoryPersistence
    from dsh.testkit._approval import MemoryApproval
    from dsh.testkit._failures import Failures
    from dsh.testkit._spine import PluginRow, Spine

EXPLAINED = (
    "dsh.bash.testing",
    "dsh.session.testing",
    "dsh.testkit._llm_answers",
    "dsh.testkit._llm_bench",
    "dsh.testkit._llm_cancel",
    "dsh.testkit._llm_failures",
    "dsh.testkit._llm_requests",
    "dsh.testkit._loop_app",
    "dsh.testkit._loop_bench",
    "dsh.testkit._loop_cancels",
    "dsh.testkit._loop_checkpoints",
    "dsh.testkit._loop_creation",
    "dsh.testkit._loop_disposal",
    "dsh.testkit._loop_driving",
    "dsh.testkit._loop_failures",
    "dsh.testkit._loop_policies",
    "dsh.testkit._loop_tools",
    "dsh.testkit._loop_turns",
    "dsh.testkit._persistence_apps",
    "dsh.testkit._persistence_bench",
    "dsh.testkit._persistence_content",
    "dsh.testkit._persistence_listing",
    "dsh.testkit._persistence_live",
    "dsh.testkit._persistence_reads",
    "dsh.testkit._persistence_writes",
    "dsh.testkit._trace",
)
"""Modules whose bare assertions are explained as those of a test module are."""


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marker."""
    config.addinivalue_line(
        "markers",
        "needs_program(name, ...): skip the test where a program is missing; "
        "with DSH_REQUIRE_PROGRAMS=1 it fails instead",
    )
    # A module that is loaded already cannot be rewritten any more, and pytest warns about it.
    fresh = [name for name in EXPLAINED if name not in sys.modules]
    pytest.register_assert_rewrite(*fresh)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip or fail a test whose programs are missing."""
    markers = list(item.iter_markers("needs_program"))
    if not markers:
        return
    from dsh.testkit._programs import needs_program

    for marker in markers:
        needs_program(*marker.args)


@pytest.fixture
def failures() -> Failures:
    """What the plugins of `app` raised without reaching anybody; take what the test expects."""
    from dsh.testkit._failures import Failures

    return Failures()


@pytest.fixture
async def app(anyio_backend: Any, failures: Failures) -> AsyncGenerator[App, None]:
    """A running app with nothing mounted; it is taken down after the test."""
    from dsh.core import App
    from dsh.testkit._resident import resident

    async with resident(App()) as running:
        failures.watch(running)
        yield running
    _hold(failures.check)


@pytest.fixture
def scripted() -> ScriptedAdapter:
    """The model of `spine`, with an empty script; `scripted.append` says what it answers."""
    from dsh.llm_replay import ScriptedAdapter

    return ScriptedAdapter()


@pytest.fixture
def spine_plugins() -> list[PluginRow]:
    """Plugins that `spine` mounts; override it in a test module or a conftest."""
    return []


@pytest.fixture
def spine_config() -> dict[str, Any]:
    """Configuration of the bundle that `spine` mounts; override it as `spine_plugins`."""
    return {}


@pytest.fixture
def spine_bundle() -> str | PluginLike | None:
    """The bundle that `spine` mounts, by default the installed one; override it as the others."""
    return None


@pytest.fixture
async def spine(
    app: App,
    failures: Failures,
    scripted: ScriptedAdapter,
    spine_plugins: list[PluginRow],
    spine_config: dict[str, Any],
    spine_bundle: str | PluginLike | None,
) -> AsyncGenerator[Spine, None]:
    """The spine mounted in `app`, with the model `scripted` and the invariants at level full."""
    from dsh.testkit._spine import mount_spine

    mounted = await mount_spine(
        app, scripted, failures, plugins=spine_plugins, config=spine_config, bundle=spine_bundle
    )
    yield mounted
    _hold(mounted.check)


@pytest.fixture
async def approval(spine: Spine) -> MemoryApproval:
    """An approval service in `spine`; `approval.answer` says what it answers."""
    from dsh.approval import Approval
    from dsh.testkit._approval import MemoryApproval

    await spine.mount(MemoryApproval)
    service = spine.app[Approval]
    assert isinstance(service, MemoryApproval)
    return service


@pytest.fixture
async def persistence(spine: Spine) -> MemoryPersistence:
    """A session store in memory in `spine`, so that agents can be resumed."""
    from dsh.session_persistence import SessionPersistence
    from dsh.session_persistence.testing import MemoryPersistence

    await spine.mount(MemoryPersistence)
    service = spine.app[SessionPersistence]
    assert isinstance(service, MemoryPersistence)
    return service


@pytest.fixture
async def agent(spine: Spine, tmp_path: Path) -> AsyncGenerator[Agent, None]:
    """An agent of `spine` that is ready to be driven; its working directory is `tmp_path`."""
    async with spine.agent(cwd=str(tmp_path)) as made:
        yield made


@pytest.fixture
async def wire_server(anyio_backend: Any) -> AsyncGenerator[WireServer, None]:
    """A server that speaks the chat-completions wire; `wire_server.append` adds what it does."""
    from dsh.llm_replay.server import WireServer
    from dsh.testkit._resident import resident

    async with resident(WireServer()) as server:
        yield server


def _hold(check: Callable[[], None]) -> None:
    """Run a check at the end of a test; its message is enough, the traceback shows nothing."""
    try:
        check()
    except AssertionError as error:
        pytest.fail(str(error), pytrace=False)
