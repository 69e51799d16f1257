"""Resume: put the tree in order after a run that ended at any instant, before anything new starts.

What still runs of a dead supervisor is ended (`container_lost`); its attempts keep their directories and logs.
"""

from __future__ import annotations

from contextlib import suppress

import msgspec

from windtunnel.domain.cell import Cell
from windtunnel.domain.events import Kind
from windtunnel.domain.outcome import Outcome, Reason
from windtunnel.domain.result import AttemptRecord
from windtunnel.errors import AttemptFault, FileDamaged
from windtunnel.host.clock import utc_now
from windtunnel.steps.account import search_for_secrets, used_until_cut
from windtunnel.steps.bench import Bench
from windtunnel.steps.execute import finished_fields
from windtunnel.steps.smoke import has_valid_result
from windtunnel.store.files import read_json, sha256_file
from windtunnel.store.layout import AttemptDir, CellDir
from windtunnel.store.results import quarantine, read_claim, read_result, release, seal, set_aside, write_attempt

__all__ = ["recover", "skip_reused"]


async def recover(bench: Bench) -> None:
    """Reap containers of this run, close attempts that were cut short, free claims, set unreadable results aside."""
    for name in await bench.environment.sweep(bench.labels()):
        bench.journal.event(Kind.ORPHAN_REAPED, what="container", id=name)
    for planned in bench.plan.cells:
        directory = bench.cell_dir(planned.cell)
        await _close_cut_attempts(bench, directory)
        _free_claim(bench, directory)
        if planned.state != "reuse" and directory.result.exists():
            _set_torn_aside(bench, planned.cell, directory)
        if planned.state != "reuse":
            _tell_finished(bench, planned.cell, directory)
        if planned.state == "quarantine" and directory.result.exists() and not has_valid_result(bench, planned.cell):
            moved = quarantine(bench.results_root, directory, f"run {bench.plan.run_id}: --existing quarantine")
            bench.journal.line(f"quarantined {planned.cell.id}: {moved}")


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


async def _close_cut_attempts(bench: Bench, directory: CellDir) -> None:
    if not directory.attempts.is_dir():
        return
    for root in sorted(directory.attempts.iterdir()):
        attempt = AttemptDir(root)
        with suppress(FileNotFoundError, FileDamaged):
            record = read_json(attempt.record, AttemptRecord)
            if record.run_id == bench.plan.run_id and not attempt.manifest.exists():
                await _close(bench, attempt, record)


async def _close(bench: Bench, attempt: AttemptDir, record: AttemptRecord) -> None:
    """Finish what a kill or a stop left of an attempt: its outcome, what it used, the secret search, the seal."""
    outcome = record.outcome or Outcome.of(Reason.CONTAINER_LOST, "the supervisor ended while this attempt ran")
    told = record.usage is not None
    if not told:
        usage = used_until_cut(attempt)
        finished_at = record.finished_at or utc_now()
        record = msgspec.structs.replace(record, outcome=outcome, finished_at=finished_at, usage=usage)
        write_attempt(attempt, record)
    if not attempt.secret_search.exists():
        try:
            await search_for_secrets(bench, f"{record.cell}#{record.attempt}", attempt)
        except AttemptFault as fault:
            bench.journal.line(f"attempt {record.attempt} of {record.cell} could not be searched: {fault.message}")
    seal(attempt, None)
    if not told:
        facts = {"status": outcome.status, "reason": outcome.reason, "detail": outcome.detail, "usage": record.usage}
        bench.journal.event(Kind.ATTEMPT_FINISHED, cell=record.cell, attempt=record.attempt, retry=True, **facts)


def _free_claim(bench: Bench, directory: CellDir) -> None:
    claimed = read_claim(directory)
    if claimed is not None and claimed.run_id == bench.plan.run_id:
        release(directory)


def skip_reused(bench: Bench) -> None:
    """Say once which planned cells an earlier result stands for."""
    for planned in bench.plan.cells:
        if planned.state == "reuse" and bench.journal.cell_state(planned.cell.id) != "reused":
            bench.journal.event(Kind.CELL_SKIPPED, cell=planned.cell.id, reason="reused")
