"""Scopes, audiences and layered registries."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Generator
from dataclasses import dataclass
from typing import Any

import anyio
import pytest

from dsh.core import (
    AnonymousEntries,
    App,
    Context,
    Emit,
    InactiveContextError,
    MountState,
    NamedEntries,
    NextStream,
    Parallel,
    Scope,
    ScopedLayers,
    ScopeError,
    Serial,
    StreamWaterfall,
    Waterfall,
    scope_of,
)


class Key:
    """A scope key."""

    def __init__(self, name: str) -> None:
        self.name = name


@dataclass(frozen=True, slots=True)
class About(Emit, name="test-scopes/about", scope="key"):
    """Something about a key."""

    key: Key | None


@dataclass(frozen=True, slots=True)
class AboutParallel(Parallel, name="test-scopes/parallel", scope="key"):
    key: Key | None


@dataclass(frozen=True, slots=True)
class AboutSerial(Serial[int], name="test-scopes/serial", scope="key"):
    key: Key | None


@dataclass(frozen=True, slots=True)
class AboutWaterfall(Waterfall[int], name="test-scopes/waterfall", scope="key"):
    key: Key | None


@dataclass(frozen=True, slots=True)
class AboutStream(StreamWaterfall[int], name="test-scopes/stream", scope="key"):
    key: Key | None


# case: SC-T01
async def test_the_nearest_tag_wins() -> None:
    async with App() as app:
        outer, inner = Key("outer"), Key("inner")
        first = app.ctx.scope(outer)
        derived = first.ctx.isolate("anything")
        second = first.ctx.scope(inner)
        assert scope_of(app.ctx) is None
        assert [scope_of(c) for c in (first.ctx, derived, second.ctx)] == [outer, outer, inner]
        seen: list[object] = []

        async def plugin(ctx: Context, config: object) -> None:
            seen.append(scope_of(ctx))

        await second.ctx.mount(plugin).settled()
        assert seen == [inner]


# case: SC-T02
async def test_a_scope_is_usable_at_once_and_cleans_up() -> None:
    log: list[str] = []
    async with App() as app:
        async with app.ctx.scope(Key("a")) as scope:
            scope.ctx.defer(lambda: log.append("clean"))
            assert log == []
        assert log == ["clean"]
        with pytest.raises(InactiveContextError):
            scope.ctx.defer(lambda: None)


# case: SC-T03
async def test_everyone_waits_for_the_scopes_end() -> None:
    gate = anyio.Event()
    done: list[str] = []
    async with App() as app, anyio.create_task_group() as tasks:
        scope = app.ctx.scope(Key("a"))
        scope.ctx.defer(gate.wait)

        async def wait(name: str, dispose: Callable[[], Any]) -> None:
            await dispose()
            done.append(name)

        tasks.start_soon(wait, "effect", scope.effect.dispose)
        tasks.start_soon(wait, "scope 1", scope.dispose)
        tasks.start_soon(wait, "scope 2", scope.dispose)
        await anyio.wait_all_tasks_blocked()
        assert done == []
        gate.set()
    assert sorted(done) == ["effect", "scope 1", "scope 2"]


# case: SC-T04
async def test_a_composite_places_the_scope_in_its_order() -> None:
    log: list[str] = []
    scopes: list[Scope] = []

    async def plugin(ctx: Context, config: object) -> None:
        def body() -> Generator[Any, None, None]:
            yield lambda: log.append("outer")
            scope = ctx.scope(Key("a"))
            scopes.append(scope)
            scope.ctx.defer(lambda: log.append("scope"))
            yield scope.effect
            yield lambda: log.append("inner")

        ctx.effect(body, "lifecycle")

    async with App() as app:
        mount = await app.mount(plugin).settled()
        assert [effect.label for effect in mount.effects] == ["lifecycle"]
        await mount.dispose()
    assert log == ["inner", "scope", "outer"]


def listen_everywhere(heard: list[str], name: str, ctx: Context, audience: Any) -> None:
    async def parallel(event: AboutParallel) -> None:
        heard.append(name)

    async def serial(event: AboutSerial) -> int | None:
        heard.append(name)
        return None

    async def wrap(event: AboutWaterfall, next: Any) -> int:
        heard.append(name)
        return int(await next())

    async def stream(event: AboutStream, next: NextStream[int]) -> AsyncGenerator[int, None]:
        heard.append(name)
        async for item in next():
            yield item

    ctx.on(About, lambda event: heard.append(name), audience=audience)
    ctx.on(AboutParallel, parallel, audience=audience)
    ctx.on(AboutSerial, serial, audience=audience)
    ctx.on(AboutWaterfall, wrap, audience=audience)
    ctx.on(AboutStream, stream, audience=audience)


@dataclass(frozen=True, slots=True)
class Box:
    """Something that belongs to a key, or to nobody."""

    owner: Key | None


@dataclass(frozen=True, slots=True)
class AboutBox(Emit, name="test-scopes/box", scope="box.owner"):
    box: Box | None


async def test_an_event_may_have_its_scope_at_the_end_of_a_path() -> None:
    a, b = Key("a"), Key("b")
    heard: list[str] = []

    def noted(name: str) -> Callable[[AboutBox], None]:
        return lambda event: heard.append(name)

    async with App() as app:
        app.ctx.on(AboutBox, noted("global"))
        app.ctx.scope(a).ctx.on(AboutBox, noted("a"))
        app.ctx.scope(b).ctx.on(AboutBox, noted("b"))
        for event, expected in (
            (AboutBox(Box(a)), ["global", "a"]),
            (AboutBox(Box(b)), ["global", "b"]),
            (AboutBox(Box(None)), ["global"]),
            (AboutBox(None), ["global"]),
        ):
            heard.clear()
            app.ctx.emit(event)
            assert sorted(heard) == sorted(expected)


# case: SC-T05
# case: SC-T07
# case: EV-03
async def test_audiences_in_every_mode() -> None:
    a, b = Key("a"), Key("b")
    heard: list[str] = []

    async with App() as app:
        contexts = {"global": app.ctx, "a": app.ctx.scope(a).ctx, "b": app.ctx.scope(b).ctx}

        for name, ctx in contexts.items():
            listen_everywhere(heard, name, ctx, "scoped")
        listen_everywhere(heard, "b+all", contexts["b"], "all")

        async def zero(event: Any) -> int:
            return 0

        async def empty(event: Any) -> AsyncGenerator[int, None]:
            for item in ():
                yield item

        async def dispatch_all(key: Key | None) -> None:
            ctx = app.ctx
            ctx.emit(About(key))
            await ctx.parallel(AboutParallel(key))
            await ctx.serial(AboutSerial(key))
            await ctx.waterfall(AboutWaterfall(key), zero)
            stream = ctx.stream(AboutStream(key), empty)
            assert [item async for item in stream] == []

        for key, expected in (
            (a, ["a", "b+all", "global"]),
            (b, ["b", "b+all", "global"]),
            (None, ["b+all", "global"]),
        ):
            heard.clear()
            await dispatch_all(key)
            assert sorted(heard) == sorted(expected * 5)


# case: SC-T09
# case: SC-T10
async def test_parents_are_linked_once_and_without_cycles() -> None:
    preset, agent, other = Key("preset"), Key("agent"), Key("other")
    async with App() as app:
        app.ctx.scope(preset)
        scope = app.ctx.scope(agent, parent=preset)
        with pytest.raises(ScopeError, match="already bound"):
            app.ctx.scope(agent, parent=other)
        with pytest.raises(ScopeError, match="cycle"):
            app.ctx.scope(preset, parent=agent)
        with pytest.raises(ScopeError, match="cycle"):
            app.ctx.scope(other, parent=other)
        scope.rebind(other)
        heard: list[str] = []
        app.ctx.scope(other).ctx.on(About, lambda event: heard.append("other"))
        app.ctx.emit(About(agent))
        assert heard == ["other"]
        with pytest.raises(ScopeError, match="cycle"):
            scope.rebind(agent)


# case: SC-T11
async def test_events_go_up_never_down() -> None:
    preset, agent, sibling = Key("preset"), Key("agent"), Key("sibling")
    heard: list[str] = []
    async with App() as app:
        scopes = {
            "preset": app.ctx.scope(preset),
            "agent": app.ctx.scope(agent, parent=preset),
            "sibling": app.ctx.scope(sibling, parent=preset),
        }
        app.ctx.on(About, lambda event: heard.append("untagged"))
        for name, scope in scopes.items():
            scope.ctx.on(About, _record(heard, name))
        app.ctx.emit(About(agent))
        assert sorted(heard) == ["agent", "preset", "untagged"]
        heard.clear()
        app.ctx.emit(About(preset))
        assert sorted(heard) == ["preset", "untagged"]


def _record(heard: list[str], name: str) -> Callable[[About], None]:
    return lambda event: heard.append(name)


@pytest.mark.parametrize("key", [None, "a", 1, 1.5, b"x", (1, 2)])
async def test_plain_values_are_no_scope_keys(key: Any) -> None:
    async with App() as app:
        with pytest.raises(ScopeError):
            app.ctx.scope(key)


async def test_a_scope_that_ended_leaves_nothing_and_starts_clean_again() -> None:
    key = Key("a")
    heard: list[int] = []
    async with App() as app:
        first = app.ctx.scope(key)
        first.ctx.on(About, lambda event: heard.append(1))
        app.ctx.emit(About(key))
        await first.dispose()
        app.ctx.emit(About(key))
        second = app.ctx.scope(key)
        second.ctx.on(About, lambda event: heard.append(2))
        app.ctx.emit(About(key))
        assert heard == [1, 2]
        await second.dispose()
        assert not app.has_scope(key)
        assert app.mounts == ()


async def test_mounts_below_a_scope_end_with_it() -> None:
    async def plugin(ctx: Context, config: object) -> None: ...

    async with App() as app:
        scope = app.ctx.scope(Key("a"))
        mount = await scope.ctx.mount(plugin).settled()
        await scope.dispose()
        assert mount.state is MountState.DISPOSED


# case: SC-T12
def test_named_entries_are_unique_ordered_and_undone_exactly() -> None:
    table: NamedEntries[int] = NamedEntries()
    undo = table.add("a", 1)
    table.add("b", 2)
    with pytest.raises(ValueError, match="'a'"):
        table.add("a", 3)
    iterator = iter(table)
    assert next(iterator) == "a"
    table.add("c", 3)
    assert list(iterator) == ["b", "c"]
    undo()
    table.add("a", 4)
    undo()
    assert table.get("a") == 4
    assert list(table) == ["b", "c", "a"]
    assert len(table) == 3


# case: SC-T13
def test_anonymous_entries_are_independent_and_generations_end() -> None:
    table: AnonymousEntries[int] = AnonymousEntries()
    first = table.add(1)
    table.add(1)
    first()
    first()
    assert list(table) == [1]
    drained: AnonymousEntries[int] = AnonymousEntries()
    undo = drained.add(1)
    iterator = iter(drained)
    assert next(iterator) == 1
    undo()
    drained.add(2)
    assert list(iterator) == []
    assert list(drained) == [2]


class Layer:
    """A layer of three tables."""

    def __init__(self) -> None:
        self.named: NamedEntries[int] = NamedEntries()
        self.more: NamedEntries[int] = NamedEntries()
        self.plain: AnonymousEntries[int] = AnonymousEntries()

    def __len__(self) -> int:
        return len(self.named) + len(self.more) + len(self.plain)


def add(name: str, value: int) -> Callable[[Layer], Callable[[], None]]:
    return lambda layer: layer.named.add(name, value)


# case: SC-T14
async def test_reading_makes_no_layer_and_nearer_names_win_in_place() -> None:
    layers = ScopedLayers(Layer)
    preset, agent = Key("preset"), Key("agent")
    async with App() as app:
        up = app.ctx.scope(preset)
        down = app.ctx.scope(agent, parent=preset)
        assert layers.peek(agent) is None
        assert layers.merge(agent, lambda layer: layer.named.entries) == {}
        assert layers.chain(agent) == (layers.base,)
        for ctx, name, value in (
            (app.ctx, "a", 1),
            (app.ctx, "b", 2),
            (up.ctx, "b", 3),
            (up.ctx, "c", 4),
            (down.ctx, "a", 5),
        ):
            layers.register(ctx, add(name, value), label="entry")
        merged = layers.merge(agent, lambda layer: layer.named.entries)
        assert list(merged.items()) == [("a", 5), ("b", 3), ("c", 4)]
        assert layers.merge(preset, lambda layer: layer.named.entries)["a"] == 1
        assert layers.merge(None, lambda layer: layer.named.entries) == {"a": 1, "b": 2}


# case: SC-T15
async def test_a_layer_lives_until_all_its_tables_are_empty() -> None:
    layers = ScopedLayers(Layer)
    key = Key("a")
    async with App() as app:
        scope = app.ctx.scope(key)
        first = layers.register(scope.ctx, add("a", 1), label="one")
        second = layers.register(scope.ctx, lambda layer: layer.plain.add(2), label="two")
        await first.dispose()
        assert layers.peek(key) is not None
        await second.dispose()
        assert layers.peek(key) is None


# case: SC-T16
async def test_order_of_action_notice_undo_notice() -> None:
    log: list[str] = []
    layers = ScopedLayers(Layer, lambda: log.append("notice"))

    def action(layer: Layer) -> Callable[[], None]:
        log.append("action")
        undo = layer.named.add("a", 1)

        def remove() -> None:
            undo()
            log.append("undo")

        return remove

    async with App() as app:
        effect = layers.register(app.ctx, action, label="entry")
        effect.dispose_nowait()
        effect.dispose_nowait()
    assert log == ["action", "notice", "undo", "notice"]


# case: SC-T17
async def test_every_way_to_fail_leaves_nothing() -> None:
    key = Key("a")
    async with App() as app:
        scope = app.ctx.scope(key)
        effects = len(scope.ctx.owner.effects)

        def no_layer() -> Layer:
            if made:
                raise MemoryError("no layer")
            made.append(1)
            return Layer()

        made: list[int] = []
        broken = ScopedLayers(no_layer)
        with pytest.raises(MemoryError):
            broken.register(scope.ctx, add("a", 1), label="entry")

        layers = ScopedLayers(Layer)

        def fails(layer: Layer) -> Callable[[], None]:
            raise ValueError("no")

        with pytest.raises(ValueError, match="no"):
            layers.register(scope.ctx, fails, label="entry")
        assert layers.peek(key) is None
        kept = layers.register(scope.ctx, add("a", 1), label="entry")
        with pytest.raises(ValueError, match="no"):
            layers.register(scope.ctx, fails, label="entry")
        assert layers.peek(key) is not None
        await kept.dispose()

        log: list[str] = []

        def refuse() -> None:
            log.append("notice")
            if len(log) == 1:
                raise PermissionError("not now")

        strict = ScopedLayers(Layer, refuse)
        with pytest.raises(PermissionError):
            strict.register(scope.ctx, add("a", 1), label="entry")
        assert strict.peek(key) is None
        assert log == ["notice", "notice"]
        assert len(scope.ctx.owner.effects) == effects


def test_iteration_stays_live_when_the_table_is_thinned_out() -> None:
    entries: AnonymousEntries[int] = AnonymousEntries()
    undo = [entries.add(number) for number in range(8)]
    iterator = iter(entries)
    assert [next(iterator), next(iterator)] == [0, 1]
    for number in (0, 1, 2, 4, 5):
        undo[number]()
    entries.add(8)
    assert list(iterator) == [3, 6, 7, 8]
    assert list(entries) == [3, 6, 7, 8]


def test_an_old_undo_never_removes_a_later_entry_of_the_same_value() -> None:
    entries: NamedEntries[object] = NamedEntries()
    value = object()
    undo = entries.add("name", value)
    undo()
    entries.add("name", value)
    undo()
    assert entries.get("name") is value
    assert list(entries) == ["name"]


async def test_a_failing_undo_leaves_no_layer() -> None:
    changes: list[int] = []
    layers: ScopedLayers[NamedEntries[int]] = ScopedLayers(NamedEntries, lambda: changes.append(1))
    async with App() as app:
        key = Key("a")
        scope = app.ctx.scope(key)

        def action(layer: NamedEntries[int]) -> Callable[[], object]:
            undo = layer.add("one", 1)

            def failing() -> None:
                undo()
                raise ValueError("no")

            return failing

        effect = layers.register(scope.ctx, action, label="one")
        with pytest.raises(ValueError, match="no"):
            await effect.dispose()
        assert layers.peek(key) is None
        assert len(changes) == 2
