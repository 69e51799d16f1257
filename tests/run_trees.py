"""A small, complete and truthful run on disk, written by the product's own store functions.

Two configs x one task x two reps: each config's rep 0 is its smoke cell, rep 1 is the batch. Tests break one thing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from builders import a_config, a_plan, a_result, a_task
from windtunnel.domain.accounting import thinking_by_role, usage_of
from windtunnel.domain.cell import Cell
from windtunnel.domain.contract import parse_contract
from windtunnel.domain.digest import sha256_bytes, to_json, to_line
from windtunnel.domain.events import Kind
from windtunnel.domain.manifest import Confirmation, Launched, manifest_of
from windtunnel.domain.outcome import Outcome, Reason
from windtunnel.domain.plan import ConfigFile, ConfigPlan, Plan, Settings, config_fingerprint, plan_identity
from windtunnel.domain.result import AttemptRecord, PatchFacts, Result, TestCounts
from windtunnel.domain.wire import CallEnded, CallStarted, Record, Tokens
from windtunnel.gateway.interface import SecretSearch
from windtunnel.host.clock import utc_now
from windtunnel.host.processes import current
from windtunnel.steps.confirm import copy_inputs
from windtunnel.steps.judge import judge
from windtunnel.store.index import rebuild_index
from windtunnel.store.layout import AttemptDir, CellDir, RunDir, cell_dir
from windtunnel.store.results import Claim, claim, new_attempt, publish, release, write_attempt
from windtunnel.store.run_log import RunLog
from windtunnel.store.run_seal import seal_run
from windtunnel.store.sealing import seal

PATCH = b"diff --git a/x.py b/x.py\n--- a/x.py\n+++ b/x.py\n@@ -1 +1 @@\n-old\n+new\n"
CONTRACT = {"requireFiles": ["session/*.jsonl"], "requireRepoText": [{"path": "x.py", "text": "new"}]}
CTRF = {
    "results": {
        "tool": {"name": "t"},
        "summary": {
            "tests": 1,
            "passed": 1,
            "failed": 0,
            "pending": 0,
            "skipped": 0,
            "other": 0,
            "start": 0,
            "stop": 1,
        },
        "tests": [{"name": "a", "status": "passed", "duration": 1}],
    }
}


@dataclass
class RunTree:
    """A run that was written. `dir` finds a cell's directory, `attempt` its first attempt."""

    root: Path
    plan: Plan
    run: RunDir
    cells: dict[str, Cell] = field(default_factory=dict)

    def dir(self, cell_id: str) -> CellDir:
        return cell_dir(Path(self.plan.paths.results_root), self.plan.model, self.plan.thinking, self.cells[cell_id])

    def attempt(self, cell_id: str, number: int = 1) -> AttemptDir:
        return self.dir(cell_id).attempt(number)

    @property
    def index(self) -> Path:
        return self.dir(next(iter(self.cells))).root.parents[2] / "results.jsonl"


def a_tree(root: Path, *, until: str = "completed", **changes: Any) -> RunTree:
    """Write a run. `until`: completed, smoke (fan-out has not begun), running (a batch cell is at work), or paused."""
    return tree_of(root, written_plan(root, **changes), until)


def tree_of(root: Path, plan: Plan, until: str = "completed") -> RunTree:
    """Write the run of a plan; its identity is made anew."""
    plan = msgspec.structs.replace(plan, planIdentity=plan_identity(plan))
    tree = RunTree(root, plan, RunDir(Path(plan.paths.run_dir)), {c.cell.id: c.cell for c in plan.cells})
    store_launch(tree)
    with RunLog.open(tree.run, manifest_of(plan, launched())) as log:
        _story(tree, log, until)
    return tree


def written_plan(root: Path, **changes: Any) -> Plan:
    """A plan whose configs lie on disk below `root`."""
    configs = changes.pop("configs", None) or (written_config(root, "a"), written_config(root, "b", "be long"))
    settings = changes.pop("settings", Settings(environment="plain", reps=2, workers=2))
    return a_plan(root, configs=configs, tasks=(a_task("t1"),), settings=settings, **changes)


def written_config(root: Path, name: str, text: str = "be brief", **changes: Any) -> ConfigPlan:
    directory = root / "configs" / name
    directory.mkdir(parents=True)
    contents = {"system_preamble.md": text, "smoke.json": json.dumps(changes.pop("contract", CONTRACT))}
    for path, content in contents.items():
        (directory / path).write_text(content)
    files = tuple(
        ConfigFile(path=path, sha256=sha256_bytes(content.encode()), reaches_subject=path != "smoke.json")
        for path, content in contents.items()
    )
    values: dict[str, Any] = {"contract": "smoke.json", "contract_sha256": files[1].sha256} | changes
    fingerprint = config_fingerprint(files)
    return a_config(name, directory=str(directory), files=files, fingerprint=fingerprint, **values)


def launched() -> Launched:
    process = current()
    return Launched(
        created_at=utc_now(),
        command=("windtunnel", "run"),
        cwd="/w",
        host="h",
        boot_id=process.boot_id,
        pid=process.pid,
        windtunnel_version="0.1.0",
    )


def store_launch(tree: RunTree) -> None:
    plan, run = tree.plan, tree.run
    run.root.mkdir(parents=True)
    copy_inputs(plan, run.inputs)
    run.plan.write_bytes(to_json(plan))
    confirmation = Confirmation(identity=plan.planIdentity, time=utc_now(), operator="ann", how="flag")
    run.confirmation.write_bytes(to_json(confirmation))


def _story(tree: RunTree, log: RunLog, until: str) -> None:
    log.event(Kind.RUN_STARTED)
    for planned in tree.plan.cells:
        if planned.state == "reuse":
            log.event(Kind.CELL_SKIPPED, cell=planned.cell.id, reason="reused")
    for entry in tree.plan.preflight:
        smoke_cell(tree, log, entry.cell)
    if until == "smoke":
        return
    smoked = {entry.cell for entry in tree.plan.preflight}
    batch = [planned.cell for planned in tree.plan.cells if planned.state != "reuse" and planned.cell not in smoked]
    log.event(Kind.FANOUT_STARTED, cells=len(batch))
    for cell in batch[:-1] if until in {"running", "paused"} else batch:
        run_cell(tree, log, cell)
    if until == "running":
        log.event(Kind.CELL_STARTED, cell=batch[-1].id)
        log.event(Kind.ATTEMPT_STARTED, cell=batch[-1].id, attempt=1)
        tree.dir(batch[-1].id).root.mkdir(parents=True)
        _take(tree, batch[-1])
        new_attempt(tree.dir(batch[-1].id))
        log.heartbeat()
        return
    rebuild_index(tree.index.parent)
    if until == "paused":
        log.event(Kind.RUN_PAUSED, reason="stop", detail="SIGINT")
    else:
        log.event(Kind.RUN_COMPLETED)
        seal_run(tree.run, tree.plan.run_id)


def smoke_cell(tree: RunTree, log: RunLog, cell: Cell) -> None:
    """Run a config's first cell and judge it, as the smoke gate does."""
    config = next(c for c in tree.plan.configs if c.name == cell.config)
    log.event(Kind.PREFLIGHT_STARTED, cell=cell.id, config=config.name)
    if not tree.dir(cell.id).result.exists():
        run_cell(tree, log, cell)
    contract = None
    if config.contract is not None:
        contract = parse_contract((tree.run.inputs / config.name / config.contract).read_bytes(), "smoke.json")
    directory = tree.dir(cell.id)
    verdict = judge(directory, plan=tree.plan, config=config, contract=contract, calls_models=bool(config.roles))
    log.event(Kind.PREFLIGHT_FINISHED, cell=cell.id, config=config.name, passed=verdict.passed)
    kind = Kind.SMOKE_PASSED if verdict.passed else Kind.SMOKE_FAILED
    log.event(kind, cell=cell.id, config=config.name, verdict_path=str(directory.verdict), failed=[])


def run_cell(tree: RunTree, log: RunLog, cell: Cell, change: Callable[[Result], Result] | None = None) -> Result:
    """One attempt of a cell, from claim to result. `change` alters the result before it is sealed and published."""
    directory = tree.dir(cell.id)
    directory.root.mkdir(parents=True, exist_ok=True)
    _take(tree, cell)
    log.event(Kind.CELL_STARTED, cell=cell.id)
    number, attempt = new_attempt(directory)
    log.event(Kind.ATTEMPT_STARTED, cell=cell.id, attempt=number)
    records = write_evidence(attempt, f"{cell.id}#{number}", roles=bool(tree.plan.configs[0].roles))
    result = _result(tree, cell, number, records)
    result = result if change is None else change(result)
    close_attempt(attempt, result, cell)
    log.event(
        Kind.ATTEMPT_FINISHED,
        cell=cell.id,
        attempt=number,
        status=result.outcome.status,
        reason=result.outcome.reason,
    )
    seal(attempt, to_json(result))
    digest = publish(directory, number, result)
    release(directory)
    log.event(
        Kind.CELL_FINISHED,
        cell=cell.id,
        status=result.outcome.status,
        reason=result.outcome.reason,
        reward=result.reward_partial,
        attempts=result.attempts,
        usage=result.usage,
        cost_usd=result.cost.usd,
        result_path=str(directory.result),
        result_sha256=digest,
    )
    return result


def _take(tree: RunTree, cell: Cell) -> None:
    claimed = Claim(run_id=tree.plan.run_id, cell=cell.id, process=current(), ts=utc_now())
    assert claim(tree.dir(cell.id), claimed)


def close_attempt(attempt: AttemptDir, result: Result, cell: Cell) -> None:
    """The attempt's own record and its secret search."""
    search = SecretSearch(routes=("acme",), files=9, bytes=99, clean=True)
    attempt.secret_search.write_bytes(to_json(search))
    record = AttemptRecord(
        attempt=result.attempt,
        run_id=result.run_id,
        cell=cell.id,
        outcome=result.outcome,
        flags=result.flags,
        started_at=utc_now(),
        finished_at=utc_now(),
        usage=result.usage,
    )
    write_attempt(attempt, record)


def write_evidence(attempt: AttemptDir, key: str, *, roles: bool = True) -> list[Record]:
    """What host processes keep of an attempt: wire records, session, patch, the verifier's files."""
    records = some_calls(key) if roles else []
    if records:
        attempt.wire.write_bytes(b"".join(map(to_line, records)))
        (attempt.session / "s.jsonl").write_text('{"type":"message"}\n')
    attempt.patch.write_bytes(PATCH)
    (attempt.verifier / "reward.json").write_text('{"reward": 1}')
    (attempt.verifier / "ctrf.json").write_text(json.dumps(CTRF))
    (attempt.logs / "subject.stderr").write_text("")
    (attempt.box / "driver-events.ndjson").write_text("")
    return records


def some_calls(key: str, count: int = 2) -> list[Record]:
    records: list[Record] = []
    for number in range(count):
        call = f"{key}-{number}"
        records.append(
            CallStarted(
                call=call,
                ts=utc_now(),
                attempt=key,
                route="acme",
                role="executor",
                dialect="openai-completions",
                path="/chat/completions",
                model_asked="model-1",
                thinking_field="reasoning_effort",
                thinking_sent="high",
            )
        )
        records.append(
            CallEnded(
                call=call,
                ts=utc_now(),
                role="executor",
                status=200,
                ended_by="complete",
                model_served="model-1",
                tokens=Tokens(input=100, output=10),
                duration_ms=5.0,
            )
        )
    return records


def _result(tree: RunTree, cell: Cell, number: int, records: Iterable[Record]) -> Result:
    records = list(records)
    planned = next(p for p in tree.plan.cells if p.cell == cell)
    config = next(c for c in tree.plan.configs if c.name == cell.config)
    return a_result(
        tree.plan,
        planned,
        usage=usage_of(records),
        thinking_by_role=thinking_by_role(config.roles, records),
        reward_detail={"reward": 1.0},
        tests=TestCounts(passed=1, failed=0, skipped=0),
        patch=PatchFacts(bytes=len(PATCH), sha256=sha256_bytes(PATCH), files=1),
        attempt=number,
        attempts=number,
    )


def invalid(reason: Reason = Reason.PROVIDER_ERROR) -> Callable[[Result], Result]:
    """A change for `run_cell`: the cell becomes invalid, without a reward."""

    def change(result: Result) -> Result:
        return msgspec.structs.replace(
            result, outcome=Outcome.of(reason, "503"), reward_binary=None, reward_partial=None, reward_detail=None
        )

    return change
