"""Archives from a container are the agent's: whatever a tar can say, nothing leaves the target."""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from windtunnel.environments.docker_archive import pack, unpack
from windtunnel.environments.intake import Intake
from windtunnel.environments.interface import Fetched


def member(
    name: str, *, kind: bytes = tarfile.REGTYPE, content: bytes = b"x", link: str = ""
) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.mode = kind, link, 0o6777
    info.size = len(content) if kind == tarfile.REGTYPE else 0
    return info, content


def unpacked(
    target: Path, *members: tuple[tarfile.TarInfo, bytes], limit: int = 10_000, cut: int | None = None
) -> Fetched:
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for info, content in members:
            archive.addfile(info, io.BytesIO(content))
    intake = Intake(target, limit_bytes=limit)
    unpack(io.BytesIO(raw.getvalue()[:cut]), intake)
    return intake.result()


def test_names_that_leave_the_target_are_left_behind(tmp_path: Path) -> None:
    out = tmp_path / "deep" / "out"

    done = unpacked(
        out,
        member("d", kind=tarfile.DIRTYPE),
        member("d/../../escaped"),
        member("../escaped"),
        member("/escaped"),
        member("d//escaped"),
        member("d/./escaped"),
        member("d/ok"),
    )

    assert (done.files, len(done.skipped)) == (1, 5)
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["ok"]


def test_links_devices_and_pipes_are_never_made(tmp_path: Path) -> None:
    kinds = [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE]

    done = unpacked(
        tmp_path / "out",
        *(member(f"d/{number}", kind=kind, link="/etc/passwd") for number, kind in enumerate(kinds)),
        member("d/0/through", content=b"pwned"),
    )

    made = list((tmp_path / "out").rglob("*"))
    assert len(done.skipped) == len(kinds)
    assert not [path for path in made if path.is_symlink() or not (path.is_dir() or path.is_file())]


def test_modes_are_masked_and_a_second_name_is_a_copy(tmp_path: Path) -> None:
    out = tmp_path / "out"

    done = unpacked(out, member("d/one", content=b"same"), member("d/two", kind=tarfile.LNKTYPE, link="d/one"))

    assert done.files == 2
    assert (out / "two").read_bytes() == b"same"
    assert (out / "one").stat().st_ino != (out / "two").stat().st_ino
    assert {path.stat().st_mode & 0o7777 for path in out.iterdir()} == {0o755}


def test_what_is_over_the_limit_stays_out_and_the_rest_comes(tmp_path: Path) -> None:
    done = unpacked(
        tmp_path / "out", member("d/big", content=b"b" * 2000), member("d/small", content=b"s" * 900), limit=1000
    )

    assert (done.files, done.bytes) == (1, 900)
    assert any("big: over the limit" in line for line in done.skipped)


def test_a_cut_archive_keeps_whole_files_only(tmp_path: Path) -> None:
    done = unpacked(
        tmp_path / "out", member("d/one", content=b"1" * 500), member("d/two", content=b"2" * 5000), cut=3000
    )

    assert done.files == 1 and done.skipped
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["one"]


def test_a_file_replaces_a_directory_never_and_a_name_twice_means_the_last(tmp_path: Path) -> None:
    done = unpacked(
        tmp_path / "out",
        member("d/x", content=b"first"),
        member("d/x", content=b"last"),
        member("d/y/z"),
        member("d/y", content=b"file"),
    )

    assert (tmp_path / "out" / "x").read_bytes() == b"last"
    assert (tmp_path / "out" / "y").is_dir()
    assert any(line.startswith("y:") for line in done.skipped)


@settings(max_examples=200, deadline=None, database=None)
@given(data=st.data())
def test_no_archive_writes_outside_the_target(tmp_path_factory, data: st.DataObject) -> None:  # type: ignore[no-untyped-def]
    part = st.sampled_from(["a", "b", "..", ".", "", "x" * 300, "\udcff", "é", "c\x1b[2J"])
    names = st.lists(part, min_size=1, max_size=5).map("/".join)
    kinds = st.sampled_from([tarfile.REGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE])
    entries = data.draw(st.lists(st.tuples(names, kinds, names), max_size=8))
    root = tmp_path_factory.mktemp("u")

    unpacked(root / "out", *(member(name, kind=kind, link=link) for name, kind, link in entries))

    assert [entry for entry in os.listdir(root) if entry != "out"] == []  # noqa: PTH208
    assert not [path for path in root.rglob("*") if path.is_symlink()]


def test_packing_keeps_links_as_links_and_gives_everything_to_root(tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "sub").mkdir(parents=True)
    (source / "sub" / "run").write_text("x")
    (source / "sub" / "run").chmod(0o4711)
    (source / "out").symlink_to("/etc/passwd")
    raw = io.BytesIO()

    pack(source, "/tests", raw)

    raw.seek(0)
    with tarfile.open(fileobj=raw) as archive:
        found = {entry.name: (entry.type, entry.mode, entry.uid, entry.linkname) for entry in archive}
    assert found == {
        "tests": (tarfile.DIRTYPE, 0o755, 0, ""),
        "tests/out": (tarfile.SYMTYPE, 0o777, 0, "/etc/passwd"),
        "tests/sub": (tarfile.DIRTYPE, 0o755, 0, ""),
        "tests/sub/run": (tarfile.REGTYPE, 0o755, 0, ""),
    }
