"""Pi's own account of its work, from the session files in the box.

Source of the shapes: Pi 1.6.0 and 0.80.10 session files, version 3 (docs/session-format.md of the package). `input`
excludes cached tokens, `reasoning` is part of `output`. A failed try is an assistant entry with `stopReason` error and
usage 0; a compaction entry has a usage of its own; calls of extensions and failed compactions leave no line at all.
"""

from __future__ import annotations

from pathlib import Path

from windtunnel.subjects.claims import TokenSum, mapping, records, text
from windtunnel.subjects.interface import Account

__all__ = ["account_of"]

_USAGE = {
    "input": "input",
    "cache_read": "cacheRead",
    "cache_write": "cacheWrite",
    "output": "output",
    "reasoning": "reasoning",
}
_FAILED = {"error", "aborted"}


def account_of(folder: Path) -> Account:
    """Sum over all session files of a folder; stop reason and error of the last assistant message. Never raises."""
    usage, turns, calls = TokenSum(_USAGE), 0, 0
    stop = error = None
    files = set[str]()
    for name, entry in records(folder):
        files.add(f"{folder.name}/{name}")
        kind, message = text(entry.get("type")), mapping(entry.get("message"))
        if kind in {"compaction", "usage", "branch_summary"}:
            usage.add(entry.get("usage"))
        elif kind == "message" and message.get("role") == "assistant":
            turns += 1
            calls += _tool_calls(message.get("content"))
            usage.add(message.get("usage"))
            stop = text(message.get("stopReason"))
            error = text(message.get("errorMessage")) if stop in _FAILED else None
    if not files:
        return Account()
    return Account(
        turns=turns,
        tool_calls=calls,
        stop_reason=stop,
        error=error,
        tokens=usage.tokens,
        session_files=tuple(sorted(files)),
    )


def _tool_calls(content: object) -> int:
    blocks = content if isinstance(content, list) else []
    return sum(mapping(block).get("type") == "toolCall" for block in blocks)
