"""What a sandbox's container is made of: the engine's create call, and the holder that is its PID 1.

The holder reaps and cannot be ended from inside: signals of its own process namespace do not reach PID 1.
"""

from __future__ import annotations

from typing import Any

from windtunnel.environments.interface import BUNDLE, Mount, SandboxSpec

__all__ = ["HOLDERS", "KILL_MARKED", "NODE", "container_config", "has_bundle"]

NODE = f"{BUNDLE}/node"
_LOOP = "while :; do sleep 60 & wait; done"
# An image without a shell gets the bundle's Node, which holds but does not reap.
HOLDERS = (("/bin/sh", "-c", _LOOP), (NODE, "-e", "setInterval(() => {}, 1 << 30)"))

# Ends every process whose environment holds $1, and every process in a session of one of those. Shell builtins only.
KILL_MARKED = """
marked() {
  [ -r "$1/environ" ] || return 1
  while IFS= read -r line || [ -n "$line" ]; do
    case $line in *"$2"*) return 0 ;; esac
  done < "$1/environ"
  return 1
}
session() {
  IFS= read -r stat < "$1/stat" || return 1
  set -- ${stat##*) }
  [ "$1" != Z ] && echo "$4"
}
sids=' '
for round in 1 2 3 4 5 6 7 8; do
  ended=
  for place in /proc/[0-9]*; do
    pid=${place#/proc/}
    [ "$pid" = $$ ] && continue
    sid=$(session "$place" 2>/dev/null) || continue
    if marked "$place" "$1" 2>/dev/null; then
      sids="$sids$sid "
    else
      case $sids in *" $sid "*) ;; *) continue ;; esac
    fi
    kill -9 "$pid" 2>/dev/null && ended=1
  done
  [ -n "$ended" ] || exit 0
done
exit 1
"""


def has_bundle(spec: SandboxSpec) -> bool:
    """Whether the bundle's Node can be used in this sandbox."""
    return any(mount.target == BUNDLE for mount in spec.mounts)


def _bind(mount: Mount) -> dict[str, Any]:
    return {
        "Type": "bind",
        "Source": str(mount.source.absolute()),
        "Target": mount.target,
        "ReadOnly": mount.read_only,
        "BindOptions": {"Propagation": "rprivate"},
    }


def _fresh(path: str) -> dict[str, Any]:
    """An anonymous volume: empty whatever the image has there, removed with the container, not part of a commit."""
    return {"Type": "volume", "Target": path, "VolumeOptions": {"NoCopy": True}}


def _host(spec: SandboxSpec) -> dict[str, Any]:
    limits = spec.limits
    host: dict[str, Any] = {
        "NetworkMode": "none" if spec.network == "none" else "bridge",
        "Mounts": [*map(_bind, spec.mounts), *map(_fresh, spec.fresh)],
        "PidsLimit": limits.pids,
        "LogConfig": {"Type": "json-file", "Config": {"max-size": "1m", "max-file": "1"}},
        "RestartPolicy": {"Name": "no"},
        "AutoRemove": False,
        "Init": False,
    }
    if limits.memory_mb is not None:
        host["Memory"] = host["MemorySwap"] = limits.memory_mb * 1024 * 1024
    if limits.cpus is not None:
        host["NanoCpus"] = int(limits.cpus * 1_000_000_000)
    return host


def container_config(spec: SandboxSpec, workdir: str, holder: tuple[str, ...]) -> dict[str, Any]:
    """The body of the create call. The sandbox's environment is not in it: `inspect` would show its values."""
    return {
        "Image": spec.image.id,
        "Entrypoint": list(holder),
        "Cmd": [],
        "User": "0",
        "WorkingDir": workdir,
        "Labels": dict(spec.labels),
        "Tty": False,
        "OpenStdin": False,
        "StopSignal": "SIGKILL",
        "StopTimeout": 0,
        "Healthcheck": {"Test": ["NONE"]},
        "HostConfig": _host(spec),
    }
