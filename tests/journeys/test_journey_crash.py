"""kill -9 at moments that the event log tells: nothing finished is lost or run twice, nothing of ours stays behind."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest
from workspace import (
    Planned,
    Workspace,
    attempts,
    events,
    has_passed,
    ndjson,
    of_kind,
    outcome,
    result,
    said_wrong,
    script,
    solves,
)


def _prepared(workspace: Workspace, *flags: str, reps: int = 2) -> Planned:
    workspace.config("a", script(solves()))
    for name in ("one", "two"):
        workspace.task(name)
    return workspace.plan("--reps", str(reps), *flags)


def _finished(plan: Planned) -> dict[str, str]:
    """result_path -> hash of the cells that the log calls finished."""
    return {e["result_path"]: e["result_sha256"] for e in of_kind(plan.run_dir, "cell_finished")}


def _resumes(workspace: Workspace, plan: Planned) -> None:
    """The same command again ends the run, and all of it is whole."""
    done = workspace.run(plan)
    assert done.returncode == 0, said_wrong(done)
    assert [outcome(path) for path in plan.results] == [("valid", "graded")] * len(plan.results)
    assert [e["seq"] for e in events(plan.run_dir)] == list(range(1, len(events(plan.run_dir)) + 1))
    has_passed(workspace.verify())
    assert workspace.leftovers() == []


def _cut_attempts(plan: Planned) -> list[Path]:
    return [path for path in plan.results if len(attempts(path)) > 1]


def test_a_supervisor_killed_in_the_middle_of_cells_is_resumed_by_the_same_command(workspace: Workspace) -> None:
    plan = _prepared(workspace, "--workers", "2")
    running = workspace.start(plan)
    running.wait_for("fanout_started")
    running.wait_for("cell_finished", count=2)
    running.provider().suspend()
    # The last cell begins when the second one has finished: its model is already held back.
    running.wait_for("attempt_phase", phase="follow", count=4)
    provider = running.provider()

    running.kill()
    provider.resume()
    finished = _finished(plan)
    tried = {path: len(attempts(path)) for path in plan.results}
    status = workspace.windtunnel("status", "r1")
    assert status.returncode == 0
    assert "running" not in status.stdout.splitlines()[1], status.stdout

    _resumes(workspace, plan)

    assert len(finished) in (2, 3)
    assert {path: e for path, e in _finished(plan).items() if path in finished} == finished
    for path in plan.results:
        reasons = [attempt["outcome"]["reason"] for attempt in attempts(path)]
        assert reasons == ["container_lost"] * (len(reasons) - 1) + ["graded"]
        assert len(reasons) <= tried[path] + 1
    assert len(_cut_attempts(plan)) >= 1


@pytest.mark.parametrize("phase", ["prepare_image", "create", "start", "follow", "end", "collect", "verify", "account"])
def test_a_kill_in_any_phase_of_an_attempt_costs_at_most_that_attempt(plain: Workspace, phase: str) -> None:
    plan = _prepared(plain, reps=1)
    running = plain.start(plan)
    running.wait_for("attempt_phase", phase=phase, count=2)

    running.kill()
    finished = _finished(plan)

    assert len(finished) >= 1
    _resumes(plain, plan)
    assert {path: e for path, e in _finished(plan).items() if path in finished} == finished
    assert all(len(attempts(Path(path))) == 1 for path in finished)
    assert all(len(attempts(path)) <= 2 for path in plan.results)


def test_three_kills_in_a_row_during_the_resume_lose_nothing(plain: Workspace) -> None:
    plan = _prepared(plain)
    for count in (1, 2, 3):
        running = plain.start(plan)
        running.wait_for("attempt_phase", phase="follow", count=count)
        running.kill()

    _resumes(plain, plan)

    kept = [a["outcome"]["reason"] for path in plan.results for a in attempts(path)]
    assert kept.count("graded") == len(plan.results)
    assert set(kept) <= {"graded", "container_lost"}


def test_a_torn_last_line_of_the_log_is_cut_off_and_said(plain: Workspace) -> None:
    plan = _prepared(plain)
    running = plain.start(plan)
    running.wait_for("attempt_phase", phase="follow", count=2)
    running.kill()
    with (plan.run_dir / "events.ndjson").open("ab") as log:
        log.write(b'{"seq": 99, "ts": "2026-')

    _resumes(plain, plan)

    [resumed] = of_kind(plan.run_dir, "run_resumed")
    assert resumed["torn_bytes"] > 0


def test_a_gateway_killed_while_a_call_is_in_flight_is_an_event_of_the_attempt_not_of_the_run(
    workspace: Workspace,
) -> None:
    workspace.config("a", script(solves(delay_ms=700)))
    workspace.task("one")
    plan = workspace.plan()
    running = workspace.start(plan)
    wire = plan.result().parent / "attempts/1/wire.ndjson"
    running.until(lambda: wire.exists() and b"call_started" in wire.read_bytes(), "a call in flight")
    facts = json.loads((plan.run_dir / "gateway.json").read_text())

    os.kill(facts["pid"], signal.SIGKILL)

    assert running.end() == 0, running.out.read_text()
    value = result(plan.result())
    assert value["outcome"]["reason"] == "graded"
    assert "gateway_restarted" in value["flags"]
    assert value["reward_binary"] == 1
    assert value["usage"]["total"]["calls_unknown"] == 1, "the cut call may have cost something: unknown, not 0"
    assert sum(line["event"] == "call_started" for line in ndjson(wire)) == 3
    assert json.loads((plan.run_dir / "gateway.json").read_text())["restarts"] == 1
    has_passed(workspace.verify())
    assert workspace.leftovers() == []


def test_supervisor_and_gateway_killed_together_are_resumed(plain: Workspace) -> None:
    plan = _prepared(plain)
    running = plain.start(plan)
    running.wait_for("attempt_phase", phase="follow", count=2)
    facts = json.loads((plan.run_dir / "gateway.json").read_text())
    running.kill()
    os.kill(facts["pid"], signal.SIGKILL)

    _resumes(plain, plan)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_one_signal_lets_running_cells_end_and_the_same_command_goes_on(
    workspace: Workspace, number: signal.Signals, code: int
) -> None:
    plan = _prepared(workspace)
    running = workspace.start(plan)
    running.wait_for("fanout_started")
    running.wait_for("attempt_phase", phase="follow", count=2)

    running.signal(number)

    assert running.end() == code, running.out.read_text()
    assert "Traceback" not in running.out.read_text()
    started = {e["cell"] for e in of_kind(plan.run_dir, "cell_started")}
    assert {e["cell"] for e in of_kind(plan.run_dir, "cell_finished")} == started
    assert len(started) < len(plan.results)
    assert json.loads((plan.run_dir / "status.json").read_text())["state"] == "paused"
    assert workspace.leftovers() == []
    verified = workspace.verify()
    assert f"PASS (launch; {len(started)} of 4 cells so far)" in verified.stdout

    _resumes(workspace, plan)
    assert all(len(attempts(path)) == 1 for path in plan.results)


def test_a_signal_during_the_smoke_cell_starts_no_batch_cell(plain: Workspace) -> None:
    plan = _prepared(plain)
    running = plain.start(plan)
    running.wait_for("attempt_phase", phase="follow")

    running.signal(signal.SIGINT)

    assert running.end() == 130, running.out.read_text()
    assert len(of_kind(plan.run_dir, "cell_started")) == 1
    _resumes(plain, plan)


def test_two_signals_stop_now_and_leave_nothing_behind(workspace: Workspace) -> None:
    plan = _prepared(workspace, "--workers", "2")
    running = workspace.start(plan)
    running.wait_for("fanout_started")
    provider = running.provider()
    provider.suspend()  # whoever works now works until it is stopped
    running.wait_for("attempt_phase", phase="follow", count=3)

    running.signal(signal.SIGINT)
    running.wait_for("control_received")
    running.signal(signal.SIGINT)
    running.wait_for("control_received", count=2)
    provider.resume()

    assert running.end() == 130, running.out.read_text()
    assert "Traceback" not in running.out.read_text()
    reasons = [a["outcome"]["reason"] for path in plan.results if path.parent.exists() for a in attempts(path)]
    assert set(reasons) <= {"graded", "cancelled"}
    assert "cancelled" in reasons
    assert not [path for path in plan.results if path.exists() and outcome(path)[0] != "valid"]
    assert workspace.leftovers() == []

    _resumes(workspace, plan)


def test_a_hangup_of_the_starting_terminal_is_no_traceback(plain: Workspace) -> None:
    plan = _prepared(plain)
    running = plain.start(plan)
    running.wait_for("attempt_phase", phase="follow")

    running.signal(signal.SIGHUP)
    running.end()

    assert "Traceback" not in running.out.read_text()
    _resumes(plain, plan)


def test_a_kill_between_an_event_and_its_line_for_people_is_made_up_for(plain: Workspace) -> None:
    plan = _prepared(plain)
    running = plain.start(plan)
    running.wait_for("attempt_phase", phase="follow", count=2)
    running.kill()
    log = plan.run_dir / "run.log"
    lines = log.read_text().splitlines(keepends=True)
    assert "fan-out began" in lines[-1]
    log.write_text("".join(lines[:-1]))

    _resumes(plain, plan)


def test_a_kill_between_a_verdict_and_its_event_is_made_up_for(plain: Workspace) -> None:
    plan = _prepared(plain)
    running = plain.start(plan)
    running.wait_for("attempt_phase", phase="follow")
    running.signal(signal.SIGINT)
    running.end()
    _cut_before(plan.run_dir / "events.ndjson", b'"preflight_finished"')
    _cut_before(plan.run_dir / "run.log", b"smoke passed")

    _resumes(plain, plan)


def _cut_before(path: Path, text: bytes) -> None:
    """Forget everything from the line with this text on, as if the process had been killed before it."""
    data = path.read_bytes()
    path.write_bytes(data[: data.rindex(b"\n", 0, data.index(text)) + 1])


def test_an_attempt_without_its_record_is_kept_and_counted_past(plain: Workspace) -> None:
    """A kill between an attempt's directory and its first file."""
    plan = _prepared(plain)
    running = plain.start(plan)
    running.wait_for("attempt_phase", phase="follow", count=2)
    running.kill()
    bare = next(path for path in plan.results if not path.parent.exists()).parent / "attempts/1"
    for part in ("box", "logs", "session"):
        (bare / part).mkdir(parents=True)

    _resumes(plain, plan)

    assert (bare.parent / "2/attempt.json").exists()
