"""The plugin that registers the adapter with the model service."""

from __future__ import annotations

from typing import Self

from pydantic import model_validator

from dsh.core import Plugin, inject, settings
from dsh.llm import LlmService
from dsh.llm_deepseek._adapter import DeepSeekAdapter
from dsh.llm_deepseek._config import DeepSeekConfig


class DeepSeekPlugin(Plugin):
    """Offers the models of one endpoint. Mount it twice, with two names, for two endpoints."""

    name = "llm-deepseek"

    class Config(DeepSeekConfig):
        """Configuration of the endpoint."""

        @model_validator(mode="after")
        def _check_models(self) -> Self:
            if not self.catalogue():
                raise ValueError(f"models lists at least one model for {self.provider!r}")
            return self

    config = settings(Config)
    llm = inject(LlmService)

    adapter: DeepSeekAdapter
    """The adapter; there while the plugin is active."""

    async def start(self) -> None:
        """Register the adapter. Neither a key nor a connection is needed for that."""
        self.adapter = DeepSeekAdapter(self.config)
        # Registered first, so that it runs last: no request comes any more when it closes.
        self.ctx.defer(self.adapter.aclose)
        self.llm.register(self.ctx, self.adapter, provider=self.config.provider)
