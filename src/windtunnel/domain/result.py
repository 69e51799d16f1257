"""result.json and attempt.json: what is known about a cell and about every try at it.

Field names: spec page 3. Unknown is None. Durations are seconds on a monotonic clock; times are UTC.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from windtunnel.domain.outcome import Flag, Outcome
from windtunnel.domain.wire import RoleUsage, Tokens

__all__ = [
    "AgentFacts",
    "AttemptRecord",
    "Cost",
    "Identities",
    "PatchFacts",
    "Reconciliation",
    "Resources",
    "Result",
    "SubjectFacts",
    "TestCounts",
    "ThinkingVerdict",
    "Usage",
    "VerifierFacts",
]

SCHEMA_VERSION = 1


class SubjectFacts(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    version: str
    bundle: str | None


class TestCounts(msgspec.Struct, frozen=True, kw_only=True):
    """From the verifier's CTRF or JUnit report; None when there was none."""

    __test__ = False  # pytest collects classes named Test*
    passed: int
    failed: int
    skipped: int


class PatchFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The agent's change as a git patch (`artifacts/model.patch`). `files`: how many it touches."""

    bytes: int
    sha256: str
    files: int
    stripped_bytes: int = 0


class AgentFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Claims of the driver and the subject's own account (never trusted for grade or usage).

    `exit` None: it did not end by itself. `settled`: the subject said that it was done.
    """

    exit: int | None = None
    settled: bool | None = None
    timed_out: bool = False
    wall_s: float | None = None
    turns: int | None = None
    tool_calls: int | None = None
    stop_reason: str | None = None
    throttled_s: float | None = None


class VerifierFacts(msgspec.Struct, frozen=True, kw_only=True):
    """`exit`: the test command's exit code (recorded, never the grade)."""

    exit: int | None
    wall_s: float | None
    attempts: int


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """From the wire only."""

    by_role: dict[str, RoleUsage]
    total: RoleUsage


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """`usd` None and `known` false until every call has a price."""

    usd: float | None = None
    known: bool = False


class ThinkingVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """`field`/`sent`: what the wire carried (None: provider default). The evidence file is wire.ndjson."""

    requested: str
    field: str | None
    sent: str | None
    verdict: Literal["proven", "consistent", "contradicted", "unknown"]


class Reconciliation(msgspec.Struct, frozen=True, kw_only=True):
    """The wire against the subject's own account. `not_applicable` when the subject keeps none."""

    state: Literal["reconciled", "different", "not_applicable", "unknown"]
    wire: Tokens | None = None
    subject: Tokens | None = None
    detail: str = ""


class Resources(msgspec.Struct, frozen=True, kw_only=True):
    """`peak_memory`: bytes."""

    peak_memory: int | None = None
    oom_events: int | None = None
    watchdog_interventions: int | None = None


class Identities(msgspec.Struct, frozen=True, kw_only=True):
    """`image_id`, `verifier_image_id`: what the engine really ran."""

    cellIdentity: str
    planIdentity: str
    taskRevision: str
    verifierRevision: str
    config_fingerprint: str
    image_id: str | None = None
    verifier_image_id: str | None = None


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """The official record of a cell. Written for valid and invalid outcomes; a missing cell has none."""

    schemaVersion: int = SCHEMA_VERSION
    task: str
    config: str
    rep: int
    model: str | None
    thinking: str
    subject: SubjectFacts
    outcome: Outcome
    flags: tuple[Flag, ...]
    reward_binary: int | None
    reward_partial: float | None
    reward_detail: dict[str, Any] | None
    tests: TestCounts | None
    patch: PatchFacts | None
    agent: AgentFacts
    grading: Literal["artifacts", "agent-filesystem"]
    verifier: VerifierFacts | None
    grade: str | None
    usage: Usage
    cost: Cost
    thinking_by_role: dict[str, ThinkingVerdict]
    reconciliation: Reconciliation
    resources: Resources
    attempt: int
    attempts: int
    run_id: str
    identities: Identities
    versions: dict[str, str]
    started_at: str
    finished_at: str
    wall_s: float
    legacy: dict[str, Any]


class AttemptRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One try, whatever came of it. `outcome` None while it runs."""

    schemaVersion: int = SCHEMA_VERSION
    attempt: int
    run_id: str
    cell: str
    outcome: Outcome | None
    flags: tuple[Flag, ...] = ()
    started_at: str
    finished_at: str | None = None
    wall_s: float | None = None
    phases: dict[str, float] = {}
    usage: Usage | None = None
    cost: Cost = Cost()
    kept: tuple[str, ...] = ()
    environment_id: str | None = None
    verifier_of: int | None = None
