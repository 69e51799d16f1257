"""A plan: what will run, fully resolved, with the identity that a person confirms.

Every field of every struct here belongs to one identity class, named once, in its annotation:

    CELL         in cellIdentity and planIdentity    changes what a cell measures
    PLAN         in planIdentity only                changes what is run, not what a cell measures
    OPERATIONAL  in neither                          where and when

A struct-valued field with class MIXED is walked into. `tests/domain/test_plan.py` fails when a field has none.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import msgspec

from windtunnel.domain.cell import Cell
from windtunnel.domain.digest import identity
from windtunnel.domain.role import Role, Route, Thinking
from windtunnel.domain.task import Limits, Task

__all__ = [
    "MEASUREMENT_VERSION",
    "CellPlan",
    "ConfigFile",
    "ConfigPlan",
    "Difference",
    "Paths",
    "Plan",
    "PreflightPlan",
    "Selection",
    "SubjectPlan",
    "cell_identity",
    "config_fingerprint",
    "identity_class",
    "plan_identity",
]

# Raised by hand when the way a cell is measured changes (driver, collect, judge, usage).
MEASUREMENT_VERSION = 1

_CELL = msgspec.Meta(extra={"identity": "cell"})
_PLAN = msgspec.Meta(extra={"identity": "plan"})
_OPERATIONAL = msgspec.Meta(extra={"identity": "operational"})
_MIXED = msgspec.Meta(extra={"identity": "mixed"})


class SubjectPlan(msgspec.Struct, frozen=True, kw_only=True):
    """`bundle`: content hash of the bundle directory."""

    name: Annotated[str, _CELL]
    version: Annotated[str, _CELL]
    platform: Annotated[str, _CELL]
    bundle: Annotated[str, _CELL]


class ConfigFile(msgspec.Struct, frozen=True, kw_only=True):
    """One file of a config. `path` is relative to the config directory, `/`-separated.

    `reaches_subject` false: smoke contract, config.toml (its meaning is in other fields)."""

    path: Annotated[str, _CELL]
    sha256: Annotated[str, _CELL]
    executable: Annotated[bool, _CELL] = False
    bytes: Annotated[int, _OPERATIONAL] = 0
    reaches_subject: Annotated[bool, _PLAN] = True


class ConfigPlan(msgspec.Struct, frozen=True, kw_only=True):
    """`fingerprint`: hash over the files that reach the subject (path, exec bit, content). `leaf`: chosen leaf
    directory relative to the config, None when the config has none. `contract`: path of the smoke contract file
    relative to the config, or None; `contract_sha256` of its content (`none` without one)."""

    name: Annotated[str, _PLAN]
    directory: Annotated[str, _OPERATIONAL]
    description: Annotated[str, _PLAN] = ""
    fingerprint: Annotated[str, _CELL]
    leaf: Annotated[str | None, _CELL] = None
    files: Annotated[tuple[ConfigFile, ...], _MIXED] = ()
    roles: Annotated[tuple[Role, ...], _CELL] = ()
    routes: Annotated[tuple[Route, ...], _CELL] = ()
    env: Annotated[dict[str, str], _CELL] = {}
    contract: Annotated[str | None, _PLAN] = None
    contract_sha256: Annotated[str, _PLAN] = "none"
    varies: Annotated[tuple[str, ...], _PLAN] = ()


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """One field in which a config differs from the baseline; None where one side has nothing."""

    config: Annotated[str, _PLAN]
    field: Annotated[str, _PLAN]
    baseline: Annotated[str | None, _PLAN]
    here: Annotated[str | None, _PLAN]
    declared: Annotated[bool, _PLAN]


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    kind: Annotated[Literal["tasks", "subset", "range", "all", "sample"], _PLAN]
    tasks: Annotated[tuple[str, ...], _PLAN]
    name: Annotated[str | None, _PLAN] = None
    seed: Annotated[int | None, _PLAN] = None


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What every cell of the run has in common. None means "the task's own"."""

    environment: Annotated[Literal["docker", "local", "plain"], _CELL]
    memory_mb: Annotated[int | None, _CELL] = None
    cpus: Annotated[float | None, _CELL] = None
    pids: Annotated[int | None, _CELL] = None
    agent_timeout_s: Annotated[float | None, _CELL] = None
    verifier_network: Annotated[Literal["none", "public"] | None, _CELL] = None
    measurement_version: Annotated[int, _CELL] = MEASUREMENT_VERSION
    reps: Annotated[int, _PLAN] = 1
    workers: Annotated[int, _PLAN] = 1
    order: Annotated[Literal["interleave", "task", "shuffle"], _PLAN] = "interleave"
    order_seed: Annotated[int, _PLAN] = 0
    preflight: Annotated[Literal["new-configs", "required", "disabled"], _PLAN] = "new-configs"
    existing: Annotated[Literal["reuse", "quarantine"], _PLAN] = "reuse"
    cell_retries: Annotated[int | None, _PLAN] = None
    host_reserve_mb: Annotated[int, _PLAN] = 0
    capture_bodies: Annotated[str, _PLAN] = "first:2"
    allow_unproven_thinking: Annotated[tuple[str, ...], _PLAN] = ()
    probe_credentials: Annotated[bool, _OPERATIONAL] = False
    progress_interval_s: Annotated[float, _OPERATIONAL] = 15.0


class CellPlan(msgspec.Struct, frozen=True, kw_only=True):
    """`state` new: to be run; reuse: a result with an equal identity is there (`result_sha256` of its bytes);
    torn: an unreadable result is set aside and the cell is run."""

    cell: Annotated[Cell, _PLAN]
    state: Annotated[Literal["new", "reuse", "torn"], _OPERATIONAL]
    identity: Annotated[str, _PLAN]
    result_path: Annotated[str, _OPERATIONAL]
    result_sha256: Annotated[str | None, _OPERATIONAL] = None


class PreflightPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The first cell of a config. `stored` true: the cell is there already, its contract is judged on stored
    evidence, without a new model call."""

    cell: Annotated[Cell, _PLAN]
    stored: Annotated[bool, _OPERATIONAL] = False


class Paths(msgspec.Struct, frozen=True, kw_only=True):
    """Absolute host paths."""

    workspace: Annotated[str, _OPERATIONAL]
    results_root: Annotated[str, _OPERATIONAL]
    state_root: Annotated[str, _OPERATIONAL]
    tasks_root: Annotated[str, _OPERATIONAL]
    config_root: Annotated[str, _OPERATIONAL]
    run_dir: Annotated[str, _OPERATIONAL]
    plan_file: Annotated[str, _OPERATIONAL]
    receipt_file: Annotated[str, _OPERATIONAL]


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """The whole. `warnings` and `not_built` are what the receipt shows first and last."""

    schemaVersion: Annotated[int, _PLAN] = 1
    planIdentity: Annotated[str, _OPERATIONAL] = ""
    run_id: Annotated[str, _OPERATIONAL]
    created_at: Annotated[str, _OPERATIONAL]
    command: Annotated[tuple[str, ...], _OPERATIONAL]
    run_command: Annotated[tuple[str, ...], _OPERATIONAL] = ()
    versions: Annotated[dict[str, str | None], _OPERATIONAL]
    host: Annotated[dict[str, str | int | None], _OPERATIONAL]
    subject: Annotated[SubjectPlan, _CELL]
    model: Annotated[str | None, _CELL]
    thinking: Annotated[Thinking, _CELL]
    settings: Annotated[Settings, _MIXED]
    selection: Annotated[Selection, _PLAN]
    baseline: Annotated[str, _PLAN]
    configs: Annotated[tuple[ConfigPlan, ...], _MIXED]
    tasks: Annotated[tuple[Task, ...], _CELL]
    limits: Annotated[dict[str, Limits], _CELL]
    differences: Annotated[tuple[Difference, ...], _PLAN] = ()
    cells: Annotated[tuple[CellPlan, ...], _MIXED]
    preflight: Annotated[tuple[PreflightPlan, ...], _MIXED] = ()
    paths: Annotated[Paths, _OPERATIONAL]
    warnings: Annotated[tuple[str, ...], _OPERATIONAL] = ()


def identity_class(struct: type, field: str) -> str:
    """The identity class of a field: cell, plan, operational or mixed. Raises KeyError when it has none."""
    hint = get_type_hints(struct, include_extras=True)[field]
    for meta in get_args(hint)[1:] if get_origin(hint) is Annotated else ():
        if isinstance(meta, msgspec.Meta) and meta.extra and "identity" in meta.extra:
            return str(meta.extra["identity"])
    raise KeyError(f"{struct.__name__}.{field} has no identity class")


def _select(value: Any, classes: frozenset[str]) -> Any:
    """The part of a value that belongs to the given classes; structs of one class are taken whole."""
    if isinstance(value, tuple):
        return [_select(item, classes) for item in value]
    if not isinstance(value, msgspec.Struct):
        return value
    kept: dict[str, Any] = {}
    for name in value.__struct_fields__:
        kind = identity_class(type(value), name)
        if kind == "mixed":
            kept[name] = _select(getattr(value, name), classes)
        elif kind in classes:
            kept[name] = getattr(value, name)
    return kept


def plan_identity(plan: Plan) -> str:
    """`sha256:` over everything that is not operational."""
    return identity(_select(plan, frozenset({"cell", "plan"})))


def config_fingerprint(files: tuple[ConfigFile, ...]) -> str:
    """Hash over the config files that reach the subject: path, exec bit, content."""
    reaching = [f for f in files if f.reaches_subject]
    return identity([[f.path, f.sha256, f.executable] for f in sorted(reaching, key=lambda f: f.path)])


def cell_identity(plan: Plan, config: ConfigPlan, task: Task) -> str:
    """`sha256:` over all that a cell of this config and task measures; its rep is not part of it."""
    chosen = msgspec.structs.replace(
        plan, configs=(config,), tasks=(task,), limits={task.id: plan.limits[task.id]}, cells=(), preflight=()
    )
    document = _select(chosen, frozenset({"cell"}))
    for files in document["configs"]:
        del files["files"]  # the fingerprint stands for them; files that never reach the subject must not count
    return identity(document)
