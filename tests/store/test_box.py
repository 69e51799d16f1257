"""Nothing in a box is followed, opened twice or trusted."""

from __future__ import annotations

import os
from pathlib import Path

from windtunnel.store.box import copy_plain_files, read_plain_file


def hostile_box(root: Path) -> Path:
    box = root / "box"
    (box / "session").mkdir(parents=True)
    (box / "session" / "good.jsonl").write_text("{}\n")
    (box / "link").symlink_to("/etc/passwd")
    (box / "folder").symlink_to("/etc")
    os.mkfifo(box / "pipe")
    (box / "big").write_bytes(b"x" * 5000)
    os.close(os.open(os.fsencode(box) + b"/\xff\xfe", os.O_CREAT | os.O_WRONLY))
    return box


def test_only_plain_files_are_copied_and_the_rest_is_named(tmp_path: Path) -> None:
    box = hostile_box(tmp_path)

    copied = copy_plain_files(box, tmp_path / "copy", limit_bytes=1000)

    found = sorted(p.name for p in (tmp_path / "copy").rglob("*") if not p.is_dir())
    assert found == sorted(["good.jsonl", os.fsdecode(b"\xff\xfe")])
    assert not (tmp_path / "copy" / "folder").exists()
    assert {reason.split(":")[0] for reason in copied.skipped} == {"link", "folder", "pipe", "big"}


def test_a_box_that_became_a_link_is_empty(tmp_path: Path) -> None:
    (tmp_path / "box").symlink_to("/etc")

    assert copy_plain_files(tmp_path / "box", tmp_path / "copy", limit_bytes=1000).files == 0


def test_links_and_pipes_are_not_read_and_sizes_are_bounded(tmp_path: Path) -> None:
    box = hostile_box(tmp_path)

    assert read_plain_file(box / "link", 100) is None
    assert read_plain_file(box / "pipe", 100) is None
    assert read_plain_file(box / "missing", 100) is None
    assert read_plain_file(box / "big", 100) == b"x" * 100
