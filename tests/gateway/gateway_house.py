"""A gateway process, an upstream, an open door: everything real."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web

from windtunnel.domain.role import Role, Route, Thinking
from windtunnel.domain.wire import CallEnded, CallRefused, CallStarted
from windtunnel.gateway.client import GatewayClient
from windtunnel.gateway.interface import Door, StartFile, Upstream
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
