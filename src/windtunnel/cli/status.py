"""`status`, `list`, `show`: what the files of a run or plan say, with the files named; starts and changes nothing."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click
import msgspec

from windtunnel.cli.status_text import counts_words, run_lines
from windtunnel.domain.digest import to_json
from windtunnel.domain.plain_text import plain_line, plain_text
from windtunnel.domain.plan import plan_identity
from windtunnel.errors import FileDamaged, InputWrong
from windtunnel.store.layout import RunDir
from windtunnel.store.plans import read_plan
from windtunnel.store.runs import RunState, RunSummary, find_run, list_runs, read_run, rebuild_status

__all__ = ["list_command", "show_command", "status_command"]

_state_root = click.option(
    "--state-root",
    type=click.Path(path_type=Path),
    default=Path("results/_runs"),
    show_default=True,
    help="Where runs keep their state.",
)
_format = click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)


@click.command("status")
@click.argument("run", required=False)
@_state_root
@click.option("--rebuild", is_flag=True, help="Write status.json anew from manifest and events first.")
@_format
def status_command(run: str | None, state_root: Path, rebuild: bool, form: str) -> int:
    """Where a run stands: RUN's name, or the newest run."""
    run_dir = find_run(state_root, run)
    if rebuild:
        rebuild_status(run_dir)
    state = read_run(run_dir)
    if form == "json":
        click.echo(to_json(_state_value(state)), nl=False)
    else:
        for line in run_lines(state):
            click.echo(line)
    return 0


def _state_value(state: RunState) -> dict[str, Any]:
    return {
        "schemaVersion": 1,
        "run_id": state.run_id,
        "liveness": state.liveness,
        "status": state.status or state.status_on_disk,
        "torn_bytes": state.torn_bytes,
        "gaps": state.gaps,
        "problems": state.problems,
        "state_path": str(state.run.root),
    }


@click.command("list")
@_state_root
@_format
def list_command(state_root: Path, form: str) -> int:
    """The runs below a state root, newest first."""
    runs = list_runs(state_root)
    if form == "json":
        click.echo(to_json({"schemaVersion": 1, "runs": [_summary_value(run) for run in runs]}), nl=False)
    elif not runs:
        click.echo(f"no runs in {state_root}")
    else:
        _print_table(("run", "state", "seen", "cells", "created", "problems"), [_row(run) for run in runs])
    return 0


def _summary_value(run: RunSummary) -> dict[str, Any]:
    status = None if run.status is None else msgspec.structs.asdict(run.status)
    return {
        "run_id": run.run_id,
        "created_at": run.created_at,
        "state": status and status["state"],
        "stage": status and status["stage"],
        "liveness": run.liveness,
        "counts": status and status["counts"],
        "problems": run.problems,
        "state_path": str(run.run.root),
    }


def _row(run: RunSummary) -> tuple[str, ...]:
    status = run.status
    state = "unknown" if status is None else f"{status.state} ({status.stage})"
    counts = "unknown" if status is None else counts_words(status.counts)
    problems = str(len(run.problems)) if run.problems else ""
    return tuple(map(plain_line, (run.run_id, state, run.liveness, counts, run.created_at or "unknown", problems)))


def _print_table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> None:
    """A drawn table on a terminal, columns of text elsewhere."""
    if sys.stdout.isatty():
        from rich.console import Console  # slow to load, and only for a terminal
        from rich.table import Table
        from rich.text import Text

        table = Table(*head)
        for row in rows:
            table.add_row(*map(Text, row))
        Console().print(table)
        return
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    for row in (head, *rows):
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


@click.command("show")
@click.argument("what", metavar="RUN|PLAN.json")
@_state_root
def show_command(what: str, state_root: Path) -> int:
    """Print the receipt of a run, or of a plan file."""
    path = Path(what)
    receipt = _receipt_of_plan(path) if path.suffix == ".json" else _receipt_of_run(find_run(state_root, what))
    click.echo(receipt, nl=False)
    return 0


def _receipt_of_plan(path: Path) -> str:
    plan = read_plan(path)
    identity = plan_identity(plan)
    if plan.planIdentity != identity:
        raise FileDamaged(path, f"it says {plan.planIdentity}, its content is {identity}", "Plan again")
    beside = path.with_suffix(".txt")
    return _receipt(beside if beside.is_file() else Path(plan.paths.receipt_file), identity)


def _receipt_of_run(run: RunDir) -> str:
    return _receipt(run.receipt, plan_identity(read_plan(run.plan)))


def _receipt(path: Path, identity: str) -> str:
    try:
        text = path.read_bytes().decode("utf-8", "replace")
    except OSError as error:
        raise InputWrong(f"{path}: the receipt cannot be read: {error.strerror}; plan again to make it") from error
    if identity not in text:
        raise FileDamaged(path, f"it is not the receipt of {identity}", "Plan again to make it")
    return plain_text(text)
