"""Values with sane defaults for tests; override by keyword."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from windtunnel.domain.cell import Cell
from windtunnel.domain.digest import sha256_bytes
from windtunnel.domain.outcome import Outcome, Reason
from windtunnel.domain.plan import (
    CellIdentities,
    CellPlan,
    ConfigFile,
    ConfigPlan,
    Paths,
    Plan,
    PreflightPlan,
    Selection,
    Settings,
    SubjectPlan,
    config_fingerprint,
    plan_identity,
)
from windtunnel.domain.result import (
    AgentFacts,
    Cost,
    Identities,
    Reconciliation,
    Resources,
    Result,
    SubjectFacts,
    Usage,
)
from windtunnel.domain.role import Role, Route, Thinking
from windtunnel.domain.task import ImageSource, Limits, Task
from windtunnel.domain.wire import RoleUsage, Tokens

HASH = "sha256:" + "a" * 64


def a_role(**changes: Any) -> Role:
    values: dict[str, Any] = {
        "name": "executor",
        "provider": "acme",
        "model": "model-1",
        "thinking": Thinking.HIGH,
        "route": "acme",
    }
    return Role(**(values | changes))


def a_route(**changes: Any) -> Route:
    values: dict[str, Any] = {"name": "acme", "base_url": "https://llm.example.test/v1", "credential": "ACME_API_KEY"}
    return Route(**(values | changes))


def a_config(name: str = "a", text: str = "be brief", **changes: Any) -> ConfigPlan:
    files = (ConfigFile(path="system_preamble.md", sha256=sha256_bytes(text.encode()), bytes=len(text)),)
    values: dict[str, Any] = {
        "name": name,
        "directory": f"/w/configs/{name}",
        "fingerprint": config_fingerprint(changes.get("files", files)),
        "files": files,
        "roles": (a_role(),),
        "routes": (a_route(),),
    }
    return ConfigPlan(**(values | changes))


def a_task(id: str = "t1", **changes: Any) -> Task:
    values: dict[str, Any] = {
        "id": id,
        "task_revision": sha256_bytes(f"{id} task".encode()),
        "verifier_revision": sha256_bytes(f"{id} tests".encode()),
        "image": ImageSource(reference="debian:12"),
        "agent_timeout_s": 60.0,
        "limits": Limits(memory_mb=512),
        "local": True,
    }
    return Task(**(values | changes))


def some_paths(root: Path | str = "/w") -> Paths:
    root = str(root)
    return Paths(
        workspace=root,
        results_root=f"{root}/results",
        state_root=f"{root}/results/_runs",
        tasks_root=f"{root}/tasks",
        config_root=f"{root}/configs",
        run_dir=f"{root}/results/_runs/r1",
        plan_file=f"{root}/plans/r1.json",
        receipt_file=f"{root}/plans/r1.txt",
    )


def a_plan(root: Path | str = "/w", *, with_cells: bool = True, **changes: Any) -> Plan:
    """A whole plan with cells, preflight and identity; `with_cells` false leaves cells and preflight empty."""
    tasks: tuple[Task, ...] = changes.get("tasks", (a_task("t1"), a_task("t2")))
    values: dict[str, Any] = {
        "run_id": "r1",
        "created_at": "2026-12-01T00:00:00.000Z",
        "command": ("windtunnel", "plan", "--configs", "a,b"),
        "versions": {"windtunnel": "0.1.0", "git": None},
        "host": {"memory_mb": 16384, "cpus": 4},
        "subject": SubjectPlan(name="loop", version="1", platform="linux/amd64", bundle=HASH),
        "model": "acme/model-1",
        "thinking": Thinking.HIGH,
        "settings": Settings(environment="plain", reps=2, workers=2),
        "selection": Selection(kind="all", tasks=tuple(task.id for task in tasks)),
        "baseline": "a",
        "configs": (a_config("a"), a_config("b", "be long", varies=("system_preamble.md",))),
        "tasks": tasks,
        "limits": {task.id: task.limits for task in tasks},
        "cells": (),
        "paths": some_paths(root),
    }
    plan = Plan(**(values | changes))
    if with_cells and not plan.cells:
        plan = _with_cells(plan)
    return msgspec.structs.replace(plan, planIdentity=plan_identity(plan))


def _with_cells(plan: Plan) -> Plan:
    identities = CellIdentities(plan)
    leaf = (plan.model or "none").rsplit("/", 1)[-1]
    cells = tuple(
        CellPlan(
            cell=Cell(task=task.id, config=config.name, rep=rep),
            state="new",
            identity=identities.of(config, task),
            result_path=f"{plan.paths.results_root}/{leaf}/{plan.thinking}/{config.name}/{task.id}/rep{rep}/result.json",
        )
        for task in plan.tasks
        for rep in range(plan.settings.reps)
        for config in plan.configs
        if config.executed
    )
    first = tuple(
        PreflightPlan(cell=Cell(task=plan.tasks[0].id, config=config.name, rep=0))
        for config in plan.configs
        if config.executed
    )
    return msgspec.structs.replace(plan, cells=cells, preflight=first)


def a_result(plan: Plan, planned: CellPlan, **changes: Any) -> Result:
    """A valid, solved result that belongs to a planned cell."""
    cell = planned.cell
    config = next(c for c in plan.configs if c.name == cell.config)
    task = next(t for t in plan.tasks if t.id == cell.task)
    usage = RoleUsage(calls=1, calls_unknown=0, calls_failed=0, tokens=Tokens(input=10, output=5))
    values: dict[str, Any] = {
        "task": cell.task,
        "config": cell.config,
        "rep": cell.rep,
        "model": plan.model,
        "thinking": str(plan.thinking),
        "subject": SubjectFacts(name=plan.subject.name, version=plan.subject.version, bundle=plan.subject.bundle),
        "outcome": Outcome.of(Reason.GRADED),
        "flags": (),
        "reward_binary": 1,
        "reward_partial": 1.0,
        "reward_detail": None,
        "tests": None,
        "patch": None,
        "agent": AgentFacts(exit=0, settled=True),
        "grading": "agent-filesystem",
        "verifier": None,
        "grade": None,
        "usage": Usage(by_role={"executor": usage}, total=usage),
        "cost": Cost(),
        "thinking_by_role": {},
        "reconciliation": Reconciliation(state="reconciled"),
        "resources": Resources(),
        "attempt": 1,
        "attempts": 1,
        "run_id": plan.run_id,
        "identities": Identities(
            cellIdentity=planned.identity,
            planIdentity=plan.planIdentity,
            taskRevision=task.task_revision,
            verifierRevision=task.verifier_revision,
            config_fingerprint=config.fingerprint,
        ),
        "versions": {"windtunnel": "0.1.0"},
        "started_at": "2026-12-01T00:00:00.000Z",
        "finished_at": "2026-12-01T00:01:00.000Z",
        "wall_s": 60.0,
        "legacy": {},
    }
    return Result(**(values | changes))


TASK_TOML = """schema_version = "1.4"
[metadata.windtunnel]
local = true
[agent]
timeout_sec = 60
[environment]
memory_mb = 512
"""
REPLAY_SCRIPT = '{"conversations": []}'
CONFIG_TOML = """varies = ["system_preamble.md"]
[routes.replay]
kind = "replay"
script = "replay.json"
"""


def write_files(root: Path, files: dict[str, str]) -> Path:
    """Write text files below a directory; returns it."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return root


def a_workspace(root: Path) -> Path:
    """Configs a and b that differ in one file, with a replay route, and two local tasks t1 and t2."""
    for name in ("a", "b"):
        files = {"system_preamble.md": f"you are {name}", "config.toml": CONFIG_TOML, "replay.json": REPLAY_SCRIPT}
        write_files(root / "configs" / name, files)
    for name in ("t1", "t2"):
        files = {
            "task.toml": TASK_TOML,
            "instruction.md": f"solve {name}",
            "environment/Dockerfile": "FROM debian:12\n",
            "tests/test.sh": "exit 0\n",
            "solution/solve.sh": "true\n",
        }
        write_files(root / "tasks" / name, files)
    return root
