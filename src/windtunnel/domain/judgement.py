"""What became of an attempt, decided from facts: faults first, then the wire, then the grade.

An error that the agent saw and recovered from is not an outcome: only the last call of a required role decides.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import msgspec

from windtunnel.domain.outcome import Flag, Outcome, Reason
from windtunnel.domain.wire import CallEnded, CallRefused, CallStarted, Record

__all__ = ["Facts", "Grade", "judge", "same_model"]

_DATED = re.compile(r"-(\d{4}-\d{2}-\d{2}|\d{8})$")
_NO_MONEY = {"insufficient_quota", "billing_not_active", "insufficient_credits", "billing_error"}
_NO_MODEL = {"model_not_found", "invalid_model"}


class Grade(msgspec.Struct, frozen=True, kw_only=True):
    """What the verifier said: a reward, or the reason why there is none."""

    reward_binary: int | None = None
    reward_partial: float | None = None
    reason: Reason = Reason.GRADED
    detail: str = ""


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """All that an outcome may depend on.

    `fault`: reason of an infrastructure fault that ended the attempt early. `calls_models`: the subject has an executor
    role. `started`, `exit`, `settled`, `timed_out`: the driver's claims. `output_limit`: it
    wrote more than it may. `driver_killed`: it ended without a record.
    `own_calls`: calls by the subject's own account, None when it keeps none. `gateway_cut`: calls whose end was lost
    in a gateway restart. `patch_bytes` None: no patch can be told.
    """

    fault: Reason | None = None
    fault_detail: str = ""
    calls_models: bool
    required_roles: tuple[str, ...] = ()
    records: tuple[Record, ...] = ()
    started: bool = False
    exit: int | None = None
    settled: bool = False
    timed_out: bool = False
    output_limit: bool = False
    driver_killed: bool = False
    own_calls: int | None = None
    own_error: str | None = None
    gateway_restarted: bool = False
    gateway_cut: int = 0
    oom_events: int | None = None
    patch_bytes: int | None = None
    grade: Grade | None = None


def judge(facts: Facts) -> tuple[Outcome, tuple[Flag, ...]]:
    """Outcome and flags of an attempt."""
    flags = _flags(facts)
    for decide in (_from_fault, _from_refusals, _from_wire, _from_start, _from_usage, _from_grade):
        outcome = decide(facts)
        if outcome is not None:
            return outcome, flags
    return Outcome.of(Reason.UNKNOWN, "ended without a fault and without a grade"), flags


def same_model(asked: str | None, served: str | None) -> bool:
    """Whether a provider's answer names the model that was asked for: equal, equal last path segment, or the asked
    name with a release date behind it (OpenAI's documented form of a pinned alias). Unknown counts as the same."""
    if asked is None or served is None:
        return True
    asked_leaf, served_leaf = asked.rsplit("/", 1)[-1], served.rsplit("/", 1)[-1]
    return asked_leaf == served_leaf or _DATED.sub("", served_leaf) == asked_leaf


def _from_fault(facts: Facts) -> Outcome | None:
    return None if facts.fault is None else Outcome.of(facts.fault, facts.fault_detail)


def _from_refusals(facts: Facts) -> Outcome | None:
    for record in facts.records:
        if isinstance(record, CallRefused) and record.reason == "undeclared_role":
            return Outcome.of(Reason.UNDECLARED_ROLE, f"{record.route}/{record.role} asked for {record.model_asked}")
    return None


def _from_wire(facts: Facts) -> Outcome | None:
    asked = {r.call: r for r in facts.records if isinstance(r, CallStarted)}
    # What goes to other paths of a route (a list of models) is no model call and decides nothing.
    ends = [r for r in facts.records if isinstance(r, CallEnded) and _is_model_call(asked.get(r.call))]
    for end in ends:
        started = asked.get(end.call)
        if started and not same_model(started.model_asked, end.model_served):
            return Outcome.of(Reason.MODEL_MISMATCH, f"asked {started.model_asked}, served {end.model_served}")
    if facts.gateway_cut and not facts.settled:
        return Outcome.of(Reason.GATEWAY_LOST, f"{facts.gateway_cut} call(s) cut by a gateway restart")
    return _last_call(ends, facts.required_roles)


def _is_model_call(started: CallStarted | None) -> bool:
    return started is None or started.dialect != "unparsed"


def _last_call(ends: Sequence[CallEnded], roles: Iterable[str]) -> Outcome | None:
    for role in roles:
        last = next((end for end in reversed(ends) if end.role == role), None)
        reason = None if last is None else _classify(last)
        if last is not None and reason is not None:
            said = f"{last.status} {last.error_code or ''} {last.error_message or ''}".strip()
            return Outcome.of(reason, f"last call of {role}: {said}"[:300])
        if last is not None and all(_is_refused(end) for end in ends if end.role == role):
            return Outcome.of(
                Reason.PROVIDER_ERROR, f"no call of {role} was ever answered: {last.status} {last.error_code}"
            )
    return None


def _is_refused(end: CallEnded) -> bool:
    """The provider answered with an error: a role that only ever got these did no work that could be graded."""
    return end.status is not None and end.status >= 400


def _classify(end: CallEnded) -> Reason | None:
    """The reason code of a failed call, from status and machine code only; None when it did not fail."""
    code, status = end.error_code or "", end.status
    if end.ended_by == "client_disconnect" and not code and (status is None or status < 400):
        return None  # the agent hung up on an answer that was good so far
    if status in (401, 403):
        return Reason.PROVIDER_AUTH
    if status == 402 or code in _NO_MONEY:
        return Reason.PROVIDER_BILLING
    if code in _NO_MODEL or status == 404:
        return Reason.MODEL_NOT_FOUND
    if status == 429:
        return Reason.RATE_LIMITED
    broken = status is None or status >= 500 or end.ended_by != "complete"
    return Reason.PROVIDER_ERROR if broken or (code and status == 200) else None


def _from_start(facts: Facts) -> Outcome | None:
    called = any(isinstance(r, CallStarted) for r in facts.records)
    if facts.calls_models and not called and (not facts.started or facts.exit != 0 or facts.own_error):
        return Outcome.of(Reason.AGENT_NEVER_STARTED, facts.own_error or f"no model call, exit {facts.exit}")
    if not facts.calls_models and not facts.started and not facts.driver_killed:
        return Outcome.of(Reason.AGENT_NEVER_STARTED, facts.own_error or "the subject was not started")
    return None


def _from_usage(facts: Facts) -> Outcome | None:
    called = any(isinstance(r, CallStarted) for r in facts.records)
    if facts.own_calls and not called:
        return Outcome.of(Reason.USAGE_MISSING, f"the subject tells of {facts.own_calls} call(s), the wire of none")
    return None


def _from_grade(facts: Facts) -> Outcome | None:
    return None if facts.grade is None else Outcome.of(facts.grade.reason, facts.grade.detail)


def _flags(facts: Facts) -> tuple[Flag, ...]:
    bound = any(isinstance(r, CallRefused) and r.reason == "role_bound_reached" for r in facts.records)
    told = {
        Flag.AGENT_TIMEOUT: facts.timed_out,
        Flag.AGENT_EXIT: not facts.timed_out and facts.exit not in (0, None),
        Flag.AGENT_OUT_OF_MEMORY: bool(facts.oom_events),
        Flag.OUTPUT_LIMIT: facts.output_limit,
        Flag.DRIVER_KILLED: facts.driver_killed,
        Flag.EMPTY_PATCH: facts.patch_bytes == 0,
        Flag.ROLE_BOUND_REACHED: bound,
        Flag.GATEWAY_RESTARTED: facts.gateway_restarted,
    }
    return tuple(flag for flag, holds in told.items() if holds)
