"""Every sample in README.md and docs/ does what it says, and a sample that does not is seen."""

import os
import sys
from pathlib import Path

import pytest

from tests.docs import samples
from tests.docs.samples import BrokenSample, Reader, find_fences, is_to_run, matches
from tests.tidy.tree import ROOT, list_files, plant

DOCUMENTS = [
    path.as_posix()
    for path in list_files(ROOT)
    if path.suffix == ".md" and (path == Path("README.md") or path.is_relative_to("docs"))
]


# These show numbers and ids that count on from one run to the next. What people read first runs twice.
FOLLOWED_ONCE = {
    "docs/cli.md",
    "docs/http.md",
    "docs/jobs/limits.md",
    "docs/jobs/python.md",
    "docs/jobs/shell.md",
    "docs/operations.md",
    "docs/pipeline.md",
    "docs/security.md",
    "docs/spark.md",
}


def follow(folder: Path, text: str) -> None:
    plant(folder, {"planted.md": text})
    Reader(folder / "planted.md", folder).follow()


def first_broken_sample(document: Path, folder: Path, turns: int = 2) -> str:
    """What the first sample that does not keep its word did instead; empty when all keep it.

    Followed twice in one folder: people run a sample again, to look once more or because they changed something.
    """
    for turn in ("", "followed once more in the same folder, ")[:turns]:
        try:
            Reader(document, folder).follow()
        except BrokenSample as broken:
            return f"{turn}{broken}"
    return ""


@pytest.mark.timeout(1_200)
@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_sample_of_a_document_runs(document: str, tmp_path: Path) -> None:
    broken = first_broken_sample(ROOT / document, tmp_path, 1 if document in FOLLOWED_ONCE else 2)
    assert not broken, f"\n{document}, {broken}"


@pytest.mark.parametrize("document", DOCUMENTS)
def test_a_server_of_a_sample_listens_on_a_free_port(document: str) -> None:
    """Documents are followed at the same time, by tests as by readers: on the default port their servers would meet."""
    fences = find_fences((ROOT / document).read_text(encoding="utf-8"))
    lines = [line for fence in fences if is_to_run(fence) for line in fence.text.splitlines()]
    started = [line for line in lines if line.startswith("$ ") and "headwater serve" in line]
    # One that is refused listens nowhere.
    assert [line for line in started if "--port 0" not in line and "|| echo" not in line] == []


def test_what_is_followed_once_is_there_and_is_nothing_that_newcomers_begin_with() -> None:
    assert set(DOCUMENTS) >= FOLLOWED_ONCE
    assert FOLLOWED_ONCE.isdisjoint({"README.md", "docs/queues.md", "docs/client.md"})


def test_a_sample_that_works_only_the_first_time_is_caught(tmp_path: Path) -> None:
    plant(tmp_path, {"planted.md": "```console\n$ mkdir orders\n```\n"})
    broken = first_broken_sample(tmp_path / "planted.md", tmp_path)
    assert broken.startswith("followed once more in the same folder, line 2: exit code 1")


def test_the_samples_of_a_document_share_a_folder_and_run_in_order(tmp_path: Path) -> None:
    follow(
        tmp_path,
        "```python\nfrom pathlib import Path\nPath('note').write_text('one')\n```\n"
        "```console\n$ echo ' two' >> note\n$ cat note\none two\n```\n"
        "```python\nassert open('note').read() == 'one two\\n'\n```\n",
    )
    assert (tmp_path / "note").read_text() == "one two\n"


def test_a_sample_may_be_a_file_for_the_next_one(tmp_path: Path) -> None:
    follow(
        tmp_path,
        "```python file=flows.py\nten = 10\n```\n```console\n$ python -c 'import flows; print(flows.ten)'\n10\n```\n",
    )
    assert (tmp_path / "flows.py").read_text() == "ten = 10\n"


def test_a_python_sample_may_await_at_its_top_level(tmp_path: Path) -> None:
    follow(tmp_path, "```python\nimport asyncio\nawait asyncio.sleep(0)\nopen('awaited', 'w').close()\n```\n")
    assert (tmp_path / "awaited").exists()


def test_a_python_sample_is_the_main_module(tmp_path: Path) -> None:
    follow(tmp_path, "```python\nimport __main__\nx = 1\nassert __main__.x == 1\nopen('main', 'w').close()\n```\n")
    assert (tmp_path / "main").exists()


def test_the_programs_of_this_environment_come_first(tmp_path: Path) -> None:
    follow(tmp_path, "```sh\n$ python -c 'import pytest, sys; print(sys.prefix)' > prefix\n```\n")
    assert (tmp_path / "prefix").read_text().strip() == sys.prefix


def test_a_command_may_run_over_several_lines(tmp_path: Path) -> None:
    follow(tmp_path, "```console\n$ cat > note <<'END'\n> one\n> END\n$ echo \\\n    two\ntwo\n```\n")
    assert (tmp_path / "note").read_text() == "one\n"


@pytest.mark.timeout(20)
def test_what_a_sample_leaves_running_is_ended_with_its_document(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    reading = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    follow(tmp_path, "```console\n$ exec 9> pipe; sleep 600 &\n$ echo next\nnext\n```\n")
    # The end of the pipe comes when the last process that holds it for writing is gone.
    os.set_blocking(reading, True)
    assert os.read(reading, 1) == b""
    os.close(reading)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("# A\n\n```python\nx = 1\nraise ValueError('no')\n```\n", 'planted.md", line 5'),
        ("```python\nassert False\n```\n", "line 1: exit code 1"),
        ("```python\nx = = 1\n```\n", "line 1: exit code 1"),
        ("\n```console\n$ true\n$ false\n```\n", "line 4: exit code 1"),
        ("```sh\n$ exit 3\n```\n", "line 2: exit code 3"),
        ("```console\n$ echo one\ntwo\n```\n", "line 2: shown\ntwo\nbut printed\none"),
        ("1. In a list\n\n   ```console\n   $ false\n   ```\n", "line 4: exit code 1"),
        ("```python no-run\nx\n```\n", "line 1: no-run needs a reason"),
        ("<!-- -->\n```sh no-run\n$ x\n```\n", "line 2: no-run needs a reason"),
        ("```python skip\nx\n```\n", "line 1: unknown mark skip"),
    ],
)
def test_a_planted_broken_sample_is_caught_with_its_line(tmp_path: Path, text: str, named: str) -> None:
    with pytest.raises(BrokenSample) as caught:
        follow(tmp_path, text)
    assert named in str(caught.value)
    assert str(caught.value).startswith("line ")


def test_a_sample_that_never_ends_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(samples, "SAMPLE_SECONDS_MAX", 0.2)
    with pytest.raises(BrokenSample, match="line 2: still running"):
        follow(tmp_path, "```console\n$ sleep 60\n```\n")


@pytest.mark.parametrize(
    "text",
    [
        "<!-- needs a bucket -->\n```python no-run\nraise ValueError\n```\n",
        "<!-- needs a bucket -->\n```sh no-run\n$ false\n```\n",
        "```sh\nfalse\n```\n",
        "```text\n$ false\n```\n",
        "```\n$ false\n```\n",
        "````text\n```python\nraise ValueError\n```\n````\n",
    ],
)
def test_what_is_no_sample_to_run_is_left_alone(tmp_path: Path, text: str) -> None:
    follow(tmp_path, text)
    assert len(list(find_fences(text))) == 1


@pytest.mark.parametrize(
    ("expected", "output"),
    [
        ((), "anything\n"),
        (("one", "two"), "one\ntwo\n"),
        (("one  ", ""), "one\n\n"),
        (("took ... ms",), "took 12.5 ms\n"),
        (("first", "...", "last"), "first\nlast\n"),
        (("first", "...", "last"), "first\na\nb\nlast\n"),
        (("...",), "anything\nat all\n"),
        (("a+b (c)",), "a+b (c)\n"),
    ],
)
def test_an_output_as_shown_is_accepted(expected: tuple[str, ...], output: str) -> None:
    assert matches(expected, output)


@pytest.mark.parametrize(
    ("expected", "output"),
    [
        (("one",), "one\ntwo\n"),
        (("one", "two"), "one\n"),
        (("took ... ms",), "took\n12 ms\n"),
        (("first", "...", "last"), "first\na\n"),
        (("a.c",), "abc\n"),
        (("one",), ""),
    ],
)
def test_an_output_other_than_shown_is_refused(expected: tuple[str, ...], output: str) -> None:
    assert not matches(expected, output)
