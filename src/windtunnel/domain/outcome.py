"""What became of a cell: the outcome table, once.

`valid`: graded, counts. `invalid`: something that is not the agent's doing spoilt it, never a score.
`missing`: it did not run. Source: spec page 5, "Outcome table"; docs/reference/outcomes.md shows the same rows.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

__all__ = ["FLAGS", "RULES", "Effect", "Flag", "Outcome", "Reason", "Rule", "Status"]


class Status(StrEnum):
    VALID = "valid"
    INVALID = "invalid"
    MISSING = "missing"


class Effect(StrEnum):
    """What an outcome does to the run beyond its own cell."""

    NONE = "none"
    PAUSE = "pause"
    BREAKER = "breaker"
    BREAKER_AFTER_3 = "breaker_after_3"
    STOP = "stop"


class Reason(StrEnum):
    GRADED = "graded"
    AGENT_NEVER_STARTED = "agent_never_started"
    QUOTA_WINDOW = "quota_window"
    RATE_LIMITED = "rate_limited"
    PROVIDER_ERROR = "provider_error"
    PROVIDER_AUTH = "provider_auth"
    PROVIDER_BILLING = "provider_billing"
    MODEL_NOT_FOUND = "model_not_found"
    MODEL_MISMATCH = "model_mismatch"
    UNDECLARED_ROLE = "undeclared_role"
    THINKING_CONTRADICTED = "thinking_contradicted"
    IMAGE_MISSING = "image_missing"
    IMAGE_BUILD_FAILED = "image_build_failed"
    WRONG_LIBC = "wrong_libc"
    HEALTHCHECK_FAILED = "healthcheck_failed"
    CONTAINER_LOST = "container_lost"
    ENGINE_ERROR = "engine_error"
    GATEWAY_LOST = "gateway_lost"
    COLLECT_FAILED = "collect_failed"
    PATCH_TOO_BIG = "patch_too_big"
    DISK_FULL = "disk_full"
    HOST_HALT = "host_halt"
    VERIFIER_TIMEOUT = "verifier_timeout"
    VERIFIER_ERROR = "verifier_error"
    VERIFIER_OUT_OF_MEMORY = "verifier_out_of_memory"
    REWARD_MISSING = "reward_missing"
    REWARD_MALFORMED = "reward_malformed"
    REWARD_OUT_OF_RANGE = "reward_out_of_range"
    NO_TESTS_RAN = "no_tests_ran"
    USAGE_MISSING = "usage_missing"
    CANCELLED = "cancelled"
    NOT_REACHED = "not_reached"
    BUDGET_REACHED = "budget_reached"
    UNKNOWN = "unknown"


class Flag(StrEnum):
    """Facts about a valid, graded cell that a reader must see beside its reward."""

    AGENT_TIMEOUT = "agent_timeout"
    AGENT_EXIT = "agent_exit"
    AGENT_OUT_OF_MEMORY = "agent_out_of_memory"
    IDLE_TIMEOUT = "idle_timeout"
    OUTPUT_LIMIT = "output_limit"
    DEGENERATE = "degenerate"
    DRIVER_KILLED = "driver_killed"
    EMPTY_PATCH = "empty_patch"
    ROLE_DEGRADED = "role_degraded"
    ROLE_BOUND_REACHED = "role_bound_reached"
    GATEWAY_RESTARTED = "gateway_restarted"


FLAGS = tuple(Flag)


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the outcome table. `retries` is the default of `--cell-retries` for this reason."""

    status: Status
    retries: int = 0
    effect: Effect = Effect.NONE
    verifier_only: bool = False


_VERIFIER = Rule(status=Status.INVALID, retries=2, verifier_only=True)
_INFRASTRUCTURE = Rule(status=Status.INVALID, retries=2)
_FINAL = Rule(status=Status.INVALID)
_BREAKER = Rule(status=Status.INVALID, effect=Effect.BREAKER)
_STOP = Rule(status=Status.INVALID, effect=Effect.STOP)
_MISSING = Rule(status=Status.MISSING)

RULES: dict[Reason, Rule] = {
    Reason.GRADED: Rule(status=Status.VALID),
    Reason.AGENT_NEVER_STARTED: Rule(status=Status.INVALID, retries=1, effect=Effect.BREAKER_AFTER_3),
    Reason.QUOTA_WINDOW: Rule(status=Status.INVALID, effect=Effect.PAUSE),
    Reason.RATE_LIMITED: _INFRASTRUCTURE,
    Reason.PROVIDER_ERROR: _INFRASTRUCTURE,
    Reason.PROVIDER_AUTH: _BREAKER,
    Reason.PROVIDER_BILLING: _BREAKER,
    Reason.MODEL_NOT_FOUND: _BREAKER,
    Reason.MODEL_MISMATCH: _BREAKER,
    Reason.UNDECLARED_ROLE: _BREAKER,
    Reason.THINKING_CONTRADICTED: _BREAKER,
    Reason.IMAGE_MISSING: _FINAL,
    Reason.IMAGE_BUILD_FAILED: _FINAL,
    Reason.WRONG_LIBC: _FINAL,
    Reason.HEALTHCHECK_FAILED: _INFRASTRUCTURE,
    Reason.CONTAINER_LOST: _INFRASTRUCTURE,
    Reason.ENGINE_ERROR: _INFRASTRUCTURE,
    Reason.GATEWAY_LOST: _INFRASTRUCTURE,
    Reason.COLLECT_FAILED: _INFRASTRUCTURE,
    Reason.PATCH_TOO_BIG: _FINAL,
    Reason.DISK_FULL: _STOP,
    Reason.HOST_HALT: _STOP,
    Reason.VERIFIER_TIMEOUT: _VERIFIER,
    Reason.VERIFIER_ERROR: _VERIFIER,
    Reason.VERIFIER_OUT_OF_MEMORY: _VERIFIER,
    Reason.REWARD_MISSING: _VERIFIER,
    Reason.REWARD_MALFORMED: _VERIFIER,
    Reason.REWARD_OUT_OF_RANGE: _VERIFIER,
    Reason.NO_TESTS_RAN: _VERIFIER,
    Reason.USAGE_MISSING: Rule(status=Status.INVALID, retries=1),
    Reason.CANCELLED: _MISSING,
    Reason.NOT_REACHED: _MISSING,
    Reason.BUDGET_REACHED: _MISSING,
    Reason.UNKNOWN: Rule(status=Status.INVALID, retries=1),
}


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """Status and reason always agree with the table; `detail` is one line for people."""

    status: Status
    reason: Reason
    detail: str = ""

    def __post_init__(self) -> None:
        if RULES[self.reason].status is not self.status:
            raise ValueError(f"outcome {self.reason} is {RULES[self.reason].status}, not {self.status}")

    @classmethod
    def of(cls, reason: Reason, detail: str = "") -> Outcome:
        """The outcome a reason stands for."""
        return cls(status=RULES[reason].status, reason=reason, detail=detail)
