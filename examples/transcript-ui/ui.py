"""A user interface in a file: it follows the log of every session and writes what it reads."""

from pathlib import Path

from dsh.core import Plugin, PluginConfig, on, settings
from dsh.llm import ContentBlock, TextBlock
from dsh.session import AssistantMessage, ToolCall, ToolResult, TurnEnd, UserMessage
from dsh.session.events import SessionEventAppended


class Transcript(Plugin):
    """Appends a transcript to a file."""

    class Config(PluginConfig):
        """What `dsh.yaml` says under `config`."""

        path: Path
        """The file, relative to where `dsh` is started."""

    config = settings(Config)

    @on(SessionEventAppended)
    def show(self, event: SessionEventAppended) -> None:
        """Write one event of a log, if it says something to a reader."""
        match event.event.data:
            case UserMessage(content=content):
                self._write("you", content)
            case AssistantMessage(content=content):
                self._write("agent", content)
            case ToolCall(name=name, arguments=arguments):
                self._write("call", [TextBlock(f"{name} {arguments}")])
            case ToolResult(content=content):
                self._write("result", content)
            case TurnEnd(reason=reason):
                self._write("end", [TextBlock(reason.kind)])
            case _:
                pass

    def _write(self, who: str, content: "tuple[ContentBlock, ...] | list[TextBlock]") -> None:
        text = "".join(block.text for block in content if isinstance(block, TextBlock))
        with self.config.path.open("a", encoding="utf-8") as file:
            file.write(f"{who + ':':8}{text.rstrip()}\n")
