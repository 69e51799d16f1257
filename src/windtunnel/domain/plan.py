"""A plan: what will run, fully resolved, with the identity that a person confirms.

Every field of every struct here belongs to one identity class, named once, in its annotation:

    CELL         in cellIdentity and planIdentity    changes what a cell measures
    PLAN         in planIdentity only                changes what is run, not what a cell measures
    OPERATIONAL  in neither                          where and when

A struct-valued field with class MIXED is walked into. `tests/domain/test_plan.py` fails when a field has none.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from windtunnel.domain.cell import Cell
from windtunnel.domain.digest import identity
from windtunnel.domain.identity import CELL, MIXED, OPERATIONAL, PLAN, identity_class, select
from windtunnel.domain.role import Role, Route, Thinking
from windtunnel.domain.task import Limits, Task

__all__ = [
    "MEASUREMENT_VERSION",
    "CellIdentities",
    "CellPlan",
    "ConfigFile",
    "ConfigPlan",
    "Difference",
    "EnvironmentPlan",
    "Paths",
    "Plan",
    "PreflightPlan",
    "Selection",
    "Settings",
    "SubjectPlan",
    "cell_document",
    "cell_identity",
    "config_fingerprint",
    "identity_class",
    "plan_identity",
]

# Raised by hand when the way a cell is measured changes (driver, collect, judge, usage).
MEASUREMENT_VERSION = 1


class SubjectPlan(msgspec.Struct, frozen=True, kw_only=True):
    """`bundle`: content hash of the bundle directory."""

    name: Annotated[str, CELL]
    version: Annotated[str, CELL]
    platform: Annotated[str, CELL]
    bundle: Annotated[str, CELL]


class EnvironmentPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What the chosen environment said about itself at planning; its name is in Settings. None: it was not asked."""

    version: Annotated[str | None, OPERATIONAL] = None
    isolation: Annotated[str | None, OPERATIONAL] = None
    memory_enforced_by: Annotated[str | None, OPERATIONAL] = None


class ConfigFile(msgspec.Struct, frozen=True, kw_only=True):
    """One file of a config. `path` is relative to the config directory, `/`-separated.

    `reaches_subject` false: smoke contract, config.toml (its meaning is in other fields)."""

    path: Annotated[str, CELL]
    sha256: Annotated[str, CELL]
    executable: Annotated[bool, CELL] = False
    bytes: Annotated[int, OPERATIONAL] = 0
    reaches_subject: Annotated[bool, PLAN] = True


class ConfigPlan(msgspec.Struct, frozen=True, kw_only=True):
    """`fingerprint`: hash over the files that reach the subject (path, exec bit, content). `leaf`: chosen leaf
    directory relative to the config, None when the config has none. `contract`: path of the smoke contract file
    relative to the config, or None; `contract_sha256` of its content (`none` without one). `executed` false: a
    baseline that is described and compared with, but has no cells here. `unused`: files that nothing reads.
    `overlay`: what the harness changes in the config's own files on the way to the subject, a line a field."""

    name: Annotated[str, PLAN]
    directory: Annotated[str, OPERATIONAL]
    description: Annotated[str, PLAN] = ""
    fingerprint: Annotated[str, CELL]
    leaf: Annotated[str | None, CELL] = None
    files: Annotated[tuple[ConfigFile, ...], MIXED] = ()
    roles: Annotated[tuple[Role, ...], MIXED] = ()
    routes: Annotated[tuple[Route, ...], MIXED] = ()
    env: Annotated[dict[str, str], CELL] = {}
    contract: Annotated[str | None, PLAN] = None
    contract_sha256: Annotated[str, PLAN] = "none"
    varies: Annotated[tuple[str, ...], PLAN] = ()
    executed: Annotated[bool, PLAN] = True
    unused: Annotated[tuple[str, ...], OPERATIONAL] = ()
    overlay: Annotated[tuple[str, ...], PLAN] = ()


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """One field in which a config differs from the baseline; None where one side has nothing."""

    config: Annotated[str, PLAN]
    field: Annotated[str, PLAN]
    baseline: Annotated[str | None, PLAN]
    here: Annotated[str | None, PLAN]
    declared: Annotated[bool, PLAN]


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    kind: Annotated[Literal["tasks", "subset", "range", "all", "sample"], PLAN]
    tasks: Annotated[tuple[str, ...], PLAN]
    name: Annotated[str | None, PLAN] = None
    seed: Annotated[int | None, PLAN] = None


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What every cell of the run has in common. None means "the task's own"."""

    environment: Annotated[Literal["docker", "local", "plain"], CELL]
    memory_mb: Annotated[int | None, CELL] = None
    cpus: Annotated[float | None, CELL] = None
    pids: Annotated[int | None, CELL] = None
    agent_timeout_s: Annotated[float | None, CELL] = None
    verifier_network: Annotated[Literal["none", "public"] | None, CELL] = None
    measurement_version: Annotated[int, CELL] = MEASUREMENT_VERSION
    reps: Annotated[int, PLAN] = 1
    workers: Annotated[int, PLAN] = 1
    order: Annotated[Literal["interleave", "task", "shuffle"], PLAN] = "interleave"
    order_seed: Annotated[int, PLAN] = 0
    preflight: Annotated[Literal["new-configs", "required", "disabled"], PLAN] = "new-configs"
    existing: Annotated[Literal["reuse", "quarantine"], PLAN] = "reuse"
    cell_retries: Annotated[int | None, PLAN] = None
    host_reserve_mb: Annotated[int, PLAN] = 0
    capture_bodies: Annotated[str, PLAN] = "first:2"
    allow_openrouter: Annotated[bool, PLAN] = False
    allow_unproven_thinking: Annotated[tuple[str, ...], PLAN] = ()
    probe_credentials: Annotated[bool, OPERATIONAL] = False
    progress_interval_s: Annotated[float, OPERATIONAL] = 15.0


class CellPlan(msgspec.Struct, frozen=True, kw_only=True):
    """`state` new: to be run; reuse: a result with an equal identity is there (`result_sha256` of its bytes);
    torn: an unreadable result is set aside and the cell is run; quarantine: a result of another identity is moved
    to the quarantine and the cell is run. `identity`: the cellIdentity."""

    cell: Annotated[Cell, PLAN]
    state: Annotated[Literal["new", "reuse", "torn", "quarantine"], OPERATIONAL]
    identity: Annotated[str, PLAN]
    result_path: Annotated[str, OPERATIONAL]
    result_sha256: Annotated[str | None, OPERATIONAL] = None


class PreflightPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The first cell of a config. `stored` true: the cell is there already, its contract is judged on stored
    evidence, without a new model call."""

    cell: Annotated[Cell, PLAN]
    stored: Annotated[bool, OPERATIONAL] = False


class Paths(msgspec.Struct, frozen=True, kw_only=True):
    """Absolute host paths."""

    workspace: Annotated[str, OPERATIONAL]
    results_root: Annotated[str, OPERATIONAL]
    state_root: Annotated[str, OPERATIONAL]
    tasks_root: Annotated[str, OPERATIONAL]
    config_root: Annotated[str, OPERATIONAL]
    run_dir: Annotated[str, OPERATIONAL]
    plan_file: Annotated[str, OPERATIONAL]
    receipt_file: Annotated[str, OPERATIONAL]


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """The whole. `warnings` and `not_built` are what the receipt shows first and last."""

    schemaVersion: Annotated[int, PLAN] = 1
    planIdentity: Annotated[str, OPERATIONAL] = ""
    run_id: Annotated[str, OPERATIONAL]
    created_at: Annotated[str, OPERATIONAL]
    command: Annotated[tuple[str, ...], OPERATIONAL]
    run_command: Annotated[tuple[str, ...], OPERATIONAL] = ()
    versions: Annotated[dict[str, str | None], OPERATIONAL]
    host: Annotated[dict[str, str | int | None], OPERATIONAL]
    environment: Annotated[EnvironmentPlan, OPERATIONAL] = EnvironmentPlan()
    subject: Annotated[SubjectPlan, CELL]
    model: Annotated[str | None, CELL]
    thinking: Annotated[Thinking, CELL]
    settings: Annotated[Settings, MIXED]
    selection: Annotated[Selection, PLAN]
    baseline: Annotated[str, PLAN]
    configs: Annotated[tuple[ConfigPlan, ...], MIXED]
    tasks: Annotated[tuple[Task, ...], MIXED]
    limits: Annotated[dict[str, Limits], CELL]
    differences: Annotated[tuple[Difference, ...], PLAN] = ()
    cells: Annotated[tuple[CellPlan, ...], MIXED]
    preflight: Annotated[tuple[PreflightPlan, ...], MIXED] = ()
    paths: Annotated[Paths, OPERATIONAL]
    warnings: Annotated[tuple[str, ...], OPERATIONAL] = ()


_CELL_FIELDS = frozenset({"cell"})


def plan_identity(plan: Plan) -> str:
    """`sha256:` over everything that is not operational."""
    return identity(select(plan, frozenset({"cell", "plan"})))


def config_fingerprint(files: tuple[ConfigFile, ...]) -> str:
    """Hash over the config files that reach the subject: path, exec bit, content."""
    reaching = [f for f in files if f.reaches_subject]
    return identity([[f.path, f.sha256, f.executable] for f in sorted(reaching, key=lambda f: f.path)])


def _shared_document(plan: Plan) -> dict[str, Any]:
    alone = msgspec.structs.replace(plan, configs=(), tasks=(), limits={}, cells=(), preflight=())
    return {k: v for k, v in select(alone, _CELL_FIELDS).items() if k not in {"configs", "tasks", "limits"}}


def _config_document(config: ConfigPlan) -> dict[str, Any]:
    # The fingerprint stands for the files; files that never reach the subject must not count.
    document: dict[str, Any] = select(config, _CELL_FIELDS)
    return {k: v for k, v in document.items() if k != "files"}


def cell_document(plan: Plan, config: ConfigPlan, task: Task) -> dict[str, Any]:
    """All that a cell of this config and task measures, by name; cellIdentity is the hash over its four parts."""
    return {
        "shared": _shared_document(plan),
        "config": _config_document(config),
        "task": select(task, _CELL_FIELDS),
        "limits": plan.limits[task.id],
    }


class CellIdentities:
    """cellIdentity of many cells of one plan: what a config, a task and all cells share is hashed once each."""

    def __init__(self, plan: Plan) -> None:
        self._limits = plan.limits
        self._shared = identity(_shared_document(plan))
        self._configs: dict[str, str] = {}
        self._tasks: dict[str, tuple[str, str]] = {}

    def of(self, config: ConfigPlan, task: Task) -> str:
        """`sha256:` over all that a cell of this config and task measures; its rep is not part of it."""
        if config.name not in self._configs:
            self._configs[config.name] = identity(_config_document(config))
        if task.id not in self._tasks:
            self._tasks[task.id] = identity(select(task, _CELL_FIELDS)), identity(self._limits[task.id])
        task_part, limits = self._tasks[task.id]
        return identity(
            {"shared": self._shared, "config": self._configs[config.name], "task": task_part, "limits": limits}
        )


def cell_identity(plan: Plan, config: ConfigPlan, task: Task) -> str:
    """One cellIdentity; use CellIdentities for many."""
    return CellIdentities(plan).of(config, task)
