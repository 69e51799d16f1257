"""What the results tree already holds for a planned cell, read fast and judged by identity."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import msgspec

from windtunnel.domain.cell import Cell
from windtunnel.domain.difference import flatten
from windtunnel.domain.digest import sha256_bytes
from windtunnel.domain.plan import ConfigPlan, Plan, cell_document, cell_identity
from windtunnel.domain.result import Result
from windtunnel.domain.task import Task
from windtunnel.errors import FileDamaged, InputWrong
from windtunnel.store.files import read_json
from windtunnel.store.layout import RunDir

__all__ = ["Stored", "differing_fields", "look"]

_FAST = msgspec.json.Decoder(Result)
_SCHEMA_VERSION = 1


@dataclass(frozen=True)
class Stored:
    """A result.json: parsed, or `result` None when it is unreadable."""

    result: Result | None
    sha256: str


def look(path: Path) -> Stored | None:
    """Read a result.json; None when there is none. Raises InputWrong when the file system does not let us."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InputWrong(
            f"{path}: cannot be read: {error.strerror}. Mend it, or use another --results-root."
        ) from error
    return Stored(_parse(data, path), sha256_bytes(data))


def _parse(data: bytes, path: Path) -> Result | None:
    try:
        result: Result = _FAST.decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        # The slow reader takes what agents print (lone surrogates) and decides.
        try:
            result = read_json(path, Result)
        except (FileDamaged, OSError):
            return None
    return result if result.schemaVersion == _SCHEMA_VERSION else None


def differing_fields(plan: Plan, config: ConfigPlan, task: Task, cell: Cell, result: Result) -> list[str]:
    """The fields in which a stored result is of another identity, best known first.

    The result itself names the revisions, model and subject; the plan of the run that made it, when it is still
    there, names every other field.
    """
    known = {
        "task": (result.task, cell.task),
        "config": (result.config, cell.config),
        "rep": (result.rep, cell.rep),
        "model": (result.model, plan.model),
        "thinking": (result.thinking, str(plan.thinking)),
        "subject.name": (result.subject.name, plan.subject.name),
        "subject.version": (result.subject.version, plan.subject.version),
        "subject.bundle": (result.subject.bundle, plan.subject.bundle),
        "taskRevision": (result.identities.taskRevision, task.task_revision),
        "verifierRevision": (result.identities.verifierRevision, task.verifier_revision),
        "config_fingerprint": (result.identities.config_fingerprint, config.fingerprint),
    }
    fields = [name for name, (then, now) in known.items() if then != now]
    if fields == ["verifierRevision"] and not _is_verifier_alone(plan, config, task, result):
        fields += _from_old_plan(plan, config, task, result)
    return fields or _from_old_plan(plan, config, task, result) or ["a limit, time-out, network, route or image"]


def _is_verifier_alone(plan: Plan, config: ConfigPlan, task: Task, result: Result) -> bool:
    """Whether the plan would have had the stored identity with the stored verifier revision."""
    then = msgspec.structs.replace(task, verifier_revision=result.identities.verifierRevision)
    return cell_identity(plan, config, then) == result.identities.cellIdentity


def _from_old_plan(plan: Plan, config: ConfigPlan, task: Task, result: Result) -> list[str]:
    try:
        old = read_json(RunDir(Path(plan.paths.state_root) / result.run_id).plan, Plan)
        then_config = next(c for c in old.configs if c.name == config.name)
        then_task = next(t for t in old.tasks if t.id == task.id)
    except (FileDamaged, OSError, StopIteration):
        return []
    then, now = flatten(cell_document(old, then_config, then_task)), flatten(cell_document(plan, config, task))
    return [name for name in sorted(then.keys() | now.keys()) if then.get(name) != now.get(name)]
