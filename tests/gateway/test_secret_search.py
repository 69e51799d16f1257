"""The secret search cannot be worn out by what an agent leaves: holes, depth, hidden places."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from windtunnel.domain.role import Route
from windtunnel.gateway.interface import Upstream
from windtunnel.gateway.search import search
from windtunnel.gateway.secrets import Secrets

KEY = "sk-canary-0123456789-search"


def secrets() -> Secrets:
    route = Route(name="acme", base_url="http://127.0.0.1:9", credential="SEARCH_KEY")
    return Secrets([Upstream(route=route, base_url="http://127.0.0.1:9")], {"SEARCH_KEY": KEY})


def test_holes_are_passed_over_and_what_is_behind_them_is_found(tmp_path: Path) -> None:
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(1 << 40)
        file.seek(1 << 39)
        file.write(KEY.encode())

    found = search(tmp_path, secrets())

    assert found.hits == ("sparse: acme, plain",)
    assert found.bytes < 1 << 24


def test_a_tree_deeper_than_a_stack_is_told_as_unread(tmp_path: Path) -> None:
    here = os.open(tmp_path, os.O_RDONLY)
    for _ in range(1300):
        os.mkdir("d", dir_fd=here)
        inner = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inner
    os.close(here)

    found = search(tmp_path, secrets())
    subprocess.run(["rm", "-rf", str(tmp_path / "d")], check=True)  # deeper than pytest's own clean-up can go

    assert not found.clean
    assert any("deeper than" in reason for reason in found.unread)


def test_a_clean_tree_is_clean(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "c").write_text("nothing here")

    assert search(tmp_path, secrets()).clean
