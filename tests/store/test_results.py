from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from run_builders import a_result
from windtunnel.domain.cell import Cell
from windtunnel.domain.digest import sha256_bytes, to_json
from windtunnel.domain.outcome import Outcome, Reason
from windtunnel.domain.result import AttemptRecord
from windtunnel.errors import FileDamaged, InputWrong
from windtunnel.host.processes import current
from windtunnel.store.files import read_json, sha256_file
from windtunnel.store.index import rebuild_index
from windtunnel.store.layout import AttemptDir, CellDir, cell_dir
from windtunnel.store.results import (
    Claim,
    check_manifest,
    claim,
    new_attempt,
    publish,
    quarantine,
    read_claim,
    read_result,
    release,
    seal,
    set_aside,
    update_claim,
    write_attempt,
)

FILE_NAMES = st.binary(min_size=1, max_size=12).filter(lambda n: not set(n) & set(b"\0/") and n not in (b".", b".."))


@pytest.fixture
def cell(tmp_path: Path) -> CellDir:
    found = cell_dir(tmp_path / "results", "replay/m", "high", Cell(task="t1", config="a", rep=0))
    found.root.mkdir(parents=True)
    return found


def a_claim(run_id: str = "r1") -> Claim:
    return Claim(run_id=run_id, cell="t1/a/rep0", process=current(), ts="2026-12-01T00:00:00.000Z")


def published(cell: CellDir, **fields: object) -> AttemptDir:
    number, attempt = new_attempt(cell)
    (attempt.logs / "subject.log").write_text("said\n")
    (attempt.box / "claim").write_text("of the agent\n")
    (attempt.root / "wire.ndjson").write_text("{}\n")
    result = a_result(attempt=number, **fields)
    seal(attempt, to_json(result))
    publish(cell, number, result)
    return attempt


def test_one_claims_a_cell_and_the_others_are_told(cell: CellDir) -> None:
    assert read_claim(cell) is None
    assert claim(cell, a_claim())
    assert not claim(cell, a_claim("r2"))
    assert read_claim(cell) == a_claim()
    more = msgspec.structs.replace(a_claim(), attempt=1, container="abc")
    update_claim(cell, more)
    assert read_claim(cell) == more
    release(cell)
    release(cell)
    assert claim(cell, a_claim("r2"))
    assert [path.name for path in cell.root.iterdir()] == ["claim.json"]


def _try(root: Path, name: str) -> bool:
    return claim(CellDir(root), a_claim(name))


def test_of_many_processes_exactly_one_gets_the_cell(cell: CellDir) -> None:
    with multiprocessing.get_context("spawn").Pool(4) as pool:
        won = pool.starmap(_try, [(cell.root, f"r{n}") for n in range(16)])
    assert won.count(True) == 1
    found = read_claim(cell)
    assert found is not None and found.run_id == f"r{won.index(True)}"


def test_attempts_are_numbered_over_what_exists_and_never_reused(cell: CellDir) -> None:
    assert new_attempt(cell)[0] == 1
    (cell.attempts / "7").mkdir()
    (cell.attempts / "notes").mkdir()
    number, attempt = new_attempt(cell)
    assert number == 8
    names = {"box", "logs", "session", "initial_context", "artifacts", "verifier", "grades"}
    assert {path.name for path in attempt.root.iterdir()} == names
    assert attempt.box.stat().st_mode & 0o777 == 0o777


def test_an_attempt_record_reads_back(cell: CellDir) -> None:
    _, attempt = new_attempt(cell)
    record = AttemptRecord(attempt=1, run_id="r1", cell="t1/a/rep0", outcome=Outcome.of(Reason.GRADED), started_at="x")
    write_attempt(attempt, record)
    assert read_json(attempt.record, AttemptRecord) == record


def test_a_published_result_is_reached_by_the_old_paths(cell: CellDir) -> None:
    number, attempt = new_attempt(cell)
    (attempt.logs / "x").write_text("1")
    result = a_result()
    digest = publish(cell, number, result)

    assert digest == sha256_file(cell.result) == sha256_bytes(to_json(result))
    assert read_result(cell.result) == result
    assert cell.current.readlink() == Path("attempts/1")
    assert (cell.root / "logs" / "x").read_text() == "1"
    links = {path.name: str(path.readlink()) for path in cell.root.iterdir() if path.is_symlink()}
    assert links == {"current": "attempts/1"} | {
        name: f"current/{name}" for name in ("logs", "session", "verifier", "artifacts", "initial_context")
    }

    _, second = new_attempt(cell)
    (second.logs / "x").write_text("2")
    publish(cell, 2, a_result(attempt=2))
    assert (cell.root / "logs" / "x").read_text() == "2"
    assert (attempt.logs / "x").read_text() == "1"


def test_a_directory_on_an_old_path_is_moved_not_overwritten(cell: CellDir) -> None:
    (cell.root / "logs").mkdir()
    (cell.root / "logs" / "old").write_text("kept")
    published(cell)
    assert (cell.root / "logs.before-1" / "old").read_text() == "kept"
    assert (cell.root / "logs").is_symlink()


def test_a_sealed_attempt_is_as_it_was(cell: CellDir) -> None:
    attempt = published(cell)
    assert check_manifest(attempt, cell) == []
    done = subprocess.run(["sha256sum", "-c", "--strict", "manifest.sha256"], cwd=attempt.root, capture_output=True)
    assert done.returncode == 0, done
    names = [line.split("  ")[1] for line in attempt.manifest.read_text().splitlines()]
    assert names == sorted(names) == ["../../result.json", "logs/subject.log", "wire.ndjson"]
    (attempt.box / "later").write_text("the agent's own")
    assert check_manifest(attempt, cell) == []


def test_every_change_is_named(cell: CellDir) -> None:
    attempt = published(cell)
    (attempt.logs / "subject.log").write_text("Said\n")
    attempt.wire.unlink()
    (attempt.verifier / "reward.json").write_text("1")
    cell.result.write_bytes(cell.result.read_bytes() + b" ")
    found = check_manifest(attempt, cell)

    assert [problem.split(":")[0] for problem in found] == [
        "logs/subject.log",
        "wire.ndjson",
        "verifier/reward.json",
        "result.json",
    ]
    assert ["changed" in found[0], "missing" in found[1], "added" in found[2], "changed" in found[3]] == [True] * 4


def test_a_link_in_place_of_a_file_is_no_evidence(cell: CellDir) -> None:
    attempt = published(cell)
    log = attempt.logs / "subject.log"
    log.rename(attempt.box / "same")
    log.symlink_to(attempt.box / "same")
    assert check_manifest(attempt, cell) == ["logs/subject.log: missing"]


@pytest.mark.parametrize("data", [None, b"torn", b"xyz  name\n", b"\xff\n", b"a" * 64 + b" name\n"])
def test_a_manifest_that_cannot_be_read_is_a_problem(cell: CellDir, data: bytes | None) -> None:
    attempt = published(cell)
    attempt.manifest.unlink()
    if data is not None:
        attempt.manifest.write_bytes(data)
    problems = check_manifest(attempt, cell)
    assert len(problems) == 1 and "manifest.sha256" in problems[0]


def test_an_emptied_manifest_covers_nothing(cell: CellDir) -> None:
    attempt = published(cell)
    attempt.manifest.write_bytes(b"")
    assert len(check_manifest(attempt, cell)) == 3


def test_an_attempt_without_a_result_is_sealed_for_itself(cell: CellDir) -> None:
    _, attempt = new_attempt(cell)
    seal(attempt, None)
    published(cell)
    assert check_manifest(attempt, cell, published=False) == []
    assert check_manifest(attempt, cell) == ["result.json: not in the manifest of the attempt it is made from"]


@settings(max_examples=50, deadline=None)
@given(st.lists(FILE_NAMES))
def test_any_file_name_survives_the_manifest(names: list[bytes]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        cell = CellDir(Path(directory))
        _, attempt = new_attempt(cell)
        for name in names:
            Path(os.fsdecode(os.path.join(os.fsencode(attempt.session), name))).write_bytes(name)  # noqa: PTH118
        seal(attempt, None)
        assert check_manifest(attempt, cell, published=False) == []
        for name in set(names):
            Path(os.fsdecode(os.path.join(os.fsencode(attempt.session), name))).unlink()  # noqa: PTH118
        assert len(check_manifest(attempt, cell, published=False)) == len(set(names))


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (b"", "empty"),
        (b'{"schemaVersion":1,"task"', "not a valid Result"),
        (b"\xff\xfe", "not a valid Result"),
        (b'{"reward_partial":NaN}', "not a valid Result"),
        (b'{"schemaVersion":99}', "schema 99 is newer than 1"),
        (b"{}", "not a valid Result"),
    ],
)
def test_an_unreadable_result_is_named_and_set_aside_not_deleted(cell: CellDir, data: bytes, found: str) -> None:
    for number in (1, 2):
        cell.result.write_bytes(data)
        with pytest.raises(FileDamaged) as caught:
            read_result(cell.result)
        assert caught.value.found.startswith(found)
        moved = set_aside(cell, caught.value.found)
        assert moved.name == f"result.json.torn-{number}"
        assert moved.read_bytes() == data
        assert not cell.result.exists()
    lines = [json.loads(line) for line in (cell.root / "set-aside.ndjson").read_text().splitlines()]
    assert [line["file"] for line in lines] == ["result.json.torn-1", "result.json.torn-2"]
    assert all(line["why"].startswith(found) and line["sha256"] == sha256_bytes(data) for line in lines)


def test_no_result_is_no_damage(cell: CellDir) -> None:
    with pytest.raises(FileNotFoundError):
        read_result(cell.result)
    cell.result.mkdir()
    with pytest.raises(FileDamaged, match="cannot be read"):
        read_result(cell.result)


def test_quarantine_moves_the_whole_cell_and_says_why(cell: CellDir, tmp_path: Path) -> None:
    published(cell)
    digest = sha256_file(cell.result)
    moved = quarantine(tmp_path / "results", cell, "another identity")

    assert not cell.root.exists()
    assert moved.relative_to(tmp_path / "results" / "_quarantine").parts[1:] == ("m", "high", "a", "t1", "rep0")
    assert check_manifest(CellDir(moved).attempt(1), CellDir(moved)) == []
    line = json.loads((tmp_path / "results" / "_quarantine" / "quarantine.ndjson").read_text())
    assert (line["from"], line["to"], line["why"]) == (str(cell.root), str(moved), "another identity")
    assert line["result_sha256"] == digest
    with pytest.raises(InputWrong):
        quarantine(tmp_path / "elsewhere", CellDir(moved), "x")


def test_the_index_is_made_from_the_cells_and_names_damaged_ones(cell: CellDir, tmp_path: Path) -> None:
    published(cell)
    leaf = tmp_path / "results" / "m" / "high"
    other = cell_dir(tmp_path / "results", "replay/m", "high", Cell(task="t2", config="a", rep=0))
    other.root.mkdir(parents=True)
    other.result.write_bytes(b"{")
    (leaf / "results.jsonl").write_text("stale\n")

    assert rebuild_index(leaf) == 2
    first, second = [json.loads(line) for line in (leaf / "results.jsonl").read_text().splitlines()]
    assert (first["result_path"], first["task"], first["reward_binary"]) == ("a/t1/rep0/result.json", "t1", 1)
    assert first["result_sha256"] == sha256_file(cell.result)
    assert second["result_path"] == "a/t2/rep0/result.json" and "damaged" in second


def test_a_full_disk_while_publishing_keeps_the_former_result(cell: CellDir) -> None:
    published(cell)
    before = cell.result.read_bytes()
    code = """
import resource, sys
from pathlib import Path
from run_builders import a_result
from windtunnel.store.layout import CellDir
from windtunnel.store.results import new_attempt, publish
cell = CellDir(Path(sys.argv[1]))
number, _ = new_attempt(cell)
resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
try:
    publish(cell, number, a_result(attempt=number))
except OSError:
    print("refused")
"""
    path = os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", code, str(cell.root)],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": path},
    )

    assert done.stdout == "refused\n", done.stderr
    assert cell.result.read_bytes() == before
    assert read_result(cell.result).attempt == 1
    assert not [path for path in cell.root.iterdir() if path.name.startswith(".")]
