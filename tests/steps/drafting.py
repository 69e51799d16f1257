"""Shared by the draft tests: a request, a plan drafted from it, stored results."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from builders import HASH, a_result, write_files
from windtunnel.domain.digest import to_json
from windtunnel.domain.plan import CellPlan, Plan
from windtunnel.environments.interface import EnvironmentFacts
from windtunnel.steps.draft import draft
from windtunnel.steps.draft_request import Facts, Request
from windtunnel.subjects.registry import find

PLAIN = EnvironmentFacts(name="plain", version="1", isolation="none at all", memory_enforced_by="nothing")
DOCKER = EnvironmentFacts(name="docker", version="20.10", isolation="containers", memory_enforced_by="engine")


def asked(root: Path, **changes: Any) -> Request:
    values: dict[str, Any] = {
        "command": ("windtunnel", "plan"),
        "run_id": "r1",
        "configs": ("a", "b"),
        "environment": "plain",
        "workspace": root,
        "config_root": root / "configs",
        "tasks_root": root / "tasks",
        "results_root": root / "results",
        "state_root": root / "results/_runs",
        "plan_file": root / "plans/r1.json",
        "receipt_file": root / "plans/r1.txt",
        "model": "replay/m-1",
        "all_tasks": True,
        "reps": 2,
    }
    return Request(**(values | changes))


def planned(root: Path, subject: str = "loop", environ: dict[str, str] | None = None, **changes: Any) -> Plan:
    memory = changes.pop("memory_mb_of_host", 64 * 1024)
    request = asked(root, **changes)
    return draft(
        request,
        subject=find(subject),
        environment_facts=DOCKER if request.environment == "docker" else PLAIN,
        facts=Facts(
            environ=environ or {},
            now="2026-12-01T00:00:00.000Z",
            memory_mb=memory,
            cpus=8,
            platform="linux/amd64",
            bundle=HASH,
            versions={"windtunnel": "0.1.0", "git": None},
        ),
    )


def config(root: Path, name: str, files: dict[str, str]) -> None:
    write_files(root / "configs" / name, files)


def store(plan: Plan, cell: CellPlan, **changes: Any) -> Path:
    path = Path(cell.result_path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(to_json(a_result(plan, cell, **changes)))
    return path


def states(plan: Plan) -> Counter[str]:
    return Counter(cell.state for cell in plan.cells)


def config_of(plan: Plan, cell: CellPlan) -> Any:
    return next(c for c in plan.configs if c.name == cell.cell.config)


def task_of(plan: Plan, cell: CellPlan) -> Any:
    return next(t for t in plan.tasks if t.id == cell.cell.task)
