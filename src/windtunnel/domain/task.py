"""A task in the Harbor format, resolved: every default filled in, every unsupported wish refused by name.

`parse_task` lives in `task_toml.py`; here are the values the rest of the house works with.
Source of keys and defaults: the Harbor task format, schema 1.0 to 1.4.
"""

from __future__ import annotations

from typing import Literal

import msgspec

__all__ = ["Artifact", "CollectHook", "HandOver", "Healthcheck", "ImageSource", "Limits", "Network", "Task"]

Network = Literal["none", "public"]
HandOver = Literal["artifacts", "snapshot"]


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Ceilings of one container. `storage_mb` is polled, not enforced by the engine."""

    memory_mb: int | None = None
    cpus: float | None = None
    pids: int = 4096
    storage_mb: int | None = None


class Healthcheck(msgspec.Struct, frozen=True, kw_only=True):
    command: str
    interval_s: float = 5.0
    timeout_s: float = 30.0
    start_period_s: float = 0.0
    start_interval_s: float = 5.0
    retries: int = 3


class CollectHook(msgspec.Struct, frozen=True, kw_only=True):
    """A command of the task's author that runs after the agent and before grading."""

    command: str
    timeout_s: float = 60.0
    user: str | None = None


class Artifact(msgspec.Struct, frozen=True, kw_only=True):
    """A path in the agent's container that crosses to a separate verifier."""

    source: str
    destination: str | None = None
    exclude: tuple[str, ...] = ()


class ImageSource(msgspec.Struct, frozen=True, kw_only=True):
    """Where an image comes from: a reference to pull, or a build context below the task folder.

    `reference`: digest or tag to pull, None when built. `context`: folder relative to the task (its hash is
    `context_hash`, `base` its FROM reference), None when pulled.
    """

    reference: str | None = None
    context: str | None = None
    context_hash: str | None = None
    base: str | None = None

    @property
    def label(self) -> str:
        """What the plan shows and hashes: the pull reference, or context hash plus base reference."""
        if self.reference is not None:
            return self.reference
        return f"build:{self.context_hash}+{self.base}"


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """One problem. `id` is its folder's name below the tasks root.

    Paths are the container's. `agent_timeout_s` None means the task sets no limit. `hand_over`: `artifacts`
    when the verifier is a container of its own (only declared artifacts cross), `snapshot` in shared mode.
    `task_revision` covers instruction, environment/ and task.toml without `[verifier]`; `verifier_revision`
    covers tests/ and `[verifier]`; solution/ is in neither.
    """

    id: str
    name: str | None = None
    schema_version: str = "1.4"
    task_revision: str
    verifier_revision: str
    image: ImageSource
    verifier_image: ImageSource | None = None
    build_timeout_s: float = 600.0
    hand_over: HandOver = "snapshot"
    workdir: str | None = None
    env: dict[str, str] = {}
    verifier_env: dict[str, str] = {}
    solution_env: dict[str, str] = {}
    agent_user: str | None = None
    verifier_user: str | None = None
    agent_network: Network = "public"
    verifier_network: Network = "public"
    agent_timeout_s: float | None = None
    verifier_timeout_s: float = 600.0
    limits: Limits = Limits()
    verifier_limits: Limits = Limits()
    collect: tuple[CollectHook, ...] = ()
    pre_artifacts: bool = False
    artifacts: tuple[Artifact, ...] = ()
    healthcheck: Healthcheck | None = None
    reward_range: tuple[float, float] = (0.0, 1.0)
    local: bool = False
    warnings: tuple[str, ...] = ()
