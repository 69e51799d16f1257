"""Which adapter a name means; each is imported only when it is used."""

from __future__ import annotations

from pathlib import Path

from windtunnel.environments.interface import Environment
from windtunnel.errors import InputWrong

__all__ = ["ENVIRONMENTS", "clear", "make"]

ENVIRONMENTS = ("docker", "local", "plain")


def make(name: str, *, work_root: Path) -> Environment:
    """The environment of that name. `work_root`: where `local` and `plain` keep images and their register.
    Raises InputWrong for another name; whether it works here is for `facts()` to say."""
    if name == "docker":
        from windtunnel.environments.docker import DockerEnvironment

        return DockerEnvironment()
    if name == "local":
        from windtunnel.environments.local import LocalEnvironment

        return LocalEnvironment(work_root=work_root)
    if name == "plain":
        from windtunnel.environments.plain import PlainEnvironment

        return PlainEnvironment(work_root=work_root)
    raise InputWrong(f"environment {name!r} does not exist; there are {', '.join(ENVIRONMENTS)}")


def clear(name: str, *, work_root: Path) -> list[str]:
    """End what an earlier supervisor still runs below a work root, before that root is removed: with it goes the only
    record of those processes. Names of what was ended; docker keeps its own record, nothing is done for it."""
    from windtunnel.environments.disk_environment import DiskEnvironment

    environment = make(name, work_root=work_root)
    return environment.clear() if isinstance(environment, DiskEnvironment) else []
