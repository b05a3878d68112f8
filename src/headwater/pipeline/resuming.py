"""Going on with a folder of files: what it is for and whose it is, before anything in it is changed."""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from headwater.errors import SourceUnfit
from headwater.pipeline.belonging import check_owner, with_numbers
from headwater.pipeline.manifest import (
    STAGING,
    Manifest,
    begin_manifest,
    new_manifest,
    remove_strangers,
    resume_manifest,
    write_manifest,
)
from headwater.pipeline.served import Log


class Purpose(NamedTuple):
    """What a folder is for: `about` says how it is written, `files` has the patterns of what is written there."""

    kind: str
    database: str
    about: dict[str, str]
    files: Sequence[str]


def resume_folder(folder: Path, log: Log, purpose: Purpose, queues: Sequence[str]) -> Manifest:
    """Where the last run stands, after what it left half-done is cleared away; raises when the folder is for something
    else, or another's. `queues` are those whose names must stand for the same queues as before."""
    known = resume_manifest(folder, purpose.kind, purpose.files)
    manifest = known or new_manifest(purpose.kind, log.location, purpose.database, purpose.about)
    if manifest.kind != purpose.kind or manifest.about != purpose.about:
        was = ", ".join(f"{name} {value!r}" for name, value in manifest.about.items() if value)
        raise SourceUnfit(f"{folder} holds something else ({manifest.kind}: {was}); choose another folder")
    owned = check_owner(folder, manifest, log, purpose.database, queues)
    manifest = with_numbers(owned, log, queues)
    if known is None:
        begin_manifest(folder, manifest, purpose.files)
    elif manifest != known:
        write_manifest(folder, manifest)
    shutil.rmtree(folder / STAGING, ignore_errors=True)
    remove_strangers(folder, manifest, purpose.files)
    return manifest
