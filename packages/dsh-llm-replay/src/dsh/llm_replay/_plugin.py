"""The plugin: a scripted or recorded model for a deployment."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import anyio.to_thread
from pydantic import ConfigDict, Field, field_validator, model_validator

from dsh.core import NextStream, Plugin, PluginConfig, inject, settings
from dsh.llm import LlmService, StreamChunk
from dsh.llm.events import LlmStream
from dsh.llm_replay._adapter import SCRIPTED, ScriptedAdapter
from dsh.llm_replay._entries import Entry
from dsh.llm_replay._overrides import load_override
from dsh.llm_replay._recording import load_recording
from dsh.llm_replay._replay import ReplayAdapter
from dsh.llm_replay._steps import Step, entry_from, load_script


class LlmReplay(Plugin):
    """Registers a model that answers from a script or from a recorded session.

    Without other settings the model is `replay/scripted`. Relative paths start at the working
    directory of the process.
    """

    name: ClassVar[str] = "llm-replay"

    class Config(PluginConfig):
        """What the model says, and under which names it is found."""

        model_config = ConfigDict(json_schema_extra={"examples": [{"script": ["Hello."]}]})

        script: tuple[Step | str, ...] | None = None
        """The answers, one for each call; a string is a text answer."""
        script_file: Path | None = None
        """A JSON file with the answers."""
        recording: Path | None = None
        """A recorded session log (JSON lines) whose answers are repeated."""
        children: tuple[Path, ...] = ()
        """Recorded logs of the subagents and forks of that session."""
        override: Path | None = None
        """Sidecar of the recording: a whole script, or patches for single calls."""
        auxiliary: dict[str, Step | str] = Field(default_factory=dict[str, Step | str])
        """Answers for requests with a purpose, such as `session-title`, by purpose."""
        models: tuple[str, ...] = ("replay/scripted",)
        """The names, `provider/model`, under which the model can be called."""
        intercept: bool = False
        """Answer every model call of the app, whatever model it names."""
        repeat_last: bool = False
        """Repeat the last answer of a script instead of failing at its end."""
        pace_ms: float = Field(default=0, ge=0)
        """Milliseconds to wait before each chunk."""
        placeholders: bool = True
        """Replace `{{fromRequest:<regex>}}` in scripted strings."""
        require_consumed: bool = False
        """Report answers that were never asked for when the plugin stops."""

        @field_validator("models")
        @classmethod
        def _qualified(cls, value: tuple[str, ...]) -> tuple[str, ...]:
            for name in value:
                provider, slash, model = name.partition("/")
                if not (provider and slash and model):
                    raise ValueError(f"{name!r} is not of the form provider/model")
            if not value:
                raise ValueError("at least one model is needed")
            return value

        @model_validator(mode="after")
        def _one_source(self) -> LlmReplay.Config:
            sources = (self.script, self.script_file, self.recording)
            if sum(source is not None for source in sources) != 1:
                raise ValueError("set exactly one of script, script_file and recording")
            if self.recording is None and (self.children or self.override is not None):
                raise ValueError("children and override belong to a recording")
            return self

    config = settings(Config)
    llm = inject(LlmService)

    adapter: ScriptedAdapter | ReplayAdapter
    """The adapter, for tests that look at its calls; there once the plugin has started."""

    async def start(self) -> Callable[[], object] | None:
        """Read the script and register the model.

        Raises:
            ReplayError: If the script or the recording is malformed.
            OSError: If a file cannot be read.
        """
        self.adapter = await anyio.to_thread.run_sync(_adapter, self.config)
        for provider, models in _by_provider(self.config.models).items():
            infos = [replace(SCRIPTED, id=model) for model in models]
            self.llm.register(self.ctx, self.adapter, provider=provider, models=infos)
        if self.config.intercept:
            self.ctx.on(LlmStream, self._intercept)
        return self.adapter.assert_consumed if self.config.require_consumed else None

    async def _intercept(
        self, event: LlmStream, next: NextStream[StreamChunk]
    ) -> AsyncGenerator[StreamChunk, None]:
        # Redirected instead of answered here, so that failures of the script become finish
        # chunks like those of any adapter.
        request = replace(event.request, model=self.config.models[0])
        async with aclosing(next(LlmStream(request))) as chunks:
            async for chunk in chunks:
                yield chunk


def _adapter(config: LlmReplay.Config) -> ScriptedAdapter | ReplayAdapter:
    auxiliary = {purpose: entry_from(step) for purpose, step in config.auxiliary.items()}
    if config.recording is not None:
        return ReplayAdapter(
            load_recording(config.recording),
            [load_recording(path) for path in config.children],
            override=None if config.override is None else load_override(config.override),
            auxiliary=auxiliary,
            pace_ms=config.pace_ms,
            placeholders=config.placeholders,
        )
    return ScriptedAdapter(
        _script(config),
        repeat_last=config.repeat_last,
        auxiliary=auxiliary,
        pace_ms=config.pace_ms,
        placeholders=config.placeholders,
    )


def _script(config: LlmReplay.Config) -> list[Entry]:
    if config.script_file is not None:
        return list(load_script(config.script_file))
    return [entry_from(step) for step in config.script or ()]


def _by_provider(names: tuple[str, ...]) -> dict[str, list[str]]:
    grouped: dict[str, list[str]] = {}
    for name in names:
        provider, _, model = name.partition("/")
        grouped.setdefault(provider, []).append(model)
    return grouped
