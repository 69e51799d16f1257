"""Sandboxes of one adapter, gone after the test."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from windtunnel.domain.task import ImageSource, Limits
from windtunnel.environments.docker import DockerEnvironment
from windtunnel.environments.interface import Image, Sandbox, SandboxSpec

BASE = ImageSource(reference="windtunnel-base:bookworm")


@pytest.fixture
def labels() -> dict[str, str]:
    return {"windtunnel.run": f"test-{uuid.uuid4().hex}"}


@pytest.fixture
async def docker() -> AsyncIterator[DockerEnvironment]:
    environment = DockerEnvironment(pull_waits=())
    try:
        yield environment
    finally:
        await environment.close()


@pytest.fixture
async def contained(
    docker: DockerEnvironment, labels: dict[str, str], tmp_path: Path
) -> AsyncIterator[Callable[..., Awaitable[Sandbox]]]:
    image = await docker.image(BASE, task_dir=tmp_path, build_timeout_s=10)

    async def open_one(**changes: Any) -> Sandbox:
        name = f"dsw-test-{uuid.uuid4().hex[:12]}"
        (tmp_path / name).mkdir()
        fields: dict[str, Any] = {
            "name": name,
            "labels": labels,
            "image": Image(image.reference, image.id),
            "network": "none",
            "limits": Limits(memory_mb=128, cpus=0.5, pids=100),
            "scratch": tmp_path / name,
            "workdir": "/app",
        }
        return await docker.open(SandboxSpec(**(fields | changes)))

    yield open_one
    await docker.sweep(labels)
    assert await docker.left(labels) == []
