"""A process that plays a session and is struck down on the way. Run as a script, never imported.

It reads one job a line from standard input, forks a child for each and says what became of it, so
that another attempt costs a fork. A child plays a session of several turns through the whole loop
and tells on standard output, always before it goes on:

- `ack`: a flush of a session returned. All that was in its log *when the flush began* is
  acknowledged: `count` events, whose encoded bytes have the SHA-256 `digest`. `unsynced` is what
  a power cut would take of it.
- `request`: the model is about to be asked. The log has to tell of it by now.
- `effect`: a tool has had its effect, which is a line in the file `effects`.
- `turn`: how a turn ended, with the code of the failure if there was one.
"""

from __future__ import annotations

import errno
import gc
import hashlib
import json
import logging
import os
import resource
import signal
import threading
import traceback
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import anyio
import anyio.to_thread

from dsh.agent import Agent, AgentOptions, AgentRegistry, CreateAgent
from dsh.agent_core import AgentCore, create_agent
from dsh.core import App, JsonObject, PluginLike
from dsh.llm import LlmRequest, LlmService, StreamChunk, TextBlock, ToolResultBlock
from dsh.llm_replay import ScriptedAdapter, answer, reasoning, text, tool_calls
from dsh.session import LiveSessions, Session, encode_event
from dsh.session_persistence import PersistenceError
from dsh.session_persistence_jsonl import JsonlPersistence
from dsh.session_persistence_sqlite import SqlitePersistence
from dsh.tools import Tool, ToolExecution, ToolRegistry

MODEL = "test/scripted"
LIFE_S = 60
"""Seconds after which a child that hangs is ended by the system."""

write, mkdir = os.write, os.mkdir


def say(**words: object) -> None:
    """Tell the test something, in one piece."""
    write(1, json.dumps(words).encode() + b"\n")


# --- striking -----------------------------------------------------------------------------------


class Blows:
    """Counts the system calls that change the store's files, and strikes at one of them.

    It also knows what has not been synced, which a power cut would take.

    Args:
        folder: Where the store is; calls that name another place do not count.
        job: `kill` is the number of the call before which the process is killed, `tear` of the one
            that is done in half before that. From number `fail` to number `until` they fail with
            `errno`. Where `calls` are named, only those count.
    """

    CHANGING: Final = (
        *("open", "mkdir", "rmdir", "link", "rename", "replace", "unlink"),
        *("truncate", "ftruncate", "write", "pwrite", "fsync", "fdatasync"),
    )

    def __init__(self, folder: str, job: dict[str, Any]) -> None:
        self._folder = folder
        self._kill = job.get("kill")
        self._tear = job.get("tear")
        self._fail = range(job.get("fail", 0), job.get("until", job.get("fail", -1)) + 1)
        self._only = frozenset(job.get("calls", self.CHANGING))
        self._errno = getattr(errno, job.get("errno", "EIO"))
        self.names: list[str] = []
        """The calls that counted so far."""
        self._unsynced = Unsynced()

    def install(self) -> None:
        """Stand in front of the system from now on."""
        for name in self.CHANGING:
            setattr(os, name, partial(self._call, name, getattr(os, name)))

    def lift(self) -> None:
        """Let nothing fail any more."""
        self._fail = range(0)

    @property
    def unsynced(self) -> list[str]:
        """What was written or named and not synced since."""
        return self._unsynced.things

    def _call(self, name: str, real: Callable[..., Any], *args: Any, **more: Any) -> Any:
        if self._counts(name, args):
            number = len(self.names)
            self.names.append(name)
            if number == self._kill:
                os.kill(os.getpid(), signal.SIGKILL)
            if number == self._tear:
                real(args[0], bytes(args[1])[: len(args[1]) // 2], *args[2:])
                os.kill(os.getpid(), signal.SIGKILL)
            if number in self._fail:
                raise OSError(self._errno, os.strerror(self._errno), str(args[0]))
        if not isinstance(args[0], int) and not self._inside(args[0]):
            return real(*args, **more)
        last = self._unsynced.last_name(args[0]) if name == "unlink" else None
        result = real(*args, **more)
        if name == "open":
            self._unsynced.opened(result, args[0])
        self._unsynced.note(name, args)
        self._unsynced.drop(last)
        return result

    def _counts(self, name: str, args: tuple[Any, ...]) -> bool:
        if name not in self._only:
            return False
        if name == "open":
            return bool(args[1] & os.O_CREAT) and self._inside(args[0])
        return isinstance(args[0], int) or self._inside(args[0])

    def _inside(self, path: Any) -> bool:
        return os.fsdecode(path).startswith(self._folder)


class Unsynced:
    """What a power cut would take: bytes of files, and names in folders."""

    def __init__(self) -> None:
        self._bytes: set[int] = set()
        self._paths: dict[int, str] = {}
        self._names: dict[str, int] = {}

    @property
    def things(self) -> list[str]:
        """The names, but for those of locks, and the paths of the files."""
        names = [name for name in self._names if not name.endswith("lock")]
        return [*names, *(self._paths[number] for number in self._bytes)]

    def last_name(self, path: Any) -> int | None:
        """Return the number of a file that has no other name than this one."""
        with suppress(OSError):
            found = os.stat(path)
            if found.st_nlink == 1:
                return found.st_ino
        return None

    def drop(self, number: int | None) -> None:
        """Forget the bytes of a file that is gone."""
        self._bytes.discard(-1 if number is None else number)

    def opened(self, file: int, path: Any) -> None:
        """Take down which file this is."""
        self._paths[os.fstat(file).st_ino] = os.fsdecode(path)

    def note(self, call: str, args: tuple[Any, ...]) -> None:
        """Take down what a call did that went well."""
        if call in ("write", "pwrite", "ftruncate"):
            self._bytes.add(os.fstat(args[0]).st_ino)
        elif call in ("fsync", "fdatasync"):
            number = os.fstat(args[0]).st_ino
            self._bytes.discard(number)
            self._names = {name: at for name, at in self._names.items() if at != number}
        elif call in ("unlink", "rmdir"):
            self._names.pop(os.fsdecode(args[0]), None)
        elif call in ("link", "rename", "replace"):
            self._name(args[1])
            if call != "link":
                self._names.pop(os.fsdecode(args[0]), None)
        elif call == "mkdir" or (call == "open" and args[1] & os.O_EXCL):
            self._name(args[0])

    def _name(self, path: Any) -> None:
        name = os.fsdecode(path)
        self._names[name] = os.stat(os.path.dirname(name)).st_ino


real_pwrite, real_ftruncate, real_unlink = os.pwrite, os.ftruncate, os.unlink


def empty_write(file: int) -> None:
    """Write nothing."""
    real_pwrite(file, b"", 0)


def empty_cut(file: int) -> None:
    """Fail to cut what has no length."""
    real_ftruncate(file, 0)


def empty_unlink(_: int) -> None:
    """Fail to delete what is not there."""
    real_unlink("/nowhere/at/all")


EMPTY: Final[dict[str, Callable[[int], None]]] = {
    "pwrite64": empty_write,
    "ftruncate": empty_cut,
    "unlink": empty_unlink,
    "fdatasync": os.fdatasync,
    "fsync": os.fsync,
}
"""System calls that do nothing to a file, by their names for the tracer."""


def burn(call: str, count: int) -> None:
    """Make a system call so often without effect, so that the next one has a number we want."""
    file = os.open(os.devnull, os.O_RDWR)
    for _ in range(count):
        with suppress(OSError):
            EMPTY[call](file)
    os.close(file)


# --- playing ------------------------------------------------------------------------------------


class Acknowledged:
    """Tells of every flush that has returned."""

    def __init__(self, blows: Blows) -> None:
        self._blows = blows
        self._hashes: dict[str, tuple[int, Any]] = {}

    def install(self) -> None:
        flush = LiveSessions.flush

        async def told(self_: LiveSessions, session: Session) -> None:
            count = session.seq
            await flush(self_, session)
            digest = self._digest(session, count)
            say(ack=session.id, count=count, digest=digest, unsynced=self._blows.unsynced)

        setattr(LiveSessions, "flush", told)  # noqa: B010 - its parameters have other names

    def _digest(self, session: Session, count: int) -> str:
        done, state = self._hashes.get(session.id, (0, hashlib.sha256()))
        if done > count:  # another flush was quicker
            done, state = 0, hashlib.sha256()
        for event in session.events[done:count]:
            state.update(encode_event(event) + b"\n")
        self._hashes[session.id] = count, state
        return state.hexdigest()


class Play:
    """The session, and what is done to it.

    Args:
        job: What to do.
        blows: What strikes at the system calls of Python code.
    """

    def __init__(self, job: dict[str, Any], blows: Blows) -> None:
        self._job = job
        self._blows = blows
        self._trouble = Trouble(job)

    async def run(self) -> None:
        """Play it all."""
        for thread, call, count in self._job.get("burn", ()):
            if thread == "main":
                burn(call, count)
            else:
                await anyio.to_thread.run_sync(burn, call, count)
        flags = os.O_CREAT | os.O_APPEND | os.O_WRONLY
        effects = os.open(Path(self._job["folder"], "effects"), flags, 0o600)
        async with App() as app:
            app.on_error(app.ctx, lambda failure: say(report=str(failure.error)))
            await app.mount(AgentCore).settled()
            self._trouble.come("start")
            await app.mount(*store_of(self._job)).settled()
            adapter = ScriptedAdapter(self._reply, placeholders=False)
            app[LlmService].register(app.ctx, adapter, "test")
            for tool in self._tools(effects):
                app[ToolRegistry].register(app.ctx, tool)
            try:
                await self._session(app)
            except PersistenceError as error:
                say(refused="main", code=error.code)
                if self._lift():
                    await self._session(app)

    async def _session(self, app: App) -> None:
        async with create_agent(app, model=MODEL, cwd="/w", session_id="main") as agent:
            await self._turn(agent, "note it")
            self._trouble.come("turn")
            await self._turn(agent, "look at it")
            agent.inject("the weather has changed")
            await agent.when_idle()
            try:
                await self._branch(app, agent)
            except PersistenceError as error:
                say(refused="branch", code=error.code)
            await self._turn(agent, "think")
            if self._lift():
                await self._turn(agent, "note that it is over")

    async def _branch(self, app: App, agent: Agent) -> None:
        """Go on with a copy of the log up to the last turn."""
        log = agent.session.events[:]
        create = CreateAgent(
            session_id="branch",
            cwd="/w",
            parent_session="main",
            seed=log,
            seed_length=len(log),
            options=AgentOptions(model=MODEL),
        )
        async with await app[AgentRegistry].create(app.ctx, create) as child:
            await self._turn(child, "note it elsewhere")

    async def _turn(self, agent: Agent, prompt: str) -> None:
        reason = (await agent.ask(prompt, check=False)).reason
        say(turn=reason.kind, code=getattr(reason, "code", None), session=agent.session.id)

    def _reply(self, request: LlmRequest) -> tuple[StreamChunk, ...]:
        say(request=request.session_id)
        self._trouble.come("stream")
        return reply(request)

    def _tools(self, effects: int) -> list[Tool]:
        """Return tools whose effect is a line in a file."""

        async def have_effect(arguments: JsonObject, execution: ToolExecution) -> str:
            write(effects, f"{execution.call_id}\n".encode())
            say(effect=execution.call_id)
            self._trouble.come("effect")
            if execution.call_id.endswith("-1") and execution.agent is not None:
                execution.agent.steer("hurry")
            return f"did {execution.call_id}"

        schema: JsonObject = {"type": "object"}
        return [
            Tool("note", "Write it down.", schema, have_effect),
            Tool("look", "Look at it.", schema, have_effect, concurrent=True),
        ]

    def _lift(self) -> bool:
        """End the trouble; False if it will not end in this process."""
        if self._job.get("for_good"):
            return False
        self._blows.lift()
        self._trouble.lift()
        say(lifted=True)
        return True


def reply(request: LlmRequest) -> tuple[StreamChunk, ...]:
    """Answer by what was said last, and by how many results stand behind it."""
    said, results = "", 0
    for message in request.messages:
        for block in message.content:
            if isinstance(block, ToolResultBlock):
                results += 1
            elif isinstance(block, TextBlock) and message.role == "user":
                said, results = block.text, 0
    mark = len(request.messages)
    if results:
        return text("It is done.", size=4)
    if said.startswith("note"):
        return tool_calls([(f"n{mark}", "note", "{}")], text="I note it.")
    if said.startswith("look"):
        looks = [(f"l{mark}-{at}", "look", "{}") for at in range(3)]
        return answer(reasoning="Three times.", calls=[*looks, (f"n{mark}", "note", "{}")], size=5)
    if said.startswith("think"):
        return reasoning("Hm. " * 8, "So it is.", size=6)
    return text("A long answer about it. " * 60, size=24)


class Trouble:
    """What can be wrong with a disk: `full`, `closed` to this user, `limit` for a file's length.

    Args:
        job: `trouble` is what comes, `limit` the bytes of that one, and `comes` is when: at the
            `start`, before the second `turn`, in the second `stream`, with the second `effect`.
    """

    def __init__(self, job: dict[str, Any]) -> None:
        self._kind = job.get("trouble")
        self._comes = job.get("comes", "start")
        self._limit = job.get("limit", 0)
        self._store = Path(job["folder"], "store")
        self._ballast = Path(job["folder"], "ballast")
        self._passed = {"stream": 1, "effect": 1}

    def come(self, when: str) -> None:
        """Begin, if this is when it begins."""
        if self._kind is None or when != self._comes:
            return
        if self._passed.get(when):
            self._passed[when] -= 1
            return
        self._comes = ""
        {"full": self._fill, "closed": self._close, "limit": self._cap}[self._kind]()
        say(trouble=self._kind)

    def lift(self) -> None:
        """End it."""
        self._ballast.unlink(missing_ok=True)
        if self._kind == "limit":
            _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
            resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
        if self._kind == "closed":
            self._store.chmod(0o700)
            for path in self._store.rglob("*"):
                path.chmod(0o700 if path.is_dir() else 0o600)

    def _fill(self) -> None:
        with self._ballast.open("wb", buffering=0) as file, suppress(OSError):
            while True:
                file.write(bytes(4096))

    def _close(self) -> None:
        with suppress(FileExistsError):
            mkdir(self._store)
        for path in (self._store, *self._store.rglob("*")):
            path.chmod(0o500 if path.is_dir() else 0o400)

    def _cap(self) -> None:
        _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (self._limit, most))


def store_of(job: dict[str, Any]) -> tuple[PluginLike, dict[str, object]]:
    """Return the plugin of a store and its configuration."""
    folder = Path(job["folder"], "store")
    config: dict[str, object] = {"write_after_ms": job.get("window", 3_600_000)}
    if job["store"] == "sqlite":
        return SqlitePersistence, {"file": str(folder / "sessions.sqlite"), **config}
    kind = "zstd" if job["store"] == "zstd" else "none"
    return JsonlPersistence, {"folder": str(folder), "compression": kind, **config}


def perform(job: dict[str, Any]) -> None:
    """Play in this process, and end it."""
    signal.alarm(LIFE_S)
    logging.disable(logging.CRITICAL)
    with suppress(FileExistsError):
        os.mkdir(job["folder"])
    blows = Blows(os.path.join(job["folder"], "store"), job)
    blows.install()
    Acknowledged(blows).install()
    say(started=os.getpid())
    status = 0
    try:
        anyio.run(Play(job, blows).run, backend=job.get("backend", "asyncio"))
    except BaseException as error:  # whatever it is, the test is told of it
        status = 1
        say(raised=traceback.format_exception(error))
    say(calls=blows.names)
    os._exit(status)


def warm_up(folder: str) -> None:
    """Play once with each store, so that children need not import nor build anything."""
    global say
    say, loud = silent, say
    for store in ("jsonl", "zstd", "sqlite"):
        job = {"store": store, "folder": os.path.join(folder, store)}
        os.mkdir(job["folder"])
        anyio.run(Play(job, Blows(folder, job)).run)
    say = loud


def silent(**words: object) -> None:
    """Tell nobody."""


def main() -> None:
    with TemporaryDirectory() as folder:
        warm_up(folder)
    # a fork takes only one thread along, and whatever the others held stays held for ever
    assert threading.active_count() == 1, threading.enumerate()
    gc.collect()
    gc.freeze()  # so that no child copies what it only looks at
    say(ready=os.getpid())
    with os.fdopen(0, "rb", buffering=0) as jobs:  # so that no child inherits what was read ahead
        for line in jobs:
            pid = os.fork()
            if pid == 0:
                perform(json.loads(line))
            _, status = os.waitpid(pid, 0)
            say(ended=os.waitstatus_to_exitcode(status))


if __name__ == "__main__":
    main()
