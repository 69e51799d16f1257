"""What the supervisor and the gateway process say to each other over the control socket.

The gateway is started as `python -m windtunnel.gateway <start-file>`; credentials come to it in its environment,
under the names of the routes, never in argv or files. It writes `gateway.json` (0600) when it serves.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal, Protocol

import msgspec

from windtunnel.domain.role import Role, Route

__all__ = [
    "Door",
    "DoorClosed",
    "Gateway",
    "GatewayFacts",
    "OpenDoor",
    "RouteCheck",
    "SecretSearch",
    "StartFile",
]


class Upstream(msgspec.Struct, frozen=True, kw_only=True):
    """A route with the address that is really called (for `replay`: the replay process of this run)."""

    route: Route
    base_url: str


class StartFile(msgspec.Struct, frozen=True, kw_only=True):
    """`private/gateway-start.json` (0600). `nonce` proves over the control socket that it is this run's gateway.

    `run_dir`: where gateway.json is written. `door_root`: short host directory (socket paths are limited to 108
    bytes) below which each attempt gets a directory of its own. `doors_file`: open doors, kept for a restart.
    `linger_s`: the gateway ends by itself this long after the last open attempt's deadline.
    """

    schemaVersion: int = 1
    run_id: str
    plan_identity: str
    nonce: str
    run_dir: str
    door_root: str
    control_socket: str
    doors_file: str
    upstreams: tuple[Upstream, ...]
    capture: str = "first:2"
    linger_s: float = 60.0
    upstream_timeout_s: float = 600.0


class GatewayFacts(msgspec.Struct, frozen=True, kw_only=True):
    """`gateway.json`."""

    schemaVersion: int = 1
    run_id: str
    plan_identity: str
    pid: int
    start_time: float
    boot_id: str
    control_socket: str
    restarts: int = 0


class Door(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt's way out. `key`: the attempt's name in records (`task/config/rep0#1`). `token`: worth nothing
    elsewhere. `wire`: host path of wire.ndjson; `bodies`: host directory for captured bodies."""

    key: str
    token: str
    wire: str
    bodies: str
    roles: tuple[Role, ...]
    deadline_epoch_ms: int


class OpenDoor(msgspec.Struct, frozen=True, kw_only=True):
    """`directory`: host directory with `gateway.sock`, to be mounted read-only."""

    directory: str


class DoorClosed(msgspec.Struct, frozen=True, kw_only=True):
    """What the gateway saw. `restarted`: it was restarted while the door was open; `cut`: calls whose end was lost in
    a restart. Refusals and hard errors the outcome depends on are read from wire.ndjson itself."""

    calls: int
    refused: int
    restarted: bool = False
    cut: int = 0


class SecretSearch(msgspec.Struct, frozen=True, kw_only=True):
    """`secret-search.json`: the gateway, which holds the secrets, searched the attempt's files for them.

    `routes`: whose credentials were searched for (names). `hits`: `path: route, form` (plain, base64, url), never
    the value. `clean` only when everything could be read."""

    schemaVersion: int = 1
    routes: tuple[str, ...]
    files: int
    bytes: int
    hits: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()
    clean: bool


class RouteCheck(msgspec.Struct, frozen=True, kw_only=True):
    """The credential path check of one route, made by the gateway when the request came through a door.

    `verdict`: ok; credential_missing; unreachable; tls_failed; credential_refused (401/403)."""

    schemaVersion: int = 1
    route: str
    role: str
    verdict: Literal["ok", "credential_missing", "unreachable", "tls_failed", "credential_refused"]
    status: int | None = None
    detail: str = ""
    ts: str


class Gateway(Protocol):
    """The supervisor's side. All calls raise AttemptFault(gateway_lost) when the gateway cannot be reached and could
    not be restarted."""

    async def open(self, door: Door) -> OpenDoor: ...

    async def close(self, key: str) -> DoorClosed: ...

    async def search(self, key: str, root: Path) -> SecretSearch: ...

    async def checks(self, key: str) -> list[RouteCheck]:
        """Route checks that came through this door (requests to `/check/<route>/<role>`)."""
        ...

    async def shutdown(self) -> None: ...
