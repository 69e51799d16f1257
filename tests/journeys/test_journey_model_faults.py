"""What a provider does wrong is never an agent's loss: invalid with the reason, or recovered and counted."""

from __future__ import annotations

from typing import Any

import pytest
from workspace import (
    DONE,
    Planned,
    Workspace,
    asked,
    attempts,
    bash,
    has_passed,
    ndjson,
    of_kind,
    on_task,
    outcome,
    result,
    said_wrong,
    script,
    solves,
)

# An error inside a stream that began well: the loop does not ask again, so that these journeys are short.
BROKEN = {"error": {"status": 200, "code": "server_error", "message": "broken", "in_stream": True}}
USAGE = {"input": 100, "output": 10}


def _second_task_meets(
    workspace: Workspace, turns: list[dict[str, Any]], *flags: str, timeout_s: float = 60
) -> Planned:
    """Task `one` passes smoke; task `two` meets the fault, task `three` would come next."""
    workspace.config("a", script(solves(), on_task("two", turns)))
    for name in ("one", "three", "two"):
        workspace.task(name, timeout_s=timeout_s)
    return workspace.plan("--tasks", "one,two,three", "--order", "task", *flags)


def _of_two(plan: Planned) -> Any:
    return next(path for path in plan.results if path.parent.parent.name == "two")


def test_a_breaking_provider_error_opens_the_breaker_and_is_never_a_score(plain: Workspace) -> None:
    """401 on the last call, after work was done."""
    plan = _second_task_meets(
        plain, [bash("echo 42 > answer.txt"), {"error": {"status": 401, "code": "invalid_api_key"}}]
    )

    done = plain.run(plan)

    assert done.returncode == 4, said_wrong(done)
    assert "provider_auth" in done.stderr
    assert "Traceback" not in done.stderr
    two = result(_of_two(plan))
    assert outcome(_of_two(plan)) == ("invalid", "provider_auth")
    assert (two["reward_binary"], two["reward_partial"]) == (None, None)
    assert two["usage"]["total"]["calls"] == 2
    assert len(of_kind(plan.run_dir, "breaker_opened")) == 1
    later = of_kind(plan.run_dir, "breaker_opened")[0]["seq"]
    assert not [e for e in of_kind(plan.run_dir, "cell_started") if e["seq"] > later]
    assert plain.verify().returncode == 2
    assert plain.leftovers() == []


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        ({"status": 402, "code": "insufficient_quota"}, "provider_billing"),
        ({"status": 404, "code": "model_not_found"}, "model_not_found"),
        ({"status": 403, "code": "forbidden"}, "provider_auth"),
    ],
)
def test_errors_that_concern_every_cell_stop_the_run(plain: Workspace, error: dict[str, Any], reason: str) -> None:
    plan = _second_task_meets(plain, [{"error": error}])

    done = plain.run(plan)

    assert done.returncode == 4, said_wrong(done)
    assert outcome(_of_two(plan)) == ("invalid", reason)
    assert len(attempts(_of_two(plan))) == 1


def test_a_provider_that_fails_for_ever_is_tried_three_times_and_every_attempt_is_kept(workspace: Workspace) -> None:
    turns = [bash("echo 42 > answer.txt", usage=USAGE), BROKEN]
    plan = _second_task_meets(workspace, turns)

    done = workspace.run(plan)

    assert done.returncode == 2, said_wrong(done)
    assert outcome(_of_two(plan)) == ("invalid", "provider_error")
    kept = attempts(_of_two(plan))
    assert [a["outcome"]["reason"] for a in kept] == ["provider_error"] * 3
    for attempt in kept:
        total = attempt["usage"]["total"]
        assert total["calls"] >= 2
        assert (total["tokens"]["input"], total["tokens"]["output"]) == (100, 10)
    assert result(_of_two(plan))["attempts"] == 3
    assert [outcome(p)[0] for p in plan.results if p != _of_two(plan)] == ["valid", "valid"]
    verified = workspace.verify()
    assert verified.returncode == 2
    assert "every planned cell is valid" in "\n".join(said_wrong(verified))
    assert workspace.leftovers() == []


def test_the_usage_of_every_attempt_counts_in_the_status(plain: Workspace) -> None:
    plan = _second_task_meets(
        plain, [bash("true", usage=USAGE), {"error": {"status": 500, "message": "broken"}}], "--cell-retries", "1"
    )

    plain.run(plan)

    assert [a["usage"]["total"]["tokens"]["input"] for a in attempts(_of_two(plan))] == [100, 100]
    total = sum(a["usage"]["total"]["tokens"]["input"] for path in plan.results for a in attempts(path) if a["usage"])
    assert result(plan.run_dir / "status.json")["usage"]["executor"]["tokens"]["input"] == total


@pytest.mark.parametrize(
    "fault",
    [
        {"error": {"status": 429, "code": "rate_limit_exceeded", "retry_after": 0.1}},
        {"error": {"status": 500, "message": "broken"}},
        {"error": {"status": 503, "message": "overloaded"}},
        {"text": "half of an answer that breaks", "torn": True},
    ],
    ids=["429", "500", "503", "torn"],
)
def test_a_fault_that_the_agent_gets_over_is_no_outcome(plain: Workspace, fault: dict[str, Any]) -> None:
    plain.config("a", script([fault, DONE]), {"command": "agent\n{box}\n"})
    plain.write("configs/a/bin/agent", _PERSISTENT, executable=True)
    plain.task("one")
    plan = plain.plan("--model", "replay/scripted", "--thinking", "medium", subject="command")

    done = plain.run(plan)

    assert done.returncode == 0, said_wrong(done)
    value = result(plan.result())
    assert value["outcome"]["reason"] == "graded"
    assert value["usage"]["total"]["calls"] == 2
    assert value["reward_binary"] == 1
    assert len(attempts(plan.result())) == 1
    has_passed(plain.verify())


# Asks, is failed, and asks again as a conversation that is one answer further (which the script answers well).
_PERSISTENT = """#!/usr/bin/env python3
import json, os, sys, urllib.request
box = sys.argv[1]
os.makedirs(box + "/session", exist_ok=True)
open(box + "/session/log.txt", "w").write("asked twice")
headers = {"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"], "Content-Type": "application/json"}
for messages in ([], [{"role": "assistant", "content": "x"}]):
    said = [{"role": "user", "content": "?"}, *messages]
    body = json.dumps({"model": "scripted", "reasoning_effort": "medium", "messages": said}).encode()
    request = urllib.request.Request(os.environ["OPENAI_BASE_URL"] + "/chat/completions", body, headers)
    try:
        print(urllib.request.urlopen(request, timeout=20).read())
    except Exception as error:
        print(error)
open("answer.txt", "w").write("42")
"""


def test_a_torn_stream_for_ever_is_a_provider_error(plain: Workspace) -> None:
    plan = _second_task_meets(plain, [{"text": "a half", "torn": True}], "--cell-retries", "0")

    done = plain.run(plan)

    assert done.returncode == 2, said_wrong(done)
    assert outcome(_of_two(plan)) == ("invalid", "provider_error")
    wire = ndjson(_of_two(plan).parent / "attempts/1/wire.ndjson")
    assert {line["ended_by"] for line in wire if line["event"] == "call_ended"} == {"upstream_torn"}


def test_another_model_than_the_one_asked_for_is_a_mismatch(plain: Workspace) -> None:
    plan = _second_task_meets(plain, [bash("echo 42 > answer.txt", model="cheaper-model"), DONE])

    done = plain.run(plan)

    assert done.returncode == 4, said_wrong(done)
    assert outcome(_of_two(plan)) == ("invalid", "model_mismatch")
    assert "cheaper-model" in result(_of_two(plan))["outcome"]["detail"]
    assert result(_of_two(plan))["reward_binary"] is None


def test_usage_that_the_provider_does_not_tell_is_null_not_zero(plain: Workspace) -> None:
    plan = _second_task_meets(plain, [bash("echo 42 > answer.txt", usage_missing=True), DONE])

    done = plain.run(plan)

    assert done.returncode == 0, said_wrong(done)
    total = result(_of_two(plan))["usage"]["total"]
    assert (total["calls"], total["calls_unknown"]) == (2, 1)
    assert total["tokens"]["input"] == asked(plan.run_dir)[-1]["usage"]["prompt_tokens"] or total["tokens"]["input"]
    wire = ndjson(_of_two(plan).parent / "attempts/1/wire.ndjson")
    assert next(line["tokens"] for line in wire if line["event"] == "call_ended") is None


@pytest.mark.parametrize(
    "undeclared",
    ["call another-model", 'OPENAI_BASE_URL=$(echo "$OPENAI_BASE_URL" | sed s/executor/advisor/) call scripted'],
    ids=["model", "role"],
)
def test_a_model_call_of_an_undeclared_role_is_refused_and_stops_the_run(workspace: Workspace, undeclared: str) -> None:
    text = f"""
    mkdir -p "$box/session"; echo x > "$box/session/log"; echo 42 > answer.txt
    call scripted
    read -r prompt; case "$prompt" in *two*) {undeclared}; esac
    exit 0
    """
    workspace.command("a", text, script([{"text": "hello"}]))
    for name in ("one", "two"):
        workspace.task(name)
    plan = workspace.plan("--order", "task", "--model", "replay/scripted", "--thinking", "medium", subject="command")

    done = workspace.run(plan)

    assert done.returncode == 4, said_wrong(done)
    assert outcome(_of_two(plan)) == ("invalid", "undeclared_role")
    wire = ndjson(_of_two(plan).parent / "attempts/1/wire.ndjson")
    [refused] = [line for line in wire if line["event"] == "call_refused"]
    assert refused["reason"] == "undeclared_role"
    assert {line["model"] for line in asked(plan.run_dir)} == {"scripted"}, "the provider never saw it"


def test_an_agent_that_runs_out_of_time_is_graded_by_what_it_left(workspace: Workspace) -> None:
    turns = [bash("echo 42 > answer.txt"), {"hang": True}]
    plan = _second_task_meets(workspace, turns, timeout_s=3)

    done = workspace.run(plan)

    assert done.returncode == 0, said_wrong(done)
    two = result(_of_two(plan))
    assert two["outcome"]["reason"] == "graded"
    assert "agent_timeout" in two["flags"]
    assert two["agent"]["timed_out"] is True
    assert two["reward_binary"] == 1
    assert two["usage"]["total"]["calls_unknown"] == 1
    assert 3 <= two["agent"]["wall_s"] < 10
    has_passed(workspace.verify())
    assert workspace.leftovers() == []


def test_an_agent_that_never_calls_its_model_is_not_scored(plain: Workspace) -> None:
    plain.command("a", "exit 7", script([DONE]))
    for name in ("one", "two"):
        plain.task(name)

    plan, done = plain.planned_and_run("--model", "replay/scripted", "--thinking", "medium", subject="command")

    assert done.returncode in (2, 4)
    assert outcome(plan.result()) == ("invalid", "agent_never_started")
    assert len(attempts(plan.result())) == 2


def test_five_equal_faults_in_a_row_open_the_breaker(plain: Workspace) -> None:
    turns = [BROKEN]
    names = [f"t{n}" for n in range(8)]
    plain.config("a", script(turns, on_task("t0", solves())))
    for name in names:
        plain.task(name)
    plan = plain.plan("--order", "task", "--cell-retries", "0")

    done = plain.run(plan)

    assert done.returncode == 4, said_wrong(done)
    assert "provider_error" in done.stderr
    assert [outcome(path)[1] for path in plan.results if path.exists()] == ["graded"] + ["provider_error"] * 5
    assert sum(path.exists() for path in plan.results) == 6
