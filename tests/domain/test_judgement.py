"""What an attempt came to: faults, wire and grade, in this order, and never a 0 for somebody else's failure."""

from __future__ import annotations

from typing import Any

import pytest

from windtunnel.domain.judgement import Facts, Grade, judge, same_model
from windtunnel.domain.outcome import Flag, Reason, Status
from windtunnel.domain.wire import CallEnded, CallRefused, CallStarted, Record

TS = "2026-12-01T00:00:00.000Z"
GOOD = Grade(reward_binary=1, reward_partial=1.0)


def call(number: int, *, asked: str = "m", **ended: Any) -> tuple[Record, Record]:
    start = CallStarted(
        call=str(number), ts=TS, attempt="a#1", route="r", role="executor", dialect="x", path="/", model_asked=asked
    )
    facts = {"status": 200, "ended_by": "complete", "duration_ms": 1.0} | ended
    return start, CallEnded(call=str(number), ts=TS, role="executor", **facts)


def facts(*records: Record, **changes: Any) -> Facts:
    base: dict[str, Any] = {
        "calls_models": True,
        "required_roles": ("executor",),
        "records": records,
        "started": True,
        "exit": 0,
        "settled": True,
        "grade": GOOD,
    }
    return Facts(**(base | changes))


def reason(*records: Record, **changes: Any) -> Reason:
    outcome, _ = judge(facts(*records, **changes))
    return outcome.reason


def test_a_settled_graded_attempt_is_valid_and_has_no_flag() -> None:
    outcome, flags = judge(facts(*call(1)))

    assert (outcome.status, outcome.reason, flags) == (Status.VALID, Reason.GRADED, ())


@pytest.mark.parametrize(
    ("ended", "expected"),
    [
        ({"status": 401}, Reason.PROVIDER_AUTH),
        ({"status": 403, "error_code": "forbidden"}, Reason.PROVIDER_AUTH),
        ({"status": 402}, Reason.PROVIDER_BILLING),
        ({"status": 429, "error_code": "insufficient_quota"}, Reason.PROVIDER_BILLING),
        ({"status": 429}, Reason.RATE_LIMITED),
        ({"status": 404}, Reason.MODEL_NOT_FOUND),
        ({"status": 400, "error_code": "model_not_found"}, Reason.MODEL_NOT_FOUND),
        ({"status": 500}, Reason.PROVIDER_ERROR),
        ({"status": None, "ended_by": "upstream_unreachable"}, Reason.PROVIDER_ERROR),
        ({"status": 200, "ended_by": "upstream_torn"}, Reason.PROVIDER_ERROR),
        ({"status": 200, "error_code": "server_error"}, Reason.PROVIDER_ERROR),
    ],
)
def test_the_last_failed_call_of_a_required_role_decides(ended: dict[str, Any], expected: Reason) -> None:
    assert reason(*call(1), *call(2, **ended)) is expected


def test_an_error_that_was_recovered_from_is_no_outcome() -> None:
    assert reason(*call(1, status=429), *call(2, status=500), *call(3)) is Reason.GRADED


def test_a_bad_request_of_the_agent_is_the_agents_own_affair() -> None:
    assert reason(*call(1), *call(2, status=400, error_code="context_length_exceeded")) is Reason.GRADED


def test_a_call_cut_by_the_end_of_the_agent_is_no_provider_fault() -> None:
    outcome, flags = judge(
        facts(*call(1, status=None, ended_by="client_disconnect"), timed_out=True, exit=None, settled=False)
    )

    assert outcome.reason is Reason.GRADED
    assert flags == (Flag.AGENT_TIMEOUT,)


def test_another_model_than_asked_for_is_never_graded() -> None:
    assert reason(*call(1, model_served="other")) is Reason.MODEL_MISMATCH


@pytest.mark.parametrize(
    ("asked", "served", "same"),
    [
        ("gpt-5.5", "gpt-5.5-2026-04-01", True),
        ("deepseek/deepseek-v4-flash", "deepseek-v4-flash", True),
        ("glm-5.2", "glm-5.2-flash", False),
        ("glm-5.2", "glm-5.1", False),
        ("m", None, True),
    ],
)
def test_which_names_are_one_model(asked: str, served: str | None, same: bool) -> None:
    assert same_model(asked, served) is same


def test_an_undeclared_call_spoils_the_attempt_whatever_was_graded() -> None:
    refused = CallRefused(ts=TS, attempt="a#1", route="r", role="ghost", reason="undeclared_role", model_asked="x")

    assert reason(*call(1), refused) is Reason.UNDECLARED_ROLE


def test_a_reached_bound_is_a_flag() -> None:
    refused = CallRefused(ts=TS, attempt="a#1", route="r", role="executor", reason="role_bound_reached")
    outcome, flags = judge(facts(*call(1), refused))

    assert (outcome.reason, flags) == (Reason.GRADED, (Flag.ROLE_BOUND_REACHED,))


def test_no_call_and_a_failure_means_that_the_agent_never_started() -> None:
    assert reason(exit=1, settled=False) is Reason.AGENT_NEVER_STARTED
    assert reason(exit=None, started=False, settled=False) is Reason.AGENT_NEVER_STARTED


def test_calls_that_only_the_subject_knows_of_are_missing_usage() -> None:
    assert reason(own_calls=4) is Reason.USAGE_MISSING


def test_a_subject_without_a_model_is_judged_by_its_grade() -> None:
    assert reason(calls_models=False, required_roles=(), exit=3) is Reason.GRADED
    assert judge(facts(calls_models=False, required_roles=(), exit=3))[1] == (Flag.AGENT_EXIT,)


def test_a_fault_comes_before_everything_else() -> None:
    assert reason(*call(1), fault=Reason.COLLECT_FAILED) is Reason.COLLECT_FAILED


def test_a_verifier_without_a_grade_is_invalid_with_its_own_reason() -> None:
    outcome, _ = judge(facts(*call(1), grade=Grade(reason=Reason.REWARD_MISSING, detail="no file")))

    assert (outcome.status, outcome.reason, outcome.detail) == (Status.INVALID, Reason.REWARD_MISSING, "no file")


def test_a_cut_call_is_forgiven_only_when_the_subject_settled() -> None:
    assert reason(*call(1), gateway_restarted=True, gateway_cut=1, settled=False) is Reason.GATEWAY_LOST
    outcome, flags = judge(facts(*call(1), gateway_restarted=True, gateway_cut=1))
    assert (outcome.reason, flags) == (Reason.GRADED, (Flag.GATEWAY_RESTARTED,))


def test_facts_stand_beside_the_reward_as_flags() -> None:
    _, flags = judge(facts(*call(1), driver_killed=True, exit=None, oom_events=2, patch_bytes=0))

    assert set(flags) == {Flag.DRIVER_KILLED, Flag.AGENT_OUT_OF_MEMORY, Flag.EMPTY_PATCH}
