"""The checks that every smoke cell must pass, whatever its contract says: did the agent really work as planned?

Usage, roles and thinking are folded from wire records here, never taken from the result. For a subject without a
model role only `settled` and `graded` are checked, the others do not apply.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from windtunnel.domain.accounting import thinking_by_role, usage_of
from windtunnel.domain.contract import Assertion, bounded
from windtunnel.domain.outcome import Reason, Status
from windtunnel.domain.result import Result
from windtunnel.domain.role import Role
from windtunnel.domain.wire import CallEnded, CallStarted, Record

__all__ = ["SmokeFacts", "generic_checks"]

_GOOD_ENOUGH = ("proven", "consistent")


class SmokeFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What the checks look at. `result` None: there is none, `problem` says why. `wire_problem`: why the records
    cannot be read. `sessions`: names of session files that are not empty. `attempt`: the attempt's name in the cell."""

    result: Result | None
    problem: str = ""
    records: tuple[Record, ...] = ()
    wire_problem: str = ""
    sessions: tuple[str, ...] = ()
    attempt: str = "current"
    roles: tuple[Role, ...] = ()
    allow_unproven: tuple[str, ...] = ()
    calls_models: bool


def generic_checks(facts: SmokeFacts) -> tuple[Assertion, ...]:
    """All generic checks, in a fixed order."""
    return (_settled(facts), _graded(facts), *(_of_model(facts) if facts.calls_models else _not_applicable()))


def _check(kind: str, target: str, passed: bool, expected: str, found: object) -> Assertion:
    return Assertion(kind=kind, target=target, passed=passed, expected=expected, found=bounded(found))


def _settled(facts: SmokeFacts) -> Assertion:
    result = facts.result
    if result is None:
        return _check("settled", "result.json", False, "the subject said that it was done", facts.problem)
    agent = result.agent
    found = f"settled {_word(agent.settled)}, timed out {_word(agent.timed_out)}, exit {_word(agent.exit)}"
    passed = agent.settled is True and not agent.timed_out
    return _check("settled", "result.json", passed, "the subject said that it was done", found)


def _word(value: object) -> str:
    return "unknown" if value is None else {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)


def _graded(facts: SmokeFacts) -> Assertion:
    result = facts.result
    if result is None:
        return _check("graded", "result.json", False, "a reward", facts.problem)
    passed = result.outcome.reason is Reason.GRADED and result.reward_partial is not None
    found = f"{result.outcome.reason}, reward {_word(result.reward_partial)}"
    return _check("graded", "result.json", passed, "a reward", found)


def _not_applicable() -> Iterator[Assertion]:
    for kind in ("outcome_valid", "usage_above_zero", "session_present", "wire_records_present", "thinking_consistent"):
        yield Assertion(kind=kind, target="", passed=None, expected="a model role", found="not applicable")
    yield Assertion(kind="role_seen", target="", passed=None, expected="a model role", found="not applicable")


def _of_model(facts: SmokeFacts) -> Iterator[Assertion]:
    yield _outcome(facts)
    yield _usage(facts)
    sessions = f"{len(facts.sessions)} file(s) {', '.join(facts.sessions[:3])}".strip()
    yield _check("session_present", f"{facts.attempt}/session", bool(facts.sessions), "a session file", sessions)
    calls = sum(isinstance(record, CallStarted) for record in facts.records)
    found = facts.wire_problem or f"{calls} call(s)"
    yield _check("wire_records_present", _wire(facts), calls > 0 and not facts.wire_problem, "model calls", found)
    for role in facts.roles:
        if role.activation == "required":
            yield _thinking(facts, role)
            yield _seen(facts, role)


def _wire(facts: SmokeFacts) -> str:
    return f"{facts.attempt}/wire.ndjson"


def _outcome(facts: SmokeFacts) -> Assertion:
    result = facts.result
    if result is None:
        return _check("outcome_valid", "result.json", False, "valid", facts.problem)
    found = f"{result.outcome.status}: {result.outcome.reason} {result.outcome.detail}".strip()
    return _check("outcome_valid", "result.json", result.outcome.status is Status.VALID, "valid", found)


def _usage(facts: SmokeFacts) -> Assertion:
    tokens = usage_of(facts.records).total.tokens
    found = facts.wire_problem or f"input {_word(tokens.input)}, output {_word(tokens.output)}"
    passed = not facts.wire_problem and (tokens.input or 0) + (tokens.output or 0) > 0
    return _check("usage_above_zero", _wire(facts), passed, "tokens above zero", found)


def _thinking(facts: SmokeFacts, role: Role) -> Assertion:
    seen = thinking_by_role([role], facts.records)[role.name]
    allowed = role.name in facts.allow_unproven
    passed = seen.verdict in _GOOD_ENOUGH or (allowed and seen.verdict == "unknown")
    expected = "consistent or better" + (", unknown is allowed by the plan" if allowed else "")
    sent = f"{seen.field}={seen.sent}" if seen.field else "nothing"
    found = f"{seen.verdict}: requested {seen.requested}, on the wire {sent}"
    return _check(f"thinking_consistent:{role.name}", _wire(facts), passed, expected, found)


def _seen(facts: SmokeFacts, role: Role) -> Assertion:
    answered = sum(isinstance(r, CallEnded) and r.role == role.name and r.status == 200 for r in facts.records)
    found = f"{answered} answered call(s)"
    return _check(f"role_seen:{role.name}", _wire(facts), answered > 0, "a call that the provider answered", found)
