"""Run the server as a program: `python -m dsh.llm_replay.server --script FILE --port N`."""

from __future__ import annotations

import argparse
import json
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

import anyio

from dsh.llm_replay.server._behaviour import Behaviour
from dsh.llm_replay.server._gate import Gates
from dsh.llm_replay.server._record import Attempt
from dsh.llm_replay.server._script import ScriptError, behaviour
from dsh.llm_replay.server._scriptfile import ScriptFile, load_script
from dsh.llm_replay.server._server import WireServer


def main(arguments: Sequence[str] | None = None) -> int:
    """Run until SIGINT or SIGTERM, or until stdin ends if that was asked for.

    The first line on stdout is `{"url": ..., "port": ...}`, written when the server accepts
    connections (or, with `--refuse`, when its port is reserved).

    Returns:
        The exit code: 0, or 2 if the arguments or the script are wrong.
    """
    options = _parser().parse_args(arguments)
    gates = Gates()
    try:
        script = _script(options, gates)
    except (ScriptError, OSError) as error:
        sys.stderr.write(f"dsh.llm_replay.server: {error}\n")
        return 2
    anyio.run(_serve, options, script, gates)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m dsh.llm_replay.server",
        description="A local server that speaks the chat-completions wire and follows a script.",
    )
    source = parser.add_mutually_exclusive_group()
    source.add_argument("--script", type=Path, metavar="FILE", help="a script file (JSON)")
    source.add_argument(
        "--recording", type=Path, metavar="FILE", help="a recorded session log (JSON lines)"
    )
    source.add_argument(
        "--behaviour", action="append", metavar="NAME", help="an entry by name; may be repeated"
    )
    parser.add_argument("--host", default="127.0.0.1", help="the address to bind")
    parser.add_argument("--port", type=int, default=8000, help="the port, 0 for a free one")
    parser.add_argument("--token", help="the bearer token requests must carry")
    parser.add_argument("--repeat-last", action="store_true", help="never run out of answers")
    parser.add_argument("--seed", type=int, default=0, help="seed of random entries")
    parser.add_argument("--record", type=Path, metavar="FILE", help="append each attempt as JSON")
    parser.add_argument(
        "--refuse",
        type=float,
        metavar="SECONDS",
        nargs="?",
        const=0.75,
        help="refuse connections for a while before listening",
    )
    parser.add_argument(
        "--exit-with-stdin", action="store_true", help="stop when standard input ends"
    )
    return parser


def _script(options: argparse.Namespace, gates: Gates) -> ScriptFile:
    if options.script is not None:
        return load_script(options.script, gates.get)
    if options.recording is not None:
        return ScriptFile(tuple(_recording(options.recording)))
    names: list[str] = options.behaviour or ["success"]
    for name in names:
        if name != "random":
            behaviour(name)
    return ScriptFile(tuple(names), repeat_last=options.behaviour is None)


def _recording(path: Path) -> list[Behaviour]:
    # Only here the program needs the model seam and sessions.
    from dsh.llm_replay import ReplayError, load_recording, script_of, wire_script

    try:
        answers = [entry for entry in script_of(load_recording(path).calls) if not callable(entry)]
    except ReplayError as error:
        raise ScriptError(str(error)) from error
    return wire_script(answers)


async def _serve(options: argparse.Namespace, script: ScriptFile, gates: Gates) -> None:
    record: TextIO | None = None
    if options.record is not None:
        record = options.record.open("a", encoding="utf-8")

    def write(attempt: Attempt) -> None:
        if record is not None:
            record.write(json.dumps(attempt.as_json(), ensure_ascii=False) + "\n")
            record.flush()

    server = WireServer(
        script.entries,
        host=options.host,
        port=options.port,
        token=options.token or script.token,
        repeat_last=options.repeat_last or script.repeat_last,
        seed=options.seed or script.seed,
        listening=options.refuse is None,
        control=True,
        gates=gates,
        on_finished=write,
    )
    try:
        async with server:
            sys.stdout.write(json.dumps({"url": server.url, "port": server.port}) + "\n")
            sys.stdout.flush()
            await _until_stopped(options, server)
    finally:
        if record is not None:
            record.close()


async def _until_stopped(options: argparse.Namespace, server: WireServer) -> None:
    async with anyio.create_task_group() as tasks:

        async def on_signal() -> None:
            with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
                async for _ in signals:
                    tasks.cancel_scope.cancel()
                    return

        async def on_stdin() -> None:
            await anyio.to_thread.run_sync(sys.stdin.read, abandon_on_cancel=True)
            tasks.cancel_scope.cancel()

        tasks.start_soon(on_signal)
        if options.exit_with_stdin:
            tasks.start_soon(on_stdin)
        if options.refuse is not None:
            await anyio.sleep(options.refuse)
            server.listen()
        await anyio.sleep_forever()


if __name__ == "__main__":
    sys.exit(main())
