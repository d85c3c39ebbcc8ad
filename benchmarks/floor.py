"""The floor: the smallest streaming tool loop a person would write with httpx.

It keeps the conversation as dictionaries, encodes all of it for each request, parses each event of
the answer, and runs a tool that does nothing, or `bash -c`. It checks nothing, logs nothing,
recovers from nothing and cannot be extended. Everything a harness does on top is what the
benchmarks measure.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

import httpx

Message: TypeAlias = dict[str, Any]
Tool: TypeAlias = Callable[[dict[str, Any]], Awaitable[str]]

HEADERS = {"authorization": "Bearer key", "accept": "text/event-stream"}
SYSTEM = "You are a helpful agent. Use the tools you have."


def schema(name: str, description: str, **parameters: str) -> dict[str, Any]:
    """Return the definition of a tool as the wire has it; `parameters` are JSON types."""
    properties = {key: {"type": kind} for key, kind in parameters.items()}
    return {
        "type": "function",
        "function": {
            "name": name,
            "description": description,
            "parameters": {
                "type": "object",
                "properties": properties,
                "required": list(parameters),
            },
        },
    }


SCHEMAS = [
    schema("noop", "Does nothing.", n="integer"),
    schema("bash", "Runs a command.", command="string"),
]


async def noop(arguments: dict[str, Any]) -> str:
    """Do nothing."""
    return "done"


async def bash(arguments: dict[str, Any]) -> str:
    """Run a command and return what it wrote."""
    process = await asyncio.create_subprocess_exec(
        "bash",
        "-c",
        arguments["command"],
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate()
    return f"{output.decode()}\nexit code {process.returncode}"


TOOLS: dict[str, Tool] = {"noop": noop, "bash": bash}


async def ask(client: httpx.AsyncClient, url: str, messages: list[Message]) -> Message:
    """Make one request and return the message that answers it."""
    text: list[str] = []
    calls: list[dict[str, Any]] = []
    body = {
        "model": "bench",
        "messages": messages,
        "stream": True,
        "stream_options": {"include_usage": True},
        "tools": SCHEMAS,
    }
    async with client.stream(
        "POST", f"{url}/chat/completions", json=body, headers=HEADERS
    ) as response:
        response.raise_for_status()
        async for line in response.aiter_lines():
            if not line.startswith("data: ") or line == "data: [DONE]":
                continue
            for choice in json.loads(line[6:])["choices"]:
                delta = choice["delta"]
                if content := delta.get("content"):
                    text.append(content)
                for part in delta.get("tool_calls") or ():
                    if part["index"] == len(calls):
                        calls.append(part)
                    else:
                        arguments = part["function"]["arguments"]
                        calls[part["index"]]["function"]["arguments"] += arguments
    message: Message = {"role": "assistant", "content": "".join(text)}
    if calls:
        message["tool_calls"] = [
            {"id": call["id"], "type": "function", "function": call["function"]} for call in calls
        ]
    return message


async def run(client: httpx.AsyncClient, url: str, messages: list[Message], prompt: str) -> str:
    """Answer a prompt, running the tools the model asks for; returns the last answer."""
    messages.append({"role": "user", "content": prompt})
    while True:
        message = await ask(client, url, messages)
        messages.append(message)
        if "tool_calls" not in message:
            return str(message["content"])
        for call in message["tool_calls"]:
            function = call["function"]
            result = await TOOLS[function["name"]](json.loads(function["arguments"]))
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})


async def main(url: str, prompt: str) -> None:
    """Answer one prompt and print the answer."""
    async with httpx.AsyncClient() as client:
        print(await run(client, url, [{"role": "system", "content": SYSTEM}], prompt))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
