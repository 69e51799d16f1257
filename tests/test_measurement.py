"""A change of how a cell is measured may not slip through: the version moves with it, or somebody says why not."""

from __future__ import annotations

import hashlib
import tomllib
from pathlib import Path

from windtunnel.domain.plan import MEASUREMENT_VERSION

ROOT = Path(__file__).parents[1]
RECORD = ROOT / "tests" / "measurement.toml"


def measured() -> str:
    """One hash over the measuring modules that the record names, in order."""
    digest = hashlib.sha256()
    for name in tomllib.loads(RECORD.read_text())["modules"]:
        digest.update(name.encode() + b"\0" + (ROOT / "src" / "windtunnel" / name).read_bytes())
    return digest.hexdigest()


def test_measuring_modules_change_only_with_the_version_or_an_acknowledgement() -> None:
    record = tomllib.loads(RECORD.read_text())
    known = {record["hash"]} | {entry["hash"] for entry in record.get("no_change", [])}

    assert record["version"] == MEASUREMENT_VERSION
    assert measured() in known, (
        f"the measuring modules changed: now {measured()}. If a cell may measure something else now, raise "
        f"MEASUREMENT_VERSION and the record's version and hash; if not, add a [[no_change]] with hash and reason "
        f"to {RECORD.relative_to(ROOT)}"
    )
