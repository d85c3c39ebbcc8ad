"""Running a recorded session again."""

from __future__ import annotations

from collections.abc import Sequence

from dsh.agent import AgentRegistry, CreateAgent
from dsh.core import App, PluginLike
from dsh.session import (
    SessionEvent,
    SessionHeader,
    StepEnd,
    StepStart,
    TurnEnd,
    TurnStart,
    interrupted_turn_closers,
)
from dsh.sessions.replay._compare import difference, missing
from dsh.sessions.replay._config import config_to_play
from dsh.sessions.replay._plan import Plan, Segment, plan_of, repair_of
from dsh.sessions.replay._player import Player
from dsh.sessions.replay._report import Divergence, ReplayReport

__all__ = ["replay_in", "replay_session"]


async def replay_session(
    events: Sequence[SessionEvent],
    header: SessionHeader | None = None,
    *,
    bundle: PluginLike,
    config: object = None,
) -> ReplayReport:
    """Run a recorded session again in an app of its own and compare the two logs.

    The app has the bundle and nothing else: no store, no adapter, no tool that does anything.

    Args:
        events: The log, from its first event on.
        header: What is known of the session besides its log; says how much a fork inherited.
        bundle: The plugin that mounts the spine, `dsh.agent_core.AgentCore` for example.
        config: Its configuration. Agents that it would make are left out, and its limit on calls
            that overlap is raised to what the log shows.

    Returns:
        How much came out as recorded, and the first difference.

    Raises:
        SeedError: What a fork inherited is no log.
    """
    async with App() as app:
        await app.mount(bundle, config_to_play(bundle, config, events)).settled()
        return await replay_in(app, events, header)


async def replay_in(
    app: App, events: Sequence[SessionEvent], header: SessionHeader | None = None
) -> ReplayReport:
    """Run a recorded session again in a running app and compare the two logs.

    Every instance of an agent that wrote a part of the log is an agent here, on what was logged
    before it. Prompts, steering, context, events of plugins, cancels and disposals come where
    they came; system prompt, tools, configuration and prefix, the chunks of the model and the
    results of tools are the recorded ones, and where a policy decided or failed it decides and
    fails again. All else the loop does by itself, and that is compared: event by event, without
    their times.

    Args:
        app: An app with a spine. A store in it would keep what is played.
        events: The log, from its first event on.
        header: As for `replay_session`.

    Returns:
        As `replay_session`.

    Raises:
        SeedError: What a fork inherited is no log.
    """
    seed = 0 if header is None else min(header.seed_length or 0, len(events))
    return await _Replay(app, plan_of(events, seed), header).run()


class _Replay:
    """A log on its way to being made again."""

    def __init__(self, app: App, plan: Plan, header: SessionHeader | None) -> None:
        self._app = app
        self._plan = plan
        self._cwd = None if header is None else header.cwd
        self._log: tuple[SessionEvent, ...] = tuple(plan.events[: plan.seed])
        self._divergence: Divergence | None = None

    async def run(self) -> ReplayReport:
        """Make every segment, as far as all is the same."""
        for segment in self._plan.segments:
            if segment.start != len(self._log):
                break
            await self._play(segment)
            if self._divergence is not None:
                break
            self._repair(segment)
            if self._divergence is not None:
                break
        done = len(self._log)
        if self._divergence is None and done < len(self._plan.events):
            # an event outside of any turn, which no loop writes
            self._divergence = missing(done, self._plan.events[done])
        return self._report()

    async def _play(self, segment: Segment) -> None:
        player = Player(self._plan, segment)
        create = CreateAgent(
            cwd=self._cwd, seed=self._log, options=segment.options, setup=player.setup
        )
        handle = await self._app[AgentRegistry].create(self._app.ctx, create)
        try:
            await player.play(handle)
        finally:
            await handle.dispose()
        self._log = handle.agent.session.events[: player.matched]
        self._divergence = player.divergence

    def _repair(self, segment: Segment) -> None:
        """Close a log as it was closed when it was read again after a crash."""
        if segment.closed == segment.end:
            return
        repair = repair_of(self._plan.events, segment.end, segment.closed)
        for closer in interrupted_turn_closers(self._log) if repair is None else repair:
            found = difference(self._plan.events[closer.seq], closer)
            if found is not None:
                self._divergence = found
                return
            self._log = (*self._log, closer)

    def _report(self) -> ReplayReport:
        made = self._log[self._plan.seed :]
        turns = sum(isinstance(event.data, TurnEnd) for event in made)
        same = self._divergence is None
        # where the log breaks off, what was begun came out as recorded too
        counted = StepStart if same else StepEnd
        return ReplayReport(
            turns=turns,
            steps=sum(isinstance(event.data, counted) for event in made),
            events=len(made),
            divergence=self._divergence,
            open=same and sum(isinstance(event.data, TurnStart) for event in made) > turns,
        )
