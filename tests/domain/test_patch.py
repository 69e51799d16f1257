"""A patch from two trees: git takes it back, byte for byte, where the files are text."""

from __future__ import annotations

import subprocess
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from windtunnel.domain.patch import count_files, tree_patch

TEXT = st.text(alphabet=st.sampled_from("ab \n"), max_size=30).map(lambda t: t.encode())
TREE = st.dictionaries(st.sampled_from(["a.txt", "b.txt", "d/c.txt"]), TEXT, max_size=3)


def write(root: Path, tree: dict[str, bytes]) -> None:
    for name, data in tree.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)


def read(root: Path) -> dict[str, bytes]:
    return {p.relative_to(root).as_posix(): p.read_bytes() for p in root.rglob("*") if p.is_file()}


@settings(max_examples=40, deadline=None)
@given(before=TREE, after=TREE)
def test_git_applies_it_and_gets_the_other_tree(
    tmp_path_factory: object, before: dict[str, bytes], after: dict[str, bytes]
) -> None:
    root = tmp_path_factory.mktemp("tree")  # type: ignore[attr-defined]
    write(root, before)
    patch = tree_patch(before, after)
    if patch:
        argv = ["git", "apply", "--unsafe-paths", "-p1", "-"]
        done = subprocess.run(argv, cwd=root, input=patch, capture_output=True)
        assert done.returncode == 0, (patch, done.stderr)

    assert read(root) == after


def test_equal_trees_give_an_empty_patch() -> None:
    assert tree_patch({"a": b"x"}, {"a": b"x"}) == b""


def test_binary_files_are_named_with_their_hashes_and_counted() -> None:
    patch = tree_patch({"a.bin": b"\0old"}, {"a.bin": b"\0new", "b.txt": b"x\n"})

    assert b"Binary files differ: " in patch
    assert count_files(patch) == 2
