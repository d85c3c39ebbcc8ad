"""Content blocks of kinds that other wheels declare."""

from __future__ import annotations

import gc
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest
from pydantic import BaseModel

from dsh.core import VocabularyError
from dsh.llm import (
    BlockAssembler,
    BlockEnd,
    BlockStart,
    ContentBlock,
    Finish,
    FinishReason,
    LlmError,
    Message,
    TextBlock,
    ToolResultBlock,
    UnknownBlock,
    alt_text,
    block_from_wire,
    chunk_from_wire,
    from_wire,
    to_wire,
)
from dsh.llm.testing import violations


@dataclass(frozen=True, slots=True)
class Chart(ContentBlock, type="test-vocabulary/chart"):
    """A drawing."""

    chart_title: str
    options: Mapping[str, Any]
    caption: ContentBlock | None = None
    alt: str | None = None


CHART = Chart("T", {"some_key": [1, None]}, TextBlock("c"), "a chart")
WIRE = {
    "type": "test-vocabulary/chart",
    "chartTitle": "T",
    "options": {"some_key": [1, None]},
    "caption": {"type": "text", "text": "c"},
    "alt": "a chart",
}


def test_a_declared_block_has_a_wire_form() -> None:
    assert to_wire(CHART) == WIRE
    assert block_from_wire(json.loads(json.dumps(WIRE))) == CHART
    assert from_wire(Chart, WIRE) == CHART
    assert to_wire(Chart("T", {})) == {
        "type": "test-vocabulary/chart",
        "chartTitle": "T",
        "options": {},
    }


def test_declared_blocks_stand_wherever_blocks_do() -> None:
    nested = ToolResultBlock("c", (Chart("T", {}, CHART), TextBlock("x")))
    message = Message("user", (nested, CHART))
    assert from_wire(Message, to_wire(message)) == message
    chunk = BlockEnd(0, CHART)
    assert chunk_from_wire(to_wire(chunk)) == chunk

    class Holder(BaseModel):
        block: ContentBlock
        chart: Chart

    holder = Holder(block=CHART, chart=CHART)
    assert json.loads(holder.model_dump_json())["block"] == WIRE
    assert Holder.model_validate({"block": WIRE, "chart": WIRE}) == holder


def test_what_does_not_fit_its_class_is_kept() -> None:
    for wire in ({**WIRE, "chartTitle": 1}, {**WIRE, "later": [None]}, {"type": WIRE["type"]}):
        block = block_from_wire(wire)
        assert isinstance(block, UnknownBlock)
        assert to_wire(block) == wire
    with pytest.raises(LlmError, match="type") as caught:
        from_wire(Chart, {**WIRE, "type": "text"})
    assert caught.value.code == LlmError.INVALID_WIRE


def test_a_kind_is_unknown_once_its_class_is_gone() -> None:
    wire = {"type": "test-vocabulary/brief", "x": {"y": None}, "alt": "z"}

    def declare() -> None:
        @dataclass(frozen=True, slots=True)
        class Brief(ContentBlock, type="test-vocabulary/brief"):
            x: Mapping[str, Any]
            alt: str

        assert block_from_wire(wire) == Brief({"y": None}, "z")
        assert from_wire(Brief, wire) == Brief({"y": None}, "z")
        assert to_wire(Brief({"y": None}, "z")) == wire

    declare()
    gc.collect()
    block = block_from_wire(wire)
    assert block == UnknownBlock("test-vocabulary/brief", {"x": {"y": None}, "alt": "z"})
    assert to_wire(block) == wire
    assert alt_text(block) == "z"


@pytest.mark.parametrize("kind", ["text", "tool-result", "Chart", "test-vocabulary/chart"])
def test_taken_and_malformed_kinds_are_refused(kind: str) -> None:
    with pytest.raises(VocabularyError, match=kind):

        class Mine(ContentBlock, type=kind):  # pyright: ignore[reportUnusedClass]
            pass

    assert block_from_wire({"type": "text", "text": "a"}) == TextBlock("a")


def test_nesting_is_bounded() -> None:
    wire: dict[str, Any] = {"type": WIRE["type"], "chartTitle": "T", "options": {}}
    for _ in range(5000):
        wire = {**wire, "caption": wire}
    with pytest.raises(LlmError) as caught:
        block_from_wire(wire)
    assert caught.value.code == LlmError.INVALID_WIRE


def test_only_text_stands_for_a_block() -> None:
    assert alt_text(CHART) == "a chart"
    assert alt_text(Chart("T", {})) is None
    assert alt_text(TextBlock("a")) is None
    assert alt_text(UnknownBlock("x", {"alt": 1})) is None


def test_an_answer_carries_them_through_the_assembler() -> None:
    chunks = (
        BlockStart(0, Chart.type),
        BlockEnd(0, CHART),
        Finish(FinishReason("acme-done")),
    )
    assert violations(chunks) == []
    assembler = BlockAssembler()
    assert [assembler.push(chunk) for chunk in chunks] == [None, CHART, None]
    assert assembler.message() == Message("assistant", (CHART,))
    assert not assembler.finish.failed
    assert assembler.interrupted_blocks() == ()


def test_a_declared_block_has_no_deltas() -> None:
    assembler = BlockAssembler()
    assembler.push(BlockStart(0, Chart.type))
    with pytest.raises(LlmError) as caught:
        assembler.blocks()
    assert caught.value.code == LlmError.MALFORMED_RESPONSE
