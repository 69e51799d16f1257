"""The main job: a batch of the real Pi 1.6.0 in Docker through the gateway, from plan to PASS."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import datasets

pytestmark = [pytest.mark.engine, pytest.mark.npm, pytest.mark.timeout(900)]

KEY = "sk-canary-0123456789-pi-batch"
MODELS = {
    "providers": {
        "acme": {
            "baseUrl": "https://api.acme.example/v1",
            "api": "openai-completions",
            "apiKey": "$ACME_API_KEY",
            "models": [
                {
                    "id": "m1",
                    "name": "m1",
                    "reasoning": True,
                    "input": ["text"],
                    "contextWindow": 128000,
                    "maxTokens": 16384,
                    "cost": {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0},
                }
            ],
        }
    }
}
SCRIPT = {
    "schemaVersion": 1,
    "conversations": [
        {
            "turns": [
                {
                    "reasoning": "Look first.",
                    "tool_calls": [{"name": "bash", "arguments": {"command": "ls -la; env; ls -la /windtunnel/*"}}],
                    "delay_ms": 300,
                },
                {"tool_calls": [{"name": "write", "arguments": {"path": "answer.txt", "content": "done"}}]},
                {"text": "Done.", "usage": {"input": 900, "cache_read": 100, "output": 7, "reasoning": 3}},
            ]
        }
    ],
}


def workspace(root: Path) -> Path:
    for name in ("tiny-a", "tiny-b"):
        datasets.tiny(root / "tasks", name)
    for config in ("a", "b"):
        leaf = root / "configs" / config / "m1" / "high"
        leaf.mkdir(parents=True)
        (leaf / "models.json").write_text(json.dumps(MODELS))
        (leaf.parents[1] / "replay.json").write_text(json.dumps(SCRIPT))
        (leaf.parents[1] / "system_preamble.md").write_text(f"You are {config}.\n")
        (leaf.parents[1] / "smoke.json").write_text('{"requireFiles": ["session/*.jsonl"]}')
        (leaf.parents[1] / "config.toml").write_text(
            'subject = "pi@1.6.0"\nvaries = ["system_preamble.md"]\n'
            '[routes.acme]\nkind = "replay"\nscript = "replay.json"\ncredential = "ACME_API_KEY"\n'
        )
    return root


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "windtunnel", *arguments]


def call(cwd: Path, *arguments: str, key: str = KEY) -> subprocess.CompletedProcess[str]:
    env = os.environ | {"ACME_API_KEY": key}
    return subprocess.run(command(*arguments), cwd=cwd, env=env, capture_output=True, text=True, timeout=600)


PLAN = (
    *("plan", "--subject", "pi", "--model", "acme/m1", "--thinking", "high", "--configs", "a,b"),
    *("--baseline-config", "a", "--tasks-root", "tasks", "--all-tasks", "--reps", "2", "--workers", "2"),
    *("--run-id", "r1", "--environment", "docker"),
)


@pytest.fixture(scope="module", autouse=True)
def pi_bundle() -> None:
    built = subprocess.run(command("subject", "build", "pi@1.6.0"), capture_output=True, text=True, timeout=600)
    assert built.returncode == 0, built.stderr


def until_a_cell_finished(events: Path, running: subprocess.Popen[str]) -> None:
    while running.poll() is None:
        if events.exists() and b'"cell_finished"' in events.read_bytes():
            return
        time.sleep(0.05)
    raise AssertionError(f"the run ended first: {running.communicate()}")


def test_a_batch_from_plan_to_pass(tmp_path: Path) -> None:
    root = workspace(tmp_path)
    planned = call(root, *PLAN)
    assert planned.returncode == 0, planned.stderr
    identity = json.loads((root / "plans/r1.json").read_text())["planIdentity"]

    env = os.environ | {"ACME_API_KEY": KEY}
    running = subprocess.Popen(
        command("run", "plans/r1.json", "--confirm", identity),
        cwd=root,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    until_a_cell_finished(root / "results/_runs/r1/events.ndjson", running)
    launch = call(root, "verify", "r1")
    output, _ = running.communicate(timeout=600)
    verified = call(root, "verify", "r1")

    assert launch.returncode == 0, launch.stdout
    assert launch.stdout.rstrip().splitlines()[-1].startswith("PASS (launch; ")
    assert running.returncode == 0, output
    assert verified.returncode == 0, verified.stdout
    lines = verified.stdout.strip().splitlines()
    assert lines[-1] == "PASS"
    assert all("[" in line for line in lines[:-1])
    check_cells(root)
    check_upstream(root)
    check_key(root)


def check_cells(root: Path) -> None:
    for path in sorted(root.glob("results/m1/high/*/*/rep*/result.json")):
        found: dict[str, Any] = json.loads(path.read_text())
        assert found["outcome"]["reason"] == "graded"
        assert found["reward_binary"] == 1
        assert found["thinking_by_role"]["executor"]["verdict"] == "consistent"
        assert found["thinking_by_role"]["executor"]["sent"] == "high"
        assert found["reconciliation"]["state"] == "reconciled", found["reconciliation"]
        session = next((path.parent / "session").glob("*.jsonl")).read_text()
        assert '"toolName":"write"' in session
        assert "answer.txt" in (path.parent / "artifacts/model.patch").read_text()
        assert found["usage"]["total"]["calls"] == 3
    assert len(list(root.glob("results/m1/high/*/*/rep*/result.json"))) == 8


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def check_upstream(root: Path) -> None:
    """Tokens on the wire equal what the provider itself counted, in its own dialect."""
    upstream = lines_of(root / "results/_runs/r1/evidence/replay-acme.ndjson")
    billed = [entry["usage"] for entry in upstream if entry.get("usage")]
    records = [r for path in root.glob("results/m1/high/*/*/rep*/attempts/*/wire.ndjson") for r in lines_of(path)]
    wire = [record["tokens"] for record in records if record["event"] == "call_ended"]

    assert len(wire) == len(billed) == 24
    assert sum(t["input"] + (t["cache_read"] or 0) for t in wire) == sum(u["prompt_tokens"] for u in billed)
    assert sum(t["output"] for t in wire) == sum(u["completion_tokens"] for u in billed)
    assert sum(t["cache_read"] or 0 for t in wire) == 8 * 100
    told = [u["completion_tokens_details"]["reasoning_tokens"] for u in billed if "completion_tokens_details" in u]
    assert sum(t["reasoning"] or 0 for t in wire) == sum(told) >= 8 * 3


def check_key(root: Path) -> None:
    for path in root.rglob("*"):
        if path.is_file() and not path.is_symlink():
            assert KEY.encode() not in path.read_bytes(), path
    session = next(root.glob("results/m1/high/*/*/rep0/session/*.jsonl")).read_text()
    assert "PI_CODING_AGENT" in session  # the agent did print its environment


def test_a_config_edited_between_plan_and_run_starts_nothing(tmp_path: Path) -> None:
    root = workspace(tmp_path)
    assert call(root, *PLAN).returncode == 0
    identity = json.loads((root / "plans/r1.json").read_text())["planIdentity"]
    (root / "configs/a/replay.json").write_text("{}")

    done = call(root, "run", "plans/r1.json", "--confirm", identity)

    assert done.returncode == 4
    assert "configs/a/replay.json" in done.stderr
    assert not (root / "results/m1").exists()
