"""Run things in a container: a detached process that nobody is attached to, short commands that are ended in time.

Ending the client never ends an exec, so a command that is out of time is ended from inside, by a mark in its
environment. Environment values travel in the exec's own field of the API: no command line, event or inspect has them.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence

import aiodocker

from windtunnel.domain.outcome import Reason
from windtunnel.environments.docker_container import KILL_MARKED
from windtunnel.environments.docker_engine import Engine
from windtunnel.environments.interface import Completed
from windtunnel.environments.output import Bounded
from windtunnel.errors import AttemptFault

__all__ = ["Executor"]

_CALL_S = 60.0
_KILL_S = 20.0
_MARK = "WINDTUNNEL_EXEC"
_CANNOT_START = 126
_STDERR = 2


class Executor:
    """Execs of one container. `stop`: how to end the whole container when nothing less works."""

    def __init__(self, engine: Engine, container: str, stop: Callable[[], Awaitable[None]]) -> None:
        self._engine = engine
        self._stop = stop
        self._container = engine.docker.containers.container(container)

    async def create(
        self, argv: Sequence[str], *, env: Mapping[str, str], cwd: str, user: str | None, attached: bool
    ) -> str:
        """Make an exec; returns its id."""
        async with self._engine.bounded("exec create", _CALL_S):
            made = await self._container.exec(
                list(argv), stdout=attached, stderr=attached, environment=env, workdir=cwd, user=user or ""
            )
        return made.id

    async def start_detached(self, id_: str) -> None:
        """Start an exec that nobody is attached to."""
        async with self._engine.bounded("exec start", _CALL_S):
            await self._engine.docker.containers.exec(id_).start(detach=True)

    async def code(self, id_: str) -> int | None:
        """Exit code of an exec, None while it runs. Raises AttemptFault(container_lost) when it is gone."""
        async with self._engine.bounded("exec inspect", _CALL_S):
            found = await self._engine.docker.containers.exec(id_).inspect()
        code = found.get("ExitCode")
        return None if found.get("Running") else -1 if code is None else int(code)

    async def run(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: str,
        user: str | None,
        timeout_s: float,
        output_limit: int,
    ) -> Completed:
        """Run a short command and wait for it; out of time it is killed with everything it started."""
        mark = secrets.token_hex(16)
        id_ = await self.create(argv, env={**env, _MARK: mark}, cwd=cwd, user=user, attached=True)
        out, err = Bounded(output_limit), Bounded(output_limit)
        code: int | None = None
        timed_out = False
        try:
            async with asyncio.timeout(timeout_s):
                refusal = await self._follow(id_, out, err)
                err.add((refusal or "").encode())
                code = _CANNOT_START if refusal else await self._final_code(id_)
        except TimeoutError:
            timed_out = True
            await self._end(id_, mark, user)
        except asyncio.CancelledError:
            await asyncio.shield(self._end(id_, mark, user))
            raise
        return Completed(code, bytes(out.data), bytes(err.data), timed_out, out.truncated or err.truncated)

    async def _end(self, id_: str, mark: str, user: str | None) -> None:
        """End a command from inside; where that does not work the container goes."""
        if not await self._kill_marked(mark, user) or await self.code(id_) is None:
            await self._stop()

    async def _follow(self, id_: str, out: Bounded, err: Bounded) -> str | None:
        """Read the output to its end; the text of the engine's refusal when the command could not be started."""
        try:
            async with self._engine.docker.containers.exec(id_).start(detach=False) as stream:
                while (message := await stream.read_out()) is not None:
                    (err if message.stream == _STDERR else out).add(message.data)
        except aiodocker.DockerError as error:
            if "OCI runtime exec failed" in error.message or "unable to find user" in error.message:
                return error.message
            raise
        return None

    async def _final_code(self, id_: str) -> int:
        """The engine may close the stream a moment before it knows the code."""
        while True:
            code = await self.code(id_)
            if code is not None:
                return code
            await asyncio.sleep(0.02)

    async def _kill_marked(self, mark: str, user: str | None) -> bool:
        """Kill what carries the mark, as the same user: only that user may read those environments."""
        argv = ["/bin/sh", "-c", KILL_MARKED, "sh", f"{_MARK}={mark}"]
        try:
            return await self.quiet(argv, user=user, timeout_s=_KILL_S) == 0
        except AttemptFault as fault:
            return fault.reason == Reason.CONTAINER_LOST

    async def quiet(self, argv: Sequence[str], *, user: str | None, timeout_s: float) -> int | None:
        """Run a command of ours detached and wait for its code; None when it does not end."""
        id_ = await self.create(argv, env={}, cwd="/", user=user, attached=False)
        await self.start_detached(id_)
        try:
            async with asyncio.timeout(timeout_s):
                return await self._final_code(id_)
        except TimeoutError:
            return None
