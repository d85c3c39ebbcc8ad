"""A gate in a file: commands that push are refused."""

from dsh.core import Next, Plugin, on
from dsh.tools import Deny, PreToolDecision, ToolPreExecute


class NoPush(Plugin):
    """Refuses `git push`, and leaves every other call to whoever decides next."""

    @on(ToolPreExecute)
    async def decide(self, event: ToolPreExecute, next: Next[PreToolDecision]) -> PreToolDecision:
        """Decide about one call."""
        command = str(event.execution.arguments.get("command", ""))
        if event.execution.name == "bash" and "git push" in " ".join(command.split()):
            return Deny("pushing is left to people here")
        return await next()
