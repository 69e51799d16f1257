"""The shelf of plans: `plans/<run-id>.json` and its receipt `plans/<run-id>.txt`."""

from __future__ import annotations

from pathlib import Path

import msgspec

from windtunnel.domain.digest import decode, to_json
from windtunnel.domain.plan import Plan
from windtunnel.errors import FileDamaged, InputWrong
from windtunnel.store.files import write_atomic

__all__ = ["read_plan", "write_plan"]

_SCHEMA_VERSION = 1


def read_plan(path: Path) -> Plan:
    """Read a plan file. Raises InputWrong when it is missing or unreadable, FileDamaged when it is not a plan.

    Whether the identity written in it is still true is `require_confirmation`'s question, not this one's.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError as error:
        raise InputWrong(f"{path}: no such plan file. Make one with: windtunnel plan ... --run-id NAME") from error
    except OSError as error:
        raise InputWrong(f"{path}: the plan file cannot be read: {error.strerror}. Mend its permissions.") from error
    try:
        plan = decode(data, Plan)
    except (ValueError, msgspec.MsgspecError, RecursionError) as error:
        raise FileDamaged(path, f"not a plan: {error}", "Plan again") from error
    if plan.schemaVersion != _SCHEMA_VERSION:
        raise FileDamaged(path, f"plan schema {plan.schemaVersion}, this program reads {_SCHEMA_VERSION}", "Plan again")
    return plan


def write_plan(plan: Plan, receipt_text: str) -> None:
    """Write plan and receipt, each as a whole. Raises InputWrong when a plan of another identity is there."""
    plan_file, receipt_file = Path(plan.paths.plan_file), Path(plan.paths.receipt_file)
    _refuse_other(plan_file, plan)
    try:
        for path, data in ((receipt_file, receipt_text.encode("utf-8")), (plan_file, to_json(plan))):
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(path, data)
    except OSError as error:
        where = error.filename or plan_file
        raise InputWrong(
            f"{where}: the plan cannot be written: {error.strerror}. Choose another --plan-out."
        ) from error


def _refuse_other(path: Path, plan: Plan) -> None:
    """A plan file is overwritten only by the same plan; anything else there is kept."""
    if not path.exists() and not path.is_symlink():
        return
    try:
        there = read_plan(path).planIdentity
    except InputWrong as error:
        raise InputWrong(f"{path} is there and is not a plan of this program. Choose another --run-id.") from error
    if there != plan.planIdentity:
        raise InputWrong(
            f"{path} holds another plan ({there}), this one is {plan.planIdentity}. Choose another --run-id, "
            "or move that file away."
        )
