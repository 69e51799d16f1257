"""Fixtures of the subject tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from driving import Drive


@pytest.fixture
def drive(tmp_path: Path) -> Iterator[Drive]:
    """An attempt directory; the driver in it is ended afterwards, whatever the test did."""
    made = Drive(tmp_path)
    yield made
    for process in made.started:
        process.kill()
        process.wait()
