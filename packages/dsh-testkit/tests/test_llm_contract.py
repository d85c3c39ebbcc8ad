"""The adapter contract, on DeepSeek's adapter and on adapters that break it."""

from __future__ import annotations

from dsh.llm_deepseek import DeepSeekAdapter
from dsh.testkit.llm_contract import Endpoint, LlmContract


class TestDeepSeek(LlmContract):
    def make(self, endpoint: Endpoint) -> DeepSeekAdapter:
        config = {
            "base_url": endpoint.url,
            "api_key": endpoint.key,
            "idle_timeout_s": endpoint.timeout_s,
        }
        return DeepSeekAdapter(config, environ={})
