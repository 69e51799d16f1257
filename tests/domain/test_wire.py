"""Wire records fold into usage per role; unknown stays visible."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from windtunnel.domain.digest import decode, to_line
from windtunnel.domain.wire import CallEnded, CallRefused, CallStarted, Record, RoleUsage, Tokens, usage_by_role

TS = "2026-12-01T00:00:00.000Z"


def _started(call: str, role: str = "executor") -> CallStarted:
    return CallStarted(
        call=call, ts=TS, attempt="a", route="r", role=role, dialect="openai-completions", path="/", model_asked="m"
    )


def _ended(call: str, tokens: Tokens | None, **changes: Any) -> CallEnded:
    values: dict[str, Any] = {"status": 200, "ended_by": "complete", "role": "executor", "duration_ms": 1.0}
    return CallEnded(call=call, ts=TS, tokens=tokens, **(values | changes))


def test_known_calls_add_up_and_unknown_ones_are_counted() -> None:
    records: list[Record] = [
        _started("1"),
        _ended("1", Tokens(input=10, output=5, reasoning=2)),
        _started("2"),
        _ended("2", Tokens(input=1, cache_read=7, output=1)),
        _started("3"),
        _ended("3", None, ended_by="client_disconnect"),
        _started("4"),
    ]

    assert usage_by_role(records) == {
        "executor": RoleUsage(
            calls=4, calls_unknown=2, calls_failed=1, tokens=Tokens(input=11, cache_read=7, output=6, reasoning=2)
        )
    }


def test_an_error_answer_failed_but_its_usage_is_not_unknown() -> None:
    usage = usage_by_role([_started("1"), _ended("1", None, status=429, error_code="rate_limit_exceeded")])

    assert usage["executor"] == RoleUsage(calls=1, calls_unknown=0, calls_failed=1, tokens=Tokens())


def test_an_error_inside_a_200_failed_and_its_usage_is_unknown() -> None:
    usage = usage_by_role([_started("1"), _ended("1", None, error_code="overloaded")])

    assert (usage["executor"].calls_failed, usage["executor"].calls_unknown) == (1, 1)


def test_roles_are_kept_apart_and_refusals_are_no_calls() -> None:
    refused = CallRefused(ts=TS, attempt="a", route="r", role="spy", reason="undeclared_role")
    usage = usage_by_role([_started("1"), _started("2", "advisor"), refused])

    assert {role: total.calls for role, total in usage.items()} == {"executor": 1, "advisor": 1}


_COUNTS = st.none() | st.integers(0, 10**6)
_TOKENS = st.builds(Tokens, input=_COUNTS, cache_read=_COUNTS, cache_write=_COUNTS, output=_COUNTS, reasoning=_COUNTS)


@given(st.lists(_TOKENS, max_size=8))
def test_a_sum_is_the_sum_of_what_was_told(told: list[Tokens]) -> None:
    records: list[Record] = []
    for number, tokens in enumerate(told):
        records += [_started(str(number)), _ended(str(number), tokens)]
    total = usage_by_role(records).get("executor")

    for name in Tokens.__struct_fields__:
        known = [value for tokens in told if (value := getattr(tokens, name)) is not None]
        assert total is None or getattr(total.tokens, name) == (sum(known) if known else None)


def test_records_survive_the_file() -> None:
    records: list[Record] = [
        _started("1"),
        _ended("1", Tokens(input=1)),
        CallRefused(ts=TS, attempt="a", route="r", role="x", reason="bad_token"),
    ]

    for record in records:
        assert decode(to_line(record), type(record)) == record
