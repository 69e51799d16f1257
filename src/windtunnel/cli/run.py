"""`windtunnel run PLAN --confirm sha256:...`: the whole life of a run, from the yes to the verdict."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import click

from windtunnel import __version__
from windtunnel.cli.workshop import open_bench
from windtunnel.domain.digest import to_json
from windtunnel.domain.events import Kind
from windtunnel.domain.manifest import Confirmation, Launched, Manifest, manifest_of
from windtunnel.domain.plan import Plan
from windtunnel.domain.verification import VerifyReport
from windtunnel.errors import InputWrong, NotBuiltYet, NotVerified, Paused, WindtunnelError
from windtunnel.host.clock import boot_id, utc_now
from windtunnel.steps.bench import Bench
from windtunnel.steps.confirm import check_inputs, copy_inputs, require_confirmation
from windtunnel.steps.fan_out import Drain
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
    click.echo(f"confirmed {plan.planIdentity} by {confirmation.operator} ({confirmation.how})")
    lock = _own(run, plan)
    try:
        resumed = run.events.exists() and run.events.stat().st_size > 0
        if not resumed:
            check_inputs(plan)
            _store_plan(run, plan_file, plan, confirmation)
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
    manifest = _manifest(plan)
    log = RunLog.open(run, manifest, on_line=click.echo)
    try:
        async with open_bench(plan, run, log) as bench:
            stopped = await _watched(bench, log, resumed=resumed)
            report = await _verified(bench, run)
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


async def _watched(bench: Bench, log: RunLog, *, resumed: bool) -> WindtunnelError | None:
    """Run under signals and heartbeat; what stopped the run is returned, so that its evidence is still verified."""
    drain = Drain()
    task = asyncio.create_task(run_lifecycle(bench, drain, resumed=resumed))
    beat = asyncio.create_task(_beat(log, bench.plan.settings.progress_interval_s))

    def received(number: int) -> None:
        log.event(
            Kind.CONTROL_RECEIVED, control="stop-now" if drain.asked.is_set() else "stop", detail=f"signal {number}"
        )

    with _signals(drain, task.cancel, received) as caught:
        try:
            await task
            return None
        except WindtunnelError as error:
            return _Signalled(error.message, caught[0]) if caught and isinstance(error, Paused) else error
        except asyncio.CancelledError:
            return _Signalled("stopped now; running attempts were ended", caught[0] if caught else signal.SIGINT)
        finally:
            beat.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await beat


class _Signalled(Paused):
    """Stopped by a signal: 130 for SIGINT, 143 for SIGTERM."""

    def __init__(self, message: str, number: int) -> None:
        super().__init__(message)
        self.exit_code = 128 + number


@contextlib.contextmanager
def _signals(drain: Drain, cancel: Callable[[], object], received: Callable[[int], object]) -> Iterator[list[int]]:
    """First SIGINT or SIGTERM drains, the second stops now."""
    caught: list[int] = []
    loop = asyncio.get_running_loop()

    def on(number: int) -> None:
        caught.append(number)
        received(number)
        drain.reason = signal.Signals(number).name
        drain.asked.set()
        if len(caught) > 1:
            cancel()
        else:
            click.echo(f"{drain.reason}: running cells end, no new ones start; again: stop now", err=True)

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, on, number)
    try:
        yield caught
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)


async def _beat(log: RunLog, interval_s: float) -> None:
    while True:
        await asyncio.sleep(interval_s)
        log.heartbeat()
