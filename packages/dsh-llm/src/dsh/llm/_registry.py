"""Registering adapters: validation, and the handle a registration is changed and ended with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from dsh.core import Context, Effect
from dsh.llm._adapter import LlmAdapter, ModelInfo
from dsh.llm._catalog import Catalog, Entry
from dsh.llm.errors import LlmError


class Registry:
    """The current catalog and the only code that replaces it."""

    def __init__(self, announce: Callable[[], None]) -> None:
        self.catalog = Catalog()
        self._announce = announce

    def register(
        self,
        ctx: Context,
        adapter: LlmAdapter,
        provider: str,
        models: Sequence[str | ModelInfo] | None,
    ) -> AdapterRegistration:
        """Add an adapter for as long as `ctx` is alive; all or nothing."""
        entry = _entry(adapter, provider, models)
        if not entry.models:
            raise LlmError(
                f"{type(adapter).__name__} is registered as {provider!r} without any model",
                code=LlmError.INVALID_ADAPTER,
                hint="pass the models it serves, or have its models() list them",
            )
        registration = AdapterRegistration(self, entry)

        def body() -> Callable[[], None]:
            self._swap((*self.catalog.entries, entry))
            return registration.remove

        registration.effect = ctx.effect(body, f"llm adapter {provider}")
        self._announce()
        return registration

    def exchange(self, old: Entry, *new: Entry) -> None:
        """Put `new`, one entry or none, where `old` was; the caller announces it."""
        at = self.catalog.entries.index(old)
        entries = list(self.catalog.entries)
        entries[at : at + 1] = new
        self._swap(tuple(entries))

    def announce(self) -> None:
        """Tell that the catalog has changed."""
        self._announce()

    def _swap(self, entries: tuple[Entry, ...]) -> None:
        # The constructor refuses duplicates, so a refused change leaves the old catalog in place.
        self.catalog = Catalog(entries)


class AdapterRegistration:
    """One adapter's registration. It ends with its owner, or earlier by `dispose`."""

    effect: Effect
    """The registration as an effect of its owner, to be moved into a composite effect."""

    def __init__(self, registry: Registry, entry: Entry) -> None:
        self._registry = registry
        self._entry = entry
        self._disposed = False

    @property
    def provider(self) -> str:
        """The provider the adapter is registered as."""
        return self._entry.provider

    @property
    def models(self) -> tuple[ModelInfo, ...]:
        """The models it is registered for."""
        return self._entry.models

    @property
    def disposed(self) -> bool:
        """Whether the registration has ended."""
        return self._disposed

    def replace(self, models: Sequence[str | ModelInfo]) -> None:
        """Serve exactly these models from now on, in one step that is announced once.

        Calls that are prepared or running are not touched.

        Args:
            models: The new list. An empty one is legal: the adapter lies dormant until the next.

        Raises:
            LlmError: REGISTRATION_DISPOSED, or as `LlmService.register`; nothing has changed then.
        """
        if self._disposed:
            raise LlmError(
                f"the registration of {self.provider!r} has ended and cannot be changed",
                code=LlmError.REGISTRATION_DISPOSED,
                hint="register the adapter again",
            )
        old = self._entry
        new = _entry(old.adapter, old.provider, models)
        self._registry.exchange(old, new)
        self._entry = new
        # Last, since a listener may already end or change the registration again.
        self._registry.announce()

    async def dispose(self) -> None:
        """End the registration. Calls that run go on; doing it twice does nothing."""
        await self.effect.dispose()

    def dispose_nowait(self) -> None:
        """End the registration at once; doing it twice does nothing."""
        self.effect.dispose_nowait()

    def remove(self) -> None:
        """Undo the registration; what the effect runs."""
        self._disposed = True
        self._registry.exchange(self._entry)
        self._registry.announce()

    def __repr__(self) -> str:
        state = "ended" if self._disposed else ", ".join(info.id for info in self.models)
        return f"<AdapterRegistration {self.provider!r}: {state}>"


def _entry(adapter: LlmAdapter, provider: str, models: Sequence[str | ModelInfo] | None) -> Entry:
    """Check everything about a registration and return its entry."""
    if not isinstance(adapter, LlmAdapter):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise LlmError(
            f"{adapter!r} is registered as an adapter and is none",
            code=LlmError.INVALID_ADAPTER,
            hint="pass an instance of a subclass of dsh.llm.LlmAdapter",
        )
    if not provider or "/" in provider or provider != provider.strip():
        raise LlmError(
            f"{provider!r} cannot be the name of a provider",
            code=LlmError.INVALID_ADAPTER,
            hint="use a short name without slashes, such as 'deepseek'",
        )
    known = _known(adapter, provider)
    wanted = tuple(known) if models is None else models
    infos: dict[str, ModelInfo] = {}
    for item in wanted:
        info = item if isinstance(item, ModelInfo) else known.get(item) or ModelInfo(item)
        if info.id in infos:
            raise LlmError(
                f"model {info.id!r} of {provider!r} is listed twice",
                code=LlmError.DUPLICATE_ADAPTER,
                hint="list each model once",
            )
        _check(info, provider, LlmError.INVALID_ADAPTER)
        infos[info.id] = replace(info, provider=provider)
    return Entry(adapter, provider, tuple(infos.values()))


def _known(adapter: LlmAdapter, provider: str) -> dict[str, ModelInfo]:
    """Return the adapter's own list of models, checked."""
    known: dict[str, ModelInfo] = {}
    for info in adapter.models():
        if not isinstance(info, ModelInfo) or info.id in known:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise LlmError(
                f"the models of {type(adapter).__name__} ({provider!r}) have a wrong or repeated "
                f"entry: {info!r}",
                code=LlmError.INVALID_CATALOG,
                hint="models() returns ModelInfo objects with distinct ids",
            )
        _check(info, provider, LlmError.INVALID_CATALOG)
        known[info.id] = info
    return known


def _check(info: ModelInfo, provider: str, bad_id: str) -> None:
    where = f"model {info.id!r} of {provider!r}"
    if not isinstance(info.id, str) or not info.id or info.id != info.id.strip():  # pyright: ignore[reportUnnecessaryIsInstance]
        raise LlmError(f"{where} has no proper id", code=bad_id)
    if info.name == "":
        raise LlmError(f"{where} has an empty name", code=LlmError.INVALID_MODEL_INFO)
    if not _positive(info.context_window):
        raise LlmError(
            f"{where} has a context window of {info.context_window!r} tokens",
            code=LlmError.INVALID_CONTEXT,
            hint="it is a positive integer, or None where it is not known",
        )
    if not _positive(info.max_output_tokens):
        raise LlmError(
            f"{where} has an output limit of {info.max_output_tokens!r} tokens",
            code=LlmError.INVALID_MAX_TOKENS,
            hint="it is a positive integer, or None where it is not known",
        )
    efforts = info.reasoning_efforts
    if "" in efforts or len(set(efforts)) != len(efforts):
        raise LlmError(
            f"{where} lists the reasoning efforts {efforts!r}",
            code=LlmError.INVALID_REASONING,
            hint="they are distinct and not empty",
        )


def _positive(value: int | None) -> bool:
    return value is None or (type(value) is int and value > 0)
