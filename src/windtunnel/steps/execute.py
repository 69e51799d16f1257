"""Execute a cell: claim it, try it as often as the outcome table allows, publish the last try's result."""

from __future__ import annotations

import asyncio
import errno
import shutil
import traceback
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from windtunnel.domain.cell import Cell, container_name
from windtunnel.domain.digest import to_json
from windtunnel.domain.events import Kind
from windtunnel.domain.outcome import RULES, Outcome, Reason, Status
from windtunnel.domain.result import AttemptRecord, PatchFacts, Result
from windtunnel.environments.interface import Sandbox
from windtunnel.errors import AttemptFault, Drifted, FileDamaged
from windtunnel.host.clock import monotonic, utc_now
from windtunnel.host.processes import current
from windtunnel.steps import attempt as steps_of
from windtunnel.steps.account import judge_attempt, make_result, search_for_secrets, take_claims
from windtunnel.steps.attempt import Work
from windtunnel.steps.bench import Bench
from windtunnel.steps.closing import close_attempt
from windtunnel.steps.drift import keep_graders
from windtunnel.steps.grading import Graded, grade_attempt, prepare_verifier
from windtunnel.steps.hand_over import HandOver, collect, look_before
from windtunnel.steps.phases import Phases
from windtunnel.store.files import write_atomic
from windtunnel.store.layout import AttemptDir, CellDir
from windtunnel.store.results import (
    Claim,
    claim,
    new_attempt,
    publish,
    read_claim,
    release,
    seal,
    update_claim,
    write_attempt,
)
from windtunnel.subjects.interface import Account

__all__ = ["attempt_fields", "execute_cell", "finished_fields", "held_by", "publish_result"]


async def execute_cell(bench: Bench, cell: Cell) -> Result | None:
    """Run a cell to its outcome. None: somebody else works on it. Raises Drifted and OSError; a fault of an attempt
    is an outcome, never an exception."""
    directory = bench.cell_dir(cell)
    directory.root.mkdir(parents=True, exist_ok=True)
    if not claim(directory, Claim(run_id=bench.plan.run_id, cell=cell.id, process=current(), ts=utc_now())):
        bench.journal.event(Kind.CELL_SKIPPED, cell=cell.id, reason="claimed by another run")
        return None
    graders = bench.private_root / container_name(cell, attempt=0, run_id=bench.plan.run_id, part="graders")
    try:
        bench.journal.event(Kind.CELL_STARTED, cell=cell.id)
        return await _try_until_done(bench, cell, graders)
    finally:
        shutil.rmtree(graders, ignore_errors=True)
        release(directory)


def held_by(bench: Bench, cell: Cell) -> str:
    """Who works on a cell, for messages: the run and the file that says so."""
    path = bench.cell_dir(cell).claim
    with suppress(FileDamaged):
        claimed = read_claim(bench.cell_dir(cell))
        return f"run {claimed.run_id}, {path}" if claimed else f"it was given back just now, {path}"
    return str(path)


async def _try_until_done(bench: Bench, cell: Cell, graders: Path) -> Result:
    failures: Counter[Reason] = Counter()
    while True:
        await asyncio.to_thread(keep_graders, bench, cell, graders)
        number, directory = new_attempt(bench.cell_dir(cell))
        result = await _attempt(bench, cell, number, directory, graders)
        outcome = result.outcome
        failures[outcome.reason] += 1
        again = _may_retry(bench, outcome, failures[outcome.reason])
        if not again:
            write_atomic(directory.result, to_json(result))
        await asyncio.to_thread(seal, directory, None if again else to_json(result))
        bench.journal.event(Kind.ATTEMPT_FINISHED, **attempt_fields(result, retry=again))
        if not again:
            return publish_result(bench, cell, result)


def _may_retry(bench: Bench, outcome: Outcome, failures: int) -> bool:
    """Retries that the verifier alone could make were made inside the attempt."""
    rule = RULES[outcome.reason]
    if outcome.status is not Status.INVALID or rule.verifier_only:
        return False
    override = bench.plan.settings.cell_retries
    allowed = rule.retries if override is None or rule.retries == 0 else override
    return failures <= allowed


def publish_result(bench: Bench, cell: Cell, result: Result) -> Result:
    """Make a sealed attempt's result the cell's. Done again after a kill in between, with the same effect."""
    directory = bench.cell_dir(cell)
    digest = publish(directory, result.attempt, result)
    bench.journal.event(Kind.CELL_FINISHED, **finished_fields(directory, result, digest))
    return result


def attempt_fields(result: Result, *, retry: bool) -> dict[str, Any]:
    """What an attempt_finished event says of an attempt that came to its own end."""
    return {
        "cell": Cell(task=result.task, config=result.config, rep=result.rep).id,
        "attempt": result.attempt,
        "status": result.outcome.status,
        "reason": result.outcome.reason,
        "detail": result.outcome.detail,
        "retry": retry,
        "usage": result.usage,
        "cost_usd": result.cost.usd,
    }


def finished_fields(directory: CellDir, result: Result, digest: str) -> dict[str, Any]:
    """What a cell_finished event says of a published result."""
    return {
        "cell": Cell(task=result.task, config=result.config, rep=result.rep).id,
        "status": result.outcome.status,
        "reason": result.outcome.reason,
        "reward": result.reward_partial,
        "attempts": result.attempts,
        "usage": result.usage,
        "cost_usd": result.cost.usd,
        "result_path": str(directory.result),
        "result_sha256": digest,
    }


async def _attempt(bench: Bench, cell: Cell, number: int, directory: AttemptDir, graders: Path) -> Result:
    started_at, began = utc_now(), monotonic()
    scratch = bench.private_root / container_name(cell, attempt=number, run_id=bench.plan.run_id, part="scratch")
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    phases = Phases(bench, cell, number)
    work = Work(bench, cell, bench.task(cell), bench.config(cell), number, directory, scratch, phases, graders)
    record = AttemptRecord(attempt=number, run_id=bench.plan.run_id, cell=cell.id, outcome=None, started_at=started_at)
    write_attempt(directory, record)
    bench.journal.event(Kind.ATTEMPT_STARTED, cell=cell.id, attempt=number)
    handed: HandOver | None = None
    graded: Graded | None = None
    fault: AttemptFault | None = None
    try:
        try:
            handed = await _subject_part(work)
            graded = await grade_attempt(work, handed)
        except AttemptFault as error:
            fault = error
        except (Drifted, asyncio.CancelledError):
            raise
        except Exception as error:
            # The one broad except: whatever a subject or an engine does becomes this cell's outcome, nobody else's.
            fault = _unforeseen(work, error)
        return await _finish(work, record, handed, graded, fault, began)
    except (Drifted, asyncio.CancelledError) as stop:
        await _stop(work, record, stop)
        raise
    finally:
        bench.later(_clean(work))


async def _stop(work: Work, record: AttemptRecord, why: BaseException) -> None:
    """End an attempt in the middle, in good order: nothing of it runs on, and what it used is known."""
    detail = why.message if isinstance(why, Drifted) else "stopped by the operator"
    stopped = msgspec.structs.replace(record, outcome=Outcome.of(Reason.CANCELLED, detail))
    with suppress(AttemptFault):
        if work.sandbox is not None:
            await steps_of.end(work, work.sandbox)
    with suppress(AttemptFault):
        await steps_of.close_door(work)
    await close_attempt(work.bench, work.dir, stopped, told=False)


async def _subject_part(work: Work) -> HandOver:
    if work.task.hand_over == "artifacts":
        async with work.phases("prepare_image", work.task.build_timeout_s + 60):
            await prepare_verifier(work)
    sandbox = await steps_of.open_sandbox(work)
    _say_who_works(work, sandbox)
    before = await look_before(work, sandbox)
    await steps_of.launch(work, sandbox)
    await steps_of.follow(work, sandbox)
    await steps_of.end(work, sandbox)
    return await collect(work, sandbox, before)


def _unforeseen(work: Work, error: Exception) -> AttemptFault:
    """An outcome for an error that nobody thought of; its traceback stays with the attempt."""
    (work.dir.logs / "traceback.txt").write_text("".join(traceback.format_exception(error)))
    full = isinstance(error, OSError) and error.errno == errno.ENOSPC
    return AttemptFault(Reason.DISK_FULL if full else Reason.UNKNOWN, f"{type(error).__name__}: {error}"[:300])


def _say_who_works(work: Work, sandbox: Sandbox) -> None:
    held = Claim(
        run_id=work.bench.plan.run_id,
        cell=work.cell.id,
        process=current(),
        ts=utc_now(),
        attempt=work.number,
        container=sandbox.id,
    )
    update_claim(work.bench.cell_dir(work.cell), held)


async def _finish(
    work: Work,
    record: AttemptRecord,
    handed: HandOver | None,
    graded: Graded | None,
    fault: AttemptFault | None,
    began: float,
) -> Result:
    """Account, judge, write. An error in here is an outcome like any other: the subject may have made its cause."""
    patch: PatchFacts | None = handed.patch if handed else None
    try:
        async with work.phases("account", 900):
            with suppress(AttemptFault):
                await steps_of.close_door(work)
            account = await asyncio.to_thread(take_claims, work)
            await search_for_secrets(work.bench, work.key, work.dir)
            judged = judge_attempt(work, account, fault, graded, patch)
    except (Drifted, asyncio.CancelledError):
        raise
    except Exception as error:
        fault = fault or (error if isinstance(error, AttemptFault) else _unforeseen(work, error))
        judged = judge_attempt(work, Account(), fault, graded, patch)
    finished_at, wall = utc_now(), round(monotonic() - began, 3)
    times = (record.started_at, finished_at, wall)
    finished = msgspec.structs.replace(
        record,
        outcome=judged.outcome,
        flags=judged.flags,
        finished_at=finished_at,
        wall_s=wall,
        phases=work.phases.durations,
        usage=judged.usage,
        kept=tuple(sorted(path.name for path in work.dir.root.iterdir())),
        environment_id=work.sandbox.id if work.sandbox else None,
    )
    write_attempt(work.dir, finished)
    return make_result(work, judged, graded, patch, times=times, attempts=work.number)


async def _clean(work: Work) -> None:
    """Remove what the attempt left in the environment; runs after the worker's slot is free. One step's fault does not
    keep the others from being done."""
    ended: list[object] = list(await asyncio.gather(*work.cleanup, return_exceptions=True))
    if work.sandbox is not None:
        ended += await asyncio.gather(work.sandbox.remove(), return_exceptions=True)
    if work.snapshot is not None:
        ended += await asyncio.gather(work.bench.environment.remove_image(work.snapshot), return_exceptions=True)
    for directory in (work.scratch, work.sandboxes):
        await asyncio.to_thread(shutil.rmtree, directory, ignore_errors=True)
    for fault in ended:
        if isinstance(fault, Exception):
            raise fault
