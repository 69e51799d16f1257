"""Drift: is what the next cell will use still what the plan approved?"""

from __future__ import annotations

import errno
import shutil
from pathlib import Path

from windtunnel.domain.cell import Cell
from windtunnel.domain.events import Kind
from windtunnel.errors import Drifted, InputWrong
from windtunnel.steps.bench import Bench
from windtunnel.store.files import sha256_file
from windtunnel.store.tasks import read_task, tree_hash

__all__ = ["keep_graders", "require_no_drift", "tell_drift"]


def tell_drift(bench: Bench, cell: Cell, error: Drifted) -> None:
    """Write the run's one launch_input_drift event, whichever worker saw it first."""
    if bench.drift_told:
        return
    bench.drift_told = True
    facts = {"what": error.what, "where": error.where, "approved": error.planned, "observed": error.now}
    bench.journal.event(Kind.LAUNCH_INPUT_DRIFT, cell=cell.id, **facts)


def require_no_drift(bench: Bench, cell: Cell) -> None:
    """Re-read the run's own config copies and the task. Raises Drifted naming the file and both values."""
    config, task = bench.config(cell), bench.task(cell)
    for file in config.files:
        path = bench.run.inputs / config.name / file.path
        now = sha256_file(path) if path.is_file() else "missing"
        if now != file.sha256:
            raise Drifted(f"config {config.name}", path, file.sha256, now)
    try:
        found = read_task(bench.task_dir(task))
    except InputWrong as error:
        raise Drifted(f"task {task.id}", bench.task_dir(task), task.task_revision, error.message) from error
    for what, planned, now in (
        ("task revision", task.task_revision, found.task_revision),
        ("verifier revision", task.verifier_revision, found.verifier_revision),
    ):
        if planned != now:
            raise Drifted(f"{what} of {task.id}", bench.task_dir(task), planned, now)


def keep_graders(bench: Bench, cell: Cell, target: Path) -> None:
    """Copy tests/ and pre_artifacts.sh to `target`, and see that they are the approved ones: whatever happens to the
    task while an agent works, its attempt is graded by what the plan says. Raises Drifted, OSError."""
    source = bench.task_dir(bench.task(cell))
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    if (source / "tests").is_dir():
        shutil.copytree(source / "tests", target / "tests", symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    if (source / "pre_artifacts.sh").is_file():
        shutil.copy2(source / "pre_artifacts.sh", target)
    require_no_drift(bench, cell)
    # The source is the approved one now; so is the copy, if it is like the source.
    if (source / "tests").is_dir() and tree_hash(source / "tests") != tree_hash(target / "tests"):
        raise OSError(errno.EIO, "the copy of the tests is not like the original", str(target / "tests"))
