"""Lay out a task's Dockerfile by hand, for environments that have no engine: FROM, WORKDIR, COPY of plain paths, ENV.

The base image is taken as "this machine", so only tasks marked as local come here. Anything that runs or fetches
something while building is refused.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from windtunnel.domain.dockerfile import Dockerfile, read_dockerfile
from windtunnel.domain.outcome import Reason
from windtunnel.environments.context import context_files
from windtunnel.environments.rootdir import Root
from windtunnel.errors import AttemptFault

__all__ = ["LaidOut", "lay_out"]

_IGNORED = {"FROM", "ARG", "LABEL", "EXPOSE", "CMD", "ENTRYPOINT", "MAINTAINER", "STOPSIGNAL", "HEALTHCHECK", "USER"}


@dataclass
class LaidOut:
    """What the processes of the image get."""

    workdir: str = "/"
    env: dict[str, str] = field(default_factory=dict)


def lay_out(context: Path, root: Root) -> LaidOut:
    """Fill a root directory from a context with a Dockerfile. Raises AttemptFault(image_build_failed)."""
    recipe = _read(context / "Dockerfile")
    made = LaidOut()
    for name, rest in recipe.steps:
        if name == "WORKDIR":
            made.workdir = str(PurePosixPath(made.workdir) / _filled(rest, made.env))
            root.make(made.workdir)
        elif name == "ENV":
            made.env |= _variables(rest, made.env)
        elif name == "COPY":
            _copy(context, root, _filled(rest, made.env), made.workdir)
        elif name not in _IGNORED:
            raise _cannot(context, f"{name} {rest}")
    return made


def _read(path: Path) -> Dockerfile:
    try:
        recipe = read_dockerfile(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise AttemptFault(Reason.IMAGE_BUILD_FAILED, f"{path}: {error}") from error
    if recipe.builds:
        step = next((f"{name} {rest}" for name, rest in recipe.steps if name in {"RUN", "ADD"}), "several stages")
        raise _cannot(path.parent, step)
    return recipe


def _cannot(context: Path, step: str) -> AttemptFault:
    detail = f"{context}: environments local and plain cannot build ({step[:100]!r}); use --environment docker"
    return AttemptFault(Reason.IMAGE_BUILD_FAILED, detail)


def _filled(text: str, env: dict[str, str]) -> str:
    return re.sub(r"\$(?:(\w+)|\{(\w+)\})", lambda match: env.get(match[1] or match[2], ""), text)


def _variables(rest: str, env: dict[str, str]) -> dict[str, str]:
    try:
        words = shlex.split(rest)
    except ValueError as error:
        raise AttemptFault(Reason.IMAGE_BUILD_FAILED, f"ENV {rest[:100]}: {error}") from error
    if words and "=" not in words[0]:
        key, _, value = rest.partition(" ")
        return {key: _filled(value.strip(), env)}
    return {key: _filled(value, env) for key, _, value in (word.partition("=") for word in words)}


def _copy(context: Path, root: Root, rest: str, workdir: str) -> None:
    words = shlex.split(rest)
    if len(words) < 2 or any(word.startswith(("--", "[", "<<")) for word in words):
        raise _cannot(context, f"COPY {rest}")
    *sources, target = words
    into = str(PurePosixPath(workdir) / target)
    several = len(sources) > 1 or target.endswith("/") or target in {".", ".."} or _is_directory(root, into)
    for source in sources:
        for relative, path in _matches(context, source):
            if path.is_dir():
                _copy_directory(context, root, relative, into)
            else:
                root.put(path, f"{into}/{path.name}" if several else into)


def _is_directory(root: Root, path: str) -> bool:
    return root.path.joinpath(*PurePosixPath(path).parts[1:]).is_dir()


def _matches(context: Path, source: str) -> list[tuple[str, Path]]:
    pattern = PurePosixPath("/", source).relative_to("/")
    if ".." in pattern.parts:
        raise _cannot(context, f"COPY {source}")
    if not pattern.parts:
        return [("", context)]
    found = [(name, path) for name, path in context_files(context) if PurePosixPath("/", name).match(f"/{pattern}")]
    if not found:
        raise AttemptFault(Reason.IMAGE_BUILD_FAILED, f"{context}: COPY {source}: no such file in the context")
    return found


def _copy_directory(context: Path, root: Root, relative: str, into: str) -> None:
    prefix = f"{relative}/" if relative else ""
    root.make(into)
    for name, path in context_files(context):
        if not name.startswith(prefix):
            continue
        target = f"{into}/{name.removeprefix(prefix)}"
        if path.is_dir() and not path.is_symlink():
            root.make(target)
        else:
            root.put(path, target)
