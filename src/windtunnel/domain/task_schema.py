"""The raw tables of a Harbor task.toml, schema 1.0 to 1.4, as they stand in the file: types checked, nothing resolved.

`read_document` turns text into tables and names file, key and value when one is wrong. `task_toml.py` gives them their
meaning. Source of keys and defaults: the Harbor task format (harbor 0.26).
"""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Iterator
from typing import Annotated, Any, TypeVar

import msgspec

from windtunnel.errors import InputWrong

__all__ = [
    "AgentTable",
    "ArtifactTable",
    "CollectTable",
    "EnvironmentTable",
    "HealthcheckTable",
    "OurTable",
    "SolutionTable",
    "TaskTable",
    "Toml",
    "VerifierTable",
    "convert",
    "read_document",
    "unknown_keys",
    "value_at",
]

T = TypeVar("T")
Seconds = Annotated[float, msgspec.Meta(gt=0)]
SecondsOrZero = Annotated[float, msgspec.Meta(ge=0)]
Megabytes = Annotated[int, msgspec.Meta(gt=0)]
Text = Annotated[str, msgspec.Meta(min_length=1)]
User = str | int | None
_PLACE = re.compile(r"^(?P<what>.*) - at `\$\.?(?P<path>[^`]*)`$", re.DOTALL)
_SHOWN = 80


class AuthorTable(msgspec.Struct, frozen=True):
    name: str
    email: str | None = None


class TaskTable(msgspec.Struct, frozen=True):
    """`[task]`: `name` is `org/name` and required when the table is there."""

    name: Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*$")]
    version: str | None = None
    description: str = ""
    authors: list[AuthorTable] = []
    keywords: list[str] = []


class HealthcheckTable(msgspec.Struct, frozen=True):
    """Durations in seconds; the names without `_sec` are read too."""

    command: Text
    interval_sec: Seconds | None = None
    interval: Seconds | None = None
    timeout_sec: Seconds | None = None
    timeout: Seconds | None = None
    start_period_sec: SecondsOrZero | None = None
    start_period: SecondsOrZero | None = None
    start_interval_sec: Seconds | None = None
    start_interval: Seconds | None = None
    retries: Annotated[int, msgspec.Meta(ge=1)] = 3


class EnvironmentTable(msgspec.Struct, frozen=True):
    """`[environment]` and `[verifier.environment]`. `memory`, `storage`, `allow_internet` are the deprecated forms."""

    build_timeout_sec: Seconds = 600.0
    docker_image: str | None = None
    os: str = "linux"
    cpus: Annotated[float, msgspec.Meta(gt=0)] | None = None
    memory_mb: Megabytes | None = None
    storage_mb: Megabytes | None = None
    memory: str | None = None
    storage: str | None = None
    gpus: Annotated[int, msgspec.Meta(ge=0)] | None = None
    gpu_types: list[str] | None = None
    tpu: dict[str, Any] | None = None
    network_mode: str | None = None
    allowed_hosts: list[str] | None = None
    allow_internet: bool | None = None
    env: dict[str, str] = {}
    workdir: str | None = None
    skills_dir: str | None = None
    mcp_servers: list[dict[str, Any]] = []
    healthcheck: HealthcheckTable | None = None


class AgentTable(msgspec.Struct, frozen=True):
    timeout_sec: Seconds | None = None
    user: User = None
    network_mode: str | None = None
    allowed_hosts: list[str] | None = None


class CollectTable(msgspec.Struct, frozen=True):
    command: Text
    service: str = "main"
    timeout_sec: Seconds = 60.0
    user: User = None


class VerifierTable(msgspec.Struct, frozen=True):
    timeout_sec: Seconds = 600.0
    env: dict[str, str] = {}
    user: User = None
    environment_mode: str | None = None
    network_mode: str | None = None
    allowed_hosts: list[str] | None = None
    environment: EnvironmentTable | None = None
    collect: list[CollectTable] = []


class SolutionTable(msgspec.Struct, frozen=True):
    env: dict[str, str] = {}


class ArtifactTable(msgspec.Struct, frozen=True):
    source: Text
    destination: str | None = None
    exclude: list[str] = []
    service: str = "main"


class OurTable(msgspec.Struct, frozen=True):
    """`[metadata.windtunnel]`: what the format has no key for."""

    reward_range: tuple[float, float] = (0.0, 1.0)
    local: bool = False
    pids: Annotated[int, msgspec.Meta(ge=16)] = 4096


class Toml(msgspec.Struct, frozen=True):
    """The whole file. `version` is the deprecated name of `schema_version`."""

    schema_version: str | None = None
    version: str | None = None
    source: str | None = None
    task: TaskTable | None = None
    metadata: dict[str, Any] = {}
    agent: AgentTable = AgentTable()
    verifier: VerifierTable = VerifierTable()
    environment: EnvironmentTable = EnvironmentTable()
    solution: SolutionTable = SolutionTable()
    artifacts: list[str | ArtifactTable] = []
    steps: list[dict[str, Any]] | None = None
    multi_step_reward_strategy: str | None = None


def read_document(text: str, where: str) -> dict[str, Any]:
    """TOML text as plain tables. Raises InputWrong naming the file for broken TOML and for NaN or infinity anywhere."""
    try:
        document = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError, ValueError) as error:
        raise InputWrong(f"{where}: not valid TOML: {error}. Mend the file.") from error
    for path, value in _leaves(document, ""):
        if isinstance(value, float) and not math.isfinite(value):
            raise InputWrong(f"{where}: {path} = {value}: a number must be finite.")
    return document


def convert(document: object, type_: type[T], where: str, prefix: str = "") -> T:
    """Tables as a typed value; unknown keys are ignored. Raises InputWrong naming file, key and value."""
    try:
        return msgspec.convert(document, type_)
    except msgspec.ValidationError as error:
        found = _PLACE.match(str(error))
        path = found["path"] if found else ""
        shown = repr(value_at(document, path))[:_SHOWN] if path else repr(document)[:_SHOWN]
        key = ".".join(part for part in (prefix, path) if part) or "the top level"
        raise InputWrong(f"{where}: {key} = {shown}: {found['what'] if found else error}.") from error


def unknown_keys(document: object, type_: type, prefix: str = "") -> Iterator[str]:
    """Dotted names of keys that the format does not have; free tables (metadata, env) are not looked into."""
    if not isinstance(document, dict):
        return
    hints = {field.encode_name: field.type for field in msgspec.structs.fields(type_)}
    for key, value in document.items():
        name = f"{prefix}{key}"
        if key not in hints:
            yield name
            continue
        table = _table_in(hints[key])
        if table is not None:
            for item in value if isinstance(value, list) else [value]:
                yield from unknown_keys(item, table, f"{name}.")


def value_at(document: object, path: str) -> object:
    """The value at a msgspec error path such as `environment.env[...]` or `artifacts[1].source`, as near as it goes."""
    value: Any = document
    for key, index in re.findall(r"([^.\[\]]+)|\[(\d+|\.\.\.)\]", path):
        if isinstance(value, dict) and key in value:
            value = value[key]
        elif isinstance(value, list) and index.isdigit() and int(index) < len(value):
            value = value[int(index)]
    return value


def _leaves(value: object, path: str) -> Iterator[tuple[str, object]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _leaves(inner, f"{path}.{key}" if path else key)
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _leaves(inner, f"{path}[{index}]")
    else:
        yield path, value


def _table_in(hint: Any) -> type | None:
    """The struct inside a type such as `list[str | ArtifactTable]`, or None."""
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return hint
    return next(filter(None, map(_table_in, getattr(hint, "__args__", ()))), None)
