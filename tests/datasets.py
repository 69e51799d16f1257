"""Datasets made for the tests: Harbor tasks in the shapes that DeepSWE and others use, and traps for a harness.

Every function writes one task folder below `root` and returns it. Images start FROM `python:3.12-bookworm`, of which
only python3, sh and git are used, and build without a network.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path

__all__ = [
    "BASE_COMMIT",
    "TRAPS",
    "deepswe_v1",
    "deepswe_v11",
    "shared_no_git",
    "tiny",
    "trap_apply_failed",
    "trap_collect_fails",
    "trap_nan_reward",
    "trap_nested_reward",
    "trap_no_reward",
    "trap_no_tests_ran",
    "trap_reward_minus_one",
]

_IMAGE = "FROM python:3.12-bookworm\n"
_WHO = "Base <base@example.com>"
_WHEN = 1700000000
_BINARY = bytes(range(256)) * 4

# The repository under test. `data.bin` is there for binary patches.
REPOSITORY: dict[str, bytes] = {
    "calc.py": b'"""A little arithmetic."""\n\n\ndef add(a, b):\n    return a + b\n',
    "data.bin": _BINARY,
    "test_calc.py": (
        b"import unittest\n\nimport calc\n\n\nclass TestAdd(unittest.TestCase):\n"
        b"    def test_small(self):\n        self.assertEqual(calc.add(1, 2), 3)\n\n"
        b"    def test_negative(self):\n        self.assertEqual(calc.add(1, -2), -1)\n"
    ),
}
# The hidden tests, as a patch against the base commit.
_NEW_TESTS = """import unittest
from pathlib import Path

import calc


class TestNew(unittest.TestCase):
    def test_mul(self):
        self.assertEqual(calc.mul(6, 7), 42)

    def test_div(self):
        with self.assertRaises(ZeroDivisionError):
            calc.div(1, 0)
"""
_BINARY_TEST = """
    def test_data(self):
        self.assertEqual(Path("data.bin").read_bytes(), bytes(range(255, -1, -1)))
"""
_SOLUTION = """
def mul(a, b):
    return a * b


def div(a, b):
    return a / b
"""
_SUITE = '''"""Runs a unittest file in the current directory: `suite.py FILE REPORT` writes CTRF."""

import json
import os
import sys
import unittest

sys.path.insert(0, os.getcwd())
name, report = sys.argv[1:]
tests = []
for group in unittest.defaultTestLoader.loadTestsFromName(name):
    for test in group if isinstance(group, unittest.TestSuite) else [group]:
        result = unittest.TestResult()
        test.run(result)
        tests.append({"name": test.id(), "status": "passed" if result.wasSuccessful() else "failed", "duration": 1})
summary = {"tests": len(tests), "passed": 0, "failed": 0, "pending": 0, "skipped": 0, "other": 0, "start": 0, "stop": 1}
os.makedirs(os.path.dirname(report), exist_ok=True)
with open(report, "w") as file:
    json.dump({"results": {"tool": {"name": "unittest"}, "summary": summary, "tests": tests}}, file)
'''
_GRADER = '''"""Grades by node id, as DeepSWE's grader does: `grader.py [apply_failed]`."""

import json
import sys

with open("/tests/config.json") as file:
    config = json.load(file)
status = {}
if "apply_failed" not in sys.argv:
    for report in config["grade"]["reports"]:
        try:
            with open(report) as file:
                for test in json.load(file)["results"]["tests"]:
                    status[test["name"]] = test["status"]
        except FileNotFoundError:
            pass
count = {}
listed = []
for kind in ("f2p", "p2p"):
    ids = config[kind + "_node_ids"]
    count[kind] = (sum(status.get(node) == "passed" for node in ids), len(ids))
    for node in ids:
        passed = status.get(node) == "passed"
        listed.append({"name": f"[{kind}] {node}", "status": "passed" if passed else "failed", "duration": 0})
total = sum(all_ for _, all_ in count.values())
passed = sum(good for good, _ in count.values())
reward = {"reward": int(passed == total)}
for kind, (good, all_) in count.items():
    reward.update({f"{kind}_total": all_, f"{kind}_passed": good, kind: good / all_})
reward["partial"] = passed / total
if "apply_failed" in sys.argv:
    reward["apply_failed"] = 1
    listed = []
summary = {"tests": len(listed), "passed": passed, "failed": len(listed) - passed, "skipped": 0, "pending": 0}
summary.update({"other": 0, "start": 0, "stop": 1})
with open("/logs/verifier/ctrf.json", "w") as file:
    json.dump({"results": {"tool": {"name": "grader"}, "summary": summary, "tests": listed}}, file)
with open("/logs/verifier/reward.json", "w") as file:
    json.dump(reward, file)
'''
_TEST_HEAD = """#!/bin/sh
# Grades the repository in /app; -1 in reward.txt says that the grading itself broke.
crash() { echo "crash: $1"; echo -1 > /logs/verifier/reward.txt; exit 1; }
mkdir -p /logs/verifier/reports
cd /app || crash "no /app"
BASE=%(base)s
"""
_TEST_PATCH = """PATCH=/logs/artifacts/model.patch
[ -f "$PATCH" ] || crash "no model.patch"
if [ -s "$PATCH" ]; then
    git apply --whitespace=nowarn "$PATCH" || { python3 /tests/grader.py apply_failed; exit 0; }
fi
"""
_TEST_TAIL = """git checkout -q "$BASE" -- test_calc.py || crash "no base"
rm -f test_new.py
git apply --whitespace=nowarn /tests/test.patch || crash "test.patch"
python3 /tests/suite.py test_calc /logs/verifier/reports/base-ctrf.json
python3 /tests/suite.py test_new /logs/verifier/reports/new-ctrf.json
python3 /tests/grader.py || crash "grader"
"""


def _git_object(kind: str, body: bytes) -> bytes:
    return hashlib.sha1(f"{kind} {len(body)}\0".encode() + body).digest()


def _base_commit() -> str:
    """The id that git gives the base commit, so that no git is needed to write the task."""
    tree = b"".join(
        b"100644 " + name.encode() + b"\0" + _git_object("blob", data) for name, data in sorted(REPOSITORY.items())
    )
    who = f"{_WHO} {_WHEN} +0000"
    head = f"tree {_git_object('tree', tree).hex()}\nauthor {who}\ncommitter {who}\n\nbase\n"
    return _git_object("commit", head.encode()).hex()


BASE_COMMIT = _base_commit()
_COLLECT = f"mkdir -p /logs/artifacts && cd /app && git diff --binary {BASE_COMMIT} HEAD > /logs/artifacts/model.patch"
_REPO_STEPS = f"""WORKDIR /app
COPY repo/ /app/
RUN chmod 644 /app/* && git init -q -b main . && git config user.name Base && git config user.email base@example.com \\
    && git add -A && GIT_AUTHOR_DATE='{_WHEN} +0000' GIT_COMMITTER_DATE='{_WHEN} +0000' git commit -q -m base \\
    && test "$(git rev-parse HEAD)" = {BASE_COMMIT}
"""


def _write(folder: Path, files: Mapping[str, str | bytes]) -> Path:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        path.chmod(0o755 if name.endswith(".sh") else 0o644)
    return folder


def _repository(below: str) -> dict[str, str | bytes]:
    return {f"{below}/repo/{name}": data for name, data in REPOSITORY.items()}


def _new_file_patch(name: str, text: str) -> str:
    lines = text.splitlines()
    head = (
        f"diff --git a/{name} b/{name}\nnew file mode 100644\n--- /dev/null\n+++ b/{name}\n@@ -0,0 +1,{len(lines)} @@\n"
    )
    return head + "".join(f"+{line}\n" for line in lines)


def _solve(binary: bool) -> str:
    change = "python3 -c \"open('data.bin', 'wb').write(bytes(range(255, -1, -1)))\"\n" if binary else ""
    edit = f"cat >> calc.py <<'END'\n{_SOLUTION}END\n{change}"
    return f"#!/bin/sh\nset -eu\ncd /app\n{edit}git add -A\ngit commit -q -m solution\n"


def _deepswe_tests(binary: bool, test_sh: str) -> dict[str, str | bytes]:
    f2p = ["test_new.TestNew.test_mul", "test_new.TestNew.test_div"] + ["test_new.TestNew.test_data"] * binary
    reports = ["/logs/verifier/reports/base-ctrf.json", "/logs/verifier/reports/new-ctrf.json"]
    config = {
        "base_commit": BASE_COMMIT,
        "f2p_node_ids": f2p,
        "p2p_node_ids": ["test_calc.TestAdd.test_small", "test_calc.TestAdd.test_negative"],
        "grade": {"format": "ctrf", "tool_label": "unittest", "reports": reports, "node_id": "name"},
    }
    return {
        "tests/test.sh": test_sh % {"base": BASE_COMMIT},
        "tests/test.patch": _new_file_patch("test_new.py", _NEW_TESTS + (_BINARY_TEST if binary else "")),
        "tests/grader.py": _GRADER,
        "tests/suite.py": _SUITE,
        "tests/config.json": json.dumps(config, indent=1),
    }


def _instruction(binary: bool) -> str:
    more = " Reverse the 256 bytes pattern: data.bin becomes the bytes 255 down to 0, once." if binary else ""
    return f"Add mul(a, b) and div(a, b) to calc.py in /app.{more} Commit your work; only commits count.\n"


def _deepswe_toml(task: str, version: str, verifier: str, collect: str) -> str:
    return f"""schema_version = "{version}"
artifacts = ["/logs/artifacts/model.patch"]

[task]
name = "datacurve/{task}"

[metadata]
ext_id = "{task}"
category = "feature_request"
language = "python"
base_commit_hash = "{BASE_COMMIT}"

[verifier]
network_mode = "no-network"
{verifier}
{collect}
[agent]
network_mode = "no-network"
timeout_sec = 300.0

[environment]
build_timeout_sec = 300.0
cpus = 1
memory_mb = 512
storage_mb = 2048
gpus = 0
os = "linux"
workdir = "/app"
"""


def deepswe_v11(root: Path, task: str = "calc-v11", *, binary: bool = False, collect: str = _COLLECT) -> Path:
    """DeepSWE v1.1: separate verifier with an image of its own, one collect hook, hidden tests as a patch.

    `binary`: the solution changes a binary file too. `collect`: the hook's command.
    """
    verifier = (
        'environment_mode = "separate"\ntimeout_sec = 120.0\n\n[verifier.environment]\ncpus = 1\nmemory_mb = 512\n'
    )
    hook = f"[[verifier.collect]]\ncommand = {json.dumps(collect)}\ntimeout_sec = 60.0\n"
    image = _IMAGE + _REPO_STEPS + "COPY test.sh test.patch grader.py suite.py config.json /tests/\n"
    return _write(
        root / task,
        {
            "task.toml": _deepswe_toml(task, "1.3", verifier, hook),
            "instruction.md": _instruction(binary),
            "environment/Dockerfile": _IMAGE + _REPO_STEPS,
            **_repository("environment"),
            "tests/Dockerfile": image,
            **_repository("tests"),
            **_deepswe_tests(binary, _TEST_HEAD + _TEST_PATCH + _TEST_TAIL),
            "solution/solve.sh": _solve(binary),
        },
    )


def deepswe_v1(root: Path, task: str = "calc-v1", *, binary: bool = False) -> Path:
    """DeepSWE v1: graded where the agent worked (shared mode), the patch written by pre_artifacts.sh."""
    return _write(
        root / task,
        {
            "task.toml": _deepswe_toml(task, "1.1", "timeout_sec = 120.0\n", ""),
            "instruction.md": _instruction(binary),
            "pre_artifacts.sh": f"#!/bin/sh\n{_COLLECT}\n",
            "environment/Dockerfile": _IMAGE + _REPO_STEPS,
            **_repository("environment"),
            **_deepswe_tests(binary, _TEST_HEAD + _TEST_TAIL),
            "solution/solve.sh": _solve(binary),
        },
    )


def _plain_toml(task: str, extra: str = "") -> str:
    return f"""schema_version = "1.4"

[task]
name = "tests/{task}"
{extra}
[environment]
cpus = 1
memory_mb = 512
network_mode = "no-network"
workdir = "/app"

[agent]
timeout_sec = 120.0

[verifier]
timeout_sec = 60.0
"""


def shared_no_git(root: Path, task: str = "no-git-trace") -> Path:
    """Shared mode; the solution installs a program and changes a file in /etc, and leaves no trace in any git."""
    test = """#!/bin/sh
mkdir -p /logs/verifier
good=0
[ "$(greet world 2>&1)" = "hello world" ] && good=$((good + 1))
grep -qx 'mode=new' /etc/app.conf && good=$((good + 1))
first=''; [ "$good" -ge 1 ] || first='<failure/>'
second=''; [ "$good" -eq 2 ] || second='<failure/>'
cat > /logs/verifier/junit.xml <<END
<?xml version="1.0"?>
<testsuites tests="99"><testsuite name="s" tests="99">
<testcase name="any">$first</testcase><testcase name="both">$second</testcase>
</testsuite></testsuites>
END
[ "$good" -eq 2 ] && echo 1.0 > /logs/verifier/reward.txt || echo 0 > /logs/verifier/reward.txt
"""
    solve = """#!/bin/sh
set -eu
printf '#!/bin/sh\\necho "hello $1"\\n' > /usr/local/bin/greet
chmod 755 /usr/local/bin/greet
sed -i 's/^mode=.*/mode=new/' /etc/app.conf
"""
    return _write(
        root / task,
        {
            "task.toml": _plain_toml(task),
            "instruction.md": "Install a program `greet` that prints `hello NAME`; set mode=new in /etc/app.conf.\n",
            "environment/Dockerfile": _IMAGE + "WORKDIR /app\nRUN echo mode=old > /etc/app.conf\n",
            "tests/test.sh": test,
            "solution/solve.sh": solve,
        },
    )


def tiny(root: Path, task: str = "tiny", *, verifier: str | None = None) -> Path:
    """The smallest task: write `done` into answer.txt. Runs in every environment, no build steps.

    `verifier`: what test.sh does instead of grading (it may use $APP and $OUT).
    """
    grade = (
        'r=0; [ "$(cat "$APP/answer.txt" 2>/dev/null)" = done ] && r=1; echo "{\\"reward\\": $r}" > "$OUT/reward.json"'
    )
    test = f"""#!/bin/sh
APP="${{WINDTUNNEL_WORKDIR:-/app}}"
OUT="${{WINDTUNNEL_LOGS:-/logs}}/verifier"
mkdir -p "$OUT"
{grade if verifier is None else verifier}
"""
    return _write(
        root / task,
        {
            "task.toml": _plain_toml(task, "\n[metadata.windtunnel]\nlocal = true\n"),
            "instruction.md": "Write the word done into answer.txt.\n",
            "environment/Dockerfile": _IMAGE + "WORKDIR /app\nCOPY app/ /app/\n",
            "environment/app/readme.txt": "A place to work in.\n",
            "tests/test.sh": test,
            "solution/solve.sh": '#!/bin/sh\necho done > "${WINDTUNNEL_WORKDIR:-/app}/answer.txt"\n',
        },
    )


def trap_collect_fails(root: Path) -> Path:
    """The collect hook writes half a patch and fails: collect_failed."""
    return deepswe_v11(
        root, "trap-collect-fails", collect="mkdir -p /logs/artifacts; echo x > /logs/artifacts/model.patch; exit 3"
    )


def trap_apply_failed(root: Path) -> Path:
    """The patch that is handed over does not apply: a graded 0 with apply_failed in its detail."""
    patch = "diff --git a/calc.py b/calc.py\\n--- a/calc.py\\n+++ b/calc.py\\n@@ -1 +1 @@\\n-nothing like it\\n+x\\n"
    return deepswe_v11(
        root, "trap-apply-failed", collect=f"mkdir -p /logs/artifacts; printf '{patch}' > /logs/artifacts/model.patch"
    )


def trap_reward_minus_one(root: Path) -> Path:
    """DeepSWE's crash sign: reward_out_of_range."""
    return tiny(root, "trap-minus-one", verifier='echo -1 > "$OUT/reward.txt"; exit 1')


def trap_nested_reward(root: Path) -> Path:
    """A reward.json that is not at the top: reward_missing."""
    return tiny(
        root, "trap-nested", verifier='mkdir "$OUT/reports"; echo "{\\"reward\\": 1}" > "$OUT/reports/reward.json"'
    )


def trap_nan_reward(root: Path) -> Path:
    """NaN as a reward: reward_malformed."""
    return tiny(root, "trap-nan", verifier='echo "{\\"reward\\": NaN}" > "$OUT/reward.json"')


def trap_no_tests_ran(root: Path) -> Path:
    """A full reward and a report without a test, whose summary lies: no_tests_ran."""
    report = '{"results": {"tool": {"name": "x"}, "summary": {"tests": 9, "passed": 9}, "tests": []}}'
    return tiny(root, "trap-no-tests", verifier=f'echo \'{report}\' > "$OUT/ctrf.json"; echo 1 > "$OUT/reward.txt"')


def trap_no_reward(root: Path) -> Path:
    """A verifier that ends well and writes nothing: reward_missing."""
    return tiny(root, "trap-no-reward", verifier="exit 0")


# Trap -> reason code of the outcome that it must lead to, when the oracle has worked on it.
TRAPS: dict[Callable[[Path], Path], str] = {
    trap_collect_fails: "collect_failed",
    trap_apply_failed: "graded",
    trap_reward_minus_one: "reward_out_of_range",
    trap_nested_reward: "reward_missing",
    trap_nan_reward: "reward_malformed",
    trap_no_tests_ran: "no_tests_ran",
    trap_no_reward: "reward_missing",
}
