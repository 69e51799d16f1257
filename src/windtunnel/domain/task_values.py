"""Single values of a task.toml, checked: variables, sizes, paths, users. Each names file, key and value when wrong."""

from __future__ import annotations

import re

from windtunnel.domain.task import Artifact, Healthcheck, Limits
from windtunnel.domain.task_schema import ArtifactTable, EnvironmentTable, HealthcheckTable, OurTable
from windtunnel.errors import InputWrong

__all__ = ["artifact", "env", "healthcheck", "limits", "user", "workdir"]

_HOST_VARIABLE = re.compile(r"\$\{(\w+)(?::-([^}]*))?\}")
_ENV_NAME = re.compile(r"^[A-Za-z_][A-Za-z0-9_]*$")
_SIZE = re.compile(r"^\s*(\d{1,9}(?:\.\d{1,9})?)\s*([KMGT])(?:I?B)?\s*$", re.IGNORECASE)
_MIB = {"K": 1 / 1024, "M": 1, "G": 1024, "T": 1024 * 1024}


def workdir(path: str | None, where: str) -> str | None:
    """The working directory inside the container; None means the image's own."""
    if path is not None and not path.startswith("/"):
        raise InputWrong(f"{where}: environment.workdir = {path!r}: expected an absolute path.")
    return path


def env(values: dict[str, str], key: str, where: str) -> dict[str, str]:
    """Variables with `${VAR:-x}` as x. The host's environment is never read, so `${VAR}` alone is refused."""

    def default(match: re.Match[str]) -> str:
        if match[2] is None:
            raise InputWrong(
                f"{where}: {key}.{name} = {value!r} is refused: it asks for the host's {match[1]}. Give it a default."
            )
        return match[2]

    resolved: dict[str, str] = {}
    for name, value in values.items():
        if not _ENV_NAME.match(name) or "\0" in value:
            raise InputWrong(f"{where}: {key}.{name} = {value!r}: not an environment variable.")
        resolved[name] = _HOST_VARIABLE.sub(default, value)
    return resolved


def user(name: str | int | None) -> str | None:
    """A user name or number as text; None means the image's own."""
    return None if name is None else str(name)


def limits(table: EnvironmentTable, ours: OurTable, key: str, where: str) -> Limits:
    """Ceilings of a container, the deprecated texts included."""
    memory = _megabytes(table.memory_mb, table.memory, f"{key}.memory", where)
    storage = _megabytes(table.storage_mb, table.storage, f"{key}.storage", where)
    return Limits(memory_mb=memory, cpus=table.cpus, pids=ours.pids, storage_mb=storage)


def _megabytes(megabytes: int | None, old: str | None, key: str, where: str) -> int | None:
    """MiB from the key of today or from the deprecated text such as "2G"; both must not disagree."""
    if old is None:
        return megabytes
    match = _SIZE.match(old)
    size = int(float(match[1]) * _MIB[match[2].upper()]) if match else 0
    if size < 1:
        raise InputWrong(f'{where}: {key} = {old!r}: expected a size such as "2G" or "512M".')
    if megabytes not in {None, size}:
        raise InputWrong(f"{where}: {key} = {old!r} contradicts {key}_mb = {megabytes}.")
    return size


def artifact(entry: str | ArtifactTable, key: str, where: str) -> Artifact:
    """A path that crosses to a separate verifier."""
    table = ArtifactTable(source=entry) if isinstance(entry, str) else entry
    if not table.source.startswith("/") or ".." in table.source.split("/"):
        raise InputWrong(f"{where}: {key}.source = {table.source!r}: expected an absolute path without '..'.")
    target = table.destination
    if target is not None and (not target or target.startswith("/") or ".." in target.split("/")):
        raise InputWrong(f"{where}: {key}.destination = {target!r}: expected a relative path without '..'.")
    return Artifact(source=table.source, destination=target, exclude=tuple(table.exclude))


def healthcheck(table: HealthcheckTable | None) -> Healthcheck | None:
    """The health check with Harbor's defaults filled in."""
    if table is None:
        return None
    default = Healthcheck(command=table.command)
    return Healthcheck(
        command=table.command,
        interval_s=table.interval_sec or table.interval or default.interval_s,
        timeout_s=table.timeout_sec or table.timeout or default.timeout_s,
        start_period_s=table.start_period_sec or table.start_period or default.start_period_s,
        start_interval_s=table.start_interval_sec or table.start_interval or default.start_interval_s,
        retries=table.retries,
    )
