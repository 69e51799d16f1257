"""The control socket: what the supervisor asks of the gateway process. Both sides' message types are here.

Every request carries the run's nonce, so a stranger who can open the socket is refused; the identity answer carries it
back, so the supervisor knows that it speaks to its own run's gateway.
"""

from __future__ import annotations

import asyncio
import errno
import hmac
import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import msgspec
from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from windtunnel.domain.digest import decode, to_json
from windtunnel.gateway.doors import DoorBroken, Doors, DoorUnknown
from windtunnel.gateway.interface import Door, StartFile
from windtunnel.gateway.search import search
from windtunnel.gateway.secrets import Secrets

__all__ = ["NONCE_HEADER", "Control", "Identity", "KeyOnly", "SearchOrder", "control_app"]

T = TypeVar("T")
NONCE_HEADER = "X-Windtunnel-Nonce"


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """Answer of `GET /identity`."""

    run_id: str
    plan_identity: str
    nonce: str
    pid: int
    restarts: int


class KeyOnly(msgspec.Struct, frozen=True, kw_only=True):
    """Body of `POST /doors/close` and `POST /checks`."""

    key: str


class SearchOrder(msgspec.Struct, frozen=True, kw_only=True):
    """Body of `POST /search`."""

    key: str
    root: str


class Control:
    """Answers the control requests. `stop` ends the process."""

    def __init__(self, start: StartFile, doors: Doors, secrets: Secrets, restarts: int, stop: asyncio.Event) -> None:
        self._doors = doors
        self._secrets = secrets
        self._stop = stop
        self._identity = Identity(
            run_id=start.run_id,
            plan_identity=start.plan_identity,
            nonce=start.nonce,
            pid=os.getpid(),
            restarts=restarts,
        )

    async def identity(self, _: web.Request) -> web.Response:
        return _json(self._identity)

    async def open(self, request: web.Request) -> web.Response:
        return _json(await self._doors.open(await _body(request, Door)))

    async def close(self, request: web.Request) -> web.Response:
        return _json(await self._doors.close((await _body(request, KeyOnly)).key))

    async def checks(self, request: web.Request) -> web.Response:
        return _json(self._doors.checks((await _body(request, KeyOnly)).key))

    async def search(self, request: web.Request) -> web.Response:
        order = await _body(request, SearchOrder)
        return _json(await asyncio.to_thread(search, Path(order.root), self._secrets))

    async def shutdown(self, _: web.Request) -> web.Response:
        await self._doors.close_all()
        self._stop.set()
        return _json({"stopping": True})


def control_app(control: Control, nonce: str, touched: Callable[[], None]) -> web.Application:
    """The application. `touched` is called for every request with the right nonce: a supervisor is there."""
    app = web.Application(middlewares=[_guard(nonce, touched)], client_max_size=16 * 1024 * 1024)
    app.router.add_get("/identity", control.identity)
    app.router.add_post("/doors", control.open)
    app.router.add_post("/doors/close", control.close)
    app.router.add_post("/checks", control.checks)
    app.router.add_post("/search", control.search)
    app.router.add_post("/shutdown", control.shutdown)
    return app


def _guard(nonce: str, touched: Callable[[], None]) -> Middleware:
    @web.middleware
    async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
        if not hmac.compare_digest(request.headers.get(NONCE_HEADER, "").encode(), nonce.encode()):
            return _json({"error": "wrong nonce"}, status=403)
        touched()
        try:
            return await handler(request)
        except (ValueError, msgspec.MsgspecError) as error:
            return _json({"error": f"not a valid request: {error}"}, status=400)
        except DoorUnknown as error:
            return _json({"error": error.message}, status=404)
        except DoorBroken as error:
            return _json({"error": error.message}, status=507)
        except OSError as error:
            return _json({"error": str(error)}, status=507 if error.errno == errno.ENOSPC else 500)

    return guard


async def _body(request: web.Request, type_: type[T]) -> T:
    return decode(await request.read(), type_)


def _json(value: object, *, status: int = 200) -> web.Response:
    return web.Response(body=to_json(value), status=status, content_type="application/json")
