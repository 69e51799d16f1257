"""`results.jsonl`: one line per cell of a leaf, made from the cells at any time; never the only copy of anything."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec

from windtunnel.domain.digest import to_line
from windtunnel.errors import FileDamaged
from windtunnel.store.files import sha256_file, write_atomic
from windtunnel.store.results import read_result

__all__ = ["rebuild_index"]


def rebuild_index(leaf_dir: Path) -> int:
    """Write `<leaf_dir>/results.jsonl` anew and return how many lines it has.

    `leaf_dir` is `<results root>/<model-leaf>/<thinking>`.
    A line is the whole result plus `result_path` (relative to the leaf) and `result_sha256`; of a result that cannot be
    read: `result_path` and `damaged` (why)."""
    lines = [to_line(_entry(leaf_dir, path)) for path in sorted(leaf_dir.glob("*/*/rep*/result.json"))]
    write_atomic(leaf_dir / "results.jsonl", b"".join(lines))
    return len(lines)


def _entry(leaf_dir: Path, path: Path) -> dict[str, Any]:
    where = {"result_path": os.path.relpath(path, leaf_dir)}
    try:
        result = read_result(path)
        record: dict[str, Any] = msgspec.to_builtins(result)
        return where | {"result_sha256": sha256_file(path)} | record
    except (FileDamaged, OSError) as error:
        return where | {"damaged": getattr(error, "found", str(error))}
