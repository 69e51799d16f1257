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

__all__ = ["NONCE_HEADER", "Identity", "KeyOnly", "SearchOrder", "control_app"]

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


def control_app(
    start: StartFile, doors: Doors, secrets: Secrets, *, restarts: int, touched: Callable[[], None], stop: asyncio.Event
) -> web.Application:
    """The application. `touched` is called for every good request: a supervisor is there. `stop` ends the process."""
    identity = Identity(
        run_id=start.run_id,
        plan_identity=start.plan_identity,
        nonce=start.nonce,
        pid=os.getpid(),
        restarts=restarts,
    )

    async def who(_: web.Request) -> web.Response:
        return _json(identity)

    async def open_door(request: web.Request) -> web.Response:
        return _json(await doors.open(await _body(request, Door)))

    async def close_door(request: web.Request) -> web.Response:
        return _json(await doors.close((await _body(request, KeyOnly)).key))

    async def checks(request: web.Request) -> web.Response:
        return _json(doors.checks((await _body(request, KeyOnly)).key))

    async def find(request: web.Request) -> web.Response:
        order = await _body(request, SearchOrder)
        return _json(await asyncio.to_thread(search, Path(order.root), secrets))

    async def shutdown(_: web.Request) -> web.Response:
        stop.set()
        return _json({"stopping": True})

    app = web.Application(middlewares=[_guard(start.nonce, touched)], client_max_size=16 * 1024 * 1024)
    app.router.add_get("/identity", who)
    app.router.add_post("/doors", open_door)
    app.router.add_post("/doors/close", close_door)
    app.router.add_post("/checks", checks)
    app.router.add_post("/search", find)
    app.router.add_post("/shutdown", shutdown)
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
