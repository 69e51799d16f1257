"""Bundles: the directory with Node, the driver and the agent product that every sandbox gets, read-only.

    <bundle root>/<subject>-<version>-<hash12>/        node, driver.mjs, loop.mjs, node_modules/ for a product from npm
    <bundle root>/<subject>-<version>-<hash12>.json    what it was made from, and its content hash

Bundle root: `$WINDTUNNEL_BUNDLES`, else `windtunnel/bundles` below `$XDG_CACHE_HOME` or `~/.cache`. A bundle is built
once, under a lock, in a directory of its own that is renamed into place: a reader sees the whole of it or nothing.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import platform as machine
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from windtunnel.domain.digest import canonical, to_json
from windtunnel.errors import FileDamaged, InputWrong
from windtunnel.store.files import read_json, sync_directory, write_atomic
from windtunnel.subjects.bundle_content import Recipe, fill, recipe_for

__all__ = [
    "Bundle",
    "BundleRecord",
    "build_bundle",
    "built_bundles",
    "bundle_for",
    "bundle_hash",
    "bundle_root",
    "platform",
    "verify",
]

_GLIBC_AT_LEAST = (2, 28)  # what the Node binary of the wheel is linked against


@dataclass(frozen=True)
class Bundle:
    """A built bundle. `hash`: `sha256:` over path, mode and bytes of every file."""

    path: Path
    hash: str
    subject: str
    version: str


class BundleRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The file beside a bundle. `recipe`: hash of all that it was made from; `node`: version of the Node wheel."""

    schemaVersion: int = 1
    subject: str
    version: str
    platform: str
    node: str
    recipe: str
    hash: str
    files: int
    bytes: int


def platform() -> str:
    """`linux/amd64`. Raises InputWrong, naming what was found, where bundles cannot run."""
    kernel, cpu = sys.platform, machine.machine()
    if kernel != "linux" or cpu not in {"x86_64", "amd64"}:
        raise InputWrong(f"platform {kernel}/{cpu}: bundles are built for linux/amd64 only. Use such a machine.")
    libc, version = machine.libc_ver()
    if libc != "glibc":
        raise InputWrong(
            f"platform linux/amd64 with C library {libc or 'musl'}: bundles need glibc. Use a glibc system."
        )
    if tuple(int(part) for part in version.split(".")[:2]) < _GLIBC_AT_LEAST:
        raise InputWrong(f"glibc {version}: bundles need glibc 2.28 or newer. Use a newer system.")
    return "linux/amd64"


def bundle_root() -> Path:
    """Where bundles lie on this machine."""
    named = os.environ.get("WINDTUNNEL_BUNDLES")
    if named:
        return Path(named).absolute()
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "windtunnel" / "bundles"


def bundle_for(subject_name: str, version: str) -> Bundle:
    """The built bundle of a subject. One that needs nothing from npm is built on first use; else raises InputWrong
    naming the command that builds it."""
    recipe = recipe_for(subject_name, version)
    found = _find(recipe)
    if found is not None:
        return found
    if recipe.lock is not None:
        raise InputWrong(
            f"the bundle of {subject_name}@{version} is not built in {bundle_root()}. "
            f"Build it with: windtunnel subject build {subject_name}@{version}"
        )
    return build_bundle(subject_name, version)


def build_bundle(subject_name: str, version: str) -> Bundle:
    """Build the bundle, or return the one that is there. Raises InputWrong (no lock, wrong platform, npm failed)."""
    recipe = recipe_for(subject_name, version)
    on = platform()
    root = bundle_root()
    root.mkdir(parents=True, exist_ok=True)
    with _locked(root / ".lock"):
        return _find(recipe) or _build(root, recipe, on)


def built_bundles() -> list[Bundle]:
    """Every bundle in the bundle root, by name; a record that cannot be read or has no directory is left out."""
    return [_bundle(path, record) for path, record in _records()]


def verify(bundle: Bundle) -> None:
    """Recompute the content hash. Raises FileDamaged when the bundle is not what it was."""
    now = bundle_hash(bundle.path)
    if now != bundle.hash:
        raise FileDamaged(bundle.path, f"content is {now}, built was {bundle.hash}", "Move it away and build it again")


def bundle_hash(root: Path) -> str:
    """`sha256:` over relative path, exec bit and bytes of every file, sorted by path. Raises FileDamaged for a link or
    special file: a bundle has none."""
    whole = hashlib.sha256()
    for path in sorted(
        root.rglob("*"), key=lambda p: p.relative_to(root).as_posix().encode("utf-8", "surrogateescape")
    ):
        facts = path.lstat()
        if stat.S_ISDIR(facts.st_mode):
            continue
        if not stat.S_ISREG(facts.st_mode):
            raise FileDamaged(path, "not a plain file", "Move the bundle away and build it again")
        with path.open("rb") as file:
            content = hashlib.file_digest(file, "sha256").hexdigest()
        executable = bool(facts.st_mode & stat.S_IXUSR)
        whole.update(canonical([str(path.relative_to(root)), executable, content]) + b"\n")
    return "sha256:" + whole.hexdigest()


def _bundle(path: Path, record: BundleRecord) -> Bundle:
    return Bundle(path=path, hash=record.hash, subject=record.subject, version=record.version)


def _records() -> Iterator[tuple[Path, BundleRecord]]:
    for file in sorted(bundle_root().glob("*.json")):
        with contextlib.suppress(FileDamaged, OSError):
            record = read_json(file, BundleRecord)
            if file.with_suffix("").is_dir():
                yield file.with_suffix(""), record


def _find(recipe: Recipe) -> Bundle | None:
    for path, record in _records():
        if record.recipe == recipe.identity:
            return _bundle(path, record)
    return None


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _build(root: Path, recipe: Recipe, on: str) -> Bundle:
    building = Path(tempfile.mkdtemp(prefix=".building-", dir=root))
    try:
        fill(building, recipe, pool=root)
        _seal(building)
        content = bundle_hash(building)
        path = root / f"{recipe.name}-{recipe.version}-{content.removeprefix('sha256:')[:12]}"
        if not path.exists():
            building.rename(path)
        sync_directory(root)
        record = _record(path, recipe, on, content)
        write_atomic(path.with_name(path.name + ".json"), to_json(record))
        return _bundle(path, record)
    finally:
        _discard(building)


def _record(path: Path, recipe: Recipe, on: str, content: str) -> BundleRecord:
    sizes = [file.stat().st_size for file in path.rglob("*") if file.is_file()]
    return BundleRecord(
        subject=recipe.name,
        version=recipe.version,
        platform=on,
        node=recipe.node,
        recipe=recipe.identity,
        hash=content,
        files=len(sizes),
        bytes=sum(sizes),
    )


def _seal(root: Path) -> None:
    """Read-only, one mode per kind: whatever the umask and npm made of it, and readable for a sandbox's other user."""
    for path in [*root.rglob("*"), root]:
        mode = path.lstat().st_mode
        if stat.S_ISLNK(mode):
            raise FileDamaged(path, "a link", "A bundle holds plain files only; drop it in bundle_content.py")
        path.chmod(0o555 if stat.S_ISDIR(mode) or mode & stat.S_IXUSR else 0o444)


def _discard(root: Path) -> None:
    """Remove what a failed build left; nothing is there after a good one."""
    for folder, _, _ in os.walk(root):
        Path(folder).chmod(0o755)  # a sealed directory cannot be emptied by its owner
    shutil.rmtree(root, ignore_errors=True)
