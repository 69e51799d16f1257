"""What Pi concludes from a provider's URL, as a table: the overlay replaces the URL and must not lose the conclusions.

Source: `detectCompat` and the prompt cache key rule of `buildParams` in @earendil-works/pi-ai 1.6.0,
dist/api/openai-completions.js, and the provider catalogue of the same package. Pi looks for these strings anywhere in
the URL. What it concludes from a provider's NAME stays as it is: the overlay keeps names. For every provider of Pi's
own catalogue the name and the catalogue alone give the same values as name, catalogue and URL (checked for all of its
chat completions models in 1.6.0), so only providers that a models.json defines need the table.
"""

from __future__ import annotations

from typing import Any

__all__ = ["COMPLETIONS_PROVIDERS", "OTHER_PROVIDERS", "implied_by_url"]

# Providers of Pi's catalogue with chat completions models at a fixed address.
COMPLETIONS_PROVIDERS = {
    "ant-ling": "https://api.ant-ling.com/v1",
    "baseten": "https://inference.baseten.co/v1",
    "cerebras": "https://api.cerebras.ai/v1",
    "deepseek": "https://api.deepseek.com",
    "fireworks": "https://api.fireworks.ai/inference/v1",
    "groq": "https://api.groq.com/openai/v1",
    "huggingface": "https://router.huggingface.co/v1",
    "kimi-coding": "https://api.kimi.com/coding/v1",
    "moonshotai": "https://api.moonshot.ai/v1",
    "moonshotai-cn": "https://api.moonshot.cn/v1",
    "nvidia": "https://integrate.api.nvidia.com/v1",
    "opencode": "https://opencode.ai/inference/openai/v1",
    "opencode-go": "https://opencode.ai/inference/go/openai/v1",
    "openrouter": "https://openrouter.ai/api/v1",
    "qwen-token-plan": "https://token-plan.maas.qwencloudapi.com/compatible-mode/v1",
    "qwen-token-plan-cn": "https://token-plan.maas.qianwenaiapi.com/compatible-mode/v1",
    "together": "https://api.together.ai/v1",
    "xiaomi": "https://api.xiaomimimo.com/v1",
    "zai": "https://api.z.ai/api/coding/paas/v4",
    "zai-coding-cn": "https://open.bigmodel.cn/api/coding/paas/v4",
}
# Providers of Pi's catalogue that speak another dialect, or need an account in their address.
OTHER_PROVIDERS = {
    *("amazon-bedrock", "anthropic", "azure", "cloudflare-ai-gateway", "cloudflare-workers-ai", "github-copilot"),
    *("google", "google-vertex", "meta", "minimax", "minimax-cn", "mistral", "openai", "openai-codex", "radius"),
    *("vercel-ai-gateway", "xai"),
}

# Family -> (provider names, strings in the URL).
_FAMILIES: dict[str, tuple[frozenset[str], tuple[str, ...]]] = {
    "zai": (frozenset({"zai", "zai-coding-cn"}), ("api.z.ai", "open.bigmodel.cn")),
    "together": (frozenset({"together"}), ("api.together.ai", "api.together.xyz")),
    "moonshot": (frozenset({"moonshotai", "moonshotai-cn"}), ("api.moonshot.",)),
    "openrouter": (frozenset({"openrouter"}), ("openrouter.ai",)),
    "workers-ai": (frozenset({"cloudflare-workers-ai"}), ("api.cloudflare.com",)),
    "ai-gateway": (frozenset({"cloudflare-ai-gateway"}), ("gateway.ai.cloudflare.com",)),
    "nvidia": (frozenset({"nvidia"}), ("integrate.api.nvidia.com",)),
    "ant-ling": (frozenset({"ant-ling"}), ("api.ant-ling.com",)),
    "cerebras": (frozenset({"cerebras"}), ("cerebras.ai",)),
    "deepseek": (frozenset({"deepseek"}), ("deepseek.com",)),
    "xai": (frozenset({"xai"}), ("api.x.ai",)),
    "chutes": (frozenset(), ("chutes.ai",)),
    "opencode": (frozenset({"opencode"}), ("opencode.ai",)),
    "openai": (frozenset({"openai"}), ("api.openai.com",)),
}
_NON_STANDARD = frozenset(_FAMILIES) - {"openai", "openrouter"}
_MAX_TOKENS = frozenset({"chutes", "deepseek", "moonshot", "ai-gateway", "together", "nvidia", "ant-ling", "zai"})
_NO_EFFORT = frozenset({"xai", "zai", "moonshot", "together", "ai-gateway", "nvidia", "ant-ling"})
_SHORT_CACHE = frozenset({"together", "workers-ai", "ai-gateway", "nvidia", "ant-ling"})
_THINKING_FORMATS = ("deepseek", "zai", "together", "ant-ling", "openrouter")  # the first that fits
_IGNORES_CASE = frozenset({"deepseek"})
# Only the URL's own: a provider that is merely NAMED openai has no prompt cache key by default.
_URL_ONLY = {"promptCacheKeyMode": ("openai", "enabled")}


def implied_by_url(provider: str, url: str | None) -> dict[str, Any]:
    """The compat values that Pi has because of this URL and would not have at another address, by field name."""
    if not url:
        return {}
    with_url, by_name = _detect(_families(provider, url)), _detect(_families(provider, ""))
    implied = {field: value for field, value in with_url.items() if by_name[field] != value}
    by_url = _families("", url)
    implied |= {field: value for field, (family, value) in _URL_ONLY.items() if family in by_url}
    return implied


def _families(provider: str, url: str) -> frozenset[str]:
    found = set()
    for family, (names, marks) in _FAMILIES.items():
        where = url.lower() if family in _IGNORES_CASE else url
        if provider in names or any(mark in where for mark in marks):
            found.add(family)
    return frozenset(found)


def _detect(families: frozenset[str]) -> dict[str, Any]:
    return {
        "supportsStore": not families & _NON_STANDARD,
        "supportsDeveloperRole": "openai" in families,
        "supportsReasoningEffort": not families & _NO_EFFORT,
        "maxTokensField": "max_tokens" if families & _MAX_TOKENS else "max_completion_tokens",
        "requiresReasoningContentOnAssistantMessages": "deepseek" in families,
        "thinkingFormat": next((name for name in _THINKING_FORMATS if name in families), "openai"),
        "sendSessionAffinityHeaders": "openrouter" in families,
        "sessionAffinityFormat": "openrouter" if "openrouter" in families else "openai",
        "supportsLongCacheRetention": not families & _SHORT_CACHE,
    }
