"""Account and judge: what an attempt used, what became of it, and the record that says so."""

from __future__ import annotations

import shutil
from dataclasses import dataclass

import msgspec

from windtunnel import __version__
from windtunnel.domain.accounting import reconcile, thinking_by_role, usage_of
from windtunnel.domain.digest import to_json
from windtunnel.domain.judgement import Facts, judge
from windtunnel.domain.legacy import legacy_fields
from windtunnel.domain.outcome import Flag, Outcome, Reason
from windtunnel.domain.plan import MEASUREMENT_VERSION
from windtunnel.domain.result import (
    AgentFacts,
    Cost,
    Identities,
    PatchFacts,
    Resources,
    Result,
    SubjectFacts,
    Usage,
)
from windtunnel.domain.wire import Record
from windtunnel.errors import AttemptFault, FileDamaged
from windtunnel.steps.attempt import Work
from windtunnel.steps.bench import Bench
from windtunnel.steps.grading import Graded
from windtunnel.store.box import copy_plain_files
from windtunnel.store.files import write_atomic
from windtunnel.store.layout import AttemptDir
from windtunnel.store.wire import read_wire
from windtunnel.subjects.interface import Account

__all__ = ["Judged", "judge_attempt", "make_result", "search_for_secrets", "take_claims", "used_until_cut"]

CLAIMS_LIMIT_BYTES = 1024 * 1024 * 1024


@dataclass(frozen=True)
class Judged:
    outcome: Outcome
    flags: tuple[Flag, ...]
    usage: Usage
    records: tuple[Record, ...]
    account: Account


def take_claims(work: Work) -> Account:
    """Copy the plain files of the box to logs/box/ and session/ (names in there are the subject's, so nothing of ours
    lies beside them), and read the subject's own account from the copy."""
    claims = work.scratch / "claims"
    left = copy_plain_files(work.dir.box, claims, limit_bytes=CLAIMS_LIMIT_BYTES).skipped
    account = work.bench.subject.account(claims)
    if (claims / "session").is_dir():
        for file in sorted((claims / "session").iterdir()):
            shutil.move(file, work.dir.session / file.name)
        (claims / "session").rmdir()
    shutil.move(claims, work.dir.logs / "box")
    if left:
        note = {"schemaVersion": 1, "left_in_box": left[:1000], "count": len(left)}
        (work.dir.logs / "box-left-out.json").write_bytes(to_json(note))
    return account


def judge_attempt(
    work: Work, account: Account, fault: AttemptFault | None, graded: Graded | None, patch: PatchFacts | None
) -> Judged:
    """Usage from the wire, outcome from the facts."""
    try:
        records = read_wire(work.dir.wire)
    except FileDamaged as damaged:
        records, fault = (), fault or AttemptFault(Reason.GATEWAY_LOST, damaged.message)
    exit_ = work.exit
    required = tuple(role.name for role in work.config.roles if role.activation == "required")
    facts = Facts(
        fault=None if fault is None else Reason(fault.reason),
        fault_detail="" if fault is None else fault.detail,
        calls_models=bool(work.config.roles),
        required_roles=required,
        records=records,
        started=bool(exit_ and exit_.started) or work.driver_killed or work.overdue or work.over_limit is not None,
        exit=exit_.exit if exit_ else None,
        settled=bool(exit_ and exit_.settled),
        timed_out=bool(exit_ and exit_.timed_out) or work.overdue,
        output_limit=work.over_limit is not None,
        driver_killed=work.driver_killed,
        own_calls=account.turns,
        own_error=account.error or (exit_.error if exit_ else None),
        gateway_restarted=bool(work.door and work.door.restarted),
        gateway_cut=work.door.cut if work.door else 0,
        oom_events=work.observed.oom_events if work.observed else None,
        patch_bytes=None if patch is None else patch.bytes,
        grade=graded.grade if graded else None,
    )
    outcome, flags = judge(facts)
    return Judged(outcome, flags, usage_of(records), records, account)


def used_until_cut(directory: AttemptDir) -> Usage | None:
    """What an attempt that nobody accounted had used, None when its wire records cannot be read."""
    try:
        return usage_of(read_wire(directory.wire))
    except FileDamaged:
        return None


async def search_for_secrets(bench: Bench, key: str, directory: AttemptDir) -> None:
    """The gateway, which holds the secrets, searches the attempt's files; its finding becomes part of the attempt."""
    if bench.gateway is None:
        found: object = {
            "schemaVersion": 1,
            "routes": [],
            "files": 0,
            "bytes": 0,
            "hits": [],
            "unread": [],
            "clean": True,
        }
    else:
        found = await bench.gateway.search(key, directory.root)
    write_atomic(directory.secret_search, to_json(found))


def make_result(
    work: Work,
    judged: Judged,
    graded: Graded | None,
    patch: PatchFacts | None,
    *,
    times: tuple[str, str, float],
    attempts: int,
) -> Result:
    """result.json of this attempt. `times`: started_at, finished_at, wall seconds."""
    plan, outcome = work.bench.plan, judged.outcome
    valid = outcome.reason is Reason.GRADED and graded is not None
    result = Result(
        task=work.cell.task,
        config=work.cell.config,
        rep=work.cell.rep,
        model=plan.model,
        thinking=plan.thinking,
        subject=SubjectFacts(name=plan.subject.name, version=plan.subject.version, bundle=plan.subject.bundle),
        outcome=outcome,
        flags=judged.flags,
        reward_binary=graded.grade.reward_binary if valid and graded else None,
        reward_partial=graded.grade.reward_partial if valid and graded else None,
        reward_detail=graded.detail if valid and graded else None,
        tests=graded.tests if graded else None,
        patch=patch,
        agent=_agent_facts(work, judged.account),
        grading="artifacts" if work.task.hand_over == "artifacts" else "agent-filesystem",
        verifier=graded.verifier if graded else None,
        grade=graded.record if graded else None,
        usage=judged.usage,
        cost=Cost(),
        thinking_by_role=thinking_by_role(work.config.roles, judged.records),
        reconciliation=reconcile(judged.usage.total, judged.account.tokens),
        resources=_resources(work),
        attempt=work.number,
        attempts=attempts,
        run_id=plan.run_id,
        identities=_identities(work),
        versions={"windtunnel": __version__, "measurement": str(MEASUREMENT_VERSION)},
        started_at=times[0],
        finished_at=times[1],
        wall_s=times[2],
        legacy={},
    )
    return _with_legacy(result)


def _with_legacy(result: Result) -> Result:
    return msgspec.structs.replace(result, legacy=legacy_fields(result))


def _agent_facts(work: Work, account: Account) -> AgentFacts:
    exit_ = work.exit
    return AgentFacts(
        exit=exit_.exit if exit_ else None,
        settled=account.settled if account.settled is not None else (exit_.settled if exit_ else None),
        timed_out=bool(exit_ and exit_.timed_out) or work.overdue,
        wall_s=work.agent_wall_s,
        turns=account.turns,
        tool_calls=account.tool_calls,
        stop_reason=account.stop_reason,
    )


def _resources(work: Work) -> Resources:
    if work.observed is None:
        return Resources()
    return Resources(peak_memory=work.observed.peak_memory, oom_events=work.observed.oom_events)


def _identities(work: Work) -> Identities:
    return Identities(
        cellIdentity=work.bench.identity(work.cell),
        planIdentity=work.bench.plan.planIdentity,
        taskRevision=work.task.task_revision,
        verifierRevision=work.task.verifier_revision,
        config_fingerprint=work.config.fingerprint,
        image_id=work.image.id if work.image else None,
        verifier_image_id=work.verifier_image.id if work.verifier_image else None,
    )
