"""The `oracle` subject: runs the task's own solution. It proves a task, its image and its verifier."""

from __future__ import annotations

from pathlib import Path

from windtunnel.subjects.bundle import bundle_for
from windtunnel.subjects.config_files import copy_tree
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

    def overlay_description(self, inputs: Path, leaf: Path | None, *, model: str, route: str) -> list[str]:
        """Nothing: the gateway is given in the environment."""
        return []

    def bundle(self) -> Path:
        """The base bundle, built on first use."""
        return bundle_for(self.name, self.version).path

    def launch(self, context: LaunchContext) -> Launch:
        """The solution is the only subject's input that comes from the task's hidden half. Where a sandbox has no root
        of its own there is no /solution: it runs from the inputs then."""
        solution, env = context.task_dir / "solution", context.task.solution_env
        if context.own_root:
            return Launch(protocol="exit", argv=("bash", f"{SOLUTION}/solve.sh"), env=env, placed={solution: SOLUTION})
        copy_tree(solution, context.stage / "solution")
        return Launch(protocol="exit", argv=("bash", f"{context.inputs_in}/solution/solve.sh"), env=env)

    def account(self, box: Path) -> Account:
        """It keeps none."""
        return Account()
