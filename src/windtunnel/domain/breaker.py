"""When failures are no longer about single cells: the breaker stops the run before it burns the rest."""

from __future__ import annotations

from dataclasses import dataclass, field

from windtunnel.domain.outcome import RULES, Effect, Outcome, Reason, Status

__all__ = ["Breaker"]

SAME_IN_A_ROW = 5
NEVER_STARTED_IN_A_ROW = 3


@dataclass
class Breaker:
    """Feed it every final outcome; it answers why the run must stop, or None."""

    row: list[Reason] = field(default_factory=list)

    def note(self, outcome: Outcome) -> str | None:
        """Why no new cell may start, None while all is well."""
        if outcome.status is not Status.INVALID:
            self.row.clear()
            return None
        self.row.append(outcome.reason)
        effect = RULES[outcome.reason].effect
        if effect in (Effect.BREAKER, Effect.STOP):
            return f"{outcome.reason}: {outcome.detail}"
        limit = NEVER_STARTED_IN_A_ROW if effect is Effect.BREAKER_AFTER_3 else SAME_IN_A_ROW
        last = self.row[-limit:]
        if len(last) == limit and len(set(last)) == 1:
            return f"{limit} cells in a row ended {outcome.reason}: {outcome.detail}"
        return None
