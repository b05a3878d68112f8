"""Rules for every file: nothing private, nothing left open, nothing overlong, no test without a claim."""

import ast
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tidy.tree import ROOT, list_files, parse_sources, plant, read_texts, report

FILE_LINES_MAX = 500
FUNCTION_LINES_MAX = 60

# Put together from parts, because this file is judged by its own rules.
PRIVATE_FOLDERS = "|".join(("root", "work", r"home/\w+"))
MACHINE_PATH = re.compile(rf"/(?:{PRIVATE_FOLDERS})/")
REGISTRY = re.compile("index" + r"[-_]url|(?:https?|file)://\S*/" + r"simple\b", re.IGNORECASE)
LEFT_OPEN = re.compile(r"\b(?:TODO|FIXME|XXX|NotImplementedError)\b")
# In Python 3.11 it swallows a cancel that comes together with what is waited for: the task goes on, and whoever has
# cancelled it waits for ever. `async with asyncio.timeout(…)` does not.
SWALLOWS_CANCEL = re.compile(r"asyncio\.wait_for\(")
# Names that say nothing, and so take in everything.
EMPTY_NAME = re.compile("utils|helpers|common|manager", re.IGNORECASE)
# What is at the top of the tree, as the README says; anything else was left there by a run.
FOLDERS = frozenset({".ci", "benchmarks", "docs", "examples", "requirements", "script", "src", "tests"})
CLAIMS = ("assert", "check", "expect", "must", "raises", "verify")

Function = ast.FunctionDef | ast.AsyncFunctionDef


def find_lines(root: Path, pattern: re.Pattern[str], what: str, folder: str = ".") -> list[str]:
    return [
        f"{path.as_posix()}:{number}: {what}: {line.strip()[:80]}"
        for path, text in read_texts(root)
        if path.is_relative_to(folder)
        for number, line in enumerate(text.splitlines(), 1)
        if pattern.search(line)
    ]


def find_machine_paths(root: Path) -> list[str]:
    return find_lines(root, MACHINE_PATH, "a path of one machine")


def find_registry_addresses(root: Path) -> list[str]:
    return find_lines(root, REGISTRY, "the address of a registry")


def find_work_left_open(root: Path) -> list[str]:
    return find_lines(root, LEFT_OPEN, "left open", "src")


def find_swallowed_cancels(root: Path) -> list[str]:
    return find_lines(root, SWALLOWS_CANCEL, "a cancel may be swallowed, use asyncio.timeout", "src")


def find_empty_names(root: Path) -> list[str]:
    paths = (path for path in list_files(root) if EMPTY_NAME.search(path.as_posix()))
    return [f"{path.as_posix()}: name it by what it does" for path in paths]


def find_what_was_left_behind(root: Path) -> list[str]:
    strays = (path for path in list_files(root) if len(path.parts) > 1 and path.parts[0] not in FOLDERS)
    return [f"{path.as_posix()}: left behind" for path in strays]


def find_long_files(root: Path) -> list[str]:
    lengths = ((path, text.count("\n")) for path, text in read_texts(root) if path.is_relative_to("src"))
    long = ((path, length) for path, length in lengths if length > FILE_LINES_MAX)
    return [f"{path.as_posix()} has {length} lines, {FILE_LINES_MAX} are allowed" for path, length in long]


def functions(tree: ast.Module) -> Iterator[Function]:
    return (node for node in ast.walk(tree) if isinstance(node, Function))


def line_count(function: Function) -> int:
    return (function.end_lineno or function.lineno) - function.lineno + 1


def find_long_functions(root: Path) -> list[str]:
    return [
        f"{source.at(node.lineno)}: {node.name} has {line_count(node)} lines, {FUNCTION_LINES_MAX} are allowed"
        for source in parse_sources(root, "src")
        for node in functions(source.tree)
        if line_count(node) > FUNCTION_LINES_MAX
    ]


def find_modules_without_docstring(root: Path) -> list[str]:
    sources = parse_sources(root, "src/headwater")
    return [f"{source.at(1)}: opens without a docstring" for source in sources if not ast.get_docstring(source.tree)]


def called_name(call: ast.Call) -> str:
    target = call.func
    return target.attr if isinstance(target, ast.Attribute) else target.id if isinstance(target, ast.Name) else ""


def makes_a_claim(node: ast.AST) -> bool:
    """Whether a statement can fail a test: an assert, or a call whose name promises one."""
    if isinstance(node, ast.Call):
        return any(claim in called_name(node).lower() for claim in CLAIMS)
    return isinstance(node, ast.Assert)


def find_tests_without_claims(root: Path) -> list[str]:
    return [
        f"{source.at(node.lineno)}: {node.name} asserts nothing"
        for source in parse_sources(root, "tests")
        for node in functions(source.tree)
        if source.path.name.startswith("test_") and node.name.startswith("test_")
        if not any(makes_a_claim(inner) for inner in ast.walk(node))
    ]


def find_test_folders_outside_the_package(root: Path) -> list[str]:
    """Without `__init__.py`, two test files of one name in different folders are one module to pytest and mypy."""
    folders = {source.path.parent for source in parse_sources(root, "tests")}
    lacking = sorted(folder for folder in folders if not (root / folder / "__init__.py").is_file())
    return [f"{folder.as_posix()} lacks an __init__.py" for folder in lacking]


def list_scripts(root: Path) -> list[Path]:
    return [path for path in list_files(root) if path.parts[0] == "script" or path == Path(".ci/run")]


def judge_script(root: Path, path: Path) -> str | None:
    """What keeps a script from being started, or None."""
    script = root / path
    if not os.access(script, os.X_OK):
        return f"{path.as_posix()} is not executable"
    opening = script.read_text(encoding="utf-8").partition("\n")[0]
    if not opening.startswith("#!/usr/bin/env "):
        return f"{path.as_posix()} does not say in its first line what runs it"
    if not opening.endswith(" bash"):
        return None
    parsed = subprocess.run(["bash", "-n", str(script)], capture_output=True, text=True, check=False)
    return f"{path.as_posix()}: {parsed.stderr.strip()}" if parsed.returncode else None


def find_broken_scripts(root: Path) -> list[str]:
    return [wrong for path in list_scripts(root) if (wrong := judge_script(root, path))]


CHECKS = {
    "no path of one machine": find_machine_paths,
    "no address of a registry": find_registry_addresses,
    "no work left open": find_work_left_open,
    "no cancel is swallowed": find_swallowed_cancels,
    "no empty names": find_empty_names,
    "nothing left behind": find_what_was_left_behind,
    "no long files": find_long_files,
    "no long functions": find_long_functions,
    "a docstring opens every module": find_modules_without_docstring,
    "every test makes a claim": find_tests_without_claims,
    "every test folder is a package": find_test_folders_outside_the_package,
    "every script starts": find_broken_scripts,
}


@pytest.mark.parametrize("rule", CHECKS)
def test_the_tree_keeps_the_rule(rule: str) -> None:
    findings = CHECKS[rule](ROOT)
    assert not findings, report(findings)


@pytest.mark.parametrize(
    ("rule", "path", "text"),
    [
        ("no path of one machine", "docs/a.md", "see /" + "work/notes"),
        ("no path of one machine", "a.toml", "cache = '/" + "home/ada/cache'"),
        ("no address of a registry", "requirements/a.txt", "--index" + "-url somewhere"),
        ("no address of a registry", "a.md", "https://example.org/pypi/" + "simple/"),
        ("no work left open", "src/headwater/a.py", "# TODO later"),
        ("no work left open", "src/headwater/a.py", "raise NotImplementedError"),
        ("no cancel is swallowed", "src/headwater/a.py", "await asyncio.wait_for(event.wait(), 1)"),
        ("no empty names", "src/headwater/sql_utils.py", ""),
        ("no empty names", "tests/common/a.py", ""),
        ("nothing left behind", "quarantine/orders.ndjson", ""),
        ("no long files", "src/headwater/a.py", "x = 1\n" * (FILE_LINES_MAX + 1)),
        ("no long functions", "src/headwater/a.py", "def long():\n" + "    x = 1\n" * FUNCTION_LINES_MAX),
        ("a docstring opens every module", "src/headwater/a.py", "x = 1"),
        ("every test makes a claim", "tests/test_a.py", "async def test_nothing():\n    run()"),
        ("every test folder is a package", "tests/model/test_a.py", ""),
        ("every script starts", "script/a", "#!/usr/bin/env bash\n"),
    ],
)
def test_a_planted_fault_is_caught(tmp_path: Path, rule: str, path: str, text: str) -> None:
    findings = CHECKS[rule](plant(tmp_path, {path: text}))
    assert len(findings) == 1
    assert findings[0].startswith(path) or path.startswith(findings[0].split()[0])


@pytest.mark.parametrize("text", ["if true; then\n", "echo 'open\n"])
def test_a_script_that_bash_cannot_read_is_caught(tmp_path: Path, text: str) -> None:
    plant(tmp_path, {"script/a": "#!/usr/bin/env bash\n" + text})
    (tmp_path / "script/a").chmod(0o755)
    assert len(find_broken_scripts(tmp_path)) == 1


@pytest.mark.parametrize(
    "body", ["assert True", "with pytest.raises(OSError):\n        run()", "expect_order(run())", "suite.verify()"]
)
def test_a_claim_is_recognised(tmp_path: Path, body: str) -> None:
    plant(tmp_path, {"tests/test_a.py": f"def test_a_claim():\n    {body}"})
    assert find_tests_without_claims(tmp_path) == []


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_work_that_is_not_committed_yet_is_judged_and_ignored_files_are_not(tmp_path: Path) -> None:
    plant(tmp_path, {".gitignore": "ignored.md\n", "ignored.md": "", "fresh.md": ""})
    subprocess.run(["git", "init", "--quiet", str(tmp_path)], check=True)
    assert list_files(tmp_path) == [Path(".gitignore"), Path("fresh.md")]
