"""Seeds, derivation and the surface."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import FrozenInstanceError
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsh.llm import (
    BlockEnd,
    LlmCallConfig,
    Message,
    ReplayState,
    TextBlock,
    TextDelta,
    TokenUsage,
    ToolCallBlock,
    ToolResultBlock,
    UnknownBlock,
)
from dsh.session import (
    APPEND,
    AssistantChunk,
    AssistantMessage,
    Completed,
    ContextMessage,
    MessageTrigger,
    OtherSource,
    PluginSource,
    PromptBlocked,
    Replace,
    RequestHeader,
    RequestHeaderDelta,
    RequestHeaderSnapshot,
    Session,
    SessionData,
    SessionEvent,
    SteeringMessage,
    StepEnd,
    StepStart,
    TodoWrite,
    ToolCall,
    ToolResult,
    TurnEnd,
    TurnStart,
    UnknownData,
    UserMessage,
    UserSource,
    derive_event_message,
)
from dsh.session.errors import (
    SeedError,
    SurfaceError,
)
from dsh.session.testing import reloaded, worked_turn

USER = UserSource()


def text(value: str) -> tuple[TextBlock, ...]:
    return (TextBlock(value),)


def user(value: str) -> UserMessage:
    return UserMessage(text(value), USER)


def filled(letters: str) -> Session:
    session = Session("s", enclosed=False)
    for letter in letters:
        session.append(user(letter), APPEND)
    return session


def letters_of(session: Session) -> str:
    return "".join(
        block.text
        for message in session.derive_messages()
        for block in message.content
        if isinstance(block, TextBlock)
    )


def fresh(session: Session) -> Session:
    return Session("fresh", session.events, enclosed=False)


# --- seeds --------------------------------------------------------------------------------


def test_a_seed_with_a_gap_is_refused() -> None:
    # case: S-06
    events = [SessionEvent(0, 0, TodoWrite(())), SessionEvent(2, 0, TodoWrite(()))]
    with pytest.raises(SeedError, match=r"index 1.*seq 2") as caught:
        Session("s", events)
    assert caught.value.code == SeedError.SEED_GAP


def test_a_seed_with_lossy_data_is_refused() -> None:
    # case: S-06
    events = [SessionEvent(0, 0, UnknownData("some/thing", {"x": float("nan")}))]
    with pytest.raises(SeedError, match=r"some/thing at seq 0") as caught:
        Session("s", events)
    assert caught.value.code == SeedError.SEED_NOT_JSON


@pytest.mark.parametrize(
    ("event", "verb"),
    [
        (SessionEvent(0, 0, user("x")), "lacks"),
        (SessionEvent(0, 0, TodoWrite(()), APPEND), "carries"),
    ],
)
def test_a_seed_with_a_wrong_marker_is_refused(event: SessionEvent, verb: str) -> None:
    # case: S-06
    with pytest.raises(SeedError, match=rf"{event.type} at seq 0 {verb}.*surfaceOp") as caught:
        Session("s", [event])
    assert caught.value.code == SeedError.SEED_SURFACE_OP


def test_a_seed_with_an_impossible_replace_is_refused() -> None:
    # case: S-06
    events = [SessionEvent(0, 0, user("x"), APPEND), SessionEvent(1, 0, user("y"), Replace(0, 5))]
    with pytest.raises(SeedError, match="end 5") as caught:
        Session("s", events)
    assert caught.value.code == SeedError.SEED_SURFACE


def test_a_good_seed_is_taken_over_and_detached() -> None:
    # case: S-06
    data: dict[str, Any] = {"a": [1]}
    sources = [0]
    events = [
        SessionEvent(0, 5, UnknownData("some/thing", data)),
        SessionEvent(1, 6, user("x"), APPEND, sources),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    ]
    session = Session("s", events)
    data["a"].append(2)
    sources.append(1)
    events.clear()
    assert session.seq == 2
    assert session.events[0].data == UnknownData("some/thing", {"a": [1]})
    assert session.events[1].source_event_seqs == (0,)
    assert session.append(TurnStart(1, MessageTrigger(USER))).seq == 2


def test_a_seed_that_cannot_change_is_taken_over_as_it_is() -> None:
    plain = SessionEvent(0, 5, user("x"), APPEND)
    sourced = SessionEvent(1, 6, user("y"), APPEND, (0,))
    session = Session("s", [plain, sourced])
    assert session.events[0] is plain
    assert session.events[1] is sourced


def test_a_finished_log_derives_the_same_in_a_new_session() -> None:
    # case: S-26
    session = Session("a", worked_turn())
    again = reloaded(session)
    assert again.derive_messages() == session.derive_messages()
    assert again.request_header() == session.request_header()
    assert again.events[:] == session.events[:]
    assert (again.last_turn, again.turn_open) == (1, None)


def test_a_seed_may_end_inside_a_turn() -> None:
    log = worked_turn()
    session = Session("s", log[:3])
    assert (session.turn_open, session.step_open, session.last_step) == (1, 1, 1)
    session.append(StepEnd(1, 1))
    session.append(StepStart(1, 2))


def test_a_bare_session_makes_its_header() -> None:
    # case: S-15
    session = Session("bare")
    assert session.header.id == session.id == "bare"
    assert session.header.version == 0
    assert session.header.created_at > 0
    assert session.seq == 0


# --- derivation ---------------------------------------------------------------------------


def one_of_each() -> list[tuple[SessionData, Message | None]]:
    replay = ReplayState("p", "m", {"a": 1})
    call = ToolCallBlock("c", "t", "{}")
    config = LlmCallConfig("m")
    block = TextBlock
    return [
        (TurnStart(1, MessageTrigger(USER)), None),
        (user("u"), Message("user", text("u"))),
        (PromptBlocked(text("b"), USER, "no"), None),
        (
            ContextMessage(text("c"), PluginSource("secret-name")),
            Message(
                "user",
                (block('<context source="plugin">'), block("c"), block("</context>")),
            ),
        ),
        (StepStart(1, 1), None),
        (RequestHeaderSnapshot(RequestHeader(config), "initial"), None),
        (RequestHeaderDelta(config=LlmCallConfig("n")), None),
        (AssistantChunk(1, 1, TextDelta(0, "x")), None),
        (AssistantChunk(1, 1, BlockEnd(0, block("x"))), None),
        (
            AssistantMessage(1, 1, (block("a"), call), replay=replay),
            Message("assistant", (block("a"), call), replay),
        ),
        (ToolCall(1, 1, "c", "t", "{}"), None),
        (
            ToolResult(1, 1, "c", text("r"), is_error=True),
            Message("user", (ToolResultBlock("c", text("r"), True),)),
        ),
        (
            SteeringMessage(1, text("s"), OtherSource('my kind"', {})),
            Message(
                "user",
                (
                    block('<steering source="my kind\\"">'),
                    block("s"),
                    block("</steering>"),
                ),
            ),
        ),
        (TodoWrite(()), None),
        (UnknownData("some/thing", {}), None),
        (StepEnd(1, 1), None),
        (TurnEnd(1, Completed()), None),
    ]


def test_every_type_projects_as_it_should() -> None:
    # case: S-07
    session = Session("s")
    pairs = one_of_each()
    for data, message in pairs:
        event = session.append(data, APPEND if data.surface_eligible else None)
        assert derive_event_message(event) == message
    expected = tuple(message for _, message in pairs if message is not None)
    assert session.derive_messages() == expected


def test_an_empty_answer_is_a_node_without_a_message() -> None:
    # case: S-08
    session = filled("a")
    usage = TokenUsage(1, 2)
    event = session.append(AssistantMessage(1, 1, (), usage), APPEND)
    assert session.surface.nodes == (0, 1)
    assert 1 in session.surface
    assert len(session.surface) == 2
    assert derive_event_message(event) is None
    assert letters_of(session) == "a"


def test_a_history_you_hold_does_not_grow_and_does_not_change() -> None:
    # case: S-09
    session = filled("ab")
    held = session.derive_messages()
    session.append(user("c"), APPEND)
    assert len(held) == 2
    with pytest.raises(FrozenInstanceError):
        held[0].content = ()  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]
    assert not hasattr(held, "append")
    odd = session.append(UserMessage((UnknownBlock("odd", {"x": [1]}),), USER), APPEND)
    block = session.derive_messages()[-1].content[0]
    assert isinstance(block, UnknownBlock)
    with pytest.raises(TypeError, match="session log"):
        block.data["x"] = 2
    assert odd.data == UserMessage((UnknownBlock("odd", {"x": [1]}),), USER)
    assert letters_of(session) == "abc"


def test_the_same_message_objects_come_back_every_time() -> None:
    # case: S-09
    session = filled("abcd")
    first = session.derive_messages()
    assert session.derive_messages() is first
    first[0].memo["wire"] = "encoded"
    session.append(user("e"), APPEND)
    second = session.derive_messages()
    assert all(one is two for one, two in zip(first, second, strict=False))
    assert second[0].memo == {"wire": "encoded"}
    session.append(user("X"), Replace(1, 2))
    third = session.derive_messages()
    assert letters_of(session) == "aXde"
    assert third[0] is first[0]
    assert third[2] is first[3]


Op = tuple[str, int, int]
OPS = st.lists(
    st.tuples(
        st.sampled_from(["user", "answer", "empty", "result", "context", "log", "replace"]),
        st.integers(0, 30),
        st.integers(0, 30),
    ),
    max_size=25,
)


def apply(session: Session, op: Op) -> None:
    kind, left, right = op
    label = f"{kind}{session.seq}"
    if kind == "replace":
        nodes = session.surface.nodes
        if not nodes:
            return
        start, end = sorted((left % len(nodes), right % len(nodes)))
        session.append(user(label), Replace(nodes[start], nodes[end]))
        return
    make: dict[str, Callable[[], SessionData]] = {
        "user": lambda: user(label),
        "answer": lambda: AssistantMessage(1, 1, text(label)),
        "empty": lambda: AssistantMessage(1, 1, (), TokenUsage(1, 1)),
        "result": lambda: ToolResult(1, 1, label, text(label)),
        "context": lambda: ContextMessage(text(label), USER),
        "log": lambda: TodoWrite(()),
    }
    data = make[kind]()
    session.append(data, APPEND if data.surface_eligible else None)


@given(OPS)
@settings(deadline=None)
def test_the_history_equals_that_of_a_fresh_session_at_all_times(ops: list[Op]) -> None:
    # case: S-10
    session = Session("s", enclosed=False)
    quiet: list[SessionData] = []
    for op in ops:
        apply(session, op)
        derived = session.derive_messages()
        assert derived == fresh(session).derive_messages()
        assert session.derive_messages() is derived
        quiet.append(TodoWrite(()))
    nodes = session.surface.nodes
    session.surface.invalidate()
    assert session.derive_messages() == derived_again(session)
    assert session.surface.nodes == nodes


@given(OPS, st.lists(st.integers(0, 40), max_size=6))
@settings(deadline=None)
def test_log_only_events_anywhere_change_nothing(ops: list[Op], places: list[int]) -> None:
    # case: S-10
    plain = Session("plain", enclosed=False)
    noisy = Session("noisy", enclosed=False)
    moved: dict[int, int] = {}
    for index, op in enumerate(ops):
        before = plain.seq
        apply(plain, op)
        if plain.seq == before:
            continue
        event = plain.events[-1]
        for _ in range(places.count(index)):
            noisy.append(UnknownData("some/thing", {}))
        surface = event.surface_op
        if isinstance(surface, Replace):
            surface = Replace(moved[surface.start], moved[surface.end])
        moved[event.seq] = noisy.append(event.data, surface).seq
    assert noisy.derive_messages() == plain.derive_messages()


def derived_again(session: Session) -> tuple[Message, ...]:
    return fresh(session).derive_messages()


# --- the surface --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("op", "expected"),
    [(Replace(1, 3), "aXe"), (Replace(2, 2), "abXde"), (Replace(3, 4), "abcX")],
)
def test_a_replace_takes_out_its_range_only(op: Replace, expected: str) -> None:
    # case: S-11
    session = filled("abcde")
    assert session.surface.shadowed(op) == tuple(range(op.start, op.end + 1))
    event = session.append(user("X"), op)
    assert letters_of(session) == expected
    nodes = session.surface.nodes
    assert nodes[expected.index("X")] == event.seq == 5
    assert len(session.events) == 6
    session.append(user("f"), APPEND)
    assert letters_of(session) == expected + "f"


def test_a_replace_goes_by_position_and_not_by_number() -> None:
    # case: S-12
    session = filled("abc")
    session.append(user("D"), Replace(0, 1))
    assert session.surface.nodes == (3, 2)
    with pytest.raises(SurfaceError) as caught:
        session.append(user("X"), Replace(2, 3))
    assert caught.value.code == SurfaceError.REPLACE_REVERSED
    session.append(user("E"), Replace(3, 2))
    assert letters_of(session) == "E"


@pytest.mark.parametrize(
    ("op", "code", "token"),
    [
        (Replace(9, 1), SurfaceError.REPLACE_START_NOT_FOUND, "start 9"),
        (Replace(0, 9), SurfaceError.REPLACE_END_NOT_FOUND, "end 9"),
        (Replace(2, 1), SurfaceError.REPLACE_REVERSED, "after"),
    ],
)
def test_an_impossible_replace_is_refused_before_it_is_logged(
    op: Replace, code: str, token: str
) -> None:
    # case: S-13
    session = filled("abc")
    before = session.derive_messages()
    with pytest.raises(SurfaceError, match=token) as caught:
        session.append(user("X"), op)
    assert caught.value.code == code
    assert session.seq == 3
    assert session.derive_messages() is before


def test_only_replace_and_invalidate_advance_the_generation() -> None:
    # case: S-14
    session = filled("abc")
    assert session.surface.generation == 0
    session.append(TodoWrite(()))
    session.append(user("X"), Replace(0, 1))
    assert session.surface.generation == 1
    session.surface.invalidate()
    assert session.surface.generation == 2
    assert letters_of(session) == "Xc"
    assert session.surface.nodes == (4, 2)
