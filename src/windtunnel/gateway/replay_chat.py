"""Scripted turns in the chat completions dialect: chunks of a stream, a whole completion, error objects. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

from windtunnel.domain.digest import canonical, to_line
from windtunnel.domain.replay import Choice, ScriptedError, ScriptedUsage, Turn, usage_for

__all__ = ["DONE", "completion", "error_body", "event", "pieces", "usage_object", "wants_usage"]

DONE = b"data: [DONE]\n\n"
_CREATED = 1_764_547_200  # constant: the same request gets the same bytes
_PIECE = 24


def _name(prefix: str, body: Mapping[str, Any], choice: Choice, number: int = 0) -> str:
    seed = canonical(dict(body)) + f"/{choice.conversation}/{choice.index}/{number}".encode()
    return prefix + hashlib.sha256(seed).hexdigest()[:24]


def event(value: object) -> bytes:
    """One server-sent event."""
    return b"data: " + to_line(value) + b"\n"


def wants_usage(body: Mapping[str, Any]) -> bool:
    """Whether a streaming request asks for the usage chunk."""
    options = body.get("stream_options")
    return isinstance(options, dict) and options.get("include_usage") is True


def usage_object(usage: ScriptedUsage) -> dict[str, Any]:
    """Usage as providers of this dialect tell it: prompt tokens include the cache, completion tokens the reasoning."""
    prompt = (usage.input or 0) + (usage.cache_read or 0) + (usage.cache_write or 0)
    asked = {"cached_tokens": usage.cache_read, "cache_write_tokens": usage.cache_write}
    answered = {"reasoning_tokens": usage.reasoning}
    said: dict[str, Any] = {
        "prompt_tokens": prompt,
        "completion_tokens": usage.output or 0,
        "total_tokens": prompt + (usage.output or 0),
    }
    for name, details in (("prompt_tokens_details", asked), ("completion_tokens_details", answered)):
        told = {key: value for key, value in details.items() if value is not None}
        if told:
            said[name] = told
    return said


def error_body(error: ScriptedError) -> dict[str, Any]:
    """`{"error": ...}`, in a body or in a stream."""
    return {"error": {"message": error.message, "type": error.code or "scripted_error", "code": error.code}}


def completion(choice: Choice, body: Mapping[str, Any]) -> dict[str, Any]:
    """The whole answer to a request that does not stream."""
    turn = choice.turn
    message: dict[str, Any] = {"role": "assistant", "content": turn.text or None}
    if turn.reasoning:
        message["reasoning_content"] = turn.reasoning
    if turn.tool_calls:
        message["tool_calls"] = [
            {"id": _name("call_", body, choice, number), "type": "function"}
            | {"function": {"name": call.name, "arguments": call.arguments_text}}
            for number, call in enumerate(turn.tool_calls)
        ]
    said = _head(choice, body, "chat.completion")
    said["choices"] = [{"index": 0, "message": message, "finish_reason": turn.stop}]
    if not turn.usage_missing:
        said["usage"] = usage_object(usage_for(turn, body))
    return said


def pieces(choice: Choice, body: Mapping[str, Any]) -> Iterator[bytes]:
    """The events of a stream, without `[DONE]`: role, reasoning, text, tool calls, finish, and usage when asked for."""
    for delta in _deltas(choice, body):
        yield event(_chunk(choice, body, delta, None))
    yield event(_chunk(choice, body, {}, choice.turn.stop))
    if wants_usage(body) and not choice.turn.usage_missing:
        last = _head(choice, body, "chat.completion.chunk")
        yield event(last | {"choices": [], "usage": usage_object(usage_for(choice.turn, body))})


def _deltas(choice: Choice, body: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    turn = choice.turn
    yield {"role": "assistant", "content": ""}
    for part in _cut(turn.reasoning):
        yield {"reasoning_content": part}
    for part in _cut(turn.text):
        yield {"content": part}
    yield from _tool_deltas(turn, choice, body)


def _tool_deltas(turn: Turn, choice: Choice, body: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Each tool call in two deltas: the first has id and name, the second only the rest of the arguments."""
    for number, call in enumerate(turn.tool_calls):
        text = call.arguments_text
        half = len(text) // 2
        first = {"index": number, "id": _name("call_", body, choice, number), "type": "function"}
        yield {"tool_calls": [first | {"function": {"name": call.name, "arguments": text[:half]}}]}
        yield {"tool_calls": [{"index": number, "function": {"arguments": text[half:]}}]}


def _cut(text: str) -> Iterator[str]:
    return (text[start : start + _PIECE] for start in range(0, len(text), _PIECE))


def _chunk(choice: Choice, body: Mapping[str, Any], delta: dict[str, Any], finish: str | None) -> dict[str, Any]:
    head = _head(choice, body, "chat.completion.chunk")
    return head | {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


def _head(choice: Choice, body: Mapping[str, Any], kind: str) -> dict[str, Any]:
    return {
        "id": _name("chatcmpl-", body, choice),
        "object": kind,
        "created": _CREATED,
        "model": choice.turn.model or body.get("model") or "replay",
    }
