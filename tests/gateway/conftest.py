"""A gateway process, an upstream, an open door: everything real."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from msgspec.structs import replace

from windtunnel.domain.digest import to_json
from windtunnel.domain.role import Bounds, Role, Route, Thinking
from windtunnel.domain.wire import CallEnded, CallRefused, CallStarted
from windtunnel.gateway.client import GatewayClient
from windtunnel.gateway.interface import Door, StartFile, Upstream
from windtunnel.gateway.replay import start_replay
from windtunnel.store.wire import read_wire

KEY_ENV = "GATEWAY_TEST_KEY"
KEY = "sk-canary/7f3a+Zq9=0123456789"
TOKEN = "wt_attempt-token"
EXECUTOR = Role(name="executor", provider="p", model="m-1", thinking=Thinking.HIGH, route="main")

Handler = Callable[[web.Request], Any]


def chat_body(**changes: Any) -> dict[str, Any]:
    """A streaming request of the executor."""
    body = {
        "model": "m-1",
        "messages": [{"role": "user", "content": "hello there"}],
        "stream": True,
        "stream_options": {"include_usage": True},
        "reasoning_effort": "high",
    }
    return body | changes


@dataclass
class House:
    """What a test speaks to."""

    client: GatewayClient
    start: StartFile
    start_file: Path
    door: Door
    socket: Path
    session: aiohttp.ClientSession
    replay_log: Path

    def ask(self, path: str = "/r/main/executor/chat/completions", *, token: str = TOKEN, **options: Any) -> Any:
        options.setdefault("json", chat_body())
        headers = {"Authorization": f"Bearer {token}"} | options.pop("headers", {})
        return self.session.post(f"http://door{path}", headers=headers, **options)

    def check(self, path: str = "/check/main/executor") -> Any:
        return self.session.get(f"http://door{path}", headers={"Authorization": f"Bearer {TOKEN}"})

    @property
    def records(self) -> list[Any]:
        return list(read_wire(Path(self.door.wire)))

    @property
    def started(self) -> list[CallStarted]:
        return [record for record in self.records if isinstance(record, CallStarted)]

    @property
    def ended(self) -> list[CallEnded]:
        return [record for record in self.records if isinstance(record, CallEnded)]

    @property
    def refused(self) -> list[CallRefused]:
        return [record for record in self.records if isinstance(record, CallRefused)]

    @property
    def upstream_saw(self) -> list[dict[str, Any]]:
        if not self.replay_log.exists():
            return []
        return [json.loads(line) for line in self.replay_log.read_text().splitlines()]


@pytest.fixture
def short_dir() -> Iterator[Path]:
    """Socket paths are limited to 108 bytes; pytest's own directories are longer."""
    path = Path(tempfile.mkdtemp(prefix="wt-"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


@asynccontextmanager
async def upstream_of(handler: Handler) -> AsyncIterator[str]:
    """An HTTP server in this process; yields its base URL."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handler)
    runner = web.AppRunner(app, handler_cancellation=True, auto_decompress=False, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{site.port}/v1"
    finally:
        await runner.cleanup()


def environment(**more: str) -> dict[str, str]:
    """What a gateway or a replay process is given."""
    return {"PATH": os.environ["PATH"], KEY_ENV: KEY} | more


def start_file_for(tmp_path: Path, doors: Path, base_url: str, credential: str | None, **changes: Any) -> StartFile:
    doors.mkdir(exist_ok=True)
    private = tmp_path / "private"
    private.mkdir(exist_ok=True)
    route = Route(name="main", base_url=base_url, credential=credential)
    values: dict[str, Any] = {
        "run_id": "run-1",
        "plan_identity": "sha256:0",
        "nonce": "n0nce",
        "run_dir": str(tmp_path),
        "door_root": str(doors),
        "control_socket": str(doors / "control.sock"),
        "doors_file": str(private / "doors.json"),
        "upstreams": (Upstream(route=route, base_url=base_url),),
    }
    return StartFile(**(values | changes))


Build = Callable[..., Any]


@pytest.fixture
def build(tmp_path: Path, short_dir: Path) -> Build:
    """`async with build(turns or base_url=..., role=..., **start file changes) as house`."""

    @asynccontextmanager
    async def make(
        turns: list[dict[str, Any]] | None = None,
        *,
        base_url: str | None = None,
        bounds: Bounds | None = None,
        credential: str | None = KEY_ENV,
        env: dict[str, str] | None = None,
        **changes: Any,
    ) -> AsyncIterator[House]:
        async with AsyncExitStack() as stack:
            log = tmp_path / "replay.ndjson"
            if base_url is None:
                script = tmp_path / "script.json"
                script.write_bytes(to_json({"conversations": [{"turns": turns or [{"text": "hi"}]}]}))
                replay = await start_replay(
                    script, tmp_path / "replay.json", log, env=environment(), require_key_env=KEY_ENV
                )
                stack.push_async_callback(replay.stop)
                base_url = replay.base_url
            start = start_file_for(tmp_path, short_dir, base_url, credential, **changes)
            start_file = tmp_path / "private" / "gateway-start.json"
            start_file.write_bytes(to_json(start))
            client = await GatewayClient.start(start_file, environment() if env is None else env)
            stack.push_async_callback(client.shutdown)
            role = replace(EXECUTOR, bounds=bounds or Bounds())
            (tmp_path / "attempt").mkdir(exist_ok=True)
            door = Door(
                key="task/config/rep0#1",
                token=TOKEN,
                wire=str(tmp_path / "attempt" / "wire.ndjson"),
                bodies=str(tmp_path / "attempt" / "initial_context"),
                roles=(role,),
                deadline_epoch_ms=int(time.time() * 1000) + 600_000,
            )
            opened = await client.open(door)
            socket = Path(opened.directory) / "gateway.sock"
            session = aiohttp.ClientSession(connector=aiohttp.UnixConnector(str(socket)))
            stack.push_async_callback(session.close)
            yield House(client, start, start_file, door, socket, session, log)

    return make
