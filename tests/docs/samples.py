"""Finds the samples of a document and runs them, in order, in one folder that they share.

A fence `python` is a program of its own; marked `file=NAME` it is written to that file instead. In a fence `console` or
`sh`, a line that begins with `$ ` is a command, lines that begin with `> ` carry it on, and the lines below are the
output to expect, where `...` stands for anything: inside a line for any text, alone on a line for any lines. A fence
marked `no-run` is left out, and an HTML comment on the line before it says why.
"""

import os
import re
import signal
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

# Samples of Spark start a Java, which takes its time beside other tests.
SAMPLE_SECONDS_MAX = 180
RUNNER = Path(__file__).with_name("run_sample.py")
FILE = "file="
FENCE = re.compile(r"^(?P<indent> *)(?P<ticks>`{3,})(?P<info>[^`]*)$")
REASON = re.compile(r"^\s*<!--.*\w.*-->\s*$")


class BrokenSample(Exception):
    """A sample does not do what its document says; the message opens with the line."""


class Fence(NamedTuple):
    """A fenced block: the words after the ticks, the line it opens on, the line above, and what it holds."""

    words: tuple[str, ...]
    line: int
    line_before: str
    text: str


class Command(NamedTuple):
    """One command of a console sample, with the output its document shows."""

    line: int
    text: str
    expected: tuple[str, ...]


class SampleRun(NamedTuple):
    """How a program ended and what it printed, errors included."""

    status: int
    output: str


def find_fences(document: str) -> Iterator[Fence]:
    lines = document.splitlines()
    position = 0
    while position < len(lines):
        opening = FENCE.match(lines[position])
        position += 1
        if opening:
            start = position
            position = find_closing(lines, start, opening["ticks"])
            indent = len(opening["indent"])
            text = "\n".join(line[indent:] if line[:indent].isspace() else line for line in lines[start:position])
            yield Fence(tuple(opening["info"].split()), start, lines[start - 2] if start > 1 else "", text)
            position += 1


def find_closing(lines: list[str], start: int, ticks: str) -> int:
    """The index of the line that closes a fence; one left open runs to the end of the document."""
    for index in range(start, len(lines)):
        mark = lines[index].strip()
        if mark.startswith(ticks) and not mark.strip("`"):
            return index
    return len(lines)


def is_to_run(fence: Fence) -> bool:
    """Whether a fence is a sample to run; one that is left out without a reason is broken."""
    language, *marks = fence.words or ("",)
    if language not in {"python", "console", "sh"}:
        return False
    if unknown := {mark for mark in marks if mark != "no-run" and not mark.startswith(FILE)}:
        raise BrokenSample(f"line {fence.line}: unknown mark {', '.join(sorted(unknown))}; there are no-run and {FILE}")
    if "no-run" not in marks:
        return language == "python" or fence.text.startswith("$ ")
    if not REASON.match(fence.line_before):
        raise BrokenSample(f"line {fence.line}: no-run needs a reason, in an HTML comment on the line before")
    return False


def find_commands(fence: Fence) -> list[Command]:
    commands: list[Command] = []
    for number, line in enumerate(fence.text.splitlines(), fence.line + 1):
        if line.startswith("$ "):
            commands.append(Command(number, line[2:], ()))
        elif commands[-1].expected or not carries_on(commands[-1], line):
            commands[-1] = commands[-1]._replace(expected=(*commands[-1].expected, line))
        else:
            commands[-1] = commands[-1]._replace(text=f"{commands[-1].text}\n{line.removeprefix('> ')}")
    return commands


def carries_on(command: Command, line: str) -> bool:
    return line.startswith("> ") or command.text.endswith("\\")


def output_pattern(expected: tuple[str, ...]) -> re.Pattern[str]:
    """Expected lines as a pattern over the output, in which every line ends with a line break."""
    parts = []
    for line in expected:
        if line.strip() == "...":
            parts.append(r"(?:.*\n)*?")
        else:
            parts.append(".*".join(re.escape(text) for text in line.rstrip().split("...")) + r"\n")
    return re.compile("".join(parts))


def matches(expected: tuple[str, ...], output: str) -> bool:
    """Whether an output is the one a document shows; a document that shows none takes any."""
    shown = tuple("\n".join(expected).rstrip().splitlines())
    printed = "".join(f"{line.rstrip()}\n" for line in output.rstrip().splitlines())
    return not shown or bool(output_pattern(shown).fullmatch(printed))


class Reader:
    """Someone who follows a document in a folder of their own, and tidies up what they left running."""

    def __init__(self, document: Path, folder: Path) -> None:
        self.document = document
        self.folder = folder
        self.groups: list[int] = []

    def follow(self) -> None:
        """Runs every sample in order; raises BrokenSample at the first that does not keep its word."""
        try:
            for fence in find_fences(self.document.read_text(encoding="utf-8")):
                self.run_fence(fence)
        finally:
            self.end_all()

    def run_fence(self, fence: Fence) -> None:
        if not is_to_run(fence):
            return
        if name := next((mark.removeprefix(FILE) for mark in fence.words if mark.startswith(FILE)), ""):
            (self.folder / name).write_text(f"{fence.text}\n")
        else:
            self.run_python(fence) if fence.words[0] == "python" else self.run_console(fence)

    def run_python(self, fence: Fence) -> None:
        arguments = [sys.executable, str(RUNNER), str(self.document), str(fence.line)]
        outcome = self.run(arguments, fence.line, fence.text)
        if outcome.status != 0:
            raise BrokenSample(f"line {fence.line}: exit code {outcome.status}\n{outcome.output}")

    def run_console(self, fence: Fence) -> None:
        for command in find_commands(fence):
            outcome = self.run(["bash", "-c", command.text], command.line)
            if outcome.status != 0:
                raise BrokenSample(f"line {command.line}: exit code {outcome.status}\n{outcome.output}")
            if not matches(command.expected, outcome.output):
                shown = "\n".join(command.expected)
                raise BrokenSample(f"line {command.line}: shown\n{shown}\nbut printed\n{outcome.output}")

    def run(self, arguments: list[str], line: int, text: str = "") -> SampleRun:
        # Into files and not pipes: a server that a sample leaves running would hold a pipe open for ever.
        with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as given:
            given.write(text)
            given.seek(0)
            process = subprocess.Popen(
                arguments,
                cwd=self.folder,
                env=reader_environment(self.folder),
                stdin=given,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            self.groups.append(process.pid)
            try:
                status = process.wait(SAMPLE_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                self.end_all()
                process.wait()
                raise BrokenSample(f"line {line}: still running after {SAMPLE_SECONDS_MAX} s") from None
            output.seek(0)
            return SampleRun(status, output.read())

    def end_all(self) -> None:
        """Ends what the samples started and left running; each has a process group of its own."""
        for group in self.groups:
            with suppress(ProcessLookupError):
                os.killpg(group, signal.SIGKILL)
        self.groups.clear()


def reader_environment(folder: Path) -> dict[str, str]:
    """The caller's environment, with our programs first, a home to write into, and plain output of a known width."""
    path = os.pathsep.join([sysconfig.get_path("scripts"), os.environ.get("PATH", os.defpath)])
    ours = {"PATH": path, "HOME": str(folder), "NO_COLOR": "1", "TERM": "dumb", "COLUMNS": "120"}
    # What a sample of Spark computes is little, beside what Java's second compiler takes to make that quicker.
    ours["JDK_JAVA_OPTIONS"] = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    foreign = {"VIRTUAL_ENV", "PYTHONPATH", "PYTHONHOME", "FORCE_COLOR"}
    return {name: value for name, value in os.environ.items() if name not in foreign} | ours
