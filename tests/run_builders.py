"""Values of run state for tests: small, complete, with keyword overrides."""

from __future__ import annotations

from typing import Any

import msgspec

from windtunnel.domain.cell import Cell
from windtunnel.domain.digest import canonical, sha256_bytes
from windtunnel.domain.manifest import Launched, Manifest, manifest_of
from windtunnel.domain.outcome import Outcome, Reason
from windtunnel.domain.plan import (
    CellPlan,
    ConfigPlan,
    Paths,
    Plan,
    PreflightPlan,
    Selection,
    Settings,
    SubjectPlan,
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
from windtunnel.host.clock import boot_id
from windtunnel.host.processes import current

SHA = sha256_bytes(b"x")


def a_role() -> Role:
    return Role(name="executor", provider="replay", model="m", thinking=Thinking.HIGH, route="replay")


def a_config(name: str) -> ConfigPlan:
    return ConfigPlan(
        name=name, directory=f"/w/{name}", fingerprint=SHA, roles=(a_role(),), routes=(Route(name="replay"),)
    )


def a_plan(*, run_id: str = "r1", tasks: tuple[str, ...] = ("t1", "t2"), reps: int = 1, **fields: Any) -> Plan:
    cells = [Cell(task=task, config=config, rep=rep) for task in tasks for rep in range(reps) for config in ("a", "b")]
    plan = Plan(
        run_id=run_id,
        created_at="2026-12-01T00:00:00.000Z",
        command=("windtunnel", "plan"),
        versions={"windtunnel": "0.1.0"},
        host={"cpus": 2},
        subject=SubjectPlan(name="loop", version="1", platform="linux/amd64", bundle=SHA),
        model="replay/m",
        thinking=Thinking.HIGH,
        settings=Settings(environment="plain", reps=reps),
        selection=Selection(kind="tasks", tasks=tasks),
        baseline="a",
        configs=(a_config("a"), a_config("b")),
        tasks=tuple(
            Task(id=task, task_revision=SHA, verifier_revision=SHA, image=ImageSource(reference="i")) for task in tasks
        ),
        limits={task: Limits(memory_mb=512) for task in tasks},
        cells=tuple(
            CellPlan(
                cell=cell,
                state="new",
                identity=SHA,
                result_path=f"/w/results/m/high/{cell.config}/{cell.task}/rep{cell.rep}/result.json",
            )
            for cell in cells
        ),
        preflight=tuple(PreflightPlan(cell=cell) for cell in cells[:2]),
        paths=Paths(
            workspace="/w",
            results_root="/w/results",
            state_root="/w/results/_runs",
            tasks_root="/w/tasks",
            config_root="/w/configs",
            run_dir=f"/w/results/_runs/{run_id}",
            plan_file=f"/w/plans/{run_id}.json",
            receipt_file=f"/w/plans/{run_id}.txt",
        ),
        **fields,
    )
    return msgspec.structs.replace(plan, planIdentity=plan_identity(plan))


def a_manifest(**fields: Any) -> Manifest:
    launched = Launched(
        created_at="2026-12-01T00:00:00.000Z",
        command=("windtunnel", "run"),
        cwd="/w",
        host="somewhere-else",
        boot_id=boot_id(),
        pid=current().pid,
        windtunnel_version="0.1.0",
    )
    return manifest_of(a_plan(**fields), launched)


def some_usage(tokens: int = 10, *, role: str = "executor") -> Usage:
    used = RoleUsage(
        calls=1, calls_unknown=0, calls_failed=0, tokens=Tokens(input=tokens, cache_read=2, output=3, reasoning=1)
    )
    return Usage(by_role={role: used}, total=used)


def a_result(**fields: Any) -> Result:
    given: dict[str, Any] = {
        "task": "t1",
        "config": "a",
        "rep": 0,
        "model": "replay/m",
        "thinking": "high",
        "subject": SubjectFacts(name="loop", version="1", bundle=SHA),
        "outcome": Outcome.of(Reason.GRADED),
        "flags": (),
        "reward_binary": 1,
        "reward_partial": 1.0,
        "reward_detail": {"reward": 1.0, "f2p": 0.5},
        "tests": None,
        "patch": None,
        "agent": AgentFacts(exit=0, settled=True, turns=2, tool_calls=1, wall_s=1.5),
        "grading": "agent-filesystem",
        "verifier": None,
        "grade": "grades/1.json",
        "usage": some_usage(),
        "cost": Cost(),
        "thinking_by_role": {},
        "reconciliation": Reconciliation(state="reconciled"),
        "resources": Resources(),
        "attempt": 1,
        "attempts": 1,
        "run_id": "r1",
        "identities": Identities(
            cellIdentity=SHA, planIdentity=SHA, taskRevision=SHA, verifierRevision=SHA, config_fingerprint=SHA
        ),
        "versions": {"windtunnel": "0.1.0"},
        "started_at": "2026-12-01T00:00:00.000Z",
        "finished_at": "2026-12-01T00:00:01.000Z",
        "wall_s": 1.0,
        "legacy": {},
    }
    return Result(**(given | fields))


def same(one: object, other: object) -> bool:
    """Equal as JSON: tuples and lists are one, enums are their text."""
    return canonical(one) == canonical(other)
