"""The types of `headwater.js`, by the TypeScript compiler itself."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.browser.node import place_client
from tests.browser.npm import INSTALL_SECONDS_MAX, installed, needs_node

COMPILER = "typescript@5.9.3"
PROGRAM = Path(__file__).parent / "typed.ts"
STRICT = ["--strict", "--noEmit", "--target", "es2022", "--module", "esnext", "--moduleResolution", "bundler"]
STRICT += ["--noUncheckedIndexedAccess", "--exactOptionalPropertyTypes", "--lib", "es2022,dom"]

pytestmark = [needs_node, pytest.mark.timeout(INSTALL_SECONDS_MAX + 120)]


def complaints(folder: Path, *files: str) -> str:
    """What the compiler says of files."""
    compiler = installed(COMPILER) / "node_modules" / "typescript" / "bin" / "tsc"
    run = subprocess.run(["node", compiler, *STRICT, *files], cwd=folder, text=True, capture_output=True, timeout=120)
    return run.stdout


def test_a_typed_program_says_what_may_be_said_and_nothing_else(tmp_path: Path) -> None:
    place_client(tmp_path)
    shutil.copy(PROGRAM, tmp_path)
    assert complaints(tmp_path, "typed.ts", "headwater.d.ts") == ""
    # And the compiler does look.
    (tmp_path / "wrong.ts").write_text('import { connect } from "./headwater.js"; connect().room(3);')
    assert "TS2345" in complaints(tmp_path, "wrong.ts")


def test_everything_that_has_a_type_is_there(tmp_path: Path) -> None:
    place_client(tmp_path)
    (tmp_path / "look.mjs").write_text(
        """
        import * as client from "./headwater.js";
        import { readFileSync } from "node:fs";
        const types = readFileSync("headwater.d.ts", "utf8"), missing = [];
        for (const [, name, body] of types.matchAll(/export class (\\w+)[^{]*\\{\\n([\\s\\S]*?)\\n\\}/g)) {
          for (const [, member] of body.matchAll(/^ {2}(\\w+)(?:<[^>]*>)?\\(/gm)) {
            if (typeof client[name]?.prototype[member] !== "function") missing.push(`${name}.${member}`);
          }
        }
        console.log(missing.join());
        """
    )
    run = subprocess.run(["node", "look.mjs"], cwd=tmp_path, text=True, capture_output=True, check=True, timeout=60)
    assert run.stdout.strip() == ""
