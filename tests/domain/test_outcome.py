"""The outcome table and the page that shows it."""

from __future__ import annotations

from pathlib import Path

import pytest

from windtunnel.domain.breaker import Breaker
from windtunnel.domain.outcome import RULES, Outcome, Reason, Status

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "outcomes.md"


def test_every_reason_has_one_rule_and_one_row_on_the_page() -> None:
    rows = [line.split("|")[1:5] for line in PAGE.read_text().splitlines() if line.startswith("| ")][1:]
    shown = {cells[0].strip(): (cells[1].strip(), cells[3].strip()) for cells in rows}

    assert set(RULES) == set(Reason)
    assert shown == {str(reason): (str(rule.status), str(rule.effect)) for reason, rule in RULES.items()}


def test_a_status_that_contradicts_its_reason_cannot_be_made() -> None:
    with pytest.raises(ValueError, match="is invalid, not valid"):
        Outcome(status=Status.VALID, reason=Reason.PROVIDER_AUTH)


def test_one_refused_credential_opens_the_breaker() -> None:
    assert "provider_auth" in (Breaker().note(Outcome.of(Reason.PROVIDER_AUTH, "401")) or "")


def test_five_equal_faults_in_a_row_open_the_breaker_and_a_valid_cell_breaks_the_row() -> None:
    breaker = Breaker()
    engine, good = Outcome.of(Reason.ENGINE_ERROR), Outcome.of(Reason.GRADED)

    assert [breaker.note(o) for o in [engine] * 4 + [good] + [engine] * 4] == [None] * 9
    assert "5 cells in a row" in (breaker.note(engine) or "")


def test_three_agents_in_a_row_that_never_started_open_the_breaker() -> None:
    breaker = Breaker()
    never = Outcome.of(Reason.AGENT_NEVER_STARTED)

    assert [breaker.note(never), breaker.note(never)] == [None, None]
    assert "3 cells in a row" in (breaker.note(never) or "")
