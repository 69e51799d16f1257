"""The gateway process from start to end. It outlives its supervisor while attempts are open, and ends by itself."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import time
from collections.abc import Mapping
from pathlib import Path

from aiohttp import web

from windtunnel.domain.digest import to_json
from windtunnel.errors import FileDamaged
from windtunnel.gateway.capture import Capture
from windtunnel.gateway.control import Control, control_app
from windtunnel.gateway.doors import Doors
from windtunnel.gateway.forward import open_session
from windtunnel.gateway.interface import GatewayFacts, StartFile
from windtunnel.gateway.proxy import Proxy
from windtunnel.gateway.secrets import Secrets
from windtunnel.host.processes import current
from windtunnel.store.files import read_json, write_atomic

__all__ = ["serve"]

_LOG = logging.getLogger("windtunnel.gateway")
_NEVER_OPENED_S = 300.0  # a run that builds images first has no open door for a while
_TICK_S = 0.5


class Life:
    """When the process may end by itself. A supervisor that speaks to it keeps it; open doors keep it without one."""

    def __init__(self, linger_s: float) -> None:
        self._linger_s = linger_s
        self._spoken_s = time.time()

    def touch(self) -> None:
        """A supervisor has just spoken."""
        self._spoken_s = time.time()

    def is_over(self, doors: Doors) -> bool:
        """Whether nobody can need this process any more."""
        grace_s = self._linger_s if doors.ever_opened else self._linger_s + _NEVER_OPENED_S
        needed_s = max(self._spoken_s, doors.last_deadline_s or 0.0)
        return time.time() > needed_s + grace_s


async def serve(start: StartFile, environment: Mapping[str, str]) -> None:
    """Run until told to stop, or until nobody can need it. `gateway.json` appears when it serves.

    Raises OSError when a socket or a file cannot be made.
    """
    os.umask(0o022)
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    secrets = Secrets(start.upstreams, environment)
    life, restarts = Life(start.linger_s), _restarts(start)
    async with open_session(start.upstream_timeout_s) as session:
        upstreams = {upstream.route.name: upstream for upstream in start.upstreams}
        proxy = Proxy(upstreams, secrets, session, Capture(start.capture, secrets))
        doors = Doors(Path(start.door_root), Path(start.doors_file), proxy.app_for)
        await doors.restore()
        app = control_app(Control(start, doors, secrets, restarts, stop), start.nonce, life.touch)
        runner = await _listen(app, Path(start.control_socket))
        write_atomic(_facts_path(start), to_json(_facts(start, restarts)), mode=0o600)
        _LOG.info("serving, restart %d", restarts)
        while not stop.is_set() and not life.is_over(doors):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), _TICK_S)
        _LOG.info("ending: %s", "told to" if stop.is_set() else "nobody needs it")
        await doors.abandon()
        await runner.cleanup()


async def _listen(app: web.Application, path: Path) -> web.AppRunner:
    """Serve the control socket, open to this user alone from its first moment."""
    path.unlink(missing_ok=True)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    former = os.umask(0o177)
    try:
        await web.UnixSite(runner, path).start()
    finally:
        os.umask(former)
    return runner


def _facts_path(start: StartFile) -> Path:
    return Path(start.run_dir) / "gateway.json"


def _restarts(start: StartFile) -> int:
    """How often this gateway was started before: a former process with the same control socket left its facts."""
    try:
        former = read_json(_facts_path(start), GatewayFacts)
    except (FileNotFoundError, FileDamaged):
        return 0
    return former.restarts + 1 if former.control_socket == start.control_socket else 0


def _facts(start: StartFile, restarts: int) -> GatewayFacts:
    process = current()
    return GatewayFacts(
        run_id=start.run_id,
        plan_identity=start.plan_identity,
        pid=process.pid,
        start_time=process.start_time,
        boot_id=process.boot_id,
        control_socket=start.control_socket,
        restarts=restarts,
    )
