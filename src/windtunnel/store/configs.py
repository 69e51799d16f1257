"""The shelf of configs: `configs/<name>/`, its files, its leaf directories."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from windtunnel.domain.cell import folder, model_leaf
from windtunnel.domain.config import (
    LEAF_FILES,
    ROOT_FILES,
    ROOT_FOLDERS,
    Config,
    ConfigToml,
    check_flags,
    parse_config_toml,
    parse_env,
    parse_json_object,
    parse_models,
)
from windtunnel.domain.contract import parse_contract
from windtunnel.domain.plan import ConfigFile
from windtunnel.domain.replay import parse_script
from windtunnel.domain.role import Thinking
from windtunnel.errors import InputWrong
from windtunnel.store.files import sha256_file

__all__ = ["choose_leaf", "describe_file", "find_config", "list_leaves", "read_config", "read_toml"]

# Never part of what a subject is given.
_SKIPPED_FOLDERS = {".git", "__pycache__", "node_modules"}
_NOT_FOR_SUBJECT = {"config.toml", "smoke.json"}
_LEVELS = tuple(str(level) for level in Thinking)


def find_config(name: str, config_root: Path) -> Path:
    """The directory of a config given by name (below the config root) or by path. Raises InputWrong."""
    is_path = "/" in name or name in {".", ".."}
    directory = Path(os.path.abspath(name if is_path else config_root / name))  # noqa: PTH100 - resolve() loses a link's name
    if not name or not directory.is_dir():
        there = ", ".join(_names(config_root)) or "none"
        raise InputWrong(f"config {name!r}: no directory {directory}. Configs in {config_root}: {there}")
    why = folder(directory.name)
    if why is not None:
        raise InputWrong(f"config {name!r} cannot be a folder in the results tree: {why}. Rename it.")
    return directory


def _names(config_root: Path) -> list[str]:
    if not config_root.is_dir():
        return []
    return sorted(entry.name for entry in config_root.iterdir() if entry.is_dir() and folder(entry.name) is None)


def list_leaves(directory: Path) -> list[str]:
    """The leaf directories of a config: `<model-leaf>[+<role>]/<thinking>`, sorted."""
    found = []
    for top in sorted(directory.iterdir()):
        if top.is_dir() and top.name not in ROOT_FOLDERS and not top.name.startswith("."):
            found += [f"{top.name}/{level}" for level in _LEVELS if (top / level).is_dir()]
    return found


def choose_leaf(directory: Path, model: str | None, thinking: str, wanted: str | None, name: str) -> str | None:
    """The one leaf that fits model and level; `wanted` is the name given with `--leaf`. None: there are no leaves."""
    leaves = list_leaves(directory)
    model_name = model_leaf(model)
    fitting = [
        leaf
        for leaf, top in ((leaf, leaf.split("/")[0]) for leaf in leaves)
        if leaf.endswith(f"/{thinking}") and (top == model_name or top.startswith(model_name + "+"))
    ]
    if wanted is not None:
        chosen = [leaf for leaf in fitting if wanted.rstrip("/") in {leaf, leaf.split("/")[0]}]
        if not chosen:
            raise InputWrong(
                f"--leaf {name}={wanted}: config {name} has no such leaf for {model_name} at {thinking}. "
                f"It has: {', '.join(leaves) or 'no leaves'}"
            )
        return chosen[0]
    if len(fitting) > 1:
        tops = [leaf.split("/")[0] for leaf in fitting]
        raise InputWrong(
            f"config {name}: {len(fitting)} leaves fit {model_name} at {thinking}: {', '.join(tops)}. "
            f"Choose one, for example --leaf {name}={tops[0]}"
        )
    if leaves and not fitting:
        raise InputWrong(
            f"config {name} has no leaf for {model_name} at {thinking}. It has: {', '.join(leaves)}. "
            "Use one of these models and levels, or add the leaf directory."
        )
    return fitting[0] if fitting else None


def read_config(directory: Path, *, name: str, model: str | None, thinking: str, leaf: str | None = None) -> Config:
    """Read a config for one model and level. Raises InputWrong or NotBuiltYet naming the file."""
    chosen = choose_leaf(directory, model, thinking, leaf, name)
    used, unused = _sort_out(directory, chosen)
    toml = read_toml(directory)
    scripts = {_script(directory, r.script) for r in toml.routes.values() if r.script is not None}
    used = sorted({*used, *scripts})
    files = tuple(describe_file(directory, path, reaches=_reaches(path, scripts, chosen)) for path in used)
    for path in used:
        if path.rsplit("/", 1)[-1] == "pi-flags" and _is_own(path, chosen):
            check_flags(_text(directory / path), str(directory / path))
    models, settings = f"{chosen}/models.json", f"{chosen}/settings.json"
    return Config(
        name=name,
        directory=str(directory),
        toml=toml,
        files=files,
        unused=tuple(path for path in unused if path not in scripts),
        overlaid=tuple(f for f in LEAF_FILES if f in used and f"{chosen}/{f}" in used),
        leaf=chosen,
        env=parse_env(_text(directory / "env"), str(directory / "env")) if "env" in used else {},
        providers=parse_models(_bytes(directory / models), str(directory / models)) if models in used else {},
        settings=parse_json_object(_bytes(directory / settings), str(directory / settings)) if settings in used else {},
        scripts={file.path: file.sha256 for file in files if file.path in scripts},
        contract=_contract(directory, used, chosen),
    )


def read_toml(directory: Path) -> ConfigToml:
    """config.toml of a config; the defaults when there is none. Raises InputWrong or NotBuiltYet."""
    path = directory / "config.toml"
    if not path.exists() and not path.is_symlink():
        return ConfigToml()
    _checked(path, directory)
    return parse_config_toml(_text(path), str(path))


def describe_file(directory: Path, path: str, *, reaches: bool = True) -> ConfigFile:
    """Hash, size and exec bit of one file of a config, as it is on disk now."""
    full = directory / path
    try:
        facts = full.stat()
        return ConfigFile(
            path=path,
            sha256=sha256_file(full),
            executable=bool(facts.st_mode & stat.S_IXUSR),
            bytes=facts.st_size,
            reaches_subject=reaches,
        )
    except OSError as error:
        raise InputWrong(f"{full}: cannot be read: {error.strerror}. Mend its permissions or remove it.") from error


def _contract(directory: Path, used: list[str], leaf: str | None) -> str | None:
    path = next((p for p in (f"{leaf}/smoke.json", "smoke.json") if p in used), None)
    if path is not None:
        parse_contract(_bytes(directory / path), str(directory / path))
    return path


def _is_own(path: str, leaf: str | None) -> bool:
    return path.count("/") == 0 or (leaf is not None and path.rsplit("/", 1)[0] == leaf)


def _reaches(path: str, scripts: set[str], leaf: str | None) -> bool:
    own = _is_own(path, leaf) and path.rsplit("/", 1)[-1] in _NOT_FOR_SUBJECT
    return not own and path not in scripts


def _script(directory: Path, script: str) -> str:
    where = directory / script
    if Path(script).is_absolute() or ".." in Path(script).parts or not where.is_file():
        raise InputWrong(f"{directory / 'config.toml'}: no replay script {script!r} inside the config. Add the file.")
    checked = _checked(where, directory)
    try:
        parse_script(_bytes(where))
    except (ValueError, RecursionError) as error:
        raise InputWrong(f"{where}: not a replay script: {error}. Mend the file.") from error
    return checked


def _sort_out(directory: Path, leaf: str | None) -> tuple[list[str], list[str]]:
    """Paths that are used and paths that nothing reads, both relative and sorted."""
    used, unused = [], []
    leaf_tops = {found.split("/")[0] for found in list_leaves(directory)}
    for entry in sorted(directory.iterdir()):
        if entry.name in ROOT_FOLDERS and entry.is_dir():
            files = list(_walk(entry, directory, ()))
            used += [str(path.relative_to(directory)) for path in files]
        elif entry.name in LEAF_FILES and entry.name not in ROOT_FILES:
            raise InputWrong(
                f"{entry}: nothing reads it here; it belongs to one model and level: "
                f"{directory.name}/<model-leaf>/<thinking>/{entry.name}. Move it there."
            )
        elif entry.name in ROOT_FILES:
            used.append(_checked(entry, directory))
        elif entry.name not in leaf_tops:
            unused.append(entry.name + "/" * entry.is_dir())
    for entry in sorted((directory / leaf).iterdir()) if leaf else ():
        if entry.name in LEAF_FILES:
            used.append(_checked(entry, directory))
        else:
            unused.append(f"{leaf}/{entry.name}" + "/" * entry.is_dir())
    return used, unused


def _checked(path: Path, directory: Path) -> str:
    _check_link(path, directory)
    if not path.is_file():
        raise InputWrong(f"{path}: must be a regular file. Replace it.")
    return str(path.relative_to(directory))


def _check_link(path: Path, directory: Path) -> None:
    """Refuse a path that leads out of the config through a link."""
    try:
        target = path.resolve(strict=True)
    except (OSError, RuntimeError) as error:
        raise InputWrong(f"{path}: does not exist or is a link that leads nowhere. Replace or remove it.") from error
    if not target.is_relative_to(directory.resolve()):
        raise InputWrong(f"{path}: a link that leads out of the config ({target}). Copy the file into the config.")


def _walk(top: Path, directory: Path, above: tuple[Path, ...]) -> Iterator[Path]:
    _check_link(top, directory)
    real = top.resolve()
    if real in above:
        raise InputWrong(f"{top}: a link that leads back to a folder above it. Remove it.")
    for entry in sorted(top.iterdir()):
        if entry.name in _SKIPPED_FOLDERS:
            continue
        if entry.is_dir():
            yield from _walk(entry, directory, (*above, real))
        else:
            _checked(entry, directory)
            yield entry


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputWrong(f"{path}: cannot be read: {error.strerror}. Mend its permissions.") from error


def _text(path: Path) -> str:
    try:
        return _bytes(path).decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputWrong(f"{path}: not UTF-8 text (byte {error.start}). Save it as UTF-8.") from error
