"""What a person asked for: every flag of `windtunnel plan`, checked for shape, with paths made absolute."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from windtunnel.domain.role import Thinking

__all__ = ["Facts", "Request"]


@dataclass(frozen=True, kw_only=True)
class Request:
    """The flags. `thinking` None: the default (high with a model, off without). `baseline` None: the first config.
    `plan_file` and `receipt_file` are where the plan is written. `sample_seed` goes with `sample`.
    `credential_paths`: the routes that --credential-path names (each of them is to be `gateway`)."""

    command: tuple[str, ...]
    run_id: str
    configs: tuple[str, ...]
    environment: Literal["docker", "local", "plain"]
    workspace: Path
    config_root: Path
    tasks_root: Path
    results_root: Path
    state_root: Path
    plan_file: Path
    receipt_file: Path
    model: str | None = None
    thinking: Thinking | None = None
    baseline: str | None = None
    leaves: Mapping[str, str] = field(default_factory=dict)
    tasks: tuple[str, ...] = ()
    subset: Path | None = None
    span: str | None = None
    all_tasks: bool = False
    sample: int | None = None
    sample_seed: int | None = None
    reps: int = 1
    workers: int = 1
    memory_mb: int | None = None
    cpus: float | None = None
    pids: int | None = None
    agent_timeout_s: float | None = None
    verifier_network: Literal["none", "public"] | None = None
    host_reserve_gb: float | None = None
    preflight: Literal["new-configs", "required", "disabled"] = "new-configs"
    existing: Literal["reuse", "quarantine"] = "reuse"
    cell_retries: int | None = None
    order: Literal["interleave", "task", "shuffle"] = "interleave"
    order_seed: int = 0
    capture_bodies: str = "first:2"
    allow_openrouter: bool = False
    allow_unproven_thinking: tuple[str, ...] = ()
    credential_paths: tuple[str, ...] = ()
    progress_interval_s: float = 15.0


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What planning may know about the world. `environ` is only asked whether a variable is set and looks right;
    `bundle` is the content hash of the subject's bundle; `now`: UTC text; `memory_mb`: this host's RAM."""

    environ: Mapping[str, str]
    now: str
    memory_mb: int
    cpus: int | None
    platform: str
    bundle: str
    versions: Mapping[str, str | None]
