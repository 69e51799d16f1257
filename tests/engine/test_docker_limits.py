"""What an attempt may use in Docker: storage is polled, memory is the engine's; both end in a flag, not a fault."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import datasets

pytestmark = [pytest.mark.engine, pytest.mark.timeout(300)]


def run_oracle(root: Path, solve: str, **environment: int) -> dict[str, Any]:
    task = datasets.tiny(root / "tasks")
    (task / "solution/solve.sh").write_text("#!/bin/sh\n" + solve)
    toml = task / "task.toml"
    lines = [f"{name} = {value}" for name, value in environment.items()]
    kept = [line for line in toml.read_text().splitlines() if line.split(" = ")[0] not in environment]
    at = kept.index("[environment]")
    toml.write_text("\n".join([*kept[: at + 1], *lines, *kept[at + 1 :]]) + "\n")
    command = [sys.executable, "-m", "windtunnel", "tasks", "check", "--environment", "docker", "--tasks-root", "tasks"]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=280)
    path = root / "results/_controls/none/off/oracle/tiny/rep0/result.json"
    assert path.exists(), done.stdout + done.stderr
    return dict(json.loads(path.read_text()))


def test_an_agent_that_fills_its_disk_is_ended_and_graded(tmp_path: Path) -> None:
    found = run_oracle(tmp_path, "head -c 200000000 /dev/zero > /big; sleep 120\n", storage_mb=50)

    assert found["outcome"]["reason"] == "graded"
    assert found["flags"] == ["output_limit", "empty_patch"]
    assert found["reward_binary"] == 0
    assert found["agent"]["wall_s"] < 60


def test_an_agent_killed_by_the_memory_limit_is_graded_with_a_flag(tmp_path: Path) -> None:
    solve = "python3 -c 'x = bytearray(600_000_000)'; echo done > /app/answer.txt\n"
    found = run_oracle(tmp_path, solve, memory_mb=128)

    assert found["outcome"]["reason"] == "graded"
    assert "agent_out_of_memory" in found["flags"]
    assert found["reward_binary"] == 1
    assert found["resources"]["oom_events"] >= 1
