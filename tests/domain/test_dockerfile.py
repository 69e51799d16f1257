"""What is known about a Dockerfile without an engine."""

from __future__ import annotations

import pytest

from windtunnel.domain.dockerfile import read_dockerfile


def test_a_plain_file_is_laid_out_by_hand() -> None:
    found = read_dockerfile("# c\nFROM python:3.12\nWORKDIR /app\nCOPY --chown=1 a b/ \\\n  /app/\n")

    assert (found.base, found.workdir, found.copies, found.builds) == (
        "python:3.12",
        "/app",
        ((("a", "b/"), "/app/"),),
        False,
    )


@pytest.mark.parametrize("step", ["RUN make", "run make", "ADD x /", "COPY --from=y a b", "FROM z"])
def test_anything_that_builds_is_seen(step: str) -> None:
    assert read_dockerfile(f"FROM x\n{step}\n").builds


def test_the_base_is_that_of_the_last_stage() -> None:
    text = "ARG V=12\nFROM --platform=linux/amd64 debian:$V AS base\nFROM node:${N:-24} as web\nFROM base\n"

    assert read_dockerfile(text).base == "debian:12"


def test_a_here_document_is_no_instruction() -> None:
    found = read_dockerfile("FROM a\nRUN <<END\nFROM b\nEND\nWORKDIR /w\n")

    assert (found.base, found.workdir) == ("a", "/w")


@pytest.mark.parametrize("text", ["", "RUN x\n", "FROM\n", "FROM $NOTHING\n"])
def test_no_base_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match="FROM"):
        read_dockerfile(text)
