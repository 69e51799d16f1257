"""Pi's own account is read from its session files, and nothing an agent can write there is an error."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from windtunnel.domain.wire import Tokens
from windtunnel.subjects.interface import Account
from windtunnel.subjects.pi import Pi
from windtunnel.subjects.pi_session import account_of

DATA = Path(__file__).parents[1] / "data" / "pi"


def box_with(tmp_path: Path, *files: str) -> Path:
    (tmp_path / "session").mkdir()
    for name in files:
        shutil.copy(DATA / name, tmp_path / "session" / name)
    return tmp_path


def write(folder: Path, *entries: Any) -> None:
    (folder / "s.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in entries))


def test_account_of_a_real_session(tmp_path: Path) -> None:
    account = Pi().account(box_with(tmp_path, "session-1.6.0.jsonl"))

    assert account == Account(
        turns=4,
        tool_calls=3,
        stop_reason="stop",
        tokens=Tokens(input=2400, cache_read=1600, cache_write=0, output=200, reasoning=80),
        session_files=("session/session-1.6.0.jsonl",),
    )


def test_a_compaction_has_usage_of_its_own(tmp_path: Path) -> None:
    account = Pi().account(box_with(tmp_path, "session-compaction.jsonl"))

    assert account.tokens == Tokens(input=122_400, cache_read=1600, cache_write=0, output=250, reasoning=100)
    assert account.turns == 4


def test_the_last_answer_decides_about_an_error(tmp_path: Path) -> None:
    failed = {"type": "message", "message": {"role": "assistant", "stopReason": "error", "errorMessage": "429: slow"}}
    good = {"type": "message", "message": {"role": "assistant", "stopReason": "stop", "content": []}}

    write(tmp_path, good, failed)
    assert (account_of(tmp_path).stop_reason, account_of(tmp_path).error) == ("error", "429: slow")

    write(tmp_path, failed, good)
    assert (account_of(tmp_path).stop_reason, account_of(tmp_path).error) == ("stop", None)


def test_usage_that_nobody_told_is_unknown_not_zero(tmp_path: Path) -> None:
    write(tmp_path, {"type": "message", "message": {"role": "assistant", "usage": {"input": 5, "output": "many"}}})

    assert account_of(tmp_path).tokens == Tokens(input=5)


def test_no_session_is_no_account(tmp_path: Path) -> None:
    assert Pi().account(tmp_path) == Account()


def test_links_and_pipes_in_the_session_folder_are_not_opened(tmp_path: Path) -> None:
    (tmp_path / "session").mkdir()
    (tmp_path / "secret").write_text('{"type":"message","message":{"role":"assistant"}}\n')
    (tmp_path / "session" / "link.jsonl").symlink_to(tmp_path / "secret")
    os.mkfifo(tmp_path / "session" / "pipe.jsonl")

    assert Pi().account(tmp_path) == Account()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["role", "usage", "content"]), inner),
)
ENTRY = st.fixed_dictionaries(
    {"type": st.sampled_from(["message", "compaction", "usage"]) | JSON},
    optional={
        "message": JSON
        | st.fixed_dictionaries({"role": st.just("assistant")}, optional={"usage": JSON, "content": JSON}),
        "usage": JSON | st.fixed_dictionaries({"input": JSON, "output": JSON}),
    },
)


@settings(deadline=None)
@given(entries=st.lists(ENTRY | JSON, max_size=6), tail=st.binary(max_size=20))
def test_account_never_raises(tmp_path_factory: pytest.TempPathFactory, entries: list[Any], tail: bytes) -> None:
    folder = tmp_path_factory.mktemp("box")
    lines = b"".join(json.dumps(entry).encode() + b"\n" for entry in entries)
    (folder / "s.jsonl").write_bytes(lines + tail)

    account = account_of(folder)

    assert account.tokens is None or all(
        value is None or value >= 0 for value in (account.tokens.input, account.tokens.output)
    )
    shutil.rmtree(folder)
