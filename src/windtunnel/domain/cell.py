"""A cell is one address in the results tree: (task, config, rep)."""

from __future__ import annotations

import hashlib
import re
import unicodedata

import msgspec

__all__ = ["Cell", "container_name", "folder", "model_leaf"]

_SAFE = re.compile(r"[^a-z0-9]+")
_NAME_MAX = 63


class Cell(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """(task, config, rep). `rep` counts from 0."""

    task: str
    config: str
    rep: int

    @property
    def id(self) -> str:
        """The name used in events and on the command line: `task/config/rep0`."""
        return f"{self.task}/{self.config}/rep{self.rep}"


def model_leaf(model: str | None) -> str:
    """The folder name of a model: the last `/` segment of its id, `none` without a model."""
    return (model or "none").rsplit("/", 1)[-1]


def folder(name: str) -> str | None:
    """Why a name cannot be a folder in the results tree, or None when it can.

    A name must stay one path segment on every file system and mean one thing: no separators, no leading dot
    or underscore (ours: `_runs`, `_quarantine`), no control characters, NFC, at most 120 bytes.
    """
    if not name or name in {".", ".."}:
        return "it is empty or a dot name"
    if name[0] in "._-" or "/" in name or "\\" in name or ":" in name or name != name.strip():
        return "it starts with '.', '_' or '-', or holds '/', '\\', ':' or outer spaces"
    if any(unicodedata.category(c) in {"Cc", "Cs", "Cf", "Zl", "Zp"} for c in name):
        return "it holds control or invisible characters"
    if unicodedata.normalize("NFC", name) != name:
        return "it is not in Unicode form NFC"
    if len(name.encode("utf-8")) > 120:
        return "it is longer than 120 bytes"
    return None


def container_name(cell: Cell, *, attempt: int, run_id: str, part: str) -> str:
    """`dsw-<config>-<task>-r<rep>-<hash>`: readable, at most 63 characters, never equal for two different things.

    The hash covers everything that the readable part had to drop, so that the name is injective in practice.
    """
    key = "\0".join((cell.task, cell.config, str(cell.rep), str(attempt), run_id, part))
    digest = hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()[:12]
    readable = f"{_SAFE.sub('-', cell.config.lower()).strip('-')}-{_SAFE.sub('-', cell.task.lower()).strip('-')}"
    tail = f"-r{cell.rep}-{digest}"
    head = f"dsw-{readable}"[: _NAME_MAX - len(tail)].rstrip("-")
    return head + tail
