"""A stream of events for an observer that awaits."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream

from dsh.core._audience import Audience, listen
from dsh.core.errors import EventModeError

if TYPE_CHECKING:
    from dsh.core._events import Event
    from dsh.core._place import Place


def subscribe(
    ctx: Place, event: type[Event], buffer: float, audience: Audience
) -> MemoryObjectReceiveStream[Any]:
    """Return a stream fed by a listener; it ends with the owner."""
    if event.event_mode != "emit":
        raise EventModeError(f"only Emit events can be subscribed to, not {event.event_name!r}")
    label = f"subscribe {ctx.app.channel(event).name}"
    ctx.owner.check_accepting(label)
    send, receive = anyio.create_memory_object_stream[Any](buffer)
    dropping = False

    def feed(item: Any) -> None:
        nonlocal dropping
        try:
            send.send_nowait(item)
            dropping = False
        except anyio.BrokenResourceError:
            effect.dispose_nowait()
        except anyio.WouldBlock as error:
            if not dropping:
                ctx.report(error, f"subscription to {event.event_name}: its buffer is full")
            dropping = True

    def body() -> Generator[Any, None, None]:
        yield send.close
        yield listen(ctx, event, feed, False, audience, once=False)

    effect = ctx.effect(body, label)
    return receive
