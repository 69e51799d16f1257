"""Verify a run: recompute every claim from primary files, one line each, and say PASS only when all of them hold.

Read-only. A live process, a fresh heartbeat, an exit 0 or the word `completed` is never evidence here: the stage comes
from the event log, and on an ended run every planned cell must be there and valid.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

from windtunnel.domain.contract import bounded
from windtunnel.domain.digest import to_json
from windtunnel.domain.manifest import Manifest
from windtunnel.domain.plain_text import plain_line
from windtunnel.domain.plan import Plan
from windtunnel.domain.verification import Claim, Stage, VerifyReport, claim, sum_up
from windtunnel.errors import InputWrong, WindtunnelError
from windtunnel.host.clock import utc_now
from windtunnel.steps.verify_attempts import AttemptAudit
from windtunnel.steps.verify_cells import CellAudit, scan
from windtunnel.steps.verify_counts import CountAudit, status_claims
from windtunnel.steps.verify_events import event_claims
from windtunnel.steps.verify_launch import identity_claims, input_claims
from windtunnel.steps.verify_smoke import smoke_claims
from windtunnel.store.files import write_atomic
from windtunnel.store.layout import RunDir
from windtunnel.store.plans import read_plan
from windtunnel.store.run_seal import check_run_seal
from windtunnel.store.runs import RunState, read_run

__all__ = ["report_text", "verify", "write_report"]

Left = Callable[[], Awaitable[list[str]]]
_ENDED = ("completed", "failed", "halted")


async def verify(run_dir: RunDir, *, left: Left | None) -> VerifyReport:
    """Audit a run. `left` names what of the run's environment is still there; it is asked when the run has ended.

    Raises nothing for damaged files: each is a claim that does not hold."""
    run = RunDir(run_dir.root.absolute())
    state = read_run(run)
    ended = _has_ended(state)
    claims = [_schemas(state)]
    try:
        plan = read_plan(run.plan)
    except InputWrong as error:
        claims.append(claim("plan.json is readable", False, expected="a plan", found=str(error), evidence=[run.plan]))
        return _report(state, None, claims, 0)
    if state.manifest is None:
        return _report(state, plan, claims, 0)
    claims += identity_claims(run, plan, state.manifest)
    claims += input_claims(run, plan)
    claims += smoke_claims(run, plan, state.events, ended=ended)
    claims += event_claims(state, state.manifest, plan, ended=ended)
    cells, finished = _cell_claims(state, state.manifest, plan, ended=ended)
    claims += cells
    if ended:
        claims.append(await _left(run, plan, left))
        claims.append(_seal(run))
    return _report(state, plan, claims, finished)


def _has_ended(state: RunState) -> bool:
    """From the events alone; a paused run goes on."""
    return state.status is not None and state.status.state in _ENDED


def _schemas(state: RunState) -> Claim:
    """Everything that the one reader of run directories could not make sense of, gaps of the log aside."""
    gaps = {f"{state.run.events}: {gap}" for gap in state.gaps}
    problems = [problem for problem in state.problems if problem not in gaps]
    if state.status_on_disk is None and not any(str(state.run.status) in problem for problem in problems):
        problems.append(f"{state.run.status}: missing")
    files = [state.run.manifest, state.run.status, state.run.events]
    found = bounded("; ".join(problems)) or "each read by its schema"
    name = "manifest, status and events are readable"
    return claim(name, not problems, expected="files of ours", found=found, evidence=files)


def _cell_claims(state: RunState, manifest: Manifest, plan: Plan, *, ended: bool) -> tuple[list[Claim], int]:
    """One pass over the planned cells; of a run that goes on, only those that its events call finished are judged."""
    counts = CountAudit.of(state, manifest, plan, ended=ended)
    cells = CellAudit(plan)
    attempts = AttemptAudit(plan, state.events, ended)
    finished = 0
    for seen in scan(plan):
        counts.add(seen)
        done = counts.is_finished(seen.cell.id)
        finished += done and seen.result is not None
        if done or (ended and seen.problem):
            cells.add(seen)
        if done or ended:
            attempts.add(seen)
    found = [*status_claims(state, manifest, ended=ended), *counts.claims(), *cells.claims(), *attempts.claims()]
    return found, finished


def _seal(run: RunDir) -> Claim:
    """The run's own files, logs up to the run's last event, to the byte."""
    count, problems = check_run_seal(run)
    name = "the run's own files are as they were when it ended"
    evidence = [*(run.root / problem.split(":")[0] for problem in problems), run.seal]
    found = bounded("; ".join(problems)) or f"{count} files"
    return claim(name, not problems, expected="nothing changed", found=found, evidence=evidence)


async def _left(run: RunDir, plan: Plan, left: Left | None) -> Claim:
    name = "nothing of the run is left in its environment"
    if left is None:
        found = f"environment {plan.settings.environment} was not asked"
        return claim(name, False, expected="nothing", found=found, evidence=[run.events])
    try:
        names = await left()
    except WindtunnelError as error:
        return claim(name, False, expected="nothing", found=f"could not be asked: {error}", evidence=[run.events])
    found = bounded(", ".join(names)) or f"environment {plan.settings.environment} was asked: nothing"
    return claim(name, not names, expected="nothing", found=found, evidence=[run.events])


def _report(state: RunState, plan: Plan | None, claims: list[Claim], finished: int) -> VerifyReport:
    stage: Stage = "ended" if _has_ended(state) else "launch"
    planned = len(plan.cells) if plan is not None else 0
    passed, summary = sum_up(claims, stage=stage, finished=finished, planned=planned)
    return VerifyReport(
        run_id=state.run_id,
        planIdentity=plan.planIdentity if plan is not None else "",
        stage=stage,
        finished=finished,
        planned=planned,
        claims=tuple(claims),
        passed=passed,
        summary=summary,
        checked_at=utc_now(),
    )


def write_report(run_dir: RunDir, report: VerifyReport) -> None:
    """Keep a report as the run's `verify.json`: the run's own last step."""
    write_atomic(run_dir.verify, to_json(report))


def report_text(report: VerifyReport) -> str:
    """One line per claim with its evidence file, then the summary."""
    return "\n".join([*_lines(report), report.summary])


def _lines(report: VerifyReport) -> Iterator[str]:
    for item in report.claims:
        if item.passed:
            yield f"ok   {item.name}: {item.found}  [{_shown(item)}]"
        else:
            yield f"FAIL {item.name}: expected {item.expected}, found {item.found}  [{_shown(item)}]"


def _shown(item: Claim) -> str:
    """The first two files, relative to the working directory where they are below it, and how many more."""
    here, files = Path.cwd(), [Path(path) for path in item.evidence[:2]]
    names = [str(path.relative_to(here) if path.is_relative_to(here) else path) for path in files]
    more = item.evidence_files - len(names)
    return plain_line(", ".join(names)) + (f" and {more} more" if more > 0 else "")
