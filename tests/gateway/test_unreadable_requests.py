"""A chat call whose model cannot be read is refused; a search that hangs is given up after one try."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest
from gateway_house import Build

from windtunnel.errors import AttemptFault
from windtunnel.gateway import client

CHEAP = b'{"model":"m-1"}'


@pytest.mark.parametrize(
    ("body", "encoding"),
    [
        (CHEAP, "zstd"),
        (CHEAP, "gzip, identity"),
        (b"\xef\xbb\xbf" + CHEAP, ""),
        (b"[1]", ""),
        (b'{"model":"m-1","x":1e999}', ""),
        (b'{"model":"expensive","model":"m-1"}', ""),
        (b'{"model":"expensive","mod\\u0065l":"m-1","messages":[{"a":1}]}', ""),
    ],
)
async def test_a_chat_call_that_cannot_be_read_is_refused(build: Build, body: bytes, encoding: str) -> None:
    async with build() as house:
        headers = {"Content-Encoding": encoding} if encoding else {}
        async with house.ask(json=None, data=body, headers=headers) as answer:
            said = await answer.json()
        await house.client.close(house.door.key)

        assert (answer.status, said["error"]["code"]) == (400, "unreadable_request")
        (refused,) = house.refused
        assert refused.reason == "undeclared_role" and "cannot be read" in refused.detail
        assert house.upstream_saw == []


async def test_a_search_that_hangs_is_given_up_after_one_try(
    build: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "_SEARCH_S", 1.0)
    async with build() as house:
        pid = house.client.pid
        os.kill(pid, signal.SIGSTOP)
        begin = time.monotonic()
        try:
            with pytest.raises(AttemptFault) as fault:
                await house.client.search(house.door.key, tmp_path)
        finally:
            os.kill(pid, signal.SIGCONT)

    assert fault.value.reason == "gateway_lost"
    assert time.monotonic() - begin < 4.0
