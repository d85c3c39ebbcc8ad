"""The bash tools."""

from __future__ import annotations

import math
import os
from typing import ClassVar

from dsh.agent import Agent, AgentDisposed, AgentRegistry
from dsh.bash import BashAbortedError, BashExecutor, BashRequest, BashSpec, BashTask, OwnerToken
from dsh.core import JsonObject, Plugin, inject
from dsh.llm import TextBlock
from dsh.session import PluginSource
from dsh.system_prompt import SystemPrompt
from dsh.tool_bash._present import present_call, present_kill, present_output, present_result
from dsh.tool_bash._render import (
    Rendered,
    completion_notice,
    render_read,
    render_result,
    task_meta,
)
from dsh.tool_bash._texts import (
    KILL_TEXT,
    OUTPUT_TEXT,
    SECTION,
    TASK_ID,
    bash_parameters,
    bash_text,
)
from dsh.tool_bash.errors import BashToolError
from dsh.tools import Tool, ToolExecution, ToolOutput, ToolRegistry

__all__ = ["ToolBash"]

_SECTION_ORDER = 105


class ToolBash(Plugin):
    """Gives the model `bash`, `bash_output` and `bash_kill`.

    A background command belongs to the session whose agent started it: other sessions can
    neither read nor stop it, and its end is told to a live agent of that session, which is not
    woken up for it.
    """

    name: ClassVar[str] = "tool-bash"
    tools = inject(ToolRegistry)
    bash = inject(BashExecutor)
    system_prompt = inject(SystemPrompt)
    agents = inject(AgentRegistry, optional=True)

    async def start(self) -> None:
        """Register the tools, the prompt section and the completion notice."""
        limits = (self.bash.config.timeout_ms, self.bash.config.max_timeout_ms)
        bash = Tool(
            "bash",
            bash_text(*limits),
            bash_parameters(*limits),
            self._run,
            present_call=present_call,
            present_result=present_result,
        )
        output = Tool(
            "bash_output", OUTPUT_TEXT, TASK_ID, self._output, present_call=present_output
        )
        kill = Tool("bash_kill", KILL_TEXT, TASK_ID, self._kill, present_call=present_kill)
        for tool in (bash, output, kill):
            self.tools.register(self.ctx, tool)
        self.system_prompt.section(self.ctx, "tool:bash", _SECTION_ORDER, SECTION)
        self.bash.on_task_done(self.ctx, self._announce)

    # ── the tools ────────────────────────────────────────────────────────────────────────────

    async def _run(self, arguments: JsonObject, execution: ToolExecution) -> ToolOutput:
        background = arguments.get("run_in_background") is True
        spec = self.bash.resolve(_request(arguments, execution, background))
        if background:
            task = self.bash.start_task(spec)
            return _output(Rendered(f"started background task {task.id}", task_meta(task)))
        return await self._foreground(spec)

    async def _foreground(self, spec: BashSpec) -> ToolOutput:
        try:
            result = await self.bash.run(spec)
        except BashAbortedError as error:
            raise _aborted() from error
        if result.aborted:
            raise _aborted()
        return _output(render_result(result))

    async def _output(self, arguments: JsonObject, execution: ToolExecution) -> ToolOutput:
        return _output(render_read(self.bash.read_output(self._task_id(arguments, execution))))

    async def _kill(self, arguments: JsonObject, execution: ToolExecution) -> ToolOutput:
        task_id = self._task_id(arguments, execution)
        killed = self.bash.kill(task_id)
        text = (
            f"killed background task {task_id}"
            if killed
            else f"task {task_id} had already finished"
        )
        return _output(Rendered(text, {"taskId": task_id, "killed": killed}))

    def _task_id(self, arguments: JsonObject, execution: ToolExecution) -> str:
        """The task a call names, if the caller may touch it."""
        task_id = arguments["task_id"]
        if not isinstance(task_id, str) or not task_id.strip():
            raise _invalid("task_id", "it is blank")
        owner = self.bash.owner_of(task_id)
        if owner is not None and owner != _owner(execution.agent):
            raise BashToolError(
                f"task {task_id} belongs to another session",
                code=BashToolError.FOREIGN_TASK,
                hint="only the session that started a background command can read or stop it",
            )
        return task_id

    # ── the notice ───────────────────────────────────────────────────────────────────────────

    def _announce(self, task: BashTask) -> None:
        """Tell the owner's agent that a background command has ended."""
        owner = self.bash.owner_of(task.id)
        agents = self.agents
        if owner is None or agents is None:
            return
        for agent in agents.list():
            if _owner(agent) == owner:
                try:
                    agent.inject(completion_notice(task), PluginSource(self.name))
                except AgentDisposed:
                    continue  # it went away at this very moment: nobody is left to tell
                return


def _request(arguments: JsonObject, execution: ToolExecution, background: bool) -> BashRequest:
    """Build the request from the documented arguments alone; whatever else was sent is ignored."""
    command, description = arguments["command"], arguments["description"]
    if not isinstance(command, str) or not command.strip():
        raise _invalid("command", "it is blank")
    if not isinstance(description, str) or not description.strip():
        raise _invalid("description", "it is blank; say in a few words what the command does")
    timeout = arguments.get("timeout_ms")
    if timeout is not None and not _is_duration(timeout):
        raise _invalid("timeout_ms", "it must be a positive number of milliseconds")
    workdir = arguments.get("workdir")
    return BashRequest(
        command=command,
        workdir=_workdir(workdir if isinstance(workdir, str) else None, execution.agent),
        timeout_ms=timeout if isinstance(timeout, int | float) else None,
        # A background command outlives the call, and so the call's signal.
        signal=None if background else execution.signal,
        owner=_owner(execution.agent) if background else None,
    )


def _workdir(wanted: str | None, agent: Agent | None) -> str | None:
    """Where to run: many sessions share one executor, so the session's directory decides here."""
    base = None if agent is None else agent.session.header.cwd
    if not wanted:
        return base
    return wanted if base is None else os.path.join(base, wanted)


def _owner(agent: Agent | None) -> OwnerToken | None:
    return None if agent is None else OwnerToken(agent.session.id)


def _is_duration(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return math.isfinite(value) and value > 0


def _invalid(argument: str, why: str) -> BashToolError:
    return BashToolError(f"invalid {argument}: {why}", code=BashToolError.INVALID_ARGS)


def _aborted() -> BashToolError:
    return BashToolError("command aborted", code=BashToolError.ABORTED)


def _output(rendered: Rendered) -> ToolOutput:
    return ToolOutput((TextBlock(rendered.text),), rendered.meta)
