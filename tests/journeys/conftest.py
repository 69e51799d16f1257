"""Fixtures of the journeys: an empty workspace in each environment, or in `plain` where that does not matter."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from workspace import Workspace, end_processes_of, remove_tree


@pytest.fixture
def plain(tmp_path: Path) -> Iterator[Workspace]:
    """A workspace for what does not depend on the environment."""
    yield from open_workspace(tmp_path, "plain")


@pytest.fixture(params=["plain", pytest.param("local", marks=pytest.mark.sandbox)])
def workspace(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Workspace]:
    """A workspace for what must hold in every environment."""
    yield from open_workspace(tmp_path, request.param)


def open_workspace(tmp_path: Path, environment: str) -> Iterator[Workspace]:
    """Sockets have short names only: what the product puts into the temporary directory gets a short one of its own."""
    short = Path(tempfile.mkdtemp(prefix="wtj-"))
    root = Path(tempfile.mkdtemp(prefix="journey-", dir=tmp_path))
    workspace = Workspace(root, environment, short)
    yield workspace
    for running in workspace.started:
        running.close()
    end_processes_of(root.name)
    remove_tree(short)
    remove_tree(root)  # not left to pytest: an agent's tree may be deeper than its clean-up can go
