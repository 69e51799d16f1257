"""Launch contexts for adapter tests."""

from __future__ import annotations

from pathlib import Path

from windtunnel.domain.role import Thinking
from windtunnel.domain.task import ImageSource, Task
from windtunnel.subjects.interface import LaunchContext


def a_context(
    tmp_path: Path,
    *,
    model: str | None = None,
    route: str | None = None,
    thinking: Thinking = Thinking.HIGH,
    leaf: str | None = None,
    inputs_in: str = "/windtunnel/in",
    solution_env: dict[str, str] | None = None,
) -> LaunchContext:
    """An empty config, an empty stage, contract paths; `leaf` is made inside the config."""
    for name in ("config", "stage", "task"):
        (tmp_path / name).mkdir(exist_ok=True)
    inputs = tmp_path / "config"
    if leaf is not None:
        (inputs / leaf).mkdir(parents=True)
    source = ImageSource(reference="image:1")
    task = Task(id="t", task_revision="a", verifier_revision="b", image=source, solution_env=solution_env or {})
    return LaunchContext(
        task=task,
        instruction="the task",
        task_dir=tmp_path / "task",
        model=model,
        thinking=thinking,
        route=route,
        inputs=inputs,
        leaf=None if leaf is None else inputs / leaf,
        stage=tmp_path / "stage",
        workdir_in="/app",
        bundle_in="/windtunnel/bundle",
        inputs_in=inputs_in,
        box_in="/windtunnel/box",
    )
