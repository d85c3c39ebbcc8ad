"""The sessions: creating, entering, announcing, flushing, scopes, validators and forks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest

from dsh.core import App, Context, DshError, Failure, InactiveContextError, Plugin, inject
from dsh.core.testing import set_wall_clock
from dsh.llm import TextBlock
from dsh.session import (
    APPEND,
    Aborted,
    Completed,
    Disposed,
    Failed,
    Interrupted,
    LiveSessions,
    MaxTokens,
    MaxTurnRequests,
    MessageTrigger,
    OtherReason,
    RecordTrigger,
    Refusal,
    Rejected,
    Session,
    SessionEvent,
    SessionMeta,
    SessionTap,
    StepStart,
    TodoWrite,
    TurnEnd,
    TurnEndReason,
    TurnStart,
    UserMessage,
    UserSource,
)
from dsh.session.errors import ForkError, LiveSessionError, SeedError
from dsh.session.events import (
    SessionCreated,
    SessionDisposed,
    SessionEventAppended,
    SessionFlush,
)
from dsh.session.testing import worked_turn, write_turn

TRIGGER = MessageTrigger(UserSource())


class Key:
    """Scope key, compared by identity."""


async def sessions_of(app: App) -> LiveSessions:
    await app.mount(LiveSessions).settled()
    return app[LiveSessions]


def trace(ctx: Context) -> list[str]:
    heard: list[str] = []
    ctx.on(SessionCreated, lambda event: heard.append(f"created {event.session.id}"))
    ctx.on(SessionEventAppended, lambda event: heard.append(event.event.type))
    ctx.on(SessionDisposed, lambda event: heard.append(f"disposed {event.session.id}"))
    return heard


# --- creating -----------------------------------------------------------------------------


async def test_create_options_end_up_in_the_header(tmp_path: Path) -> None:
    # case: S-15
    async with App() as app:
        sessions = await sessions_of(app)
        meta = SessionMeta(
            cwd=str(tmp_path), parent_session="p", seed_length=3, created_at=7, origin="subagent",
            delegation_depth=1, agent_preset="x",
        )  # fmt: skip
        session = sessions.create(app.ctx, "s", meta=meta)
        header = session.header
        assert (header.version, header.id, header.created_at) == (0, "s", 7)
        assert (header.cwd, header.parent_session, header.seed_length) == (str(tmp_path), "p", 3)
        assert SessionMeta.of(header) == meta
        assert session.seq == 0


async def test_a_relative_cwd_is_refused() -> None:
    # case: S-15
    async with App() as app:
        sessions = await sessions_of(app)
        with pytest.raises(LiveSessionError, match=r"absolute.*some/where") as caught:
            sessions.create(app.ctx, meta=SessionMeta(cwd="some/where"))
        assert caught.value.code == LiveSessionError.CWD_NOT_ABSOLUTE
        assert sessions.list() == ()


async def test_ids_and_times_are_made_where_none_are_given() -> None:
    # case: S-15
    async with App() as app:
        sessions = await sessions_of(app)
        with set_wall_clock(lambda: 2.0):
            one, two = sessions.create(app.ctx), sessions.create(app.ctx)
        assert one.id != two.id
        assert one.header.id == one.id
        assert one.header.created_at == 2000
        assert sessions.list() == (one, two)
        assert sessions.get(one.id) is one
        assert sessions.get("nobody") is None


async def test_a_broken_seed_lists_nothing() -> None:
    async with App() as app:
        sessions = await sessions_of(app)
        with pytest.raises(SeedError):
            sessions.create(app.ctx, "s", seed=[SessionEvent(3, 0, TodoWrite(()))])
        assert sessions.get("s") is None


async def test_a_session_leaves_with_the_plugin_that_made_it() -> None:
    # case: S-16
    async with App() as app:
        sessions = await sessions_of(app)
        heard = trace(app.ctx)
        made: list[Session] = []

        class Maker(Plugin):
            sessions = inject(LiveSessions)

            async def start(self) -> None:
                made.append(self.sessions.create(self.ctx, "s"))

        mount = app.mount(Maker)
        await mount.settled()
        (session,) = made
        assert sessions.get("s") is session
        session.append(TurnStart(1, TRIGGER))
        with pytest.raises(LiveSessionError, match="'s' already exists") as caught:
            sessions.create(app.ctx, "s")
        assert caught.value.code == LiveSessionError.SESSION_ALREADY_EXISTS
        await mount.dispose()
        assert sessions.list() == ()
        assert not session.attached
        session.append(TurnEnd(1, Completed()))
        assert session.seq == 2
        assert heard == ["created s", "turn/start", "disposed s"]
        sessions.create(app.ctx, "s")


async def test_a_listener_can_veto_a_session() -> None:
    # case: S-17
    async with App() as app:
        sessions = await sessions_of(app)
        later: list[str] = []
        gone: list[str] = []
        seen: list[Session] = []

        def veto(event: SessionCreated) -> None:
            seen.append(event.session)
            raise DshError("not this one", code="VETO")

        effect = app.ctx.on(SessionCreated, veto)
        app.ctx.on(SessionCreated, lambda event: later.append(event.session.id))
        app.ctx.on(SessionDisposed, lambda event: gone.append(event.session.id))
        with pytest.raises(DshError, match="not this one"):
            sessions.create(app.ctx, "s")
        assert sessions.list() == ()
        assert later == []
        assert gone == ["s"]
        assert not seen[0].attached
        effect.dispose_nowait()
        assert sessions.create(app.ctx, "s").attached


async def test_a_listener_may_end_the_session_it_hears_of() -> None:
    # case: S-17
    async with App() as app:
        sessions = await sessions_of(app)
        heard: list[str] = []
        session = sessions.prepare("s")
        effect = sessions.enter(app.ctx, session)

        def end(event: SessionCreated) -> None:
            effect.dispose_nowait()

        app.ctx.on(SessionCreated, end)
        app.ctx.on(SessionCreated, lambda event: heard.append("created"))
        app.ctx.on(SessionDisposed, lambda event: heard.append("disposed"))
        sessions.announce(session)
        assert heard == ["disposed", "created"]
        assert sessions.list() == ()
        assert not session.attached


async def test_an_id_that_went_live_meanwhile_is_refused() -> None:
    # case: S-18
    async with App() as app:
        sessions = await sessions_of(app)
        heard = trace(app.ctx)
        late = sessions.prepare("s")
        live = sessions.create(app.ctx, "s")
        with pytest.raises(LiveSessionError, match="'s' already exists"):
            sessions.enter(app.ctx, late)
        assert sessions.get("s") is live
        live.append(TurnStart(1, TRIGGER))
        late.append(TurnStart(1, TRIGGER))
        assert heard == ["created s", "turn/start"]
        with pytest.raises(LiveSessionError, match="already exists"):
            sessions.prepare("s")


async def test_what_is_not_live_cannot_be_flushed_or_announced() -> None:
    # case: S-19
    async with App() as app:
        sessions = await sessions_of(app)
        never = sessions.prepare("never")
        with pytest.raises(LiveSessionError, match="'never' is not live") as caught:
            await sessions.flush(never)
        assert caught.value.code == LiveSessionError.SESSION_NOT_LIVE
        with pytest.raises(LiveSessionError, match="not live"):
            sessions.announce(never)
        session = sessions.prepare("s")
        effect = sessions.enter(app.ctx, session)
        await sessions.flush(session)
        effect.dispose_nowait()
        effect.dispose_nowait()
        with pytest.raises(LiveSessionError, match="not live"):
            await sessions.flush(session)
        other = sessions.create(app.ctx, "s")
        with pytest.raises(LiveSessionError, match="not live"):
            await sessions.flush(session)
        await effect.dispose()
        assert sessions.get("s") is other


async def test_a_session_that_was_never_announced_leaves_silently() -> None:
    async with App() as app:
        sessions = await sessions_of(app)
        heard = trace(app.ctx)
        session = sessions.prepare("s")
        effect = sessions.enter(app.ctx, session)
        assert heard == []
        effect.dispose_nowait()
        assert heard == []


async def test_a_session_is_announced_once() -> None:
    async with App() as app:
        sessions = await sessions_of(app)
        session = sessions.create(app.ctx, "s")
        with pytest.raises(LiveSessionError, match="announced") as caught:
            sessions.announce(session)
        assert caught.value.code == LiveSessionError.ALREADY_ANNOUNCED


async def test_one_service_lists_a_session() -> None:
    async with App() as app, App() as other:
        sessions, elsewhere = await sessions_of(app), await sessions_of(other)
        session = sessions.create(app.ctx, "s")
        with pytest.raises(LiveSessionError, match="attached") as caught:
            elsewhere.enter(other.ctx, session)
        assert caught.value.code == LiveSessionError.SESSION_ATTACHED
        assert elsewhere.list() == ()
        with pytest.raises(LiveSessionError, match="'s' is attached") as again:
            session.attach(SessionTap(None, print, print))
        assert again.value.code == LiveSessionError.SESSION_ATTACHED


async def test_a_context_that_is_gone_enters_nothing() -> None:
    async with App() as app:
        sessions = await sessions_of(app)
        scope = app.ctx.scope(Key())
        await scope.dispose()
        session = sessions.prepare("s")
        with pytest.raises(InactiveContextError):
            sessions.enter(scope.ctx, session)
        assert sessions.list() == ()
        assert not session.attached


async def test_the_store_lets_go_of_its_sessions_when_it_leaves() -> None:
    async with App() as app:
        mount = app.mount(LiveSessions)
        await mount.settled()
        session = app[LiveSessions].create(app.ctx, "s")
        heard = trace(app.ctx)
        await mount.dispose()
        assert heard == ["disposed s"]
        assert not session.attached
        session.append(TurnStart(1, TRIGGER))
        assert heard == ["disposed s"]


async def test_a_session_leaves_once_although_its_owner_stays_longer_than_the_store() -> None:
    async with App() as app:
        failures: list[Failure] = []
        app.on_error(app.ctx, failures.append)
        mount = app.mount(LiveSessions)
        await mount.settled()
        entry = app[LiveSessions].enter(app.ctx, app[LiveSessions].prepare("s"))
        await mount.dispose()
        entry.dispose_nowait()
        assert failures == []


# --- flush --------------------------------------------------------------------------------


async def test_every_flush_listener_is_heard_before_a_failure_is_raised() -> None:
    # case: S-20
    async with App() as app:
        sessions = await sessions_of(app)
        session = sessions.create(app.ctx, "s")
        release = anyio.Event()
        done: list[str] = []

        def at_once(event: SessionFlush) -> Any:
            raise RuntimeError("synchronous")

        async def failing(event: SessionFlush) -> None:
            raise ValueError("asynchronous")

        async def slow(event: SessionFlush) -> None:
            await release.wait()
            done.append(event.session.id)

        app.ctx.on(SessionFlush, at_once)
        app.ctx.on(SessionFlush, failing)
        app.ctx.on(SessionFlush, slow)
        app.ctx.spawn(set_when_blocked, release)
        with pytest.raises(ExceptionGroup) as caught:
            await sessions.flush(session)
        assert done == ["s"]
        assert {type(error) for error in caught.value.exceptions} == {RuntimeError, ValueError}


async def set_when_blocked(event: anyio.Event) -> None:
    await anyio.wait_all_tasks_blocked()
    event.set()


async def test_a_flush_without_listeners_is_done() -> None:
    async with App() as app:
        sessions = await sessions_of(app)
        await sessions.flush(sessions.create(app.ctx))


# --- scopes -------------------------------------------------------------------------------


async def test_events_are_heard_in_the_scope_of_their_session() -> None:
    # case: S-21
    # case: SC-T23
    async with App() as app:
        sessions = await sessions_of(app)
        key, other = Key(), Key()
        async with app.ctx.scope(key) as scope, app.ctx.scope(other) as stranger:
            everywhere, inside, outside = trace(app.ctx), trace(scope.ctx), trace(stranger.ctx)
            flushed: list[str] = []

            async def on_flush(event: SessionFlush) -> None:
                flushed.append(event.session.id)

            scope.ctx.on(SessionFlush, on_flush)
            mine = sessions.create(scope.ctx, "mine")
            plain = sessions.create(app.ctx, "plain")
            assert mine.owner is key
            assert plain.owner is None
            mine.append(TurnStart(1, TRIGGER))
            plain.append(TurnStart(1, TRIGGER))
            await sessions.flush(mine)
            await sessions.flush(plain)
            assert everywhere == ["created mine", "created plain", "turn/start", "turn/start"]
            assert inside == ["created mine", "turn/start"]
            assert outside == []
            assert flushed == ["mine"]
        assert mine.owner is None
        assert everywhere[-1] == "disposed mine"
        assert sessions.list() == (plain,)


async def test_a_validator_in_a_scope_sees_its_own_sessions() -> None:
    # case: S-21
    async with App() as app:
        sessions = await sessions_of(app)
        async with app.ctx.scope(Key()) as scope:
            asked: list[str] = []

            def ask(session: Session, event: SessionEvent) -> None:
                asked.append(session.id)

            sessions.validator(scope.ctx, ask)
            mine, plain = sessions.create(scope.ctx, "mine"), sessions.create(app.ctx, "plain")
            mine.append(TurnStart(1, TRIGGER))
            plain.append(TurnStart(1, TRIGGER))
            assert asked == ["mine"]
        mine.append(TurnEnd(1, Completed()))
        assert asked == ["mine"]


async def test_sessions_in_a_realm_of_their_own_are_heard_there_alone() -> None:
    async with App() as app:
        sessions = await sessions_of(app)
        ctx = app.ctx.isolate(LiveSessions)
        await ctx.mount(LiveSessions).settled()
        private = ctx.get(LiveSessions)
        assert private is not None
        assert private is not sessions
        outside, inside = trace(app.ctx), trace(ctx)
        private.create(ctx, "s").append(TurnStart(1, TRIGGER))
        assert outside == []
        assert inside == ["created s", "turn/start"]


# --- forks --------------------------------------------------------------------------------


async def test_a_fork_of_nothing_is_an_empty_child() -> None:
    # case: S-22
    async with App() as app:
        sessions = await sessions_of(app)
        source = sessions.create(app.ctx, "a")
        child = sessions.fork(app.ctx, source)
        assert child.seq == 0
        assert (child.header.parent_session, child.header.seed_length) == ("a", 0)
        assert sessions.get(child.id) is child


async def test_a_fork_copies_the_whole_closed_log(tmp_path: Path) -> None:
    # case: S-22
    async with App() as app:
        sessions = await sessions_of(app)
        source = sessions.create(app.ctx, "a", meta=SessionMeta(cwd=str(tmp_path)))
        write_turn(source)
        heard = trace(app.ctx)
        child = sessions.fork(app.ctx, "a", child_id="b")
        assert child.events[:] == source.events[:]
        assert child.header.cwd == str(tmp_path)
        assert child.header.seed_length == source.seq
        assert heard == ["created b"]
        write_turn(child)
        assert source.last_turn == 1
        assert child.last_turn == 2
        assert child.derive_messages()[: len(source.derive_messages())] == source.derive_messages()


async def test_an_open_tail_can_be_forked_around() -> None:
    # case: S-23
    async with App() as app:
        sessions = await sessions_of(app)
        source = sessions.create(app.ctx, "a")
        write_turn(source)
        boundary = source.seq - 1
        source.append(TurnStart(2, TRIGGER))
        with pytest.raises(ForkError) as caught:
            sessions.fork(app.ctx, source)
        assert caught.value.code == ForkError.OPEN_TURN
        child = sessions.fork(app.ctx, source, boundary)
        assert child.seq == boundary + 1
        assert child.turn_open is None
        assert sessions.list() == (source, child)


async def test_a_taken_child_id_is_looked_at_first() -> None:
    # case: S-24
    async with App() as app:
        sessions = await sessions_of(app)
        sessions.create(app.ctx, "a")
        sessions.create(app.ctx, "taken")
        with pytest.raises(ForkError) as caught:
            sessions.fork(app.ctx, "nobody", -1, "taken")
        assert caught.value.code == ForkError.SESSION_ALREADY_EXISTS


async def test_sources_that_cannot_be_forked() -> None:
    # case: S-25
    async with App() as app:
        sessions = await sessions_of(app)
        with pytest.raises(ForkError, match="nobody") as caught:
            sessions.fork(app.ctx, "nobody")
        assert caught.value.code == ForkError.SESSION_NOT_FOUND
        stale = sessions.prepare("a")
        with pytest.raises(ForkError) as caught:
            sessions.fork(app.ctx, stale)
        assert caught.value.code == ForkError.SESSION_NOT_FOUND
        live = sessions.create(app.ctx, "a")
        with pytest.raises(ForkError) as caught:
            sessions.fork(app.ctx, stale)
        assert caught.value.code == ForkError.SESSION_NOT_LIVE
        assert sessions.list() == (live,)


@pytest.mark.parametrize("boundary", [-1, 0.5, len(worked_turn()), 10_000, True, "0"], ids=repr)
async def test_boundaries_that_are_none(boundary: Any) -> None:
    # case: S-25
    async with App() as app:
        sessions = await sessions_of(app)
        source = sessions.create(app.ctx, "a", seed=worked_turn())
        with pytest.raises(ForkError) as caught:
            sessions.fork(app.ctx, source, boundary)
        assert caught.value.code == ForkError.INVALID_BOUNDARY
        assert sessions.list() == (source,)


async def test_only_a_turn_end_is_a_boundary() -> None:
    # case: S-25
    async with App() as app:
        sessions = await sessions_of(app)
        source = sessions.create(app.ctx, "a", seed=worked_turn())
        for event in source.events:
            if event.type == "turn/end":
                assert sessions.fork(app.ctx, source, event.seq).seq == event.seq + 1
                continue
            with pytest.raises(ForkError, match=event.type) as caught:
                sessions.fork(app.ctx, source, event.seq)
            assert caught.value.code == ForkError.OPEN_TURN


@pytest.mark.parametrize(
    "reason",
    [
        Completed(),
        Aborted("user"),
        Failed(1, "broken", "CODE"),
        Disposed(),
        MaxTokens(),
        Rejected("no"),
        Interrupted(),
        Refusal(),
        MaxTurnRequests("max_steps", 3),
        OtherReason("something", {"x": 1}),
    ],
    ids=lambda reason: reason.kind,
)
async def test_every_end_of_a_turn_is_a_boundary(reason: TurnEndReason) -> None:
    # case: S-25
    async with App() as app:
        sessions = await sessions_of(app)
        source = sessions.create(app.ctx, "a")
        source.append(TurnStart(1, RecordTrigger()))
        source.append(TurnEnd(1, reason))
        child = sessions.fork(app.ctx, source)
        assert child.events[1].data == TurnEnd(1, reason)


async def test_a_vetoed_fork_leaves_no_child() -> None:
    # case: S-25
    async with App() as app:
        sessions = await sessions_of(app)
        source = sessions.create(app.ctx, "a")

        def veto(event: SessionCreated) -> None:
            raise DshError("no child", code="VETO")

        app.ctx.on(SessionCreated, veto)
        with pytest.raises(DshError, match="no child"):
            sessions.fork(app.ctx, source, child_id="b")
        assert sessions.list() == (source,)


async def test_parent_and_child_do_not_share_what_comes_later() -> None:
    # case: S-22
    async with App() as app:
        sessions = await sessions_of(app)
        source = sessions.create(app.ctx, "a")
        write_turn(source, tool=False)
        child = sessions.fork(app.ctx, source)
        for session, word in ((source, "parent"), (child, "child")):
            session.append(TurnStart(2, TRIGGER))
            session.append(StepStart(2, 1))
            session.append(UserMessage((TextBlock(word),), UserSource()), APPEND)
        assert source.derive_messages()[-1] != child.derive_messages()[-1]
        assert source.derive_messages()[:-1] == child.derive_messages()[:-1]
