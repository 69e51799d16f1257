"""The credential path check: is the credential there, does the route's host answer, does it take the credential?"""

from __future__ import annotations

import aiohttp
from msgspec.structs import replace
from yarl import URL

from windtunnel.domain.role import Role
from windtunnel.gateway.interface import RouteCheck, Upstream
from windtunnel.gateway.secrets import Secrets
from windtunnel.host.clock import utc_now

__all__ = ["check_route"]

_TIMEOUT = aiohttp.ClientTimeout(total=30, sock_connect=15)


async def check_route(upstream: Upstream, role: Role, session: aiohttp.ClientSession, secrets: Secrets) -> RouteCheck:
    """Ask `GET <base_url>/models` with the credential: any answer but 401 and 403 will do (not every provider has the
    list), no model is called."""
    route = upstream.route
    said = RouteCheck(route=route.name, role=role.name, verdict="ok", ts=utc_now())
    if secrets.missing(route.name):
        detail = f"the environment variable {route.credential} is not set"
        return replace(said, verdict="credential_missing", detail=detail)
    credential = secrets.value(route.name)
    headers = {"Accept-Encoding": "identity"}
    if credential is not None:
        headers["Authorization"] = f"Bearer {credential}"
    url = URL(upstream.base_url.rstrip("/") + "/models", encoded=True)
    try:
        async with session.get(url, headers=headers, timeout=_TIMEOUT, allow_redirects=False) as answer:
            refused = answer.status in (401, 403)
            verdict = "credential_refused" if refused else "ok"
            return replace(said, verdict=verdict, status=answer.status)
    except aiohttp.ClientSSLError as error:
        return replace(said, verdict="tls_failed", detail=secrets.redact(str(error))[:300])
    except (aiohttp.ClientError, OSError, ValueError) as error:
        detail = secrets.redact(f"{type(error).__name__}: {error}")[:300]
        return replace(said, verdict="unreachable", detail=detail)
