"""A tool in a file, with a setting."""

from pydantic import Field

from dsh.core import Plugin, PluginConfig, inject, settings
from dsh.tools import ToolRegistry, tool


class ReadingTime(Plugin):
    """Offers the tool `reading_time`."""

    class Config(PluginConfig):
        """What `dsh.yaml` says under `config`."""

        per_minute: int = Field(default=230, gt=0)
        """Words that a person reads in a minute."""

    config = settings(Config)
    tools = inject(ToolRegistry)

    async def start(self) -> None:
        """Offer the tool."""
        self.tools.register(self.ctx, self.reading_time)

    @tool
    async def reading_time(self, words: int) -> str:
        """Tell how long a text takes to read.

        Args:
            words: Length of the text in words.
        """
        return f"{words / self.config.per_minute:.1f} minutes"
