"""What a request says about the reasoning level, and what that proves about a role.

Where clients put the level in a chat completions body was seen in captures of a real agent: an effort field is
read first; some formats only switch reasoning on or off. A request without any of them leaves the level to the
provider: "provider default", never "off".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from windtunnel.domain.result import ThinkingVerdict
from windtunnel.domain.role import Thinking
from windtunnel.domain.wire import CallStarted

__all__ = ["sent_level", "verdict"]

_EFFORT_FIELDS = ("reasoning.effort", "reasoning_effort", "thinking")
_SWITCH_FIELDS = ("thinking.type", "enable_thinking", "chat_template_kwargs.enable_thinking", "reasoning.enabled")
_OFF_WORDS = frozenset({"off", "none", "disabled", "false"})


def sent_level(body: Mapping[str, object]) -> tuple[str | None, str | None]:
    """The field that carries the level and its value as text; (None, None): the request leaves it to the provider."""
    for field in _EFFORT_FIELDS:
        value = _at(body, field)
        if isinstance(value, str):
            return field, value
    for field in _SWITCH_FIELDS:
        value = _at(body, field)
        if isinstance(value, bool):
            return field, "true" if value else "false"
        if isinstance(value, str):
            return field, value
    return None, None


def _at(body: Mapping[str, object], field: str) -> object:
    value: object = body
    for name in field.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def verdict(requested: Thinking, calls: Iterable[CallStarted]) -> ThinkingVerdict:
    """What one role's calls say about its level: `consistent` when every call carried it, else `unknown`.

    Never `proven`: a field on the wire does not show that the provider obeyed it. Several values are joined by
    ", " with "provider default" for a call without one.
    """
    carried = list(dict.fromkeys((call.thinking_field, call.thinking_sent) for call in calls))
    fields = _distinct(field for field, _ in carried)
    values = _distinct(value for _, value in carried)
    right = bool(values) and all(_fits(requested, value) for value in values)
    return ThinkingVerdict(
        requested=requested.value,
        field=_joined(fields),
        sent=_joined(values),
        verdict="consistent" if right else "unknown",
    )


def _fits(requested: Thinking, value: str | None) -> bool:
    if requested is Thinking.OFF:
        return value in _OFF_WORDS
    return value == requested.value


def _distinct(values: Iterable[str | None]) -> list[str | None]:
    return list(dict.fromkeys(values))


def _joined(values: list[str | None]) -> str | None:
    if values in ([], [None]):
        return None
    return ", ".join("provider default" if value is None else value for value in values)
