"""The files of a config as adapters read them: a leaf's file wins over the config's own."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from windtunnel.domain.digest import decode
from windtunnel.errors import FileDamaged

__all__ = ["argument_lines", "copy_tree", "find_file", "read_object", "system_text"]


def find_file(name: str, inputs: Path, leaf: Path | None) -> Path | None:
    """The file in the leaf, else in the config directory, else None."""
    for folder in (leaf, inputs):
        if folder is not None and (folder / name).is_file():
            return folder / name
    return None


def argument_lines(path: Path) -> list[str]:
    """One argument a line, outer white space off; empty lines and lines that start with `#` are left out.

    Raises FileDamaged when it is not UTF-8 text."""
    lines = (line.strip() for line in _read(path).split("\n"))
    return [line for line in lines if line and not line.startswith("#")]


def read_object(path: Path | None) -> dict[str, Any]:
    """A JSON object; an empty one without a file. Raises FileDamaged."""
    if path is None:
        return {}
    try:
        return decode(_read(path), dict[str, Any])
    except (ValueError, RecursionError) as error:
        raise FileDamaged(path, f"not a JSON object: {error}", "Mend it") from error


def system_text(inputs: Path) -> str:
    """`system_preamble.md` and `orchestration.md`, those that are there, with an empty line between."""
    parts = [
        _read(inputs / name).strip() for name in ("system_preamble.md", "orchestration.md") if (inputs / name).is_file()
    ]
    return "\n\n".join(part for part in parts if part)


def copy_tree(source: Path, target: Path) -> bool:
    """Copy a directory of the config into the stage, exec bits kept; False when the config has none."""
    if not source.is_dir():
        return False
    shutil.copytree(source, target)
    return True


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise FileDamaged(path, f"not UTF-8 text: {error.reason}", "Mend it") from error
