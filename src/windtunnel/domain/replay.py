"""The replay provider's script: which scripted turn answers a chat completions request. Pure and stateless.

The conversation is the first whose match fits the request's messages; the turn is told by how many assistant
messages the request already holds. So the same request always gets the same answer, whoever asks and in any order.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal

import msgspec

from windtunnel.domain.digest import decode

__all__ = [
    "Choice",
    "Conversation",
    "Match",
    "Script",
    "ScriptedError",
    "ScriptedUsage",
    "ToolCall",
    "Turn",
    "choose",
    "models_of",
    "parse_script",
    "usage_for",
]


class ScriptedUsage(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Tokens in windtunnel's own form: `input` excludes the cache, `reasoning` is part of `output`. What is None is
    counted from the text (input, output) or left out of the answer (the others)."""

    input: int | None = None
    cache_read: int | None = None
    cache_write: int | None = None
    output: int | None = None
    reasoning: int | None = None


class ToolCall(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`arguments`: an object, or a string that is sent as it is (broken JSON, for tests)."""

    name: str
    arguments: dict[str, Any] | str = {}

    @property
    def arguments_text(self) -> str:
        """What goes over the wire."""
        if isinstance(self.arguments, str):
            return self.arguments
        return json.dumps(self.arguments, ensure_ascii=False, separators=(",", ":"))


class ScriptedError(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`status` 200: an error object in a 200 answer. `in_stream`: a stream starts with 200, then holds the error.
    `retry_after`: seconds for the Retry-After header."""

    status: int = 500
    code: str | None = None
    message: str = "scripted error"
    retry_after: float | None = None
    in_stream: bool = False


class Turn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One answer. `model`: the model it claims to be (default: the one asked for). `delay_ms` before the first byte,
    `chunk_delay_ms` between chunks. `torn`: the connection breaks in the middle. `hang`: after the scripted text,
    if any, nothing more comes. `usage_missing`: the answer tells no usage."""

    text: str = ""
    reasoning: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    finish_reason: str | None = None
    usage: ScriptedUsage | None = None
    model: str | None = None
    delay_ms: int = 0
    chunk_delay_ms: int = 0
    error: ScriptedError | None = None
    torn: bool = False
    hang: bool = False
    usage_missing: bool = False

    @property
    def stop(self) -> str:
        """The finish reason that is sent."""
        return self.finish_reason or ("tool_calls" if self.tool_calls else "stop")


class Match(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All given texts must occur: `prompt_contains` in the user messages, `system_contains` in the system or developer
    messages; `model` must be equal. Nothing given fits every request."""

    prompt_contains: tuple[str, ...] = ()
    system_contains: tuple[str, ...] = ()
    model: str | None = None


class Conversation(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    turns: tuple[Turn, ...]
    match: Match = Match()

    def __post_init__(self) -> None:
        if not self.turns:
            raise ValueError("a conversation needs at least one turn")


class Script(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A replay script file; docs/reference/replay-scripts.md is its reference."""

    conversations: tuple[Conversation, ...]
    schemaVersion: Literal[1] = 1


class Choice(msgspec.Struct, frozen=True):
    """The turn that answers a request and where it stands in the script, both counted from 0."""

    conversation: int
    index: int
    turn: Turn


_DONE = Turn(text="done")


def parse_script(data: bytes) -> Script:
    """Read a script. Raises ValueError with the place of what is wrong."""
    return decode(data, Script)


def choose(script: Script, body: Mapping[str, Any]) -> Choice | None:
    """The turn for a chat completions request body; None when no conversation fits.

    Past the end the last turn is repeated, or a plain "done" is said when the last turn calls tools (repeating it
    would never end).
    """
    messages = _messages(body)
    index = sum(message.get("role") == "assistant" for message in messages)
    for number, conversation in enumerate(script.conversations):
        if _fits(conversation.match, messages, body.get("model")):
            return Choice(number, index, _turn(conversation.turns, index))
    return None


def _turn(turns: tuple[Turn, ...], index: int) -> Turn:
    if index < len(turns):
        return turns[index]
    return _DONE if turns[-1].tool_calls else turns[-1]


def _fits(match: Match, messages: list[Mapping[str, Any]], model: object) -> bool:
    prompts = _text_of(messages, {"user"})
    systems = _text_of(messages, {"system", "developer"})
    return (
        (match.model is None or match.model == model)
        and all(any(wanted in text for text in prompts) for wanted in match.prompt_contains)
        and all(any(wanted in text for text in systems) for wanted in match.system_contains)
    )


def _text_of(messages: Iterable[Mapping[str, Any]], roles: set[str]) -> list[str]:
    return ["".join(_texts(message)) for message in messages if message.get("role") in roles]


def _messages(body: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    messages = body.get("messages")
    return [m for m in messages if isinstance(m, Mapping)] if isinstance(messages, list) else []


def _texts(message: Mapping[str, Any]) -> Iterator[str]:
    """The texts of a message: its content is a string or a list of parts."""
    content = message.get("content")
    if isinstance(content, str):
        yield content
    for part in content if isinstance(content, list) else ():
        if isinstance(part, Mapping) and isinstance(part.get("text"), str):
            yield part["text"]


def usage_for(turn: Turn, body: Mapping[str, Any]) -> ScriptedUsage:
    """The turn's usage, `input` and `output` always told: a token per four characters where the script is silent."""
    said = turn.usage or ScriptedUsage()
    asked = sum(len(text) for message in _messages(body) for text in _texts(message))
    answered = len(turn.text) + len(turn.reasoning)
    answered += sum(len(call.name) + len(call.arguments_text) for call in turn.tool_calls)
    return ScriptedUsage(
        input=math.ceil(asked / 4) if said.input is None else said.input,
        cache_read=said.cache_read,
        cache_write=said.cache_write,
        output=math.ceil(answered / 4) if said.output is None else said.output,
        reasoning=math.ceil(len(turn.reasoning) / 4) or None if said.reasoning is None else said.reasoning,
    )


def models_of(script: Script) -> list[str]:
    """Every model the script names, for `GET /models`."""
    named = [conversation.match.model for conversation in script.conversations]
    return list(dict.fromkeys(name for name in named if name)) or ["replay"]
