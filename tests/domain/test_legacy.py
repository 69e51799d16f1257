from __future__ import annotations

import msgspec

from run_builders import a_result, some_usage
from windtunnel.domain.digest import to_json
from windtunnel.domain.legacy import legacy_fields
from windtunnel.domain.outcome import Outcome, Reason
from windtunnel.domain.result import AgentFacts, Usage, VerifierFacts
from windtunnel.domain.wire import RoleUsage, Tokens


def test_known_facts_stand_under_the_old_names() -> None:
    fields = legacy_fields(a_result())

    assert fields["thinking_level"] == "high"
    assert (fields["reward_binary"], fields["reward_partial"], fields["reward_unverified"]) == (1, 1.0, False)
    assert (fields["f2p"], fields["p2p"]) == (0.5, None)
    assert (fields["input_tokens"], fields["cache_read_tokens"], fields["cache_write_tokens"]) == (10, 2, None)
    assert fields["total_tokens"] == fields["combined_total_tokens"] == 15
    assert (fields["agent_exit"], fields["turns"], fields["completions"]) == (0, 2, 1)
    to_json(fields)


def test_unknown_stays_null_and_no_key_is_left_out() -> None:
    fields = legacy_fields(a_result())

    assert fields["cost_usd"] is None and fields["combined_cost_usd"] is None
    assert fields["advisor_calls"] is None and fields["om_observer_total_tokens"] is None
    assert "arm_pi_flags" in fields and fields["arm_pi_flags"] is None


def test_a_sum_that_misses_a_call_is_null() -> None:
    used = RoleUsage(calls=2, calls_unknown=1, calls_failed=0, tokens=Tokens(input=10, output=1))
    fields = legacy_fields(a_result(usage=Usage(by_role={"executor": used}, total=used)))

    assert fields["completions"] == 2
    assert [fields[f"{name}_tokens"] for name in ("input", "output", "total", "combined_total")] == [None] * 4


def test_an_invalid_cell_has_no_reward_and_says_so() -> None:
    broken = a_result(
        outcome=Outcome.of(Reason.VERIFIER_TIMEOUT),
        reward_binary=None,
        reward_partial=None,
        reward_detail=None,
        agent=AgentFacts(timed_out=True),
        verifier=VerifierFacts(exit=None, wall_s=1.0, attempts=3),
    )
    fields = legacy_fields(broken)

    assert (fields["reward_binary"], fields["reward_unverified"]) == (None, True)
    assert (fields["agent_exit"], fields["verifier_exit"]) == ("timeout", "timeout")


def test_roles_are_told_apart() -> None:
    one = some_usage(10).by_role["executor"]
    both = a_result(usage=Usage(by_role={"executor": one, "advisor": one}, total=one))
    fields = legacy_fields(both)

    assert (fields["advisor_calls"], fields["advisor_input_tokens"]) == (1, 10)
    assert fields["cost_usd"] is None
    assert legacy_fields(msgspec.structs.replace(both, legacy={"x": 1})) == fields
