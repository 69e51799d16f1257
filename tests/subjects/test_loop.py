"""The `loop` subject: the agent itself against a scripted provider, and its adapter."""

from __future__ import annotations

import json
import socket
import subprocess
from pathlib import Path

import pytest
from contexts import a_context
from driving import JS, NODE
from provider_stub import Reply, provider

from windtunnel.domain.role import Thinking
from windtunnel.domain.wire import Tokens
from windtunnel.errors import InputWrong
from windtunnel.subjects.interface import Account
from windtunnel.subjects.loop import Loop

BASH = "bash"


def run_loop(
    tmp_path: Path, base_url: str, *, thinking: str = "high", **options: str
) -> subprocess.CompletedProcess[str]:
    (tmp_path / "system.md").write_text("You work.")
    given = {
        "model": "m1",
        "thinking": thinking,
        "system": str(tmp_path / "system.md"),
        "session": str(tmp_path / "session"),
    }
    argv = [NODE, str(JS / "loop.mjs"), *(f"--{name}={value}" for name, value in (given | options).items())]
    env = {"PATH": "/usr/bin:/bin", "OPENAI_BASE_URL": f"{base_url}/v1", "OPENAI_API_KEY": "wt_token"}
    return subprocess.run(argv, cwd=tmp_path, env=env, input="the task\n", capture_output=True, text=True, timeout=60)


def transcript(tmp_path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (tmp_path / "session" / "loop.jsonl").read_text().splitlines()]


def test_it_uses_its_shell_until_an_answer_without_tool_calls(tmp_path: Path) -> None:
    edits = Reply(
        text="let me", calls=((BASH, {"command": "echo made > made; cat made; env | grep -c OPENAI; exit 3"}),)
    )

    with provider([edits, Reply(text="all done")]) as served:
        done = run_loop(tmp_path, served.base_url)

    assert (done.returncode, done.stdout, done.stderr) == (0, "all done\n", "")
    assert (tmp_path / "made").read_text() == "made\n"
    path, headers, body = served.requests[0]
    assert (path, headers["authorization"]) == ("/v1/chat/completions", "Bearer wt_token")
    assert (body["model"], body["reasoning_effort"], body["stream"]) == ("m1", "high", True)
    assert body["stream_options"] == {"include_usage": True}
    assert body["messages"] == [{"role": "system", "content": "You work."}, {"role": "user", "content": "the task\n"}]
    second = served.bodies[1]["messages"]
    assert second[2]["tool_calls"][0]["function"]["name"] == BASH
    # The shell saw neither address nor token: grep counted none.
    assert second[3] == {"role": "tool", "tool_call_id": "call_0", "content": "made\n0\n\n[exit code 3]"}


def test_its_transcript_has_every_message_and_the_usage_of_every_answer(tmp_path: Path) -> None:
    with provider([Reply(calls=((BASH, {"command": "true"}),)), Reply(text="ok")]) as served:
        run_loop(tmp_path, served.base_url)

    lines = transcript(tmp_path)
    assert [line.get("role", line["type"]) for line in lines] == [
        "system",
        "user",
        "assistant",
        "tool",
        "assistant",
        "end",
    ]
    assert lines[2]["usage"] == {"input": 600, "cache_read": 400, "output": 50, "reasoning": 20}
    assert lines[2]["model"] == "m1-served"
    assert lines[-1] == {"type": "end", "stop_reason": "stop", "turns": 2, "tool_calls": 1}
    assert Loop().account(tmp_path) == Account(
        settled=True,
        turns=2,
        tool_calls=1,
        stop_reason="stop",
        tokens=Tokens(input=1200, cache_read=800, output=100, reasoning=40),
        session_files=("session/loop.jsonl",),
    )


def test_thinking_off_is_said_on_the_wire(tmp_path: Path) -> None:
    with provider([Reply(text="ok")]) as served:
        run_loop(tmp_path, served.base_url, thinking="off")

    assert served.bodies[0]["reasoning_effort"] == "none"


@pytest.mark.parametrize(
    "failure",
    [
        Reply(status=429, body={"error": {"message": "slow down"}}),
        Reply(status=503, body={"error": {"message": "overloaded"}}),
        Reply(torn=True),
    ],
    ids=["429", "503", "torn"],
)
def test_a_passing_failure_is_tried_again(tmp_path: Path, failure: Reply) -> None:
    with provider([failure, Reply(text="ok")]) as served:
        done = run_loop(tmp_path, served.base_url)

    assert done.returncode == 0
    assert len(served.requests) == 2
    assert served.bodies[0] == served.bodies[1]


def test_it_gives_up_after_three_more_tries(tmp_path: Path) -> None:
    with provider([]) as served:
        done = run_loop(tmp_path, served.base_url)

    assert done.returncode == 1
    assert len(served.requests) == 4
    account = Loop().account(tmp_path)
    assert (account.settled, account.stop_reason, account.turns, account.tokens) == (True, "error", 0, None)
    assert account.error is not None and "HTTP 500" in account.error


@pytest.mark.parametrize("status", [400, 401, 402, 404])
def test_a_lasting_failure_is_not_tried_again(tmp_path: Path, status: int) -> None:
    with provider([Reply(status=status, body={"error": {"message": "no"}})]) as served:
        done = run_loop(tmp_path, served.base_url)

    assert done.returncode == 1
    assert len(served.requests) == 1
    assert f"HTTP {status}" in done.stderr


def test_an_error_inside_a_good_status_is_an_error(tmp_path: Path) -> None:
    with provider([Reply(body={"error": {"message": "upstream gave up", "code": 502}})]) as served:
        done = run_loop(tmp_path, served.base_url)

    assert done.returncode == 1
    assert "upstream gave up" in done.stderr


def test_nobody_at_the_address_is_an_error(tmp_path: Path) -> None:
    with socket.socket() as held:  # bound and never listening: nobody else gets the port
        held.bind(("127.0.0.1", 0))
        done = run_loop(tmp_path, f"http://127.0.0.1:{held.getsockname()[1]}")

    assert done.returncode == 1
    assert "ECONNREFUSED" in done.stderr


def test_odd_tool_calls_are_answered_not_fatal(tmp_path: Path) -> None:
    odd = Reply(calls=(("python", {}), (BASH, {"command": 5}), (BASH, {"command": "sleep 60", "timeout": 0.2})))

    with provider([odd, Reply(text="ok")]) as served:
        assert run_loop(tmp_path, served.base_url).returncode == 0

    said = [message["content"] for message in served.bodies[1]["messages"] if message["role"] == "tool"]
    assert said == [
        "error: there is no tool python",
        "error: `command` must be a string",
        "\n[killed after 0.2 s]",
    ]


def test_long_output_is_cut_and_says_so(tmp_path: Path) -> None:
    loud = Reply(calls=((BASH, {"command": "echo begin; head -c 200000 /dev/zero | tr '\\0' x; echo; echo end"}),))

    with provider([loud, Reply(text="ok")]) as served:
        run_loop(tmp_path, served.base_url)

    said = served.bodies[1]["messages"][-1]["content"]
    assert len(said) < 20_200
    assert said.startswith("begin\n") and "left out" in said and "end\n\n[exit code 0]" in said


def test_it_stops_at_its_last_turn(tmp_path: Path) -> None:
    again = Reply(calls=((BASH, {"command": "true"}),))

    with provider([again] * 5) as served:
        done = run_loop(tmp_path, served.base_url, **{"max-turns": "3"})

    assert done.returncode == 0
    assert len(served.requests) == 3
    assert transcript(tmp_path)[-1] == {"type": "end", "stop_reason": "max_turns", "turns": 3, "tool_calls": 3}


def test_a_transcript_that_cannot_be_written_stops_nothing(tmp_path: Path) -> None:
    (tmp_path / "session").write_text("not a directory")

    with provider([Reply(text="ok")]) as served:
        assert run_loop(tmp_path, served.base_url).returncode == 0


# ---- the adapter -------------------------------------------------------------------------------------------------


def test_launch_puts_address_and_token_in_the_environment_only(tmp_path: Path) -> None:
    context = a_context(tmp_path, model="acme/m1", route="acme", thinking=Thinking.LOW)
    (context.inputs / "system_preamble.md").write_text("Be brief.\n")
    (context.inputs / "orchestration.md").write_text("Plan first.\n")

    launch = Loop().launch(context)

    assert launch.protocol == "exit"
    assert launch.argv == (
        "/windtunnel/bundle/node",
        "/windtunnel/bundle/loop.mjs",
        "--model=m1",
        "--thinking=low",
        "--system=/windtunnel/in/system.md",
        "--session=/windtunnel/box/session",
    )
    assert launch.env == {
        "OPENAI_BASE_URL": "{{windtunnel.base_url}}/r/acme/executor",
        "OPENAI_API_KEY": "{{windtunnel.token}}",
    }
    assert launch.prompt == "the task"
    assert (context.stage / "system.md").read_text().endswith("\n\nBe brief.\n\nPlan first.")


def test_files_without_a_meaning_for_loop_are_refused(tmp_path: Path) -> None:
    leaf = tmp_path / "m1" / "high"
    leaf.mkdir(parents=True)
    (leaf / "settings.json").write_text("{}")
    (tmp_path / "pi-flags").write_text("")

    assert Loop().refuse(tmp_path, leaf) == [
        "pi-flags has no meaning for subject loop",
        "m1/high/settings.json has no meaning for subject loop",
    ]


def test_loop_without_a_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputWrong, match="--model"):
        Loop().launch(a_context(tmp_path))


@pytest.mark.parametrize(
    "lines",
    [
        b"",
        b"\xff\xfe\n",
        b"[]\n1\nnull\n",
        b"[" * 100_000,
        b'{"type":"message","role":"assistant","usage":{"input":-1}}\n',
    ],
)
def test_account_of_garbage_is_empty_not_an_error(tmp_path: Path, lines: bytes) -> None:
    (tmp_path / "session").mkdir()
    (tmp_path / "session" / "loop.jsonl").write_bytes(lines)

    account = Loop().account(tmp_path)

    assert account.settled is False
    assert account.tokens is None
