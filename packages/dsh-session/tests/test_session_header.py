"""The request header: canonical form, edits, the fold and the recorder."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsh.llm import LlmCallConfig, Message, TextBlock, ToolSchema
from dsh.session import (
    HeaderRecord,
    MessageTrigger,
    RequestHeader,
    RequestHeaderDelta,
    RequestHeaderSnapshot,
    Session,
    SessionEvent,
    SystemDelta,
    TurnStart,
    UserSource,
    apply_header_delta,
    canonical_header,
    diff_header,
    fold_request_header,
    record_request_header,
)
from dsh.session.errors import HeaderFoldError

CONFIG = LlmCallConfig("m")


def tool(name: str, description: str = "d") -> ToolSchema:
    return ToolSchema(name, description, {"type": "object", "required": ["a"]})


def tools(names: str) -> tuple[ToolSchema, ...] | None:
    return tuple(tool(name) for name in names) or None


def message(text: str) -> Message:
    return Message("user", (TextBlock(text),))


def head(system: str | None = None, names: str = "", prefix: str = "") -> RequestHeader:
    found = tuple(message(item) for item in prefix) or None
    return RequestHeader(CONFIG, system, tools(names), found)


def round_trips(old: RequestHeader, new: RequestHeader) -> bool:
    delta = diff_header(old, new)
    return delta is not None and apply_header_delta(old, delta) == new


def opened() -> Session:
    session = Session("s")
    session.append(TurnStart(1, MessageTrigger(UserSource())))
    return session


def test_empty_parts_are_absent_and_equal_headers_differ_in_nothing() -> None:
    # case: H-01
    assert canonical_header(RequestHeader(CONFIG, "", (), ())) == RequestHeader(CONFIG)
    assert diff_header(RequestHeader(CONFIG, "", (), ()), RequestHeader(CONFIG)) is None
    assert diff_header(head("a", "xy", "p"), head("a", "xy", "p")) is None
    listed = RequestHeader(CONFIG, "s", [tool("a")], [message("p")])  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    assert canonical_header(listed).tools == (tool("a"),)
    assert canonical_header(listed).message_prefix == (message("p"),)


@pytest.mark.parametrize(
    ("old", "new", "delta"),
    [
        ("a\nb\nc", "a\nX\nc", SystemDelta(1, 1, ("X",))),
        ("a\nb", "c\nd", SystemDelta(0, 0, ("c", "d"))),
        ("x\nb\nc", "y\nb\nc", SystemDelta(0, 2, ("y",))),
        (None, "a\nb", SystemDelta(0, 0, ("a", "b"))),
        ("a\nb", None, SystemDelta(0, 0, ())),
        ("a\na\na", "a\na", SystemDelta(2, 0, ())),
        ("a\na", "a\na\na", SystemDelta(2, 0, ("a",))),
        ("a\nb\na", "a\nb\na\nb\na", SystemDelta(3, 0, ("b", "a"))),
        ("a\n", "a", SystemDelta(1, 0, ())),
    ],
)
def test_a_system_edit_keeps_what_is_common(
    old: str | None, new: str | None, delta: SystemDelta
) -> None:
    # case: H-02
    amendment = diff_header(head(old), head(new))
    assert amendment is not None
    assert amendment.system == delta
    assert apply_header_delta(head(old), amendment) == head(new)


LINES = st.one_of(st.none(), st.lists(st.sampled_from(["a", "b", ""]), min_size=1).map("\n".join))


@given(LINES, LINES)
def test_any_two_system_texts_round_trip(old: str | None, new: str | None) -> None:
    # case: H-02
    before, after = canonical_header(head(old)), canonical_header(head(new))
    assert before == after or round_trips(before, after)


@pytest.mark.parametrize(
    ("old", "new", "works"),
    [
        ("ab", "abc", True),
        ("abc", "ac", True),
        ("", "ab", True),
        ("ab", "", True),
        ("ab", "cd", True),
        ("ab", "ba", False),
        ("abc", "dab", False),
    ],
)
def test_tool_edits_round_trip_except_for_order(old: str, new: str, works: bool) -> None:
    # case: H-03
    assert round_trips(head(names=old), head(names=new)) is works


def test_a_changed_tool_is_replaced_in_place() -> None:
    # case: H-03
    old = RequestHeader(CONFIG, tools=(tool("a"), tool("b"), tool("c")))
    new = RequestHeader(CONFIG, tools=(tool("a"), tool("b", "new"), tool("c")))
    delta = diff_header(old, new)
    assert delta is not None
    assert delta.tools is not None
    assert (delta.tools.added, delta.tools.removed) == ((), ())
    assert delta.tools.changed == (tool("b", "new"),)
    assert apply_header_delta(old, delta) == new


def test_config_and_prefix_are_replaced_whole() -> None:
    old = head("s", "a", "pq")
    new = RequestHeader(LlmCallConfig("n", stop=("x",)), "s", tools("a"), None)
    delta = diff_header(old, new)
    assert delta == RequestHeaderDelta(config=new.config, message_prefix=())
    assert diff_header(head("s"), head("t")) == RequestHeaderDelta(system=SystemDelta(0, 0, ("t",)))
    assert delta is not None
    assert apply_header_delta(old, delta) == new
    back = diff_header(new, old)
    assert back is not None
    assert apply_header_delta(new, back) == old


def test_what_an_edit_does_not_name_stays() -> None:
    old = head("s", "a", "pq")
    config = LlmCallConfig("n")
    assert apply_header_delta(old, RequestHeaderDelta(config=config)) == RequestHeader(
        config, "s", old.tools, old.message_prefix
    )


def test_a_stop_list_counts_element_by_element() -> None:
    one = RequestHeader(LlmCallConfig("m", stop=("a", "b")))
    two = RequestHeader(LlmCallConfig("m", stop=("b", "a")))
    assert round_trips(one, two)


def events(*data: RequestHeaderSnapshot | RequestHeaderDelta) -> list[SessionEvent]:
    return [SessionEvent(seq, 0, item) for seq, item in enumerate(data)]


def test_the_fold_gives_the_header_in_force() -> None:
    # case: H-04
    first, second = head("a\nb", "x"), head("a\nc", "xy")
    delta = diff_header(first, second)
    assert delta is not None
    log = events(RequestHeaderSnapshot(first, "initial"), delta)
    assert fold_request_header(log) == second
    assert fold_request_header(log[:1]) == first
    assert fold_request_header(log[1:], first) == second
    assert fold_request_header([]) is None
    again = events(
        RequestHeaderSnapshot(first, "initial"), delta, RequestHeaderSnapshot(first, "resume")
    )
    assert fold_request_header(again) == first


def test_a_leading_delta_is_corrupt() -> None:
    # case: H-04
    log = events(RequestHeaderDelta(config=CONFIG))
    with pytest.raises(HeaderFoldError, match=r"before any.*corrupt"):
        fold_request_header(log)


@pytest.mark.parametrize("delta", [SystemDelta(2, 2, ()), SystemDelta(-1, 0, ())])
def test_an_edit_that_does_not_fit_is_corrupt(delta: SystemDelta) -> None:
    with pytest.raises(HeaderFoldError, match="corrupt"):
        apply_header_delta(head("a\nb\nc"), RequestHeaderDelta(system=delta))


def test_the_recorder_logs_what_is_needed_and_no_more() -> None:
    # case: H-05
    session = opened()
    state = HeaderRecord()
    first = head("a\nb", "xy")
    event = record_request_header(session, state, first)
    assert event is not None
    assert event.data == RequestHeaderSnapshot(first, "initial")

    assert record_request_header(session, state, head("a\nb", "xy")) is None

    event = record_request_header(session, HeaderRecord(), first)
    assert event is not None
    assert event.data == RequestHeaderSnapshot(first, "resume")

    changed = head("a\nc", "xy")
    event = record_request_header(session, state, changed)
    assert event is not None
    assert isinstance(event.data, RequestHeaderDelta)
    assert session.request_header() == changed
    assert fold_request_header(session.events) == changed

    reordered = head("a\nc", "yx")
    event = record_request_header(session, state, reordered)
    assert event is not None
    assert event.data == RequestHeaderSnapshot(reordered, "fallback")
    assert session.request_header() == reordered


def test_the_recorder_takes_headers_that_are_not_canonical() -> None:
    session = opened()
    state = HeaderRecord()
    record_request_header(session, state, RequestHeader(CONFIG, "", (), ()))
    assert session.request_header() == RequestHeader(CONFIG)
    assert record_request_header(session, state, RequestHeader(CONFIG, None, (), None)) is None


def test_a_refused_header_is_not_taken_as_recorded() -> None:
    session = Session("s")
    state = HeaderRecord()
    with pytest.raises(Exception, match="outside of a turn"):
        record_request_header(session, state, head("a"))
    assert not state.anchored
    session.append(TurnStart(1, MessageTrigger(UserSource())))
    assert record_request_header(session, state, head("a")) is not None
    assert state.anchored


def test_the_logged_schema_is_detached_from_the_tool() -> None:
    session = opened()
    parameters = {"type": "object"}
    schema = ToolSchema("t", "d", parameters)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    record_request_header(session, HeaderRecord(), RequestHeader(CONFIG, tools=(schema,)))
    parameters["type"] = "changed"
    logged = session.request_header()
    assert logged is not None
    assert logged.tools == (ToolSchema("t", "d", {"type": "object"}),)
