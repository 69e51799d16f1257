"""Usage, thinking and reconciliation of an attempt, from wire records and the subject's own account."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from windtunnel.domain.result import Reconciliation, ThinkingVerdict, Usage
from windtunnel.domain.role import Role
from windtunnel.domain.thinking import verdict
from windtunnel.domain.wire import CallStarted, Record, RoleUsage, Tokens, usage_by_role

__all__ = ["reconcile", "thinking_by_role", "total_usage", "usage_of"]

_COMPARED = ("input", "cache_read", "cache_write", "output")


def usage_of(records: Iterable[Record]) -> Usage:
    """Usage by role and in all."""
    by_role = usage_by_role(records)
    return Usage(by_role=by_role, total=total_usage(by_role))


def total_usage(by_role: Mapping[str, RoleUsage]) -> RoleUsage:
    """The sum over roles; a token kind nobody told of stays None."""
    sums: dict[str, int | None] = {}
    for name in Tokens.__struct_fields__:
        known = [value for usage in by_role.values() if (value := getattr(usage.tokens, name)) is not None]
        sums[name] = sum(known) if known else None
    return RoleUsage(
        calls=sum(u.calls for u in by_role.values()),
        calls_unknown=sum(u.calls_unknown for u in by_role.values()),
        calls_failed=sum(u.calls_failed for u in by_role.values()),
        tokens=Tokens(**sums),
    )


def thinking_by_role(roles: Iterable[Role], records: Iterable[Record]) -> dict[str, ThinkingVerdict]:
    """What each declared role really sent."""
    started = [record for record in records if isinstance(record, CallStarted)]
    return {role.name: verdict(role.thinking, [r for r in started if r.role == role.name]) for role in roles}


def reconcile(wire: RoleUsage, subject: Tokens | None) -> Reconciliation:
    """The wire against the subject's own account; the wire is the truth, a difference is shown, never resolved."""
    if subject is None:
        return Reconciliation(state="not_applicable", wire=wire.tokens)
    if wire.calls_unknown:
        return Reconciliation(
            state="unknown",
            wire=wire.tokens,
            subject=subject,
            detail=f"{wire.calls_unknown} call(s) without usage on the wire",
        )
    if wire.tokens.output is None and subject.output is None:
        return Reconciliation(state="unknown", wire=wire.tokens, subject=subject, detail="nobody told of any output")
    parts = []
    for name in _COMPARED:
        # A kind that one side never mentions (no cache at this provider) equals its 0 on the other side.
        seen, told = getattr(wire.tokens, name) or 0, getattr(subject, name) or 0
        if seen != told:
            parts.append(f"{name}: wire {seen}, subject {told}")
    return Reconciliation(
        state="different" if parts else "reconciled", wire=wire.tokens, subject=subject, detail="; ".join(parts)
    )
