"""Images for environments without an engine: a directory with `root/` and `image.json` below the work root.

Laid out once per content hash and never changed; a sandbox starts from a copy. Snapshots are the same thing, marked
temporary and labelled.
"""

from __future__ import annotations

import shutil
import tempfile
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from windtunnel.domain.digest import to_json
from windtunnel.domain.outcome import Reason
from windtunnel.domain.task import ImageSource
from windtunnel.environments.context import context_hash
from windtunnel.environments.interface import Image
from windtunnel.environments.recipe import lay_out
from windtunnel.environments.rootdir import RESERVED, Owner, Root, copy_tree, give, remove_tree
from windtunnel.errors import AttemptFault
from windtunnel.store.files import read_json, write_atomic

__all__ = ["DiskImages", "ImageRecord"]

_RECORD = "image.json"


class ImageRecord(msgspec.Struct, frozen=True, kw_only=True):
    """`image.json`. `env`: what the Dockerfile sets for every process."""

    schemaVersion: int = 1
    id: str
    workdir: str | None = None
    env: dict[str, str] = {}
    temporary: bool = False
    labels: dict[str, str] = {}


class DiskImages:
    """The images below one work root. `owner`: who the sandbox's processes run as, None for the caller."""

    def __init__(self, work_root: Path, owner: Owner | None) -> None:
        self._folder = work_root / "images"
        self._owner = owner

    def prepare(self, source: ImageSource, task_dir: Path, *, tests: bool) -> Image:
        """The laid-out image of a task folder. Raises AttemptFault(image_missing|image_build_failed)."""
        context = task_dir / (source.context or ("tests" if tests else "environment"))
        if source.context is None and source.reference is not None:
            detail = f"{source.reference}: environments local and plain pull no images; use --environment docker"
            raise AttemptFault(Reason.IMAGE_MISSING, detail)
        if not (context / "Dockerfile").is_file():
            raise AttemptFault(Reason.IMAGE_BUILD_FAILED, f"{context}: no Dockerfile")
        digest = context_hash(context)
        place = self._folder / digest[:32]
        if not (place / _RECORD).is_file():
            self._lay_out(context, place, f"sha256:{digest}")
        return self._image(place)

    def _lay_out(self, context: Path, place: Path, id_: str) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(dir=self._folder, prefix=".draft-"))
        try:
            (draft / "root").mkdir()
            made = lay_out(context, Root(draft / "root", self._owner))
            _refuse_system_paths(context, draft / "root")
            self._finish(draft, place, ImageRecord(id=id_, workdir=made.workdir, env=made.env))
        finally:
            shutil.rmtree(draft, ignore_errors=True)

    def freeze(
        self, root: Path, *, emptied: Sequence[str], record: ImageRecord, name: str, labels: Mapping[str, str]
    ) -> Image:
        """Copy an ended sandbox's root into a temporary image; what is below `emptied` stays behind."""
        self._folder.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(dir=self._folder, prefix=".draft-"))
        frozen = msgspec.structs.replace(record, id=f"snapshot:{uuid.uuid4().hex}", temporary=True, labels=dict(labels))
        try:
            copy_tree(root, draft / "root")
            for path in emptied:
                Root(draft / "root", self._owner).empty(path)
            return self._finish(draft, self._folder / f"{name}-{uuid.uuid4().hex[:8]}", frozen)
        finally:
            if draft.exists():
                remove_tree(draft)

    def _finish(self, draft: Path, place: Path, record: ImageRecord) -> Image:
        draft.chmod(0o755)
        if self._owner and not record.temporary:
            give(draft / "root", self._owner)
        write_atomic(draft / _RECORD, to_json(record), durable=False)
        try:
            draft.rename(place)
        except OSError:
            if not (place / _RECORD).is_file():
                raise
        return self._image(place)

    def _image(self, place: Path) -> Image:
        record = read_json(place / _RECORD, ImageRecord)
        return Image(reference=str(place), id=record.id, workdir=record.workdir)

    def record(self, image: Image) -> ImageRecord:
        """What the image says about itself. Raises AttemptFault(image_missing)."""
        try:
            return read_json(Path(image.reference) / _RECORD, ImageRecord)
        except FileNotFoundError as error:
            raise AttemptFault(Reason.IMAGE_MISSING, f"{image.reference} is gone") from error

    def remove(self, image: Image) -> None:
        """Remove a temporary image; nothing happens to any other directory."""
        place = Path(image.reference)
        if place.parent == self._folder and place.is_dir() and self.record(image).temporary:
            remove_tree(place)

    def temporary(self, labels: Mapping[str, str]) -> list[Image]:
        """The temporary images that carry all these labels."""
        places = sorted(self._folder.iterdir()) if self._folder.is_dir() else []
        found = [(place, read_json(place / _RECORD, ImageRecord)) for place in places if (place / _RECORD).is_file()]
        return [
            self._image(place)
            for place, record in found
            if record.temporary and labels.items() <= record.labels.items()
        ]


def _refuse_system_paths(context: Path, root: Path) -> None:
    taken = sorted(path.name for path in root.iterdir() if path.name in RESERVED)
    if taken:
        detail = f"{context}: places files in /{taken[0]}, which is this machine's own; use --environment docker"
        raise AttemptFault(Reason.IMAGE_BUILD_FAILED, detail)
