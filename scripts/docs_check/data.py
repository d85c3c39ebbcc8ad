"""Blocks that hold data must be what they say; a deployment must be one."""

from __future__ import annotations

import json
import re
import subprocess
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from docs_check.blocks import Block, Page, Problem
from docs_check.deployments import Own, misfits
from dsh.core import DshError
from dsh.loader import (
    ConfigKeyError,
    InterpolationError,
    LayerKind,
    RawFile,
    file_layer,
    parse_yaml,
)

_LINE = re.compile(r"\bline (\d+)")


def check_data(page: Page) -> Iterator[Problem]:
    """Yield the blocks of a page that do not parse."""
    own = Own.of(page)
    for block in page.blocks:
        if "no-check" in block.flags:
            continue
        try:
            _check(block, own)
        except _ParseError as error:
            yield block.problem(str(error), error.line)


class _ParseError(ValueError):
    def __init__(self, text: str, line: int | None = None) -> None:
        super().__init__(text)
        self.line = line


def _check(block: Block, own: Own) -> None:
    match block.language:
        case "python":
            _check_python(block)
        case "sh":
            _check_shell(block)
        case "yaml":
            _check_yaml(block, own)
        case "toml":
            _check_toml(block)
        case "json":
            _check_json(block.code, block.line)
        case "jsonl":
            for number, line in enumerate(block.code.splitlines()):
                if line.strip():
                    _check_json(line, block.line + number)
        case _:
            pass


def _check_python(block: Block) -> None:
    try:
        compile(block.padded, str(block.page), "exec", dont_inherit=True)
    except SyntaxError as error:
        raise _ParseError(f"does not compile: {error.msg}", error.lineno) from None


def _check_shell(block: Block) -> None:
    done = subprocess.run(
        ["bash", "-n", "-c", block.padded, "block"], capture_output=True, text=True, check=False
    )
    if done.returncode:
        message = done.stderr.strip().splitlines()[0]
        found = _LINE.search(message)
        detail = message.rpartition(": ")[2]
        raise _ParseError(f"no shell: {detail}", int(found[1]) if found else None)


def _check_toml(block: Block) -> None:
    try:
        tomllib.loads(block.code)
    except tomllib.TOMLDecodeError as error:
        raise _ParseError(f"no TOML: {error}", _moved(block, str(error))) from None


def _check_json(text: str, line: int) -> None:
    try:
        json.loads(text)
    except json.JSONDecodeError as error:
        raise _ParseError(f"no JSON: {error.msg}", line + error.lineno - 1) from None


def _check_yaml(block: Block, own: Own) -> None:
    try:
        document = parse_yaml(block.code, where="block")
    except DshError as error:
        raise _ParseError(f"no YAML: {error.message}", _moved(block, error.message)) from None
    value = document.value
    if not isinstance(value, dict) or "version" not in value:
        return
    _check_deployment(block, own)
    for path, told in misfits(value, own):
        where = ".".join(map(str, path)) or "the deployment"
        line = _line_of(document.lines, path)
        raise _ParseError(f"no valid deployment: {where}: {told}", block.line + line - 1)


def _line_of(lines: Mapping[tuple[str, ...], int], path: Sequence[str | int]) -> int:
    """Return the line of a key, or of the nearest one around it that has a line."""
    key = tuple(map(str, path))
    while key and key not in lines:
        key = key[:-1]
    return lines.get(key, 1)


def _check_deployment(block: Block, own: Own) -> None:
    # an expression names what only the reader has; what it gives cannot be checked here
    for text in (block.code, re.sub(r"\$\{[^}]*\}", "x", block.code)):
        raw = RawFile(Path("dsh.yaml"), text.encode())
        try:
            file_layer(raw, LayerKind.CONFIG, environ={})
        except InterpolationError:
            continue
        except DshError as error:
            if _is_own_key(error, own):
                return
            told = error.message if error.hint is None else f"{error.message} ({error.hint})"
            raise _ParseError(f"no valid deployment: {told}", _moved(block, told)) from None
        return


def _is_own_key(error: DshError, own: Own) -> bool:
    return isinstance(error, ConfigKeyError) and error.path in own.services


def _moved(block: Block, message: str) -> int | None:
    found = _LINE.search(message) or re.search(r"(?:block|dsh\.yaml):(\d+)", message)
    return block.line + int(found[1]) - 1 if found else None
