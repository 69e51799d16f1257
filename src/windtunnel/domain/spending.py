"""What a run used so far: every attempt counts once, whatever came of it."""

from __future__ import annotations

from decimal import Decimal

from windtunnel.domain.accounting import total_usage
from windtunnel.domain.result import Usage
from windtunnel.domain.status import KnownCost
from windtunnel.domain.wire import RoleUsage

__all__ = ["Spending"]


class Spending:
    """Usage by role and known cost. An attempt may tell twice, at its end and with its cell's; it is summed once."""

    def __init__(self) -> None:
        self._usage: dict[str, RoleUsage] = {}
        self._known: Decimal | None = None
        self._unknown_cells: set[str] = set()
        self._told: set[str] = set()  # cells whose last attempt told its own usage

    @property
    def usage(self) -> dict[str, RoleUsage]:
        return dict(sorted(self._usage.items()))

    @property
    def cost(self) -> KnownCost:
        known = None if self._known is None else float(self._known)
        return KnownCost(known=known, unknown_cells=len(self._unknown_cells))

    def attempt_started(self, cell: str) -> None:
        self._told.discard(cell)

    def attempt_told(self, cell: str, usage: Usage | None, cost_usd: float | None) -> None:
        self._told.add(cell)
        self._add(cell, usage, cost_usd)

    def cell_told(self, cell: str, usage: Usage | None, cost_usd: float | None) -> None:
        if cell not in self._told:
            self._add(cell, usage, cost_usd)

    def _add(self, cell: str, usage: Usage | None, cost_usd: float | None) -> None:
        for role, used in (usage.by_role if usage else {}).items():
            have = self._usage.get(role)
            self._usage[role] = used if have is None else total_usage({"have": have, "new": used})
        if cost_usd is None:
            self._unknown_cells.add(cell)
        else:
            self._known = (self._known or Decimal(0)) + Decimal(str(cost_usd))
