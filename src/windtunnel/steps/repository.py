"""The task's git repository: what it was before the agent, and what the agent made of it.

Before the start the host keeps the absolute path of git, the commit and the repository's own configuration. After the
end all git work happens in a collector sandbox (no network, no mount of ours) with that configuration put back, hooks
removed and an index of our own, so that nothing the agent planted in `.git` decides what is collected.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from windtunnel.domain.outcome import Reason
from windtunnel.environments.interface import Completed, Sandbox
from windtunnel.errors import AttemptFault

__all__ = ["OUT", "Repository", "commit_all", "find_repository", "patch_since"]

OUT = "/windtunnel/out"  # a fresh directory of the collector
FILE_LIMIT_BYTES = 5 * 1024 * 1024
# Directories that tools fill while an agent works; untracked files below them are no work of its.
CACHES = {
    *("__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache", ".tox", ".nox", "node_modules"),
    *(".gocache", ".cache", ".gradle", ".cargo", "target"),
}

_FIND = """
git=$(command -v git) || exit 3
cd "$1" 2>/dev/null || exit 4
top=$("$git" -c safe.directory=* rev-parse --show-toplevel 2>/dev/null) || exit 5
head=$("$git" -c safe.directory=* rev-parse --verify HEAD 2>/dev/null) || exit 6
[ -d "$top/.git" ] || exit 7
printf '%s\\n%s\\n%s\\n' "$git" "$top" "$head"
cat "$top/.git/config"
"""


@dataclass(frozen=True)
class Repository:
    """`git`: absolute path of the program in the image; `top`: work tree, a contract path; `head`: commit before the
    agent started; `config`: bytes of `.git/config` then."""

    git: str
    top: str
    head: str
    config: bytes


async def find_repository(sandbox: Sandbox, workdir: str) -> Repository | None:
    """What is there before the agent starts; None when the work directory is no git repository of its own.

    A repository above the sandbox's own root (`plain`, in somebody's checkout) is never looked at, let alone touched.
    """
    argv = ["/bin/sh", "-c", _FIND, "sh", sandbox.inside(workdir)]
    done = await sandbox.exec(argv, env=_ceiling(sandbox), timeout_s=60)
    parts = done.stdout.split(b"\n", 3)
    if done.exit != 0 or len(parts) != 4:
        return None
    git, top, head = (part.decode("utf-8", "surrogateescape") for part in parts[:3])
    root = sandbox.inside("/").rstrip("/")
    if not top.startswith(f"{root}/"):
        return None
    return Repository(git=git, top=top.removeprefix(root), head=head, config=parts[3])


def _ceiling(sandbox: Sandbox) -> dict[str, str]:
    return {"GIT_CEILING_DIRECTORIES": sandbox.inside("/")}


def _env(sandbox: Sandbox) -> dict[str, str]:
    out = sandbox.inside(OUT)
    return {
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_INDEX_FILE": f"{out}/index",
        "GIT_NO_REPLACE_OBJECTS": "1",
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_AUTHOR_NAME": "windtunnel",
        "GIT_AUTHOR_EMAIL": "windtunnel@localhost",
        "GIT_COMMITTER_NAME": "windtunnel",
        "GIT_COMMITTER_EMAIL": "windtunnel@localhost",
        "GIT_AUTHOR_DATE": "2000-01-01T00:00:00Z",
        "GIT_COMMITTER_DATE": "2000-01-01T00:00:00Z",
        "HOME": out,
    } | _ceiling(sandbox)


async def _git(sandbox: Sandbox, repository: Repository, *arguments: str, timeout_s: float = 300) -> Completed:
    safe = ["-c", "safe.directory=*", "-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false"]
    argv = [repository.git, *safe, "-C", sandbox.inside(repository.top), *arguments]
    done = await sandbox.exec(argv, env=_env(sandbox), timeout_s=timeout_s, output_limit=20_000_000)
    if done.exit != 0:
        said = done.stderr[-300:].decode("utf-8", "replace").strip()
        raise AttemptFault(Reason.COLLECT_FAILED, f"git {arguments[0]} exit {done.exit}: {said}")
    return done


async def commit_all(sandbox: Sandbox, repository: Repository, scratch: Path) -> int:
    """Commit what the agent left uncommitted; returns how many bytes of caches and huge files were left out."""
    await _disarm(sandbox, repository, scratch)
    await _git(sandbox, repository, "read-tree", "HEAD")
    left_out, stripped = await _too_much(sandbox, repository)
    listed = scratch / "pathspec"
    listed.write_bytes(b"\0".join([b".", *(b":(exclude,literal)" + path for path in left_out)]) + b"\0")
    await sandbox.put(listed, f"{OUT}/pathspec")
    spec = f"--pathspec-from-file={sandbox.inside(OUT)}/pathspec"
    await _git(sandbox, repository, "add", "-A", spec, "--pathspec-file-nul")
    staged = await _git(sandbox, repository, "status", "--porcelain", "--untracked-files=no", "-z")
    if staged.stdout:
        message = "windtunnel: work left uncommitted"
        await _git(sandbox, repository, "commit", "--quiet", "--no-verify", "--no-gpg-sign", "-m", message)
    return stripped


# Put the repository back into the agent's hands-off state: its own configuration as it was, and nothing beside it that
# makes git run a program, read another configuration or see other objects. $1: work tree, $2: the saved configuration.
_DISARM = """
cd "$1/.git" && [ ! -L "$1/.git" ] || exit 1
rm -rf hooks info/attributes info/grafts config config.worktree commondir refs/replace || exit 1
cat "$2" > config
"""


async def _disarm(sandbox: Sandbox, repository: Repository, scratch: Path) -> None:
    saved = scratch / "git-config"
    saved.write_bytes(repository.config)
    await sandbox.put(saved, f"{OUT}/git-config")
    argv = ["/bin/sh", "-c", _DISARM, "sh", sandbox.inside(repository.top), f"{sandbox.inside(OUT)}/git-config"]
    done = await sandbox.exec(argv, timeout_s=60)
    if done.exit != 0:
        raise AttemptFault(Reason.COLLECT_FAILED, "the repository's configuration could not be put back")


async def _too_much(sandbox: Sandbox, repository: Repository) -> tuple[list[bytes], int]:
    """Untracked files below known caches or above the size limit, with their bytes in all."""
    listing = '"$1" -c safe.directory=* -C "$2" ls-files -o --exclude-standard -z'
    script = listing + ' | (cd "$2" && xargs -0 -r stat --printf "%s %n\\0")'
    argv = ["/bin/sh", "-c", script, "sh", repository.git, sandbox.inside(repository.top)]
    done = await sandbox.exec(argv, env=_env(sandbox), timeout_s=300, output_limit=50_000_000)
    if done.exit != 0 or done.truncated:
        raise AttemptFault(Reason.COLLECT_FAILED, f"untracked files could not be listed (exit {done.exit})")
    paths, total = [], 0
    for entry in done.stdout.split(b"\0"):
        size, _, path = entry.partition(b" ")
        cached = any(part.decode("utf-8", "replace") in CACHES for part in path.split(b"/")[:-1])
        if path and size.isdigit() and (cached or int(size) > FILE_LIMIT_BYTES):
            paths.append(path)
            total += int(size)
    return paths, total


async def patch_since(sandbox: Sandbox, repository: Repository, scratch: Path, limit_bytes: int) -> bytes:
    """The agent's change since the start as a binary git patch. Raises AttemptFault(patch_too_big|collect_failed)."""
    out = f"{sandbox.inside(OUT)}/model.patch"
    plain = ["--binary", "--no-color", "--no-ext-diff", "--no-textconv", f"--output={out}"]
    await _git(sandbox, repository, "diff", *plain, repository.head, "HEAD")
    target = scratch / "model.patch"
    fetched = await sandbox.fetch(f"{OUT}/model.patch", target, limit_bytes=limit_bytes)
    if fetched.skipped:
        raise AttemptFault(Reason.PATCH_TOO_BIG, f"the patch is over {limit_bytes} bytes")
    if not fetched.found:
        raise AttemptFault(Reason.COLLECT_FAILED, "git diff wrote no patch")
    return target.read_bytes()
