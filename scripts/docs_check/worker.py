"""The process in which the Python blocks of one page run, one after the other.

It reads one JSON command a line from the descriptor in `argv[1]` (`{"page", "code"}`; the code is
padded, so that line numbers are the page's) and answers each on the one in `argv[2]`. It runs in
the page's own environment, and so imports nothing of this project.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
import types


def _serve(commands: int, answers: int) -> None:
    module = sys.modules["__main__"] = types.ModuleType("__main__")
    with os.fdopen(commands, encoding="utf-8") as lines, os.fdopen(answers, "w") as replies:
        for line in lines:
            command = json.loads(line)
            replies.write(json.dumps(_run(command["page"], command["code"], module)) + "\n")
            replies.flush()


def _run(page: str, code: str, module: types.ModuleType) -> dict[str, object]:
    failed_at: int | None = None
    failed = True
    try:
        exec(compile(code, page, "exec", dont_inherit=True), module.__dict__)
        failed = False
    except SystemExit as error:
        failed = error.code not in (None, 0)
        failed_at = _line(error, page)
        if failed:
            sys.stderr.write(f"exits {error.code}\n")
    except BaseException as error:  # noqa: BLE001 - the page is told, whatever it was
        failed_at = _line(error, page)
        shown = error.__traceback__.tb_next if error.__traceback__ else None
        traceback.print_exception(error.with_traceback(shown))
    sys.stdout.flush()
    sys.stderr.flush()
    return {"failed": failed, "line": failed_at}


def _line(error: BaseException, page: str) -> int | None:
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == page]
    return lines[-1] if lines else None


if __name__ == "__main__":
    _serve(int(sys.argv[1]), int(sys.argv[2]))
