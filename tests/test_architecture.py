"""The house keeps its shape: import direction, sizes, public names, a pure domain."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1] / "src" / "windtunnel"
MODULES = sorted(p for p in ROOT.rglob("*.py") if "tasks" not in p.relative_to(ROOT).parts[:1])

# A room may import the rooms listed for it, and itself.
ALLOWED = {
    "errors": set(),
    "domain": {"errors"},
    "host": {"domain", "errors"},
    "store": {"host", "domain", "errors"},
    "environments": {"store", "host", "domain", "errors"},
    "subjects": {"store", "host", "domain", "errors"},
    "gateway": {"store", "host", "domain", "errors"},
    "steps": {"subjects", "environments", "gateway", "store", "host", "domain", "errors"},
    "cli": {"steps", "subjects", "environments", "gateway", "store", "host", "domain", "errors"},
}
# What a step may know of an adapter room: its interface and its value modules, never an adapter.
STEPS_MAY_IMPORT = {
    "windtunnel.environments.interface",
    "windtunnel.subjects.interface",
    "windtunnel.subjects.driver_spec",
    "windtunnel.gateway.interface",
}
IMPURE = {"os", "subprocess", "socket", "asyncio", "time", "pathlib", "shutil", "tempfile", "aiohttp", "aiodocker"}


def room(path: Path) -> str:
    first = path.relative_to(ROOT).parts[0]
    return first.removesuffix(".py")


def imported(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    return names


def ids(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", MODULES, ids=ids)
def test_imports_point_down_only(path: Path) -> None:
    here = room(path)
    if here not in ALLOWED:
        return
    ours = {name.split(".")[1] for name in imported(path) if name.startswith("windtunnel.")}

    assert ours - {here, "__version__"} <= ALLOWED[here]


@pytest.mark.parametrize("path", [p for p in MODULES if room(p) == "steps"], ids=ids)
def test_steps_know_interfaces_not_adapters(path: Path) -> None:
    adapters = {
        name
        for name in imported(path)
        if name.split(".")[:2] in (["windtunnel", r] for r in ("environments", "subjects", "gateway"))
    }

    assert {".".join(name.split(".")[:3]) for name in adapters} <= STEPS_MAY_IMPORT


@pytest.mark.parametrize("path", [p for p in MODULES if room(p) == "domain"], ids=ids)
def test_domain_touches_nothing(path: Path) -> None:
    names = {name for name in imported(path) if not name.startswith("pathlib.Pure")} - {"pathlib"}
    assert not {name.split(".")[0] for name in names} & IMPURE
    calls = {
        node.func.id
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    assert not calls & {"open", "print", "input"}


@pytest.mark.parametrize("path", MODULES, ids=ids)
def test_modules_and_functions_stay_small(path: Path) -> None:
    text = path.read_text()
    functions = [n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
    too_long = [f"{f.name}: {n}" for f in functions if (n := (f.end_lineno or 0) - f.lineno + 1) > 60]

    assert text.count("\n") <= 400
    assert not too_long


@pytest.mark.parametrize("path", [p for p in MODULES if p.name != "__init__.py"], ids=ids)
def test_every_module_says_what_it_is_for_and_what_is_public(path: Path) -> None:
    tree = ast.parse(path.read_text())
    names = {t.id for n in tree.body if isinstance(n, ast.Assign) for t in n.targets if isinstance(t, ast.Name)}
    names |= {n.target.id for n in tree.body if isinstance(n, ast.AnnAssign) and isinstance(n.target, ast.Name)}

    assert ast.get_docstring(tree)
    assert "__all__" in names


def test_retired_words_are_not_used() -> None:
    retired = {"arm", "arms", "treatment", "trial", "trials"}
    found = set()
    for path in MODULES:
        for node in ast.walk(ast.parse(path.read_text())):
            name = getattr(node, "name", None) or getattr(node, "id", None) or getattr(node, "arg", None)
            if isinstance(name, str) and set(name.lower().split("_")) & retired:
                found.add(f"{path.name}: {name}")

    assert not found
