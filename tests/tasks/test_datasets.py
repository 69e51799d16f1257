"""The datasets of the tests have the shapes they claim; the engine builds what they describe."""

from __future__ import annotations

import shutil
import subprocess
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from datasets import BASE_COMMIT, REPOSITORY, TRAPS, deepswe_v1, deepswe_v11, shared_no_git, tiny
from windtunnel.domain.grade import Graded, Ungraded, grade
from windtunnel.domain.outcome import Reason
from windtunnel.store.tasks import read_task


def test_deepswe_v11_has_a_separate_verifier_and_one_artifact(tmp_path: Path) -> None:
    task = read_task(deepswe_v11(tmp_path))

    assert (task.hand_over, task.schema_version, task.agent_network, task.verifier_network) == (
        "artifacts",
        "1.3",
        "none",
        "none",
    )
    assert task.verifier_image is not None
    assert task.verifier_image.context == "tests"
    assert [artifact.source for artifact in task.artifacts] == ["/logs/artifacts/model.patch"]
    assert len(task.collect) == 1
    assert BASE_COMMIT in task.collect[0].command


def test_deepswe_v1_is_shared_with_pre_artifacts(tmp_path: Path) -> None:
    task = read_task(deepswe_v1(tmp_path))

    assert (task.hand_over, task.pre_artifacts, task.verifier_image, task.collect) == ("snapshot", True, None, ())


def test_the_others_are_shared(tmp_path: Path) -> None:
    assert read_task(shared_no_git(tmp_path)).hand_over == "snapshot"
    assert read_task(tiny(tmp_path)).local


@pytest.mark.parametrize("trap", TRAPS, ids=lambda trap: trap.__name__)
def test_every_trap_is_a_task_and_names_a_reason(trap: Callable[[Path], Path], tmp_path: Path) -> None:
    assert read_task(trap(tmp_path))
    assert Reason(TRAPS[trap])


def test_the_base_commit_is_the_one_that_git_makes(tmp_path: Path) -> None:
    git = shutil.which("git")
    if git is None:
        pytest.skip("git is not installed")
    for name, data in REPOSITORY.items():
        (tmp_path / name).write_bytes(data)
        (tmp_path / name).chmod(0o644)
    when = "1700000000 +0000"
    env = {"GIT_AUTHOR_DATE": when, "GIT_COMMITTER_DATE": when, "HOME": str(tmp_path), "GIT_CONFIG_NOSYSTEM": "1"}
    who = ["-c", "user.name=Base", "-c", "user.email=base@example.com"]
    for command in (["init", "-q"], ["add", "-A"], [*who, "commit", "-q", "-m", "base"]):
        subprocess.run([git, *command], cwd=tmp_path, env=env, check=True)

    head = subprocess.run([git, "rev-parse", "HEAD"], cwd=tmp_path, env=env, check=True, capture_output=True, text=True)

    assert head.stdout.strip() == BASE_COMMIT


# ---- with an engine: by the docker client, without any of our own code in between


def docker(*arguments: str, check: bool = True) -> str:
    done = subprocess.run(["docker", *arguments], capture_output=True, text=True, timeout=120)
    assert not check or done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def build(tag: str, context: Path) -> None:
    """Without the cache: a test that runs beside this one may just be removing the layers that both could share."""
    docker("build", "--quiet", "--no-cache", "--network=none", "--tag", tag, str(context))


@pytest.fixture
def names() -> Iterator[Callable[[str], str]]:
    """Makes image names and removes the images in the end."""
    made: list[str] = []

    def name(part: str) -> str:
        made.append(f"wt-test-dataset-{part}:{uuid.uuid4().hex[:12]}")
        return made[-1]

    yield name
    docker("rmi", "-f", *made, check=False)


def in_container(image: str, script: str, *mounts: tuple[Path, str]) -> None:
    binds = [f"--volume={source}:{target}" for source, target in mounts]
    docker("run", "--rm", "--network=none", *binds, image, "sh", "-c", script)


def graded(folder: Path) -> Graded | Ungraded:
    files = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    return grade(files)


OWN = "chmod -R a+rwX /logs"


CONTROLS = (("true", 0), ("sh /solution/solve.sh", 1))


@pytest.mark.engine
@pytest.mark.parametrize("binary", [False, True], ids=["text", "binary"])
def test_deepswe_v11_grades_a_patch_in_its_own_container(
    tmp_path: Path, names: Callable[[str], str], binary: bool
) -> None:
    task = deepswe_v11(tmp_path, binary=binary)
    agent, verifier = names("agent"), names("verifier")
    build(agent, task / "environment")
    build(verifier, task / "tests")
    collect = read_task(task).collect[0].command

    for work, score in CONTROLS:
        logs = tmp_path / f"logs{score}"
        (logs / "verifier").mkdir(parents=True)
        in_container(agent, f"{work} && {collect}; {OWN}", (task / "solution", "/solution"), (logs, "/logs"))
        in_container(verifier, f"sh /tests/test.sh; {OWN}", (logs, "/logs"))
        found = graded(logs / "verifier")

        assert isinstance(found, Graded)
        assert (found.reward_binary, found.detail["p2p"], found.detail["f2p"]) == (score, 1.0, float(score))
        assert found.detail["f2p_total"] == 2 + binary
        assert found.tests is not None


@pytest.mark.engine
@pytest.mark.parametrize("make", [deepswe_v1, shared_no_git], ids=lambda make: make.__name__)
def test_shared_tasks_are_graded_where_the_work_was_done(
    tmp_path: Path, names: Callable[[str], str], make: Callable[[Path], Path]
) -> None:
    task = make(tmp_path)
    agent = names("shared")
    build(agent, task / "environment")

    for work, score in CONTROLS:
        logs = tmp_path / f"logs{score}"
        logs.mkdir()
        places = [(task / "solution", "/solution"), (task / "tests", "/tests"), (logs, "/logs")]
        in_container(agent, f"{work}; sh /tests/test.sh; {OWN}", *places)
        found = graded(logs / "verifier")

        assert isinstance(found, Graded)
        assert found.reward_binary == score
        assert found.tests is not None
        assert (found.tests.failed == 0) is bool(score)


@pytest.mark.engine
def test_the_apply_failed_trap_is_a_graded_zero(tmp_path: Path, names: Callable[[str], str]) -> None:
    task = next(trap for trap in TRAPS if trap.__name__ == "trap_apply_failed")(tmp_path)
    verifier = names("verifier")
    build(verifier, task / "tests")
    (tmp_path / "logs" / "verifier").mkdir(parents=True)

    in_container(
        verifier, f"{read_task(task).collect[0].command}; sh /tests/test.sh; {OWN}", (tmp_path / "logs", "/logs")
    )
    found = graded(tmp_path / "logs" / "verifier")

    assert isinstance(found, Graded)
    assert (found.reward_binary, found.apply_failed) == (0, True)


@pytest.mark.parametrize(
    "trap", [t for t in TRAPS if not t.__name__.endswith(("fails", "failed"))], ids=lambda t: t.__name__
)
def test_the_traps_of_the_verifier_lead_to_their_reason(trap: Callable[[Path], Path], tmp_path: Path) -> None:
    task = trap(tmp_path)
    env = {"PATH": "/usr/bin:/bin", "WINDTUNNEL_WORKDIR": str(tmp_path), "WINDTUNNEL_LOGS": str(tmp_path / "logs")}

    subprocess.run(["/bin/sh", str(task / "tests" / "test.sh")], env=env, timeout=30)
    found = graded(tmp_path / "logs" / "verifier")

    assert isinstance(found, Ungraded)
    assert found.reason == TRAPS[trap]
