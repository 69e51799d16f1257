"""The tasks shelf: reading, hashing, choosing."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from datasets import tiny
from windtunnel.errors import InputWrong
from windtunnel.store.tasks import (
    list_tasks,
    other_folders,
    read_instruction,
    read_subset,
    read_task,
    select,
    task_dir,
    tree_hash,
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "tasks"
    names = [f"task-{number}" for number in range(10)]
    random.Random(3).shuffle(names)
    for name in names:
        tiny(folder, name)
    return folder


def test_a_task_is_read_with_all_that_lies_beside_it(root: Path) -> None:
    task = read_task(root / "task-0")

    assert (task.id, task.local, task.workdir, task.image.base) == ("task-0", True, "/app", "python:3.12-bookworm")
    assert task.image.context_hash == tree_hash(root / "task-0" / "environment")
    assert read_instruction(root / "task-0").startswith("Write the word")


def test_only_folders_with_a_task_toml_are_tasks(root: Path) -> None:
    (root / "notes").mkdir()
    (root / "readme.md").write_text("x")
    (root / ".git").mkdir()

    assert list_tasks(root) == [f"task-{number}" for number in range(10)]


def test_folders_that_are_no_tasks_are_told_apart(root: Path) -> None:
    for name in ("notes", ".git", "__pycache__"):
        (root / name).mkdir()

    assert other_folders(root) == ["notes"]


@pytest.mark.parametrize("part", ["instruction.md", "tests", "environment"])
def test_a_task_that_lost_its_task_toml_is_named_and_never_dropped(root: Path, part: str) -> None:
    if part.endswith(".md"):
        (root / "half").mkdir()
        (root / "half" / part).write_text("do it")
    else:
        (root / "half" / part).mkdir(parents=True)

    assert "half" in select(root, everything=True).tasks
    assert other_folders(root) == []
    with pytest.raises(InputWrong, match=rf"half/task\.toml is missing, but the folder holds {part}.*Add task\.toml"):
        read_task(root / "half")


def test_a_task_toml_that_is_a_dead_link_is_no_reason_to_drop_the_task(root: Path) -> None:
    (root / "linked").mkdir()
    (root / "linked/task.toml").symlink_to("nowhere")

    assert "linked" in list_tasks(root)
    with pytest.raises(InputWrong, match="leads nowhere"):
        read_task(root / "linked")


@pytest.mark.parametrize(("span", "says"), [("5:60", "Use 5: for the rest"), ("50:60", "Positions are 0 to 9")])
def test_a_range_beyond_the_end_gives_a_hint_that_works(root: Path, span: str, says: str) -> None:
    with pytest.raises(InputWrong, match=says) as caught:
        select(root, span=span)
    assert "Use 50:" not in caught.value.message


def test_a_missing_root_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(InputWrong, match="nowhere"):
        list_tasks(tmp_path / "nowhere")


def test_a_broken_task_is_listed_and_an_error_when_read(root: Path) -> None:
    (root / "task-3" / "task.toml").write_text("= broken")

    assert "task-3" in list_tasks(root)
    with pytest.raises(InputWrong, match=r"tasks/task-3/task.toml: not valid TOML"):
        read_task(root / "task-3")


def _edit(name: str, text: str) -> Callable[[Path], None]:
    return lambda task: (task / name).write_text(text) and None


def _rename(task: Path) -> None:
    (task / "environment/app/readme.txt").rename(task / "environment/app/other.txt")


@pytest.mark.parametrize(
    ("change", "task_side", "verifier_side"),
    [
        (_edit("instruction.md", "Other."), True, False),
        (_edit("environment/app/readme.txt", "x"), True, False),
        (_edit("environment/new.txt", "x"), True, False),
        (_rename, True, False),
        (lambda task: (task / "environment/app/readme.txt").chmod(0o755), True, False),
        (lambda task: (task / "environment/app/empty").mkdir(), True, False),
        (_edit("pre_artifacts.sh", "x"), True, False),
        (_edit("tests/test.sh", "x"), False, True),
        (lambda task: (task / "tests/test.sh").chmod(0o644), False, True),
        (_edit("solution/solve.sh", "x"), False, False),
        (_edit("README.md", "x"), False, False),
        (lambda task: (task / "tests/__pycache__").mkdir(), False, False),
    ],
)
def test_each_change_touches_the_right_revision(
    tmp_path: Path, change: Callable[[Path], None], task_side: bool, verifier_side: bool
) -> None:
    before = read_task(tiny(tmp_path))
    change(tmp_path / "tiny")
    after = read_task(tmp_path / "tiny")

    assert (before.task_revision != after.task_revision) is task_side
    assert (before.verifier_revision != after.verifier_revision) is verifier_side


def test_a_copy_elsewhere_has_the_same_revisions(tmp_path: Path) -> None:
    original = tiny(tmp_path / "one")
    copy = shutil.copytree(original, tmp_path / "two" / "tiny")

    assert read_task(original) == read_task(copy)


def test_a_link_inside_its_tree_is_kept_and_hashed(tmp_path: Path) -> None:
    task = tiny(tmp_path)
    before = read_task(task).task_revision
    (task / "environment/app/link.txt").symlink_to("readme.txt")

    assert read_task(task).task_revision != before


@pytest.mark.parametrize("target", ["/etc/passwd", "../../../outside", "../../tests/test.sh", "nowhere", "link.txt"])
@pytest.mark.parametrize("place", ["environment/app/link.txt", "tests/link.txt", "solution/link.txt"])
def test_a_link_that_leaves_its_tree_is_refused(tmp_path: Path, place: str, target: str) -> None:
    (tmp_path / "outside").write_text("x")
    task = tiny(tmp_path / "root")
    (task / place).symlink_to(target)

    with pytest.raises(InputWrong, match="link"):
        read_task(task)


@pytest.mark.parametrize("name", ["instruction.md", "task.toml", "environment", "tests", "solution"])
def test_a_part_that_is_a_link_out_of_the_task_is_refused(tmp_path: Path, name: str) -> None:
    task = tiny(tmp_path / "root")
    (task / name).rename(tmp_path / "moved")
    (task / name).symlink_to(tmp_path / "moved")

    with pytest.raises(InputWrong, match="link"):
        read_task(task)


def test_a_pipe_in_a_task_is_refused(tmp_path: Path) -> None:
    task = tiny(tmp_path)
    os.mkfifo(task / "environment" / "pipe")

    with pytest.raises(InputWrong, match="neither a file nor a directory"):
        read_task(task)


@pytest.mark.parametrize(
    ("name", "data", "said"),
    [
        ("task.toml", b"\xff", "not UTF-8"),
        ("instruction.md", b"\xff", "not UTF-8"),
        ("instruction.md", b" \n", "missing or empty"),
        ("environment/Dockerfile", b"\xff", "not UTF-8"),
    ],
)
def test_a_bad_file_is_named(tmp_path: Path, name: str, data: bytes, said: str) -> None:
    task = tiny(tmp_path)
    (task / name).write_bytes(data)

    with pytest.raises(InputWrong, match=said) as caught:
        read_task(task)
    assert name in caught.value.message


def test_missing_tests_are_named(tmp_path: Path) -> None:
    task = tiny(tmp_path)
    shutil.rmtree(task / "tests")

    with pytest.raises(InputWrong, match=r"tests/tiny/tests/|tasks/tiny/tests/ is missing"):
        read_task(task)


def test_named_tasks_keep_their_order(root: Path) -> None:
    found = select(root, tasks=["task-7", "task-2"])

    assert (found.kind, found.tasks) == ("tasks", ("task-7", "task-2"))


def test_an_unknown_task_is_named_with_near_ones(root: Path) -> None:
    with pytest.raises(InputWrong, match=r"'tsk-7'.*'task-7'"):
        select(root, tasks=["tsk-7"])


@pytest.mark.parametrize("task", ["..", "../task-1", "task-1/..", "", "/etc", "_runs", "."])
def test_an_id_that_leaves_the_root_is_refused(root: Path, task: str) -> None:
    with pytest.raises(InputWrong):
        select(root, tasks=[task])
    with pytest.raises(InputWrong):
        task_dir(root, task)


def test_a_subset_file_has_comments(root: Path, tmp_path: Path) -> None:
    path = tmp_path / "small.txt"
    path.write_text("# mine\ntask-1\n\n task-3  # good one\n")

    found = select(root, subset=path)

    assert (found.kind, found.name, found.tasks) == ("subset", "small", ("task-1", "task-3"))
    assert read_subset(path) == ["task-1", "task-3"]


@pytest.mark.parametrize("text", ["", "# nothing\n", "task-1\ntask-99\n", "task-1\ntask-1\n"])
def test_a_bad_subset_is_refused(root: Path, tmp_path: Path, text: str) -> None:
    path = tmp_path / "small.txt"
    path.write_text(text)

    with pytest.raises(InputWrong):
        select(root, subset=path)


@pytest.mark.parametrize(
    ("span", "numbers"), [("0:2", [0, 1]), ("8:10", [8, 9]), ("8:", [8, 9]), (":1", [0]), (":", range(10))]
)
def test_a_range_is_half_open_from_zero(root: Path, span: str, numbers: list[int]) -> None:
    assert select(root, span=span).tasks == tuple(f"task-{number}" for number in numbers)


@pytest.mark.parametrize("span", ["3:3", "5:2", "0:11", "-1:2", "a:b", "3", "", "10:"])
def test_a_range_of_nothing_is_refused(root: Path, span: str) -> None:
    with pytest.raises(InputWrong):
        select(root, span=span)


def test_a_sample_is_the_same_on_every_disk_and_grows_by_nesting(root: Path, tmp_path: Path) -> None:
    for number in range(10):
        tiny(tmp_path / "other", f"task-{number}")

    small, large = select(root, sample=3, seed=0), select(tmp_path / "other", sample=6, seed=0)

    assert small.tasks == ("task-4", "task-6", "task-8")
    assert set(small.tasks) < set(large.tasks)
    assert select(root, sample=3, seed=1).tasks != small.tasks
    assert list(large.tasks) == sorted(large.tasks)


@pytest.mark.parametrize("count", [0, -1, 11])
def test_a_sample_that_cannot_be_is_refused(root: Path, count: int) -> None:
    with pytest.raises(InputWrong, match="holds 10 tasks"):
        select(root, sample=count, seed=0)


def test_all_tasks_of_an_empty_root_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputWrong, match="no tasks matched"):
        select(tmp_path, everything=True)


def test_exactly_one_way_to_choose(root: Path) -> None:
    for wrong in ({}, {"everything": True, "span": "0:1"}, {"sample": 1}, {"everything": True, "seed": 1}):
        with pytest.raises(InputWrong):
            select(root, **wrong)  # type: ignore[arg-type]


def test_ids_that_one_folder_would_hold_are_refused(root: Path) -> None:
    tiny(root, "Task-1")

    with pytest.raises(InputWrong, match="differ only in case"):
        select(root, everything=True)
    assert select(root, tasks=["task-1"]).tasks == ("task-1",)
