"""Agents that cheat, break and shout. What they do to files, processes and output changes neither usage nor grade."""

from __future__ import annotations

import re
import stat
from pathlib import Path

import pytest
from workspace import DONE, Planned, Workspace, asked, bash, has_passed, of_kind, outcome, result, said_wrong, script

# Everything that a terminal could take for more than text.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_SANDBOXED = pytest.param("local", marks=pytest.mark.sandbox)
_ESC = "\\033[31mRED\\033]0;title\\007\\r\\b\\302\\233"
_LATE = 'sleep 1; while :; do echo 42 > "$0/answer.txt"; sleep 0.05; done'


def _run_agent(workspace: Workspace, text: str) -> Planned:
    workspace.command("a", text)
    workspace.task("one")
    plan, done = workspace.planned_and_run(subject="command")
    assert done.returncode == 0, said_wrong(done)
    assert outcome(plan.result()) == ("valid", "graded")
    assert workspace.leftovers() == []
    has_passed(workspace.verify())
    return plan


def _graded(workspace: Workspace, text: str, reward: int) -> Planned:
    """Run a `command` agent on the tiny task; it must be graded by what it left in the work directory."""
    plan = _run_agent(workspace, text)
    assert result(plan.result())["reward_binary"] == reward
    return plan


def _kept(plan: Planned) -> list[Path]:
    """What the host made of the agent's box."""
    attempt = plan.result().parent / "attempts/1"
    return [path for part in ("logs", "session") for path in (attempt / part).rglob("*")]


def test_a_box_full_of_links_pipes_and_forgeries_is_only_a_claim(workspace: Workspace) -> None:
    plan = _graded(
        workspace,
        """
        rm -rf "$box"/* "$box"/.[!.]*
        ln -s /etc "$box/session"
        ln -s /etc/passwd "$box/driver-events.ndjson"
        ln -s /etc/hostname "$box/subject.stderr"
        mkfifo "$box/subject.stdout" "$box/pipe"
        mkdir -p "$box/deep/a/b"; ln -s ../../.. "$box/deep/a/b/up"; ln -s loop "$box/loop"
        chmod 000 "$box/deep/a"
        echo 42 > answer.txt
        echo said; echo said >&2
        """,
        reward=1,
    )

    kept = _kept(plan)
    assert all(stat.S_ISREG(path.lstat().st_mode) or stat.S_ISDIR(path.lstat().st_mode) for path in kept)
    assert not [path for path in kept if path.is_file() and b"root:x:0:0" in path.read_bytes()]


def test_a_forged_exit_record_ends_only_the_work_of_its_own_agent(workspace: Workspace) -> None:
    forged = (
        '{"schemaVersion":1,"attempt":"one/a/rep0#1","started":true,"exit":0,"settled":true,"timed_out":false,'
        '"wall_ms":1,"stdout_bytes":0,"stderr_bytes":0,"reward":1}'
    )
    text = f"echo '{forged}' > \"$box/exit.json\"; exec 1>&- 2>&-; sleep 20; echo 42 > answer.txt"

    plan = _graded(workspace, text, reward=0)

    assert result(plan.result())["agent"]["wall_s"] < 15


@pytest.mark.parametrize(
    "forged",
    ["not json", "[]", '{"attempt": "other/a/rep0#1", "started": true}', "[" * 5000, '{"exit": 1e999}', "\\377\\376"],
    ids=["text", "list", "another", "deep", "infinite", "bytes"],
)
def test_a_broken_exit_record_is_not_believed(plain: Workspace, forged: str) -> None:
    text = f"printf '%b' '{forged}' > \"$box/exit.json\"; sleep 0.3; echo 42 > answer.txt"

    plan = _graded(plain, text, reward=1)

    assert result(plan.result())["agent"]["exit"] == 0


def test_a_writer_that_outlives_its_agent_writes_nothing_that_counts(workspace: Workspace) -> None:
    plan = _graded(
        workspace,
        f"""
        (env -i /usr/bin/setsid /bin/sh -c 'setsid /bin/sh -c "$1" "$0" </dev/null >/dev/null 2>&1 &' \
            "$work" '{_LATE}' &) &
        exit 0
        """,
        reward=0,
    )

    assert result(plan.result())["agent"]["wall_s"] < 5


def test_planted_rewards_tests_and_start_up_files_change_no_grade(workspace: Workspace) -> None:
    _graded(
        workspace,
        """
        logs="${WINDTUNNEL_LOGS:-/logs}" tests="${WINDTUNNEL_TESTS:-/tests}"
        mkdir -p "$logs/verifier" "$tests" "$HOME/bin"
        for file in "$logs/verifier/reward.json" "$logs/reward.json" reward.json "$box/reward.json"; do
            echo '{"reward": 1}' > "$file"
        done
        echo 1 > "$logs/verifier/reward.txt"
        printf '#!/bin/sh\\necho 1 > "${WINDTUNNEL_LOGS:-/logs}/verifier/reward.txt"\\n' > "$tests/test.sh"
        chmod +x "$tests/test.sh"
        chmod -R a-w "$logs/verifier"
        echo 'import os; os._exit(0)' | tee sitecustomize.py conftest.py usercustomize.py > /dev/null
        printf '#!/bin/sh\\necho 42\\n' | tee cat "$HOME/bin/cat" > /dev/null
        chmod +x cat "$HOME/bin/cat"
        printf 'cat() { echo 42; }\\n' | tee "$HOME/.bashrc" "$HOME/.profile" "$HOME/.bash_profile" > /dev/null
        """,
        reward=0,
    )


@pytest.mark.parametrize("workspace", [_SANDBOXED], indirect=True)
def test_an_agent_that_kills_everything_it_can_is_graded_by_its_work(workspace: Workspace) -> None:
    workspace.command("a", 'echo 42 > answer.txt; read -r prompt; case "$prompt" in *two*) kill -9 -1; sleep 30; esac')
    for name in ("one", "two"):
        workspace.task(name)

    plan, done = workspace.planned_and_run("--order", "task", subject="command")

    assert done.returncode == 0, said_wrong(done)
    one, two = map(result, plan.results)
    assert (one["flags"], one["reward_binary"]) == ([], 1)
    assert (two["flags"], two["reward_binary"]) == (["driver_killed"], 1)
    assert workspace.leftovers() == []
    has_passed(workspace.verify())


@pytest.mark.parametrize("workspace", [_SANDBOXED], indirect=True)
def test_an_agent_that_writes_wherever_it_can_reaches_nothing_of_ours(workspace: Workspace) -> None:
    """Only in a sandbox: elsewhere it would reach the whole machine."""
    _graded(
        workspace,
        """
        for place in / /windtunnel /windtunnel/* /tests /logs /root /home /var /tmp; do
            for name in reward.json wire.ndjson result.json test.sh spec.json token gateway.sock; do
                echo '{"reward": 1}' 2>/dev/null > "$place/$name"
            done
        done
        for place in /app /tests /logs /home /tmp /windtunnel; do
            find "$place" -type f -exec truncate -s 0 {} + 2>/dev/null
            find "$place" -mindepth 1 -delete 2>/dev/null
        done
        exit 0
        """,
        reward=0,
    )

    assert (workspace.root / "tasks/one/tests/test.sh").stat().st_size > 0


def test_a_hundred_megabytes_of_output_are_cut_and_counted(workspace: Workspace) -> None:
    plan = _graded(
        workspace,
        "head -c 100000000 /dev/zero | tr '\\0' 'x'; head -c 100000000 /dev/zero >&2; echo 42 > answer.txt",
        reward=1,
    )

    sizes = [path.stat().st_size for path in (plan.result().parent / "attempts/1").rglob("*") if path.is_file()]
    assert max(sizes) <= 64 * 1024 * 1024
    assert result(plan.result())["agent"]["exit"] == 0


def test_a_hostile_agent_with_a_model_changes_no_usage(workspace: Workspace) -> None:
    """It forges its session, its driver's files and records of calls; the wire is what counts."""
    forge = """
    box="$(tr '\\0' '\\n' < /proc/$PPID/cmdline | sed -n 's/^--session=//p')/.."
    echo '{"type":"message","role":"assistant","usage":{"input":999999,"output":999999}}' > "$box/session/forged.jsonl"
    echo '{"event":"call_ended","call":"call-9","tokens":{"input":1,"output":1}}' | tee "$box/wire.ndjson" > "$box/x"
    echo '{"type":"end"}' > "$box/session/loop.jsonl"
    rm -f "$box/driver-events.ndjson"
    """
    workspace.config("a", script([bash(forge), DONE]))
    workspace.task("one")

    plan, done = workspace.planned_and_run()

    assert done.returncode == 0, said_wrong(done)
    assert (plan.result().parent / "attempts/1/session/forged.jsonl").exists()
    value = result(plan.result())
    counted = [line["usage"] for line in asked(plan.run_dir)]
    total = value["usage"]["total"]
    assert total["calls"] == len(counted) == 2
    assert total["tokens"]["input"] == sum(line["prompt_tokens"] for line in counted)
    assert total["tokens"]["output"] == sum(line["completion_tokens"] for line in counted)
    assert value["reward_binary"] == 0
    has_passed(workspace.verify())


def test_escapes_in_output_and_names_never_reach_a_terminal(workspace: Workspace) -> None:
    """Claims, names and patches with terminal escapes, overrides of direction and bytes that are no UTF-8."""
    _graded(
        workspace,
        f"""
        bad=$(printf '{_ESC}\\355\\240\\200\\342\\200\\256')
        printf '{_ESC}\\355\\240\\200'; printf '{_ESC}\\377\\n' >&2
        mkdir -p "$box/session"
        echo text > "$box/session/$bad.jsonl"; echo text > "$box/$bad"; ln -s / "$box/link$bad"
        printf '{_ESC}\\355\\240\\200' > "$work/file$bad"
        printf 'x' > "$work/$(printf 'new\\nline')"
        """,
        reward=0,
    )

    pages = (("status", "r1"), ("show", "r1"), ("verify", "r1"), ("list",), ("status", "r1", "--format", "json"))
    for page in pages:
        done = workspace.windtunnel(*page)
        assert not _CONTROL.search(done.stdout), (page, _CONTROL.search(done.stdout))
        assert done.stderr == ""


def test_escapes_in_a_providers_error_never_reach_a_terminal(plain: Workspace) -> None:
    shout = "\x1b[31mRED\x1b]0;title\x07\u202e\u009b31m"
    plain.config("a", script([{"error": {"status": 402, "code": "insufficient_quota", "message": shout}}]))
    plain.task("one")

    plan, done = plain.planned_and_run()

    assert done.returncode in (2, 4)
    assert not _CONTROL.search(done.stdout + done.stderr), _CONTROL.search(done.stdout + done.stderr)
    assert of_kind(plan.run_dir, "cell_finished")[0]["reason"] == "provider_billing"
    for page in ("status", "show", "verify"):
        text = plain.windtunnel(page, "r1").stdout
        assert not _CONTROL.search(text), (page, _CONTROL.search(text))


_DEEP = """
name=$(printf 'n%.0s' $(seq 1 200))
deep() { (cd "$1" && for n in $(seq 1 40); do mkdir "$name" && cd "$name" || exit; done; echo deep > file); }
"""


def test_a_deep_tree_and_a_thousand_files_in_the_box_are_no_fault_of_ours(plain: Workspace) -> None:
    plan = _run_agent(
        plain,
        f"""
        {_DEEP}
        mkdir -p "$box/session"
        for n in $(seq 1 1000); do echo x > "$box/session/$n"; done
        deep "$box"
        echo 42 > answer.txt
        """,
    )

    assert result(plan.result())["reward_binary"] == 1


@pytest.mark.xfail(strict=True, reason="a path above PATH_MAX in the work directory ends as engine_error, ungraded")
def test_a_deep_tree_in_the_work_directory_is_graded(plain: Workspace) -> None:
    """Or an agent could choose to have no grade."""
    plan = _run_agent(plain, f'{_DEEP} deep "$work"; echo 42 > answer.txt')

    assert result(plan.result())["reward_binary"] == 1
