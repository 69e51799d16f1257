"""The way to the Docker engine: which socket, how long each call may take, what each refusal means.

Engine API 1.41 (20.10) and newer over a local unix socket. aiodocker has no time-outs of its own, so every call is
made inside `bounded`. The one call it cannot stream (`archive`) goes through its HTTP session.
"""

from __future__ import annotations

import asyncio
import os
import platform
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import IO, Any

import aiodocker
import aiohttp

from windtunnel.domain.outcome import Reason
from windtunnel.errors import AttemptFault, EngineAbsent

__all__ = ["Engine", "refused", "socket_path"]

_REMEDY = "Start a local Docker engine (scripts/engine does on Debian), or use --environment local or plain"
_OLDEST = (1, 41)
_CHUNK = 256 * 1024


def socket_path(environ: Mapping[str, str]) -> Path:
    """The engine's socket. Raises EngineAbsent for remote engines, contexts and a missing socket."""
    host = environ.get("DOCKER_HOST")
    if host:
        if not host.startswith("unix://"):
            found = (
                f"DOCKER_HOST={host.split('@')[-1]} is not a local unix socket; remote engines are not supported yet"
            )
            raise EngineAbsent("docker", found, _REMEDY)
        return Path(host.removeprefix("unix://"))
    context = environ.get("DOCKER_CONTEXT", "default")
    if context != "default":
        found = f"DOCKER_CONTEXT={context}: contexts are not read"
        raise EngineAbsent("docker", found, "Set DOCKER_HOST=unix://... instead")
    own = Path(environ.get("XDG_RUNTIME_DIR", "/nonexistent")) / "docker.sock"
    for path in (Path("/var/run/docker.sock"), own):
        if path.is_socket():
            return path
    raise EngineAbsent("docker", "no engine socket at /var/run/docker.sock and DOCKER_HOST is not set", _REMEDY)


def refused(verb: str, error: aiodocker.DockerError, missing: Reason) -> AttemptFault:
    """What an error of the engine means for an attempt."""
    text = error.message.strip()[:500]
    if "no space left" in text:
        reason = Reason.DISK_FULL
    elif error.status == 404:
        reason = missing
    elif error.status == 409 and "is not running" in text:
        reason = Reason.CONTAINER_LOST
    else:
        reason = Reason.ENGINE_ERROR
    return AttemptFault(reason, f"docker {verb}: {text}")


class Engine:
    """One connection pool to one engine. Made lazily, because it belongs to the running event loop."""

    def __init__(self, environ: Mapping[str, str] | None = None) -> None:
        self._environ = os.environ if environ is None else environ
        self._docker: aiodocker.Docker | None = None
        self._connector: aiohttp.UnixConnector | None = None

    @property
    def docker(self) -> aiodocker.Docker:
        """The client. Raises EngineAbsent."""
        if self._docker is None:
            path = socket_path(self._environ)
            self._connector = aiohttp.UnixConnector(str(path), limit=0)
            self._docker = aiodocker.Docker(url="http://localhost", connector=self._connector)
        return self._docker

    async def close(self) -> None:
        """Release the connections."""
        if self._docker is not None and self._connector is not None:
            await self._docker.close()
            await self._connector.close()
            self._docker = self._connector = None

    @asynccontextmanager
    async def bounded(
        self, verb: str, seconds: float, *, missing: Reason = Reason.CONTAINER_LOST
    ) -> AsyncIterator[None]:
        """Bound an engine call and turn its errors into an AttemptFault. `missing`: what a 404 means here."""
        try:
            async with asyncio.timeout(seconds):
                yield
        except TimeoutError as error:
            raise AttemptFault(Reason.ENGINE_ERROR, f"docker {verb}: no answer in {seconds:g} s") from error
        except aiodocker.DockerError as error:
            raise refused(verb, error, missing) from error
        except (aiohttp.ClientError, OSError) as error:
            raise AttemptFault(Reason.ENGINE_ERROR, f"docker {verb}: {error}") from error

    def _url(self, path: str) -> str:
        return f"http://localhost/{self.docker.api_version}/{path}"

    async def _checked(self, response: aiohttp.ClientResponse) -> None:
        if response.status >= 400:
            text = await response.text("utf-8", "replace")
            raise aiodocker.DockerError(response.status, text)

    async def written_bytes(self, container: str, *, seconds: float = 120) -> int | None:
        """What a container wrote beyond its image, holes of sparse files included. The engine walks its layer for
        this: not to be asked often."""
        async with (
            self.bounded("inspect size", seconds),
            self.docker.session.get(self._url(f"containers/{container}/json"), params={"size": "true"}) as response,
        ):
            await self._checked(response)
            size = (await response.json()).get("SizeRw")
            return None if size is None else int(size)

    async def archive(self, container: str, path: str, into: IO[bytes], *, limit_bytes: int) -> bool:
        """Stream a path of a container into a file as tar, at most `limit_bytes`; False when there is no such path."""
        url = self._url(f"containers/{container}/archive")
        async with self.bounded("archive", 600), self.docker.session.get(url, params={"path": path}) as response:
            if response.status == 404:
                text = await response.text("utf-8", "replace")
                if "No such container" in text:
                    raise aiodocker.DockerError(404, text)
                return False
            await self._checked(response)
            left = limit_bytes
            async for chunk in response.content.iter_chunked(_CHUNK):
                await asyncio.to_thread(into.write, chunk[:left])
                left -= len(chunk)
                if left <= 0:
                    break
        return True

    async def put_archive(self, container: str, archive: IO[bytes]) -> None:
        """Unpack a tar stream at the container's root."""
        url, headers = self._url(f"containers/{container}/archive"), {"Content-Type": "application/x-tar"}
        async with (
            self.bounded("put", 600),
            self.docker.session.put(url, params={"path": "/"}, data=archive, headers=headers) as response,
        ):
            await self._checked(response)

    async def probe(self) -> dict[str, Any]:
        """The engine's own description. Raises EngineAbsent when it is not one that can be used."""
        try:
            async with self.bounded("version", 20):
                version = await self.docker.version()
                info: dict[str, Any] = dict(await self.docker.system.info())
        except AttemptFault as fault:
            raise EngineAbsent("docker", f"the engine does not answer: {fault.detail}", _REMEDY) from fault
        _refuse_engine(version, info)
        return info | {"ApiVersion": version["ApiVersion"]}


def _refuse_engine(version: Mapping[str, Any], info: Mapping[str, Any]) -> None:
    api = tuple(int(part) for part in str(version["ApiVersion"]).split("."))
    if api < _OLDEST:
        raise EngineAbsent(
            "docker", f"engine API {version['ApiVersion']} is older than 1.41", "Install Docker 20.10 or newer"
        )
    if "Docker Desktop" in str(info.get("OperatingSystem")):
        raise EngineAbsent("docker", "Docker Desktop runs containers in a machine of its own", _REMEDY)
    if info.get("OSType") != "linux" or info.get("KernelVersion") != platform.release():
        found = f"the engine runs on another machine (kernel {info.get('KernelVersion')}, here {platform.release()})"
        raise EngineAbsent("docker", found, _REMEDY)
    if info.get("Architecture") not in {"x86_64", "amd64"}:
        raise EngineAbsent("docker", f"platform {info.get('Architecture')} is not supported yet", "Use linux/amd64")
