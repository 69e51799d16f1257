"""Resume: put the tree in order after a run that ended at any instant, before anything new starts.

What still runs of a dead supervisor is ended (`container_lost`); its attempts keep their directories and logs.
"""

from __future__ import annotations

from contextlib import suppress

from windtunnel.domain.cell import Cell
from windtunnel.domain.events import Kind
from windtunnel.domain.result import AttemptRecord
from windtunnel.errors import FileDamaged
from windtunnel.host.processes import is_alive
from windtunnel.steps.bench import Bench
from windtunnel.steps.closing import close_attempt
from windtunnel.steps.execute import attempt_fields, finished_fields, publish_result
from windtunnel.steps.smoke import has_valid_result
from windtunnel.store.event_log import read_events
from windtunnel.store.files import read_json, sha256_file
from windtunnel.store.layout import AttemptDir, CellDir
from windtunnel.store.results import check_manifest, quarantine, read_claim, read_result, release, set_aside

__all__ = ["recover", "skip_reused"]


async def recover(bench: Bench) -> None:
    """Reap containers of this run, close attempts that were cut short, free claims, set unreadable results aside."""
    for name in await bench.environment.sweep(bench.labels()):
        bench.journal.event(Kind.ORPHAN_REAPED, what="container", id=name)
    events = read_events(bench.run.events, bench.plan.run_id).events
    told = {(event.fields["cell"], event.fields["attempt"]) for event in events if event.event is Kind.ATTEMPT_FINISHED}
    for planned in bench.plan.cells:
        directory = bench.cell_dir(planned.cell)
        await _close_cut_attempts(bench, directory, told)
        _publish_sealed(bench, planned.cell, directory, told)
        _free_claim(bench, directory)
        if planned.state != "reuse" and directory.result.exists():
            _set_torn_aside(bench, planned.cell, directory)
        if planned.state != "reuse":
            _tell_finished(bench, planned.cell, directory)
        if planned.state == "quarantine":
            _quarantine_foreign(bench, planned.cell, directory)


def _tell_finished(bench: Bench, cell: Cell, directory: CellDir) -> None:
    """A kill between the result and its event: the result stands, so the event is made up for. A result that another
    run made since the plan stands too."""
    if bench.journal.cell_state(cell.id) in ("valid", "reused") or not has_valid_result(bench, cell):
        return
    result = read_result(directory.result)
    if result.run_id != bench.plan.run_id:
        bench.journal.event(Kind.CELL_SKIPPED, cell=cell.id, reason="finished elsewhere")
    else:
        bench.journal.event(Kind.CELL_FINISHED, **finished_fields(directory, result, sha256_file(directory.result)))


def _set_torn_aside(bench: Bench, cell: Cell, directory: CellDir) -> None:
    try:
        read_result(directory.result)
    except FileDamaged as damaged:
        bench.journal.line(f"set aside {cell.id}: {set_aside(directory, damaged.found)}")


async def _close_cut_attempts(bench: Bench, directory: CellDir, told: set[tuple[str, int]]) -> None:
    if not directory.attempts.is_dir():
        return
    for root in sorted(directory.attempts.iterdir()):
        attempt = AttemptDir(root)
        with suppress(FileNotFoundError, FileDamaged):
            record = read_json(attempt.record, AttemptRecord)
            if record.run_id == bench.plan.run_id and not attempt.manifest.exists():
                await close_attempt(bench, attempt, record, told=(record.cell, record.attempt) in told)


def _publish_sealed(bench: Bench, cell: Cell, directory: CellDir, told: set[tuple[str, int]]) -> None:
    """A kill between an attempt's seal and the cell's result: the attempt is whole, so the cell is finished by it."""
    for root in sorted(directory.attempts.iterdir()) if directory.attempts.is_dir() else ():
        attempt = AttemptDir(root)
        if not attempt.result.exists() or not attempt.manifest.exists():
            continue
        with suppress(FileDamaged):
            result = read_result(attempt.result)
            newer = not directory.result.exists() or read_result(directory.result).attempt < result.attempt
            if result.run_id != bench.plan.run_id or not newer or check_manifest(attempt, directory, published=False):
                continue
            if (cell.id, result.attempt) not in told:
                bench.journal.event(Kind.ATTEMPT_FINISHED, **attempt_fields(result, retry=False))
            publish_result(bench, cell, result)


def _free_claim(bench: Bench, directory: CellDir) -> None:
    """Ours of a dead supervisor. One whose process lives belongs to a run of this name under another state root."""
    claimed = read_claim(directory)
    if claimed is not None and claimed.run_id == bench.plan.run_id and not is_alive(claimed.process):
        release(directory)


def _quarantine_foreign(bench: Bench, cell: Cell, directory: CellDir) -> None:
    """Set a cell aside that the plan said to set aside; never one that this run made, or that somebody works on."""
    if not directory.result.exists() or directory.claim.exists() or has_valid_result(bench, cell):
        return
    with suppress(FileDamaged):
        if read_result(directory.result).run_id == bench.plan.run_id:
            return
    moved = quarantine(bench.results_root, directory, f"run {bench.plan.run_id}: --existing quarantine")
    bench.journal.line(f"quarantined {cell.id}: {moved}")


def skip_reused(bench: Bench) -> None:
    """Say once which planned cells an earlier result stands for."""
    for planned in bench.plan.cells:
        if planned.state == "reuse" and bench.journal.cell_state(planned.cell.id) != "reused":
            bench.journal.event(Kind.CELL_SKIPPED, cell=planned.cell.id, reason="reused")
