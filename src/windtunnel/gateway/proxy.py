"""What a subject may ask at its door: `/r/<route>/<role>/...` is a model call, `/check/<route>/<role>` a path check.

Everything is refused that does not fit the attempt: the token, a declared route and role, the role's model, its bounds,
the attempt's time. A refusal has the dialect's error shape and a record.
"""

from __future__ import annotations

import hmac
import logging
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import unquote

import aiohttp
import msgspec
from aiohttp import web

from windtunnel.domain.digest import to_json
from windtunnel.domain.role import Role
from windtunnel.domain.wire import CallEnded, CallRefused, CallStarted
from windtunnel.gateway.answers import refusal
from windtunnel.gateway.capture import Capture
from windtunnel.gateway.chat import DIALECT, ChatRequest, is_chat_path, read_request
from windtunnel.gateway.doors import LiveDoor
from windtunnel.gateway.exchange import Exchange
from windtunnel.gateway.forward import forward
from windtunnel.gateway.interface import Upstream
from windtunnel.gateway.records import bound_reached
from windtunnel.gateway.route_check import check_route
from windtunnel.gateway.secrets import Secrets
from windtunnel.host.clock import utc_now

__all__ = ["Proxy"]

_LOG = logging.getLogger("windtunnel.gateway")
_BODY_LIMIT = 64 * 1024 * 1024


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """A subject's path, taken apart. `kind` is `r`, `check` or empty for a path that is none of ours."""

    kind: str
    route: str = ""
    role: str = ""
    rest: str = ""


class Refused(Exception):
    """The door says no: HTTP status, reason code of the record, words for the subject. `code`: what the subject is
    told where that is not the reason."""

    def __init__(
        self, status: int, reason: str, message: str, model: str | None = None, *, code: str | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.message = message
        self.model = model
        self.code = code or reason


class Proxy:
    """Serves the doors of a run."""

    def __init__(
        self, upstreams: Mapping[str, Upstream], secrets: Secrets, session: aiohttp.ClientSession, capture: Capture
    ) -> None:
        self._upstreams = upstreams
        self._secrets = secrets
        self._session = session
        self._capture = capture

    def app_for(self, live: LiveDoor) -> web.Application:
        """The application behind one door."""

        async def answer(request: web.Request) -> web.StreamResponse:
            target = _target(request.rel_url.raw_path)
            try:
                return await self._answer(live, target, request)
            except Refused as no:
                return _refuse(live, target, no)
            except web.HTTPRequestEntityTooLarge:
                return refusal(413, "request_too_large", f"the request is larger than {_BODY_LIMIT} bytes")

        app = web.Application(client_max_size=_BODY_LIMIT)
        app.router.add_route("*", "/{path:.*}", answer)
        return app

    async def _answer(self, live: LiveDoor, target: Target, request: web.Request) -> web.StreamResponse:
        _require_token(live, request)
        role = live.role(target.route, target.role)
        upstream = self._upstreams.get(target.route)
        if not target.kind:
            raise Refused(404, "unknown_route", "there is nothing at this path")
        if live.shut:
            raise Refused(403, "attempt_closed", "the attempt is over")
        if role is None or upstream is None:
            raise Refused(403, "undeclared_role", f"no role {target.role} on route {target.route} is declared")
        if target.kind == "check":
            check = await check_route(upstream, role, self._session, self._secrets)
            live.checks.append(check)
            return web.Response(
                status=200 if check.verdict == "ok" else 502, body=to_json(check), content_type="application/json"
            )
        return await self._call(live, target, role, upstream, request)

    async def _call(
        self, live: LiveDoor, target: Target, role: Role, upstream: Upstream, request: web.Request
    ) -> web.StreamResponse:
        body = await request.read()
        asked = read_request(body, request.headers.get("Content-Encoding", ""))
        _require_allowed(live, target, role, asked)
        exchange = Exchange(
            live.log, _started(live, target, asked, len(body)), self._secrets, readable=_is_chat(target)
        )
        try:
            exchange.begin()
        except OSError as error:
            _LOG.error("%s: a call could not be recorded and was not made: %s", live.door.key, error)
            return refusal(500, "gateway_unavailable", "the call could not be recorded and was not made")
        number = live.log.use(role.name).calls
        request["route"] = target.route
        url = f"{upstream.base_url.rstrip('/')}/{target.rest}"
        if request.rel_url.raw_query_string:
            url += f"?{request.rel_url.raw_query_string}"
        with live.occupied(role.name):
            try:
                return await forward(request, body, url, self._session, self._secrets, exchange)
            finally:
                self._keep_body(live, role.name, number, asked, exchange.finish())

    def _keep_body(self, live: LiveDoor, role: str, number: int, asked: ChatRequest, ended: CallEnded) -> None:
        failed = ended.ended_by != "complete" or ended.error_code is not None or (ended.status or 0) >= 400
        if asked.body is None or not self._capture.wants(number, failed=failed):
            return
        try:
            self._capture.keep(Path(live.door.bodies), role, number, asked.body)
        except OSError as error:
            _LOG.error("%s: a request body could not be kept: %s", live.door.key, error)


def _target(raw_path: str) -> Target:
    """Take a path apart. `rest` keeps its encoding; a path that could climb out of the base URL is none of ours."""
    parts = raw_path.split("/")
    kind = parts[1] if len(parts) > 1 else ""
    if kind not in ("r", "check") or len(parts) < 4:
        return Target(kind="")
    rest = parts[4:]
    climbs = any(unquote(part) in (".", "..") or "/" in unquote(part) or "\\" in unquote(part) for part in rest)
    route, role = unquote(parts[2])[:200], unquote(parts[3])[:200]
    return Target(kind="" if climbs else kind, route=route, role=role, rest="/".join(rest))


def _is_chat(target: Target) -> bool:
    return is_chat_path(target.rest)


def _require_token(live: LiveDoor, request: web.Request) -> None:
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    good = hmac.compare_digest(token.strip().encode("utf-8", "replace"), live.door.token.encode())
    if scheme.lower() != "bearer" or not good:
        raise Refused(401, "bad_token", "the key is not this attempt's token")


def _require_allowed(live: LiveDoor, target: Target, role: Role, asked: ChatRequest) -> None:
    """The model is the role's own wherever it can be read; a call without one would be the provider's choice."""
    readable = asked.body is not None
    if not readable and _is_chat(target):
        message = f"the request body cannot be read, so its model cannot be checked: {asked.unreadable}"
        raise Refused(400, "undeclared_role", message, code="unreadable_request")
    other = asked.model != role.model if _is_chat(target) else asked.model not in (None, role.model)
    if readable and other:
        message = f"role {role.name} is declared with model {role.model}, not {asked.model}"
        raise Refused(403, "undeclared_role", message, asked.model)
    reached = bound_reached(role.bounds, live.log.use(role.name))
    if reached is not None:
        raise Refused(403, "role_bound_reached", f"role {role.name} has reached its bound {reached}", asked.model)


def _started(live: LiveDoor, target: Target, asked: ChatRequest, size: int) -> CallStarted:
    return CallStarted(
        call=live.log.next_call(),
        ts=utc_now(),
        attempt=live.door.key,
        route=target.route,
        role=target.role,
        dialect=DIALECT if _is_chat(target) else "unparsed",
        path=f"/{target.rest}"[:200],
        model_asked=None if asked.model is None else asked.model[:200],
        thinking_field=asked.thinking_field,
        thinking_sent=None if asked.thinking_sent is None else asked.thinking_sent[:100],
        stream=asked.stream,
        request_bytes=size,
    )


def _refuse(live: LiveDoor, target: Target, no: Refused) -> web.Response:
    record = CallRefused(
        ts=utc_now(),
        attempt=live.door.key,
        route=target.route,
        role=target.role,
        reason=no.reason,
        model_asked=None if no.model is None else no.model[:200],
        detail=no.message[:300],
    )
    try:
        live.log.append(record)
    except OSError as error:
        _LOG.error("%s: a refusal could not be recorded: %s", live.door.key, error)
    return refusal(no.status, no.code, no.message)
