"""The overlay: a config's models.json and settings.json, changed so that the executor's calls go through the gateway.

What changes is what `Overlay.changes` says, field by field, for the receipt. Everything else of the provider in use is
kept; providers that no role uses are left out of the copy.
"""

from __future__ import annotations

import copy
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from windtunnel.domain.role import EXECUTOR
from windtunnel.errors import InputWrong, NotBuiltYet
from windtunnel.subjects.config_files import find_file, read_object
from windtunnel.subjects.interface import BASE_URL, TOKEN
from windtunnel.subjects.pi_compat import COMPLETIONS_PROVIDERS, OTHER_PROVIDERS, implied_by_url

__all__ = ["Overlay", "overlay", "overlay_models", "overlay_settings"]

_DIALECT = "openai-completions"
# transport: no WebSocket, the gateway reads requests. cacheWarming: no model calls that nobody asked for.
_SETTINGS: dict[str, Any] = {"transport": "sse", "cacheWarming": "off", "enableInstallTelemetry": False}


@dataclass(frozen=True)
class Overlay:
    """The two documents as the subject gets them, and every changed field as one line of text."""

    models: dict[str, Any]
    settings: dict[str, Any]
    changes: tuple[str, ...]


def overlay(inputs: Path, leaf: Path | None, *, model: str, route: str) -> Overlay:
    """Raises FileDamaged for a broken file, InputWrong or NotBuiltYet when the model cannot be reached through it."""
    models_file = find_file("models.json", inputs, leaf)
    models, changed = overlay_models(read_object(models_file), model=model, route=route, where=str(models_file))
    settings, also = overlay_settings(read_object(find_file("settings.json", inputs, leaf)))
    return Overlay(models=models, settings=settings, changes=(*changed, *also))


def overlay_settings(settings: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """The settings that every measurement has."""
    changes = [f"settings.json {key}: {_show(value)}" for key, value in _SETTINGS.items() if settings.get(key) != value]
    return settings | _SETTINGS, changes


def overlay_models(document: dict[str, Any], *, model: str, route: str, where: str) -> tuple[dict[str, Any], list[str]]:
    """models.json with the executor's provider at the gateway. `model`: `provider/id`; `where`: file, for messages."""
    provider, _, model_id = model.partition("/")
    providers = document.get("providers", {})
    if not isinstance(providers, dict) or not isinstance(providers.get(provider, {}), dict):
        raise InputWrong(f"{where}: `providers` must map names to objects.")
    entry = copy.deepcopy(providers.get(provider, {}))
    _check(entry, provider, model_id, where)
    changes = _redirect_models(entry, provider)
    entry |= {"baseUrl": f"{BASE_URL}/r/{route}/{EXECUTOR}", "apiKey": TOKEN}
    place = f"models.json providers.{provider}"
    dropped = [f"models.json providers.{name}: left out, no role uses it" for name in providers if name != provider]
    # The document of a provider in Pi's catalogue may be new, hence `changes` names both fields always.
    first = [f"{place}.baseUrl: {entry['baseUrl']}", f"{place}.apiKey: this attempt's token"]
    kept = {key: value for key, value in document.items() if key != "providers"}
    return kept | {"providers": {provider: entry}}, [*first, *changes, *dropped]


def _check(entry: dict[str, Any], provider: str, model_id: str, where: str) -> None:
    """Whether Pi will find the model there and speak a dialect that the gateway knows."""
    listed = entry.get("models", [])
    if not isinstance(listed, list) or not all(isinstance(m, dict) and isinstance(m.get("id"), str) for m in listed):
        raise InputWrong(f"{where}: providers.{provider}.models must be a list of objects with an `id`.")
    own = next((m for m in listed if m["id"] == model_id), None)
    known = provider in COMPLETIONS_PROVIDERS
    api = (own or {}).get("api") or entry.get("api") or (_DIALECT if known else None)
    if (own is not None or not known) and api not in {None, _DIALECT}:
        raise NotBuiltYet(f"dialect {api!r} of provider {provider}", where)
    if own is not None and api is None:
        raise InputWrong(f'{where}: providers.{provider} says no `api`. Add "api": "{_DIALECT}".')
    if own is not None:
        return
    if provider in OTHER_PROVIDERS:
        raise NotBuiltYet(
            f"provider {provider} of Pi's catalogue (another dialect than {_DIALECT})", f"--model {provider}/{model_id}"
        )
    if not known:
        names = ", ".join(m["id"] for m in listed) or "none"
        raise InputWrong(
            f"Pi does not know {provider}/{model_id}: {where} lists for provider {provider}: {names}. "
            "Add the model there, with its `reasoning`, `contextWindow` and `maxTokens`."
        )
    base = entry.get("baseUrl")
    foreign = implied_by_url(provider, base if isinstance(base, str) else None)
    if foreign.keys() - implied_by_url(provider, COMPLETIONS_PROVIDERS[provider]).keys():
        raise InputWrong(
            f"{where}: providers.{provider} sends Pi's own models to {base}, which Pi would treat differently "
            f"({', '.join(sorted(foreign))}). List the model there with its `compat`."
        )


def _redirect_models(entry: dict[str, Any], provider: str) -> list[str]:
    """Make explicit, per listed model, what its URL implied; drop the models' own URLs. The changed fields as text."""
    base, shared = entry.get("baseUrl"), entry.get("compat")
    shared = shared if isinstance(shared, dict) else {}
    changes = []
    for model in entry.get("models", []):
        place = f"models.json providers.{provider}.models.{model['id']}"
        url = model.pop("baseUrl", None)
        if url is not None:
            changes.append(f"{place}.baseUrl: left out, the provider's holds")
        said = model.get("compat") if isinstance(model.get("compat"), dict) else {}
        url = url if isinstance(url, str) else base if isinstance(base, str) else None
        implied = {k: v for k, v in implied_by_url(provider, url).items() if k not in said and k not in shared}
        if implied:
            model["compat"] = said | implied
        changes += [f"{place}.compat.{key}: {_show(value)} (implied by {url})" for key, value in implied.items()]
    return changes


def _show(value: object) -> str:
    return json.dumps(value)
