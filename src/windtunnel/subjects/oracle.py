"""The `oracle` subject: runs the task's own solution. It proves a task, its image and its verifier."""

from __future__ import annotations

from windtunnel.subjects.config_files import copy_tree
from windtunnel.subjects.interface import Launch, LaunchContext
from windtunnel.subjects.plainest import PlainestSubject

__all__ = ["SOLUTION", "Oracle"]

SOLUTION = "/solution"


class Oracle(PlainestSubject):
    """`bash /solution/solve.sh` in the working directory, with the task's `[solution.env]`."""

    name = "oracle"

    def launch(self, context: LaunchContext) -> Launch:
        """The solution is the only subject's input that comes from the task's hidden half. Where a sandbox has no root
        of its own there is no /solution: it runs from the inputs then."""
        solution, env = context.task_dir / "solution", context.task.solution_env
        if context.own_root:
            return Launch(protocol="exit", argv=("bash", f"{SOLUTION}/solve.sh"), env=env, placed={solution: SOLUTION})
        copy_tree(solution, context.stage / "solution")
        return Launch(protocol="exit", argv=("bash", f"{context.inputs_in}/solution/solve.sh"), env=env)
