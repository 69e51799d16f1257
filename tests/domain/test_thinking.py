"""The level on the wire and what it shows."""

from __future__ import annotations

from typing import Any

import pytest

from windtunnel.domain.role import Thinking
from windtunnel.domain.thinking import sent_level, verdict
from windtunnel.domain.wire import CallStarted


@pytest.mark.parametrize(
    ("body", "field", "sent"),
    [
        ({"reasoning_effort": "high"}, "reasoning_effort", "high"),
        ({"reasoning": {"effort": "xhigh"}}, "reasoning.effort", "xhigh"),
        ({"reasoning": {"effort": "none"}}, "reasoning.effort", "none"),
        (
            {"thinking": {"type": "enabled", "clear_thinking": False}, "reasoning_effort": "max"},
            "reasoning_effort",
            "max",
        ),
        ({"thinking": {"type": "disabled"}}, "thinking.type", "disabled"),
        ({"thinking": "low"}, "thinking", "low"),
        ({"reasoning": {"enabled": True}, "reasoning_effort": "low"}, "reasoning_effort", "low"),
        ({"reasoning": {"enabled": False}}, "reasoning.enabled", "false"),
        ({"enable_thinking": True}, "enable_thinking", "true"),
        ({"chat_template_kwargs": {"enable_thinking": False}}, "chat_template_kwargs.enable_thinking", "false"),
        ({"reasoning_effort": None, "thinking": 3, "reasoning": []}, None, None),
        ({}, None, None),
    ],
)
def test_the_level_is_read_where_clients_put_it(body: dict[str, Any], field: str | None, sent: str | None) -> None:
    assert sent_level(body) == (field, sent)


def _calls(*sent: str | None) -> list[CallStarted]:
    return [
        CallStarted(
            call=f"call-{number}",
            ts="2026-12-01T00:00:00.000Z",
            attempt="a",
            route="r",
            role="executor",
            dialect="openai-completions",
            path="/chat/completions",
            model_asked="m",
            thinking_field=None if value is None else "reasoning_effort",
            thinking_sent=value,
        )
        for number, value in enumerate(sent)
    ]


@pytest.mark.parametrize(
    ("requested", "sent", "expected", "shown"),
    [
        (Thinking.HIGH, ["high", "high"], "consistent", "high"),
        (Thinking.OFF, ["none"], "consistent", "none"),
        (Thinking.OFF, ["disabled"], "consistent", "disabled"),
        (Thinking.LOW, ["high"], "unknown", "high"),
        (Thinking.HIGH, ["high", "low"], "unknown", "high, low"),
        (Thinking.HIGH, ["high", None], "unknown", "high, provider default"),
        (Thinking.HIGH, ["enabled"], "unknown", "enabled"),
        (Thinking.OFF, [None], "unknown", None),
        (Thinking.OFF, [], "unknown", None),
    ],
)
def test_a_level_is_consistent_only_when_every_call_carried_it(
    requested: Thinking, sent: list[str | None], expected: str, shown: str | None
) -> None:
    said = verdict(requested, _calls(*sent))

    assert (said.verdict, said.sent, said.requested) == (expected, shown, requested.value)
