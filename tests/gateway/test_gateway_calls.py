"""Model calls through the door: passed as they come, metered, proven, refused."""

from __future__ import annotations

import asyncio
import gzip
import json
import time
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from gateway_house import KEY, Build, House, chat_body, upstream_of

from windtunnel.domain.role import Bounds
from windtunnel.domain.wire import Tokens


async def _until(condition: Any, limit_s: float = 10.0) -> None:
    """Wait for something that another process does."""
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        await asyncio.sleep(0.01)


async def _closed(house: House) -> House:
    """End the door, so that every record is written."""
    await house.client.close(house.door.key)
    return house


async def test_a_call_is_passed_with_the_real_key_and_recorded_with_its_usage(build: Build) -> None:
    usage = {"input": 70, "cache_read": 30, "output": 20, "reasoning": 5}
    async with build([{"reasoning": "think", "text": "hello", "usage": usage}]) as house:
        async with house.ask() as answer:
            text = await answer.text()
        await _closed(house)

        assert answer.status == 200
        assert text.endswith("data: [DONE]\n\n")
        assert house.upstream_saw[0]["authorization_ok"] is True
        (started,) = house.started
        assert (started.model_asked, started.thinking_field, started.thinking_sent) == (
            "m-1",
            "reasoning_effort",
            "high",
        )
        assert (started.stream, started.path, started.attempt) == (True, "/chat/completions", house.door.key)
        (ended,) = house.ended
        assert ended.tokens == Tokens(input=70, cache_read=30, output=20, reasoning=5)
        assert (ended.status, ended.ended_by, ended.stop_reason) == (200, "complete", "stop")
        assert (ended.model_served, ended.reasoning_seen, ended.parsed) == ("m-1", True, True)
        assert ended.ttft_ms is not None and ended.ttft_ms <= ended.duration_ms
        assert ended.response_bytes == len(text.encode())


async def test_an_answer_that_does_not_stream_is_metered_too(build: Build) -> None:
    async with build([{"text": "hello", "usage": {"input": 7, "output": 3}}]) as house:
        async with house.ask(json=chat_body(stream=False)) as answer:
            said = await answer.json()
        await _closed(house)

        assert said["choices"][0]["message"]["content"] == "hello"
        assert house.ended[0].tokens == Tokens(input=7, output=3)


async def test_events_are_passed_before_the_next_one_exists(build: Build) -> None:
    first_was_seen = asyncio.Event()

    async def upstream(request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await answer.prepare(request)
        await answer.write(b'data: {"choices":[{"delta":{"content":"one"}}]}\n\n')
        await first_was_seen.wait()
        await answer.write(b'data: {"choices":[{"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n')
        return answer

    async with upstream_of(upstream) as url, build(base_url=url) as house, asyncio.timeout(20):
        async with house.ask() as answer:
            first = await answer.content.readany()
            first_was_seen.set()
            rest = await answer.content.read()

        assert b"one" in first and b"[DONE]" not in first
        assert rest.endswith(b"[DONE]\n\n")


async def test_headers_of_this_hop_stay_and_identity_encoding_is_asked(build: Build) -> None:
    seen: dict[str, str] = {}

    async def upstream(request: web.Request) -> web.Response:
        seen.update({name.lower(): value for name, value in request.headers.items()})
        seen["path"] = request.path_qs
        return web.json_response({"choices": []}, headers={"X-Request-Id": "r1", "Set-Cookie": "a=b"})

    headers = {
        "X-Api-Key": "wt_attempt-token",
        "X-Own": "yes",
        "Connection": "X-Hop",
        "X-Hop": "no",
        "User-Agent": "pi",
    }
    async with upstream_of(upstream) as url, build(base_url=url) as house:
        path = "/r/main/executor/chat/completions?beta=true&x=a%20b"
        async with house.ask(path, headers=headers) as answer:
            got = answer.headers

    assert seen["authorization"] == f"Bearer {KEY}"
    assert seen["accept-encoding"] == "identity"
    assert (seen["x-own"], seen["user-agent"]) == ("yes", "pi")
    assert not {"x-api-key", "x-hop"} & set(seen)
    assert seen["path"] == "/v1/chat/completions?beta=true&x=a%20b"
    assert got["X-Request-Id"] == "r1" and "Set-Cookie" not in got


async def test_the_key_is_in_no_file_and_no_argument_of_ours(build: Build, tmp_path: Path, short_dir: Path) -> None:
    async with build(capture="all") as house:
        async with house.ask(json=chat_body(messages=[{"role": "user", "content": f"my key is {KEY}"}])) as answer:
            await answer.read()
        async with house.check() as answer:
            assert answer.status == 200
        arguments = Path(f"/proc/{house.client.pid}/cmdline").read_bytes()
        await _closed(house)

        files = [path for root in (tmp_path, short_dir) for path in root.rglob("*") if path.is_file()]
        assert {"wire.ndjson", "gateway.json", "doors.json", "gateway.log", "executor-1.request.json"} <= {
            path.name for path in files
        }
        assert KEY.encode() not in arguments
        assert [path for path in files if KEY.encode() in path.read_bytes()] == []
        assert all(line["authorization_ok"] for line in house.upstream_saw)


async def test_a_key_that_the_provider_quotes_in_an_error_does_not_reach_the_subject(build: Build) -> None:
    async def upstream(_: web.Request) -> web.Response:
        return web.json_response({"error": {"message": f"bad key {KEY}", "code": "invalid_api_key"}}, status=401)

    async with upstream_of(upstream) as url, build(base_url=url) as house:
        async with house.ask() as answer:
            text = await answer.text()
        await _closed(house)

        assert answer.status == 401
        assert KEY not in text and json.loads(text)["error"]["message"] == "bad key [redacted]"
        assert (house.ended[0].status, house.ended[0].error_code) == (401, "invalid_api_key")
        assert house.ended[0].error_message == "bad key [redacted]"


@pytest.mark.parametrize("token", ["wrong", "", KEY])
async def test_a_wrong_token_is_refused_in_the_dialects_shape(build: Build, token: str) -> None:
    async with build() as house:
        async with house.ask(token=token) as answer:
            said = await answer.json()
        await _closed(house)

        assert answer.status == 401
        assert said["error"].keys() == {"message", "type", "code"}
        assert [record.reason for record in house.refused] == ["bad_token"]
        assert house.upstream_saw == []


@pytest.mark.parametrize(
    ("path", "body", "status", "reason"),
    [
        ("/r/main/executor/chat/completions", chat_body(model="other"), 403, "undeclared_role"),
        ("/r/main/executor/chat/completions", {"messages": []}, 403, "undeclared_role"),
        ("/r/main/executor/responses", {"model": "other"}, 403, "undeclared_role"),
        ("/r/main/advisor/chat/completions", chat_body(), 403, "undeclared_role"),
        ("/r/other/executor/chat/completions", chat_body(), 403, "undeclared_role"),
        ("/r/main/executor/%2e%2e/admin", chat_body(), 404, "unknown_route"),
        ("/r/main/executor/a%2f..%2fb", chat_body(), 404, "unknown_route"),
        ("/v1/chat/completions", chat_body(), 404, "unknown_route"),
    ],
)
async def test_a_call_that_fits_no_declared_role_is_refused_and_recorded(
    build: Build, path: str, body: dict[str, Any], status: int, reason: str
) -> None:
    async with build() as house:
        url = aiohttp.client.URL(f"http://door{path}", encoded=True)
        headers = {"Authorization": f"Bearer {house.door.token}"}
        async with house.session.post(url, json=body, headers=headers) as answer:
            said = await answer.json()
        closed = await house.client.close(house.door.key)

        assert (answer.status, said["error"]["code"]) == (status, reason)
        assert [record.reason for record in house.refused] == [reason]
        assert (closed.calls, closed.refused) == (0, 1)
        assert house.upstream_saw == []


async def test_another_path_of_a_declared_route_passes_unparsed(build: Build) -> None:
    async with build() as house:
        headers = {"Authorization": f"Bearer {house.door.token}"}
        async with house.session.get("http://door/r/main/executor/models", headers=headers) as answer:
            assert answer.status == 200
        await _closed(house)

        assert house.started[0].dialect == "unparsed"
        assert house.ended[0].parsed is False


async def test_a_bound_on_calls_refuses_the_next_one_without_inviting_a_retry(build: Build) -> None:
    async with build(bounds=Bounds(max_calls=1)) as house:
        async with house.ask() as answer:
            await answer.read()
        async with house.ask() as answer:
            said = await answer.json()

        assert (answer.status, said["error"]["code"]) == (403, "role_bound_reached")
        assert [record.reason for record in house.refused] == ["role_bound_reached"]
        assert len(house.upstream_saw) == 1


async def test_a_bound_on_tokens_counts_what_was_used(build: Build) -> None:
    turn = {"text": "hi", "usage": {"input": 60, "output": 40}}
    async with build([turn], bounds=Bounds(max_tokens=150)) as house:
        statuses = []
        for _ in range(3):
            async with house.ask() as answer:
                await answer.read()
                statuses.append(answer.status)

        assert statuses == [200, 200, 403]


async def test_a_bound_on_concurrency_holds_while_a_call_is_in_flight(build: Build) -> None:
    turns = [{"text": "begin", "hang": True}]
    async with build(turns, bounds=Bounds(max_concurrency=1)) as house, house.ask() as first:
        await first.content.readany()
        async with house.ask() as second:
            assert second.status == 403


async def test_a_client_that_goes_away_is_recorded(build: Build) -> None:
    async with build([{"text": "begin", "hang": True}]) as house:
        async with house.ask() as answer:
            await answer.content.readany()
        await _until(lambda: len(house.ended) == 1)

        assert house.ended[0].ended_by == "client_disconnect"
        assert (house.ended[0].status, house.ended[0].tokens) == (200, None)


async def test_a_client_that_goes_away_before_the_first_byte_is_recorded(build: Build) -> None:
    async with build([{"hang": True}]) as house:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(house.ask().__aenter__(), 0.5)
        await _until(lambda: len(house.ended) == 1)

        assert (house.ended[0].ended_by, house.ended[0].status) == ("client_disconnect", None)


async def test_closing_the_door_ends_what_is_in_flight_with_a_record(build: Build) -> None:
    async with build([{"text": "begin", "hang": True}]) as house:
        async with house.ask() as answer:
            await answer.content.readany()
            closed = await house.client.close(house.door.key)

        assert (closed.calls, closed.cut, closed.restarted) == (1, 0, False)
        assert [record.ended_by for record in house.ended] == ["client_disconnect"]
        assert not house.socket.parent.exists()
        assert await house.client.close(house.door.key) == closed


@pytest.mark.parametrize("stream", [True, False])
async def test_a_torn_answer_is_torn_for_the_subject_too(build: Build, stream: bool) -> None:
    async with build([{"text": "a long text " * 20, "torn": True}]) as house:
        with pytest.raises(aiohttp.ClientPayloadError):
            async with house.ask(json=chat_body(stream=stream)) as answer:
                await answer.read()
        await _closed(house)

        assert (house.ended[0].ended_by, house.ended[0].tokens) == ("upstream_torn", None)


async def test_a_stream_that_ends_politely_without_a_finish_reason_is_torn(build: Build) -> None:
    async def upstream(request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await answer.prepare(request)
        await answer.write(b'data: {"choices":[{"delta":{"content":"one"}}]}\n\n')
        return answer

    async with upstream_of(upstream) as url, build(base_url=url) as house:
        async with house.ask() as answer:
            await answer.read()
        await _closed(house)

        assert house.ended[0].ended_by == "upstream_torn"


async def test_an_upstream_that_is_not_there_is_told_and_recorded(build: Build) -> None:
    async with build(base_url="http://127.0.0.1:9/v1") as house:
        async with house.ask() as answer:
            said = await answer.json()
        await _closed(house)

        assert (answer.status, said["error"]["code"]) == (502, "upstream_unreachable")
        assert (house.ended[0].ended_by, house.ended[0].status) == ("upstream_unreachable", None)


@pytest.mark.parametrize("turn", [{"hang": True}, {"text": "begin", "hang": True}])
async def test_a_silent_upstream_ends_in_a_timeout(build: Build, turn: dict[str, Any]) -> None:
    async with build([turn], upstream_timeout_s=0.5) as house:
        try:
            async with house.ask() as answer:
                await answer.read()
                assert answer.status == 504
        except aiohttp.ClientPayloadError:
            assert turn.get("text")
        await _closed(house)

        assert house.ended[0].ended_by == "timeout"


async def test_the_providers_limits_are_passed_and_recorded_by_their_code(build: Build) -> None:
    error = {"status": 429, "code": "insufficient_quota", "message": "no money", "retry_after": 3}
    async with build([{"error": error}]) as house:
        async with house.ask() as answer:
            said = await answer.json()
        await _closed(house)

        assert (answer.status, answer.headers["Retry-After"]) == (429, "3")
        assert said["error"]["code"] == "insufficient_quota"
        assert (house.ended[0].status, house.ended[0].error_code) == (429, "insufficient_quota")
        assert house.ended[0].ended_by == "complete"


@pytest.mark.parametrize("in_stream", [True, False])
async def test_an_error_inside_a_200_is_an_error(build: Build, in_stream: bool) -> None:
    error = {"status": 200, "code": "provider_overloaded", "message": "busy", "in_stream": in_stream}
    async with build([{"text": "some text", "error": error}]) as house:
        async with house.ask() as answer:
            await answer.read()
        await _closed(house)

        ended = house.ended[0]
        assert (ended.status, ended.error_code, ended.error_message) == (200, "provider_overloaded", "busy")


async def test_usage_that_nobody_told_is_unknown_and_the_body_is_not_changed(build: Build) -> None:
    async with build() as house:
        body = chat_body()
        del body["stream_options"]
        async with house.ask(json=body) as answer:
            assert b"usage" not in await answer.read()
        await _closed(house)

        assert (house.ended[0].tokens, house.ended[0].parsed) == (None, True)


async def test_another_model_than_asked_is_seen(build: Build) -> None:
    async with build([{"text": "hi", "model": "m-2"}]) as house:
        async with house.ask() as answer:
            await answer.read()
        await _closed(house)

        assert (house.started[0].model_asked, house.ended[0].model_served) == ("m-1", "m-2")


async def test_compressed_requests_are_read_and_passed_as_they_are(build: Build) -> None:
    got: list[bytes] = []

    async def upstream(request: web.Request) -> web.Response:
        got.append(await request.read())
        return web.json_response({"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 1}})

    plain = json.dumps(chat_body(stream=False)).encode()
    async with upstream_of(upstream) as url, build(base_url=url) as house:
        for encoding, data in (("gzip", gzip.compress(plain)), ("identity", plain)):
            headers = {"Content-Encoding": encoding, "Content-Type": "application/json"}
            async with house.ask(json=None, data=data, headers=headers) as answer:
                assert answer.status == 200
        await _closed(house)

        assert [record.model_asked for record in house.started] == ["m-1", "m-1"]
        assert gzip.decompress(got[0]) == plain and got[1] == plain
        assert house.ended[0].tokens == Tokens(input=1, output=1)


async def test_bodies_of_the_first_calls_are_kept(build: Build) -> None:
    async with build(capture="first:2") as house:
        for number in range(3):
            async with house.ask(json=chat_body(user=str(number))) as answer:
                await answer.read()
        await _closed(house)

        kept = sorted(Path(house.door.bodies).iterdir())
        assert [path.name for path in kept] == ["executor-1.request.json", "executor-2.request.json"]
        assert json.loads(kept[1].read_bytes()) == chat_body(user="1")


async def test_bodies_of_failed_calls_are_kept_when_asked_for(build: Build) -> None:
    async with build([{"text": "fine"}, {"error": {"status": 500}}], capture="errors") as house:
        turns = [chat_body()["messages"], [*chat_body()["messages"], {"role": "assistant", "content": "fine"}]]
        for messages in turns:
            async with house.ask(json=chat_body(messages=messages)) as answer:
                await answer.read()
        await _closed(house)

        assert [path.name for path in Path(house.door.bodies).iterdir()] == ["executor-2.request.json"]
