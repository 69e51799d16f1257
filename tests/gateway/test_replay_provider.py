"""The replay provider as a real process: its wire form, its faults, its own count."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import psutil
import pytest
from gateway_house import KEY, KEY_ENV, chat_body, environment

from windtunnel.domain.digest import to_json
from windtunnel.errors import PreflightFailed
from windtunnel.gateway.replay import start_replay

Serve = Callable[..., Any]


@pytest.fixture
def serve(tmp_path: Path) -> Serve:
    """`async with serve(turn, ...) as (ask, log)`."""

    @asynccontextmanager
    async def make(*turns: dict[str, Any], key: str | None = None) -> AsyncIterator[Any]:
        script, log = tmp_path / "script.json", tmp_path / "log.ndjson"
        script.write_bytes(to_json({"conversations": [{"turns": turns}]}))
        replay = await start_replay(script, tmp_path / "state.json", log, env=environment(), require_key_env=key)
        try:
            async with aiohttp.ClientSession() as session:

                def ask(path: str = "/chat/completions", **options: Any) -> Any:
                    options.setdefault("json", chat_body())
                    return session.post(replay.base_url + path, **options)

                def count() -> list[dict[str, Any]]:
                    return [json.loads(line) for line in log.read_text().splitlines()]

                yield ask, count, replay, session
        finally:
            await replay.stop()
            assert not psutil.pid_exists(replay.pid)

    return make


def _events(text: str) -> list[Any]:
    lines = [line.removeprefix("data: ") for line in text.split("\n\n") if line]
    assert lines[-1] == "[DONE]"
    return [json.loads(line) for line in lines[:-1]]


TOOLS = {
    "reasoning": "let me look",
    "text": "I will list the files in this directory.",
    "tool_calls": [{"name": "bash", "arguments": {"command": "ls"}}, {"name": "read", "arguments": "{broken"}],
    "usage": {"input": 70, "cache_read": 30, "output": 20, "reasoning": 5},
}


async def test_a_stream_has_role_reasoning_text_tool_calls_finish_and_usage(serve: Serve) -> None:
    async with serve(TOOLS) as (ask, _, _, _), ask() as answer:
        events = _events(await answer.text())

    *chunks, usage = events
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    assert deltas[0] == {"role": "assistant", "content": ""}
    assert "".join(delta.get("reasoning_content", "") for delta in deltas) == TOOLS["reasoning"]
    assert "".join(delta.get("content", "") for delta in deltas) == TOOLS["text"]
    calls = [call for delta in deltas for call in delta.get("tool_calls", [])]
    assert [call["index"] for call in calls] == [0, 0, 1, 1]
    assert [call["function"].get("name") for call in calls] == ["bash", None, "read", None]
    arguments = [call["function"]["arguments"] for call in calls]
    assert arguments[0] + arguments[1] == '{"command":"ls"}' and arguments[2] + arguments[3] == "{broken"
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks] == [None] * (len(chunks) - 1) + ["tool_calls"]
    assert usage["choices"] == []
    assert usage["usage"] == {
        "prompt_tokens": 100,
        "completion_tokens": 20,
        "total_tokens": 120,
        "prompt_tokens_details": {"cached_tokens": 30},
        "completion_tokens_details": {"reasoning_tokens": 5},
    }


async def test_the_same_request_gets_the_same_bytes(serve: Serve) -> None:
    async with serve(TOOLS) as (ask, count, _, _):
        texts = []
        for _ in range(2):
            async with ask() as answer:
                texts.append(await answer.text())
        async with ask(json=chat_body(stream=False)) as answer:
            whole = await answer.json()

        assert texts[0] == texts[1]
        assert whole["choices"][0]["finish_reason"] == "tool_calls"
        assert whole["choices"][0]["message"]["tool_calls"][1]["function"]["arguments"] == "{broken"
        assert whole["usage"]["total_tokens"] == 120
        assert [line["usage"]["prompt_tokens"] for line in count()] == [100, 100, 100]


async def test_usage_comes_only_when_asked_for_and_not_missing(serve: Serve) -> None:
    async with serve({"text": "a"}, {"text": "b", "usage_missing": True}) as (ask, count, _, _):
        later = chat_body(messages=[{"role": "assistant", "content": "a"}])
        for body in (chat_body(stream_options=None), later, later | {"stream": False}):
            async with ask(json=body) as answer:
                assert "usage" not in await answer.text()

        assert [line["usage"] is None for line in count()] == [False, True, True]


async def test_its_own_count_tells_what_it_was_asked(serve: Serve) -> None:
    async with serve({"text": "a"}) as (ask, count, _, _):
        async with ask() as answer:
            await answer.read()
        (line,) = count()

        assert (line["model"], line["stream"], line["status"], line["ended"]) == ("m-1", True, 200, "complete")
        assert (line["conversation"], line["turn"], line["reasoning_effort"]) == (0, 0, "high")


@pytest.mark.parametrize("sent", ["Bearer wrong", "", KEY])
async def test_a_wrong_key_is_refused_everywhere(serve: Serve, sent: str) -> None:
    async with serve({"text": "a"}, key=KEY_ENV) as (ask, count, replay, session):
        async with ask(headers={"Authorization": sent}) as answer:
            assert (answer.status, (await answer.json())["error"]["code"]) == (401, "invalid_api_key")
        async with session.get(f"{replay.base_url}/models", headers={"Authorization": sent}) as answer:
            assert answer.status == 401
        async with session.get(f"{replay.base_url}/models", headers={"Authorization": f"Bearer {KEY}"}) as answer:
            assert [model["id"] for model in (await answer.json())["data"]] == ["replay"]

        assert [line["authorization_ok"] for line in count()] == [False, False, True]


@pytest.mark.parametrize(
    ("status", "code"),
    [(429, "rate_limit_exceeded"), (429, "insufficient_quota"), (401, None), (402, None), (500, "x"), (503, None)],
)
async def test_scripted_errors_have_the_providers_shape(serve: Serve, status: int, code: str | None) -> None:
    async with serve({"error": {"status": status, "code": code, "retry_after": 1.5}}) as (ask, count, _, _):
        async with ask() as answer:
            error = (await answer.json())["error"]

        assert (answer.status, answer.headers["Retry-After"], error["code"]) == (status, "1.5", code)
        assert count()[0]["status"] == status


async def test_a_request_that_fits_nothing_is_told_so(serve: Serve) -> None:
    async with serve({"text": "a"}) as (ask, _, _, _), ask(json=None, data=b"[]") as answer:
        assert answer.status == 400


async def test_delays_are_kept(serve: Serve) -> None:
    async with serve({"text": "x" * 48, "delay_ms": 100, "chunk_delay_ms": 50}) as (ask, _, _, _):
        begin = time.monotonic()
        async with ask() as answer:
            await answer.read()

        assert time.monotonic() - begin >= 0.1 + 4 * 0.05


async def test_a_hanging_turn_ends_with_the_client(serve: Serve) -> None:
    async with serve({"text": "begin", "hang": True}) as (ask, count, _, _):
        async with ask() as answer:
            assert b"begin" in await answer.content.readuntil(b"begin")
        for _ in range(200):
            if count():
                break
            await asyncio.sleep(0.02)

        assert count()[0]["ended"] == "client_disconnect"


async def test_a_wrong_script_stops_the_start_with_its_place(tmp_path: Path) -> None:
    script = tmp_path / "script.json"
    script.write_text('{"conversations":[{"turns":[{"txt":1}]}]}')

    with pytest.raises(PreflightFailed, match=r"script\.json.*txt"):
        await start_replay(script, tmp_path / "state.json", tmp_path / "log", env=environment())


def test_it_ends_when_its_parent_is_killed(tmp_path: Path) -> None:
    script, state = tmp_path / "script.json", tmp_path / "state.json"
    script.write_text('{"conversations":[{"turns":[{"text":"a"}]}]}')
    parent = subprocess.Popen(["sleep", "60"])
    arguments = ["--script", str(script), "--state", str(state), "--parent-pid", str(parent.pid)]
    replay = subprocess.Popen([sys.executable, "-m", "windtunnel.gateway.replay", *arguments], env=environment())
    try:
        while not state.exists():
            assert replay.poll() is None
            time.sleep(0.01)
        os.kill(parent.pid, signal.SIGKILL)
        parent.wait()
        assert replay.wait(10) == 0
    finally:
        for process in (replay, parent):
            process.kill()
            process.wait()
