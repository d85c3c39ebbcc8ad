"""Which adapter serves which model: an immutable table, replaced as a whole."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from dsh.llm._adapter import LlmAdapter, ModelInfo
from dsh.llm.errors import LlmError


@dataclass(frozen=True, slots=True)
class ResolvedModel:
    """What a model's name stands for."""

    provider: str
    """The provider."""
    model: str
    """The id the provider uses."""
    adapter: LlmAdapter
    """Who serves it."""
    info: ModelInfo | None = None
    """What is known about it; None for an id nobody declares."""

    @property
    def qualified(self) -> str:
        """The name that always resolves to this model, `provider/model`."""
        return f"{self.provider}/{self.model}"


@dataclass(frozen=True, slots=True, eq=False)
class Entry:
    """One adapter and the models it is registered for."""

    adapter: LlmAdapter
    provider: str
    models: tuple[ModelInfo, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Catalog:
    """Every registered model."""

    entries: tuple[Entry, ...] = ()
    _providers: dict[str, list[Entry]] = field(init=False, default_factory=dict[str, list[Entry]])
    _models: dict[str, list[ResolvedModel]] = field(
        init=False, default_factory=dict[str, list[ResolvedModel]]
    )
    _qualified: dict[tuple[str, str], ResolvedModel] = field(
        init=False, default_factory=dict[tuple[str, str], ResolvedModel]
    )

    def __post_init__(self) -> None:
        for entry in self.entries:
            if entry.models:
                self._providers.setdefault(entry.provider, []).append(entry)
            for info in entry.models:
                resolved = ResolvedModel(entry.provider, info.id, entry.adapter, info)
                known = self._qualified.setdefault((entry.provider, info.id), resolved)
                if known is not resolved:
                    raise LlmError(
                        f"model {resolved.qualified!r} is registered already, by "
                        f"{type(known.adapter).__name__}",
                        code=LlmError.DUPLICATE_ADAPTER,
                        hint="register it under another provider name, or remove one of the two",
                    )
                self._models.setdefault(info.id, []).append(resolved)

    @property
    def providers(self) -> tuple[str, ...]:
        """The providers that serve a model, in order of registration."""
        return tuple(self._providers)

    @property
    def models(self) -> tuple[ModelInfo, ...]:
        """The declared models, in order of registration."""
        return tuple(info for entry in self.entries for info in entry.models)

    def resolve(self, name: str) -> ResolvedModel:
        """Return what `name` stands for.

        Raises:
            LlmError: NO_ADAPTER or AMBIGUOUS_MODEL.
        """
        provider, slash, model = name.partition("/")
        if slash and model and provider in self._providers:
            return self._at(provider, model)
        found = self._models.get(name, ())
        if len(found) == 1:
            return found[0]
        if found:
            raise self._ambiguous(name, [resolved.qualified for resolved in found])
        raise self._miss(name)

    def owner(self, provider: str, model: str) -> LlmAdapter | None:
        """Return the adapter that serves a model of a provider, or None."""
        resolved = self._qualified.get((provider, model))
        if resolved is not None:
            return resolved.adapter
        entries = self._providers.get(provider, ())
        return entries[0].adapter if len(entries) == 1 else None

    def _at(self, provider: str, model: str) -> ResolvedModel:
        resolved = self._qualified.get((provider, model))
        if resolved is not None:
            return resolved
        entries = self._providers[provider]
        if len(entries) > 1:
            raise LlmError(
                f"provider {provider!r} has {len(entries)} adapters and none of them declares "
                f"the model {model!r}",
                code=LlmError.AMBIGUOUS_MODEL,
                hint="declare the model in the configuration of the adapter that serves it",
            )
        return ResolvedModel(provider, model, entries[0].adapter)

    def _ambiguous(self, name: str, qualified: list[str]) -> LlmError:
        return LlmError(
            f"more than one provider has a model {name!r}",
            code=LlmError.AMBIGUOUS_MODEL,
            hint=f"name one of {_listed(qualified)}",
        )

    def _miss(self, name: str) -> LlmError:
        if not self._providers:
            hint = "no adapter is registered at all: mount one, such as the plugin llm-deepseek"
        else:
            # Only a miss needs it, and it is not free to import.
            from difflib import get_close_matches

            names = [f"{provider}/{model}" for provider, model in self._qualified]
            close = get_close_matches(name, [*names, *self._models], n=1, cutoff=0.5)
            nearest = f"did you mean {close[0]!r}? " if close else ""
            hint = (
                f"{nearest}registered are {_listed(names)}; a model nobody declares is called "
                f"as 'provider/model' with one of the providers {_listed(self._providers)}"
            )
        return LlmError(
            f"no registered adapter serves the model {name!r}",
            code=LlmError.NO_ADAPTER,
            hint=hint,
        )


def _listed(names: Iterable[str], most: int = 8) -> str:
    quoted = [repr(name) for name in names]
    rest = len(quoted) - most
    return ", ".join(quoted[:most]) + (f" and {rest} more" if rest > 0 else "")
