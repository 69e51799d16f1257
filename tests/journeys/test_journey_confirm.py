"""Nobody runs what nobody said yes to, and nothing runs that is not what was said yes to."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from workspace import Planned, Workspace, attempts, has_passed, is_clear_refusal, of_kind, outcome, script, solves


@pytest.fixture
def planned(plain: Workspace) -> Planned:
    plain.config("a", script(solves()), {"system_preamble.md": "Be careful.\n"})
    plain.task("one")
    return plain.plan()


def _nothing_started(workspace: Workspace, plan: Planned) -> None:
    assert not plan.run_dir.exists() or list(plan.run_dir.iterdir()) == []
    assert [path for path in plan.results if path.parent.exists()] == []
    assert workspace.leftovers() == []


@pytest.mark.parametrize(
    "given",
    [
        ("--confirm", "sha256:" + "0" * 64),
        ("--confirm", "sha256:1234"),
        ("--confirm", "yes"),
        ("--confirm", ""),
        (),
    ],
    ids=["another", "short", "a-word", "empty", "missing"],
)
def test_a_confirmation_of_anything_else_starts_nothing(
    plain: Workspace, planned: Planned, given: tuple[str, ...]
) -> None:
    done = plain.windtunnel("run", planned.file, *given)

    is_clear_refusal(done, 3)
    assert f"windtunnel run {planned.file} --confirm {planned.identity}" in done.stderr
    _nothing_started(plain, planned)


def test_the_printed_command_is_the_one_that_runs(plain: Workspace, planned: Planned) -> None:
    refused = plain.windtunnel("run", planned.file)
    command = next(line for line in refused.stderr.splitlines() if line.startswith("windtunnel run "))

    done = plain.windtunnel(*command.split()[1:])

    has_passed(plain.verify())
    assert done.returncode == 0


def test_a_plan_file_that_was_changed_is_not_confirmed(plain: Workspace, planned: Planned) -> None:
    planned.value["settings"]["reps"] = 7
    planned.file.write_text(json.dumps(planned.value))

    done = plain.run(planned)

    is_clear_refusal(done, 3)
    assert str(planned.file) in done.stderr
    _nothing_started(plain, planned)


@pytest.mark.parametrize("content", [None, b"", b"{", b"\xff\xfe\x00", b"[]", b'{"schemaVersion": 99}'])
def test_a_plan_file_that_cannot_be_read_is_wrong_input(
    plain: Workspace, planned: Planned, content: bytes | None
) -> None:
    planned.file.unlink() if content is None else planned.file.write_bytes(content)

    done = plain.run(planned)

    is_clear_refusal(done, 1)
    assert str(planned.file) in done.stderr
    _nothing_started(plain, planned)


def test_a_config_edited_between_plan_and_run_is_drift_with_the_file_and_both_hashes(
    plain: Workspace, planned: Planned
) -> None:
    file = plain.write("configs/a/system_preamble.md", "Be hasty.\n")

    done = plain.run(planned)

    is_clear_refusal(done, 4)
    planned_hash = next(f["sha256"] for f in planned.value["configs"][0]["files"] if f["path"] == file.name)
    assert str(file) in done.stderr
    assert planned_hash in done.stderr
    assert _sha256(file) in done.stderr
    assert of_kind(planned.run_dir, "run_started") == []
    assert plain.leftovers() == []
    assert not planned.result().parent.exists()


def _sha256(path: Path) -> str:
    return "sha256:" + subprocess.check_output(["sha256sum", path], text=True).split()[0]


def test_a_config_file_that_is_gone_is_drift(plain: Workspace, planned: Planned) -> None:
    (plain.root / "configs/a/system_preamble.md").unlink()

    done = plain.run(planned)

    is_clear_refusal(done, 4)
    assert "system_preamble.md" in done.stderr
    assert "missing" in done.stderr


def test_a_run_refused_for_drift_runs_once_the_file_is_restored(plain: Workspace, planned: Planned) -> None:
    before = (plain.root / "configs/a/system_preamble.md").read_text()
    plain.write("configs/a/system_preamble.md", "Be hasty.\n")
    assert plain.run(planned).returncode == 4

    plain.write("configs/a/system_preamble.md", before)

    assert plain.run(planned).returncode == 0


def test_a_config_edited_after_the_start_changes_nothing(workspace: Workspace) -> None:
    workspace.config("a", script(solves()), {"system_preamble.md": "Be careful.\n"})
    for name in ("one", "two"):
        workspace.task(name)
    plan = workspace.plan()
    running = workspace.start(plan)
    running.wait_for("attempt_phase", phase="follow")

    workspace.write("configs/a/system_preamble.md", "Be hasty.\n")
    workspace.write("configs/a/replay.json", script([{"text": "Nothing."}]))

    assert running.end() == 0
    has_passed(workspace.verify())
    assert [json.loads(path.read_text())["reward_binary"] for path in plan.results] == [1, 1]
    assert b"Be careful." in (plan.run_dir / "inputs/a/system_preamble.md").read_bytes()


@pytest.mark.parametrize(
    ("path", "content", "what"),
    [
        ("instruction.md", "task two: write 43 into answer.txt\n", "task revision"),
        ("tests/test.sh", "#!/bin/sh\nexit 0\n", "verifier revision"),
        ("tests/more.txt", "a new file\n", "verifier revision"),
    ],
    ids=["instruction", "test", "new-test-file"],
)
def test_a_task_edited_during_the_run_stops_new_cells_and_lets_running_ones_end(
    plain: Workspace, path: str, content: str, what: str
) -> None:
    plain.config("a", script(solves()))
    for name in ("one", "two"):
        plain.task(name)
    plan = plain.plan("--order", "task")
    running = plain.start(plan)
    running.wait_for("attempt_phase", phase="follow")

    plain.write(f"tasks/two/{path}", content)

    assert running.end() == 4
    assert "Traceback" not in running.out.read_text()
    assert outcome(plan.result(0)) == ("valid", "graded")
    assert not plan.result(1).parent.exists()
    [drift] = of_kind(plan.run_dir, "launch_input_drift")
    assert drift["what"] == f"{what} of two"
    assert drift["approved"] != drift["observed"]
    assert drift["approved"].startswith("sha256:")
    assert drift["observed"].startswith("sha256:")
    status = json.loads((plan.run_dir / "status.json").read_text())
    assert (status["state"], status["stage"]) == ("paused", status["stage"])
    assert plain.leftovers() == []


def test_a_run_paused_by_drift_goes_on_when_the_task_is_restored(plain: Workspace) -> None:
    plain.config("a", script(solves()))
    for name in ("one", "two"):
        plain.task(name)
    plan = plain.plan("--order", "task")
    running = plain.start(plan)
    running.wait_for("attempt_phase", phase="follow")
    file = plain.root / "tasks/two/instruction.md"
    before = file.read_text()
    file.write_text("task two: write 43\n")
    assert running.end() == 4
    file.write_text(before)

    done = plain.run(plan)

    assert done.returncode == 0, done.stderr
    assert [len(attempts(path)) for path in plan.results] == [1, 1]
    has_passed(plain.verify())


def test_tests_edited_while_the_agent_works_never_grade_it(workspace: Workspace) -> None:
    """The running cell ends, graded by the tests that were approved; the next one does not start."""
    workspace.config("a", script([{"text": "I did nothing."}]))
    for name in ("one", "two"):
        workspace.task(name)
    plan = workspace.plan("--order", "task", "--reps", "2", "--tasks", "one")
    running = workspace.start(plan)
    running.wait_for("attempt_phase", phase="follow")
    running.provider().suspend()

    always = '#!/bin/sh\nprintf \'{"reward": 1}\' > "${WINDTUNNEL_LOGS:-/logs}/verifier/reward.json"\n'
    workspace.write("tasks/one/tests/test.sh", always, executable=True)
    running.provider().resume()

    assert running.end() == 4
    assert outcome(plan.result(0)) == ("valid", "graded")
    assert json.loads(plan.result(0).read_text())["reward_binary"] == 0
    assert not plan.result(1).parent.exists()
    assert of_kind(plan.run_dir, "launch_input_drift")[0]["what"] == "verifier revision of one"
    assert workspace.leftovers() == []


def test_a_task_that_breaks_between_two_attempts_is_drift(plain: Workspace) -> None:
    broken = {"error": {"status": 200, "code": "server_error", "message": "broken", "in_stream": True}}
    plain.config("a", script([{"text": "", "delay_ms": 400} | broken]))
    plain.task("one")
    plan = plain.plan()
    running = plain.start(plan)
    running.wait_for("attempt_phase", phase="follow")

    plain.write("tasks/one/task.toml", "[broken\n")

    assert running.end() == 4, running.out.read_text()
    assert len(attempts(plan.result())) == 1
    [drift] = of_kind(plan.run_dir, "launch_input_drift")
    assert drift["what"] == "task one"
    assert "task.toml" in drift["observed"]
