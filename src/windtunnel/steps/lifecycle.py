"""The run's own story: recover, preflight, smoke, fan-out, and the event that ends it."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress

from windtunnel.domain.cell import Cell, model_leaf
from windtunnel.domain.events import Kind
from windtunnel.errors import Drifted, Paused, PreflightFailed, SmokeFailed, Stopped, WindtunnelError
from windtunnel.steps.bench import Bench, Drain
from windtunnel.steps.fan_out import fan_out
from windtunnel.steps.preflight import preflight
from windtunnel.steps.resume import recover, skip_reused
from windtunnel.steps.smoke import has_valid_result, smoke
from windtunnel.store.index import rebuild_index
from windtunnel.store.run_seal import seal_run

__all__ = ["run"]


async def run(bench: Bench, drain: Drain, *, resumed: bool) -> None:
    """Run a confirmed plan to its end. Raises what stopped it; the event log has it either way."""
    bench.journal.event(Kind.RUN_RESUMED if resumed else Kind.RUN_STARTED)
    try:
        await recover(bench)
        skip_reused(bench)
        await preflight(bench, _to_run(bench))
        await smoke(bench, drain)
        await fan_out(bench, _to_run(bench), drain)
    except BaseException as error:
        await _to_the_end(_end(bench, error))
        raise
    await _to_the_end(_end(bench, None))


async def _to_the_end(ending: Coroutine[object, object, None]) -> None:
    """Ending a run is not stopped by another signal: what is half cleaned up would be left for good."""
    task = asyncio.create_task(ending)
    while not task.done():
        with suppress(asyncio.CancelledError):
            await asyncio.shield(task)
    task.result()


def _to_run(bench: Bench) -> list[Cell]:
    """Planned cells that have no valid result yet, in the plan's order."""
    new = [planned.cell for planned in bench.plan.cells if planned.state != "reuse"]
    return [cell for cell in new if not has_valid_result(bench, cell)]


async def _end(bench: Bench, error: BaseException | None) -> None:
    """Clean-up is part of the run: nothing of ours is left when the last event says that it ended."""
    for line in await bench.settle():
        bench.journal.line(line)
    bench.save_pins()
    leaf = bench.results_root / model_leaf(bench.plan.model) / bench.plan.thinking
    if leaf.is_dir():
        rebuild_index(leaf)
    match error:
        case None:
            bench.journal.event(Kind.RUN_COMPLETED)
        case SmokeFailed():
            bench.journal.event(Kind.RUN_FAILED, reason="smoke", detail=error.message)
        case PreflightFailed():
            bench.journal.event(Kind.RUN_FAILED, reason="preflight", detail=error.message)
        case Drifted():
            bench.journal.event(Kind.RUN_PAUSED, reason="drift", detail=error.message)
        case Stopped():
            bench.journal.event(Kind.RUN_FAILED, reason="breaker", detail=error.message)
        case Paused() | asyncio.CancelledError():
            bench.journal.event(Kind.RUN_PAUSED, reason="stop", detail=str(error))
        case OSError(errno=28):
            bench.journal.event(Kind.RUN_HALTED, reason="disk_full", detail=str(error))
        case WindtunnelError():
            bench.journal.event(Kind.RUN_FAILED, reason="input", detail=error.message)
        case _:
            bench.journal.event(Kind.RUN_FAILED, reason="bug", detail=f"{type(error).__name__}: {error}")
    seal_run(bench.run, bench.plan.run_id)
