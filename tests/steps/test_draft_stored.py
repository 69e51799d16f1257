"""Drafting on a results tree: reuse, refusal, quarantine, first cells, and the numbers to meet."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest
from drafting import config, config_of, planned, states, store

from builders import HASH, a_plan, a_task, a_workspace, write_files
from windtunnel.domain.cell import Cell
from windtunnel.domain.contract import Verdict
from windtunnel.domain.digest import to_json
from windtunnel.domain.outcome import Outcome, Reason
from windtunnel.domain.plan import CellPlan, Plan, Settings, plan_identity
from windtunnel.domain.role import Thinking
from windtunnel.errors import InputWrong
from windtunnel.steps.draft import _complete
from windtunnel.store.files import sha256_file
from windtunnel.store.layout import CellDir
from windtunnel.store.plans import write_plan


@pytest.fixture
def here(tmp_path: Path) -> Path:
    return a_workspace(tmp_path)


# ---- what is there already


def test_equal_results_are_reused_with_their_hash(here: Path) -> None:
    before = planned(here)
    path = store(before, before.cells[0])

    plan = planned(here)

    assert states(plan) == {"reuse": 1, "new": 7}
    assert plan.cells[0].result_sha256 == sha256_file(path)
    assert plan_identity(msgspec.structs.replace(plan, preflight=before.preflight)) == before.planIdentity


def test_more_reps_and_other_subsets_reuse_what_is_there(here: Path) -> None:
    before = planned(here, all_tasks=False, tasks=("t1",), configs=("a",), reps=1)
    store(before, before.cells[0])

    assert states(planned(here, reps=3)) == {"reuse": 1, "new": 11}


def test_an_invalid_result_is_run_again(here: Path) -> None:
    before = planned(here)
    store(before, before.cells[0], outcome=Outcome.of(Reason.ENGINE_ERROR), reward_binary=None, reward_partial=None)

    assert states(planned(here)) == {"new": 8}


@pytest.mark.parametrize("data", [b"", b"{", b"null", b'{"schemaVersion": 1}', b"\xff", b'{"a": NaN}'])
def test_an_unreadable_result_is_torn_and_not_trusted(here: Path, data: bytes) -> None:
    path = Path(planned(here).cells[0].result_path)
    path.parent.mkdir(parents=True)
    path.write_bytes(data)

    assert planned(here).cells[0].state == "torn"
    assert path.read_bytes() == data


def test_a_result_of_a_newer_schema_is_not_trusted(here: Path) -> None:
    plan = planned(here)
    store(plan, plan.cells[0], schemaVersion=2)

    assert planned(here).cells[0].state == "torn"


def test_a_result_with_an_agents_lone_surrogate_is_still_read(here: Path) -> None:
    plan = planned(here)
    store(plan, plan.cells[0], legacy={"said": "\ud800"})

    assert planned(here).cells[0].state == "reuse"


def test_a_result_of_another_identity_is_refused_with_fields_and_ways_out(here: Path) -> None:
    before = planned(here)
    for cell in before.cells:
        store(before, cell)
    write_files(here / "results/_runs/r1", {"plan.json": to_json(before).decode()})
    config(here, "b", {"system_preamble.md": "you are someone else"})

    with pytest.raises(InputWrong) as caught:
        planned(here)

    told = caught.value.message
    assert told.startswith("4 planned cells hold results of another identity")
    assert "/b/t1/rep0/result.json: file system_preamble.md of config b" in told
    assert "and 1 more" in told
    assert "--results-root" in told and "--existing quarantine" in told


def test_quarantine_marks_only_what_cannot_be_reused(here: Path) -> None:
    before = planned(here)
    for cell in before.cells:
        store(before, cell)
    config(here, "b", {"system_preamble.md": "you are someone else"})

    assert states(planned(here, existing="quarantine")) == {"reuse": 4, "quarantine": 4}


def test_a_changed_verifier_alone_offers_the_regrade_that_is_not_there_yet(here: Path) -> None:
    before = planned(here)
    store(before, before.cells[0])
    write_files(here / "tasks/t1", {"tests/test.sh": "exit 1\n"})

    with pytest.raises(
        InputWrong, match=r"tests/ or \[verifier\] in task\.toml of task t1: .*\n.*`regrade` is not built yet"
    ):
        planned(here)


@pytest.mark.parametrize(
    ("then", "now", "says"),
    [
        ({"agent_timeout_s": 300}, {"agent_timeout_s": 55}, "--agent-timeout: stored 300, planned 55"),
        ({}, {"agent_timeout_s": 55.5}, "--agent-timeout: stored the task's own, planned 55.5"),
        ({}, {"memory_mb": 700}, "--memory-mb: stored 512, planned 700"),
        ({"pids": 100}, {"cpus": 2}, "--pids: stored 100, planned 4096"),
        ({}, {"verifier_network": "none"}, "--verifier-network: stored the task's own, planned none"),
        ({}, {"environment": "docker"}, "--environment: stored plain, planned docker"),
        ({}, {"thinking": Thinking.HIGH, "model": "other/m-1"}, "--model: stored replay/m-1, planned other/m-1"),
    ],
)
def test_a_changed_setting_is_named_by_its_flag_with_both_values(
    here: Path, then: dict[str, Any], now: dict[str, Any], says: str
) -> None:
    for name in "ab":
        routes = "".join(f'[routes.{r}]\nkind = "replay"\nscript = "replay.json"\n' for r in ("other", "replay"))
        config(here, name, {"config.toml": routes})
    before = planned(here, **then)
    store(before, before.cells[0])
    write_files(here / "results/_runs/r1", {"plan.json": to_json(before).decode()})

    with pytest.raises(InputWrong) as caught:
        planned(here, **now)

    assert says in caught.value.message
    assert not any(inner in caught.value.message for inner in ("shared.", "settings.", "limits.", "_s:", "config."))


def test_a_changed_limit_is_named_from_the_plan_of_the_former_run(here: Path) -> None:
    before = planned(here)
    store(before, before.cells[0])
    write_files(here / "results/_runs/r1", {"plan.json": to_json(before).decode()})

    with pytest.raises(InputWrong, match=r"rep0/result\.json: --memory-mb: stored 512, planned 700\n"):
        planned(here, memory_mb=700)


def test_a_changed_limit_without_that_plan_is_told_as_far_as_known(here: Path) -> None:
    before = planned(here)
    store(before, before.cells[0])

    with pytest.raises(InputWrong, match=r"stored under another --agent-timeout, --memory-mb, .* not known"):
        planned(here, memory_mb=700)


def test_a_plan_that_did_not_make_the_result_is_not_asked_for_its_values(here: Path) -> None:
    before = planned(here, agent_timeout_s=300)
    store(before, before.cells[0])
    write_files(
        here / "results/_runs/r1",
        {"plan.json": to_json(planned(here, pids=99, existing="quarantine")).decode()},
    )

    with pytest.raises(InputWrong) as caught:
        planned(here, agent_timeout_s=55)

    assert "stored under another --agent-timeout" in caught.value.message
    assert "99" not in caught.value.message


def test_models_of_one_leaf_name_collide_on_purpose(here: Path) -> None:
    before = planned(here)
    store(before, before.cells[0])
    for name in "ab":
        config(here, name, {"config.toml": '[routes.other]\nkind = "replay"\nscript = "replay.json"\n'})

    with pytest.raises(InputWrong, match=r"--model: stored replay/m-1, planned other/m-1"):
        planned(here, model="other/m-1")


def test_a_result_that_says_it_is_another_cell_is_not_reused(here: Path) -> None:
    plan = planned(here)
    store(plan, plan.cells[0], rep=7)

    with pytest.raises(InputWrong, match="rep: stored 7, planned 0"):
        planned(here)


# ---- first cells


def verdict(plan: Plan, cell: CellPlan, **changes: Any) -> None:
    config = config_of(plan, cell)
    path = CellDir(Path(cell.result_path).parent)
    values: dict[str, Any] = {
        "config": config.name,
        "cell": cell.cell.id,
        "run_id": "r1",
        "config_fingerprint": config.fingerprint,
        "subject_bundle": plan.subject.bundle,
        "model": plan.model,
        "thinking": str(plan.thinking),
        "contract_sha256": config.contract_sha256,
        "result_sha256": sha256_file(path.result),
        "assertions": (),
        "passed": True,
        "judged_at": "2026-12-01T00:00:00.000Z",
    }
    path.verdict.write_bytes(to_json(Verdict(**(values | changes))))


def first_a(plan: Plan) -> CellPlan:
    return next(c for c in plan.cells if c.cell == Cell(task="t1", config="a", rep=0))


def preflight(plan: Plan) -> list[tuple[str, bool]]:
    return [(entry.cell.id, entry.stored) for entry in plan.preflight]


def test_new_configs_run_one_cell_first(here: Path) -> None:
    assert preflight(planned(here)) == [("t1/a/rep0", False), ("t1/b/rep0", False)]
    assert planned(here, preflight="disabled").preflight == ()


def test_a_config_that_passed_needs_no_first_cell_unless_required(here: Path) -> None:
    before = planned(here)
    store(before, first_a(before))
    verdict(before, first_a(before))

    assert preflight(planned(here)) == [("t1/b/rep0", False)]
    assert preflight(planned(here, preflight="required")) == [("t1/a/rep0", True), ("t1/b/rep0", False)]
    assert preflight(planned(here, all_tasks=False, tasks=("t2",))) == [("t2/b/rep0", False)]


@pytest.mark.parametrize(
    "changes",
    [
        {"passed": False},
        {"config_fingerprint": HASH},
        {"subject_bundle": "sha256:0"},
        {"model": "other/m-1"},
        {"thinking": "low"},
        {"contract_sha256": "sha256:0"},
        {"result_sha256": "sha256:0"},
    ],
)
def test_a_verdict_on_anything_else_does_not_count(here: Path, changes: dict[str, Any]) -> None:
    before = planned(here)
    store(before, first_a(before))
    verdict(before, first_a(before), **changes)

    assert preflight(planned(here))[0] == ("t1/a/rep0", True)


def test_a_torn_verdict_does_not_count(here: Path) -> None:
    before = planned(here)
    path = store(before, first_a(before))
    (path.parent / "smoke-verdict.json").write_text("{")

    assert preflight(planned(here))[0] == ("t1/a/rep0", True)


def test_a_stored_cell_is_taken_before_a_new_one(here: Path) -> None:
    before = planned(here)
    store(before, next(c for c in before.cells if c.cell == Cell(task="t2", config="a", rep=0)))

    assert preflight(planned(here)) == [("t2/a/rep0", True), ("t1/b/rep0", False)]


# ---- numbers to meet


def test_ten_thousand_cells_with_five_thousand_finished_take_two_seconds(tmp_path: Path) -> None:
    tasks = tuple(a_task(f"t{n}") for n in range(1000))
    settings = Settings(environment="plain", reps=5)
    whole = a_plan(tmp_path, tasks=tasks, settings=settings)
    for cell in whole.cells[:5000]:
        store(whole, cell)
    bare = a_plan(tmp_path, tasks=tasks, settings=settings, with_cells=False)

    before = psutil.Process().memory_info().rss
    began = time.process_time()
    plan = _complete(bare)
    write_plan(plan, "")
    took = time.process_time() - began

    assert states(plan) == {"reuse": 5000, "new": 5000}
    assert took < 2
    assert psutil.Process().memory_info().rss - before < 250 * 2**20
