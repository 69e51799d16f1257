"""The gateway's record of model calls: `wire.ndjson`, one line when a call starts and one when it ends.

Written by the gateway process only, never by anything a container can reach. No bodies, no credentials.
Usage follows one rule for every dialect: `input` excludes cached tokens, `reasoning` is part of `output`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec

__all__ = ["CallEnded", "CallRefused", "CallStarted", "Record", "RoleUsage", "Tokens", "usage_by_role"]

EndedBy = Literal["complete", "client_disconnect", "upstream_torn", "upstream_unreachable", "timeout"]


class Tokens(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens of one call or a sum of calls; None where the provider did not say."""

    input: int | None = None
    cache_read: int | None = None
    cache_write: int | None = None
    output: int | None = None
    reasoning: int | None = None


class CallStarted(msgspec.Struct, frozen=True, kw_only=True, tag_field="event", tag="call_started"):
    """`thinking_sent`: the effective level field of the request, None when the request has none (this means
    "provider default", never "off"). `thinking_field`: which field it was. `ts`: UTC, ms, Z."""

    call: str
    ts: str
    attempt: str
    route: str
    role: str
    dialect: str
    path: str
    model_asked: str | None
    thinking_field: str | None = None
    thinking_sent: str | None = None
    stream: bool = False
    request_bytes: int = 0


class CallEnded(msgspec.Struct, frozen=True, kw_only=True, tag_field="event", tag="call_ended"):
    """`status`: the provider's HTTP status, None when none arrived. `error_code`: the provider's machine code."""

    call: str
    ts: str
    role: str
    status: int | None
    ended_by: EndedBy
    model_served: str | None = None
    stop_reason: str | None = None
    tokens: Tokens | None = None
    reasoning_seen: bool = False
    error_code: str | None = None
    error_message: str | None = None
    ttft_ms: float | None = None
    duration_ms: float
    response_bytes: int = 0
    parsed: bool = True


class CallRefused(msgspec.Struct, frozen=True, kw_only=True, tag_field="event", tag="call_refused"):
    """The gateway itself said no: nothing was sent to a provider. `reason`: undeclared_role,
    role_bound_reached, bad_token, unknown_route, attempt_closed."""

    ts: str
    attempt: str
    route: str
    role: str
    reason: str
    model_asked: str | None = None
    detail: str = ""


Record = CallStarted | CallEnded | CallRefused


class RoleUsage(msgspec.Struct, frozen=True, kw_only=True):
    """Sum over one role's calls. Token sums cover the calls whose usage is known; `calls_unknown` says how many
    are not covered, so a sum is complete only when that is 0. A token sum is None when no call said."""

    calls: int
    calls_unknown: int
    calls_failed: int
    tokens: Tokens


def _add(a: int | None, b: int | None) -> int | None:
    return b if a is None else a if b is None else a + b


def usage_by_role(records: Iterable[Record]) -> dict[str, RoleUsage]:
    """Fold wire records into usage per role. A call that started and never ended counts as unknown."""
    started: dict[str, str] = {}
    ended: dict[str, CallEnded] = {}
    for record in records:
        if isinstance(record, CallStarted):
            started[record.call] = record.role
        elif isinstance(record, CallEnded):
            ended[record.call] = record
    totals: dict[str, RoleUsage] = {}
    for call, role in started.items():
        totals[role] = _with_call(totals.get(role), ended.get(call))
    return totals


def _with_call(total: RoleUsage | None, end: CallEnded | None) -> RoleUsage:
    total = total or RoleUsage(calls=0, calls_unknown=0, calls_failed=0, tokens=Tokens())
    said = end.tokens if end is not None and end.tokens is not None else None
    failed = end is None or end.status is None or end.status >= 400 or end.error_code is not None
    # A provider that answered an error before generating bills nothing and says nothing: its usage is not
    # "unknown". Unknown is a call that may have generated tokens and never told how many.
    unknown = said is None and (end is None or end.status is None or end.status < 400)
    have, new = total.tokens, said or Tokens()
    tokens = Tokens(**{name: _add(getattr(have, name), getattr(new, name)) for name in Tokens.__struct_fields__})
    return RoleUsage(
        calls=total.calls + 1,
        calls_unknown=total.calls_unknown + unknown,
        calls_failed=total.calls_failed + failed,
        tokens=tokens,
    )
