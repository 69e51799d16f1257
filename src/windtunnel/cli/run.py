"""`windtunnel run PLAN --confirm sha256:...`: the whole life of a run, from the yes to the verdict."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import socket
import sys
from pathlib import Path

import click

from windtunnel import __version__
from windtunnel.cli.signals import Signalled, Signals
from windtunnel.cli.workshop import open_bench
from windtunnel.domain.digest import to_json
from windtunnel.domain.events import Kind
from windtunnel.domain.manifest import Confirmation, Launched, Manifest, manifest_of
from windtunnel.domain.plan import Plan
from windtunnel.domain.verification import VerifyReport
from windtunnel.errors import InputWrong, NotBuiltYet, NotVerified, Paused, Stopped, WindtunnelError
from windtunnel.host.clock import boot_id, monotonic, utc_now
from windtunnel.steps.bench import Bench
from windtunnel.steps.confirm import check_inputs, copy_inputs, require_confirmation
from windtunnel.steps.lifecycle import run as run_lifecycle
from windtunnel.steps.verify import report_text, verify, write_report
from windtunnel.store.files import write_atomic
from windtunnel.store.layout import RunDir
from windtunnel.store.owner import OwnerLock
from windtunnel.store.plans import read_plan
from windtunnel.store.run_log import RunLog

__all__ = ["run_command", "run_plan"]


@click.command("run")
@click.argument("plan", type=click.Path(path_type=Path))
@click.option(
    "--confirm", metavar="IDENTITY", help="The plan's identity, sha256:<64 hex>: a person's yes to exactly it."
)
@click.option("--yes", is_flag=True, help="Confirm without the identity; only for plans without a second role.")
@click.option("--operator", default=None, help="Who confirms; default: the login name.")
@click.option("--detach", is_flag=True, help="Not built yet.")
def run_command(plan: Path, confirm: str | None, yes: bool, operator: str | None, detach: bool) -> int:
    """Run a confirmed plan; the same command resumes it."""
    if detach:
        raise NotBuiltYet("--detach", "run")
    return run_plan(plan, confirm=confirm, yes=yes, operator=operator)


def run_plan(plan_file: Path, *, confirm: str | None, yes: bool, operator: str | None) -> int:
    """Confirm, run, verify; returns the exit code. Raises WindtunnelError for everything that stops it."""
    ask = _ask if sys.stdin.isatty() and sys.stdout.isatty() else None
    confirmation = require_confirmation(
        plan_file, confirm=confirm, yes=yes, ask=ask, operator=operator, now=utc_now(), show=click.echo
    )
    plan = read_plan(plan_file)
    run = RunDir(Path(plan.paths.run_dir))
    lock = _own(run, plan)
    try:
        resumed = run.events.exists() and run.events.stat().st_size > 0
        if not resumed:
            check_inputs(plan)
            _store_plan(run, plan_file, plan, confirmation)
        click.echo(f"confirmed {plan.planIdentity} by {confirmation.operator} ({confirmation.how})")
        return asyncio.run(_execute(plan, run, resumed=resumed))
    finally:
        lock.close()


def _ask(receipt: str) -> str:
    click.echo(receipt)
    answer: str = click.prompt("To confirm, type the first eight hex digits of the plan identity", default="")
    return answer


def _own(run: RunDir, plan: Plan) -> OwnerLock:
    """Take the run's lock. Raises InputWrong for a living owner, another plan's directory, a read-only tree."""
    try:
        run.root.mkdir(parents=True, exist_ok=True)
        lock = OwnerLock.take(run)
    except OSError as error:
        raise InputWrong(f"{run.root}: {error.strerror}; choose another --results-root or --state-root") from error
    if run.plan.exists() and read_plan(run.plan).planIdentity != plan.planIdentity:
        lock.close()
        raise InputWrong(
            f"{run.root} belongs to another plan ({read_plan(run.plan).planIdentity}); plan again with another "
            "--run-id (or with --existing quarantine to set its cells aside)"
        )
    return lock


def _store_plan(run: RunDir, plan_file: Path, plan: Plan, confirmation: Confirmation) -> None:
    shutil.rmtree(run.inputs, ignore_errors=True)
    copy_inputs(plan, run.inputs)
    for directory in (run.control, run.evidence):
        directory.mkdir(exist_ok=True)
    write_atomic(run.plan, plan_file.read_bytes())
    receipt = Path(plan.paths.receipt_file)
    if receipt.is_file():
        write_atomic(run.receipt, receipt.read_bytes())
    write_atomic(run.confirmation, to_json(confirmation))


async def _execute(plan: Plan, run: RunDir, *, resumed: bool) -> int:
    run.private.mkdir(mode=0o700, exist_ok=True)
    log = RunLog.open(run, _manifest(plan), on_line=click.echo)
    try:
        with Signals(log) as signals:
            async with open_bench(plan, run, log) as bench:
                stopped = await _watched(bench, log, signals, resumed=resumed)
                report = await _verified(bench, run)
                log.event(Kind.VERIFY_FINISHED, passed=report.passed, path=str(run.verify))
    except asyncio.CancelledError:
        raise Signalled("stopped before the run began; nothing of it is left", signals.last) from None
    finally:
        log.close()
    click.echo(report_text(report))
    click.echo(f"results {plan.paths.results_root}\nrun     {run.root}")
    if stopped is not None:
        raise stopped
    if not report.passed:
        raise NotVerified(f"run {plan.run_id} did not verify; see {run.verify}")
    return 0


def _manifest(plan: Plan) -> Manifest:
    launched = Launched(
        created_at=utc_now(),
        command=tuple(sys.argv),
        cwd=str(Path.cwd()),
        host=socket.gethostname(),
        boot_id=boot_id(),
        pid=os.getpid(),
        windtunnel_version=__version__,
        git_revision=plan.versions.get("git"),
    )
    return manifest_of(plan, launched)


async def _verified(bench: Bench, run: RunDir) -> VerifyReport:
    async def left() -> list[str]:
        return await bench.environment.left(bench.labels())

    report = await verify(run, left=left)
    write_report(run, report)
    return report


async def _watched(bench: Bench, log: RunLog, signals: Signals, *, resumed: bool) -> WindtunnelError | None:
    """Run under signals and heartbeat; what stopped the run is returned, so that its evidence is still verified."""
    task = asyncio.create_task(run_lifecycle(bench, signals.drain, resumed=resumed))
    beat = asyncio.create_task(_beat(log, bench.plan.settings.progress_interval_s))
    signals.cancel = task.cancel
    try:
        await task
        return None
    except WindtunnelError as error:
        return Signalled(error.message, signals.last) if signals.caught and isinstance(error, Paused) else error
    except OSError as error:
        return Stopped(f"{error.filename or run_lifecycle.__name__}: {error.strerror or error}; mend it and go on")
    except asyncio.CancelledError:
        return Signalled("stopped now; running attempts were ended", signals.last)
    finally:
        signals.cancel = None  # what is left is clean-up and verification: bounded, and better done than cut
        beat.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await beat


async def _beat(log: RunLog, interval_s: float) -> None:
    beat_at = monotonic() + interval_s
    while True:
        await asyncio.sleep(min(1.0, interval_s))
        log.tick()
        if monotonic() >= beat_at:
            beat_at += interval_s
            log.heartbeat()
            log.progress()
