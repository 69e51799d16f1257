"""Who calls a model (role) and how the call reaches its provider (route)."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

import msgspec

__all__ = ["EXECUTOR", "Bounds", "Role", "Route", "Thinking"]

EXECUTOR = "executor"


class Thinking(StrEnum):
    """A reasoning level as people ask for it; what the wire carries is another matter."""

    OFF = "off"
    MINIMAL = "minimal"
    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"
    XHIGH = "xhigh"
    MAX = "max"


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """How a role reaches its provider. `credential` is the NAME of a host environment variable, never a value.

    kind `http`: `base_url` is the provider's, e.g. `https://api.example.com/v1`. kind `replay`: the replay
    provider with the script whose content hash is `script_sha256`; `script` is its path relative to the config
    directory, `base_url` is None. `credential_path` `gateway`: the credential never enters the container.
    """

    name: str
    kind: Literal["http", "replay"] = "http"
    dialect: Literal["openai-completions"] = "openai-completions"
    base_url: str | None = None
    credential: str | None = None
    credential_path: Literal["gateway"] = "gateway"
    script: str | None = None
    script_sha256: str | None = None


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
    """What a role may use per attempt; None is unbounded. Tokens are input plus output."""

    max_calls: int | None = None
    max_tokens: int | None = None
    max_concurrency: int | None = None


class Role(msgspec.Struct, frozen=True, kw_only=True):
    """One caller of a model. `model` is the id the provider is asked for (without the provider)."""

    name: str
    provider: str
    model: str
    thinking: Thinking
    route: str
    billing: Literal["local", "paid", "subscription"] = "paid"
    bounds: Bounds = Bounds()
    activation: Literal["required", "model-directed"] = "required"
    usage_source: Literal["wire"] = "wire"
