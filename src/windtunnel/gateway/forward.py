"""Send a call to its provider and stream the answer back, byte by byte as it comes, whatever happens on either side."""

from __future__ import annotations

import asyncio

import aiohttp
from aiohttp import web
from multidict import CIMultiDict
from yarl import URL

from windtunnel.domain.wire import EndedBy
from windtunnel.gateway.answers import refusal
from windtunnel.gateway.exchange import Exchange
from windtunnel.gateway.secrets import Secrets

__all__ = ["forward", "open_session", "upstream_headers"]

_HOP_BY_HOP = {
    "connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "trailers",
    "transfer-encoding",
    "upgrade",
}
_OWN_REQUEST = {"host", "content-length", "expect", "authorization", "x-api-key", "x-goog-api-key", "api-key", "cookie"}
_OWN_ANSWER = {"content-length", "set-cookie"}
_NOT_ADDED = ("User-Agent", "Accept", "Content-Type")  # what the subject did not say, the provider does not hear


def open_session(timeout_s: float) -> aiohttp.ClientSession:
    """The session for all upstreams: no decoding, no cookies, no total limit; `timeout_s` of silence ends a call."""
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=30, sock_read=timeout_s),
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
        skip_auto_headers=_NOT_ADDED,
        max_line_size=65536,
        max_field_size=65536,
    )


def upstream_headers(request: web.Request, credential: str | None) -> CIMultiDict[str]:
    """The subject's headers without what belongs to this hop; its token replaced by the credential."""
    headers = _passed(request.headers, _OWN_REQUEST)
    headers["Accept-Encoding"] = "identity"
    if credential is not None:
        headers["Authorization"] = f"Bearer {credential}"
    return headers


def _passed(headers: aiohttp.typedefs.LooseHeaders, own: set[str]) -> CIMultiDict[str]:
    given: CIMultiDict[str] = CIMultiDict(headers)
    named = {name.strip().lower() for value in given.getall("Connection", []) for name in value.split(",")}
    dropped = _HOP_BY_HOP | own | named
    return CIMultiDict((name, value) for name, value in given.items() if name.lower() not in dropped)


async def forward(
    request: web.Request, body: bytes, url: str, session: aiohttp.ClientSession, secrets: Secrets, exchange: Exchange
) -> web.StreamResponse:
    """Make the call whose start is recorded. `exchange` learns how it went; recording its end is the caller's."""
    headers = upstream_headers(request, secrets.value(request["route"]))
    try:
        async with session.request(
            request.method, URL(url, encoded=True), data=body or None, headers=headers, allow_redirects=False
        ) as answer:
            exchange.answered(answer)
            if answer.status >= 400:
                return await _pass_error(answer, secrets, exchange)
            return await _stream(request, answer, exchange)
    except asyncio.CancelledError:
        exchange.ends("client_disconnect")
        raise
    except TimeoutError:
        exchange.ends("timeout")
        return refusal(504, "upstream_timeout", "the provider did not answer in time")
    except (aiohttp.ClientError, OSError) as error:
        how: EndedBy = "upstream_unreachable" if exchange.status is None else "upstream_torn"
        exchange.ends(how)
        return refusal(502, how, f"the provider could not be reached ({type(error).__name__})")


async def _pass_error(answer: aiohttp.ClientResponse, secrets: Secrets, exchange: Exchange) -> web.Response:
    """An error answer is small and may quote the credential: it is passed whole, with the credential taken out."""
    body = await answer.read()
    exchange.saw(body)
    exchange.ends("complete")
    headers = _passed(answer.headers, _OWN_ANSWER)
    return web.Response(status=answer.status, reason=answer.reason, headers=headers, body=secrets.redact_bytes(body))


async def _stream(request: web.Request, answer: aiohttp.ClientResponse, exchange: Exchange) -> web.StreamResponse:
    response = web.StreamResponse(
        status=answer.status, reason=answer.reason, headers=_passed(answer.headers, _OWN_ANSWER)
    )
    response.content_length = answer.content_length
    try:
        await response.prepare(request)
        while chunk := await _next(answer, exchange):
            exchange.saw(chunk)
            await response.write(chunk)
    except _UpstreamEnded:
        # Tear this side too: an orderly end would make a cut answer look whole.
        if request.transport is not None:
            request.transport.close()
        return response
    except ConnectionError:
        exchange.ends("client_disconnect")
        return response
    exchange.ends("complete")
    return response


class _UpstreamEnded(Exception):
    """The provider's side broke or fell silent in the middle of an answer."""


async def _next(answer: aiohttp.ClientResponse, exchange: Exchange) -> bytes:
    try:
        return await answer.content.readany()
    except TimeoutError as error:
        exchange.ends("timeout")
        raise _UpstreamEnded from error
    except (aiohttp.ClientError, OSError) as error:
        exchange.ends("upstream_torn")
        raise _UpstreamEnded from error
