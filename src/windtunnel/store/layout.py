"""Every path on disk, once. Spec page 3 ("Results tree") and page 6 ("State on disk")."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from windtunnel.domain.cell import Cell, model_leaf

__all__ = ["AttemptDir", "CellDir", "RunDir", "cell_dir"]


@dataclass(frozen=True)
class AttemptDir:
    """`<cell>/attempts/<k>/`: one try. Host processes write everything here but `box/`."""

    root: Path

    @property
    def record(self) -> Path:
        return self.root / "attempt.json"

    @property
    def box(self) -> Path:
        return self.root / "box"

    @property
    def wire(self) -> Path:
        return self.root / "wire.ndjson"

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    @property
    def session(self) -> Path:
        return self.root / "session"

    @property
    def initial_context(self) -> Path:
        return self.root / "initial_context"

    @property
    def artifacts(self) -> Path:
        return self.root / "artifacts"

    @property
    def patch(self) -> Path:
        return self.artifacts / "model.patch"

    @property
    def verifier(self) -> Path:
        return self.root / "verifier"

    @property
    def grades(self) -> Path:
        return self.root / "grades"

    @property
    def secret_search(self) -> Path:
        return self.root / "secret-search.json"

    @property
    def result(self) -> Path:
        """The record that becomes the cell's: written first, so that a kill before it is published loses nothing."""
        return self.root / "result.json"

    @property
    def manifest(self) -> Path:
        return self.root / "manifest.sha256"


@dataclass(frozen=True)
class CellDir:
    """`results/<model-leaf>/<thinking>/<config>/<task>/rep<N>/`"""

    root: Path

    @property
    def result(self) -> Path:
        return self.root / "result.json"

    @property
    def current(self) -> Path:
        return self.root / "current"

    @property
    def claim(self) -> Path:
        return self.root / "claim.json"

    @property
    def verdict(self) -> Path:
        return self.root / "smoke-verdict.json"

    @property
    def attempts(self) -> Path:
        return self.root / "attempts"

    def attempt(self, number: int) -> AttemptDir:
        """Attempts count from 1."""
        return AttemptDir(self.attempts / str(number))


# The old paths: links in the cell that lead through `current`.
LINKED = ("logs", "session", "verifier", "artifacts", "initial_context")


def cell_dir(results_root: Path, model: str | None, thinking: str, cell: Cell) -> CellDir:
    """The address of a cell. The names in it were checked when the plan was drafted."""
    return CellDir(results_root / model_leaf(model) / thinking / cell.config / cell.task / f"rep{cell.rep}")


@dataclass(frozen=True)
class RunDir:
    """`results/_runs/<run_id>/`: the state of one run."""

    root: Path

    @property
    def plan(self) -> Path:
        return self.root / "plan.json"

    @property
    def receipt(self) -> Path:
        return self.root / "receipt.txt"

    @property
    def confirmation(self) -> Path:
        return self.root / "confirmation.json"

    @property
    def manifest(self) -> Path:
        return self.root / "manifest.json"

    @property
    def status(self) -> Path:
        return self.root / "status.json"

    @property
    def events(self) -> Path:
        return self.root / "events.ndjson"

    @property
    def log(self) -> Path:
        return self.root / "run.log"

    @property
    def inputs(self) -> Path:
        return self.root / "inputs"

    @property
    def pins(self) -> Path:
        return self.root / "pins.json"

    @property
    def evidence(self) -> Path:
        return self.root / "evidence"

    @property
    def gateway(self) -> Path:
        return self.root / "gateway.json"

    @property
    def owner_lock(self) -> Path:
        return self.root / "owner.lock"

    @property
    def control(self) -> Path:
        return self.root / "control"

    @property
    def private(self) -> Path:
        return self.root / "private"

    @property
    def seal(self) -> Path:
        return self.root / "run-seal.json"

    @property
    def verify(self) -> Path:
        return self.root / "verify.json"
