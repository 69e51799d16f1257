"""What an answer says, whatever pieces it came in; usage as each provider tells it."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windtunnel.domain.wire import Tokens
from windtunnel.gateway.chat import ChatReader, Reading, read_request, tokens_of
from windtunnel.gateway.sse import EventStream


def _stream(*events: Any, newline: str = "\n", done: bool = True) -> bytes:
    lines = [f"data: {json.dumps(event, ensure_ascii=False)}{newline}{newline}" for event in events]
    return "".join([*lines, f"data: [DONE]{newline}{newline}" if done else ""]).encode()


def _read(data: bytes, *, sse: bool = True) -> Reading:
    reader = ChatReader(sse=sse)
    reader.feed(data)
    return reader.finish()


USAGE = {
    "prompt_tokens": 100,
    "completion_tokens": 50,
    "prompt_tokens_details": {"cached_tokens": 30, "cache_write_tokens": 10},
    "completion_tokens_details": {"reasoning_tokens": 20},
}
FULL = (
    {"model": "m-1", "choices": [{"delta": {"role": "assistant"}, "finish_reason": None}], "usage": None},
    {"model": "m-1", "choices": [{"delta": {"reasoning_content": "hm\u2028ü"}}]},
    {"model": "m-1", "choices": [{"delta": {"content": "data: not an event\r\n\n"}}]},
    {"model": "m-1", "choices": [{"delta": {}, "finish_reason": "stop"}]},
    {"model": "m-1", "choices": [], "usage": USAGE},
)
KNOWN = Reading(
    model_served="m-1",
    stop_reason="stop",
    tokens=Tokens(input=60, cache_read=30, cache_write=10, output=50, reasoning=20),
    reasoning_seen=True,
    whole=True,
)


@given(st.lists(st.integers(1, 700), max_size=40), st.sampled_from(["\n", "\r\n"]), st.booleans())
def test_how_a_stream_was_cut_does_not_matter(cuts: list[int], newline: str, done: bool) -> None:
    data = b": comment" + newline.encode() + b"event: x" + newline.encode() + _stream(*FULL, newline=newline, done=done)
    reader, rest = ChatReader(sse=True), data
    for cut in cuts:
        reader.feed(rest[:cut])
        rest = rest[cut:]
    reader.feed(rest)

    assert reader.finish() == KNOWN


@given(st.lists(st.binary(max_size=12), max_size=6), st.data())
def test_events_are_the_same_for_every_split(parts: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(b"data:" + part.replace(b"\n", b"\ndata:") + b"\n\n" for part in parts)
    at = data.draw(st.integers(0, len(stream)))
    whole, cut = EventStream(), EventStream()

    assert whole.feed(stream) + whole.finish() == cut.feed(stream[:at]) + cut.feed(stream[at:]) + cut.finish()


@given(st.binary(max_size=300))
def test_no_answer_breaks_the_reader(data: bytes) -> None:
    for sse in (True, False):
        _read(data, sse=sse)


@pytest.mark.parametrize(
    ("usage", "tokens"),
    [
        (USAGE, KNOWN.tokens),
        ({"prompt_tokens": 9, "completion_tokens": 4}, Tokens(input=9, output=4)),
        # Moonshot: cached_tokens at the top.
        ({"prompt_tokens": 9, "completion_tokens": 4, "cached_tokens": 5}, Tokens(input=4, cache_read=5, output=4)),
        # DeepSeek: prompt = hit + miss.
        (
            {
                "prompt_tokens": 9,
                "completion_tokens": 4,
                "prompt_cache_hit_tokens": 6,
                "prompt_cache_miss_tokens": 3,
                "completion_tokens_details": {"reasoning_tokens": 2},
            },
            Tokens(input=3, cache_read=6, output=4, reasoning=2),
        ),
        # Z.AI: details with a null; vLLM: details null.
        (
            {"prompt_tokens": 9, "completion_tokens": 4, "prompt_tokens_details": {"cached_tokens": 0}},
            Tokens(input=9, cache_read=0, output=4),
        ),
        ({"prompt_tokens": 9, "completion_tokens": 4, "prompt_tokens_details": None}, Tokens(input=9, output=4)),
        # More cached than asked: the provider's parts do not add up, so the input is unknown.
        (
            {"prompt_tokens": 9, "completion_tokens": 4, "prompt_tokens_details": {"cached_tokens": 10}},
            Tokens(input=None, cache_read=10, output=4),
        ),
        ({"prompt_tokens": "9", "completion_tokens": True}, None),
        ({"prompt_tokens": -1}, None),
        ({}, None),
    ],
)
def test_usage_is_told_in_one_form(usage: dict[str, Any], tokens: Tokens | None) -> None:
    assert tokens_of(usage) == tokens


def test_usage_inside_choices_is_found() -> None:
    choice = {"delta": {}, "finish_reason": "stop", "usage": {"prompt_tokens": 3, "completion_tokens": 2}}

    assert _read(_stream({"choices": [choice]})).tokens == Tokens(input=3, output=2)


def test_counts_on_every_chunk_are_not_added_up() -> None:
    chunks = [{"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": count}} for count in (1, 2, 3)]

    assert _read(_stream(*chunks)).tokens == Tokens(input=3, output=3)


def test_a_turn_of_tool_calls_alone_is_read() -> None:
    call = {"index": 0, "id": "c", "function": {"name": "bash", "arguments": "{}"}}
    read = _read(_stream({"model": "m", "choices": [{"delta": {"tool_calls": [call]}, "finish_reason": "tool_calls"}]}))

    assert (read.stop_reason, read.reasoning_seen, read.whole) == ("tool_calls", False, True)


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning", "reasoning_details"])
def test_reasoning_is_seen_under_each_name(field: str) -> None:
    assert _read(_stream({"choices": [{"delta": {field: "x"}}]})).reasoning_seen
    assert not _read(_stream({"choices": [{"delta": {field: ""}}]})).reasoning_seen


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        ({"code": "1302", "message": "busy"}, "1302", "busy"),
        ({"code": 429, "message": "slow down"}, "429", "slow down"),
        ({"type": "overloaded_error", "code": None}, "overloaded_error", None),
        ("plain words", "error", "plain words"),
    ],
)
def test_an_error_object_is_read_in_body_and_stream(error: Any, code: str, message: str | None) -> None:
    for read in (_read(json.dumps({"error": error}).encode(), sse=False), _read(_stream({"error": error}, done=False))):
        assert (read.error_code, read.error_message, read.whole) == (code, message, True)


def test_a_finish_reason_of_error_is_an_error() -> None:
    assert _read(_stream({"choices": [{"delta": {}, "finish_reason": "error"}]})).error_code == "error"


def test_what_is_not_json_is_told_as_unread() -> None:
    assert _read(b"<html>", sse=False).parsed is False
    assert _read(b"data: {broken\n\ndata: [DONE]\n\n").parsed is False


def test_a_request_is_read_plain_and_gzipped_but_not_in_other_encodings() -> None:
    raw = json.dumps({"model": "m", "stream": True, "reasoning": {"effort": "low"}}).encode()

    for request in (read_request(raw, ""), read_request(gzip.compress(raw), "gzip")):
        assert (request.model, request.stream) == ("m", True)
        assert (request.thinking_field, request.thinking_sent) == ("reasoning.effort", "low")
    for unread in (read_request(raw, "zstd"), read_request(raw, "gzip"), read_request(b"[1]", "")):
        assert unread.body is None and unread.model is None
