"""Packages from npm, outside of the tree: made once, and whole or not at all."""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

INSTALL_SECONDS_MAX = 400
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "headwater-tests"

needs_node = pytest.mark.skipif(not (shutil.which("node") and shutil.which("npm")), reason="needs node and npm")


def installed(*packages: str) -> Path:
    """A folder whose `node_modules` has these packages."""
    place = CACHE / "-".join(name.replace("@", "-").replace("/", "-") for name in packages)
    if not place.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=CACHE) as folder:
            new = Path(folder) / "packages"
            new.mkdir()
            (new / "package.json").write_text('{"private": true, "type": "module"}')
            quiet = ["--no-audit", "--no-fund", "--no-package-lock", "--ignore-scripts", "--loglevel=error"]
            subprocess.run(["npm", "install", *quiet, *packages], cwd=new, check=True, timeout=INSTALL_SECONDS_MAX)
            try:
                new.rename(place)
            except OSError:
                assert place.exists(), "another process was to have made it"
    return place
