from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from windtunnel.domain.plain_text import plain_line, plain_text

ANYTHING = st.text(st.characters(exclude_categories=()) | st.sampled_from("\x1b\x9b\x07[]0;m\n"))


@pytest.mark.parametrize(
    ("raw", "plain"),
    [
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07x", "x"),
        ("\x1b]52;c;c2VjcmV0\x1b\\x", "x"),
        ("\x9b2Jx", "x"),
        ("a\rb\x00c\x7f", "abc"),
        ("a\u202eb", "ab"),
        ("\ud800", "\ufffd"),
        ("一 é 🛩", "一 é 🛩"),
        ("a\r\nb\tc", "a\nb\tc"),
    ],
)
def test_escapes_and_controls_go_and_text_stays(raw: str, plain: str) -> None:
    assert plain_text(raw) == plain


@settings(deadline=None)
@given(ANYTHING)
def test_nothing_that_steers_a_terminal_is_left(text: str) -> None:
    plain = plain_text(text)
    assert not any((ord(c) < 32 and c not in "\n\t") or 0x7F <= ord(c) <= 0x9F for c in plain)
    plain.encode("utf-8")
    assert "\n" not in plain_line(text) and "\t" not in plain_line(text)
