"""From a Harbor task.toml and what lies beside it to a `Task`: defaults filled in, unsupported wishes refused by name.

Only the store touches the disk: it hands in `TaskFiles`. Revisions are made here, because they cover the parsed file:
`taskRevision` = instruction, environment/, pre_artifacts.sh, task.toml without `[verifier]`; `verifierRevision` =
tests/ and `[verifier]`. pre_artifacts.sh is on the task's side: a regrade cannot collect again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from windtunnel.domain.cell import folder
from windtunnel.domain.digest import identity
from windtunnel.domain.dockerfile import Dockerfile, read_dockerfile
from windtunnel.domain.task import CollectHook, ImageSource, Network, Task
from windtunnel.domain.task_refusals import environment_network, network, refuse_unsupported
from windtunnel.domain.task_schema import (
    EnvironmentTable,
    OurTable,
    Toml,
    convert,
    read_document,
    unknown_keys,
)
from windtunnel.domain.task_values import artifact, env, healthcheck, limits, user, workdir
from windtunnel.errors import InputWrong

__all__ = ["NEWEST_SCHEMA", "TaskFiles", "parse_task"]

NEWEST_SCHEMA = (1, 4)
_VERSION = re.compile(r"^(\d{1,4})\.(\d{1,4})$")
_REFERENCE = re.compile(r"^[A-Za-z0-9][\w./:@-]*$")


@dataclass(frozen=True)
class TaskFiles:
    """What the store saw in the task folder. Hashes are `sha256:...`; None: not there.

    `dockerfile`, `tests_dockerfile`: their text. `compose`: names of compose files that Harbor would start.
    """

    instruction_sha256: str | None
    environment_hash: str | None
    dockerfile: str | None = None
    compose: tuple[str, ...] = ()
    tests_hash: str | None = None
    test_script: bool = False
    tests_dockerfile: str | None = None
    solution: bool = False
    steps_folder: bool = False
    pre_artifacts_sha256: str | None = None


def parse_task(text: str, *, task_id: str, facts: TaskFiles) -> Task:
    """The task, resolved. Raises InputWrong: one line that names the file, the key and the value."""
    where = f"tasks/{task_id}/task.toml"
    problem = folder(task_id)
    if problem is not None:
        raise InputWrong(f"task id {task_id!r} cannot be used: {problem}. Rename the folder.")
    document = read_document(text, where)
    version = _schema_version(document, where)
    toml = convert(document, Toml, where)
    ours = convert(toml.metadata.get("windtunnel", {}), OurTable, where, "metadata.windtunnel")
    refuse_unsupported(toml, where, compose=facts.compose, steps_folder=facts.steps_folder)
    separate = _separate(toml, where)
    _need_files(toml, facts, task_id, separate)
    _check_ours(ours, facts, where)
    verifier_box = _verifier_table(toml, separate)
    agent_network, verifier_network = _networks(toml, verifier_box, where)
    task_revision, verifier_revision = _revisions(document, facts)
    return Task(
        id=task_id,
        name=toml.task.name if toml.task else None,
        schema_version=version,
        task_revision=task_revision,
        verifier_revision=verifier_revision,
        image=_image(toml.environment, "environment", facts.dockerfile, facts.environment_hash, where),
        verifier_image=_verifier_image(toml, facts, where) if separate else None,
        build_timeout_s=max(toml.environment.build_timeout_sec, verifier_box.build_timeout_sec),
        hand_over="artifacts" if separate else "snapshot",
        workdir=workdir(toml.environment.workdir, where),
        env=env(toml.environment.env, "environment.env", where),
        verifier_env=_verifier_env(toml, verifier_box, where),
        solution_env=env(toml.solution.env, "solution.env", where),
        agent_user=user(toml.agent.user),
        verifier_user=user(toml.verifier.user),
        agent_network=agent_network,
        verifier_network=verifier_network,
        agent_timeout_s=toml.agent.timeout_sec,
        verifier_timeout_s=toml.verifier.timeout_sec,
        limits=limits(toml.environment, ours, "environment", where),
        verifier_limits=limits(verifier_box, ours, "verifier.environment", where),
        collect=tuple(
            CollectHook(command=c.command, timeout_s=c.timeout_sec, user=user(c.user)) for c in toml.verifier.collect
        ),
        pre_artifacts=facts.pre_artifacts_sha256 is not None,
        artifacts=tuple(artifact(a, f"artifacts[{n}]", where) for n, a in enumerate(toml.artifacts)),
        healthcheck=healthcheck(toml.environment.healthcheck),
        reward_range=ours.reward_range,
        local=ours.local,
        warnings=tuple(_warnings(document, toml, facts, verifier_network)),
    )


def _schema_version(document: dict[str, Any], where: str) -> str:
    """The declared version; a missing one means the newest. Looked at first: a newer file may mean anything."""
    newest = ".".join(map(str, NEWEST_SCHEMA))
    key = "schema_version" if "schema_version" in document else "version"
    value = document.get(key, newest)
    match = _VERSION.match(value) if isinstance(value, str) else None
    if match is None:
        raise InputWrong(f'{where}: {key} = {value!r}: expected a text such as "{newest}".')
    if not (1, 0) <= (int(match[1]), int(match[2])) <= NEWEST_SCHEMA:
        raise InputWrong(f"{where}: {key} = {value!r}: this windtunnel reads schema 1.0 to {newest}.")
    return str(value)


def _separate(toml: Toml, where: str) -> bool:
    """Whether the verifier is a container of its own; `[verifier.environment]` implies it."""
    mode = toml.verifier.environment_mode
    if mode not in {None, "shared", "separate"}:
        raise InputWrong(f"{where}: verifier.environment_mode = {mode!r}: expected 'shared' or 'separate'.")
    if mode == "shared" and toml.verifier.environment is not None:
        raise InputWrong(f"{where}: verifier.environment_mode = 'shared' contradicts [verifier.environment].")
    return mode == "separate" or toml.verifier.environment is not None


def _need_files(toml: Toml, facts: TaskFiles, task_id: str, separate: bool) -> None:
    place = f"tasks/{task_id}"
    own_image = toml.verifier.environment is not None and toml.verifier.environment.docker_image is not None
    if facts.instruction_sha256 is None:
        raise InputWrong(f"{place}/instruction.md is missing or empty. Add it: it is what the agent is told.")
    if separate and own_image:
        return
    if facts.tests_hash is None:
        raise InputWrong(f"{place}/tests/ is missing. Add it: without tests nothing can be graded.")
    if separate and facts.tests_dockerfile is None:
        raise InputWrong(f"{place}/tests/Dockerfile is missing: a separate verifier needs it or a docker_image.")
    if not separate and not facts.test_script:
        raise InputWrong(f"{place}/tests/test.sh is missing. Add it: it is the verifier's command.")


def _check_ours(ours: OurTable, facts: TaskFiles, where: str) -> None:
    low, high = ours.reward_range
    if low >= high:
        raise InputWrong(f"{where}: metadata.windtunnel.reward_range = {[low, high]}: the first must be smaller.")
    if not ours.local:
        return
    if facts.dockerfile is None or _dockerfile(facts.dockerfile, "environment", where).builds:
        raise InputWrong(
            f"{where}: metadata.windtunnel.local = True: it needs an environment/Dockerfile without build steps."
        )


def _verifier_table(toml: Toml, separate: bool) -> EnvironmentTable:
    """The environment table that holds for the verifier: its own, else the task's."""
    if separate and toml.verifier.environment is not None:
        return toml.verifier.environment
    return toml.environment


def _networks(toml: Toml, verifier_box: EnvironmentTable, where: str) -> tuple[Network, Network]:
    """(agent, verifier): the phase's own mode, else its environment's, else Harbor's default, public."""
    shared = environment_network(toml.environment, where, "environment")
    own = environment_network(verifier_box, where, "verifier.environment")
    agent = network(toml.agent.network_mode, where, "agent.network_mode") or shared or "public"
    return agent, network(toml.verifier.network_mode, where, "verifier.network_mode") or own or "public"


def _revisions(document: dict[str, Any], facts: TaskFiles) -> tuple[str, str]:
    """(taskRevision, verifierRevision)."""
    without = {key: value for key, value in document.items() if key != "verifier"}
    task: dict[str, Any] = {
        "instruction": facts.instruction_sha256,
        "environment": facts.environment_hash,
        "toml": without,
    }
    if facts.pre_artifacts_sha256 is not None:
        task["pre_artifacts"] = facts.pre_artifacts_sha256
    return identity(task), identity({"tests": facts.tests_hash, "verifier": document.get("verifier", {})})


def _image(table: EnvironmentTable, context: str, dockerfile: str | None, tree: str | None, where: str) -> ImageSource:
    """A declared image wins over a Dockerfile, as in Harbor."""
    if table.docker_image is not None:
        if not _REFERENCE.match(table.docker_image):
            raise InputWrong(f"{where}: docker_image = {table.docker_image!r}: not an image reference.")
        return ImageSource(reference=table.docker_image)
    if dockerfile is None:
        raise InputWrong(f"{where}: no image: add {context}/Dockerfile or set environment.docker_image.")
    base = _dockerfile(dockerfile, context, where).base
    return ImageSource(context=context, context_hash=tree, base=base)


def _dockerfile(text: str, context: str, where: str) -> Dockerfile:
    try:
        return read_dockerfile(text)
    except ValueError as error:
        raise InputWrong(f"{where.removesuffix('task.toml')}{context}/Dockerfile: {error}.") from error


def _verifier_image(toml: Toml, facts: TaskFiles, where: str) -> ImageSource:
    own = toml.verifier.environment or EnvironmentTable()
    return _image(own, "tests", facts.tests_dockerfile, facts.tests_hash, where)


def _verifier_env(toml: Toml, verifier_box: EnvironmentTable, where: str) -> dict[str, str]:
    own = "environment.env" if verifier_box is toml.environment else "verifier.environment.env"
    return {**env(verifier_box.env, own, where), **env(toml.verifier.env, "verifier.env", where)}


def _warnings(document: dict[str, Any], toml: Toml, facts: TaskFiles, verifier_network: str) -> Iterator[str]:
    """What a reader of the receipt must know and the task cannot be refused for."""
    yield from (f"unknown key {key} is ignored" for key in unknown_keys(document, Toml))
    ours = toml.metadata.get("windtunnel")
    yield from (f"unknown key {key} is ignored" for key in unknown_keys(ours, OurTable, "metadata.windtunnel."))
    if verifier_network == "public":
        yield "the verifier has the public network"
    if toml.environment.storage_mb or toml.environment.storage:
        yield "storage_mb is polled, not enforced"
    if not facts.solution:
        yield "no solution/solve.sh: the oracle cannot run it"
