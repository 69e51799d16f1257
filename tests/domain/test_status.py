from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from run_builders import a_manifest, same, some_usage
from windtunnel.domain.events import Event, Kind
from windtunnel.domain.fold import Fold, fold
from windtunnel.domain.status import Liveness, Status, liveness, moment

TS = "2026-12-01T00:00:00.000Z"
CELLS = [f"t{n}/{config}/rep0" for n in (1, 2) for config in ("a", "b")]


class Story:
    """Events of one run, one after the other."""

    def __init__(self, **manifest: Any) -> None:
        self.manifest = a_manifest(**manifest)
        self.events: list[Event] = []
        self.fold = Fold(self.manifest)

    def tell(self, kind: Kind, **fields: Any) -> Status:
        event = Event(seq=len(self.events) + 1, ts=TS, event=kind, run_id="r1", fields=fields)
        self.events.append(event)
        self.fold.apply(event)
        return self.fold.status()

    def finish(self, cell: str, *, reason: str = "graded", **fields: Any) -> Status:
        status = "valid" if reason == "graded" else "invalid"
        self.tell(Kind.CELL_STARTED, cell=cell)
        self.tell(Kind.ATTEMPT_STARTED, cell=cell, attempt=1)
        return self.tell(Kind.CELL_FINISHED, cell=cell, status=status, reason=reason, **fields)


def test_a_run_is_told_from_start_to_end() -> None:
    story = Story()
    assert story.tell(Kind.RUN_STARTED, pid=7, host="h", boot_id="b").stage == "starting"
    story.tell(Kind.CELL_SKIPPED, cell=CELLS[3], reason="reused")
    assert story.tell(Kind.PREFLIGHT_STARTED, cell=CELLS[0], config="a").stage == "preflight"
    story.finish(CELLS[0], reward=1.0)
    story.tell(Kind.PREFLIGHT_FINISHED, cell=CELLS[0], config="a", passed=True)
    assert story.tell(Kind.FANOUT_STARTED, cells=2).stage == "batch"
    story.tell(Kind.CELL_STARTED, cell=CELLS[1])
    status = story.tell(Kind.ATTEMPT_PHASE, cell=CELLS[1], attempt=1, phase="follow")

    assert status.active[0].phase == "follow"
    assert (status.pid, status.host, status.boot_id) == (7, "h", "b")
    story.finish(CELLS[1], reason="container_lost")
    end = story.tell(Kind.RUN_COMPLETED)
    assert (end.state, end.stage) == ("completed", "done")
    counts = end.counts
    assert (counts.reused, counts.valid, counts.invalid, counts.missing, counts.pending) == (1, 1, 1, 1, 0)
    assert end.by_reason == {"graded": 1, "container_lost": 1, "not_reached": 1}
    assert [cell.cell_id for cell in end.recent_finished] == CELLS[:2]
    assert (counts.preflight_total, counts.preflight_passed, counts.preflight_failed) == (2, 1, 0)


def test_a_finished_cell_that_is_run_again_counts_once() -> None:
    story = Story()
    story.finish(CELLS[0], reason="container_lost")
    story.tell(Kind.RUN_PAUSED, reason="stop")
    story.tell(Kind.RUN_RESUMED)
    status = story.finish(CELLS[0], reason="graded")

    assert (status.counts.valid, status.counts.invalid, status.resumes) == (1, 0, 1)
    assert status.by_reason == {"graded": 1}


def test_skipped_cells_do_not_become_valid_and_valid_ones_do_not_become_reused() -> None:
    story = Story()
    story.finish(CELLS[0])
    story.tell(Kind.CELL_SKIPPED, cell=CELLS[0], reason="finished elsewhere")
    story.tell(Kind.CELL_SKIPPED, cell=CELLS[1], reason="reused")
    story.tell(Kind.CELL_SKIPPED, cell=CELLS[1], reason="reused")
    status = story.tell(Kind.CELL_SKIPPED, cell=CELLS[2], reason="claimed by another run")

    assert (status.counts.valid, status.counts.reused, status.counts.pending) == (1, 1, 2)


@pytest.mark.parametrize(
    ("kind", "pending", "missing", "by_reason"),
    [
        (Kind.RUN_PAUSED, 4, 0, {}),
        (Kind.RUN_FAILED, 0, 4, {"cancelled": 1, "not_reached": 3}),
        (Kind.RUN_HALTED, 0, 4, {"cancelled": 1, "not_reached": 3}),
    ],
)
def test_what_was_not_reached_is_pending_in_a_paused_run_and_missing_in_an_ended_one(
    kind: Kind, pending: int, missing: int, by_reason: dict[str, int]
) -> None:
    story = Story()
    story.tell(Kind.CELL_STARTED, cell=CELLS[0])
    status = story.tell(kind, reason="x", detail="y")

    assert (status.counts.pending, status.counts.missing, status.counts.running) == (pending, missing, 0)
    assert status.by_reason == by_reason
    assert (status.reason, status.detail, status.active) == ("x", "y", ())
    assert (status.halt is not None) == (kind is Kind.RUN_HALTED)
    again = story.tell(Kind.RUN_RESUMED)
    assert (again.counts.pending, again.counts.missing, again.state, again.halt) == (4, 0, "running", None)


def test_usage_and_cost_of_every_attempt_count_once() -> None:
    story = Story()
    story.tell(Kind.CELL_STARTED, cell=CELLS[0])
    for attempt in (1, 2):
        story.tell(Kind.ATTEMPT_STARTED, cell=CELLS[0], attempt=attempt)
        usage = some_usage(10 * attempt)
        story.tell(
            Kind.ATTEMPT_FINISHED,
            cell=CELLS[0],
            attempt=attempt,
            status="invalid",
            reason="container_lost",
            retry=attempt == 1,
            usage=usage,
            cost_usd=0.1,
        )
    story.tell(
        Kind.CELL_FINISHED, cell=CELLS[0], status="invalid", reason="container_lost", usage=some_usage(20), cost_usd=0.1
    )
    status = story.finish(CELLS[1], usage=some_usage(5))

    assert status.usage["executor"].calls == 3
    assert status.usage["executor"].tokens.input == 35
    assert status.usage["executor"].tokens.cache_write is None
    assert (status.cost.known, status.cost.unknown_cells) == (0.2, 1)
    assert status.counts.retried == 1


def test_no_known_cost_is_unknown_not_zero() -> None:
    assert Story().tell(Kind.RUN_STARTED).cost.known is None


def test_draining_stays_until_the_end_and_drift_until_the_next_start() -> None:
    story = Story()
    story.tell(Kind.CONTROL_RECEIVED, control="stop")
    assert story.tell(Kind.FANOUT_STARTED, cells=1).stage == "draining"
    drift = {"what": "config a", "where": "f", "approved": "1", "observed": "2"}
    assert story.tell(Kind.LAUNCH_INPUT_DRIFT, **drift).drift[0].what == "config a"
    assert story.tell(Kind.RUN_PAUSED, reason="drift").drift
    assert story.tell(Kind.RUN_RESUMED).drift == ()


def test_quota_wait_is_a_stage_and_shows_until_when() -> None:
    story = Story()
    waiting = story.tell(Kind.QUOTA_WAIT, provider="p", windows=[{"used": None}], waiting_until=TS)
    assert (waiting.state, waiting.stage, waiting.quota and waiting.quota.waiting_until) == (
        "running",
        "quota_wait",
        TS,
    )
    after = story.tell(Kind.QUOTA_RESUMED)
    assert (after.stage, after.quota and after.quota.waiting_until) == ("batch", None)


def test_a_strange_event_is_named_and_changes_no_count() -> None:
    story = Story()
    before = story.fold.counts
    story.tell(Kind.CELL_STARTED, cell="other/x/rep0")
    story.tell(Kind.CELL_FINISHED, cell=CELLS[0], status="valid", reason="no such reason")
    story.tell(Kind.ATTEMPT_STARTED, attempt=1)

    assert story.fold.counts == before
    assert [problem.split(":")[0] for problem in story.fold.problems] == [
        "event 1 (cell_started)",
        "event 2 (cell_finished)",
        "event 3 (attempt_started)",
    ]


def test_size_is_bounded_whatever_the_number_of_cells() -> None:
    story = Story(tasks=tuple(f"t{n}" for n in range(200)))
    for cell in story.manifest.cells:
        status = story.finish(cell.cell_id, reason="graded")

    assert len(status.recent_finished) == 30
    assert status.counts.valid == 400


class AnyLegalRun(RuleBasedStateMachine):
    """Any order of what a run may do, kills included; the counts add up after every event and refold to the same."""

    def __init__(self) -> None:
        super().__init__()
        self.story = Story()
        self.model = dict.fromkeys(CELLS, "pending")
        self.running = False

    @precondition(lambda self: not self.running)
    @rule()
    def start(self) -> None:
        self.story.tell(Kind.RUN_RESUMED if self.story.events else Kind.RUN_STARTED)
        self.running = True
        self._turn({"running": "pending", "missing": "pending"})

    @precondition(lambda self: self.running)
    @rule()
    def killed(self) -> None:
        self.running = False

    @precondition(lambda self: self.running)
    @rule(kind=st.sampled_from([Kind.RUN_PAUSED, Kind.RUN_COMPLETED, Kind.RUN_FAILED, Kind.RUN_HALTED]))
    def end(self, kind: Kind) -> None:
        self.story.tell(kind, reason="x")
        self.running = False
        paused = kind is Kind.RUN_PAUSED
        self._turn({"running": "pending"} if paused else {"running": "missing", "pending": "missing"})

    @precondition(lambda self: self.running)
    @rule(cell=st.sampled_from(CELLS))
    def begin(self, cell: str) -> None:
        if self.model[cell] in {"pending", "invalid"}:
            self.story.tell(Kind.CELL_STARTED, cell=cell)
            self.model[cell] = "running"

    @precondition(lambda self: self.running)
    @rule(cell=st.sampled_from(CELLS), attempt=st.integers(1, 3), retry=st.booleans())
    def attempt(self, cell: str, attempt: int, retry: bool) -> None:
        if self.model[cell] == "running":
            self.story.tell(Kind.ATTEMPT_STARTED, cell=cell, attempt=attempt)
            self.story.tell(Kind.ATTEMPT_PHASE, cell=cell, attempt=attempt, phase="follow")
            self.story.tell(
                Kind.ATTEMPT_FINISHED, cell=cell, attempt=attempt, status="invalid", reason="engine_error", retry=retry
            )

    @precondition(lambda self: self.running)
    @rule(cell=st.sampled_from(CELLS), reason=st.sampled_from(["graded", "engine_error", "budget_reached"]))
    def finish(self, cell: str, reason: str) -> None:
        if self.model[cell] == "running":
            status = {"graded": "valid", "engine_error": "invalid", "budget_reached": "missing"}[reason]
            self.story.tell(Kind.CELL_FINISHED, cell=cell, status=status, reason=reason, usage=some_usage())
            self.model[cell] = status

    @precondition(lambda self: self.running)
    @rule(cell=st.sampled_from(CELLS))
    def skip(self, cell: str) -> None:
        if self.model[cell] in {"pending", "invalid", "valid", "reused"}:
            self.story.tell(Kind.CELL_SKIPPED, cell=cell, reason="finished elsewhere")
            self.model[cell] = "valid" if self.model[cell] == "valid" else "reused"

    @precondition(lambda self: self.running)
    @rule(passed=st.booleans())
    def preflight(self, passed: bool) -> None:
        self.story.tell(Kind.PREFLIGHT_STARTED, cell=CELLS[0], config="a")
        self.story.tell(Kind.PREFLIGHT_FINISHED, cell=CELLS[0], config="a", passed=passed)

    def _turn(self, moves: dict[str, str]) -> None:
        self.model = {cell: moves.get(state, state) for cell, state in self.model.items()}

    @invariant()
    def counts_add_up(self) -> None:
        status = self.story.fold.status()
        c = status.counts
        assert c.planned == c.reused + c.pending + c.running + c.valid + c.invalid + c.missing == len(CELLS)
        assert {cell: self.story.fold.cell_state(cell) for cell in CELLS} == self.model
        assert sorted(cell.cell_id for cell in status.active) == sorted(
            k for k, v in self.model.items() if v == "running"
        )
        assert sum(status.by_reason.values()) == c.valid + c.invalid + c.missing
        assert c.preflight_passed + c.preflight_failed <= c.preflight_total
        assert not self.story.fold.problems
        assert same(status, fold(self.story.manifest, self.story.events))


AnyLegalRun.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestAnyLegalRun = AnyLegalRun.TestCase


def a_status(heartbeat_at: str | None) -> Status:
    return msgspec.structs.replace(fold(a_manifest(), ()), heartbeat_at=heartbeat_at)


def ago(seconds: float) -> str:
    return (datetime(2026, 12, 1, tzinfo=UTC) - timedelta(seconds=seconds)).isoformat()


@pytest.mark.parametrize(
    ("age_s", "alive", "same_host", "terminal", "expected"),
    [
        (1, True, True, False, "live"),
        (44, True, True, False, "live"),
        (46, True, True, False, "stalled"),
        (46, None, True, False, "stalled"),
        (1, False, True, False, "crashed"),
        (9999, False, True, False, "crashed"),
        (1, None, False, False, "live"),
        (1, False, False, False, "live"),  # a foreign host's pid says nothing
        (46, False, False, False, "stalled"),
        (-46, True, True, False, "stalled"),
        (9999, False, True, True, "finished"),
        (1, True, True, True, "finished"),
    ],
)
def test_liveness(age_s: float, alive: bool | None, same_host: bool, terminal: bool, expected: Liveness) -> None:
    found = liveness(
        a_status(ago(age_s)), now=ago(0), interval_s=15, owner_alive=alive, same_host=same_host, terminal=terminal
    )
    assert found == expected


def test_without_a_heartbeat_a_run_is_not_live() -> None:
    for status in (None, a_status(None)):
        found = liveness(status, now=ago(0), interval_s=15, owner_alive=True, same_host=True, terminal=False)
        assert found == "stalled"


@pytest.mark.parametrize("text", ["2026-12-01T00:00:00", "2026-12-01T00:00:00+01:00", "0", "", "now", "2026-12-01"])
def test_a_naive_or_foreign_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        moment(text)
