"""The smoke gate: every config's first cell keeps its contract, or no batch cell starts."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path

from windtunnel.domain.cell import Cell
from windtunnel.domain.contract import Contract, Verdict, parse_contract
from windtunnel.domain.events import Kind
from windtunnel.domain.outcome import Status
from windtunnel.errors import Drifted, FileDamaged, Paused, SmokeFailed
from windtunnel.steps.bench import Bench, Drain
from windtunnel.steps.drift import require_no_drift, tell_drift
from windtunnel.steps.execute import execute_cell, held_by
from windtunnel.steps.judge import judge
from windtunnel.store.files import sha256_file
from windtunnel.store.results import read_result

__all__ = ["has_valid_result", "smoke"]


async def smoke(bench: Bench, drain: Drain) -> None:
    """Run (or, where the cell is there already, only judge) each config's first cell.

    Raises SmokeFailed with every failed assertion of every config. No model call is made for a stored cell, so the
    same command given again fails again without spending anything.
    """
    slots = asyncio.Semaphore(bench.plan.settings.workers)
    ended = await asyncio.gather(
        *(_one(bench, entry.cell, slots, drain) for entry in bench.plan.preflight), return_exceptions=True
    )
    failed = []
    for one in ended:  # every cell has come to its end before one's error ends the run
        if isinstance(one, BaseException):
            raise one
        if not one[1].passed:
            failed.append(one)
    if failed:
        lines = [_explain(bench, cell, verdict) for cell, verdict in failed]
        raise SmokeFailed("smoke failed; no batch cell was started\n" + "\n".join(lines))


async def _one(bench: Bench, cell: Cell, slots: asyncio.Semaphore, drain: Drain) -> tuple[Cell, Verdict]:
    async with slots:
        if drain.asked.is_set():
            raise Paused(f"{drain.reason}: smoke cell {cell.id} was not started; the same command goes on")
        config = bench.config(cell)
        bench.journal.event(Kind.PREFLIGHT_STARTED, cell=cell.id, config=config.name)
        if has_valid_result(bench, cell):
            bench.journal.line(f"smoke of {config.name}: {cell.id} is stored; judged again without a model call")
        else:
            await _run_first(bench, cell)
        verdict = judge(
            bench.cell_dir(cell),
            plan=bench.plan,
            config=config,
            contract=_contract(bench, cell),
            calls_models=bool(config.roles),
        )
        _report(bench, cell, verdict)
        return cell, verdict


async def _run_first(bench: Bench, cell: Cell) -> None:
    try:
        require_no_drift(bench, cell)
        if await execute_cell(bench, cell) is None and not has_valid_result(bench, cell):
            raise Paused(f"smoke cell {cell.id} is with {held_by(bench, cell)}; the same command goes on later")
    except Drifted as error:
        tell_drift(bench, cell, error)
        raise


def _contract(bench: Bench, cell: Cell) -> Contract | None:
    config = bench.config(cell)
    if config.contract is None:
        return None
    path = bench.run.inputs / config.name / config.contract
    return parse_contract(path.read_bytes(), str(path))


def _report(bench: Bench, cell: Cell, verdict: Verdict) -> None:
    config, path = bench.config(cell).name, str(bench.cell_dir(cell).verdict)
    failed = [f"{a.kind} {a.target}" for a in verdict.assertions if a.passed is False]
    bench.journal.event(Kind.PREFLIGHT_FINISHED, cell=cell.id, config=config, passed=verdict.passed)
    kind = Kind.SMOKE_PASSED if verdict.passed else Kind.SMOKE_FAILED
    bench.journal.event(
        kind, cell=cell.id, config=config, verdict_path=path, verdict_sha256=sha256_file(Path(path)), failed=failed
    )


def _explain(bench: Bench, cell: Cell, verdict: Verdict) -> str:
    lines = [f"  config {cell.config}, cell {cell.id} ({bench.cell_dir(cell).verdict}):"]
    for assertion in verdict.assertions:
        if assertion.passed is False:
            what = f"{assertion.kind} {assertion.target}".strip()
            lines.append(f"    {what}: expected {assertion.expected}; found {assertion.found}")
    return "\n".join(lines)


def has_valid_result(bench: Bench, cell: Cell) -> bool:
    """Whether the tree holds a valid result of exactly this cell identity."""
    with suppress(FileNotFoundError, FileDamaged):
        result = read_result(bench.cell_dir(cell).result)
        return result.outcome.status is Status.VALID and result.identities.cellIdentity == bench.identity(cell)
    return False
