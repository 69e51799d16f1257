"""What must be known about a Dockerfile without an engine: what it is built FROM and whether it runs anything.

`local` and `plain` lay a task out by hand from these facts; the engine alone builds anything else.
"""

from __future__ import annotations

import re

import msgspec

__all__ = ["Dockerfile", "read_dockerfile"]

_VARIABLE = re.compile(r"\$(?:(\w+)|\{(\w+)(?::-([^}]*))?\})")


class Dockerfile(msgspec.Struct, frozen=True, kw_only=True):
    """`base`: the reference the last stage starts from (`scratch` included). `steps`: (INSTRUCTION, arguments) of all
    stages in order. Of the last stage: `copies`, (sources, destination) of its plain COPY lines; `workdir`, its last
    WORKDIR."""

    base: str
    steps: tuple[tuple[str, str], ...]
    copies: tuple[tuple[tuple[str, ...], str], ...] = ()
    workdir: str | None = None

    @property
    def builds(self) -> bool:
        """Whether making the image runs or fetches anything (RUN, ADD, a copy from a stage, several stages)."""
        names = [name for name, _ in self.steps]
        foreign = any(name == "COPY" and "--from" in rest for name, rest in self.steps)
        return foreign or "RUN" in names or "ADD" in names or names.count("FROM") != 1


def read_dockerfile(text: str) -> Dockerfile:
    """Read a Dockerfile. Raises ValueError saying what is wrong: no FROM, or a FROM with an unset variable."""
    steps = tuple(_steps(text))
    arguments: dict[str, str] = {}
    stages: dict[str, str] = {}
    base: str | None = None
    for name, rest in steps:
        if name == "ARG" and base is None:
            key, _, default = rest.partition("=")
            arguments[key.strip()] = default.strip().strip("\"'")
        elif name == "FROM":
            base, alias = _from(rest, arguments)
            base = stages.get(base.lower(), base)
            if alias:
                stages[alias.lower()] = base
    if base is None:
        raise ValueError("it has no FROM")
    last = steps[max(index for index, (name, _) in enumerate(steps) if name == "FROM") + 1 :]
    workdirs = [rest for name, rest in last if name == "WORKDIR"]
    copies = tuple(_copy(rest) for name, rest in last if name == "COPY" and "--from" not in rest)
    return Dockerfile(base=base, steps=steps, copies=copies, workdir=workdirs[-1] if workdirs else None)


def _steps(text: str) -> list[tuple[str, str]]:
    """Instructions with continuation lines joined, comments and here-documents left out."""
    found: list[tuple[str, str]] = []
    parts: list[str] = []
    until: str | None = None
    for raw in text.splitlines():
        line = raw.strip()
        if until is not None:
            until = None if line == until else until
            continue
        if not line or line.startswith("#"):
            continue
        parts.append(line.removesuffix("\\").strip())
        if line.endswith("\\"):
            continue
        name, _, rest = " ".join(parts).partition(" ")
        parts = []
        found.append((name.upper(), rest.strip()))
        here = re.search(r"<<-?[\"']?(\w+)[\"']?", rest) if name.upper() in {"RUN", "COPY"} else None
        until = here[1] if here else None
    return found


def _from(rest: str, arguments: dict[str, str]) -> tuple[str, str | None]:
    words = [word for word in rest.split() if not word.startswith("--")]
    if not words:
        raise ValueError("a FROM names no image")

    def fill(match: re.Match[str]) -> str:
        value = arguments.get(match[1] or match[2]) or match[3]
        if not value:
            raise ValueError(f"FROM {rest}: the variable has no default")
        return value

    alias = words[2] if len(words) == 3 and words[1].lower() == "as" else None
    return _VARIABLE.sub(fill, words[0]), alias


def _copy(rest: str) -> tuple[tuple[str, ...], str]:
    words = [word for word in rest.split() if not word.startswith("--")]
    return tuple(words[:-1]), words[-1] if words else ""
