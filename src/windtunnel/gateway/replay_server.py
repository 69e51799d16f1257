"""The replay provider over HTTP: a scripted model with a provider's faults, and its own count of what it was asked."""

from __future__ import annotations

import asyncio
import hmac
import os
from pathlib import Path
from typing import Any

import msgspec
from aiohttp import web

from windtunnel.domain.digest import to_json, to_line
from windtunnel.domain.replay import Choice, Script, ScriptedError, choose, models_of, usage_for
from windtunnel.domain.thinking import sent_level
from windtunnel.gateway.replay_chat import DONE, completion, error_body, event, pieces, usage_object
from windtunnel.host.clock import utc_now
from windtunnel.store.files import append_line

__all__ = ["ReplayServer"]

_BODY_LIMIT = 64 * 1024 * 1024


class ReplayServer:
    """Answers `/v1/chat/completions` and `/v1/models`. `key` None: any key, or none, is good.

    `log`: one NDJSON line per request when it ends: ts, path, model, stream, status, ended, conversation, turn, usage
    as sent, authorization_ok, reasoning_effort, thinking_field, thinking_sent.
    """

    def __init__(self, script: Script, log: Path | None, key: str | None) -> None:
        self._script = script
        self._key = key
        self._log = None if log is None else os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)

    def app(self) -> web.Application:
        """The application."""
        app = web.Application(client_max_size=_BODY_LIMIT)
        app.router.add_post("/v1/chat/completions", self._chat)
        app.router.add_get("/v1/models", self._models)
        return app

    def close(self) -> None:
        """Close the log."""
        if self._log is not None:
            os.close(self._log)
            self._log = None

    async def _models(self, request: web.Request) -> web.StreamResponse:
        note = self._note(request)
        listed = {"object": "list", "data": [{"id": name, "object": "model"} for name in models_of(self._script)]}
        answer = _json(200, listed) if note["authorization_ok"] else _wrong_key()
        self._write(note | {"status": answer.status, "ended": "complete"})
        return answer

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        note = self._note(request)
        try:
            return await self._answer(request, note)
        except (ConnectionError, asyncio.CancelledError):
            note["ended"] = "client_disconnect"
            raise
        finally:
            self._write(note)

    async def _answer(self, request: web.Request, note: dict[str, Any]) -> web.StreamResponse:
        body = _object(await request.read())
        if not note["authorization_ok"]:
            return _ended(note, _wrong_key())
        if body is None:
            return _ended(note, _error(400, "invalid_request_error", "the body is not a JSON object"))
        field, sent = sent_level(body)
        note |= {"model": body.get("model"), "stream": body.get("stream") is True, "thinking_field": field}
        note |= {"thinking_sent": sent, "reasoning_effort": body.get("reasoning_effort")}
        choice = choose(self._script, body)
        if choice is None:
            return _ended(note, _error(404, "replay_no_conversation", "no conversation of the script fits"))
        note |= {"conversation": choice.conversation, "turn": choice.index}
        await asyncio.sleep(choice.turn.delay_ms / 1000)
        error = choice.turn.error
        if error is not None and not error.in_stream:
            return _ended(note, _scripted(error))
        return await (_stream if note["stream"] else _whole)(request, choice, body, note)

    def _note(self, request: web.Request) -> dict[str, Any]:
        sent = request.headers.get("Authorization", "").encode("utf-8", "replace")
        good = self._key is None or hmac.compare_digest(sent, f"Bearer {self._key}".encode())
        empty = dict.fromkeys(("model", "status", "ended", "conversation", "turn", "usage", "reasoning_effort"))
        return {"ts": utc_now(), "path": request.path} | empty | {"stream": False, "authorization_ok": good}

    def _write(self, note: dict[str, Any]) -> None:
        if self._log is not None:
            append_line(self._log, to_line(note), durable=False)


def _object(raw: bytes) -> dict[str, Any] | None:
    try:
        value = msgspec.json.decode(raw)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _json(status: int, value: object, headers: dict[str, str] | None = None) -> web.Response:
    return web.Response(status=status, body=to_json(value), content_type="application/json", headers=headers)


def _error(status: int, code: str, message: str) -> web.Response:
    return _json(status, {"error": {"message": message, "type": code, "code": code}})


def _wrong_key() -> web.Response:
    return _error(401, "invalid_api_key", "Incorrect API key provided.")


def _scripted(error: ScriptedError) -> web.Response:
    headers = {} if error.retry_after is None else {"Retry-After": f"{error.retry_after:g}"}
    return _json(error.status, error_body(error), headers)


def _ended(note: dict[str, Any], answer: web.Response) -> web.Response:
    note |= {"status": answer.status, "ended": "complete"}
    return answer


async def _whole(
    request: web.Request, choice: Choice, body: dict[str, Any], note: dict[str, Any]
) -> web.StreamResponse:
    """A JSON answer; torn: half of it, then the connection breaks."""
    turn = choice.turn
    if turn.error is not None:
        return _ended(note, _json(200, error_body(turn.error)))
    if turn.hang:
        await asyncio.Event().wait()
    said = completion(choice, body)
    if not turn.torn:
        note["usage"] = said.get("usage")
        return _ended(note, _json(200, said))
    data = to_json(said)
    answer = web.StreamResponse(headers={"Content-Type": "application/json"})
    answer.content_length = len(data)
    await answer.prepare(request)
    await answer.write(data[: len(data) // 2])
    return _tear(request, answer, note)


async def _stream(
    request: web.Request, choice: Choice, body: dict[str, Any], note: dict[str, Any]
) -> web.StreamResponse:
    """Server-sent events, with the scripted fault in their middle."""
    turn = choice.turn
    if turn.hang and not (turn.text or turn.reasoning):
        await asyncio.Event().wait()
    answer = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-cache"})
    note["status"] = 200
    await answer.prepare(request)
    events = list(pieces(choice, body))
    if turn.torn or turn.error is not None:
        events = events[: max(1, len(events) // 2)]
    if turn.hang:
        events = [piece for piece in events if b'"finish_reason":null' in piece]
    await _send(answer, events, turn.chunk_delay_ms / 1000)
    if turn.hang:
        await asyncio.Event().wait()
    if turn.torn:
        return _tear(request, answer, note)
    if turn.error is not None:
        await answer.write(event(error_body(turn.error)))
    else:
        note["usage"] = None if turn.usage_missing else usage_object(usage_for(turn, body))
    await answer.write(DONE)
    note["ended"] = "complete"
    return answer


async def _send(answer: web.StreamResponse, events: list[bytes], delay_s: float) -> None:
    for number, piece in enumerate(events):
        if number and delay_s:
            await asyncio.sleep(delay_s)
        await answer.write(piece)


def _tear(request: web.Request, answer: web.StreamResponse, note: dict[str, Any]) -> web.StreamResponse:
    note |= {"status": 200, "ended": "torn"}
    if request.transport is not None:
        request.transport.close()
    return answer
