from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from windtunnel.errors import FileDamaged
from windtunnel.store.files import append_line, read_json, read_lines, repair_tail, write_atomic


class Record(msgspec.Struct, frozen=True):
    name: str
    schemaVersion: int = 1


def limited(limit: int, code: str, *argv: object) -> subprocess.CompletedProcess[str]:
    """Run code where no file may grow beyond `limit` bytes: what a full disk does, without filling one."""
    head = f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}))\n"
    command = [sys.executable, "-c", head + code, *map(str, argv)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def test_a_reader_sees_the_old_bytes_or_the_new_ones(tmp_path: Path) -> None:
    path = tmp_path / "f"
    write_atomic(path, b"old")
    write_atomic(path, b"new")
    assert path.read_bytes() == b"new"
    assert [p.name for p in tmp_path.iterdir()] == ["f"]


def test_a_full_disk_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "f"
    write_atomic(path, b"old")
    code = """
import sys
from pathlib import Path
from windtunnel.store.files import write_atomic
try:
    write_atomic(Path(sys.argv[1]), b"x" * 5000)
except OSError as error:
    print("refused", error.errno)
"""
    done = limited(1000, code, path)

    assert done.stdout.startswith("refused"), done.stderr
    assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["f"]


def test_a_short_write_is_cut_back_and_the_log_stays_whole(tmp_path: Path) -> None:
    path = tmp_path / "log"
    code = """
import os, sys
from windtunnel.store.files import append_line
fd = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
written = refused = 0
for n in range(20):
    try:
        append_line(fd, b"x" * 98 + b"\\n", durable=True)
        written += 1
    except OSError:
        refused += 1
print(written, refused)
"""
    done = limited(1000, code, path)

    assert done.stdout.split() == ["10", "10"], done.stderr
    assert path.read_bytes() == (b"x" * 98 + b"\n") * 10


@settings(deadline=None)
@given(st.lists(st.binary(max_size=8).map(lambda b: b.replace(b"\n", b"")), max_size=5), st.binary(max_size=8))
def test_repair_cuts_exactly_the_torn_tail(lines: list[bytes], tail: bytes) -> None:
    import tempfile

    whole, torn = b"".join(line + b"\n" for line in lines), tail.replace(b"\n", b"")
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "log"
        path.write_bytes(whole + torn)

        assert list(read_lines(path)) == [line + b"\n" for line in lines]
        assert repair_tail(path) == len(torn)
        assert path.read_bytes() == whole
        assert repair_tail(path) == 0


def test_lines_are_split_on_line_feed_only(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes("a\u2028b\rc\x0bd\n".encode())
    assert list(read_lines(path)) == ["a\u2028b\rc\x0bd\n".encode()]
    assert repair_tail(tmp_path / "none") == 0


def test_appending_after_an_error_does_not_join_lines(tmp_path: Path) -> None:
    path = tmp_path / "log"
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    append_line(fd, b"one\n", durable=True)
    append_line(fd, b"two\n", durable=False)
    os.close(fd)
    assert path.read_bytes() == b"one\ntwo\n"


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (b"", "empty"),
        (b" \n", "empty"),
        (b'{"name":"x"', "not a valid Record"),
        (b'{"name":"\xff"}', "not a valid Record"),
        (b'{"name":NaN}', "not a valid Record"),
        (b'{"name":"x","schemaVersion":1e309}', "not a valid Record"),
        (b'{"name":1}', "not a valid Record"),
        (b"{}", "not a valid Record"),
        (b"[" * 100_000, "not a valid Record"),
        (b'{"name":"x"}{"name":"y"}', "not a valid Record"),
        (b'{"name":"x","schemaVersion":7}', "schema 7 is newer than 1"),
        (b'{"other":"x","schemaVersion":7}', "schema 7 is newer than 1"),
    ],
)
def test_a_damaged_file_is_named_with_what_was_found(tmp_path: Path, data: bytes, found: str) -> None:
    path = tmp_path / "r.json"
    path.write_bytes(data)
    with pytest.raises(FileDamaged) as caught:
        read_json(path, Record)
    assert caught.value.found.startswith(found)
    assert str(path) in caught.value.message


def test_a_good_file_is_read_and_a_missing_one_is_missing(tmp_path: Path) -> None:
    (tmp_path / "r").write_bytes(b'{"name":"x"}')
    assert read_json(tmp_path / "r", Record) == Record("x")
    with pytest.raises(FileNotFoundError):
        read_json(tmp_path / "none", Record)
