"""The tasks shelf: task folders on disk, read, hashed and chosen.

A folder with a task.toml is a task, and so is one that only lacks it: broken. A broken task is an error when it is
chosen, and is never dropped. Other folders are counted. Hashes leave out `__pycache__` (made by whoever imports a file,
pip included); nothing else.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from importlib import resources
from pathlib import Path

from windtunnel.domain.cell import folder
from windtunnel.domain.digest import identity
from windtunnel.domain.plan import Selection
from windtunnel.domain.selection import all_of, named, sampled, sliced
from windtunnel.domain.task import Task
from windtunnel.domain.task_toml import TaskFiles, parse_task
from windtunnel.errors import InputWrong
from windtunnel.store.files import sha256_file

__all__ = [
    "bundled_root",
    "list_tasks",
    "other_folders",
    "read_instruction",
    "read_subset",
    "read_task",
    "select",
    "task_dir",
    "tree",
    "tree_hash",
]

SKIPPED = "__pycache__"
_SHAPE = ("instruction.md", "tests", "environment")
_COMPOSE = ("docker-compose.yaml", "docker-compose.yml")


def bundled_root() -> Path:
    """The folder of the tasks that come with the package."""
    return Path(str(resources.files("windtunnel"))) / "tasks"


def list_tasks(root: Path) -> list[str]:
    """Sorted ids of the task folders below a root, broken ones too. Raises InputWrong when the root is no directory."""
    return [name for name in _folders(root) if _looks_like_task(root / name)]


def other_folders(root: Path) -> list[str]:
    """Sorted names of the folders below a root that are no tasks; hidden ones left out. Raises InputWrong."""
    hidden = (".", SKIPPED)
    return [name for name in _folders(root) if not name.startswith(hidden) and not _looks_like_task(root / name)]


def _folders(root: Path) -> list[str]:
    try:
        return sorted(entry.name for entry in os.scandir(root) if entry.is_dir())
    except OSError as error:
        raise InputWrong(f"tasks root {root}: {error.strerror}. Name a directory of task folders.") from error


def _looks_like_task(directory: Path) -> bool:
    if os.path.lexists(directory / "task.toml"):
        return True
    return not directory.name.startswith(".") and bool(_task_parts(directory))


def _task_parts(directory: Path) -> list[str]:
    return [part for part in _SHAPE if os.path.lexists(directory / part)]


def task_dir(root: Path, task_id: str) -> Path:
    """The folder of a task; the id stays one path segment. Raises InputWrong for an id that would not."""
    problem = folder(task_id)
    if problem is not None:
        raise InputWrong(f"task id {task_id!r} cannot be used: {problem}.")
    return root / task_id


def read_task(directory: Path) -> Task:
    """The task in a folder, resolved and hashed. Raises InputWrong naming the file and what is wrong in it."""
    text = _text(directory / "task.toml")
    if text is None:
        parts = ", ".join(_task_parts(directory))
        if not parts:
            raise InputWrong(f"{directory}/task.toml is missing: this folder is not a task.")
        raise InputWrong(
            f"{directory}/task.toml is missing, but the folder holds {parts} like a task. Add task.toml, or move the "
            "folder out of the tasks root."
        )
    return parse_task(text, task_id=directory.name, facts=_facts(directory))


def read_instruction(directory: Path) -> str:
    """What the agent is told: instruction.md, byte for byte as text. Raises InputWrong when missing or blank."""
    text = _text(directory / "instruction.md")
    if text is None or not text.strip():
        raise InputWrong(f"{directory}/instruction.md is missing or empty. Add it: it is what the agent is told.")
    return text


def read_subset(path: Path) -> list[str]:
    """The ids of a subset file: one a line, `#` starts a comment."""
    text = _text(path)
    if text is None:
        raise InputWrong(f"subset file {path} is missing. Write one task id a line into it.")
    lines = (line.split("#", 1)[0].strip() for line in text.splitlines())
    return [line for line in lines if line]


def select(
    root: Path,
    *,
    tasks: Sequence[str] = (),
    subset: Path | None = None,
    span: str | None = None,
    everything: bool = False,
    sample: int | None = None,
    seed: int | None = None,
) -> Selection:
    """The tasks that exactly one of --tasks, --subset, --range, --all-tasks or --sample (with --seed) asks for.

    Raises InputWrong for none or several of them, for an empty selection and for unknown ids (near ones named).
    """
    given = [bool(tasks), subset is not None, span is not None, everything, sample is not None]
    if sum(given) != 1:
        raise InputWrong("choose tasks by exactly one of --tasks, --subset, --range, --all-tasks, --sample.")
    if (sample is None) != (seed is None):
        raise InputWrong("--sample N and --seed S belong together.")
    known, where = list_tasks(root), str(root)
    if subset is not None:
        ids = named(known, read_subset(subset), f"{where} (subset {subset})")
        return Selection(kind="subset", tasks=ids, name=subset.stem)
    if span is not None:
        return Selection(kind="range", tasks=sliced(known, span, where), name=span)
    if sample is not None and seed is not None:
        return Selection(kind="sample", tasks=sampled(known, sample, seed, where), seed=seed)
    if everything:
        return Selection(kind="all", tasks=all_of(known, where))
    return Selection(kind="tasks", tasks=named(known, tasks, where))


def tree(root: Path) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """(relative name, entry) of all that a tree holds, sorted, `__pycache__` left out; links are not followed.

    Raises InputWrong for a link that leaves the tree and for what is no file, directory or link.
    """
    real = root.resolve()
    yield from _walk(root, "", real)


def tree_hash(root: Path) -> str | None:
    """`sha256:` over names, exec bits and contents (a link: its text) of a tree; None when it is not there."""
    if not root.is_dir():
        return None
    entries: list[list[str]] = []
    for name, entry in tree(root):
        if entry.is_symlink():
            entries.append([name, "link", str(Path(entry.path).readlink())])
        elif entry.is_dir():
            entries.append([name, "directory", ""])
        else:
            executable = entry.stat().st_mode & stat.S_IXUSR
            entries.append([name, "executable" if executable else "file", sha256_file(Path(entry.path))])
    return identity(entries)


def _walk(directory: Path, prefix: str, real: Path) -> Iterator[tuple[str, os.DirEntry[str]]]:
    with os.scandir(directory) as found:
        entries = sorted((entry for entry in found if entry.name != SKIPPED), key=lambda entry: entry.name)
    for entry in entries:
        if entry.is_symlink():
            _check_link(Path(entry.path), real)
        elif not entry.is_dir() and not entry.is_file():
            raise InputWrong(f"{entry.path}: neither a file nor a directory. Remove it from the task.")
        yield prefix + entry.name, entry
        if entry.is_dir(follow_symlinks=False):
            yield from _walk(Path(entry.path), f"{prefix}{entry.name}/", real)


def _check_link(link: Path, inside: Path) -> None:
    try:
        target = link.resolve(strict=True)
    except (OSError, RuntimeError) as error:
        raise InputWrong(f"{link}: the link leads nowhere. Mend or remove it.") from error
    if link.readlink().is_absolute() or not target.is_relative_to(inside):
        raise InputWrong(f"{link}: the link leads out of {inside}. Put the file itself there.")


def _text(path: Path) -> str | None:
    """A text file inside a task; None when it is not there."""
    try:
        if path.is_symlink():
            _check_link(path, path.parent.resolve())
        return path.read_bytes().decode("utf-8")
    except FileNotFoundError:
        return None
    except UnicodeDecodeError as error:
        raise InputWrong(f"{path}: not UTF-8 text (byte {error.start}). Save it as UTF-8.") from error
    except OSError as error:
        raise InputWrong(f"{path}: cannot be read: {error.strerror}.") from error


def _facts(directory: Path) -> TaskFiles:
    instruction = _text(directory / "instruction.md")
    collect = directory / "pre_artifacts.sh"
    solution = directory / "solution"
    for part in (directory / "environment", directory / "tests", solution):
        if part.is_symlink():
            _check_link(part, directory.resolve())
    for _ in tree(solution) if solution.is_dir() else ():
        pass  # only to refuse links that leave it
    try:
        return TaskFiles(
            instruction_sha256=sha256_file(directory / "instruction.md") if (instruction or "").strip() else None,
            environment_hash=tree_hash(directory / "environment"),
            dockerfile=_text(directory / "environment" / "Dockerfile"),
            compose=tuple(name for name in _COMPOSE if (directory / "environment" / name).exists()),
            tests_hash=tree_hash(directory / "tests"),
            test_script=(directory / "tests" / "test.sh").is_file(),
            tests_dockerfile=_text(directory / "tests" / "Dockerfile"),
            solution=(solution / "solve.sh").is_file(),
            steps_folder=(directory / "steps").is_dir(),
            pre_artifacts_sha256=sha256_file(collect) if collect.is_file() else None,
        )
    except OSError as error:
        raise InputWrong(f"{directory}: cannot be read: {error.strerror} ({error.filename}).") from error
