"""The body of a request."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsh.llm import (
    ContentBlock,
    LlmError,
    LlmRequest,
    Message,
    ReasoningBlock,
    TextBlock,
    ToolCallBlock,
    ToolResultBlock,
    ToolSchema,
    UnknownBlock,
)
from dsh.llm_deepseek import DeepSeekConfig
from dsh.llm_deepseek._serialize import EMPTY_RESULT, Serializer

Json = dict[str, Any]
HELLO = Message("user", (TextBlock("hello"),))
CALL = ToolCallBlock("c1", "bash", '{"cmd":"ls"}')


def request(*messages: Message, **fields: Any) -> LlmRequest:
    return LlmRequest(fields.pop("model", "deepseek-flash"), messages or (HELLO,), **fields)


def body(asked: LlmRequest, **config: Any) -> Json:
    return json.loads(Serializer(DeepSeekConfig(**config)).body(asked))


def wire(*blocks: ContentBlock, role: Any = "user", **config: Any) -> list[Json]:
    return body(request(Message(role, blocks)), **config)["messages"]


# case: SER-01
def test_user_texts_are_joined() -> None:
    assert wire(TextBlock("a"), TextBlock("b\n")) == [{"role": "user", "content": "ab\n"}]


# case: SER-02
def test_a_user_message_without_blocks_is_sent() -> None:
    assert wire() == [{"role": "user", "content": ""}]


# case: SER-03
def test_system_texts_lead_and_stay_in_place() -> None:
    history = [HELLO, Message("system", (TextBlock("note"),)), HELLO]
    assert [
        (m["role"], m["content"]) for m in body(request(*history, system="be kind"))["messages"]
    ] == [
        ("system", "be kind"),
        ("user", "hello"),
        ("system", "note"),
        ("user", "hello"),
    ]


@pytest.mark.parametrize("system", [None, ""])
def test_no_system_text_no_system_message(system: str | None) -> None:
    assert body(request(system=system))["messages"] == [{"role": "user", "content": "hello"}]


# case: SER-04
def test_reasoning_is_sent_back_without_tools_too() -> None:
    assert wire(ReasoningBlock("hm"), TextBlock("yes"), role="assistant") == [
        {"role": "assistant", "content": "yes", "reasoning_content": "hm"}
    ]


# case: SER-05
# case: F-39
def test_reasoning_is_sent_back_with_calls() -> None:
    assert wire(ReasoningBlock("hm"), ReasoningBlock("!"), CALL, role="assistant") == [
        {
            "role": "assistant",
            "content": "",
            "reasoning_content": "hm!",
            "tool_calls": [
                {
                    "id": "c1",
                    "type": "function",
                    "function": {"name": "bash", "arguments": '{"cmd":"ls"}'},
                }
            ],
        }
    ]


# case: SER-06
def test_reasoning_alone_has_an_empty_text() -> None:
    assert wire(ReasoningBlock("hm"), role="assistant") == [
        {"role": "assistant", "content": "", "reasoning_content": "hm"}
    ]


# case: SER-07
def test_an_empty_assistant_message_has_an_empty_text() -> None:
    assert wire(role="assistant") == [{"role": "assistant", "content": ""}]


# case: SER-08
def test_calls_keep_their_order_and_their_arguments() -> None:
    texts = ["{}", "", '{"a": "x', "\x00\n", "[1]", '{ "b" :1}', "\U0001f680"]
    calls = [ToolCallBlock(f"c{i}", "x", text) for i, text in enumerate(texts)]
    (message,) = wire(*calls, role="assistant")
    assert [c["function"]["arguments"] for c in message["tool_calls"]] == texts
    assert [c["id"] for c in message["tool_calls"]] == [f"c{i}" for i in range(len(texts))]


# case: SER-09
def test_a_tool_result_names_its_call() -> None:
    result = ToolResultBlock("c1", (TextBlock("a"), TextBlock("b")), is_error=True)
    assert wire(result) == [{"role": "tool", "content": "ab", "tool_call_id": "c1"}]


# case: SER-10
@pytest.mark.parametrize("content", [(), (TextBlock(""),), (UnknownBlock("chart", {}),)])
def test_an_empty_result_says_so(content: tuple[ContentBlock, ...]) -> None:
    assert wire(ToolResultBlock("c1", content))[0]["content"] == EMPTY_RESULT


# case: SER-11
def test_text_comes_before_the_results_beside_it() -> None:
    blocks = (
        ToolResultBlock("c1", (TextBlock("one"),)),
        TextBlock("and now"),
        ToolResultBlock("c2", (TextBlock("two"),)),
    )
    assert [(m["role"], m["content"]) for m in wire(*blocks)] == [
        ("user", "and now"),
        ("tool", "one"),
        ("tool", "two"),
    ]


# case: SER-12
@pytest.mark.parametrize("role", ["user", "assistant", "system"])
def test_unknown_blocks_are_skipped(role: str) -> None:
    blocks = (UnknownBlock("chart", {"x": 1}), TextBlock("a"))
    assert wire(*blocks, role=role) == [{"role": role, "content": "a"}]


@dataclass(frozen=True, slots=True)
class Quote(ContentBlock, type="test-serialize/quote"):
    """A kind that some wheel adds."""

    of: str
    alt: str | None = None


@pytest.mark.parametrize("role", ["user", "assistant", "system"])
def test_the_text_of_an_added_kind_stands_in_its_place(role: str) -> None:
    declared = (TextBlock("a "), Quote("b", "b!"), Quote("c"), TextBlock(" d"))
    unknown = tuple(
        UnknownBlock(Quote.type, {"of": "b", "alt": "b!"}) if block == declared[1] else block
        for block in declared
    )
    assert wire(*declared, role=role) == [{"role": role, "content": "a b! d"}]
    asked, without = request(Message(role, declared)), request(Message(role, unknown))  # pyright: ignore[reportArgumentType]
    serializer = Serializer(DeepSeekConfig())
    assert serializer.body(asked) == serializer.body(without)
    assert wire(ToolResultBlock("c1", (Quote("b", "b!"),)))[0]["content"] == "b!"
    assert wire(ToolResultBlock("c1", (Quote("b"),)))[0]["content"] == EMPTY_RESULT


def test_media_are_refused_with_a_class_and_a_text_too() -> None:
    @dataclass(frozen=True, slots=True)
    class Video(ContentBlock, type="video"):
        url: str
        alt: str = "a film"

    for block in (Video("x"), UnknownBlock("video", {"alt": "a film"})):
        with pytest.raises(LlmError, match="video") as caught:
            wire(block)
        assert caught.value.code == "UNSUPPORTED_CONTENT"


# case: SER-13
@pytest.mark.parametrize("kind", ["image", "audio", "video"])
@pytest.mark.parametrize("nested", [False, True])
def test_media_are_refused_not_flattened(kind: str, nested: bool) -> None:
    block: ContentBlock = UnknownBlock(kind, {"data": "x"})
    block = ToolResultBlock("c1", (block,)) if nested else block
    with pytest.raises(LlmError, match=kind) as caught:
        wire(block)
    assert caught.value.code == "UNSUPPORTED_CONTENT"
    assert caught.value.hint


# case: SER-14
@pytest.mark.parametrize("tools", [None, ()])
def test_no_tools_no_key(tools: tuple[ToolSchema, ...] | None) -> None:
    assert "tools" not in body(request(tools=tools))


def test_tools_keep_their_order() -> None:
    tools = (ToolSchema("b", "B", {"type": "object"}), ToolSchema("a", "", {"z": 1, "y": 2}))
    assert body(request(tools=tools))["tools"] == [
        {
            "type": "function",
            "function": {"name": "b", "description": "B", "parameters": {"type": "object"}},
        },
        {
            "type": "function",
            "function": {"name": "a", "description": "", "parameters": {"z": 1, "y": 2}},
        },
    ]


def test_other_tools_are_noticed() -> None:
    serializer = Serializer(DeepSeekConfig())
    one, two = ToolSchema("one", "", {}), ToolSchema("two", "", {})

    def names(*tools: ToolSchema) -> list[str]:
        sent = json.loads(serializer.body(request(tools=tools)))
        return [tool["function"]["name"] for tool in sent.get("tools", [])]

    assert names(one, two) == ["one", "two"]
    assert names(one, two) == ["one", "two"]
    assert names(two, one) == ["two", "one"]
    assert names(one) == ["one"]
    assert names() == []
    assert names(replace(one, name="three")) == ["three"]


# case: SER-15
@pytest.mark.parametrize("effort", ["low", "high", "max"])
@pytest.mark.parametrize("where", ["request", "config"])
def test_an_effort_switches_thinking_on(effort: str, where: str) -> None:
    if where == "request":
        sent = body(request(reasoning_effort=effort))
    else:
        sent = body(request(), reasoning_effort=effort)
    assert sent["thinking"] == {"type": "enabled"}
    assert sent["reasoning_effort"] == effort


# case: SER-15
@pytest.mark.parametrize("config", [{}, {"reasoning_effort": "max"}, {"thinking": "enabled"}])
def test_off_switches_thinking_off(config: Json) -> None:
    sent = body(request(reasoning_effort="off"), **config)
    assert sent["thinking"] == {"type": "disabled"}
    assert "reasoning_effort" not in sent


# case: SER-16
def test_a_request_wins_over_a_default_of_off() -> None:
    sent = body(request(reasoning_effort="max"), reasoning_effort="off")
    assert (sent["thinking"], sent["reasoning_effort"]) == ({"type": "enabled"}, "max")


# case: SER-17
def test_effort_where_thinking_is_disabled_is_refused() -> None:
    with pytest.raises(LlmError, match="high") as caught:
        body(request(reasoning_effort="high"), thinking="disabled")
    assert caught.value.code == "UNSUPPORTED_REASONING_EFFORT"
    assert body(request(reasoning_effort="off"), thinking="disabled")["thinking"] == {
        "type": "disabled"
    }


# case: SER-18
def test_nothing_configured_nothing_sent() -> None:
    sent = body(request())
    assert sent == {
        "model": "deepseek-flash",
        "messages": [{"role": "user", "content": "hello"}],
        "stream": True,
        "stream_options": {"include_usage": True},
    }


@pytest.mark.parametrize("thinking", ["enabled", "disabled"])
def test_thinking_without_an_effort(thinking: str) -> None:
    sent = body(request(), thinking=thinking)
    assert sent["thinking"] == {"type": thinking}
    assert "reasoning_effort" not in sent


# case: SER-19
def test_titles_need_no_thinking_and_change_no_default() -> None:
    serializer = Serializer(DeepSeekConfig(reasoning_effort="high"))
    title = json.loads(serializer.body(request(purpose="session-title", reasoning_effort="high")))
    assert title["thinking"] == {"type": "disabled"}
    assert "reasoning_effort" not in title
    after = json.loads(serializer.body(request()))
    assert (after["thinking"], after["reasoning_effort"]) == ({"type": "enabled"}, "high")


def test_other_purposes_think_as_usual() -> None:
    assert body(request(purpose="compaction"), reasoning_effort="low")["reasoning_effort"] == "low"


# case: SER-20
@pytest.mark.parametrize("effort", ["medium", "HIGH", "", "ultra"])
def test_an_unknown_effort_is_refused_not_clamped(effort: str) -> None:
    with pytest.raises(LlmError) as caught:
        body(request(reasoning_effort=effort))
    assert caught.value.code == "UNSUPPORTED_REASONING_EFFORT"
    assert "off, low, high, max" in str(caught.value)


def test_an_endpoint_without_the_thinking_field_gets_the_effort_alone() -> None:
    sent = body(request(reasoning_effort="medium"), thinking_parameter=False)
    assert "thinking" not in sent
    assert sent["reasoning_effort"] == "medium"
    assert "thinking" not in body(request(purpose="session-title"), thinking_parameter=False)
    with pytest.raises(LlmError):
        body(request(reasoning_effort="max"), thinking_parameter=False)
    efforts = ("none", "max")
    asked = request(reasoning_effort="max")
    assert (
        body(asked, thinking_parameter=False, reasoning_efforts=efforts)["reasoning_effort"]
        == "max"
    )


# case: SER-21
@pytest.mark.parametrize(
    "asked",
    [
        request(),
        request(temperature=0, max_tokens=1, stop=("x",), reasoning_effort="low"),
        request(Message("assistant", ()), Message("user", ()), tools=(ToolSchema("a", "", {}),)),
        request(Message("assistant", (CALL,)), Message("user", (ToolResultBlock("c1", ()),))),
    ],
)
def test_always_a_stream_with_usage_and_never_a_null(asked: LlmRequest) -> None:
    sent = body(asked)
    assert sent["stream"] is True
    assert sent["stream_options"] == {"include_usage": True}
    assert b"null" not in Serializer(DeepSeekConfig()).body(asked)
    forbidden = {"tool_choice", "top_p", "response_format", "n", "user"}
    assert not forbidden & sent.keys()


def test_options_are_sent_when_they_are_set() -> None:
    sent = body(request(temperature=0.0, max_tokens=7, stop=("a", "b")))
    assert (sent["temperature"], sent["max_tokens"], sent["stop"]) == (0.0, 7, ["a", "b"])
    assert "stop" not in body(request(stop=()))


def test_max_tokens_come_from_the_request_the_model_or_the_settings() -> None:
    config: Json = {"max_tokens": 5, "models": [{"id": "m", "max_tokens": 6}, {"id": "n"}]}
    assert "max_tokens" not in body(request(model="m"))
    assert body(request(model="other"), **config)["max_tokens"] == 5
    assert body(request(model="m"), **config)["max_tokens"] == 6
    assert body(request(model="n"), **config)["max_tokens"] == 5
    assert body(request(model="m", max_tokens=7), **config)["max_tokens"] == 7
    named = body(request(max_tokens=7), max_tokens_parameter="max_completion_tokens")
    assert named["max_completion_tokens"] == 7
    assert "max_tokens" not in named


# case: SER-22
@pytest.mark.parametrize(
    ("config", "fields", "expected"),
    [
        ({"thinking": "enabled"}, {}, True),
        ({}, {"reasoning_effort": "low"}, True),
        ({}, {}, True),
        ({}, {"model": "DeepSeek-R1-Distill"}, True),
        ({}, {"model": "some-model"}, False),
        ({"thinking": "enabled"}, {"model": "some-model"}, True),
        ({"thinking": "disabled"}, {}, False),
        ({}, {"reasoning_effort": "off"}, False),
        ({}, {"purpose": "session-title"}, False),
        ({"reasoning_passback": False, "thinking": "enabled"}, {}, False),
        ({"thinking_parameter": False}, {"model": "gpt", "reasoning_effort": "low"}, False),
    ],
)
def test_a_call_without_reasoning_gets_the_field_where_the_model_thinks(
    config: Json, fields: Json, expected: bool
) -> None:
    (message,) = body(request(Message("assistant", (CALL,)), **fields), **config)["messages"]
    assert ("reasoning_content" in message) is expected
    assert message.get("reasoning_content", "") == ""


def test_only_turns_with_calls_get_the_empty_field() -> None:
    assert wire(TextBlock("x"), role="assistant", thinking="enabled") == [
        {"role": "assistant", "content": "x"}
    ]


def test_no_reasoning_is_sent_back_where_that_is_switched_off() -> None:
    blocks = (ReasoningBlock("hm"), TextBlock("x"))
    assert wire(*blocks, role="assistant", reasoning_passback=False) == [
        {"role": "assistant", "content": "x"}
    ]


def test_one_message_serves_requests_that_need_different_forms() -> None:
    message = Message("assistant", (CALL,))
    serializer = Serializer(DeepSeekConfig())
    for effort, expected in (("low", True), ("off", False), ("low", True)):
        sent = json.loads(serializer.body(request(message, reasoning_effort=effort)))
        assert ("reasoning_content" in sent["messages"][0]) is expected


BLOCKS = st.one_of(
    st.builds(TextBlock, st.text(max_size=8)),
    st.builds(ReasoningBlock, st.text(max_size=8)),
    st.builds(ToolCallBlock, st.text(max_size=3), st.text(max_size=3), st.text(max_size=8)),
    st.builds(ToolResultBlock, st.text(max_size=3), st.just((TextBlock("r"),))),
)
HISTORIES = st.lists(
    st.tuples(st.sampled_from(["user", "assistant", "system"]), st.lists(BLOCKS, max_size=3)),
    min_size=1,
    max_size=6,
)


def messages(history: list[tuple[Any, list[ContentBlock]]]) -> tuple[Message, ...]:
    return tuple(Message(role, tuple(blocks)) for role, blocks in history)


# case: SER-23
@settings(deadline=None)
@given(HISTORIES)
def test_equal_requests_give_equal_bytes(history: list[tuple[Any, list[ContentBlock]]]) -> None:
    tools = (ToolSchema("a", "b", {"type": "object"}),)
    serializer = Serializer(DeepSeekConfig(extra_body={"user_tag": "x"}))
    shared = messages(history)
    first = serializer.body(request(*shared, tools=tools, system="s"))
    again = serializer.body(request(*shared, tools=tools, system="s"))
    # The same values in fresh objects, encoded by a fresh serializer.
    fresh = Serializer(DeepSeekConfig(extra_body={"user_tag": "x"})).body(
        request(*messages(history), tools=(replace(tools[0]),), system="s")
    )
    assert first == again == fresh
    assert json.loads(first)["messages"]


def test_a_longer_conversation_starts_with_the_bytes_of_the_shorter_one() -> None:
    serializer = Serializer(DeepSeekConfig())
    history = [Message("user", (TextBlock(f"m{i}"),)) for i in range(5)]
    bodies = [serializer.body(request(*history[:n], system="s")) for n in range(1, 6)]
    for shorter, longer in pairwise(bodies):
        assert longer.startswith(shorter[: shorter.index(b"]")])


def test_history_is_encoded_once() -> None:
    serializer = Serializer(DeepSeekConfig())
    message = Message("user", (TextBlock("once"),))
    serializer.body(request(message))
    assert all(str(key).startswith("dsh.llm_deepseek/") for key in message.memo)
    # What is sent from now on is what is kept there, for every adapter.
    key = next(key for key in message.memo if not str(key).endswith("/history"))
    message.memo.clear()
    message.memo[key] = b',{"kept":true}'
    assert json.loads(serializer.body(request(message)))["messages"] == [{"kept": True}]
    other = Serializer(DeepSeekConfig(provider="other"))
    assert json.loads(other.body(request(message)))["messages"] == [{"kept": True}]


def test_text_is_sent_as_utf_8_without_escapes() -> None:
    data = Serializer(DeepSeekConfig()).body(
        request(Message("user", (TextBlock("\u00e9\U0001f680"),)))
    )
    assert "\u00e9\U0001f680".encode() in data


def test_half_a_character_does_not_break_the_request() -> None:
    assert wire(TextBlock("a\ud83d"))[0]["content"] == "a?"


def test_extra_fields_are_added_at_the_end() -> None:
    sent = body(request(), extra_body={"provider": {"order": ["x"]}, "top_k": 3})
    assert sent["provider"] == {"order": ["x"]}
    assert list(sent)[-2:] == ["provider", "top_k"]
