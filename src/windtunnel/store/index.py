"""`results.jsonl`: one line per cell of a leaf, made from the cells at any time; never the only copy of anything."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec

from windtunnel.domain.digest import to_line
from windtunnel.domain.result import Result
from windtunnel.errors import FileDamaged
from windtunnel.store.files import sha256_file, write_atomic
from windtunnel.store.results import read_result

__all__ = ["index_entry", "rebuild_index"]


def rebuild_index(leaf_dir: Path) -> int:
    """Write `<leaf_dir>/results.jsonl` anew and return how many lines it has.

    `leaf_dir` is `<results root>/<model-leaf>/<thinking>`.
    A line is the whole result plus `result_path` (relative to the leaf) and `result_sha256`; of a result that cannot be
    read: `result_path` and `damaged` (why)."""
    lines = [to_line(_entry(leaf_dir, path)) for path in sorted(leaf_dir.glob("*/*/rep*/result.json"))]
    write_atomic(leaf_dir / "results.jsonl", b"".join(lines))
    return len(lines)


def index_entry(leaf_dir: Path, path: Path, result_sha256: str, result: Result) -> dict[str, Any]:
    """The line of a readable result, as a value."""
    where = {"result_path": os.path.relpath(path, leaf_dir), "result_sha256": result_sha256}
    entry: dict[str, Any] = where | msgspec.to_builtins(result)
    return entry


def _entry(leaf_dir: Path, path: Path) -> dict[str, Any]:
    try:
        return index_entry(leaf_dir, path, sha256_file(path), read_result(path))
    except (FileDamaged, OSError) as error:
        return {"result_path": os.path.relpath(path, leaf_dir), "damaged": getattr(error, "found", str(error))}
