"""The bash tools a model calls: bash, bash_output and bash_kill."""

from dsh.tool_bash._plugin import ToolBash
from dsh.tool_bash.errors import BashToolError

__all__ = ["BashToolError", "ToolBash"]
