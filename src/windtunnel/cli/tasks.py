"""`windtunnel tasks`: what tasks there are, and whether their controls hold (oracle = 1, nop = 0)."""

from __future__ import annotations

import secrets
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path
from typing import Literal

import click

from windtunnel.cli.plan import environment_facts, machine_facts
from windtunnel.cli.run import run_plan
from windtunnel.domain.plan import Plan
from windtunnel.domain.receipt import receipt
from windtunnel.domain.receipt_text import to_text
from windtunnel.errors import FileDamaged, NotVerified, WindtunnelError
from windtunnel.steps.draft import draft
from windtunnel.steps.draft_request import Request
from windtunnel.store.plans import write_plan
from windtunnel.store.results import read_result
from windtunnel.store.tasks import bundled_root, list_tasks, read_task
from windtunnel.subjects.registry import find

__all__ = ["tasks_group"]

_EXPECTED = {"oracle": 1, "nop": 0}


@click.group("tasks")
def tasks_group() -> None:
    """List tasks and run their controls."""


@tasks_group.command("list")
@click.option("--tasks-root", type=click.Path(path_type=Path), default=None, help="Default: the bundled tasks.")
def list_command(tasks_root: Path | None) -> None:
    """The tasks of a root, each with how it is handed over and graded."""
    root = tasks_root or bundled_root()
    for name in list_tasks(root):
        task = read_task(root / name)
        click.echo(f"{name}  {task.hand_over}  local={'yes' if task.local else 'no'}  {task.image.label}")


@tasks_group.command("check")
@click.option("--tasks-root", type=click.Path(path_type=Path), default=None, help="Default: the bundled tasks.")
@click.option("--tasks", default=None, metavar="A,B", help="Only these; default: all of the root.")
@click.option("--environment", type=click.Choice(["docker", "local", "plain"]), help="Default: docker if reachable.")
@click.option("--workers", type=click.IntRange(min=1), default=2, show_default=True)
@click.option("--results-root", type=click.Path(path_type=Path), default=Path("results/_controls"), show_default=True)
def check_command(
    tasks_root: Path | None, tasks: str | None, environment: str | None, workers: int, results_root: Path
) -> int:
    """Run every task twice: its own solution must be rewarded 1 (oracle), doing nothing 0 (nop)."""
    root = (tasks_root or bundled_root()).absolute()
    chosen = tuple(filter(None, (tasks or "").split(",")))
    wrong: list[str] = []
    for control in ("oracle", "nop"):
        plan = _plan(control, root, chosen, environment, workers, results_root.absolute())
        try:
            run_plan(Path(plan.paths.plan_file), confirm=plan.planIdentity, yes=False, operator=None)
        except NotVerified as error:
            wrong.append(error.message)
        wrong += _compare(control, plan)
    if wrong:
        raise NotVerified("controls do not hold\n  " + "\n  ".join(wrong))
    click.echo("controls hold: oracle 1 and nop 0 on every task")
    return 0


def _plan(
    control: str, root: Path, chosen: tuple[str, ...], asked: str | None, workers: int, results_root: Path
) -> Plan:
    subject = find(control, None)
    name, facts = environment_facts(asked)
    run_id = datetime.now(UTC).strftime(f"{control}-%Y%m%d-%H%M%S-") + secrets.token_hex(2)
    plans = results_root / "_plans"
    request = Request(
        command=("windtunnel", "tasks", "check"),
        run_id=run_id,
        configs=(control,),
        environment=_known(name),
        workspace=Path.cwd(),
        config_root=Path(str(files("windtunnel") / "controls")),
        tasks_root=root,
        results_root=results_root,
        state_root=results_root / "_runs",
        plan_file=plans / f"{run_id}.json",
        receipt_file=plans / f"{run_id}.txt",
        tasks=chosen,
        all_tasks=not chosen,
        workers=workers,
    )
    plan = draft(request, subject=subject, environment_facts=facts, facts=machine_facts(subject))
    write_plan(plan, to_text(receipt(plan)))
    return plan


def _known(name: str) -> Literal["docker", "local", "plain"]:
    return "docker" if name == "docker" else "local" if name == "local" else "plain"


def _compare(control: str, plan: Plan) -> list[str]:
    """What is not as the control wants it, one line a task."""
    wrong = []
    for planned in plan.cells:
        try:
            result = read_result(Path(planned.result_path))
        except (FileNotFoundError, FileDamaged) as error:
            said = error.message if isinstance(error, WindtunnelError) else "no result"
            wrong.append(f"{planned.cell.task}: {control}: {said}")
            continue
        if result.reward_binary != _EXPECTED[control]:
            found = f"{result.outcome.status} {result.outcome.reason} {result.outcome.detail}".strip()
            wrong.append(
                f"{planned.cell.task}: {control} must be rewarded {_EXPECTED[control]}, "
                f"found {result.reward_binary} ({found})"
            )
    return wrong
