"""A result under deep-swe-bench's flat field names, so that operators' scripts go on reading `result.json`.

Names: the record format of that harness (schema 2). What we do not know, or what has no counterpart here, is null:
also a token sum that does not cover every call. Keys are never left out.
"""

from __future__ import annotations

from typing import Any

from windtunnel.domain.outcome import Flag, Reason, Status
from windtunnel.domain.result import Result
from windtunnel.domain.role import EXECUTOR
from windtunnel.domain.wire import RoleUsage

__all__ = ["legacy_fields"]

_KINDS = {"input": "input", "output": "output", "cache_read": "cache_read", "cache_write": "cache_write"}
_MEMORY_ROLES = ("observer", "reflector", "dropper")
_GRADE = ("f2p", "p2p", "f2p_passed", "f2p_total", "p2p_passed", "p2p_total")
# Of that harness's record, without a counterpart here.
_NULL = (
    "language",
    "category",
    "config_version",
    "arm_pi_flags",
    "arm_settings",
    "arm_advisor",
    "arm_models",
    "system_preamble_chars",
    "orchestration_chars",
    "append_system_prompt_chars",
    "openai_codex_oauth_passed",
    "initial_context_capture_enabled",
    "initial_context_path",
    "preflight_passed",
    "degeneration_watchdog_policy",
    "agent_degeneration_watchdog",
    "subject_memory_events",
    "verifier_memory_events",
    "verifier_resource_evidence_unavailable",
    "verifier_resource_diagnostic",
    "config_lock_identity",
    "harness_revision",
    "resource_policy",
)


def legacy_fields(result: Result) -> dict[str, Any]:
    """The flat record. Never reads `result.legacy`."""
    return (
        dict.fromkeys(_NULL)
        | _identity(result)
        | _grade(result)
        | _agent(result)
        | _usage(result)
        | _role_usage(result, "advisor", "advisor")
        | _memory_usage(result)
    )


def _identity(result: Result) -> dict[str, Any]:
    identities = result.identities
    return {
        "task": result.task,
        "config": result.config,
        "config_name": result.config,
        "model": result.model,
        "thinking_level": result.thinking,
        "rep": result.rep,
        "launch_plan_identity": identities.planIdentity,
        "immutable_image_identities": {
            "agent": identities.image_id,
            "environment": None,
            "verifier": identities.verifier_image_id,
        },
        "subject": result.subject.name,
        "subject_version": result.subject.version,
        "subject_runtime_identity": result.subject.bundle,
        "task_revision": identities.taskRevision,
        "verifier_identity": identities.verifierRevision,
    }


def _grade(result: Result) -> dict[str, Any]:
    detail = result.reward_detail or {}
    return {
        "reward_binary": result.reward_binary,
        "reward_partial": result.reward_partial,
        "reward_unverified": result.outcome.status is not Status.VALID,
        **{name: _number(detail.get(name)) for name in _GRADE},
    }


def _number(value: Any) -> int | float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _agent(result: Result) -> dict[str, Any]:
    agent, reason = result.agent, result.outcome.reason
    verifier_exit: int | str | None = result.verifier.exit if result.verifier else None
    verifier_exit = {Reason.VERIFIER_TIMEOUT: "timeout", Reason.VERIFIER_OUT_OF_MEMORY: "memory_limit"}.get(
        reason, verifier_exit
    )
    return {
        "patch_bytes": result.patch.bytes if result.patch else None,
        "agent_exit": "timeout" if agent.timed_out else agent.exit,
        "agent_timed_out": agent.timed_out,
        "agent_wall_s": agent.wall_s,
        "agent_resource_exhausted": Flag.AGENT_OUT_OF_MEMORY in result.flags,
        "verifier_exit": verifier_exit,
        "verifier_resource_exhausted": reason is Reason.VERIFIER_OUT_OF_MEMORY,
        "turns": agent.turns,
        "tool_calls": agent.tool_calls,
    }


def _tokens(used: RoleUsage | None) -> dict[str, int | None]:
    """Token counts by their old names; a sum that misses a call is no sum."""
    known = used is not None and used.calls_unknown == 0
    counts = {name: getattr(used.tokens, kind) if used and known else None for name, kind in _KINDS.items()}
    # A provider without a cache does not count cached tokens; input and output are what a total needs.
    complete = counts["input"] is not None and counts["output"] is not None
    total = sum(n for n in counts.values() if n is not None) if complete else None
    return {f"{name}_tokens": n for name, n in counts.items()} | {"total_tokens": total}


def _usage(result: Result) -> dict[str, Any]:
    executor = result.usage.by_role.get(EXECUTOR)
    alone = set(result.usage.by_role) <= {EXECUTOR}
    return {
        **_tokens(executor),
        "cost_usd": result.cost.usd if alone else None,
        "completions": executor.calls if executor else None,
        "combined_total_tokens": _tokens(result.usage.total)["total_tokens"],
        "combined_cost_usd": result.cost.usd,
    }


def _role_usage(result: Result, role: str, prefix: str) -> dict[str, Any]:
    used = result.usage.by_role.get(role)
    return {
        f"{prefix}_calls": used.calls if used else None,
        **{f"{prefix}_{name}": value for name, value in _tokens(used).items()},
        f"{prefix}_cost_usd": None,
        f"{prefix}_provider": None,
        f"{prefix}_model": None,
    }


def _memory_usage(result: Result) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for role in _MEMORY_ROLES:
        used = result.usage.by_role.get(role)
        fields[f"om_{role}_calls"] = used.calls if used else None
        fields[f"om_{role}_total_tokens"] = _tokens(used)["total_tokens"]
        fields[f"om_{role}_cost_usd"] = None
    return fields
