"""The `oracle` subject: runs the task's own solution. It proves a task, its image and its verifier."""

from __future__ import annotations

from pathlib import Path

from windtunnel.subjects.bundle import bundle_for
from windtunnel.subjects.interface import Account, Launch, LaunchContext

__all__ = ["SOLUTION", "Oracle"]

SOLUTION = "/solution"


class Oracle:
    """`bash /solution/solve.sh` in the working directory, with the task's `[solution.env]`."""

    name = "oracle"
    version = "1"
    calls_models = False

    def refuse(self, inputs: Path, leaf: Path | None) -> list[str]:
        """Nothing: a config's files have no meaning here and no effect."""
        return []

    def bundle(self) -> Path:
        """The base bundle, built on first use."""
        return bundle_for(self.name, self.version).path

    def launch(self, context: LaunchContext) -> Launch:
        """The solution is the only subject's input that comes from the task's hidden half."""
        return Launch(
            protocol="exit",
            argv=("bash", f"{SOLUTION}/solve.sh"),
            env=context.task.solution_env,
            placed={context.task_dir / "solution": SOLUTION},
        )

    def account(self, box: Path) -> Account:
        """It keeps none."""
        return Account()
