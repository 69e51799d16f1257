"""A cell's evidence: globs stay inside the cell, records and texts are read within bounds."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from windtunnel.domain.contract_checks import Malformed
from windtunnel.store.evidence import READ_LIMIT_BYTES, StoredEvidence, find_files
from windtunnel.store.layout import CellDir


@pytest.fixture
def cell(tmp_path: Path) -> CellDir:
    root = tmp_path / "cell"
    (root / "attempts/2/session/deep").mkdir(parents=True)
    (root / "attempts/2/artifacts").mkdir()
    (root / "current").symlink_to("attempts/2")
    (root / "session").symlink_to("current/session")
    (root / "artifacts").symlink_to("current/artifacts")
    (root / "attempts/2/session/a.jsonl").write_text('{"n":1}\n')
    (root / "attempts/2/session/deep/b.jsonl").write_text('{"n":2}\n')
    return CellDir(root)


@pytest.mark.parametrize(
    ("glob", "found"),
    [
        ("session/*.jsonl", ["session/a.jsonl"]),
        ("current/session/a.jsonl", ["current/session/a.jsonl"]),
        ("attempts/*/session/**", ["attempts/2/session/a.jsonl", "attempts/2/session/deep/b.jsonl"]),
        ("session/**/*.jsonl", ["session/a.jsonl", "session/deep/b.jsonl"]),
        ("**/b.jsonl", ["attempts/2/session/deep/b.jsonl"]),
        ("./session//a.jsonl", ["session/a.jsonl"]),
        ("session", []),
        ("session/[b].jsonl", []),
        ("nowhere/*", []),
    ],
)
def test_globs_reach_the_last_attempt_through_the_old_paths(cell: CellDir, glob: str, found: list[str]) -> None:
    assert find_files(cell.root, [glob]) == found


def test_a_file_that_two_globs_reach_is_counted_once(cell: CellDir) -> None:
    assert find_files(cell.root, ["session/a.jsonl", "attempts/2/session/*"]) == ["session/a.jsonl"]


def test_what_is_no_regular_file_inside_the_cell_is_no_evidence(cell: CellDir, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("x")
    inside = cell.root / "attempts/2/session"
    (inside / "out").symlink_to(tmp_path / "secret")
    (inside / "up").symlink_to("../../../..")
    (inside / "loop").symlink_to("loop")
    os.mkfifo(inside / "pipe")

    assert find_files(cell.root, ["session/*", "session/up/secret", "session/out"]) == ["session/a.jsonl"]


def test_a_malformed_line_is_told_with_its_number(cell: CellDir) -> None:
    (cell.root / "session/a.jsonl").write_text('{"n":1}\n{"n":NaN}\n')

    with pytest.raises(Malformed, match="line 2"):
        list(StoredEvidence(cell).records("session/a.jsonl", "jsonl"))


def test_a_list_in_a_json_file_is_its_records(cell: CellDir) -> None:
    (cell.root / "session/x.json").write_text('[{"n":1},{"n":2}]')

    assert list(StoredEvidence(cell).records("session/x.json", "json")) == [{"n": 1}, {"n": 2}]


def test_text_across_a_read_boundary_is_found(cell: CellDir) -> None:
    (cell.root / "session/big").write_bytes(b"x" * (1024 * 1024 - 3) + b"needle")

    assert StoredEvidence(cell).holds("session/big", re.compile(b"needle")) is True
    assert StoredEvidence(cell).holds("session/big", re.compile(b"thread")) is False


def test_a_file_above_the_limit_is_not_taken_as_read(cell: CellDir) -> None:
    with (cell.root / "session/huge").open("wb") as file:
        file.truncate(READ_LIMIT_BYTES + 1)

    assert StoredEvidence(cell).holds("session/huge", re.compile(b"needle")) is None
    with pytest.raises(Malformed, match="larger"):
        list(StoredEvidence(cell).records("session/huge", "jsonl"))


def test_a_result_that_is_not_json_is_no_result(cell: CellDir) -> None:
    assert StoredEvidence(cell).result() is None

    cell.result.write_bytes(b"\xff{")

    assert StoredEvidence(cell).result() is None


def test_the_attempt_is_the_one_that_current_names(cell: CellDir, tmp_path: Path) -> None:
    attempt = StoredEvidence(cell).attempt()
    assert attempt is not None and attempt.root.name == "2"

    cell.current.unlink()
    cell.current.symlink_to(tmp_path)

    assert StoredEvidence(cell).attempt() is None
