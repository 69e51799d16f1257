"""The OpenAI chat completions dialect: what a request asks for, what an answer says. Pure.

Usage rules per provider (prompt_tokens includes the cache; Moonshot puts usage into choices and cached_tokens at the
top; DeepSeek has prompt_cache_hit_tokens; OpenRouter answers 200 with an error inside) come from the providers' docs
and were checked against recorded answers.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from typing import Any

import msgspec

from windtunnel.domain.thinking import sent_level
from windtunnel.domain.wire import Tokens
from windtunnel.gateway.sse import EventStream

__all__ = ["ChatReader", "ChatRequest", "Reading", "is_chat_path", "read_request", "tokens_of"]

DIALECT = "openai-completions"
_BODY_LIMIT = 64 * 1024 * 1024
_MESSAGE_LIMIT = 500


class ChatRequest(msgspec.Struct, frozen=True, kw_only=True):
    """`body` None: it could not be read, `unreadable` says why, and nothing else is known of it."""

    body: dict[str, Any] | None = None
    model: str | None = None
    stream: bool = False
    thinking_field: str | None = None
    thinking_sent: str | None = None
    unreadable: str | None = None


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """What an answer said. `whole`: a finish reason, `[DONE]` or an error was seen, or it was one JSON value."""

    model_served: str | None = None
    stop_reason: str | None = None
    tokens: Tokens | None = None
    reasoning_seen: bool = False
    error_code: str | None = None
    error_message: str | None = None
    whole: bool = False
    parsed: bool = True


def is_chat_path(rest: str) -> bool:
    """Whether the path below a route is a chat completions call."""
    return rest.rstrip("/").endswith("chat/completions")


def read_request(raw: bytes, encoding: str) -> ChatRequest:
    """Read a request body. `encoding`: its Content-Encoding; gzip is decoded, zstd and others stay unread."""
    plain = _decoded(raw, encoding.strip().lower())
    if plain is None:
        return ChatRequest(unreadable=f"its encoding {encoding[:50]!r} cannot be decoded")
    try:
        body = msgspec.json.decode(plain)
        # Readers differ on which of two equal keys counts, so the provider could see another model than we do.
        doubled = isinstance(body, dict) and _names_a_key_twice(plain)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return ChatRequest(unreadable="it is not valid JSON")
    if not isinstance(body, dict):
        return ChatRequest(unreadable="it is not a JSON object")
    if doubled:
        return ChatRequest(unreadable="it names a key twice")
    field, sent = sent_level(body)
    return ChatRequest(
        body=body,
        model=_text(body.get("model")),
        stream=body.get("stream") is True,
        thinking_field=field,
        thinking_sent=sent,
    )


def _names_a_key_twice(plain: bytes) -> bool:
    """Whether the outermost object does; the decoder hands objects over from the inside out, so it comes last."""
    outermost: list[tuple[str, object]] = []

    def keep(pairs: list[tuple[str, object]]) -> None:
        nonlocal outermost
        outermost = pairs

    json.loads(plain, object_pairs_hook=keep)
    return len({name for name, _ in outermost}) != len(outermost)


def _decoded(raw: bytes, encoding: str) -> bytes | None:
    if encoding in ("", "identity"):
        return raw
    if encoding not in ("gzip", "x-gzip"):
        return None
    try:
        stream = zlib.decompressobj(wbits=31)
        plain = stream.decompress(raw, _BODY_LIMIT)
    except zlib.error:
        return None
    return plain if stream.eof else None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _object(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _first_count(*values: object) -> int | None:
    return next((count for value in values if (count := _count(value)) is not None), None)


def tokens_of(usage: Mapping[str, Any]) -> Tokens | None:
    """Usage in the normal form; None when the object holds no count at all.

    `input` is None when the provider's parts do not add up (more cached than asked).
    """
    prompt, output = _count(usage.get("prompt_tokens")), _count(usage.get("completion_tokens"))
    asked, answered = _object(usage.get("prompt_tokens_details")), _object(usage.get("completion_tokens_details"))
    read = _first_count(asked.get("cached_tokens"), usage.get("cached_tokens"), usage.get("prompt_cache_hit_tokens"))
    write = _count(asked.get("cache_write_tokens"))
    reasoning = _count(answered.get("reasoning_tokens"))
    if prompt is None and output is None:
        return None
    uncached = None if prompt is None else prompt - (read or 0) - (write or 0)
    return Tokens(
        input=uncached if uncached is not None and uncached >= 0 else None,
        cache_read=read,
        cache_write=write,
        output=output,
        reasoning=reasoning,
    )


class ChatReader:
    """Reads an answer while it passes. `sse`: it is an event stream, else one JSON value."""

    def __init__(self, *, sse: bool) -> None:
        self._events = EventStream() if sse else None
        self._body: bytearray | None = None if sse else bytearray()
        self._model: str | None = None
        self._stop: str | None = None
        self._tokens: Tokens | None = None
        self._reasoning = False
        self._error: tuple[str, str | None] | None = None
        self._done = False
        self._parsed = True

    def feed(self, chunk: bytes) -> None:
        """Take the next piece, cut anywhere."""
        if self._events is not None:
            for event in self._events.feed(chunk):
                self._event(event)
        elif self._body is not None:
            self._body += chunk
            if len(self._body) > _BODY_LIMIT:
                self._body, self._parsed = None, False

    def finish(self) -> Reading:
        """What the whole answer said."""
        if self._events is not None:
            for event in self._events.finish():
                self._event(event)
            self._parsed = self._parsed and not self._events.overflowed
        elif self._body:
            self._event(bytes(self._body))
            self._done = self._parsed
        code, message = self._error or (None, None)
        return Reading(
            model_served=self._model,
            stop_reason=self._stop,
            tokens=self._tokens,
            reasoning_seen=self._reasoning,
            error_code=code,
            error_message=message,
            whole=self._done or self._stop is not None or code is not None,
            parsed=self._parsed,
        )

    def _event(self, data: bytes) -> None:
        if data.strip() == b"[DONE]":
            self._done = True
            return
        try:
            value = msgspec.json.decode(data)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            self._parsed = False
            return
        if isinstance(value, dict):
            self._take(value)

    def _take(self, value: Mapping[str, Any]) -> None:
        """One chunk or a whole completion: both have model, choices, usage, error in the same places."""
        self._model = _text(value.get("model")) or self._model
        self._take_error(value.get("error"))
        choices = value.get("choices")
        for choice in choices if isinstance(choices, list) else ():
            self._take_choice(_object(choice))
        self._take_usage(value.get("usage"))

    def _take_choice(self, choice: Mapping[str, Any]) -> None:
        self._stop = _text(choice.get("finish_reason")) or self._stop
        said = _object(choice.get("delta")) or _object(choice.get("message"))
        if any(said.get(name) for name in ("reasoning_content", "reasoning", "reasoning_details")):
            self._reasoning = True
        self._take_error(choice.get("error"))
        if self._stop == "error":
            self._error = self._error or ("error", None)
        self._take_usage(choice.get("usage"))

    def _take_usage(self, usage: object) -> None:
        """Counts on several chunks are cumulative: the last one stands."""
        self._tokens = tokens_of(_object(usage)) or self._tokens
        if self._tokens is not None and self._tokens.reasoning:
            self._reasoning = True

    def _take_error(self, error: object) -> None:
        if error in (None, "", {}):
            return
        told = _object(error)
        code = next((str(told[name]) for name in ("code", "type") if told.get(name) not in (None, "")), "error")
        message = told.get("message") if told else error
        self._error = (code[:100], str(message)[:_MESSAGE_LIMIT] if message is not None else None)
