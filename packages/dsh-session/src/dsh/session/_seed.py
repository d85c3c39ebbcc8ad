"""What a seed log must be before a session starts from it."""

from __future__ import annotations

from dataclasses import replace

from dsh.core import NotJsonError
from dsh.session._event import SessionEvent
from dsh.session._freeze import freeze
from dsh.session._surface import Surface
from dsh.session.errors import SeedError, SurfaceError

__all__ = ["check_seed"]


def check_seed(index: int, event: SessionEvent, surface: Surface) -> SessionEvent:
    """Return the event to take over at `index`, detached from its caller.

    Raises:
        SeedError: Code `SEED_GAP`, `SEED_NOT_JSON`, `SEED_SURFACE_OP` or `SEED_SURFACE`.
    """
    if event.seq != index:
        raise SeedError(
            f"seed event at index {index} carries seq {event.seq}: a log is contiguous from 0",
            code=SeedError.SEED_GAP,
        )
    where = f"{event.type} at seq {index}"
    try:
        data = freeze(event.data, where=where)
    except NotJsonError as error:
        raise SeedError(f"seed event {error.message}", code=SeedError.SEED_NOT_JSON) from error
    if (event.surface_op is None) == data.surface_eligible:
        problem = "lacks its surfaceOp" if data.surface_eligible else "carries a surfaceOp"
        raise SeedError(f"seed event {where} {problem}", code=SeedError.SEED_SURFACE_OP)
    if event.surface_op is not None:
        try:
            surface.accept(event.surface_op)
        except SurfaceError as error:
            raise SeedError(
                f"seed event {where}: {error.message}", code=SeedError.SEED_SURFACE
            ) from error
    sources = event.source_event_seqs
    if data is event.data and (sources is None or type(sources) is tuple):
        return event
    return replace(event, data=data, source_event_seqs=None if sources is None else tuple(sources))
