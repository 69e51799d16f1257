"""Runs the hidden tests of a bundled task and writes the grade. The same file in every bundled task.

The code under test is never imported here: each call runs a copy of it in a process of its own, which knows
neither the expected answers nor the place of the grade, as user nobody where that is possible. The grade is
written at the very end, after every process of the tests is gone and everything else in the folder is removed.
Standard library only, Python 3.9 and newer. Start it with `python3 -I -S`.
"""

import ctypes
import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

APP = os.environ.get("WINDTUNNEL_WORKDIR") or "/app"
TESTS = os.environ.get("WINDTUNNEL_TESTS") or "/tests"
LOGS = os.environ.get("WINDTUNNEL_LOGS") or "/logs"
VERIFIER = os.path.join(LOGS, "verifier")
KEPT = {"test-stdout.txt", "test-stderr.txt"}  # the harness may be writing these while we run
CALL_S = 10.0  # one call of the code under test
TOTAL_S = 80.0  # all calls together: an endless loop is a failed test, not a verifier that never ends
MAX_FILE = 5 * 1024 * 1024
MAX_ANSWER = 4 * 1024 * 1024
NOBODY = {"user": 65534, "group": 65534, "extra_groups": []}

CHILD = r"""
import io, json, os, resource, runpy, sys
request_fd, answer_fd = int(sys.argv[1]), int(sys.argv[2])
with os.fdopen(request_fd, "rb") as file:
    request = json.loads(file.read())
resource.setrlimit(resource.RLIMIT_FSIZE, (64 << 20, 64 << 20))
sys.argv = request["argv"]
sys.path.insert(0, request["app"])
def raised(function, *arguments, **named):
    try:
        function(*arguments, **named)
    except Exception as error:
        return type(error).__name__
    return None
if request["script"] is not None:
    runpy.run_path(os.path.join(request["app"], request["script"]), run_name="__main__")
else:
    space = {"inputs": request["inputs"], "raised": raised, "__name__": "call"}
    exec(compile(request["code"], "call", "exec"), space)
    with os.fdopen(answer_fd, "wb") as file:
        file.write(json.dumps({"result": space["result"]}).encode())
"""


class Case(unittest.TestCase):
    """Base of the hidden tests: `call` runs a snippet beside the app, `script` one of its programs."""

    maxDiff = 2000
    room = None  # Room, set by main

    def call(self, code, **inputs):
        """Run `code` with `inputs` and the app importable; the value it leaves in `result`, through JSON."""
        done = self.room.run({"code": code, "script": None, "inputs": inputs, "argv": ["call"]})
        if done.answer is None:
            self.fail("no answer (exit %s): %s" % (done.exit, done.stderr[-600:]))
        return done.answer["result"]

    def script(self, name, *argv, files=(), stdin=""):
        """Run a program of the app in an empty directory that holds `files` (name -> text)."""
        return self.room.run(
            {"code": None, "script": name, "inputs": None, "argv": [name, *argv]}, dict(files), stdin
        )

    def source(self, name):
        """Text of a file of the app."""
        try:
            with open(os.path.join(self.room.app, name), encoding="utf-8") as file:
                return file.read()
        except (OSError, UnicodeDecodeError) as error:
            self.fail("%s cannot be read: %s" % (name, error))


class Done:
    """What a call left: exit code (None: killed), texts, the answer and the files of its directory."""

    def __init__(self, exit_code, stdout, stderr, answer, files):
        self.exit, self.stdout, self.stderr, self.answer, self.files = exit_code, stdout, stderr, answer, files


class Room:
    """A copy of the app that the calls run in, and the time they have left."""

    def __init__(self):
        self.root = tempfile.mkdtemp(prefix="verify-")
        os.chmod(self.root, 0o755)
        self.app = os.path.join(self.root, "app")
        self.identity = _nobody()
        self.left = TOTAL_S
        _copy_app(APP, self.app)

    def run(self, request, files=None, stdin=""):
        work = tempfile.mkdtemp(prefix="work-", dir=self.root)
        os.chmod(work, 0o777)
        for name, text in (files or {}).items():
            with open(os.path.join(work, name), "w", encoding="utf-8", newline="") as file:
                file.write(text)
        began = time.monotonic()
        try:
            return self._run(dict(request, app=self.app), work, stdin)
        finally:
            self.left -= time.monotonic() - began
            shutil.rmtree(work, ignore_errors=True)

    def _run(self, request, work, stdin):
        if self.left <= 0:
            return Done(None, "", "no time left: earlier calls took too long", None, {})
        spool = [tempfile.TemporaryFile() for _ in range(5)]
        ask, answer, given, out, err = spool
        ask.write(json.dumps(request).encode())
        given.write(stdin.encode())
        for file in (ask, given):
            file.seek(0)
        argv = [sys.executable, "-I", "-S", "-B", "-c", CHILD, str(ask.fileno()), str(answer.fileno())]
        process = subprocess.Popen(
            argv,
            stdin=given,
            stdout=out,
            stderr=err,
            cwd=work,
            env={"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8", "HOME": work, "TZ": "UTC"},
            pass_fds=(ask.fileno(), answer.fileno()),
            start_new_session=True,
            **self.identity,
        )
        try:
            code = process.wait(timeout=min(CALL_S, self.left))
        except subprocess.TimeoutExpired:
            code = None
        _end(process)
        texts = [_read(file) for file in (out, err)]
        found = Done(code, texts[0], texts[1], _answer(answer), _files(work))
        for file in spool:
            file.close()
        return found


def _nobody():
    """Keywords that make a child user nobody; none where we are not root or the interpreter is out of its reach."""
    if os.geteuid() != 0:
        return {}
    quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    try:
        subprocess.run([sys.executable, "-I", "-S", "-c", ""], check=True, timeout=20, cwd="/", **quiet, **NOBODY)
    except (OSError, ValueError, subprocess.SubprocessError):
        return {}
    return NOBODY


def _copy_app(source, target):
    """Regular files only, readable by everybody; links, big files and version control stay behind."""

    def ignored(directory, names):
        def unwanted(name):
            path = os.path.join(directory, name)
            if name in {".git", "__pycache__", "node_modules"} or os.path.islink(path):
                return True
            return not os.path.isdir(path) and (not os.path.isfile(path) or os.path.getsize(path) > MAX_FILE)

        return [name for name in names if unwanted(name)]

    try:
        shutil.copytree(source, target, ignore=ignored, copy_function=shutil.copyfile)
    except (OSError, shutil.Error) as error:
        print("copy of the app is not complete:", str(error)[:300])
    for directory, _, _ in os.walk(target):
        os.chmod(directory, 0o755)


def _end(process):
    """End a call and whatever it left behind, other sessions included (we are their subreaper)."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except OSError:
        pass
    process.wait()
    until = time.monotonic() + 5
    while time.monotonic() < until:
        family = _descendants(os.getpid())
        if not family:
            return
        for pid in family:
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                pass
        _reap()


def _reap():
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def _descendants(root):
    children = {}
    try:
        numbers = [name for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return []
    for name in numbers:
        try:
            with open("/proc/%s/stat" % name, "rb") as file:
                parent = int(file.read().rpartition(b")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            continue
        children.setdefault(parent, []).append(int(name))
    found, todo = [], list(children.get(root, ()))
    while todo:
        pid = todo.pop()
        found.append(pid)
        todo += children.get(pid, ())
    return found


def _read(file):
    file.seek(0)
    return file.read(MAX_ANSWER).decode("utf-8", "replace")


def _answer(file):
    try:
        answer = json.loads(_read(file))
    except (ValueError, RecursionError):
        return None
    return answer if isinstance(answer, dict) and "result" in answer else None


def _files(work):
    """The texts of the regular files that a call left in its directory."""
    found = {}
    for entry in sorted(os.scandir(work), key=lambda entry: entry.name)[:100]:
        if entry.is_file(follow_symlinks=False) and entry.stat(follow_symlinks=False).st_size <= MAX_ANSWER:
            with open(entry.path, encoding="utf-8", errors="replace", newline="") as file:
                found[entry.name] = file.read()
    return found


def _clean():
    """Remove all that lies where the grade goes, whatever it is."""
    os.makedirs(VERIFIER, exist_ok=True)
    for entry in os.scandir(VERIFIER):
        if entry.name in KEPT:
            continue
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path, ignore_errors=True)
        else:
            os.unlink(entry.path)


def _chmod(path, mode):
    """On a read-only mount this cannot be done, and the tests go on without it."""
    try:
        os.chmod(path, mode)
    except OSError:
        pass


def _write(name, value):
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    with os.fdopen(os.open(os.path.join(VERIFIER, name), flags, 0o644), "w", encoding="utf-8") as file:
        json.dump(value, file, indent=1)


def _hidden_tests():
    sys.modules["run"] = sys.modules["__main__"]
    spec = importlib.util.spec_from_file_location("hidden", os.path.join(TESTS, "hidden.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    suites = [unittest.defaultTestLoader.loadTestsFromModule(module)]
    while suites:
        for test in suites.pop(0):
            if isinstance(test, unittest.TestSuite):
                suites.append(test)
            else:
                yield test


def _run_one(test):
    began = time.monotonic()
    result = unittest.TestResult()
    test.run(result)
    status = "passed" if result.wasSuccessful() and not result.skipped else "failed"
    trace = "\n".join(text for _, text in result.failures + result.errors)
    name = test.id().split(".", 1)[-1]
    print(status.upper(), name, trace[-1500:] if trace else "", flush=True)
    return {"name": name, "status": status, "duration": int((time.monotonic() - began) * 1000)}


def main():
    os.umask(0o022)
    try:
        ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER
    except (OSError, AttributeError):
        pass
    _clean()
    started = int(time.time() * 1000)
    room = Case.room = Room()
    mode = os.stat(TESTS).st_mode & 0o7777
    if room.identity:
        _chmod(TESTS, 0o700)
    try:
        tests = [_run_one(test) for test in _hidden_tests()]
    finally:
        if room.identity:
            _chmod(TESTS, mode)
        shutil.rmtree(room.root, ignore_errors=True)
    passed = sum(test["status"] == "passed" for test in tests)
    counts = {"tests": len(tests), "passed": passed, "failed": len(tests) - passed, "pending": 0, "skipped": 0}
    summary = dict(counts, other=0, start=started, stop=int(time.time() * 1000))
    report = {"tool": {"name": "unittest"}, "summary": summary, "tests": tests}
    _clean()
    _write("ctrf.json", {"results": report})
    solved = bool(tests) and passed == len(tests)
    _write("reward.json", {"reward": int(solved), "partial": round(passed / len(tests), 6) if tests else 0.0})


if __name__ == "__main__":
    main()
