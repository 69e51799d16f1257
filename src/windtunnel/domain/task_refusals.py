"""What a task.toml may not ask for: each wish that would change what is measured and is not built, refused by name.

Only the VALUE counts: `gpus = 0` or an empty list of MCP servers asks for nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

from windtunnel.domain.task import Network
from windtunnel.domain.task_schema import ArtifactTable, EnvironmentTable, Toml
from windtunnel.errors import InputWrong

__all__ = ["environment_network", "network", "refuse_unsupported"]

_NETWORKS: dict[str, Network] = {"public": "public", "no-network": "none"}
_STEPS = "multi-step tasks are not supported"


def refuse_unsupported(toml: Toml, where: str, *, compose: tuple[str, ...], steps_folder: bool) -> None:
    """Raise InputWrong for the first wish that is not built; the line names file, key and value."""
    for key, value, why in _wishes(toml, compose, steps_folder):
        raise InputWrong(f"{where}: {key} = {value!r} is refused: {why}. Remove it, or leave this task out.")


def network(mode: str | None, where: str, key: str) -> Network | None:
    """A `network_mode` as ours; None when not given. Raises InputWrong for allowlist and for unknown modes."""
    if mode is None:
        return None
    if mode not in _NETWORKS:
        raise InputWrong(f"{where}: {key} = {mode!r} is refused: windtunnel knows 'public' and 'no-network' only.")
    return _NETWORKS[mode]


def environment_network(table: EnvironmentTable, where: str, key: str) -> Network | None:
    """The network of an environment table, the deprecated `allow_internet` included. Refuses a contradiction."""
    mode = network(table.network_mode, where, f"{key}.network_mode")
    if table.allow_internet is None:
        return mode
    old: Network = "public" if table.allow_internet else "none"
    if mode is not None and mode != old:
        raise InputWrong(f"{where}: {key}.allow_internet = {old == 'public'} contradicts {key}.network_mode.")
    return old


def _wishes(toml: Toml, compose: tuple[str, ...], steps_folder: bool) -> Iterator[tuple[str, object, str]]:
    """(key, value, why not) of everything asked for that is not built."""
    if toml.steps:
        yield "steps", [step.get("name") for step in toml.steps], _STEPS
    if steps_folder:
        yield "folder steps/", "present", _STEPS
    for name in compose:
        yield "compose file", name, "tasks of several containers are not supported"
    yield from _environment_wishes(toml.environment, "environment")
    if toml.verifier.environment is not None:
        yield from _environment_wishes(toml.verifier.environment, "verifier.environment")
    for part, hosts in (("agent", toml.agent.allowed_hosts), ("verifier", toml.verifier.allowed_hosts)):
        if hosts:
            yield f"{part}.allowed_hosts", hosts, "a network allowlist is not supported"
    for number, hook in enumerate(toml.verifier.collect):
        if hook.service != "main":
            yield f"verifier.collect[{number}].service", hook.service, "there is one container, main"
    for number, artifact in enumerate(toml.artifacts):
        if isinstance(artifact, ArtifactTable) and artifact.service != "main":
            yield f"artifacts[{number}].service", artifact.service, "there is one container, main"


def _environment_wishes(table: EnvironmentTable, key: str) -> Iterator[tuple[str, object, str]]:
    if table.os.lower() != "linux":
        yield f"{key}.os", table.os, "only Linux containers are supported"
    if table.gpus:
        yield f"{key}.gpus", table.gpus, "GPUs are not supported"
    if table.gpu_types:
        yield f"{key}.gpu_types", table.gpu_types, "GPUs are not supported"
    if table.tpu:
        yield f"{key}.tpu", table.tpu, "TPUs are not supported"
    if table.allowed_hosts:
        yield f"{key}.allowed_hosts", table.allowed_hosts, "a network allowlist is not supported"
    if table.skills_dir:
        yield f"{key}.skills_dir", table.skills_dir, "skills come from the config, not from the task"
    if table.mcp_servers:
        names = [server.get("name") for server in table.mcp_servers]
        yield f"{key}.mcp_servers", names, "MCP servers are not supported"
