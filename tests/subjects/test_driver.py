"""driver.mjs keeps the contract of driver_spec.py, whatever its subject does."""

from __future__ import annotations

import json
import signal
import socket
import threading
from pathlib import Path

import psutil
import pytest
from driving import NODE, Drive, until

from windtunnel.host.clock import boot_id

SLEEPER = "trap '' TERM; sleep 300 & echo $! > child; echo $$ > leader; wait; wait; sleep 300"


def gone(pid: int) -> bool:
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def test_exit_protocol_hands_over_the_prompt_and_records_the_end(drive: Drive) -> None:
    record = drive.run("/bin/sh", "-c", "cat; echo oops >&2; pwd > here; exit 3", prompt="do it\n")

    assert (record.started, record.exit, record.signal, record.settled, record.timed_out) == (
        True,
        3,
        None,
        True,
        False,
    )
    assert record.error is None
    assert record.boot_id == boot_id()
    assert (drive.box / "subject.stdout").read_text() == "do it\n"
    assert (drive.box / "subject.stderr").read_text() == "oops\n"
    assert (record.stdout_bytes, record.stderr_bytes) == (6, 5)
    assert (drive.work / "here").read_text().strip() == str(drive.work)
    assert drive.kinds() == ["driver_started", "subject_started", "prompt_sent", "settled", "subject_exited"]
    assert drive.events()[0]["boot_id"] == boot_id()


def test_a_subject_that_was_killed_did_not_settle(drive: Drive) -> None:
    record = drive.run("/bin/sh", "-c", "kill -KILL $$")

    assert (record.started, record.exit, record.signal, record.settled) == (True, None, "SIGKILL", False)


def test_a_subject_that_ignores_a_long_prompt_does_no_harm(drive: Drive) -> None:
    assert drive.run("/bin/true", prompt="x" * 1_000_000).exit == 0


def test_a_program_that_is_not_there_is_named(drive: Drive) -> None:
    record = drive.run("/no/such/program")

    assert (record.started, record.exit) == (False, None)
    assert record.error == "/no/such/program: ENOENT"


def test_a_working_directory_that_is_not_there_is_named(drive: Drive) -> None:
    record = drive.run("/bin/true", cwd="/no/such/place")

    assert not record.started
    assert record.error is not None and "/no/such/place" in record.error


def test_deadline_ends_the_whole_group_even_when_it_ignores_term(drive: Drive) -> None:
    record = drive.run("/bin/sh", "-c", SLEEPER, deadline_after_ms=700)

    assert (record.timed_out, record.settled, record.exit, record.signal) == (True, False, None, "SIGKILL")
    assert 700 <= record.wall_ms < 10_000
    pids = [int((drive.work / name).read_text()) for name in ("leader", "child")]
    assert until(lambda: all(gone(pid) for pid in pids))
    assert "deadline" in drive.kinds()


def test_deadline_gives_a_subject_time_to_save_its_work(drive: Drive) -> None:
    script = "trap 'echo saved > saved; exit 7' TERM; while :; do sleep 0.05; done"

    record = drive.run("/bin/sh", "-c", script, deadline_after_ms=400)

    assert (record.timed_out, record.exit) == (True, 7)
    assert (drive.work / "saved").exists()


def test_background_work_of_a_subject_that_ended_is_ended_too(drive: Drive) -> None:
    record = drive.run("/bin/sh", "-c", "sleep 300 & echo $! > child; exit 0")

    assert (record.exit, record.settled) == (0, True)
    assert until(lambda: gone(int((drive.work / "child").read_text())))


def test_output_beyond_the_limit_is_counted_not_written(drive: Drive) -> None:
    record = drive.run("/bin/sh", "-c", "head -c 3000000 /dev/zero; echo done > done", output_limit_bytes=1000)

    assert record.stdout_bytes == 3_000_000
    assert (drive.box / "subject.stdout").stat().st_size == 1000
    assert (drive.work / "done").exists()
    assert "output_limit" in drive.kinds()


@pytest.mark.parametrize(
    "vandalism",
    [
        "rm -rf {box}/* {box}/.[!.]*",
        "rm -rf {box}",
        "mkdir -p {box}/exit.json/full; cd {box}; rm driver-events.ndjson; mkdir driver-events.ndjson subject.stdout",
        "rm {box}/driver-events.ndjson; mkfifo {box}/exit.json {box}/driver-events.ndjson {box}/subject.stdout",
        "ln -sf {work}/elsewhere {box}/exit.json; ln -sf {work}/elsewhere {box}/driver-events.ndjson",
        'echo \'{{"attempt": "forged"}}\' > {box}/exit.json',
    ],
)
def test_the_record_is_written_whatever_the_subject_did_to_the_box(drive: Drive, vandalism: str) -> None:
    script = vandalism.format(box=drive.box, work=drive.work) + "; echo said; exit 4"

    record = drive.run("/bin/sh", "-c", script)

    assert (record.attempt, record.exit) == ("t/c/rep0#1", 4)
    assert not (drive.box / "exit.json").is_symlink()
    assert drive.kinds()[-1] == "subject_exited"
    assert not (drive.work / "elsewhere").exists()


def test_a_driver_that_gets_term_ends_the_group_and_leaves_a_record(drive: Drive) -> None:
    process = drive.start("/bin/sh", "-c", SLEEPER)
    until(lambda: (drive.work / "leader").exists() and (drive.work / "leader").read_text().strip())

    process.send_signal(signal.SIGTERM)

    assert process.wait(20) == 0
    record = drive.record()
    assert (record.settled, record.timed_out, record.signal) == (False, False, "SIGKILL")
    assert record.error == "the driver was ended by SIGTERM"
    assert until(lambda: gone(int((drive.work / "child").read_text())))


def test_environment_is_the_sandbox_then_the_spec_then_the_deadline(drive: Drive) -> None:
    drive.env["FROM_IMAGE"] = "1"

    drive.run("/usr/bin/env", env={"HOME": "/there", "PATH": "/x:{{windtunnel.path}}"}, deadline_after_ms=3_600_000)

    seen = dict(line.split("=", 1) for line in (drive.box / "subject.stdout").read_text().splitlines())
    assert seen.pop("WINDTUNNEL_DEADLINE").endswith("Z")
    assert seen == {"FROM_IMAGE": "1", "HOME": "/there", "LANG": "C.UTF-8", "PATH": "/x:/usr/bin:/bin"}


def test_the_deadline_is_not_told_when_the_config_does_not_want_it(drive: Drive) -> None:
    drive.run("/usr/bin/env", env={"WINDTUNNEL_DEADLINE": ""}, deadline_after_ms=3_600_000)

    assert "WINDTUNNEL_DEADLINE" not in (drive.box / "subject.stdout").read_text()


# ---- rendering and relay -----------------------------------------------------------------------------------------


class Door:
    """A unix socket that answers each connection with what it got, reversed, after the peer closed its half."""

    def __init__(self, path: Path) -> None:
        self.server = socket.socket(socket.AF_UNIX)
        self.server.bind(str(path))
        self.server.listen()
        self.thread = threading.Thread(target=self.serve, daemon=True)
        self.thread.start()

    def serve(self) -> None:
        while True:
            try:
                peer, _ = self.server.accept()
            except OSError:
                return
            with peer:
                got = b""
                while part := peer.recv(65536):
                    got += part
                peer.sendall(got[::-1])

    def close(self) -> None:
        self.server.shutdown(socket.SHUT_RDWR)
        self.server.close()
        self.thread.join(5)


def test_files_are_rendered_with_address_and_token_and_keep_their_modes(drive: Drive, tmp_path: Path) -> None:
    (drive.inputs / "agent" / "deep").mkdir(parents=True)
    (drive.inputs / "agent" / "models.json").write_text(
        '{"u": "{{windtunnel.base_url}}/r/a", "k": "{{windtunnel.token}}"}'
    )
    (drive.inputs / "agent" / "deep" / "raw").write_bytes(b"\xff\x00raw")
    tool = drive.inputs / "agent" / "tool"
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o555)
    (drive.inputs / "token").write_text("wt_secret\n")
    door = Door(tmp_path / "s")

    drive.run(
        "/bin/sh",
        "-c",
        "echo $WHERE $KEY",
        env={"WHERE": "{{windtunnel.base_url}}/r/a", "KEY": "{{windtunnel.token}}"},
        socket=str(tmp_path / "s"),
        base_path="/base",
        token_file=str(drive.inputs / "token"),
        render=("agent",),
        writable=str(tmp_path / "w"),
    )
    door.close()

    port = next(event["port"] for event in drive.events() if event["event"] == "relay_listening")
    address = f"http://127.0.0.1:{port}/base/r/a"
    made = tmp_path / "w" / "agent"
    assert json.loads((made / "models.json").read_text()) == {"u": address, "k": "wt_secret"}
    assert (made / "deep" / "raw").read_bytes() == b"\xff\x00raw"
    assert (made / "tool").stat().st_mode & 0o777 == 0o755
    assert (drive.box / "subject.stdout").read_text() == f"{address} wt_secret\n"
    assert "wt_secret" not in (drive.box / "driver-events.ndjson").read_text()


def test_relay_carries_both_ways_and_survives_a_half_close(drive: Drive, tmp_path: Path) -> None:
    door = Door(tmp_path / "s")
    client = """
      const net = require("node:net");
      const port = new URL(process.env.WHERE).port;
      const c = net.connect({port, host: "127.0.0.1", allowHalfOpen: true});
      c.end("x".repeat(300000) + "end");
      let got = ""; c.on("data", (d) => got += d); c.on("end", () => console.log(got.length, got.slice(0, 3)));
    """

    record = drive.run(
        NODE,
        "-e",
        client,
        env={"WHERE": "{{windtunnel.base_url}}"},
        socket=str(tmp_path / "s"),
        deadline_after_ms=20_000,
    )
    door.close()

    assert record.exit == 0
    assert (drive.box / "subject.stdout").read_text() == "300003 dne\n"


def test_check_asks_every_path_through_the_relay_with_the_token(drive: Drive, tmp_path: Path) -> None:
    (drive.inputs / "token").write_text("wt_secret")
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(tmp_path / "s"))
    server.listen()
    asked = []

    def serve() -> None:
        for body in (b"first", b"second"):
            peer, _ = server.accept()
            with peer:
                asked.append(peer.recv(65536))
                peer.sendall(b"HTTP/1.1 502 Bad\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))

    thread = threading.Thread(target=serve)
    thread.start()
    record = drive.run(
        mode="check",
        socket=str(tmp_path / "s"),
        token_file=str(drive.inputs / "token"),
        check_paths=("/check/a/executor", "/check/b/executor"),
    )
    thread.join(5)
    server.close()

    assert [(c["path"], c["status"], c["body"], c["error"]) for c in record.checks] == [
        ("/check/a/executor", 502, "first", None),
        ("/check/b/executor", 502, "second", None),
    ]
    assert (record.settled, record.started, record.error) == (True, False, None)
    assert all(b"authorization: bearer wt_secret" in request.lower() for request in asked)


def test_check_without_anybody_behind_the_socket_is_an_answer_too(drive: Drive, tmp_path: Path) -> None:
    record = drive.run(mode="check", socket=str(tmp_path / "nobody"), check_paths=("/check/a/executor",))

    assert record.checks[0]["status"] is None
    assert record.checks[0]["error"]
    assert not record.settled


# ---- pi's rpc ----------------------------------------------------------------------------------------------------

RPC = """
  const say = (o) => process.stdout.write(JSON.stringify(o) + "\\n");
  let text = "";
  process.stdin.on("data", (d) => {
    text += d;
    if (!text.includes("\\n")) return;
    const asked = JSON.parse(text.split("\\n")[0]); text = "";
    %s
  });
  %s
"""
SETTLES = """
  say({type: "response", id: asked.id, command: asked.type, success: true});
  say({type: "message_update", text: '{"type":"agent_settled"} is only text here ' + "y".repeat(3000000)});
  process.stdout.write('{"type":"agent_');
  setTimeout(() => process.stdout.write('settled"}\\n'), 50);
  require("node:fs").writeFileSync("asked", JSON.stringify(asked));
"""
PROMPT = 'first "line"\n/second \u2028 {{windtunnel.token}}\n'


def test_rpc_is_done_at_agent_settled_and_its_stdin_is_closed(drive: Drive) -> None:
    ends = "process.stdin.on('end', () => process.exit(0));"

    record = drive.run(NODE, "-e", RPC % (SETTLES, ends), protocol="pi-rpc", prompt=PROMPT, deadline_after_ms=30_000)

    assert (record.settled, record.exit, record.error, record.timed_out) == (True, 0, None, False)
    assert json.loads((drive.work / "asked").read_text()) == {"id": "1", "type": "prompt", "message": PROMPT}
    assert (drive.box / "subject.stdout").read_text().endswith('{"type":"agent_settled"}\n')
    assert drive.kinds()[-2:] == ["settled", "subject_exited"]


def test_rpc_that_stays_after_it_settled_is_ended_and_still_settled(drive: Drive) -> None:
    stays = "process.on('SIGTERM', () => process.exit(143)); setInterval(() => {}, 1000);"

    record = drive.run(NODE, "-e", RPC % (SETTLES, stays), protocol="pi-rpc", prompt="p", deadline_after_ms=3_000)

    assert (record.settled, record.exit, record.timed_out) == (True, 143, False)


def test_rpc_that_refuses_the_prompt_ends_with_its_words(drive: Drive) -> None:
    refuses = 'say({type: "response", id: "1", command: "prompt", success: false, error: "no such model"});'
    ends = "process.stdin.on('end', () => process.exit(0));"

    record = drive.run(NODE, "-e", RPC % (refuses, ends), protocol="pi-rpc", prompt="p")

    assert (record.settled, record.exit) == (False, 0)
    assert record.error == "prompt refused: no such model"


def test_rpc_that_ends_before_it_settled_is_not_done(drive: Drive) -> None:
    record = drive.run(NODE, "-e", RPC % ("process.exit(0)", ""), protocol="pi-rpc", prompt="p")

    assert (record.started, record.settled, record.exit) == (True, False, 0)
    assert record.error == "ended before agent_settled"


def test_rpc_that_never_settles_meets_the_deadline(drive: Drive) -> None:
    record = drive.run(
        NODE, "-e", RPC % ("say({type: 'agent_end'})", ""), protocol="pi-rpc", prompt="p", deadline_after_ms=800
    )

    assert (record.settled, record.timed_out) == (False, True)
