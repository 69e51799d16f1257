"""What every cell of a run works with: the plan, the run directory and the ports that the CLI picked."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from windtunnel.domain.cell import Cell
from windtunnel.domain.digest import to_json
from windtunnel.domain.events import Event, Kind
from windtunnel.domain.plan import ConfigPlan, Plan, cell_identity
from windtunnel.domain.task import Limits, Task
from windtunnel.environments.interface import Environment, Image
from windtunnel.errors import Drifted
from windtunnel.gateway.interface import Gateway
from windtunnel.store.files import write_atomic
from windtunnel.store.layout import CellDir, RunDir, cell_dir
from windtunnel.subjects.interface import Subject

__all__ = ["Bench", "Drain", "Journal", "root_id"]


class Journal(Protocol):
    """The run's one writer of events (store/run_log.py)."""

    def event(self, kind: Kind, **fields: Any) -> Event: ...

    def activity(self, cell_id: str, text: str) -> None: ...

    def cell_state(self, cell_id: str) -> str | None: ...

    def line(self, text: str) -> None: ...


@dataclass
class Drain:
    """Set from a signal handler: give out no new cells, let running ones end."""

    asked: asyncio.Event = field(default_factory=asyncio.Event)
    reason: str = ""


@dataclass
class Bench:
    """`bundle`: host directory of the subject's bundle. `work_root`: host directory that sandboxes may be made in, and
    that a sandbox's other users can reach."""

    plan: Plan
    run: RunDir
    environment: Environment
    subject: Subject
    gateway: Gateway | None
    journal: Journal
    bundle: Path
    work_root: Path
    pins: dict[str, str] = field(default_factory=dict)
    identities: dict[tuple[str, str], str] = field(default_factory=dict)
    drift_told: bool = False
    janitors: set[asyncio.Task[None]] = field(default_factory=set)
    unclean: list[BaseException] = field(default_factory=list)

    @property
    def results_root(self) -> Path:
        return Path(self.plan.paths.results_root)

    def config(self, cell: Cell) -> ConfigPlan:
        return next(c for c in self.plan.configs if c.name == cell.config)

    def task(self, cell: Cell) -> Task:
        return next(t for t in self.plan.tasks if t.id == cell.task)

    def task_dir(self, task: Task) -> Path:
        return Path(self.plan.paths.tasks_root) / task.id

    def limits(self, task: Task) -> Limits:
        return self.plan.limits[task.id]

    def cell_dir(self, cell: Cell) -> CellDir:
        return cell_dir(self.results_root, self.plan.model, self.plan.thinking, cell)

    def identity(self, cell: Cell) -> str:
        """The cell identity, computed once per (config, task)."""
        key = (cell.config, cell.task)
        if key not in self.identities:
            self.identities[key] = cell_identity(self.plan, self.config(cell), self.task(cell))
        return self.identities[key]

    def agent_timeout_s(self, task: Task) -> float | None:
        """The flag's, else the task's; None: the task sets no limit."""
        override = self.plan.settings.agent_timeout_s
        return task.agent_timeout_s if override is None else override

    def labels(self, cell: Cell | None = None, *, attempt: int = 0, part: str = "") -> Mapping[str, str]:
        """What containers of this run carry; without a cell: what all of them share."""
        shared = {"windtunnel.run": self.plan.run_id, "windtunnel.root": root_id(self.results_root)}
        if cell is None:
            return shared
        return shared | {
            "windtunnel.plan": self.plan.planIdentity,
            "windtunnel.cell": cell.id,
            "windtunnel.attempt": str(attempt),
            "windtunnel.role": part,
        }

    @property
    def private_root(self) -> Path:
        """Scratch of attempts that nobody else may read (tokens)."""
        return self.run.private / "attempts"

    def later(self, work: Coroutine[Any, Any, None]) -> None:
        """Do clean-up in the background, so that a worker's slot is free before it; `settle` waits for all of it."""
        task = asyncio.create_task(work)
        self.janitors.add(task)
        task.add_done_callback(self._cleaned)

    def _cleaned(self, task: asyncio.Task[None]) -> None:
        self.janitors.discard(task)
        if not task.cancelled() and (fault := task.exception()) is not None:
            self.unclean.append(fault)

    async def settle(self) -> list[str]:
        """Wait for every clean-up, then remove whatever still carries this run's labels (an object whose making was cut
        off has no owner). Returns what had to be removed and what went wrong, a line each."""
        await asyncio.gather(*self.janitors, return_exceptions=True)
        told = [f"clean-up: {type(fault).__name__}: {fault}" for fault in self.unclean]
        self.unclean.clear()
        return told + [f"removed {name} at the end" for name in await self.environment.sweep(self.labels())]

    def pin(self, what: str, image: Image) -> Image:
        """Remember which image a task really ran on. Raises Drifted when it became another one inside this run."""
        known = self.pins.setdefault(what, image.id)
        if known != image.id:
            raise Drifted(f"image of {what}", image.reference, known, image.id)
        return image

    def save_pins(self) -> None:
        """Write pins.json: what the engine really ran, per task and part."""
        write_atomic(self.run.pins, to_json({"schemaVersion": 1, "images": self.pins}))


def root_id(results_root: Path) -> str:
    """A short name for a results tree, for labels."""
    return hashlib.sha256(str(results_root.resolve()).encode("utf-8", "surrogateescape")).hexdigest()[:16]
