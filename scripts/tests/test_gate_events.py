"""`check_events.py` passes what is sound and names each way to use events wrongly."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from event_checks.streams import CLOSED_OTHERWISE

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts" / "check_events.py"
NEWS = "packages/dsh-news/src/dsh/news/__init__.py"
USER = "packages/dsh-reader/src/dsh/reader/__init__.py"

KERNEL = """
from typing import Any, Generic, TypeVar

R = TypeVar("R")


class Event:
    def __init_subclass__(cls, name=None, scope=None, errors=None, realm=None, **kwargs): ...


class Emit(Event): ...


class Parallel(Event): ...


class Serial(Event, Generic[R]): ...


class Waterfall(Event, Generic[R]): ...


class StreamWaterfall(Event, Generic[R]): ...


class Context:
    def emit(self, event): ...


class App: ...


class Plugin: ...


class Service(Plugin):
    def __init_subclass__(cls, key=None, **kwargs): ...


def on(event, **more): ...


def inject(service, optional=False): ...
"""

DECLARED = '''
from contextlib import aclosing
from dataclasses import dataclass, replace

from dsh.core import Context, Emit, Parallel, Serial, Service, StreamWaterfall, Waterfall


class Reader:
    """Who reads."""

    def __init__(self, desk: "Desk") -> None:
        self.desk = desk


class Desk:
    """Where somebody reads."""

    owner: object


class Paper(Service, key="paper"):
    """A paper."""


@dataclass(frozen=True, slots=True)
class Printed(Emit, name="news/printed", scope="reader.desk.owner"):
    """It is printed."""

    reader: Reader | None
    """Who wanted it."""


@dataclass(frozen=True, slots=True)
class Asked(Waterfall[str], name="news/asked"):
    """Somebody asks."""


@dataclass(frozen=True, slots=True)
class Read(StreamWaterfall[str], name="news/read"):
    """Somebody reads."""


class Office:
    """Sends everything there is."""

    def __init__(self, ctx: Context) -> None:
        self.ctx = ctx

    async def work(self, reader: Reader) -> None:
        """Work."""
        self.ctx.emit(Printed(reader))
        event = Asked()
        await self.ctx.waterfall(event, None)
        async with aclosing(self.ctx.stream(Read(), None)) as pages:
            async for page in pages:
                print(page)
'''


@pytest.fixture
def news(tree: Any) -> Any:
    """A small workspace with three events, each sent as it should be."""
    tree.wheel("dsh-core", "kernel", ["anyio>=4.9"], KERNEL)
    tree.wheel("dsh-news", "interface", ["dsh-core==1.0"], DECLARED)
    tree.wheel("dsh-reader", "consumer", ["dsh-news==1.0"], "")
    tree.write_root()
    return tree


@pytest.fixture
def findings(script: Any, news: Any) -> Any:
    def check() -> list[str]:
        found, _ = script("check_events").check(news.root)
        return [str(finding) for finding in found]

    return check


@pytest.fixture
def uses(script: Any, news: Any) -> Any:
    """Return a function that puts code into a second wheel and says what it uses."""

    def scan(code: str) -> tuple[list[tuple[str, str, str]], list[str]]:
        news.write(USER, f'"""Reads."""\n{code}')
        found, uses = script("check_events").check(news.root)
        mine = [(use.kind, use.name, use.how) for use in uses.uses if use.file == USER]
        return mine, [finding.message for finding in found]

    return scan


# -- the real workspace ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def real(script: Any) -> Any:
    return script("check_events").check(ROOT)


def test_this_workspace_has_no_finding(real: Any) -> None:
    assert [str(finding) for finding in real[0]] == []


def crude(pattern: str) -> Counter[str]:
    """Count what a pattern finds in each file outside the kernel, docstrings left out."""
    counts: Counter[str] = Counter()
    for path in [*ROOT.glob("packages/*/src/**/*.py"), *ROOT.glob("apps/*/src/**/*.py")]:
        name = path.relative_to(ROOT).as_posix()
        if not name.startswith("packages/dsh-core/"):
            text = re.sub(r'"{3}.*?"{3}', "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
            counts[name] = len(re.findall(pattern, text, re.MULTILINE))
    return +counts


def scanned(real: Any, kind: str) -> Counter[str]:
    return Counter(use.file for use in real[1].uses if use.kind == kind)


def test_the_scan_finds_every_dispatch_that_a_crude_search_finds(real: Any) -> None:
    found = crude(r"ctx\s*\.(?:emit|parallel|serial|waterfall|stream)\(")
    assert found == scanned(real, "dispatch")
    assert found.total() > 20


def test_the_scan_finds_every_listener_that_a_crude_search_finds(real: Any) -> None:
    found = crude(r"(?:@on|ctx\s*\.(?:on|once|subscribe))\(")
    # the scan counts who listens through this helper, and not the helper
    found["packages/dsh-testkit/src/dsh/testkit/_loop_bench.py"] -= 1
    assert found <= scanned(real, "listen")
    assert found.total() > 10


def test_the_scan_finds_every_injection_that_a_crude_search_finds(real: Any) -> None:
    found = crude(r"^    \w+ = inject\(")
    assert found == Counter(use.file for use in real[1].uses if use.how == "inject")
    assert found.total() > 10


# -- the command -------------------------------------------------------------------------------


def test_the_command_prints_each_finding_and_fails(news: Any) -> None:
    def run() -> subprocess.CompletedProcess[str]:
        command = [sys.executable, str(SCRIPT), str(news.root)]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    sound = run()
    assert (sound.returncode, sound.stdout) == (
        0,
        "events: 3 dispatches, 0 listeners, 0 findings\n",
    )
    news.edit(NEWS, "self.ctx.emit(Printed", "self.ctx.serial(Printed")
    broken = run()
    assert broken.returncode == 1
    line = news.root.joinpath(NEWS).read_text().split("self.ctx.serial")[0].count("\n") + 1
    assert broken.stdout.splitlines() == [
        f"{NEWS}:{line}: news/printed is of mode emit, but dispatched with `serial`",
        "events: 3 dispatches, 0 listeners, 1 findings",
    ]


# -- modes, senders, scopes ----------------------------------------------------------------------


@pytest.mark.parametrize("wrong", ["emit", "parallel", "serial", "stream"])
def test_a_wrong_mode(news: Any, findings: Any, wrong: str) -> None:
    news.edit(NEWS, "self.ctx.waterfall(event", f"self.ctx.{wrong}(event")
    (finding,) = findings()
    assert f"news/asked is of mode waterfall, but dispatched with `{wrong}`" in finding


@pytest.mark.parametrize(
    ("sent", "sender"),
    [
        ("if False:\n            {}", False),
        ("if 0:\n            pass\n        else:\n            {}", True),
        ("if True:\n            pass\n        else:\n            {}", False),
        ("while False:\n            {}", False),
        ("while True:\n            {}", True),
        ("_ = {} if False else None", False),
        ("if reader:\n            {}", True),
    ],
)
def test_an_event_that_is_sent_where_nothing_runs(
    news: Any, findings: Any, sent: str, sender: bool
) -> None:
    dispatch = "self.ctx.emit(Printed(reader))"
    news.edit(NEWS, dispatch, sent.format(dispatch))
    found = findings()
    assert [" ".join(str(one).split()[1:4]) for one in found] == (
        [] if sender else ["nobody dispatches news/printed;"]
    )


def test_an_event_that_nobody_sends(news: Any, findings: Any) -> None:
    news.edit(NEWS, "        self.ctx.emit(Printed(reader))\n", "")
    (finding,) = findings()
    assert finding.endswith("nobody dispatches news/printed; dispatch it or remove Printed")


@pytest.mark.parametrize(
    ("scope", "lost"),
    [
        ("writer", "Printed has no writer"),
        ("reader.chair", "Reader has no chair"),
        ("reader.desk.lamp", "Desk has no lamp"),
    ],
)
def test_a_scope_that_leads_nowhere(news: Any, findings: Any, scope: str, lost: str) -> None:
    news.edit(NEWS, "reader.desk.owner", scope)
    (finding,) = findings()
    assert finding.endswith(f"the scope of news/printed is {scope}, but {lost}")


def test_a_dispatch_that_is_not_through_a_context(news: Any, findings: Any) -> None:
    news.edit(NEWS, "self.ctx.emit(Printed", "reader.desk.emit(Printed")
    (finding,) = findings()
    assert "`reader.desk.emit` dispatches news/printed, but not through a context" in finding


@pytest.mark.parametrize(
    "code",
    [
        "def peek(app, event):\n    return app.channel(event)\n",
        "def peek(self, event):\n    return self._app.channels[event]\n",
        "from dsh.core import _dispatch\n\n\ndef peek(x):\n    _dispatch.emit(x)\n",
    ],
)
def test_going_past_the_scope(uses: Any, code: str) -> None:
    _, messages = uses(code)
    assert any("goes past the scope of an event" in message for message in messages)


# -- how a dispatch may be written ---------------------------------------------------------------


@pytest.mark.parametrize(
    "code",
    [
        "def send(agent, reader):\n    agent.ctx.emit(news.Printed(reader))\n",
        "def send(owner: Context, reader):\n    owner.emit(news.Printed(reader))\n",
        "def send(ctx, reader):\n    event: news.Printed = make(reader)\n    ctx.emit(event)\n",
        "def send(ctx, event: 'news.Printed'):\n    ctx.emit(event)\n",
        "def send(ctx, event: news.Printed | None):\n    ctx.emit(event)\n",
        "def send(ctx, old: news.Printed):\n    ctx.emit(replace(old, reader=None))\n",
        "def send(ctx, one):\n    event = news.Printed(one)\n    def now():\n"
        "        ctx.emit(event)\n",
        "def send(ctx):\n    kind = news.Printed\n    ctx.emit(kind(None))\n",
        "class A:\n    def __init__(self, e: news.Printed):\n        self.e = e\n"
        "    def send(self):\n        self._ctx.emit(self.e)\n",
        "def tell(ctx, event):\n    ctx.emit(event)\n\n\n"
        "def send(ctx):\n    tell(ctx, news.Printed(None))\n",
        "class A:\n    def _tell(self, event: Emit):\n        self.ctx.emit(event)\n"
        "    def send(self):\n        self._tell(news.Printed(None))\n",
        "class A:\n    def _tell(self, event):\n        self.ctx.emit(event)\n"
        "    def _pass(self, event):\n        self._tell(event)\n"
        "    def send(self):\n        self._pass(event=news.Printed(None))\n",
    ],
)
def test_a_dispatch_is_seen_however_it_is_written(uses: Any, code: str) -> None:
    found, messages = uses(
        "from dataclasses import replace\n\nfrom dsh import news\n"
        f"from dsh.core import Context, Emit\n\n\n{code}"
    )
    assert (found, messages) == ([("dispatch", "news/printed", "emit")], [])


def test_a_conditional_event_is_both(uses: Any) -> None:
    code = "def send(ctx, x):\n    ctx.emit(Printed(x) if x else Asked())\n"
    found, (message,) = uses(f"from dsh.news import Asked, Printed\n\n\n{code}")
    assert found == [("dispatch", "news/asked", "emit"), ("dispatch", "news/printed", "emit")]
    assert message.startswith("news/asked is of mode waterfall")


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("def send(ctx, box):\n    ctx.emit(box.event)\n", "`ctx.emit(...)`: which event"),
        ("def send(hub, box):\n    hub.parallel(box.event)\n", "`hub.parallel(...)`: which event"),
        ("def send(ctx):\n    ctx.emit(*make())\n", "`ctx.emit(...)`: which event"),
        ("def send(ctx, later):\n    later(ctx.emit, 1)\n", "`ctx.emit` is handed on"),
        ("def send(ctx, how, e):\n    getattr(ctx, how)(e)\n", "looked up by a computed name"),
        ("def tell(ctx, event):\n    ctx.emit(event)\n", "tell is handed its event by nobody"),
        (
            "def tell(ctx, e):\n    ctx.emit(e)\n\n\ndef send(ctx, box):\n    tell(ctx, box.e)\n",
            "tell(...): which event it is handed cannot be seen",
        ),
        ("def hear(ctx, box):\n    ctx.on(box.event, print)\n", "`on(...)`: which event"),
        (
            "from dsh.core import on\n\n\nclass A:\n    @on(make())\n    def f(self, e): ...\n",
            "`@on(...)`: which event",
        ),
        ("def ask(ctx, box):\n    return ctx[box.key]\n", "`ctx[box.key]`: which service"),
        ("def ask(app):\n    return app.get('papers')\n", "`app.get('papers')`: which service"),
        ("def wait(ctx, needs):\n    ctx.when(needs, print)\n", "`when`: which services"),
        ("from dsh.core import inject\n\n\nclass A:\n    x = inject(make())\n", "which service"),
    ],
)
def test_what_cannot_be_made_out_is_a_finding(uses: Any, code: str, message: str) -> None:
    found, messages = uses(code)
    assert found == []
    assert [one for one in messages if message in one] == messages != []


# -- listeners and services ----------------------------------------------------------------------


def test_listeners_are_seen_however_they_are_written(uses: Any) -> None:
    found, messages = uses(
        "from dsh.core import Plugin, on\nfrom dsh.news import Asked, Printed, Read\n\n\n"
        "class A(Plugin):\n    @on(Printed, prepend=True)\n    def hear(self, event): ...\n\n"
        "    def start(self):\n        self.ctx.once(Asked, print)\n"
        "        for kind in (Read, Asked):\n            self.agent.ctx.on(kind, print)\n"
        "        with self.ctx.subscribe(Printed) as events:\n            print(events)\n"
        "        self._hear(Read)\n\n"
        "    def _hear(self, kind):\n        self.ctx.on(kind, print)\n"
    )
    assert messages == []
    assert Counter(found) == {
        ("listen", "news/printed", "@on"): 1,
        ("listen", "news/printed", "subscribe"): 1,
        ("listen", "news/asked", "once"): 1,
        ("listen", "news/asked", "on"): 1,
        ("listen", "news/read", "on"): 2,
    }


def test_services_are_seen_however_they_are_reached(uses: Any) -> None:
    found, messages = uses(
        "from dsh.core import Plugin, inject\nfrom dsh.news import Paper\n\n\n"
        "class A(Plugin):\n    paper = inject(Paper)\n    other = inject(Paper, optional=True)\n\n"
        "    def start(self):\n        self.ctx.when((Paper,), print)\n"
        "        self.ctx.provide(Paper, None)\n        types: list[Paper] = []\n"
        "        return self.ctx[Paper], self._app.get('paper'), types\n\n\n"
        "def mount(ctx, config): ...\n\n\nmount.injects = (Paper,)\n"
    )
    assert messages == []
    assert Counter(found) == {
        ("inject", "paper", "inject"): 2,
        ("inject", "paper", "when"): 1,
        ("inject", "paper", "injects"): 1,
        ("read", "paper", "ctx[]"): 1,
        ("read", "paper", "get"): 1,
        ("provide", "paper", "provide"): 1,
    }


def test_an_excuse_that_is_not_needed(
    news: Any, findings: Any, script: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    script("check_events")
    from catalog import uses as module

    monkeypatch.setitem(module.GENERIC, "dsh.news:Office.work", "no reason at all")
    module.scan.cache_clear()  # it remembers a workspace, and the excuses are none of it
    (finding,) = findings()
    module.scan.cache_clear()
    assert finding.endswith("GENERIC excuses dsh.news:Office.work, which needs no excuse")


def test_a_stream_excused_without_need(uses: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    code = "async def f(x):\n    async for c in x.stream(1):\n        print(c)\n"
    monkeypatch.setitem(CLOSED_OTHERWISE, "dsh.reader:f", "in a way of its own")
    assert uses(code)[1] == []
    assert uses("async def f(x): ...\n")[1] == [
        "CLOSED_OTHERWISE excuses dsh.reader:f without need"
    ]


# -- streams -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "code",
    [
        "async def f(x):\n    async for c in x.stream(1):\n        print(c)\n",
        "async def f(ctx):\n    async for c in ctx.stream(Read(), None):\n        print(c)\n",
        "async def f(x):\n    return [c async for c in x.stream(1)]\n",
        "async def f(x):\n    chunks = x.stream(1)\n    async for c in chunks:\n        print(c)\n",
        "async def f(chunks):\n    async for c in chunks:\n        print(c)\n",
        "async def f(chunks: AsyncGenerator[int, None]):\n    async for c in chunks:\n"
        "        print(c)\n",
        "async def f(x):\n    with nullcontext(x.stream(1)) as chunks:\n"
        "        async for c in chunks:\n            print(c)\n",
        "class A:\n    async def f(self):\n        async for c in self.chunks:\n"
        "            print(c)\n",
        "async def f(x):\n    async for c in x.chunks:\n        print(c)\n",
    ],
)
def test_a_stream_that_nobody_closes(uses: Any, code: str) -> None:
    _, messages = uses(
        "from collections.abc import AsyncGenerator\nfrom contextlib import nullcontext\n\n"
        f"from dsh.news import Read\n\n\n{code}"
    )
    (message,) = messages
    assert message.startswith("`async for` over `")
    assert "async with aclosing(" in message


@pytest.mark.parametrize(
    "code",
    [
        "async def f(x):\n    async with aclosing(x.stream(1)) as chunks:\n"
        "        return [c async for c in chunks]\n",
        "async def f(agent):\n    async with agent.run('x') as run:\n"
        "        async for event in run:\n            print(event)\n",
        "async def f(chunks: AsyncIterator[int]):\n    async for c in chunks:\n        print(c)\n",
        "async def f(chunks):\n    try:\n        async for c in chunks:\n            print(c)\n"
        "    finally:\n        await chunks.aclose()\n",
        "class A:\n    def __init__(self, x: AsyncIterator[int] | None):\n        self.x = x\n\n"
        "    async def f(self):\n        async for c in self.x:\n            print(c)\n",
    ],
)
def test_a_stream_that_is_closed(uses: Any, code: str) -> None:
    _, messages = uses(
        "from collections.abc import AsyncIterator\nfrom contextlib import aclosing\n\n\n" + code
    )
    assert messages == []


# -- names in texts --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("README.md", "Listen to `news/printd`.\n"),
        ("docs/guide.md", "| event |\n|---|\n| `news/printd` |\n"),
        ("packages/dsh-news/README.md", "x --> y: news/printd\n"),
        (USER, '"""Hears `news/printd`."""\n'),
        (USER, 'HINT = "listen to news/printd"\n'),
        (USER, "x = 1  # after news/printd\n"),
    ],
)
def test_a_name_of_no_event(news: Any, findings: Any, path: str, text: str) -> None:
    news.write(path, text)
    (finding,) = findings()
    assert finding.endswith(
        "news/printd is spoken of, but no event and no session event has that name"
    )
    assert finding.startswith(f"{path}:")


@pytest.mark.parametrize(
    "text",
    [
        "`news/printed` and news/asked.\n",
        "See packages/dsh-news/README.md, [news](news/printd.md), dsh/news/printd and news/.\n",
        'class Mine(Emit, name="news/mine"): ...\n\nSends `news/mine`.\n',
        "other/thing\n",
    ],
)
def test_names_that_are_well(news: Any, findings: Any, text: str) -> None:
    news.write("docs/guide.md", text)
    assert findings() == []


def test_the_changelog_may_speak_of_what_is_gone(news: Any, findings: Any) -> None:
    news.write("CHANGELOG.md", "`news/printd` was removed\n")
    assert findings() == []
