"""`windtunnel demo`: the whole loop on bundled tasks with the loop subject and the replay provider.

No Docker, no keys, no root, no network. Everything is real but the model: the plan, the sandbox, the gateway, the
hidden tests, the verification. The replayed model works carefully or hastily, as the config's preamble tells it.
"""

from __future__ import annotations

import shutil
import sys
from collections import Counter
from importlib.resources import files
from pathlib import Path

import click

from windtunnel.cli.plan import environment_facts, plan_command
from windtunnel.cli.run import run_plan
from windtunnel.domain.digest import to_json
from windtunnel.domain.outcome import Status
from windtunnel.domain.plan import Plan
from windtunnel.errors import EngineAbsent, InputWrong
from windtunnel.store.plans import read_plan
from windtunnel.store.results import read_result
from windtunnel.store.tasks import bundled_root, read_instruction

__all__ = ["demo_command"]

TASKS = ("bill-split", "limiter-class", "sensor-tidy")
EASY = "sensor-tidy"  # the one that also the hasty model gets right
CONFIGS = ("careful", "hasty")


@click.command("demo")
@click.option("--root", type=click.Path(path_type=Path), default=Path("demo"), show_default=True)
def demo_command(root: Path) -> int:
    """Plan, confirm, smoke, fan out and verify two configs x three tasks x two reps, in a minute."""
    root = root.absolute()
    try:
        _write_configs(root / "configs")
    except OSError as error:
        raise InputWrong(
            f"--root {root}: {error.filename}: {error.strerror}; choose a directory to write in"
        ) from error
    environment = _environment()
    run_id = _free_run_id(root)
    arguments = _arguments(root, environment, run_id)
    click.echo(f"$ windtunnel plan {' '.join(arguments)}\n")
    plan_command.main(args=arguments, prog_name="windtunnel plan", standalone_mode=False)
    plan = read_plan(root / "plans" / f"{run_id}.json")
    reused = sum(planned.state == "reuse" for planned in plan.cells)
    if reused:
        click.echo(f"\nreusing {reused} of {len(plan.cells)} cells from the run before: nothing about them changed")
    click.echo(f"\n$ windtunnel run {plan.paths.plan_file} --confirm {plan.planIdentity}\n")
    code = run_plan(Path(plan.paths.plan_file), confirm=plan.planIdentity, yes=False, operator=None)
    click.echo("\n" + _summary(plan))
    return code


def _environment() -> str:
    try:
        environment_facts("local")
    except EngineAbsent as error:
        click.echo(f"{error.message}\nusing --environment plain\n")
        return "plain"
    return "local"


def _free_run_id(root: Path) -> str:
    number = 1
    while (root / "plans" / f"demo-{number}.json").exists():
        number += 1
    return f"demo-{number}"


def _arguments(root: Path, environment: str, run_id: str) -> list[str]:
    return [
        *("--subject", "loop", "--model", "replay/scripted", "--thinking", "medium"),
        *("--configs", ",".join(CONFIGS), "--config-root", str(root / "configs")),
        *("--tasks", ",".join(TASKS), "--tasks-root", str(bundled_root()), "--reps", "2", "--workers", "2"),
        *("--environment", environment, "--run-id", run_id),
        *("--results-root", str(root / "results"), "--plan-out", str(root / "plans")),
    ]


def _write_configs(root: Path) -> None:
    """The demo's workspace: two configs that differ in one file, on one replay script."""
    source = files("windtunnel") / "demo"
    script = to_json(_script())
    for name in CONFIGS:
        target = root / name
        target.mkdir(parents=True, exist_ok=True)
        for file in (source / name).iterdir():
            (target / file.name).write_bytes(file.read_bytes())
        (target / "replay.json").write_bytes(script)


def _script() -> dict[str, object]:
    conversations: list[dict[str, object]] = []
    for task in TASKS:
        title = read_instruction(bundled_root() / task).strip().splitlines()[0]
        solves = [_call("ls -la"), _call(_solution(task)), {"text": "Done and checked."}]
        gives_up = [_call("ls -la"), {"text": "The files look fine to me. Done."}]
        hasty = solves if task == EASY else gives_up
        match = {"prompt_contains": [title], "system_contains": ["first idea"]}
        conversations.append({"match": match, "turns": hasty})
        conversations.append({"match": {"prompt_contains": [title]}, "turns": solves})
    return {"schemaVersion": 1, "conversations": conversations}


def _call(command: str) -> dict[str, object]:
    call = {"name": "bash", "arguments": {"command": command}}
    return {"reasoning": "What is there, and what is asked?", "tool_calls": [call]}


def _solution(task: str) -> str:
    """A shell command that writes the files of a task's reference solution into the work directory."""
    root = bundled_root() / task / "solution" / "app"
    parts = []
    for file in sorted(path for path in root.rglob("*") if path.is_file()):
        name = file.relative_to(root).as_posix()
        parts.append(f"cat > {name} <<'END_OF_FILE'\n{file.read_text()}END_OF_FILE")
    return "\n".join(parts)


def _program() -> str:
    """How to call this program again: by name where it is on PATH, else by the path it was called by."""
    return "windtunnel" if shutil.which("windtunnel") else sys.argv[0]


def _summary(plan: Plan) -> str:
    valid: Counter[str] = Counter()
    solved: Counter[str] = Counter()
    planned: Counter[str] = Counter(entry.cell.config for entry in plan.cells)
    for entry in plan.cells:
        result = read_result(Path(entry.result_path))
        valid[entry.cell.config] += result.outcome.status is Status.VALID
        solved[entry.cell.config] += result.reward_binary == 1
    lines = [f"{name}: valid {valid[name]} of {planned[name]}, solved {solved[name]}" for name in CONFIGS]
    root = Path(plan.paths.results_root)
    where = [
        f"results    {root}",
        f"run        {plan.paths.run_dir}",
        f"receipt    {plan.paths.receipt_file}",
        f"a cell     {Path(plan.cells[0].result_path).parent}",
        f"look on:   {_program()} show {plan.run_id} --state-root {plan.paths.state_root}",
    ]
    return "\n".join([*lines, "", *where])
