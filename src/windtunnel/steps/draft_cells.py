"""The cells of a plan: their order, what is there already, and each config's first cell."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

from windtunnel.domain.cell import Cell, model_leaf
from windtunnel.domain.contract import Verdict
from windtunnel.domain.outcome import Status
from windtunnel.domain.plan import CellIdentities, CellPlan, ConfigPlan, Plan, PreflightPlan
from windtunnel.domain.result import Result
from windtunnel.errors import FileDamaged, InputWrong
from windtunnel.steps.draft_stored import Differing, differing, look
from windtunnel.store.files import read_json, sha256_file
from windtunnel.store.layout import CellDir, cell_dir

__all__ = ["draft_cells", "draft_preflight", "ordered"]

_SHOWN = 3


def ordered(plan: Plan) -> list[Cell]:
    """Every cell in the order of `--order`; the seed decides, not the selection around a block.

    interleave: blocks of (task, rep), configs shuffled inside, so that the sides of a pair run close together.
    task: task by task, config by config. shuffle: all of them.
    """
    names = [config.name for config in plan.configs if config.executed]
    order, seed, reps = plan.settings.order, plan.settings.order_seed, range(plan.settings.reps)
    if order == "interleave":
        blocks = ((task.id, rep) for task in plan.tasks for rep in reps)
        return [cell for task, rep in blocks for cell in _block(names, task, rep, seed)]
    cells = [Cell(task=t.id, config=c, rep=r) for t in plan.tasks for c in names for r in reps]
    if order == "shuffle":
        random.Random(seed).shuffle(cells)
    return cells


def _block(names: list[str], task: str, rep: int, seed: int) -> Iterator[Cell]:
    shuffled = list(names)
    random.Random(f"{seed}\0{task}\0{rep}").shuffle(shuffled)
    return (Cell(task=task, config=name, rep=rep) for name in shuffled)


def draft_cells(plan: Plan) -> tuple[CellPlan, ...]:
    """Every cell with its state. Raises InputWrong when a stored result has another identity and may not be moved."""
    identities = CellIdentities(plan)
    configs = {config.name: config for config in plan.configs}
    tasks = {task.id: task for task in plan.tasks}
    by_pair = {(c.name, t.id): identities.of(c, t) for c in plan.configs if c.executed for t in plan.tasks}
    root = Path(plan.paths.results_root)
    cells, conflicts = [], []
    for cell in ordered(plan):
        wanted = by_pair[cell.config, cell.task]
        path = cell_dir(root, plan.model, plan.thinking, cell).result
        planned, other = _with_state(cell, wanted, path, plan)
        cells.append(planned)
        if other is not None:
            conflicts.append((cell, path, other))
    if conflicts and plan.settings.existing != "quarantine":
        told = [
            (path, differing(plan, configs[cell.config], tasks[cell.task], cell, result))
            for cell, path, result in conflicts[:_SHOWN]
        ]
        raise InputWrong(_refusal(told, len(conflicts)))
    return tuple(cells)


def _with_state(cell: Cell, wanted: str, path: Path, plan: Plan) -> tuple[CellPlan, Result | None]:
    """The planned cell, and the stored result when it belongs to another identity."""
    stored = look(path)
    result = stored.result if stored else None
    if stored is None:
        return CellPlan(cell=cell, state="new", identity=wanted, result_path=str(path)), None
    if result is None:
        return CellPlan(cell=cell, state="torn", identity=wanted, result_path=str(path)), None
    same_address = (result.task, result.config, result.rep) == (cell.task, cell.config, cell.rep)
    if result.identities.cellIdentity != wanted or not same_address:
        return CellPlan(cell=cell, state="quarantine", identity=wanted, result_path=str(path)), result
    if result.outcome.status is not Status.VALID:
        return CellPlan(cell=cell, state="new", identity=wanted, result_path=str(path)), None
    reused = CellPlan(cell=cell, state="reuse", identity=wanted, result_path=str(path), result_sha256=stored.sha256)
    return reused, None


def _refusal(told: list[tuple[Path, Differing]], count: int) -> str:
    regrade = all(found.verifier_alone for _, found in told)
    lines = [f"{count} planned cells hold results of another identity; they are neither reused nor overwritten:"]
    lines += [f"  {path}: {'; '.join(found.lines)}" for path, found in told]
    if count > len(told):
        lines.append(f"  ... and {count - len(told)} more")
    if regrade:
        lines.append("Only the verifier changed: regrading stored work would do, but `regrade` is not built yet.")
    lines.append("Use another --results-root, or --existing quarantine (moves them aside when the run starts).")
    return "\n".join(lines)


def draft_preflight(plan: Plan) -> tuple[PreflightPlan, ...]:
    """The first cell of each config that needs one, by `--preflight`; a stored valid cell is taken first."""
    policy = plan.settings.preflight
    if policy == "disabled":
        return ()
    executed = [config for config in plan.configs if config.executed]
    wanting = [c for c in executed if policy == "required" or not _has_passed(plan, c)]
    return tuple(_first_cell(plan, config) for config in wanting)


def _first_cell(plan: Plan, config: ConfigPlan) -> PreflightPlan:
    candidates = sorted(
        (planned for planned in plan.cells if planned.cell.config == config.name and planned.cell.rep == 0),
        key=lambda planned: (planned.state != "reuse", planned.cell.task),
    )
    first = candidates[0]
    return PreflightPlan(cell=first.cell, stored=first.state == "reuse")


def _has_passed(plan: Plan, config: ConfigPlan) -> bool:
    """Whether any stored cell of this config holds a passed verdict for what would run now."""
    top = Path(plan.paths.results_root) / model_leaf(plan.model) / plan.thinking / config.name
    moved = {Path(p.result_path).parent for p in plan.cells if p.state == "quarantine"}
    if not top.is_dir():
        return False
    cells = (CellDir(task / "rep0") for task in sorted(top.iterdir()) if task / "rep0" not in moved)
    return any(_is_passed(cell, plan, config) for cell in cells)


def _is_passed(cell: CellDir, plan: Plan, config: ConfigPlan) -> bool:
    try:
        verdict = read_json(cell.verdict, Verdict)
        judged = sha256_file(cell.result)
    except (FileDamaged, OSError):
        return False
    now = (config.fingerprint, plan.subject.bundle, plan.model, str(plan.thinking), config.contract_sha256)
    then = (
        verdict.config_fingerprint,
        verdict.subject_bundle,
        verdict.model,
        verdict.thinking,
        verdict.contract_sha256,
    )
    return verdict.passed and then == now and verdict.result_sha256 in {None, judged}
