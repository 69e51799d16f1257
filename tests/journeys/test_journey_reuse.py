"""Results are never measured twice nor overwritten: reuse, refusal with the ways out, quarantine."""

from __future__ import annotations

import hashlib
import json

import pytest
from workspace import (
    Planned,
    Workspace,
    asked,
    attempts,
    bash,
    has_passed,
    is_clear_refusal,
    of_kind,
    outcome,
    result,
    script,
    solves,
)


@pytest.fixture
def done_once(plain: Workspace) -> Planned:
    plain.config("a", script(solves()), {"system_preamble.md": "Be careful.\n"})
    for name in ("one", "two"):
        plain.task(name)
    plan, done = plain.planned_and_run()
    assert done.returncode == 0, done.stderr
    return plan


def _states(plan: Planned) -> list[str]:
    return [cell["state"] for cell in plan.value["cells"]]


def _hashes(plan: Planned) -> list[str]:
    return [hashlib.sha256(path.read_bytes()).hexdigest() for path in plan.results]


def test_a_second_plan_of_the_same_reuses_all_and_calls_nobody(plain: Workspace, done_once: Planned) -> None:
    before = _hashes(done_once)

    plan, done = plain.planned_and_run("--run-id", "r2")

    assert done.returncode == 0, done.stderr
    assert _states(plan) == ["reuse", "reuse"]
    assert _hashes(plan) == before
    assert asked(plan.run_dir) == []
    assert {e["reason"] for e in of_kind(plan.run_dir, "cell_skipped")} == {"reused"}
    has_passed(plain.verify("r2"))


def test_more_reps_and_tasks_add_to_what_is_there(plain: Workspace, done_once: Planned) -> None:
    before = _hashes(done_once)
    plain.task("three")

    plan, done = plain.planned_and_run("--run-id", "r2", "--reps", "2")

    assert done.returncode == 0, done.stderr
    assert sorted(_states(plan)) == ["new"] * 4 + ["reuse"] * 2
    assert _hashes(done_once) == before
    has_passed(plain.verify("r2"))


def test_a_nested_subset_reuses_for_free(plain: Workspace, done_once: Planned) -> None:
    plain.write("subsets/small.txt", "# one of them\none\n")

    plan, done = plain.planned_and_run("--run-id", "r2", "--subset", "small")

    assert done.returncode == 0, done.stderr
    assert _states(plan) == ["reuse"]
    has_passed(plain.verify("r2"))


def test_results_of_another_identity_are_refused_with_field_and_ways_out(plain: Workspace, done_once: Planned) -> None:
    before = _hashes(done_once)
    plain.write("configs/a/system_preamble.md", "Be hasty.\n")

    done = plain.windtunnel(*plain.plan_command("--run-id", "r2"))

    is_clear_refusal(done, 1)
    for words in ("file system_preamble.md of config a", "--results-root", "--existing quarantine"):
        assert words in done.stderr
    assert _hashes(done_once) == before


def test_quarantine_moves_what_is_there_and_runs_anew(plain: Workspace, done_once: Planned) -> None:
    before = _hashes(done_once)
    plain.write("configs/a/system_preamble.md", "Be hasty.\n")

    plan, done = plain.planned_and_run("--run-id", "r2", "--existing", "quarantine")

    assert done.returncode == 0, done.stderr
    assert _states(plan) == ["quarantine"] * 2
    shelf = plain.root / "results/_quarantine"
    moved = sorted(shelf.glob("*/scripted/medium/a/*/rep0/result.json"))
    assert sorted(hashlib.sha256(path.read_bytes()).hexdigest() for path in moved) == sorted(before)
    noted = [json.loads(line) for line in (shelf / "quarantine.ndjson").read_text().splitlines()]
    assert {line["result_sha256"].removeprefix("sha256:") for line in noted} == set(before)
    assert all((path.parent / "attempts/1/wire.ndjson").exists() for path in moved)
    assert [outcome(path) for path in plan.results] == [("valid", "graded")] * 2
    assert len(asked(plan.run_dir)) == 4
    has_passed(plain.verify("r2"))


def test_a_run_that_quarantines_can_be_killed_and_resumed(plain: Workspace, done_once: Planned) -> None:
    before = sorted(_hashes(done_once))
    plain.write("configs/a/system_preamble.md", "Be hasty.\n")
    plan = plain.plan("--run-id", "r2", "--existing", "quarantine")
    running = plain.start(plan)
    running.wait_for("fanout_started")
    running.wait_for("attempt_phase", phase="follow", count=2)
    running.kill()

    done = plain.run(plan)

    assert done.returncode == 0, done.stderr
    moved = plain.root.glob("results/_quarantine/*/scripted/medium/a/*/rep0/result.json")
    assert sorted(hashlib.sha256(path.read_bytes()).hexdigest() for path in moved) == before
    has_passed(plain.verify("r2"))


def test_a_change_of_the_tests_alone_offers_a_regrade(plain: Workspace, done_once: Planned) -> None:
    plain.write("tasks/one/tests/more.txt", "another expectation\n")

    done = plain.windtunnel(*plain.plan_command("--run-id", "r2"))

    is_clear_refusal(done, 1)
    assert "regrade" in done.stderr
    assert "one" in done.stderr


def test_another_root_takes_what_another_identity_measures(plain: Workspace, done_once: Planned) -> None:
    plain.write("configs/a/system_preamble.md", "Be hasty.\n")

    plan, done = plain.planned_and_run("--run-id", "r2", "--results-root", "others")

    assert done.returncode == 0, done.stderr
    assert _states(plan) == ["new"] * 2
    assert plan.run_dir == plain.root / "others/_runs/r2"


def test_another_plan_of_the_same_run_id_is_refused(plain: Workspace, done_once: Planned) -> None:
    written = plain.windtunnel(*plain.plan_command("--reps", "2"))
    elsewhere = plain.windtunnel(*plain.plan_command("--reps", "2", "--plan-out", "elsewhere"))
    file = plain.root / "elsewhere/r1.json"
    done = plain.windtunnel("run", file, "--confirm", json.loads(file.read_text())["planIdentity"])

    assert elsewhere.returncode == 0
    for refused in (written, done):
        is_clear_refusal(refused, 1)
        assert "--run-id" in refused.stderr
    has_passed(plain.verify())


def test_invalid_cells_are_run_again_by_the_same_command_and_by_a_new_plan(plain: Workspace) -> None:
    broken = {"error": {"status": 200, "code": "server_error", "message": "broken", "in_stream": True}}
    fails = {"match": {"prompt_contains": ["task two:"]}, "turns": [bash("true"), broken]}
    plain.config("a", script(solves(), fails))
    for name in ("one", "two"):
        plain.task(name)
    plan, first = plain.planned_and_run("--order", "task", "--cell-retries", "0")
    assert first.returncode == 2

    again = plain.run(plan)

    assert again.returncode == 2
    assert len(attempts(plan.result(0))) == 1
    assert len(attempts(plan.result(1))) == 2
    assert result(plan.result(1))["outcome"]["status"] == "invalid"

    plain.config("a", script(solves()))
    healed = plain.windtunnel(*plain.plan_command("--run-id", "r2"))
    assert healed.returncode == 1, "the script is part of the identity"


def test_two_runs_on_one_tree_never_work_on_the_same_cell(plain: Workspace) -> None:
    plain.config("a", script(solves()))
    plain.task("one")
    first, second = (plain.plan("--run-id", name, "--reps", "2") for name in ("r1", "r2"))
    running = plain.start(first)
    running.wait_for("attempt_phase", phase="follow")
    running.provider().suspend()

    refused = plain.run(second)

    assert refused.returncode == 75, refused.stderr
    assert "run r1" in refused.stderr
    assert "Traceback" not in refused.stderr
    assert of_kind(second.run_dir, "smoke_failed") == []
    running.provider().resume()
    assert running.end() == 0

    done = plain.run(second)

    assert done.returncode == 0, done.stderr
    assert all(len(attempts(path)) == 1 for path in first.results)
    assert asked(second.run_dir) == []
    for name in ("r1", "r2"):
        has_passed(plain.verify(name))


def test_a_batch_cell_of_another_living_run_is_left_to_it(plain: Workspace) -> None:
    plain.config("a", script(solves()))
    plain.task("one")
    assert plain.planned_and_run("--run-id", "r0")[1].returncode == 0
    first, second = (plain.plan("--run-id", name, "--reps", "3") for name in ("r1", "r2"))
    running = plain.start(first)
    running.wait_for("attempt_phase", phase="follow")
    running.provider().suspend()

    paused = plain.run(second)

    assert paused.returncode == 75, paused.stderr
    assert "run r1" in paused.stderr
    assert len(of_kind(second.run_dir, "cell_finished")) == 1
    running.provider().resume()
    assert running.end() == 0
    assert plain.run(second).returncode == 0
    assert all(len(attempts(path)) == 1 for path in first.results)
    for name in ("r1", "r2"):
        has_passed(plain.verify(name))
