"""manifest.json: what a run is, written once; confirmation.json: a person's yes to exactly that."""

from __future__ import annotations

from typing import Literal

import msgspec

from windtunnel.domain.plan import CellPlan, Plan, Selection
from windtunnel.domain.role import Role
from windtunnel.domain.task import Limits

__all__ = [
    "Confirmation",
    "Launched",
    "Manifest",
    "ManifestCell",
    "ManifestPreflight",
    "ManifestResources",
    "ManifestSubject",
    "manifest_of",
]


class Confirmation(msgspec.Struct, frozen=True, kw_only=True):
    """`time`: UTC, ms, Z. `how`: `flag` (--confirm), `terminal` (the digits typed), `yes` (--yes)."""

    schemaVersion: int = 1
    identity: str
    time: str
    operator: str
    how: Literal["flag", "terminal", "yes"]


class ManifestSubject(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    version: str
    bundle: str


class ManifestCell(msgspec.Struct, frozen=True, kw_only=True):
    """`log_path`: the directory with the cell's logs (through `current`)."""

    cell_id: str
    task: str
    config: str
    rep: int
    result_path: str
    log_path: str


class ManifestPreflight(msgspec.Struct, frozen=True, kw_only=True):
    """`contract`: the smoke contract's path in the config, None: generic checks only. `stored`: judged on what is
    there, without a new model call."""

    cell_id: str
    config: str
    contract: str | None
    stored: bool


class ManifestResources(msgspec.Struct, frozen=True, kw_only=True):
    """`limits`: ceilings of one subject container, by task."""

    limits: dict[str, Limits]
    host_reserve_mb: int


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """Spec page 6. `watchdog`: the decision that the plan took, None where the plan has none."""

    schemaVersion: int = 1
    run_id: str
    plan_identity: str
    created_at: str
    command: tuple[str, ...]
    cwd: str
    host: str
    boot_id: str
    pid: int
    windtunnel_version: str
    git_revision: str | None
    subject: ManifestSubject
    model: str | None
    thinking: str
    configs: tuple[str, ...]
    selection: Selection
    reps: int
    workers: int
    progress_interval_s: float
    results_root: str
    state_root: str
    workspace: str
    roles: dict[str, tuple[Role, ...]]
    resources: ManifestResources
    watchdog: str | None = None
    cells: tuple[ManifestCell, ...]
    preflight: tuple[ManifestPreflight, ...]


class Launched(msgspec.Struct, frozen=True, kw_only=True):
    """The process that starts the run; `created_at`: UTC, ms, Z."""

    created_at: str
    command: tuple[str, ...]
    cwd: str
    host: str
    boot_id: str
    pid: int
    windtunnel_version: str
    git_revision: str | None = None


def _cell(planned: CellPlan) -> ManifestCell:
    cell = planned.cell
    return ManifestCell(
        cell_id=cell.id,
        task=cell.task,
        config=cell.config,
        rep=cell.rep,
        result_path=planned.result_path,
        log_path=planned.result_path.rpartition("/")[0] + "/logs",
    )


def manifest_of(plan: Plan, launched: Launched) -> Manifest:
    """The manifest of a plan that the given process starts."""
    executed = [config for config in plan.configs if config.executed]
    contracts = {config.name: config.contract for config in plan.configs}
    return Manifest(
        run_id=plan.run_id,
        plan_identity=plan.planIdentity,
        **msgspec.structs.asdict(launched),
        subject=ManifestSubject(name=plan.subject.name, version=plan.subject.version, bundle=plan.subject.bundle),
        model=plan.model,
        thinking=plan.thinking,
        configs=tuple(config.name for config in executed),
        selection=plan.selection,
        reps=plan.settings.reps,
        workers=plan.settings.workers,
        progress_interval_s=plan.settings.progress_interval_s,
        results_root=plan.paths.results_root,
        state_root=plan.paths.state_root,
        workspace=plan.paths.workspace,
        roles={config.name: config.roles for config in executed},
        resources=ManifestResources(limits=plan.limits, host_reserve_mb=plan.settings.host_reserve_mb),
        cells=tuple(_cell(planned) for planned in plan.cells),
        preflight=tuple(
            ManifestPreflight(
                cell_id=entry.cell.id,
                config=entry.cell.config,
                contract=contracts.get(entry.cell.config),
                stored=entry.stored,
            )
            for entry in plan.preflight
        ),
    )
