"""The attempts' doors: open, close, and open again after a restart on the same socket paths with the same tokens."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
from aiohttp import web

from windtunnel.domain.digest import to_json
from windtunnel.domain.role import Role
from windtunnel.errors import FileDamaged, WindtunnelError
from windtunnel.gateway.interface import Door, DoorClosed, OpenDoor, RouteCheck
from windtunnel.gateway.records import WireLog
from windtunnel.store.files import read_json, write_atomic

__all__ = ["DoorBroken", "DoorUnknown", "Doors", "LiveDoor"]

_LOG = logging.getLogger("windtunnel.gateway")
_CLOSED_KEPT = 256


class DoorUnknown(WindtunnelError):
    """No such door, or another attempt has its name."""


class DoorBroken(WindtunnelError):
    """The door's records could not all be written: the disk is full."""


class _Stored(msgspec.Struct, frozen=True, kw_only=True):
    """`doors.json`. `closed`: answers that a restarted gateway can give again when the first one was lost."""

    schemaVersion: int = 1
    doors: tuple[Door, ...] = ()
    closed: dict[str, DoorClosed] = {}


class LiveDoor:
    """An open door: its records, who is inside, and its socket."""

    def __init__(self, door: Door, directory: Path, *, restarted: bool) -> None:
        self.door = door
        self.directory = directory
        self.restarted = restarted
        self.closing = False
        self.log = WireLog(Path(door.wire))
        self.checks: list[RouteCheck] = []
        self._calls: set[asyncio.Task[object]] = set()
        self._runner: web.AppRunner | None = None

    def role(self, route: str, name: str) -> Role | None:
        """The declared role behind a path."""
        return next((role for role in self.door.roles if role.name == name and role.route == route), None)

    @property
    def shut(self) -> bool:
        """Whether no call may be made any more."""
        return self.closing or time.time() * 1000 > self.door.deadline_epoch_ms

    @contextlib.contextmanager
    def occupied(self, role: str) -> Iterator[None]:
        """While a call of this role is in flight; a door that closes cancels it."""
        task = asyncio.current_task()
        assert task is not None, "calls run in tasks"
        use = self.log.use(role)
        use.in_flight += 1
        self._calls.add(task)
        try:
            yield
        finally:
            use.in_flight -= 1
            self._calls.discard(task)

    async def listen(self, app: web.Application) -> None:
        """Serve on `gateway.sock`, which the sandbox's user can open. A stale socket of a former process is replaced,
        the directory is not: it may be mounted."""
        self.directory.mkdir(mode=0o755, exist_ok=True)
        self.directory.chmod(0o755)
        path = self.directory / "gateway.sock"
        path.unlink(missing_ok=True)
        self._runner = web.AppRunner(
            app,
            handler_cancellation=True,  # a subject that goes away ends its call upstream
            auto_decompress=False,  # a body is passed as it came
            access_log=None,
            shutdown_timeout=1.0,
        )
        await self._runner.setup()
        await web.UnixSite(self._runner, path).start()
        path.chmod(0o666)

    async def end(self) -> None:
        """Refuse new calls, cancel those in flight (each writes its end first), stop listening."""
        self.closing = True
        calls = list(self._calls)
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        if self._runner is not None:
            await self._runner.cleanup()
        self.log.stop()


class Doors:
    """All doors of a run, and the file that lets a restarted gateway open them again."""

    def __init__(self, root: Path, file: Path, app_for: Callable[[LiveDoor], web.Application]) -> None:
        self._root = root
        self._file = file
        self._app_for = app_for
        self._live: dict[str, LiveDoor] = {}
        self._closed: dict[str, DoorClosed] = {}
        self._checks: dict[str, list[RouteCheck]] = {}
        self._change = asyncio.Lock()
        self.ever_opened = False

    @property
    def last_deadline_s(self) -> float | None:
        """Epoch seconds of the last deadline of an open door; None when none is open."""
        return max((live.door.deadline_epoch_ms / 1000 for live in self._live.values()), default=None)

    async def restore(self) -> None:
        """Open what a former process of this run had open. A door whose records are damaged stays closed."""
        try:
            stored = read_json(self._file, _Stored)
        except FileNotFoundError:
            return
        self._closed = dict(stored.closed)
        for door in stored.doors:
            try:
                await self._start(door, restarted=True)
            except (FileDamaged, OSError) as error:
                _LOG.error("door %s could not be opened again: %s", door.key, error)

    async def open(self, door: Door) -> OpenDoor:
        """Open a door; opening the same one twice is the same as once. Raises DoorUnknown for a name that is taken."""
        async with self._change:
            live = self._live.get(door.key)
            if live is None:
                live = await self._start(door, restarted=False)
                self._closed.pop(door.key, None)
                self._store()
            elif live.door != door:
                raise DoorUnknown(f"door {door.key} is open for another attempt")
            return OpenDoor(directory=str(live.directory))

    async def close(self, key: str) -> DoorClosed:
        """End a door and remove its directory; closing again gives the same answer. Raises DoorUnknown, DoorBroken."""
        async with self._change:
            live = self._live.get(key)
            if live is None:
                return self._was_closed(key)
            await live.end()
            shutil.rmtree(live.directory, ignore_errors=True)
            log = live.log
            said = DoorClosed(calls=log.calls, refused=log.refused, restarted=live.restarted, cut=log.cut)
            del self._live[key]
            self._checks[key] = live.checks
            self._closed[key] = said
            self._store()
            if log.broken:
                raise DoorBroken(f"{live.door.wire}: not every record could be written, the disk is full")
            return said

    async def close_all(self) -> None:
        """The run is over: end every door, whatever becomes of its records, and forget them."""
        for key in list(self._live):
            with contextlib.suppress(DoorBroken):
                await self.close(key)

    def checks(self, key: str) -> list[RouteCheck]:
        """Route checks that came through a door, open or closed."""
        live = self._live.get(key)
        return self._checks.get(key, []) if live is None else live.checks

    async def abandon(self) -> None:
        """The process ends: stop serving and leave everything for the next one. Calls in flight keep no end, so the
        next process counts them as cut."""
        for live in self._live.values():
            live.log.stop()
        await asyncio.gather(*(live.end() for live in self._live.values()))

    def _was_closed(self, key: str) -> DoorClosed:
        if key not in self._closed:
            raise DoorUnknown(f"no door of the name {key} was opened")
        return self._closed[key]

    async def _start(self, door: Door, *, restarted: bool) -> LiveDoor:
        directory = self._root / hashlib.sha256(door.key.encode()).hexdigest()[:12]
        live = LiveDoor(door, directory, restarted=restarted)
        await live.listen(self._app_for(live))
        self._live[door.key] = live
        self.ever_opened = True
        return live

    def _store(self) -> None:
        kept = dict(list(self._closed.items())[-_CLOSED_KEPT:])
        stored = _Stored(doors=tuple(live.door for live in self._live.values()), closed=kept)
        write_atomic(self._file, to_json(stored), mode=0o600)
