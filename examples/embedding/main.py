"""An agent inside a program of one's own."""

from pathlib import Path

from dsh.loader import open_app, run_sync


async def main() -> None:
    """Open the deployment beside this file, and ask its agent two things."""
    async with open_app(Path(__file__).with_name("dsh.yaml")) as app, app.agent() as agent:
        print((await agent.ask("Who are you?")).text)
        async with agent.run("How many events did that take?") as run:
            print(len([event async for event in run]), "events")


run_sync(main)
