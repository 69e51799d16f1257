"""Fan-out: the batch's cells through a fixed number of workers; a failed cell never cancels another one."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field

from windtunnel.domain.breaker import Breaker
from windtunnel.domain.cell import Cell
from windtunnel.domain.events import Kind
from windtunnel.errors import Drifted, Paused, Stopped, WindtunnelError
from windtunnel.steps.bench import Bench, Drain
from windtunnel.steps.drift import require_no_drift, tell_drift
from windtunnel.steps.execute import execute_cell, held_by
from windtunnel.steps.smoke import has_valid_result

__all__ = ["fan_out"]


@dataclass
class _Batch:
    bench: Bench
    waiting: deque[Cell]
    drain: Drain
    breaker: Breaker = field(default_factory=Breaker)
    stop: WindtunnelError | None = None
    claimed: list[Cell] = field(default_factory=list)


async def fan_out(bench: Bench, cells: list[Cell], drain: Drain) -> None:
    """Run the cells. Raises Drifted or Stopped (breaker) after the running cells ended, Paused when drained."""
    bench.journal.event(Kind.FANOUT_STARTED, cells=len(cells))
    batch = _Batch(bench, deque(cells), drain)
    workers = min(bench.plan.settings.workers, len(cells))
    ended = await asyncio.gather(*(_work(batch) for _ in range(workers)), return_exceptions=True)
    for error in ended:  # every worker has come to its end before one's error ends the run
        if isinstance(error, BaseException):
            raise error
    if batch.stop is not None:
        raise batch.stop
    if drain.asked.is_set() and batch.waiting:
        raise Paused(f"{drain.reason}: {len(batch.waiting)} cells not started; the same command goes on")
    left = [cell for cell in batch.claimed if not _skipped(bench, cell)]
    if left:
        raise Paused(
            f"{len(left)} cells are with another run ({held_by(bench, left[0])}); the same command goes on later"
        )


async def _work(batch: _Batch) -> None:
    while batch.waiting and batch.stop is None and not batch.drain.asked.is_set():
        cell = batch.waiting.popleft()
        try:
            await _one(batch, cell)
        except Drifted as error:
            batch.stop = error
            tell_drift(batch.bench, cell, error)
        except OSError as error:
            # Ours, not the cell's (a log that cannot be written): no worker may start another cell on it.
            batch.stop = Stopped(f"{error.filename or 'disk'}: {error.strerror}; make room or mend it, and go on")


def _skipped(bench: Bench, cell: Cell) -> bool:
    """Whether another run has finished the cell by now; it is told then."""
    if not has_valid_result(bench, cell):
        return False
    bench.journal.event(Kind.CELL_SKIPPED, cell=cell.id, reason="finished elsewhere")
    return True


async def _one(batch: _Batch, cell: Cell) -> None:
    bench = batch.bench
    if _skipped(bench, cell):
        return
    require_no_drift(bench, cell)
    result = await execute_cell(bench, cell)
    if result is None:
        batch.claimed.append(cell)
        return
    why = batch.breaker.note(result.outcome)
    if why is not None and batch.stop is None:
        bench.journal.event(Kind.BREAKER_OPENED, reason=why)
        batch.stop = Stopped(f"breaker opened: {why}. Fix the cause and give the same command again.")
