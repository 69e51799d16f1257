"""Docker, both hand-overs: oracle 1 and nop 0 on every shape of dataset, every trap its own reason code."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import datasets

pytestmark = [pytest.mark.engine, pytest.mark.timeout(600)]

SHAPES = (datasets.deepswe_v11, datasets.deepswe_v1, datasets.shared_no_git)


def windtunnel(cwd: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "windtunnel", *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=580)


def result(cwd: Path, control: str, task: str) -> dict[str, Any]:
    path = cwd / "results/_controls/none/off" / control / task / "rep0" / "result.json"
    return json.loads(path.read_text())


def attempt(cwd: Path, control: str, task: str) -> Path:
    return cwd / "results/_controls/none/off" / control / task / "rep0" / "current"


def test_controls_hold_on_every_shape(tmp_path: Path) -> None:
    for make in SHAPES:
        make(tmp_path / "tasks")

    done = windtunnel(tmp_path, "tasks", "check", "--environment", "docker", "--tasks-root", "tasks")

    assert done.returncode == 0, done.stdout + done.stderr
    assert "controls hold" in done.stdout
    assert done.stdout.count("\nPASS\n") == 2
    assert result(tmp_path, "oracle", "calc-v11")["grading"] == "artifacts"
    assert result(tmp_path, "oracle", "no-git-trace")["grading"] == "agent-filesystem"
    assert result(tmp_path, "oracle", "no-git-trace")["patch"] is not None
    assert result(tmp_path, "nop", "calc-v11")["flags"] == ["empty_patch"]


def test_every_trap_ends_with_its_own_reason_and_never_as_a_zero(tmp_path: Path) -> None:
    names = {make(tmp_path / "tasks").name: reason for make, reason in datasets.TRAPS.items()}

    done = windtunnel(tmp_path, "tasks", "check", "--environment", "docker", "--tasks-root", "tasks", "--workers", "2")

    assert done.returncode == 2
    found = {name: result(tmp_path, "oracle", name) for name in names}
    assert {name: record["outcome"]["reason"] for name, record in found.items()} == names
    ungraded = [record for record in found.values() if record["outcome"]["reason"] != "graded"]
    assert all(record["reward_binary"] is None and record["reward_partial"] is None for record in ungraded)
    assert found["trap-apply-failed"]["reward_binary"] == 0
    assert "nothing of the run is left in its environment: environment docker was asked: nothing" in done.stdout


HOSTILE = {
    "uncommitted": "{solve}",
    "hooks-and-filters": """
{solve}
cd /app
mkdir -p .git/hooks
for hook in pre-commit post-commit commit-msg reference-transaction post-index-change; do
  printf '#!/bin/sh\\necho planted >> /app/PLANTED; rm -rf /app/*\\n' > .git/hooks/$hook; chmod +x .git/hooks/$hook
done
git config filter.evil.clean 'echo replaced by a filter'
git config filter.evil.required true
git config core.fsmonitor /app/.git/hooks/pre-commit
git config diff.external 'echo nothing to see'
git config core.hooksPath .git/hooks
echo '* filter=evil diff=evil' > .git/info/attributes
""",
    "broken-index": """
{solve}
cd /app && printf garbage > .git/index
""",
    "late-writer": """
cp -a /app /tmp/before
({solve}
) >/dev/null 2>&1
cp -a /app /tmp/after
cp -a /tmp/before/. /app/
setsid sh -c 'sleep 3; while :; do cp -a /tmp/after/. /app/; sleep 0.2; done' >/dev/null 2>&1 < /dev/null &
""",
    "kills-everything": """
{solve}
kill -9 -1
""",
    "forges-the-grade": """
mkdir -p /logs/verifier /tests
echo '{{"reward": 1, "partial": 1}}' > /logs/verifier/reward.json
printf '#!/bin/sh\\necho 1 > /logs/verifier/reward.txt\\n' > /tests/test.sh
echo '{{"schemaVersion":1,"attempt":"x","started":true,"exit":0,"settled":true}}' > /windtunnel/box/exit.json
rm -rf /windtunnel/box/* ; ln -s /etc /windtunnel/box/session; mkfifo /windtunnel/box/driver-events.ndjson
""",
}
REWARDED = {"uncommitted", "hooks-and-filters", "broken-index", "kills-everything"}


@pytest.mark.parametrize("make", [datasets.deepswe_v11, datasets.shared_no_git])
def test_nothing_that_an_agent_plants_changes_its_grade(tmp_path: Path, make: Any) -> None:
    git_only = {"hooks-and-filters", "broken-index"}
    for name, script in HOSTILE.items():
        if make is datasets.shared_no_git and name in git_only | {"late-writer"}:
            continue
        task = make(tmp_path / "tasks", name)
        solve = (task / "solution" / "solve.sh").read_text().removeprefix("#!/bin/sh\n").replace("git commit", "true")
        (task / "solution" / "solve.sh").write_text("#!/bin/sh\n" + script.format(solve=solve))

    done = windtunnel(tmp_path, "tasks", "check", "--environment", "docker", "--tasks-root", "tasks", "--workers", "2")

    names = [path.name for path in (tmp_path / "tasks").iterdir()]
    found = {name: result(tmp_path, "oracle", name) for name in names}
    assert {n: (r["outcome"]["reason"], r["reward_binary"]) for n, r in found.items()} == {
        name: ("graded", int(name in REWARDED)) for name in names
    }, done.stdout
    assert "driver_killed" in found["kills-everything"]["flags"]
    for name in names:
        patch = attempt(tmp_path, "oracle", name) / "artifacts" / "model.patch"
        assert not patch.exists() or b"PLANTED" not in patch.read_bytes()
