"""Text of an agent, made safe for a terminal and a log: no escape sequences, no control characters, one line."""

from __future__ import annotations

import re

__all__ = ["plain_line", "plain_text"]

_ESCAPES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor
    r"|\x1b[\]PX^_][^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)?"  # OSC, DCS, SOS, PM, APC: titles, links, clipboard
    r"|\x9b[0-?]*[ -/]*[@-~]"  # CSI as one character
    r"|\x1b[ -/]*[0-~]"
)
# C0 and C1 controls, line and paragraph separators, and the marks that turn text around.
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_SURROGATES = re.compile("[\ud800-\udfff]")


def plain_text(text: str) -> str:
    """No escape sequences, no control characters; line ends and tabs stay, lone surrogates become U+FFFD."""
    text = _ESCAPES.sub("", text.replace("\r\n", "\n"))
    return _SURROGATES.sub("\ufffd", _CONTROLS.sub("", text))


def plain_line(text: str) -> str:
    """The same as one line: every run of line ends and tabs is a space."""
    return re.sub(r"[\n\t]+", " ", plain_text(text)).strip()
