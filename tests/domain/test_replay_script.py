"""The replay script: strict to read, the same answer for the same request."""

from __future__ import annotations

import json
from typing import Any

import pytest

from windtunnel.domain.replay import ScriptedUsage, ToolCall, Turn, choose, models_of, parse_script, usage_for


def _script(*conversations: dict[str, Any]) -> Any:
    return parse_script(json.dumps({"schemaVersion": 1, "conversations": conversations}).encode())


def _body(*messages: tuple[str, Any], model: str = "m") -> dict[str, Any]:
    return {"model": model, "messages": [{"role": role, "content": content} for role, content in messages]}


@pytest.mark.parametrize(
    "wrong",
    [
        {"conversations": [{"turns": [{"txt": "typo"}]}]},
        {"conversations": [{"turns": [], "match": {}}]},
        {"conversations": [{"turns": [{}], "match": {"prompt": "x"}}]},
        {"conversations": [{"turns": [{"error": {"staus": 500}}]}]},
        {"conversations": [], "schemaVersion": 2},
        {"conversation": []},
        [],
    ],
)
def test_a_wrong_script_is_refused(wrong: Any) -> None:
    with pytest.raises(ValueError, match=r".+"):
        parse_script(json.dumps(wrong).encode())


def test_a_wrong_key_is_named_with_its_place() -> None:
    with pytest.raises(ValueError, match=r"txt.*\$\.conversations\[0\]\.turns\[0\]"):
        _script({"turns": [{"txt": "typo"}]})


def test_the_first_conversation_that_fits_answers() -> None:
    script = _script(
        {"match": {"model": "big"}, "turns": [{"text": "big"}]},
        {"match": {"prompt_contains": ["fix", "parser"]}, "turns": [{"text": "both"}]},
        {"match": {"system_contains": ["summarization"]}, "turns": [{"text": "summary"}]},
        {"turns": [{"text": "any"}]},
    )

    def text(body: dict[str, Any]) -> str:
        chosen = choose(script, body)
        assert chosen is not None
        return chosen.turn.text

    assert text(_body(("user", "x"), model="big")) == "big"
    assert text(_body(("user", "fix it"), ("user", [{"type": "text", "text": "the parser"}]))) == "both"
    assert text(_body(("user", "fix it"))) == "any"
    assert text(_body(("developer", "You are a summarization assistant"))) == "summary"
    assert text(_body(("system", "fix the parser"))) == "any"


def test_no_conversation_that_fits_is_none() -> None:
    assert choose(_script({"match": {"model": "big"}, "turns": [{}]}), _body(("user", "x"))) is None
    assert choose(_script({"match": {"prompt_contains": ["x"]}, "turns": [{}]}), {"messages": "odd"}) is None


def test_the_turn_is_told_by_the_assistant_messages_of_the_request() -> None:
    script = _script({"turns": [{"text": "a"}, {"text": "b"}]})
    asked = [("user", "x"), ("assistant", "a"), ("tool", "r"), ("assistant", "b"), ("assistant", "b")]
    turns = [choose(script, _body(*asked[:count])) for count in range(1, 6)]

    assert [(turn.index, turn.turn.text) for turn in turns if turn] == [
        (0, "a"), (1, "b"), (1, "b"), (2, "b"), (3, "b")
    ]  # fmt: skip


def test_past_a_turn_of_tool_calls_the_model_says_done() -> None:
    script = _script({"turns": [{"tool_calls": [{"name": "bash", "arguments": {"command": "ls"}}]}]})
    past = choose(script, _body(("user", "x"), ("assistant", None)))

    assert past is not None and past.turn == Turn(text="done")


def test_usage_is_counted_where_the_script_is_silent() -> None:
    body = _body(("user", "12345"), ("assistant", [{"type": "text", "text": "678"}]))
    turn = Turn(text="abcde", tool_calls=(ToolCall("ls", {}),))

    assert usage_for(turn, body) == ScriptedUsage(input=2, output=3)
    assert usage_for(Turn(usage=ScriptedUsage(input=0, cache_read=9)), body) == ScriptedUsage(0, 9, None, 0, None)
    assert usage_for(Turn(reasoning="12345"), body) == ScriptedUsage(2, None, None, 2, 2)


def test_the_models_of_a_script_are_listed() -> None:
    assert models_of(_script({"match": {"model": "a"}, "turns": [{}]}, {"turns": [{}]})) == ["a"]
    assert models_of(_script({"turns": [{}]})) == ["replay"]
