"""The overlay changes what it says, keeps the rest, and loses nothing that Pi concluded from the original URL."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from windtunnel.errors import FileDamaged, InputWrong, NotBuiltYet
from windtunnel.subjects.pi_compat import COMPLETIONS_PROVIDERS, implied_by_url
from windtunnel.subjects.pi_overlay import overlay, overlay_models, overlay_settings

GATEWAY = "{{windtunnel.base_url}}/r/rt/executor"
TOKEN = "{{windtunnel.token}}"


def custom(url: str, **model: Any) -> dict[str, Any]:
    return {"baseUrl": url, "api": "openai-completions", "apiKey": "$ACME_KEY", "models": [{"id": "m1", **model}]}


def overlaid(document: dict[str, Any], model: str = "acme/m1") -> tuple[dict[str, Any], list[str]]:
    return overlay_models(document, model=model, route="rt", where="models.json")


def test_known_answer_for_a_plain_custom_provider() -> None:
    model = {"reasoning": True, "contextWindow": 1000, "thinkingLevelMap": {"off": "none"}, "name": "M"}
    document = {"providers": {"acme": custom("https://llm.example.com/v1", **model), "other": custom("https://x/v1")}}

    made, changes = overlaid(document)

    assert made == {
        "providers": {
            "acme": {
                "baseUrl": GATEWAY,
                "api": "openai-completions",
                "apiKey": TOKEN,
                "models": [{"id": "m1", **model}],
            }
        }
    }
    assert changes == [
        f"models.json providers.acme.baseUrl: {GATEWAY}",
        "models.json providers.acme.apiKey: this attempt's token",
        "models.json providers.other: left out, no role uses it",
    ]
    assert document["providers"]["acme"]["apiKey"] == "$ACME_KEY"


@pytest.mark.parametrize(
    ("url", "implied"),
    [
        ("https://llm.example.com/v1", {}),
        (
            "https://api.z.ai/api/coding/paas/v4",
            {
                "supportsStore": False,
                "supportsReasoningEffort": False,
                "maxTokensField": "max_tokens",
                "thinkingFormat": "zai",
            },
        ),
        (
            "https://API.DEEPSEEK.COM",
            {
                "supportsStore": False,
                "maxTokensField": "max_tokens",
                "requiresReasoningContentOnAssistantMessages": True,
                "thinkingFormat": "deepseek",
            },
        ),
        (
            "https://openrouter.ai/api/v1",
            {"thinkingFormat": "openrouter", "sendSessionAffinityHeaders": True, "sessionAffinityFormat": "openrouter"},
        ),
        ("https://api.openai.com/v1", {"supportsDeveloperRole": True, "promptCacheKeyMode": "enabled"}),
        ("https://llm.chutes.ai/v1", {"supportsStore": False, "maxTokensField": "max_tokens"}),
        ("https://api.x.ai/v1", {"supportsStore": False, "supportsReasoningEffort": False}),
        ("https://opencode.ai/zen/v1", {"supportsStore": False}),
    ],
)
def test_what_a_url_implied_is_made_explicit(url: str, implied: dict[str, Any]) -> None:
    made, changes = overlaid({"providers": {"acme": custom(url)}})

    assert made["providers"]["acme"]["models"][0].get("compat", {}) == implied
    told = [line for line in changes if ".compat." in line]
    assert len(told) == len(implied)
    assert all(f"(implied by {url})" in line for line in told)


def test_what_the_name_implies_already_is_not_repeated() -> None:
    assert implied_by_url("zai", COMPLETIONS_PROVIDERS["zai"]) == {}
    assert implied_by_url("deepseek", "https://api.deepseek.com/v1") == {}


def test_what_the_config_says_itself_wins() -> None:
    provider = custom("https://api.z.ai/v4", compat={"thinkingFormat": "openai"}) | {"compat": {"supportsStore": True}}

    made, _ = overlaid({"providers": {"acme": provider}})

    entry = made["providers"]["acme"]
    assert entry["compat"] == {"supportsStore": True}
    assert entry["models"][0]["compat"] == {
        "thinkingFormat": "openai",
        "supportsReasoningEffort": False,
        "maxTokensField": "max_tokens",
    }


def test_a_models_own_url_counts_and_is_left_out() -> None:
    provider = custom("https://llm.example.com/v1", baseUrl="https://llm.chutes.ai/v1")

    made, changes = overlaid({"providers": {"acme": provider}})

    model = made["providers"]["acme"]["models"][0]
    assert "baseUrl" not in model
    assert model["compat"] == {"supportsStore": False, "maxTokensField": "max_tokens"}
    assert "models.json providers.acme.models.m1.baseUrl: left out, the provider's holds" in changes


def test_a_provider_of_pis_own_catalogue_needs_no_models_file() -> None:
    made, _ = overlaid({}, "zai/glm-5.2")

    assert made == {"providers": {"zai": {"baseUrl": GATEWAY, "apiKey": TOKEN}}}


@pytest.mark.parametrize(
    ("document", "model", "error", "says"),
    [
        ({}, "acme/m1", InputWrong, "Pi does not know acme/m1"),
        ({"providers": {"acme": custom("https://x/v1")}}, "acme/m2", InputWrong, "lists for provider acme: m1"),
        (
            {"providers": {"acme": custom("https://x/v1", api="anthropic-messages")}},
            "acme/m1",
            NotBuiltYet,
            "anthropic-messages",
        ),
        ({"providers": {"acme": {"models": [{"id": "m1"}]}}}, "acme/m1", InputWrong, "says no `api`"),
        ({"providers": {"acme": {"models": [{"name": "m1"}]}}}, "acme/m1", InputWrong, "list of objects"),
        ({"providers": []}, "acme/m1", InputWrong, "must map names"),
        ({}, "anthropic/claude-opus-5-5", NotBuiltYet, "anthropic"),
        ({"providers": {"zai": {"baseUrl": "https://llm.chutes.ai/v1"}}}, "zai/glm-5.2", None, ""),
        ({"providers": {"groq": {"baseUrl": "https://api.z.ai/v4"}}}, "groq/m", InputWrong, "treat differently"),
    ],
)
def test_a_model_that_cannot_be_reached_is_one_clear_line(
    document: dict[str, Any], model: str, error: type[Exception] | None, says: str
) -> None:
    if error is None:
        overlaid(document, model)
        return
    with pytest.raises(error, match=says):
        overlaid(document, model)


def test_settings_keep_the_config_and_get_what_every_measurement_has() -> None:
    made, changes = overlay_settings({"retry": {"maxRetries": 1}, "transport": "auto"})

    assert made == {
        "retry": {"maxRetries": 1},
        "transport": "sse",
        "cacheWarming": "off",
        "enableInstallTelemetry": False,
    }
    assert 'settings.json transport: "sse"' in changes


def test_leaf_files_win(tmp_path: Path) -> None:
    leaf = tmp_path / "m1" / "high"
    leaf.mkdir(parents=True)
    (tmp_path / "models.json").write_text("{}")
    (leaf / "models.json").write_text(json.dumps({"providers": {"acme": custom("https://x/v1")}}))

    assert overlay(tmp_path, leaf, model="acme/m1", route="rt").models["providers"]["acme"]["baseUrl"] == GATEWAY


@pytest.mark.parametrize("text", [b"{", b"[]", b"\xff", b'{"a": NaN}', b"[" * 100_000])
def test_a_broken_models_file_is_named(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "models.json").write_bytes(text)

    with pytest.raises(FileDamaged, match=r"models\.json"):
        overlay(tmp_path, None, model="acme/m1", route="rt")
