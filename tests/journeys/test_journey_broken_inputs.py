"""Wrong input: one clear line on stderr, the right exit code, nothing started, never a traceback."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from workspace import (
    DONE,
    Workspace,
    attempts,
    has_passed,
    is_clear_refusal,
    outcome,
    result,
    said_wrong,
    script,
    solves,
)

ROOT = Path(__file__).parents[2]


@pytest.fixture
def ready(plain: Workspace) -> Workspace:
    plain.config("a", script(solves()))
    plain.task("one")
    return plain


def _refused(workspace: Workspace, *arguments: str, names: str, code: int = 1, **settings: str) -> str:
    done = workspace.windtunnel(*workspace.plan_command(*arguments, **settings))
    is_clear_refusal(done, code)
    assert names in done.stderr, done.stderr
    assert not (workspace.root / "plans").exists()
    assert not (workspace.root / "results").exists()
    return done.stderr


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        (("--tasks", "nowhere"), "nowhere"),
        (("--tasks", "one,nowhere"), "nowhere"),
        (("--tasks", "../one"), "../one"),
        (("--tasks", ""), "task"),
        (("--range", "5:9"), "5:9"),
        (("--subset", "nowhere"), "subsets/nowhere.txt"),
        (("--all-tasks", "--tasks", "one"), "--all-tasks"),
        (("--sample", "1"), "--seed"),
        (("--all-tasks", "--tasks-root", "elsewhere"), "elsewhere"),
        (("--model", "nomodel"), "nomodel"),
        (("--model", "elsewhere/m"), "elsewhere"),
        (("--thinking", "enormous"), "enormous"),
        (("--run-id", "../r1"), "../r1"),
        (("--run-id", "a/b"), "a/b"),
        (("--reps", "0"), "--reps"),
        (("--no-such-flag",), "--no-such-flag"),
        (("--leaf", "a=nowhere"), "nowhere"),
        (("--baseline-config", "nowhere"), "nowhere"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_a_wrong_selection_or_flag_is_refused_by_name(ready: Workspace, arguments: tuple[str, ...], names: str) -> None:
    _refused(ready, *arguments, names=names)


def test_a_task_folder_without_tasks_is_refused(plain: Workspace) -> None:
    plain.config("a", script(solves()))
    (plain.root / "tasks").mkdir()

    _refused(plain, names="tasks")


@pytest.mark.parametrize("configs", ["nowhere", "a,nowhere", "../a", "a,a", ""])
def test_a_wrong_config_is_refused_by_name(ready: Workspace, configs: str) -> None:
    _refused(ready, configs=configs, names=configs.split(",")[-1] or "config")


def test_a_config_without_a_leaf_for_the_level_names_the_leaves_there_are(ready: Workspace) -> None:
    ready.write("configs/a/scripted/high/settings.json", {})

    said = _refused(ready, names="scripted/high")

    assert "medium" in said


@pytest.mark.parametrize(
    ("path", "content", "names"),
    [
        ("tasks/one/task.toml", "[environment\n", "task.toml"),
        ("tasks/one/task.toml", "\xff", "task.toml"),
        ("tasks/one/task.toml", "[environment]\nmemory_mb = 'much'\n", "memory_mb"),
        ("tasks/one/instruction.md", "  \n", "instruction.md"),
        ("configs/a/config.toml", "[routes\n", "config.toml"),
        ("configs/a/config.toml", "unknown_key = 1\n", "unknown_key"),
        ("configs/a/replay.json", "{", "replay.json"),
        ("configs/a/smoke.json", '{"requireEverything": []}', "requireEverything"),
        ("configs/a/smoke.json", '{"requireFiles": ["../../x"]}', "../../x"),
        ("configs/a/env", "OPENAI_API_KEY=abc\n", "OPENAI_API_KEY"),
        ("configs/a/pi-flags", "--model\nx\n", "--model"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_a_broken_file_is_refused_by_name(ready: Workspace, path: str, content: str, names: str) -> None:
    ready.write(path, content.encode("latin-1"))

    _refused(ready, names=names)


@pytest.mark.parametrize(
    ("section", "key"),
    [
        ("[environment]\ngpus = 1\n", "gpus"),
        ('[[environment.mcp_servers]]\nname = "x"\ncommand = "y"\n', "mcp_servers"),
        ('[environment]\nallow_internet = "sometimes"\n', "allow_internet"),
    ],
    ids=["gpus", "mcp_servers", "allow_internet"],
)
def test_a_value_that_asks_for_what_we_do_not_do_is_refused_by_name(ready: Workspace, section: str, key: str) -> None:
    text = f'schema_version = "1.4"\n[metadata.windtunnel]\nlocal = true\n{section}'
    ready.write("tasks/one/task.toml", text)

    _refused(ready, names=key)


@pytest.mark.parametrize("part", ["tests", "environment", "instruction.md"])
def test_a_task_without_a_part_is_refused_by_name(ready: Workspace, part: str) -> None:
    gone = ready.root / "tasks/one" / part
    gone.rename(ready.root / "elsewhere")

    assert part in _refused(ready, names="one")


def test_a_task_with_build_steps_is_refused_where_nothing_is_built(ready: Workspace) -> None:
    ready.write("tasks/one/environment/Dockerfile", "FROM debian\nRUN true\nWORKDIR /app\n")

    _refused(ready, names="one")


@pytest.mark.parametrize(
    "flag",
    [
        ("--max-cost", "5"),
        ("--cell-max-cost", "1"),
        ("--no-auto-resume",),
        ("--max-quota-wait", "5"),
        ("--quota-poll", "5"),
        ("--watchdog", "auto"),
        ("--pass-openai-codex-oauth",),
        ("--idle-timeout", "5"),
        ("--price-file", "prices.json"),
        ("--probe-credentials",),
        ("--credential-path", "replay=container"),
    ],
    ids=lambda flag: flag[0],
)
def test_a_flag_whose_part_is_not_built_is_refused_by_name(ready: Workspace, flag: tuple[str, ...]) -> None:
    said = _refused(ready, *flag, names=flag[0])

    assert "not built yet" in said


def test_detach_is_refused_by_name(ready: Workspace) -> None:
    plan = ready.plan()

    done = ready.windtunnel(*ready.run_command(plan), "--detach")

    is_clear_refusal(done, 1)
    assert "--detach is not built yet" in done.stderr
    assert not plan.run_dir.exists()


@pytest.mark.parametrize("host", ["unix:///nowhere/docker.sock", "tcp://127.0.0.1:1"])
def test_an_absent_engine_is_said_with_the_way_out(ready: Workspace, host: str) -> None:
    done = ready.windtunnel(*ready.plan_command("--environment", "docker"), env={"DOCKER_HOST": host})

    is_clear_refusal(done, 1)
    assert "docker" in done.stderr
    assert "local" in done.stderr


@pytest.mark.parametrize("command", [("verify",), ("status",), ("show",)])
def test_an_unknown_run_is_named(ready: Workspace, command: tuple[str, ...]) -> None:
    done = ready.windtunnel(*command, "no-such-run")

    is_clear_refusal(done, 1)
    assert "no-such-run" in done.stderr


def test_no_runs_are_no_error(ready: Workspace) -> None:
    done = ready.windtunnel("list")

    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs another user to be refused; see the test below without root")
def test_a_results_tree_of_somebody_else_is_named(ready: Workspace) -> None:
    """As an unprivileged user, by what ends up in the way: files that it may read, a tree that it may not write."""
    plan = ready.plan("--results-root", str(ready.tmp / "results"))
    ready.tmp.chmod(0o755)
    shown = ready.tmp / "r1.json"
    shown.write_bytes(plan.file.read_bytes())
    prefix = ("setpriv", "--reuid", "65533", "--regid", "65533", "--clear-groups")

    done = ready.windtunnel("run", shown, "--confirm", plan.identity, prefix=prefix, cwd=Path("/"))

    is_clear_refusal(done, 1)
    assert str(ready.tmp / "results") in done.stderr
    assert not (ready.tmp / "results").exists()


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is read-only for root")
def test_a_read_only_results_tree_is_named(ready: Workspace) -> None:
    plan = ready.plan()
    (ready.root / "results").mkdir(mode=0o555)

    done = ready.run(plan)

    is_clear_refusal(done, 1)
    assert str(ready.root / "results") in done.stderr


@pytest.mark.parametrize(
    "content", [b"", b'{"schemaVersion": 1, "task": "o', b"\xff\xfe", b'{"reward": NaN}', b'{"schemaVersion": 99}']
)
def test_a_torn_result_is_set_aside_by_name_and_its_cell_is_run(ready: Workspace, content: bytes) -> None:
    first, _ = ready.planned_and_run("--reps", "2")
    torn = first.result(1)
    torn.write_bytes(content)

    plan = ready.plan("--run-id", "r2", "--reps", "2")
    done = ready.run(plan)

    assert done.returncode == 0, done.stderr
    assert [cell["state"] for cell in plan.value["cells"]].count("reuse") == 1
    assert outcome(torn) == ("valid", "graded")
    assert result(torn)["attempt"] == 2
    [aside] = torn.parent.glob("result.json.torn-*")
    assert aside.read_bytes() == content
    assert f"set aside {result(torn)['task']}" in done.stdout
    has_passed(ready.verify("r2"))


def test_a_result_torn_during_a_pause_is_set_aside_by_the_resume(ready: Workspace) -> None:
    """The plan knew nothing of it: the resume itself must see it."""
    for name in ("two", "three"):
        ready.task(name)
    plan = ready.plan("--order", "task", "--tasks", "one,two,three")
    running = ready.start(plan)
    running.wait_for("attempt_phase", phase="follow", count=3)
    running.kill()
    torn = plan.result(1)
    torn.write_bytes(b'{"schemaVersion": 1, "ta')

    done = ready.run(plan)

    assert done.returncode == 0, said_wrong(done)
    assert [outcome(path) for path in plan.results] == [("valid", "graded")] * 3
    assert list(torn.parent.glob("result.json.torn-*"))
    assert len(attempts(torn)) == 2
    has_passed(ready.verify())


def test_run_batch_without_a_terminal_prints_the_confirm_command_and_runs_with_it(ready: Workspace) -> None:
    arguments = ["--agent", "loop", "--configs", "a", "--model", "replay/scripted", "--environment", "plain"]
    command = [sys.executable, str(ROOT / "harness/run_batch.py"), *arguments, "--all-tasks", "--run-id", "r1"]

    def given(*more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*command, *more],
            cwd=ready.root,
            env=ready.env(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
        )

    first = given()
    assert first.returncode == 3, first.stderr
    [line] = [line for line in first.stderr.splitlines() if line.startswith("windtunnel run ")]
    identity = line.split()[-1]
    assert identity in first.stdout
    assert not (ready.root / "results").exists()

    done = given("--confirm", identity)

    assert done.returncode == 0, done.stderr
    has_passed(ready.verify())


def test_help_and_version_are_no_errors(ready: Workspace) -> None:
    for arguments in (("--help",), ("plan", "--help"), ("--version",), ("run", "-h")):
        done = ready.windtunnel(*arguments)
        assert (done.returncode, done.stderr) == (0, ""), arguments


@pytest.mark.parametrize("arguments", [("nonsense",), ("run",), ("verify", "r1", "r2"), ("plan",)])
def test_wrong_usage_is_exit_one(ready: Workspace, arguments: tuple[str, ...]) -> None:
    is_clear_refusal(ready.windtunnel(*arguments), 1)


def test_yes_confirms_a_plan_of_one_role_and_prints_its_receipt(plain: Workspace) -> None:
    plain.config("a", script([DONE]))
    plain.task("one")
    plan = plain.plan()

    done = plain.windtunnel("run", plan.file, "--yes", "--operator", "somebody")

    assert done.returncode == 0, done.stderr
    assert plan.identity in done.stdout
    confirmation = result(plan.run_dir / "confirmation.json")
    assert (confirmation["how"], confirmation["operator"]) == ("yes", "somebody")
