"""The gateway's life: restarts, its end, its files, the control socket, the credential path check, the search."""

from __future__ import annotations

import asyncio
import base64
import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote

import aiohttp
import psutil
import pytest
from aiohttp import web
from gateway_house import KEY, TOKEN, Build, chat_body, environment, start_file_for, upstream_of

from windtunnel.domain.digest import to_json
from windtunnel.errors import AttemptFault, PreflightFailed
from windtunnel.gateway.client import GatewayClient
from windtunnel.gateway.interface import GatewayFacts
from windtunnel.host.processes import ProcessId, is_alive
from windtunnel.store.files import read_json


async def _until(condition: Any, limit_s: float = 10.0) -> None:
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        await asyncio.sleep(0.01)


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


async def test_the_gateways_files_are_open_to_those_who_need_them_only(build: Build, tmp_path: Path) -> None:
    async with build() as house:
        facts = read_json(tmp_path / "gateway.json", GatewayFacts)

        assert _mode(tmp_path / "gateway.json") == 0o600
        assert _mode(tmp_path / "private" / "doors.json") == 0o600
        assert _mode(Path(house.start.control_socket)) == 0o600
        assert _mode(house.socket) == 0o666
        assert _mode(house.socket.parent) == 0o755
        assert _mode(Path(house.door.wire)) == 0o644
        assert (facts.pid, facts.run_id, facts.restarts) == (house.client.pid, "run-1", 0)
        assert is_alive(ProcessId(pid=facts.pid, start_time=facts.start_time, boot_id=facts.boot_id))


async def test_a_killed_gateway_comes_back_within_two_seconds_on_the_same_socket(build: Build, tmp_path: Path) -> None:
    async with build([{"text": "begin", "hang": True}, {"text": "again"}]) as house:
        inode = house.socket.parent.stat().st_ino
        with pytest.raises(aiohttp.ClientError):
            async with house.ask() as answer:
                await answer.content.readany()
                os.kill(house.client.pid, signal.SIGKILL)
                killed = time.monotonic()
                await answer.content.read()
        later = chat_body(messages=[{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}])

        status = None
        while status != 200:
            assert time.monotonic() < killed + 5, "it did not come back"
            try:
                async with house.ask(json=later) as answer:
                    await answer.read()
                    status = answer.status
            except aiohttp.ClientError:
                await asyncio.sleep(0.01)
        took_s = time.monotonic() - killed
        same_directory = house.socket.parent.stat().st_ino == inode  # it may be mounted in a sandbox
        closed = await house.client.close(house.door.key)

        assert took_s < 2
        assert (closed.calls, closed.cut, closed.restarted) == (2, 1, True)
        assert [record.call for record in house.started] == ["call-1", "call-2"]
        assert [record.call for record in house.ended] == ["call-2"]
        assert read_json(tmp_path / "gateway.json", GatewayFacts).restarts == 1
        assert same_directory


async def test_a_control_call_finds_a_gateway_again_that_was_just_killed(build: Build) -> None:
    async with build() as house:
        async with house.ask() as answer:
            await answer.read()
        await _until(lambda: len(house.ended) == 1)
        os.kill(house.client.pid, signal.SIGKILL)

        closed = await house.client.close(house.door.key)

        assert (closed.calls, closed.cut, closed.restarted) == (1, 0, True)


async def test_opening_the_same_door_twice_is_the_same_and_another_attempt_is_refused(build: Build) -> None:
    async with build() as house:
        again = await house.client.open(house.door)
        with pytest.raises(AttemptFault, match="another attempt"):
            await house.client.open(type(house.door)(**{**_fields(house.door), "token": "wt_other"}))
        with pytest.raises(AttemptFault, match="no door"):
            await house.client.close("nobody")

        assert again.directory == str(house.socket.parent)


def _fields(value: Any) -> dict[str, Any]:
    return {name: getattr(value, name) for name in value.__struct_fields__}


async def test_shutdown_leaves_no_process_and_no_directory(build: Build, short_dir: Path) -> None:
    async with build() as house:
        pid = house.client.pid
        await house.client.shutdown()

        assert not psutil.pid_exists(pid)
        assert not short_dir.exists()


async def test_a_gateway_that_cannot_start_is_named_with_its_log(tmp_path: Path, short_dir: Path) -> None:
    start = start_file_for(tmp_path, short_dir, "http://127.0.0.1:9/v1", None, capture="sometimes")
    start_file = tmp_path / "private" / "gateway-start.json"
    start_file.write_bytes(to_json(start))

    with pytest.raises(PreflightFailed, match=r"did not start.*gateway\.log"):
        await GatewayClient.start(start_file, environment())

    assert "capture 'sometimes'" in (tmp_path / "private" / "gateway.log").read_text()


async def test_the_control_socket_refuses_a_stranger(build: Build) -> None:
    async with build() as house:
        connector = aiohttp.UnixConnector(house.start.control_socket)
        async with aiohttp.ClientSession(connector=connector) as session:
            async with session.post("http://gateway/shutdown") as answer:
                assert answer.status == 403
            async with session.get("http://gateway/identity") as answer:
                assert answer.status == 403
                assert house.start.nonce not in await answer.text()


def _alone(tmp_path: Path, short_dir: Path, **changes: Any) -> tuple[subprocess.Popen[bytes], Path]:
    """A gateway without a supervisor."""
    start = start_file_for(tmp_path, short_dir, "http://127.0.0.1:9/v1", None, **changes)
    start_file = tmp_path / "private" / "gateway-start.json"
    start_file.write_bytes(to_json(start))
    process = subprocess.Popen([sys.executable, "-m", "windtunnel.gateway", str(start_file)], env=environment())
    return process, tmp_path / "gateway.json"


async def test_without_a_supervisor_it_stays_for_open_doors_and_then_ends_by_itself(
    tmp_path: Path, short_dir: Path
) -> None:
    (tmp_path / "private").mkdir()
    deadline_s = time.time() + 3
    door = {"key": "k", "token": TOKEN, "wire": str(tmp_path / "wire.ndjson"), "bodies": str(tmp_path / "b")}
    stored = {"doors": [door | {"roles": [], "deadline_epoch_ms": int(deadline_s * 1000)}]}
    (tmp_path / "private" / "doors.json").write_bytes(to_json(stored))
    process, facts = _alone(tmp_path, short_dir, linger_s=0.2)
    try:
        await _until(facts.exists)
        code = await asyncio.to_thread(process.wait, 20)
    finally:
        process.kill()
        process.wait()

    assert code == 0
    assert time.time() >= deadline_s + 0.2


async def test_sigterm_ends_it_in_order(tmp_path: Path, short_dir: Path) -> None:
    process, facts = _alone(tmp_path, short_dir)
    try:
        await _until(facts.exists)
        process.terminate()
        code = await asyncio.to_thread(process.wait, 10)
    finally:
        process.kill()
        process.wait()

    assert code == 0


async def test_calls_after_the_attempts_deadline_are_refused(build: Build) -> None:
    async with build() as house:
        over = type(house.door)(
            **{**_fields(house.door), "key": "late", "deadline_epoch_ms": 1, "wire": f"{house.door.wire}2"}
        )
        opened = await house.client.open(over)
        connector = aiohttp.UnixConnector(f"{opened.directory}/gateway.sock")
        async with aiohttp.ClientSession(connector=connector) as session:
            headers = {"Authorization": f"Bearer {TOKEN}"}
            url = "http://door/r/main/executor/chat/completions"
            async with session.post(url, json=chat_body(), headers=headers) as answer:
                said = await answer.json()

        assert (answer.status, said["error"]["code"]) == (403, "attempt_closed")
        assert house.upstream_saw == []


async def test_the_path_check_says_ok_when_the_provider_answers_with_the_key(build: Build) -> None:
    async with build() as house:
        async with house.check() as answer:
            said = await answer.json()
        (check,) = await house.client.checks(house.door.key)

        assert (answer.status, said["verdict"]) == (200, "ok")
        assert (check.route, check.role, check.verdict, check.status) == ("main", "executor", "ok", 200)
        assert house.upstream_saw[0]["authorization_ok"] is True
        assert house.records == []


@pytest.mark.parametrize(
    ("env", "verdict", "status"),
    [({"GATEWAY_TEST_KEY": "not-the-right-key"}, "credential_refused", 401), ({}, "credential_missing", None)],
)
async def test_the_path_check_tells_a_wrong_key_from_a_missing_one(
    build: Build, env: dict[str, str], verdict: str, status: int | None
) -> None:
    async with build(env={"PATH": os.environ["PATH"]} | env) as house:
        async with house.check() as answer:
            await answer.read()
        (check,) = await house.client.checks(house.door.key)

        assert answer.status == 502
        assert (check.verdict, check.status) == (verdict, status)


async def test_the_path_check_tells_a_dead_host_from_bad_tls(build: Build) -> None:
    async def plain(_: web.Request) -> web.Response:
        return web.Response(status=404)

    async with upstream_of(plain) as url:
        for base_url, verdict in (
            ("http://127.0.0.1:9/v1", "unreachable"),
            (url.replace("http:", "https:"), "tls_failed"),
            (url, "ok"),
        ):
            async with build(base_url=base_url, credential=None) as house:
                async with house.check() as answer:
                    await answer.read()
                (check,) = await house.client.checks(house.door.key)

                assert check.verdict == verdict, check


async def test_the_search_finds_a_key_in_every_form_and_never_shows_it(build: Build, tmp_path: Path) -> None:
    root = tmp_path / "evidence"
    (root / "deep").mkdir(parents=True)
    raw = KEY.encode()
    files = {
        "plain.txt": b"x" * 1_048_570 + raw,
        "deep/b64-0.txt": base64.b64encode(raw + b"tail"),
        "deep/b64-1.txt": base64.b64encode(b"a" + raw + b"zz"),
        "deep/b64-2.txt": base64.b64encode(b"ab" + raw),
        "deep/b64-url.txt": base64.urlsafe_b64encode(b"user:" + raw),
        "url.txt": quote(KEY, safe="").encode(),
        "clean.txt": b"nothing here",
    }
    for name, data in files.items():
        (root / name).write_bytes(data)
    (root / "loop").symlink_to(root)
    async with build() as house:
        found = await house.client.search(house.door.key, root)

    assert found.clean is False
    assert (found.routes, found.files) == (("main",), len(files))
    assert found.bytes == sum(map(len, files.values()))
    assert set(found.hits) == {
        "plain.txt: main, plain",
        "deep/b64-0.txt: main, base64",
        "deep/b64-1.txt: main, base64",
        "deep/b64-2.txt: main, base64",
        "deep/b64-url.txt: main, base64",
        "url.txt: main, url",
    }
    assert found.unread == ()


async def test_a_clean_search_says_what_it_read_and_a_short_key_is_never_clean(build: Build, tmp_path: Path) -> None:
    root = tmp_path / "evidence"
    root.mkdir()
    (root / "a").write_bytes(b"abc")
    async with build() as house:
        found = await house.client.search(house.door.key, root)
    async with build(env={"PATH": os.environ["PATH"], "GATEWAY_TEST_KEY": "abc"}) as house:
        short = await house.client.search(house.door.key, root)

    assert (found.clean, found.files, found.bytes, found.hits) == (True, 1, 3, ())
    assert (short.clean, short.hits) == (False, ())
    assert "cannot be searched" in short.unread[0]


async def test_a_call_that_cannot_be_recorded_is_not_made_and_the_attempt_learns_of_the_full_disk(build: Build) -> None:
    async with build() as house:
        async with house.ask() as answer:
            await answer.read()
        await _until(lambda: len(house.ended) == 1)
        gateway = psutil.Process(house.client.pid)
        gateway.rlimit(psutil.RLIMIT_FSIZE, (Path(house.door.wire).stat().st_size + 10, psutil.RLIM_INFINITY))
        async with house.ask() as answer:
            said = await answer.json()
        gateway.rlimit(psutil.RLIMIT_FSIZE, (psutil.RLIM_INFINITY, psutil.RLIM_INFINITY))
        with pytest.raises(AttemptFault) as fault:
            await house.client.close(house.door.key)

        assert (answer.status, said["error"]["code"]) == (500, "gateway_unavailable")
        assert len(house.upstream_saw) == 1
        assert len(house.records) == 2
        assert fault.value.reason == "disk_full"


async def test_a_torn_last_record_is_cut_off_at_a_restart(build: Build) -> None:
    async with build() as house:
        async with house.ask() as answer:
            await answer.read()
        await _until(lambda: len(house.ended) == 1)
        os.kill(house.client.pid, signal.SIGSTOP)
        wire = Path(house.door.wire)
        wire.write_bytes(wire.read_bytes() + b'{"event":"call_started","ca')
        os.kill(house.client.pid, signal.SIGKILL)

        closed = await house.client.close(house.door.key)

        assert (closed.calls, closed.cut) == (1, 0)
        assert len(house.records) == 2
