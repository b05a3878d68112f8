"""Documents lead somewhere: every relative link points to a file that exists."""

import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import pytest

from tests.tidy.tree import ROOT, list_files, plant, report

INLINE_LINK = re.compile(r"\[[^\]]*\]\(\s*<?([^)\s>]+)>?(?:\s+[\"'(][^)]*)?\)")
NAMED_LINK = re.compile(r"^ {0,3}\[[^\]^][^\]]*\]:\s*<?(\S+?)>?(?:\s|$)")
ELSEWHERE = re.compile(r"[a-z][a-z0-9+.-]*:|//|#", re.IGNORECASE)


def prose_lines(text: str) -> Iterator[tuple[int, str]]:
    """The lines of a document with their numbers, without code, where brackets are no links."""
    fence = ""
    for number, line in enumerate(text.splitlines(), 1):
        mark = re.match(r"\s*(`{3,}|~{3,})", line)
        if fence:
            fence = "" if mark and mark[1].startswith(fence) else fence
        elif mark:
            fence = mark[1]
        else:
            yield number, re.sub(r"(`+).*?\1", "", line)


def find_links(text: str) -> Iterator[tuple[int, str]]:
    """The relative links of a document with their lines."""
    for number, line in prose_lines(text):
        for target in [*INLINE_LINK.findall(line), *NAMED_LINK.findall(line)]:
            if not ELSEWHERE.match(target):
                yield number, unquote(target.partition("#")[0])


def find_dead_links(root: Path) -> list[str]:
    findings = []
    for document in (path for path in list_files(root) if path.suffix == ".md"):
        for line, target in find_links((root / document).read_text(encoding="utf-8")):
            base = root if target.startswith("/") else (root / document).parent
            if not (base / target.lstrip("/")).exists():
                findings.append(f"{document.as_posix()}:{line}: {target} does not exist")
    return findings


def test_every_relative_link_points_to_a_file() -> None:
    findings = find_dead_links(ROOT)
    assert not findings, report(findings)


@pytest.mark.parametrize(
    "text",
    [
        "see [that](gone.md)",
        "![drawn](gone.png)",
        "[that]: gone.md",
        "[that](/gone.md 'title')",
        "[a](a.md) [b](gone.md#b)",
    ],
)
def test_a_planted_dead_link_is_caught(tmp_path: Path, text: str) -> None:
    findings = find_dead_links(plant(tmp_path, {"docs/a.md": "# A\n\n" + text}))
    assert len(findings) == 1
    assert findings[0].startswith("docs/a.md:3: ")


@pytest.mark.parametrize(
    "text",
    [
        "[here](a.md#part)",
        "[up](../README.md)",
        "[top](/README.md)",
        "[folder](.)",
        "[web](https://example.org/gone.md)",
        "[part](#part)",
        "`[code](gone.md)`",
        "```\n[code](gone.md)\n```",
        "````\n```\n[code](gone.md)\n````",
    ],
)
def test_a_link_that_leads_somewhere_is_left_alone(tmp_path: Path, text: str) -> None:
    assert find_dead_links(plant(tmp_path, {"README.md": "", "docs/a.md": text})) == []


def find_doubled_entries(changelog: str) -> list[str]:
    """What a changelog says a second time."""
    entries = [" ".join(entry.split()) for entry in re.split(r"\n(?=- |#|\n)", changelog) if entry.startswith("- ")]
    return sorted({entry for entry in entries if entries.count(entry) > 1})


def test_the_changelog_says_nothing_twice() -> None:
    findings = find_doubled_entries((ROOT / "CHANGELOG.md").read_text())
    assert not findings, report(findings)


def test_an_entry_that_stands_twice_is_caught() -> None:
    assert find_doubled_entries("# Fixed\n\n- One\n  thing.\n- Other.\n- One thing.\n") == ["- One thing."]
