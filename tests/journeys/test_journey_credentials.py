"""A credential reaches the provider and nobody else: no file, no command line, no container."""

from __future__ import annotations

import base64
import json
import socket
import subprocess
import sys
import time
import urllib.parse
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from workspace import (
    DONE,
    Planned,
    Workspace,
    asked,
    bash,
    has_passed,
    is_clear_refusal,
    ndjson,
    result,
    script,
    solves,
)

CANARY = "wtCanary/7f3a+91bc==5d2e8840"
ROUTE = 'credential = "JOURNEY_KEY"\n'
# What an agent can see, printed where it is kept.
LOOK = (
    "env; cat /proc/*/environ /proc/*/cmdline 2>/dev/null | tr '\\0' '\\n'; "
    "ls -la / /windtunnel /windtunnel/* 2>/dev/null; cat /windtunnel/in/* 2>/dev/null; true"
)


def _planned(workspace: Workspace, key: str = CANARY) -> Planned:
    look = "env" if workspace.environment == "plain" else LOOK  # there it could read the gateway's memory
    turns = [bash(look + "; echo 42 > answer.txt", delay_ms=300), DONE]
    workspace.config("a", script(turns), toml=ROUTE)
    workspace.task("one")
    return workspace.plan("--capture-bodies", "all", env={"JOURNEY_KEY": key})


def _forms(value: str) -> dict[str, bytes]:
    """The value as it is and as it is often written; base64 at every offset it can have inside other text."""
    raw = value.encode()
    forms = {"plain": raw, "url": urllib.parse.quote(value, safe="").encode(), "json": json.dumps(value)[1:-1].encode()}
    for offset in range(3):
        whole = base64.b64encode(b"x" * offset + raw)
        forms[f"base64+{offset}"] = whole[4 if offset else 0 : len(whole) - 8]
    return forms


def _holders(root: Path, value: str) -> list[str]:
    """Files below a directory that hold the value in any form, names included."""
    found = []
    for path in root.rglob("*"):
        data = path.read_bytes() if path.is_file() and not path.is_symlink() else b""
        found += [f"{path}: {form}" for form, needle in _forms(value).items() if needle in data + bytes(path)]
    return found


def _command_lines(value: str) -> list[str]:
    return [" ".join(p.info["cmdline"] or []) for p in psutil.process_iter(["cmdline"]) if value in str(p.info)]


def test_the_provider_gets_the_key_and_no_file_or_command_line_does(workspace: Workspace) -> None:
    env = {"JOURNEY_KEY": CANARY}
    plan = _planned(workspace)
    running = workspace.start(plan, env=env)
    seen: list[str] = []

    running.until(lambda: seen.extend(_command_lines(CANARY)) or running.process.poll() is not None, "its end")

    assert running.end() == 0, running.out.read_text()
    assert seen == []
    assert [line["authorization_ok"] for line in asked(plan.run_dir)] == [True, True]
    assert result(plan.result())["reward_binary"] == 1
    assert _holders(workspace.root, CANARY) == []
    search = json.loads((plan.result().parent / "attempts/1/secret-search.json").read_text())
    assert (search["routes"], search["clean"]) == (["replay"], True)
    assert search["files"] > 5
    has_passed(workspace.verify())
    if workspace.environment != "plain":  # there the agent is a process of the same user
        transcript = (plan.result().parent / "session/loop.jsonl").read_text()
        assert "JOURNEY_KEY" not in transcript


def test_the_credential_path_is_checked_before_any_model_call(plain: Workspace) -> None:
    plan = _planned(plain)

    done = plain.run(plan, env={"JOURNEY_KEY": CANARY})

    assert done.returncode == 0, done.stderr
    log = ndjson(plan.run_dir / "evidence/replay-replay.ndjson")
    assert log[0]["path"] == "/v1/models"
    check = json.loads((plan.run_dir / "evidence/credential-replay.json").read_text())
    assert (check["verdict"], check["route"], check["role"]) == ("ok", "replay", "executor")


@pytest.mark.parametrize("value", [None, "", "   "])
def test_a_variable_that_is_not_set_at_planning_is_named(plain: Workspace, value: str | None) -> None:
    plain.config("a", script([DONE]), toml=ROUTE)
    plain.task("one")

    done = plain.windtunnel(*plain.plan_command(), env={} if value is None else {"JOURNEY_KEY": value})

    is_clear_refusal(done, 1)
    for word in ("executor", "replay", "JOURNEY_KEY"):
        assert word in done.stderr
    assert not (plain.root / "plans").exists()


@pytest.fixture
def strict(plain: Workspace) -> Iterator[tuple[str, Path]]:
    """A provider elsewhere that takes one key only: its base URL and its own log."""
    file, state, log = plain.write("elsewhere/script.json", script(solves())), plain.tmp / "state", plain.tmp / "log"
    arguments = ["--require-key-env", "JOURNEY_KEY", "--script", str(file), "--state", str(state), "--log", str(log)]
    process = subprocess.Popen(
        [sys.executable, "-m", "windtunnel", "replay", *arguments],
        env=plain.env({"JOURNEY_KEY": CANARY}),
    )
    while not state.exists():
        assert process.poll() is None
        time.sleep(0.02)
    yield json.loads(state.read_text())["base_url"], log
    process.terminate()
    process.wait()


def _on_http(workspace: Workspace, base_url: str) -> Planned:
    workspace.task("one")
    workspace.config("a", None, toml=f'[routes.strict]\nbase_url = "{base_url}"\n{ROUTE}')
    return workspace.plan("--model", "strict/scripted", "--thinking", "low", env={"JOURNEY_KEY": CANARY})


def test_a_key_that_the_provider_refuses_stops_the_run_before_any_model_call(
    plain: Workspace, strict: tuple[str, Path]
) -> None:
    base_url, log = strict
    plan, wrong = _on_http(plain, base_url), "wtCanary-another-value-000"

    done = plain.run(plan, env={"JOURNEY_KEY": wrong})

    is_clear_refusal(done, 4)
    for word in ("executor", "strict", "credential_refused"):
        assert word in done.stderr
    evidence = plan.run_dir / "evidence/credential-strict.json"
    assert str(evidence) in done.stderr
    assert json.loads(evidence.read_text())["status"] == 401
    assert [line["path"] for line in ndjson(log)] == ["/v1/models"]
    assert not plan.result().parent.exists()
    assert _holders(plain.root, wrong) == []

    again = plain.run(plan, env={"JOURNEY_KEY": CANARY})

    assert again.returncode == 0, again.stderr
    assert result(plan.result())["reward_binary"] == 1
    assert all(line["authorization_ok"] for line in ndjson(log)[1:])
    assert _holders(plain.root, CANARY) == []
    has_passed(plain.verify())


def test_a_provider_that_is_not_there_stops_the_run_before_any_model_call(plain: Workspace) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    plan = _on_http(plain, f"http://127.0.0.1:{port}/v1")

    done = plain.run(plan, env={"JOURNEY_KEY": CANARY})

    is_clear_refusal(done, 4)
    assert "unreachable" in done.stderr
    assert not plan.result().parent.exists()


def test_a_variable_that_is_gone_at_the_start_stops_the_run(plain: Workspace) -> None:
    plan = _planned(plain)

    done = plain.run(plan)

    assert done.returncode in (1, 4), done.stderr
    assert "Traceback" not in done.stderr
    assert "JOURNEY_KEY" in done.stderr
    assert asked(plan.run_dir) == []
    assert plain.leftovers() == []
