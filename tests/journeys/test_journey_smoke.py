"""The smoke gate: a config that does not keep its contract never starts a batch."""

from __future__ import annotations

import json

import pytest
from workspace import (
    Workspace,
    asked,
    attempts,
    has_passed,
    is_clear_refusal,
    of_kind,
    outcome,
    script,
    solves,
)

BROKEN = {"requireText": [{"globs": ["session/loop.jsonl"], "text": "a word that nobody says"}]}
KEPT = {"requireText": [{"globs": ["session/loop.jsonl"], "text": "Done."}]}


def test_a_broken_contract_stops_the_batch_again_without_a_new_call_until_it_is_mended(workspace: Workspace) -> None:
    workspace.config("a", script(solves()), {"smoke.json": BROKEN})
    for name in ("one", "two"):
        workspace.task(name)

    plan, first = workspace.planned_and_run()

    is_clear_refusal(first, 2)
    assert "a word that nobody says" in first.stderr
    assert of_kind(plan.run_dir, "fanout_started") == []
    assert [path.exists() for path in plan.results] == [True, False]
    calls = len(asked(plan.run_dir))
    assert calls == 2

    again = workspace.run(plan)

    is_clear_refusal(again, 2)
    assert "a word that nobody says" in again.stderr
    assert len(asked(plan.run_dir)) == calls
    assert len(attempts(plan.result())) == 1
    assert [path.exists() for path in plan.results] == [True, False]
    assert workspace.verify().returncode == 2

    workspace.write("configs/a/smoke.json", KEPT)
    mended, done = workspace.planned_and_run("--run-id", "r2")

    assert done.returncode == 0, done.stderr
    assert mended.identity != plan.identity
    kinds = [e["event"] for e in of_kind(mended.run_dir, "smoke_passed") + of_kind(mended.run_dir, "fanout_started")]
    assert kinds == ["smoke_passed", "fanout_started"]
    assert len(attempts(plan.result())) == 1, "the stored cell was judged, not run"
    assert len(asked(mended.run_dir)) == 2, "only the other cell called the model"
    assert [outcome(path) for path in mended.results] == [("valid", "graded")] * 2
    has_passed(workspace.verify("r2"))
    assert workspace.leftovers() == []


def test_one_config_of_two_that_fails_its_smoke_stops_both(plain: Workspace) -> None:
    plain.config("a", script(solves()), {"smoke.json": KEPT})
    plain.config("b", script(solves()), {"smoke.json": BROKEN})
    for name in ("one", "two"):
        plain.task(name)

    plan, done = plain.planned_and_run(configs="a,b")

    assert done.returncode == 2
    assert "config b" in done.stderr
    assert "config a" not in done.stderr
    assert sum(path.exists() for path in plan.results) == 2
    assert of_kind(plan.run_dir, "fanout_started") == []


def test_a_model_that_tells_no_usage_fails_smoke_and_is_null_not_zero(plain: Workspace) -> None:
    plain.config("a", script([{"text": "Nothing to do.", "usage_missing": True}]))
    plain.task("one")

    plan, done = plain.planned_and_run()

    assert done.returncode == 2
    assert "usage_above_zero" in done.stderr
    usage = json.loads(plan.result().read_text())["usage"]["total"]
    assert usage["calls"] == 1
    assert usage["calls_unknown"] == 1
    assert usage["tokens"]["input"] is None
    assert usage["tokens"]["output"] is None


def test_an_invalid_smoke_cell_stops_the_batch_and_is_run_again_later(plain: Workspace) -> None:
    """Invalid is no verdict on the config: the next start tries the cell again."""
    always_refuses = [{"error": {"status": 400, "code": "bad_request", "message": "no"}}]
    plain.config("a", script(always_refuses))
    plain.task("one")

    plan, done = plain.planned_and_run()

    assert done.returncode in (2, 4), done.stderr
    assert plan.result().exists() is False or outcome(plan.result())[0] == "invalid"
    assert of_kind(plan.run_dir, "fanout_started") == []


def test_a_task_edited_between_two_smoke_cells_is_drift_with_its_event(plain: Workspace) -> None:
    plain.config("a", script(solves(delay_ms=300)))
    plain.config("b", script(solves(delay_ms=300)))
    plain.task("one")
    plan = plain.plan(configs="a,b")
    running = plain.start(plan)
    running.wait_for("attempt_phase", phase="follow")

    plain.write("tasks/one/instruction.md", "task one: write 43\n")

    assert running.end() == 4, running.out.read_text()
    assert sum(path.exists() for path in plan.results) == 1
    [drift] = of_kind(plan.run_dir, "launch_input_drift")
    assert drift["what"] == "task revision of one"
    assert plain.leftovers() == []


@pytest.mark.parametrize("preflight", ["required", "new-configs"])
def test_a_verdict_of_an_earlier_run_is_enough_unless_required(plain: Workspace, preflight: str) -> None:
    plain.config("a", script(solves()), {"smoke.json": KEPT})
    plain.task("one")
    plain.planned_and_run("--reps", "1")

    plan, done = plain.planned_and_run("--run-id", "r2", "--reps", "2", "--preflight", preflight)

    assert done.returncode == 0, done.stderr
    assert len(asked(plan.run_dir)) == 2
    assert bool(of_kind(plan.run_dir, "preflight_started")) == (preflight == "required")
    has_passed(plain.verify("r2"))
