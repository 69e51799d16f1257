"""Fixtures: a short directory for sockets, and a house with a gateway process, an upstream and an open door."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from gateway_house import EXECUTOR, KEY_ENV, TOKEN, Build, House, environment, start_file_for
from msgspec.structs import replace

from windtunnel.domain.digest import to_json
from windtunnel.domain.role import Bounds
from windtunnel.gateway.client import GatewayClient
from windtunnel.gateway.interface import Door
from windtunnel.gateway.replay import start_replay


@pytest.fixture
def short_dir() -> Iterator[Path]:
    """Socket paths are limited to 108 bytes; pytest's own directories are longer."""
    path = Path(tempfile.mkdtemp(prefix="wt-"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


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
