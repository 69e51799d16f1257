"""The replay provider as a process: `python -m windtunnel.gateway.replay --script FILE`, and how a run starts one."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec
from aiohttp import web

from windtunnel.domain.digest import to_json
from windtunnel.domain.replay import Script, parse_script
from windtunnel.errors import FileDamaged, InputWrong, PreflightFailed, WindtunnelError
from windtunnel.gateway.replay_server import ReplayServer
from windtunnel.host.clock import monotonic
from windtunnel.host.processes import ProcessId, identify, is_alive
from windtunnel.store.files import read_json, write_atomic

__all__ = ["ReplayProcess", "ReplayState", "run_replay", "start_replay"]

_START_S = 15.0
_STOP_S = 5.0
_TICK_S = 0.5


class ReplayState(msgspec.Struct, frozen=True, kw_only=True):
    """The state file, written when the provider serves."""

    port: int
    pid: int
    base_url: str


def run_replay(
    script: Path,
    *,
    port: int = 0,
    state: Path | None = None,
    log: Path | None = None,
    require_key_env: str | None = None,
    parent_pid: int | None = None,
    ready: Callable[[ReplayState], None] | None = None,
) -> None:
    """Serve a script on loopback until SIGTERM or SIGINT, or until the parent process is gone.

    `require_key_env`: name of the variable with the only key that is taken. `ready` is called when it serves.
    Raises InputWrong (FileDamaged for the script) and OSError when the port is taken.
    """
    server = ReplayServer(_read_script(script), log, _key(require_key_env))

    def announce(served: ReplayState) -> None:
        if state is not None:
            write_atomic(state, to_json(served))
        if ready is not None:
            ready(served)

    asyncio.run(_serve(server, port, announce, parent_pid))


def _read_script(path: Path) -> Script:
    try:
        return parse_script(path.read_bytes())
    except FileNotFoundError as error:
        raise InputWrong(f"{path}: there is no such replay script; give --script the path of one") from error
    except (ValueError, RecursionError) as error:
        raise FileDamaged(
            path, f"not a replay script: {error}", "Correct it (docs/reference/replay-scripts.md)"
        ) from error


def _key(name: str | None) -> str | None:
    if name is None:
        return None
    value = os.environ.get(name, "").strip()
    if not value:
        raise InputWrong(f"the environment variable {name} is not set; the replay provider was told to require it")
    return value


async def _serve(
    server: ReplayServer, port: int, announce: Callable[[ReplayState], None], parent_pid: int | None
) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    parent = None if parent_pid is None else identify(parent_pid)
    runner = web.AppRunner(server.app(), access_log=None, handler_cancellation=True, shutdown_timeout=0.2)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", port)
    try:
        await site.start()
        announce(ReplayState(port=site.port, pid=os.getpid(), base_url=f"http://127.0.0.1:{site.port}/v1"))
        while not stop.is_set() and not (parent_pid is not None and (parent is None or not is_alive(parent))):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), _TICK_S)
    finally:
        await runner.cleanup()
        server.close()


class ReplayProcess:
    """A replay provider that this process started."""

    def __init__(self, process: subprocess.Popen[bytes], state: ReplayState) -> None:
        self._process = process
        self.base_url = state.base_url
        self.pid = state.pid

    @property
    def identity(self) -> ProcessId | None:
        """The process, None when it is gone."""
        return identify(self.pid)

    async def stop(self) -> None:
        """End it: TERM, and KILL after 5 s. Safe to call twice."""
        await _end(self._process)


async def start_replay(
    script: Path, state: Path, log: Path, *, env: Mapping[str, str], require_key_env: str | None = None
) -> ReplayProcess:
    """Start a provider for a run; it ends with this process at the latest. `env`: its whole environment.

    Its messages go to `<state>.log`. Raises PreflightFailed when it does not serve within 15 s.
    """
    state.unlink(missing_ok=True)
    arguments = ["--script", script, "--state", state, "--log", log, "--parent-pid", str(os.getpid())]
    if require_key_env is not None:
        arguments += ["--require-key-env", require_key_env]
    messages = state.with_name(state.name + ".log")
    process = _spawn([str(argument) for argument in arguments], env, messages)
    try:
        return ReplayProcess(process, await _served(process, state, messages))
    except BaseException:
        await _end(process)
        raise


def _spawn(arguments: list[str], env: Mapping[str, str], messages: Path) -> subprocess.Popen[bytes]:
    with messages.open("ab") as out:
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "windtunnel.gateway.replay", *arguments],
            env=dict(env),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
        )


async def _served(process: subprocess.Popen[bytes], state: Path, messages: Path) -> ReplayState:
    deadline_s = monotonic() + _START_S
    while True:
        with contextlib.suppress(FileNotFoundError):
            return read_json(state, ReplayState)
        if process.poll() is not None or monotonic() > deadline_s:
            said = messages.read_text(errors="replace").strip().splitlines()
            raise PreflightFailed(f"the replay provider did not start: {said[-1] if said else 'no message'}")
        await asyncio.sleep(0.02)


async def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        await asyncio.to_thread(process.wait, _STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        await asyncio.to_thread(process.wait)


def _main() -> int:
    parser = argparse.ArgumentParser(prog="python -m windtunnel.gateway.replay", description=__doc__)
    parser.add_argument("--script", type=Path, required=True)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--state", type=Path)
    parser.add_argument("--log", type=Path)
    parser.add_argument("--require-key-env", metavar="NAME")
    parser.add_argument("--parent-pid", type=int)
    given = vars(parser.parse_args())
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    try:
        run_replay(given.pop("script"), **given)
    except (WindtunnelError, OSError) as error:
        logging.error("%s", error)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(_main())
