"""Example lines of the session log, made from the declared fields alone."""

from __future__ import annotations

import json
import re
from typing import Any

from catalog.render import camel
from catalog.shapes import Field, Payload, Workspace

_TEXT_BLOCKS = [{"type": "text", "text": "Hello"}]

_BY_TYPE: dict[str, Any] = {
    "Whole": 1,
    "int": 1,
    "float": 0.5,
    "bool": True,
    "tuple[ContentBlock, ...]": _TEXT_BLOCKS,
    "tuple[str, ...]": ["one", "two"],
    "MessageSource": {"kind": "user"},
    "TurnTrigger": {"kind": "message", "source": {"kind": "user"}},
    "TurnEndReason": {"kind": "completed"},
    "StreamChunk": {"type": "text-delta", "index": 0, "text": "Hel"},
    "RequestHeader": {"config": {"model": "deepseek/deepseek-chat"}, "system": "You help."},
    "tuple[TodoItem, ...]": [{"content": "Read the file", "status": "in_progress"}],
}
"""Values by the text of a field's type, as they look on the wire."""

_BY_NAME = {
    "arguments": '{"path": "README.md"}',
    "call_id": "call-1",
    "id": "q-1",
    "name": "read_file",
    "tool_name": "bash",
    "reason": "needs a person",
}
"""Texts by the name of a field, where any text would do but one reads better."""

_AT_LEAST_ONE: dict[str, dict[str, Any]] = {
    "request/header-delta": {"config": {"model": "deepseek/deepseek-reasoner"}}
}
"""Fields of types that have no required field and still need one."""

TIME = 1767225600000
"""The first moment of 2026, in every example."""


def example(workspace: Workspace, payload: Payload, seq: int = 7) -> str | None:
    """Return a line of the log with the fields a payload needs, or None if some cannot be told.

    Args:
        workspace: Where the payload and the aliases of its types are declared.
        payload: The event type.
        seq: Position in the log.
    """
    data: dict[str, Any] = {}
    for item in payload.fields:
        if item.default is None:
            found = _sample(workspace, item)
            if found is None:
                return None
            data[camel(item.name)] = found
        elif item.default in {"True", "False"}:
            data[camel(item.name)] = item.default == "True"
    data |= _AT_LEAST_ONE.get(payload.type, {})
    line: dict[str, Any] = {"type": payload.type, "seq": seq, "time": TIME, "data": data}
    if payload.kind == "surface":
        line["surfaceOp"] = "append"
    return json.dumps(line, ensure_ascii=False)


def _sample(workspace: Workspace, item: Field) -> Any:
    text = item.type
    if text in _BY_TYPE:
        return _BY_TYPE[text]
    if text == "str":
        return _BY_NAME.get(item.name, "text")
    paths = dict(item.refs)
    if text in paths:
        text = next((v.text for v in workspace.values if v.path == paths[text]), text)
    choice = re.match(r"Literal\['([^']*)'", text)
    return choice[1] if choice else None
