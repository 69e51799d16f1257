"""A receipt for eyes and machines: text of 100 columns, Markdown, JSON. Untrusted text loses its control characters."""

from __future__ import annotations

import shlex
import textwrap
import unicodedata
from collections.abc import Sequence

import msgspec

from windtunnel.domain.digest import to_json

__all__ = ["WIDTH", "Block", "Receipt", "clean", "command_lines", "table", "to_bytes", "to_markdown", "to_text"]

WIDTH = 100
_HIDDEN = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}


class Block(msgspec.Struct, frozen=True, kw_only=True):
    """One part of a receipt. Lines are clean already, and not yet wrapped."""

    title: str
    lines: tuple[str, ...]

    @classmethod
    def of(cls, title: str, lines: Sequence[str], *, at_most: int = 1000) -> Block:
        """A block of cleaned lines; what is beyond the bound is counted, not shown."""
        shown = [clean(line) for line in lines[:at_most]]
        if len(lines) > at_most:
            shown.append(f"... and {len(lines) - at_most} more; all of them are in the plan file")
        return cls(title=clean(title), lines=tuple(shown))


class Receipt(msgspec.Struct, frozen=True, kw_only=True):
    """What a person confirms, as blocks in reading order."""

    schemaVersion: int = 1
    planIdentity: str
    run_id: str
    blocks: tuple[Block, ...]


def clean(text: str) -> str:
    """One line of text without control, format and direction characters (each becomes `?`)."""
    return "".join("?" if unicodedata.category(c) in _HIDDEN else c for c in text)


def command_lines(argv: Sequence[str]) -> list[str]:
    """An argv as lines to paste into a shell, broken between arguments with ` \\`."""
    lines: list[str] = []
    line = ""
    for part in (shlex.quote(argument) for argument in argv):
        if line and len(line) + 1 + len(part) > WIDTH - 6:
            lines.append(line + " \\")
            line = "  " + part
        else:
            line = f"{line} {part}" if line else part
    return [*lines, line]


def table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows as aligned columns, two spaces apart."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))] if rows else []
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def to_text(receipt: Receipt) -> str:
    """Plain text, at most 100 columns."""
    lines = [f"LAUNCH RECEIPT  run {clean(receipt.run_id)}"]
    for block in receipt.blocks:
        lines.append(block.title.upper())
        for line in block.lines:
            lines += _wrapped(line)
    return "\n".join(lines) + "\n"


def _wrapped(line: str) -> list[str]:
    if len(line) <= WIDTH - 2:
        return [f"  {line}"]
    return textwrap.wrap(
        line,
        WIDTH,
        initial_indent="  ",
        subsequent_indent="      ",
        replace_whitespace=False,
        break_on_hyphens=False,
    )


def to_markdown(receipt: Receipt) -> str:
    """One heading a block; the lines are indented code, so that nothing in them is markup."""
    parts = [f"# Launch receipt: run `{clean(receipt.run_id).replace('`', '?')}`"]
    for block in receipt.blocks:
        parts += ["", f"## {block.title}", "", *(f"    {line}" for line in block.lines)]
    return "\n".join(parts) + "\n"


def to_bytes(receipt: Receipt) -> bytes:
    """JSON."""
    return to_json(receipt)
