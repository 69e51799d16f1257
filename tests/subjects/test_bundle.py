"""Bundles: the same ingredients give the same hash, one builder at a time, nothing half built is ever found."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from windtunnel.errors import FileDamaged, InputWrong
from windtunnel.subjects import bundle as bundles
from windtunnel.subjects.bundle import build_bundle, built_bundles, bundle_for, bundle_hash, verify
from windtunnel.subjects.bundle_content import locked_versions


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    folder = tmp_path / "bundles"
    monkeypatch.setenv("WINDTUNNEL_BUNDLES", str(folder))
    yield folder
    if folder.exists():  # a bundle is read-only and holds a whole Node
        subprocess.run(["chmod", "-R", "u+w", str(folder)], check=True)
        shutil.rmtree(folder)


def tree(root: Path) -> Path:
    (root / "deep").mkdir(parents=True)
    (root / "a.js").write_text("one")
    (root / "deep" / "b").write_text("two")
    (root / "deep" / "b").chmod(0o755)
    return root


def test_hash_covers_path_mode_and_bytes_and_nothing_else(tmp_path: Path) -> None:
    first, second = tree(tmp_path / "1"), tree(tmp_path / "2")
    known = bundle_hash(first)
    (second / "a.js").chmod(0o600)
    (second / "empty").mkdir()
    assert bundle_hash(second) == known

    (second / "a.js").chmod(0o700)
    assert bundle_hash(second) != known
    (second / "a.js").chmod(0o600)
    (second / "a.js").write_text("One")
    assert bundle_hash(second) != known
    (first / "a.js").rename(first / "c.js")
    assert bundle_hash(first) != known


def test_a_link_in_a_bundle_is_refused(tmp_path: Path) -> None:
    (tree(tmp_path / "1") / "link").symlink_to("a.js")

    with pytest.raises(FileDamaged, match="link"):
        bundle_hash(tmp_path / "1")


def test_base_bundle_is_built_on_first_use_and_found_again(root: Path) -> None:
    made = bundle_for("loop", "1")

    assert made == bundle_for("oracle", "1") == bundle_for("nop", "1")
    assert made.path.parent == root
    assert made.path.name.endswith("-" + made.hash.removeprefix("sha256:")[:12])
    assert sorted(path.name for path in made.path.iterdir()) == ["driver.mjs", "loop.mjs", "node"]
    assert built_bundles() == [made]
    verify(made)
    assert [path.name for path in root.iterdir() if path.name.startswith(".building")] == []
    modes = {path.name: path.stat().st_mode & 0o777 for path in [made.path, *made.path.iterdir()]}
    assert modes == {made.path.name: 0o555, "driver.mjs": 0o444, "loop.mjs": 0o444, "node": 0o555}
    assert subprocess.run([made.path / "node", "-p", "21*2"], capture_output=True, text=True).stdout == "42\n"


def test_a_changed_bundle_is_noticed(root: Path) -> None:
    made = bundle_for("loop", "1")
    (made.path / "driver.mjs").chmod(0o644)
    (made.path / "driver.mjs").write_text("// mine")

    with pytest.raises(FileDamaged, match=made.path.name):
        verify(made)


def test_two_builders_at_once_agree(root: Path) -> None:
    code = "from windtunnel.subjects.bundle import build_bundle; print(build_bundle('loop', '1').hash)"
    started = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) for _ in range(2)]

    said = [process.communicate(timeout=120)[0].strip() for process in started]

    assert said[0] == said[1] == built_bundles()[0].hash
    assert len(built_bundles()) == 1


def test_what_a_killed_builder_left_is_no_bundle(root: Path) -> None:
    (root / ".building-x").mkdir(parents=True)
    (root / "base-1-abc").mkdir()
    (root / "torn-1-abc.json").write_text('{"schemaVersion"')
    (root / "torn-1-abc").mkdir()

    assert built_bundles() == []
    assert build_bundle("loop", "1").path.is_dir()


def test_a_product_that_is_not_built_names_the_command(root: Path) -> None:
    with pytest.raises(InputWrong, match=r"windtunnel subject build pi@1\.6\.0"):
        bundle_for("pi", "1.6.0")


def test_a_version_without_a_lock_names_the_lock_and_those_there_are(root: Path) -> None:
    with pytest.raises(InputWrong, match=r"locks/pi-0\.1\.0/.*Locked: 1\.6\.0"):
        build_bundle("pi", "0.1.0")


def test_locks_hold_exact_versions_and_hashes_and_no_address() -> None:
    lock = Path(bundles.__file__).parent / "locks" / "pi-1.6.0" / "package-lock.json"
    text = lock.read_text()

    assert locked_versions("pi") == ["1.6.0"]
    assert '"resolved"' not in text and "://" not in text
    assert text.count('"integrity": "sha512-') == text.count('"node_modules/') > 100


@pytest.mark.parametrize(
    ("kernel", "cpu", "libc", "says"),
    [
        ("darwin", "arm64", ("", ""), "darwin/arm64"),
        ("linux", "aarch64", ("glibc", "2.36"), "linux/aarch64"),
        ("linux", "x86_64", ("", ""), "musl"),
        ("linux", "x86_64", ("glibc", "2.17"), r"glibc 2\.17"),
    ],
)
def test_platforms_without_bundles_are_refused_by_name(
    monkeypatch: pytest.MonkeyPatch, kernel: str, cpu: str, libc: tuple[str, str], says: str
) -> None:
    monkeypatch.setattr("sys.platform", kernel)
    monkeypatch.setattr("platform.machine", lambda: cpu)
    monkeypatch.setattr("platform.libc_ver", lambda: libc)

    with pytest.raises(InputWrong, match=says):
        bundles.platform()


def test_bundle_root_follows_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("WINDTUNNEL_BUNDLES", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert bundles.bundle_root() == tmp_path / "windtunnel" / "bundles"

    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "me"))
    assert bundles.bundle_root() == tmp_path / "me" / ".cache" / "windtunnel" / "bundles"
