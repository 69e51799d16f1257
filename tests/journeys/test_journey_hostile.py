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


def _graded(workspace: Workspace, text: str, reward: int) -> Planned:
    """Run a `command` agent on the tiny task; it must be graded by what it left in the work directory."""
    workspace.command("a", text)
    workspace.task("one")
    plan, done = workspace.planned_and_run(subject="command")
    assert done.returncode == 0, said_wrong(done)
    assert outcome(plan.result()) == ("valid", "graded")
    assert result(plan.result())["reward_binary"] == reward
    assert workspace.leftovers() == []
    has_passed(workspace.verify())
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
    root = b"root:x:0:0"
    assert not [path for path in kept if path.is_file() and root in path.read_bytes()]


def test_a_forged_exit_record_ends_only_the_work_of_its_own_agent(workspace: Workspace) -> None:
    forged = (
        '{"schemaVersion":1,"attempt":"one/a/rep0#1","started":true,"exit":0,"settled":true,"timed_out":false,'
        '"wall_ms":1,"stdout_bytes":0,"stderr_bytes":0,"reward":1}'
    )
    plan = _graded(
        workspace, f"echo '{forged}' > \"$box/exit.json\"; exec 1>&- 2>&-; sleep 20; echo 42 > answer.txt", reward=0
    )

    assert result(plan.result())["agent"]["wall_s"] < 15


@pytest.mark.parametrize(
    "forged",
    ["not json", "[]", '{"attempt": "other/a/rep0#1", "started": true}', "[" * 5000, '{"exit": 1e999}', "\\377\\376"],
    ids=["text", "list", "another", "deep", "infinite", "bytes"],
)
def test_a_broken_exit_record_is_not_believed(plain: Workspace, forged: str) -> None:
    text = f"printf '%b' '{forged}' > \"$box/exit.json\"; sleep 0.3; echo 42 > answer.txt; exit 3"
    plan = _graded_invalid_allowed(plain, text)

    value = result(plan.result())
    assert value["reward_binary"] == 1
    assert value["agent"]["exit"] == 3


def _graded_invalid_allowed(workspace: Workspace, text: str) -> Planned:
    workspace.command("a", text)
    workspace.task("one")
    plan, done = workspace.planned_and_run(subject="command")
    assert "Traceback" not in done.stderr
    return plan


def test_a_writer_that_outlives_its_agent_writes_nothing_that_counts(workspace: Workspace) -> None:
    late = 'while :; do echo 42 > "$1/answer.txt"; sleep 0.05; done'
    plan = _graded(
        workspace,
        f"""
        cat > late <<'EOF'
sleep 1
{late}
