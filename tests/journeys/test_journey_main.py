"""The main journey: plan, confirm, run, verify; and the same looks at a run that still works."""

from __future__ import annotations

import json
import re
from pathlib import Path

from workspace import Workspace, asked, has_passed, ndjson, outcome, script, solves


def test_a_confirmed_plan_runs_verifies_and_shows_where_everything_lies(workspace: Workspace) -> None:
    for name in ("a", "b"):
        workspace.config(name, script(solves()))
    for name in ("one", "two"):
        workspace.task(name)

    plan, done = workspace.planned_and_run("--workers", "2", configs="a,b")

    assert done.returncode == 0, done.stdout + done.stderr
    assert "PASS" in done.stdout.splitlines()
    assert [outcome(path) for path in plan.results] == [("valid", "graded")] * 4
    assert all(json.loads(path.read_text())["reward_binary"] == 1 for path in plan.results)
    verified = workspace.verify()
    has_passed(verified)
    assert _missing_evidence(verified.stdout, workspace.root) == []
    _tokens_are_those_of_the_provider(plan.run_dir, plan.results)
    assert re.search(r"^state +completed", workspace.windtunnel("status", "r1").stdout, re.MULTILINE)
    assert re.search(r"^r1 +completed", workspace.windtunnel("list").stdout, re.MULTILINE)
    assert plan.identity in workspace.windtunnel("show", "r1").stdout
    assert plan.identity in workspace.windtunnel("show", plan.file).stdout
    assert workspace.leftovers() == []


def _missing_evidence(text: str, root: Path) -> list[str]:
    """Evidence paths of printed claims that do not exist. Every claim must name one."""
    missing = []
    lines = [line for line in text.splitlines() if line.startswith(("ok ", "FAIL "))]
    assert len(lines) > 20
    for line in lines:
        named = re.search(r"\[([^\]]+)\]$", line)
        assert named, line
        paths = re.sub(r" and \d+ more$", "", named[1]).split(", ")
        missing += [path for path in paths if not (root / path).exists()]
    return missing


def _tokens_are_those_of_the_provider(run_dir: Path, results: list[Path]) -> None:
    wire = [line for path in results for file in path.parent.glob("attempts/*/wire.ndjson") for line in ndjson(file)]
    ends = [line["tokens"] for line in wire if line["event"] == "call_ended"]
    counted = [line["usage"] for line in asked(run_dir)]

    assert len(ends) == len(counted) == 2 * len(results)
    assert sum(t["input"] + (t["cache_read"] or 0) for t in ends) == sum(u["prompt_tokens"] for u in counted)
    assert sum(t["output"] for t in ends) == sum(u["completion_tokens"] for u in counted)


def test_verify_of_a_running_batch_says_so_and_passes(workspace: Workspace) -> None:
    workspace.config("a", script(solves()))
    for name in ("one", "two", "three"):
        workspace.task(name)
    plan = workspace.plan()
    running = workspace.start(plan)

    running.wait_for("cell_finished")
    running.provider().suspend()  # whatever runs now waits for its model
    verified = workspace.verify()
    status = workspace.windtunnel("status", "r1")

    assert verified.returncode == 0, verified.stdout
    assert re.search(r"^PASS \(launch; [12] of 3 cells so far\)$", verified.stdout, re.MULTILINE), verified.stdout
    assert _missing_evidence(verified.stdout, workspace.root) == []
    assert "running" in status.stdout
    running.provider().resume()
    assert running.end() == 0
    has_passed(workspace.verify())


def test_a_second_run_of_a_living_run_is_refused_with_its_pid(plain: Workspace) -> None:
    plain.config("a", script(solves()))
    plain.task("one")
    plan = plain.plan()
    running = plain.start(plan)
    running.wait_for("attempt_phase", phase="follow")
    running.provider().suspend()

    second = plain.run(plan)

    assert second.returncode == 1
    assert f"pid {running.process.pid}" in second.stderr
    running.provider().resume()
    assert running.end() == 0
