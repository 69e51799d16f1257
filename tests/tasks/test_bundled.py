"""The bundled tasks, run as plain processes: oracle 1, nop 0, and an agent that cheats gains nothing."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest

from windtunnel.domain.dockerfile import read_dockerfile
from windtunnel.domain.grade import Graded, grade
from windtunnel.store.tasks import bundled_root, list_tasks, read_task

TASKS = list_tasks(bundled_root())
ONE = "bill-split"


@dataclass(frozen=True)
class Bench:
    """One task laid out as `plain` does it, and the variables that say where."""

    task: Path
    root: Path

    @property
    def app(self) -> Path:
        return self.root / "app"

    @property
    def verifier(self) -> Path:
        return self.root / "logs" / "verifier"

    def run(self, script: str) -> None:
        env = {
            "PATH": os.environ["PATH"],
            "WINDTUNNEL_WORKDIR": str(self.app),
            "WINDTUNNEL_TESTS": str(self.root / "tests"),
            "WINDTUNNEL_LOGS": str(self.root / "logs"),
        }
        command = ["/bin/sh", str(self.root / script)]
        subprocess.run(command, check=True, env=env, cwd=self.app, timeout=120, capture_output=True)

    def solve(self) -> None:
        self.run("solution/solve.sh")

    def grade(self) -> Graded:
        self.run("tests/test.sh")
        files = {path.name: path.read_bytes() for path in self.verifier.iterdir() if path.is_file()}
        assert sorted(files) == ["ctrf.json", "reward.json"]
        found = grade(files)
        assert isinstance(found, Graded), found
        return found


def bench(task: str, root: Path) -> Bench:
    source = bundled_root() / task
    shutil.copytree(source / "environment" / "app", root / "app")
    for part in ("tests", "solution"):
        shutil.copytree(source / part, root / part)
    (root / "logs").mkdir()
    return Bench(source, root)


@pytest.fixture
def one(tmp_path: Path) -> Bench:
    return bench(ONE, tmp_path)


def test_there_are_tasks_of_four_kinds() -> None:
    kinds = Counter(
        line.split('"')[1]
        for task in TASKS
        for line in (bundled_root() / task / "task.toml").read_text().splitlines()
        if line.startswith("category")
    )

    assert kinds == {"bug-fix": 2, "feature": 2, "refactor": 2, "data-wrangling": 2}


@pytest.mark.parametrize("name", TASKS)
def test_every_task_fits_every_environment(name: str) -> None:
    task = read_task(bundled_root() / name)

    assert (task.name, task.local, task.workdir) == (f"windtunnel/{name}", True, "/app")
    assert (task.agent_network, task.verifier_network) == ("none", "none")
    assert (task.limits.memory_mb, task.limits.cpus) == (512, 1.0)
    assert (task.agent_timeout_s, task.verifier_timeout_s) == (300.0, 120.0)
    assert task.warnings == ()
    dockerfile = read_dockerfile((bundled_root() / name / "environment" / "Dockerfile").read_text())
    assert not dockerfile.builds
    assert (dockerfile.base, dockerfile.copies) == ("python:3.12-bookworm", ((("app/",), "/app/"),))


@pytest.mark.parametrize("part", ["tests/run.py", "tests/test.sh", "solution/solve.sh", "environment/Dockerfile"])
def test_shared_files_are_the_same_everywhere(part: str) -> None:
    assert len({(bundled_root() / name / part).read_bytes() for name in TASKS}) == 1
    if part.endswith(".sh"):
        assert all((bundled_root() / name / part).stat().st_mode & stat.S_IXUSR for name in TASKS)


@pytest.mark.parametrize("name", TASKS)
def test_nothing_in_the_app_tells_the_hidden_tests(name: str) -> None:
    hidden = (bundled_root() / name / "tests" / "hidden.py").read_text()
    app = bundled_root() / name / "environment" / "app"

    for path in app.rglob("*"):
        assert path.suffix != ".pyc"
        assert path.name not in {"hidden.py", "run.py", "solve.sh"}
    assert "class " in hidden


@pytest.mark.parametrize("name", TASKS)
def test_oracle_is_one(name: str, tmp_path: Path) -> None:
    place = bench(name, tmp_path)
    place.solve()

    found = place.grade()

    assert (found.reward_binary, found.reward_partial) == (1, 1.0)
    assert found.tests is not None
    assert found.tests.passed >= 12


@pytest.mark.parametrize("name", TASKS)
def test_nop_is_zero(name: str, tmp_path: Path) -> None:
    found = bench(name, tmp_path).grade()

    assert found.reward_binary == 0
    assert found.reward_partial < 0.5
    assert found.tests is not None
    assert found.tests.failed > 0


def test_half_a_solution_is_between(one: Bench) -> None:
    nop = bench(ONE, one.root / "nop").grade().reward_partial
    wrong = (one.app / "billing.py").read_text()
    one.solve()
    solved = (one.app / "billing.py").read_text()
    (one.app / "billing.py").write_text(solved + "\n\n" + wrong[wrong.index("def format_amount") :])

    found = one.grade()

    assert found.reward_binary == 0
    assert nop < found.reward_partial < 1.0


CHEATS = {
    "leaves at import": "import os\nos._exit(0)\n",
    "leaves at exit": "import atexit, os\natexit.register(os._exit, 0)\n",
    "writes the grade itself": """
import pathlib
for name in ("reward.json", "reward.txt", "ctrf.json"):
    try:
        pathlib.Path("VERIFIER", name).write_text('{"reward": 1}')
    except OSError:
        pass
""",
    "answers on every descriptor": """
import os
for fd in range(3, 64):
    try:
        os.write(fd, b'{"result": true}')
    except OSError:
        pass
os._exit(0)
""",
    "equals everything": """
class Yes(list):
    def __eq__(self, other):
        return True
split = parse_amount = format_amount = lambda *a: Yes()
""",
    "prints without end": "import sys\nwhile True:\n    sys.stdout.write('x' * 100000)\n",
}  # fmt: skip


@pytest.mark.parametrize("name", CHEATS)
def test_a_cheating_app_fails(name: str, one: Bench) -> None:
    (one.app / "billing.py").write_text(CHEATS[name].replace("VERIFIER", str(one.verifier)))

    assert one.grade().reward_binary == 0


def test_an_app_that_never_ends_is_a_zero_in_bounded_time(one: Bench) -> None:
    (one.app / "billing.py").write_text("while True:\n    pass\n")
    runner = one.root / "tests" / "run.py"
    text = runner.read_text()
    assert "CALL_S = 10.0" in text
    assert "TOTAL_S = 80.0" in text
    runner.write_text(text.replace("CALL_S = 10.0", "CALL_S = 0.5").replace("TOTAL_S = 80.0", "TOTAL_S = 1.5"))
    began = time.monotonic()

    assert one.grade().reward_partial == 0.0
    assert time.monotonic() - began < 20


@pytest.mark.parametrize(
    "name", ["unittest", "json", "sitecustomize", "usercustomize", "run", "os", "importlib", "ctypes"]
)
def test_a_planted_module_never_reaches_the_runner(name: str, one: Bench) -> None:
    (one.app / f"{name}.py").write_text("import posix\nposix._exit(0)\n")
    (one.app / "conftest.py").write_text("raise SystemExit(0)\n")

    assert one.grade().reward_binary == 0


def test_planted_modules_do_not_spoil_an_honest_solution(one: Bench) -> None:
    one.solve()
    for name in ("unittest", "json", "sitecustomize", "conftest"):
        (one.app / f"{name}.py").write_text("raise SystemExit(1)\n")

    assert one.grade().reward_binary == 1


def test_what_lay_in_the_grades_place_is_gone(one: Bench) -> None:
    one.verifier.mkdir()
    (one.verifier / "reward.txt").write_text("1")
    (one.verifier / "reward.json").mkdir()
    (one.verifier / "reward.json" / "x").write_text("1")
    (one.verifier / "ctrf.json").symlink_to(one.app / "billing.py")
    before = (one.app / "billing.py").read_text()

    assert one.grade().reward_binary == 0
    assert (one.app / "billing.py").read_text() == before


def test_a_daemon_of_the_app_is_ended_before_the_grade_is_written(one: Bench) -> None:
    """It leaves its session, waits for the grade's place and would write there for ever."""
    target = one.verifier / "reward.json"
    daemon = f"""
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        while True:
            try:
                with open({str(target)!r}, "w") as file:
                    file.write('{{"reward": 1}}')
            except OSError:
                pass
            time.sleep(0.001)
    os._exit(0)
"""
    (one.app / "billing.py").write_text(daemon)

    assert one.grade().reward_binary == 0
    first = target.read_bytes()
    subprocess.run(["sleep", "0.3"], check=True)
    assert target.read_bytes() == first


def test_an_app_that_is_gone_or_odd_is_a_zero(one: Bench) -> None:
    shutil.rmtree(one.app)
    one.app.mkdir()
    os.mkfifo(one.app / "billing.py")
    (one.app / "loop").symlink_to(".")
    (one.app / "away").symlink_to("/etc/passwd")

    assert one.grade().reward_binary == 0


def test_running_the_tests_leaves_nothing_in_app_or_tests(one: Bench) -> None:
    one.solve()
    before = sorted(str(path) for part in ("app", "tests") for path in (one.root / part).rglob("*"))

    one.grade()

    assert sorted(str(path) for part in ("app", "tests") for path in (one.root / part).rglob("*")) == before
