"""Verify the launch: what runs is what was confirmed, from inputs that nobody touched."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from windtunnel.domain.manifest import Confirmation, Manifest
from windtunnel.domain.plan import ConfigPlan, Plan, config_fingerprint, plan_identity
from windtunnel.domain.verification import Claim, Tally, claim
from windtunnel.errors import FileDamaged
from windtunnel.store.files import read_json, sha256_file
from windtunnel.store.layout import RunDir

__all__ = ["identity_claims", "input_claims"]


def identity_claims(run: RunDir, plan: Plan, manifest: Manifest) -> Iterator[Claim]:
    """The identity recomputed from the stored plan is the confirmed one, and the manifest is of this plan."""
    now = plan_identity(plan)
    try:
        confirmation = read_json(run.confirmation, Confirmation)
        found, who = confirmation.identity, f"{now}, confirmed by {confirmation.operator} ({confirmation.how})"
    except (FileNotFoundError, FileDamaged) as error:
        found, who = getattr(error, "found", "no confirmation"), ""
    name = "plan identity equals the confirmation's"
    held = now == found == plan.planIdentity
    differs = found if found != now else f"plan.json says {plan.planIdentity}"
    yield claim(name, held, expected=now, found=who if held else differs, evidence=[run.confirmation, run.plan])
    yield _manifest(run, plan, manifest)


def _manifest(run: RunDir, plan: Plan, manifest: Manifest) -> Claim:
    wanted = (plan.run_id, plan.planIdentity, tuple((c.cell.id, c.result_path) for c in plan.cells))
    found = (manifest.run_id, manifest.plan_identity, tuple((c.cell_id, c.result_path) for c in manifest.cells))
    preflight = [entry.cell.id for entry in plan.preflight] == [entry.cell_id for entry in manifest.preflight]
    held = wanted == found and preflight
    said = f"{len(manifest.cells)} cells, {len(manifest.preflight)} preflight cells of {manifest.plan_identity}"
    expected = f"{len(plan.cells)} cells, {len(plan.preflight)} preflight cells of {plan.planIdentity}"
    return claim("manifest is of this plan", held, expected=expected, found=said, evidence=[run.manifest, run.plan])


def input_claims(run: RunDir, plan: Plan) -> Iterator[Claim]:
    """Every copied config file has the planned hash and mode, and there is no file more."""
    tally = Tally("copied inputs equal the plan's hashes", "files")
    for config in plan.configs:
        root = run.inputs / config.name
        for file in config.files:
            path = root / file.path
            wanted = _told(file.sha256, file.executable)
            found = _told(sha256_file(path), bool(path.stat().st_mode & 0o111)) if path.is_file() else "missing"
            if found == wanted:
                tally.held(path)
            else:
                tally.fault(f"{config.name}/{file.path}", expected=wanted, found=found, evidence=[path])
        for path in _extra(config, root):
            tally.fault(f"{config.name}/{path.name}", expected="no such file", found="a file", evidence=[path])
        if config_fingerprint(config.files) != config.fingerprint:
            found = config_fingerprint(config.files)
            tally.fault(f"{config.name} fingerprint", expected=config.fingerprint, found=found, evidence=[run.plan])
    yield from tally.claims()


def _told(sha256: str, executable: bool) -> str:
    return sha256 + (" executable" if executable else "")


def _extra(config: ConfigPlan, root: Path) -> list[Path]:
    planned = {root / file.path for file in config.files}
    return [path for path in sorted(root.rglob("*")) if not path.is_dir() and path not in planned]
