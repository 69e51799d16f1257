"""Images laid out by hand: what a Dockerfile without build steps means, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from windtunnel.domain.task import ImageSource
from windtunnel.environments.context import context_files, context_hash, ignore_rule
from windtunnel.environments.disk_images import DiskImages
from windtunnel.environments.recipe import lay_out
from windtunnel.environments.rootdir import Root
from windtunnel.errors import AttemptFault


def context(tmp_path: Path, dockerfile: str) -> Path:
    folder = tmp_path / "environment"
    (folder / "src" / "pkg").mkdir(parents=True, exist_ok=True)
    (folder / "src" / "pkg" / "a.py").write_text("a")
    (folder / "src" / "b.txt").write_text("b")
    (folder / "data.csv").write_text("c")
    (folder / "Dockerfile").write_text(dockerfile)
    return folder


def laid_out(tmp_path: Path, dockerfile: str) -> tuple[set[str], str, dict[str, str]]:
    root = tmp_path / "root"
    root.mkdir()
    made = lay_out(context(tmp_path, dockerfile), Root(root))
    return {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}, made.workdir, made.env


def test_copies_work_directories_and_variables(tmp_path: Path) -> None:
    files, workdir, env = laid_out(
        tmp_path,
        "FROM python:3.12-bookworm\nENV HOME_DIR=/app NAME='two words'\nWORKDIR $HOME_DIR\nCOPY src/ .\n"
        'COPY data.csv renamed.csv\nCOPY *.csv src/b.txt /data/\nWORKDIR sub\nENV OLD form of it\nCMD ["x"]\n',
    )

    assert files == {"app/pkg/a.py", "app/b.txt", "app/renamed.csv", "data/data.csv", "data/b.txt"}
    assert workdir == "/app/sub"
    assert env == {"HOME_DIR": "/app", "NAME": "two words", "OLD": "form of it"}


@pytest.mark.parametrize(
    "step",
    [
        "RUN true",
        "ADD https://example.org/x /x",
        "COPY --from=other /x /x",
        "COPY --chown=1:1 data.csv /x",
        "COPY ../secret /x",
        "COPY missing /x",
        'COPY ["data.csv", "/x"]',
        "COPY data.csv /usr/local/x",
        "ONBUILD RUN true",
        "FROM second",
    ],
)
def test_what_needs_an_engine_is_refused(tmp_path: Path, step: str) -> None:
    folder = context(tmp_path, f"FROM debian:bookworm\n{step}\n")
    images = DiskImages(tmp_path / "work", None)

    with pytest.raises(AttemptFault) as caught:
        images.prepare(ImageSource(context=folder.name, base="debian:bookworm"), tmp_path, tests=False)

    assert caught.value.reason == "image_build_failed"
    assert not list((tmp_path / "work" / "images").glob("*"))


def test_the_identity_follows_the_content(tmp_path: Path) -> None:
    folder = context(tmp_path, "FROM debian:bookworm\n")
    first = context_hash(folder)
    (folder / "data.csv").chmod(0o755)
    second = context_hash(folder)
    (folder / "link").symlink_to("data.csv")

    assert len({first, second, context_hash(folder)}) == 3


def test_ignored_files_are_left_out() -> None:
    left_out = ignore_rule("# comment\n*.pyc\n**/node_modules\nbuild/\n!build/keep.txt\n/top\n")

    ignored = ["a.pyc", "node_modules", "a/b/node_modules/x", "build", "build/x", "top", "top/x"]
    kept = ["sub/a.pyc", "build/keep.txt", "a/top", "nodemodules", "a.py"]
    assert [path for path in ignored if not left_out(path)] == []
    assert [path for path in kept if left_out(path)] == []


def test_a_context_without_its_ignored_files(tmp_path: Path) -> None:
    folder = context(tmp_path, "FROM debian:bookworm\n")
    (folder / ".dockerignore").write_text("src\nDockerfile\n")

    assert [name for name, _ in context_files(folder)] == [".dockerignore", "Dockerfile", "data.csv"]
