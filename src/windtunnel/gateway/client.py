"""The supervisor's side of the gateway: start the process, speak to it, start it again at once if it dies."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

import aiohttp

from windtunnel.domain.digest import decode, to_json
from windtunnel.errors import AttemptFault, PreflightFailed
from windtunnel.gateway.control import NONCE_HEADER, Identity, KeyOnly, SearchOrder
from windtunnel.gateway.interface import Door, DoorClosed, OpenDoor, RouteCheck, SecretSearch, StartFile
from windtunnel.host.clock import monotonic
from windtunnel.store.files import read_json

__all__ = ["GatewayClient"]

T = TypeVar("T")
_START_S = 15.0
_TRIES = 4
_WATCH_S = 0.25
_BEAT_S = 1.0
_BEATS_MISSED = 10  # seconds a living process may be silent before it is ended and started again
_CALL_S = 60.0
_SEARCH_S = 500.0  # one try: it must end within the 600 s of the account phase
_STOP_S = 10.0


class GatewayClient:
    """Implements `Gateway`. Make one with `start`; `shutdown` leaves no process and no door directory."""

    def __init__(self, start_file: Path, start: StartFile, environment: Mapping[str, str]) -> None:
        self._start_file = start_file
        self._start = start
        self._environment = dict(environment)
        self._process: subprocess.Popen[bytes] | None = None
        self._restarting = asyncio.Lock()
        self._ending = False
        self._watch: asyncio.Task[None] | None = None
        self._session = aiohttp.ClientSession(
            connector=aiohttp.UnixConnector(start.control_socket, force_close=True),
            headers={NONCE_HEADER: start.nonce},
        )

    @classmethod
    async def start(cls, start_file: Path, env: Mapping[str, str]) -> GatewayClient:
        """Start the process of a start file with exactly this environment (its credentials are in there).

        Raises FileDamaged for the start file, PreflightFailed when the process does not serve within 15 s; its log,
        `gateway.log` beside the start file, tells why.
        """
        client = cls(start_file, read_json(start_file, StartFile), env)
        try:
            await client._spawn()
        except (TimeoutError, ChildProcessError) as error:
            await client.shutdown()
            raise PreflightFailed(f"the gateway did not start: {error}; see {client._log}") from error
        except asyncio.CancelledError:
            await client.shutdown()
            raise
        client._watch = asyncio.create_task(client._keep_alive())
        return client

    @property
    def pid(self) -> int | None:
        """The process that serves now."""
        return None if self._process is None else self._process.pid

    async def open(self, door: Door) -> OpenDoor:
        """Open an attempt's door."""
        return await self._ask("/doors", door, OpenDoor)

    async def close(self, key: str) -> DoorClosed:
        """Close it; what is still in flight is cancelled and recorded."""
        return await self._ask("/doors/close", KeyOnly(key=key), DoorClosed)

    async def search(self, key: str, root: Path) -> SecretSearch:
        """Search an attempt's files for the credentials that only the gateway holds."""
        order = SearchOrder(key=key, root=str(root.resolve()))
        return await self._ask("/search", order, SecretSearch, timeout_s=_SEARCH_S, tries=1)

    async def checks(self, key: str) -> list[RouteCheck]:
        """Route checks that came through this door."""
        return await self._ask("/checks", KeyOnly(key=key), list[RouteCheck])

    async def shutdown(self) -> None:
        """End the process, by force after 10 s, and remove the doors. Safe to call twice."""
        if self._session.closed:
            return
        self._ending = True
        if self._watch is not None:
            self._watch.cancel()
            await asyncio.gather(self._watch, return_exceptions=True)
            self._watch = None
        async with self._restarting:
            with contextlib.suppress(aiohttp.ClientError, OSError, TimeoutError, ValueError, _Unwilling):
                await self._request("/shutdown", {}, dict, timeout_s=_STOP_S)
            await self._end_process(_STOP_S)
        await self._session.close()
        shutil.rmtree(self._start.door_root, ignore_errors=True)

    async def _ask(
        self, path: str, body: object, type_: type[T], *, timeout_s: float = _CALL_S, tries: int = _TRIES
    ) -> T:
        """One control call, tried again after a restart: every call may be made twice with one effect."""
        found = ""
        for _ in range(tries):
            try:
                await self._ensure_alive()
                return await self._request(path, body, type_, timeout_s=timeout_s)
            except _Unwilling as error:
                raise AttemptFault(error.reason, f"the gateway refused {path}: {error}") from error
            except (aiohttp.ClientError, OSError, ValueError) as error:
                found = f"{type(error).__name__}: {error}"
                await asyncio.sleep(_WATCH_S)  # a killed process closes its sockets before it can be seen dead
        raise AttemptFault("gateway_lost", f"{path}: {found}; see {self._log}")

    async def _request(self, path: str, body: object, type_: type[T], *, timeout_s: float) -> T:
        limit = aiohttp.ClientTimeout(total=timeout_s)
        method = "GET" if body is None else "POST"
        data = None if body is None else to_json(body)
        async with self._session.request(method, f"http://gateway{path}", data=data, timeout=limit) as answer:
            said = await answer.read()
            if answer.status != 200:
                reason = "disk_full" if answer.status == 507 else "gateway_lost"
                raise _Unwilling(reason, str(decode(said, dict).get("error"))[:300])
            return decode(said, type_)

    async def _keep_alive(self) -> None:
        """Restart a dead process at once, and one that is silent for long. The beat also keeps the process running."""
        missed, beat_s = 0, monotonic()
        while True:
            await asyncio.sleep(_WATCH_S)
            dead = self._process is None or self._process.poll() is not None
            if not dead and monotonic() - beat_s >= _BEAT_S:
                beat_s = monotonic()
                missed = 0 if await self._is_ours() else missed + 1
            if dead or missed >= _BEATS_MISSED:
                missed = 0
                with contextlib.suppress(TimeoutError, OSError):  # tried again at the next turn
                    await self._ensure_alive(force=not dead)

    async def _ensure_alive(self, *, force: bool = False) -> None:
        """Start the process again if it is dead (`force`: end it first). Raises TimeoutError, ChildProcessError."""
        async with self._restarting:
            alive = self._process is not None and self._process.poll() is None
            if self._ending or (alive and not force):
                return
            await self._end_process(0.0)
            await self._spawn()

    async def _spawn(self) -> None:
        self._process = self._popen()
        deadline_s = monotonic() + _START_S
        while not await self._is_ours():
            if self._process.poll() is not None:
                raise ChildProcessError(f"its process ended with exit code {self._process.returncode}")
            if monotonic() > deadline_s:
                raise TimeoutError(f"it did not answer within {_START_S:.0f} s")
            await asyncio.sleep(0.02)

    def _popen(self) -> subprocess.Popen[bytes]:
        """A session of its own: a signal to the supervisor's terminal group does not reach it."""
        log = os.open(self._log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            return subprocess.Popen(
                [sys.executable, "-P", "-m", "windtunnel.gateway", str(self._start_file)],
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                cwd=self._start.run_dir,
            )
        finally:
            os.close(log)

    async def _is_ours(self) -> bool:
        """Whether this run's gateway answers, as the process that we started."""
        try:
            identity = await self._request("/identity", None, Identity, timeout_s=2.0)
        except (aiohttp.ClientError, OSError, ValueError, _Unwilling):
            return False
        start = self._start
        same = (identity.run_id, identity.plan_identity, identity.nonce) == (
            start.run_id,
            start.plan_identity,
            start.nonce,
        )
        return same and identity.pid == self.pid

    async def _end_process(self, patience_s: float) -> None:
        process = self._process
        if process is None:
            return
        try:
            await asyncio.to_thread(process.wait, patience_s)
        except subprocess.TimeoutExpired:
            process.kill()
            await asyncio.to_thread(process.wait)

    @property
    def _log(self) -> Path:
        return self._start_file.parent / "gateway.log"


class _Unwilling(Exception):
    """The gateway answered a control call with a refusal; `reason` is the attempt's reason code."""

    def __init__(self, reason: str, said: str) -> None:
        super().__init__(said)
        self.reason = reason
