"""`windtunnel verify RUN` and `windtunnel smoke check CELL-DIR`: both read what is on disk and change nothing."""

from __future__ import annotations

import asyncio
from pathlib import Path

import click
from msgspec.structs import replace

from windtunnel.cli.workshop import work_place
from windtunnel.domain.contract import Assertion, Contract, Verdict, bounded, parse_contract
from windtunnel.domain.digest import sha256_bytes, to_json
from windtunnel.domain.plan import ConfigPlan, Plan
from windtunnel.domain.result import AttemptRecord
from windtunnel.environments.choose import make
from windtunnel.errors import FileDamaged, InputWrong
from windtunnel.host.clock import utc_now
from windtunnel.steps.bench import root_id
from windtunnel.steps.judge import assess
from windtunnel.steps.verify import report_text, verify
from windtunnel.store.files import read_json
from windtunnel.store.layout import AttemptDir, CellDir, RunDir
from windtunnel.store.plans import read_plan
from windtunnel.store.results import read_result
from windtunnel.store.runs import find_run

__all__ = ["smoke_group", "verify_command"]

_format = click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)


@click.command("verify")
@click.argument("run")
@click.option(
    "--state-root",
    type=click.Path(path_type=Path),
    default=Path("results/_runs"),
    show_default=True,
    help="Where runs keep their state.",
)
@_format
def verify_command(run: str, state_root: Path, form: str) -> int:
    """Recompute every claim of a run from its evidence; RUN is its name or its state directory.

    One line per claim with the file it rests on. Exit 0 only for PASS, else 2.
    """
    run_dir = RunDir(Path(run)) if "/" in run and Path(run).is_dir() else find_run(state_root, run)
    report = asyncio.run(verify(run_dir, left=lambda: _left(run_dir)))
    click.echo(to_json(report) if form == "json" else report_text(report), nl=form == "text")
    return 0 if report.passed else 2


async def _left(run_dir: RunDir) -> list[str]:
    """What the run's environment still holds of it. Raises EngineAbsent when it cannot be asked."""
    plan = read_plan(run_dir.plan)
    root = work_place(run_dir).resolve()
    if plan.settings.environment != "docker" and not root.is_dir():
        return []  # these environments keep everything below the scratch directory, which is gone
    environment = make(plan.settings.environment, work_root=root)
    try:
        shared = {"windtunnel.run": plan.run_id, "windtunnel.root": root_id(Path(plan.paths.results_root))}
        return await environment.left(shared)
    finally:
        await environment.close()


@click.group("smoke")
def smoke_group() -> None:
    """Judge smoke contracts on stored evidence."""


@smoke_group.command("check")
@click.argument("cell_dir", metavar="CELL-DIR", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option("--contract", "file", type=click.Path(path_type=Path), help="Judge by this smoke.json instead.")
@click.option("--state-root", type=click.Path(path_type=Path), help="Where runs keep their state.")
@_format
def check_command(cell_dir: Path, file: Path | None, state_root: Path | None, form: str) -> int:
    """Judge a stored cell again, without a model call; writes nothing. Exit 0 when every assertion holds, else 2."""
    cell = CellDir(cell_dir.absolute())
    run = find_run(state_root or cell.root.parents[4] / "_runs", _run_of(cell))
    plan = read_plan(run.plan)
    config = _config_of(plan, cell)
    contract, config = _contract(run, config, file)
    verdict = assess(cell, plan=plan, config=config, contract=contract, calls_models=bool(config.roles), now=utc_now())
    click.echo(to_json(verdict) if form == "json" else _text(verdict), nl=form == "text")
    return 0 if verdict.passed else 2


def _run_of(cell: CellDir) -> str:
    """The run that made a cell: of its result, else of its last attempt. Raises InputWrong when there is neither."""
    try:
        return read_result(cell.result).run_id
    except (FileNotFoundError, FileDamaged):
        pass
    numbers = [int(p.name) for p in cell.attempts.glob("*") if p.name.isdecimal()] if cell.attempts.is_dir() else []
    try:
        return read_json(AttemptDir(cell.attempts / str(max(numbers, default=0))).record, AttemptRecord).run_id
    except (FileNotFoundError, FileDamaged) as error:
        raise InputWrong(
            f"{cell.root} is not a cell: neither result.json nor an attempt can be read. "
            "Name a directory results/<model>/<thinking>/<config>/<task>/rep<N>"
        ) from error


def _config_of(plan: Plan, cell: CellDir) -> ConfigPlan:
    name = cell.root.parents[1].name
    config = next((config for config in plan.configs if config.name == name), None)
    if config is None:
        raise InputWrong(f"{cell.root}: run {plan.run_id} has no config {name!r}")
    return config


def _contract(run: RunDir, config: ConfigPlan, file: Path | None) -> tuple[Contract | None, ConfigPlan]:
    """The contract to judge by, and the config with its hash."""
    if file is None and config.contract is None:
        return None, config
    path = file if file is not None else run.inputs / config.name / str(config.contract)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputWrong(f"{path}: the contract cannot be read: {error.strerror}") from error
    return parse_contract(data, str(path)), replace(config, contract_sha256=sha256_bytes(data))


def _text(verdict: Verdict) -> str:
    failed = [a for a in verdict.assertions if a.passed is False]
    summary = "smoke contract kept" if verdict.passed else "smoke contract broken"
    lines = [f"cell {verdict.cell}, contract {verdict.contract_sha256}", *map(_line, verdict.assertions)]
    return "\n".join([*lines, f"{summary} ({len(failed)} of {len(verdict.assertions)} assertions failed)"])


def _line(assertion: Assertion) -> str:
    what = f"{assertion.kind} {bounded(assertion.target)}".strip()
    if assertion.passed is None:
        return f"n/a  {what}: not applicable"
    if assertion.passed:
        return f"ok   {what}: {assertion.found}"
    return f"FAIL {what}: expected {assertion.expected}, found {assertion.found}"
