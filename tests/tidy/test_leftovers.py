"""A test that changes its process for the tests after it is red and says what it left; the tests after it are not."""

import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import pytest

from tests.leftovers import TRAITS, is_temporary
from tests.tidy.tree import ROOT, plant

# What is told, and a test's body that leaves it behind.
LEAKS = [
    ("signal handlers", "signal.signal(signal.SIGUSR1, print)"),
    ("signal handlers", "signal.signal(signal.SIGUSR1, signal.SIG_IGN)"),
    ("signal wake-up descriptor", "signal.set_wakeup_fd(PIPE[1], warn_on_full_buffer=False)"),
    ("umask and signals", "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2])"),
    ("umask and signals", "os.umask(0o027)"),
    ("environment", "os.environ['LEAKED'] = '1'"),
    ("environment", "del os.environ['PATH']"),
    ("resource limits", "resource.setrlimit(resource.RLIMIT_CORE, (1, resource.getrlimit(resource.RLIMIT_CORE)[1]))"),
    ("folder", "os.chdir('/')"),
    ("adoption of orphans", "ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)"),
    ("priority", "os.nice(1)"),
    ("locale", "locale.setlocale(locale.LC_CTYPE, {'C': 'C.UTF-8'}.get(locale.setlocale(locale.LC_CTYPE), 'C'))"),
    ("time zone", "os.environ['TZ'] = 'Asia/Tokyo'; time.tzset(); del os.environ['TZ']"),
    ("socket timeout", "socket.setdefaulttimeout(30)"),
    ("hooks", "sys.excepthook = print"),
    ("garbage collector", "gc.set_threshold(1_000)"),
    ("import path", "sys.path.insert(0, '/nowhere')"),
    ("modules", "del sys.modules['json']"),
    ("modules", "sys.modules['json'] = sys"),
    ("modules", "(tmp_path / 'planted_own.py').touch(); sys.path.insert(0, str(tmp_path)); import planted_own"),
    ("loggers", "logging.getLogger('headwater.planted').addHandler(logging.NullHandler())"),
    ("loggers", "logging.root.setLevel(logging.CRITICAL)"),
    ("loggers", "logging.disable(logging.CRITICAL)"),
    ("event loop policy", "asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())"),
    ("Spark", "pyspark.sql.session.SparkSession._instantiatedSession = object()"),
    ("threads", "threading.Thread(target=threading.Event().wait, daemon=True).start()"),
    ("child processes", "KEPT.append(subprocess.Popen(['sleep', '600'], process_group=0))"),
    ("child processes", "os.waitid(os.P_PID, os.spawnlp(os.P_NOWAIT, 'true', 'true'), os.WEXITED | os.WNOWAIT)"),
    ("open descriptors", "os.pipe()"),
]
HEAD = """
import ctypes, gc, json, locale, logging, os, resource, signal, socket, subprocess, sys, threading, time
import asyncio, atexit, pyspark.sql.session, uvloop

KEPT = []
PIPE = os.pipe()
os.set_blocking(PIPE[1], False)
atexit.register(lambda: KEPT and KEPT[0].kill())
"""
CONFTEST = "from tests.conftest import nothing_left_behind\n"
# None of the leaks goes away by itself.
HASTE = "import tests.leftovers\n\ntests.leftovers.SETTLE_SECONDS = 0.0\n"
SOUND = "\n\ndef test_sound_{number}(tmp_path):\n    pass\n"
LEAKING = "\n\ndef test_leaking_{number}(tmp_path):\n    {body}\n"


def run_planted(folder: Path, text: str, conftest: str = CONFTEST) -> str:
    plant(folder, {"test_planted.py": text, "conftest.py": conftest, "pytest.ini": "[pytest]\n"})
    command = [sys.executable, "-m", "pytest", "-p", "no:xdist", "-q", "--tb=short", "test_planted.py"]
    return subprocess.run(
        ["env", f"PYTHONPATH={ROOT}", *command], cwd=folder, capture_output=True, text=True, check=False
    ).stdout


def test_each_kind_of_leftover_is_planted() -> None:
    assert {name for name, _ in LEAKS} == set(TRAITS)


def test_a_test_that_leaves_something_behind_is_red_says_what_and_harms_nobody_after_it(tmp_path: Path) -> None:
    text = HEAD + "".join(
        LEAKING.format(number=number, body=body) + SOUND.format(number=number) for number, (_, body) in enumerate(LEAKS)
    )
    output = run_planted(tmp_path, text, CONFTEST + HASTE)
    assert f"{2 * len(LEAKS)} passed, {len(LEAKS)} errors" in output
    for number, (name, _) in enumerate(LEAKS):
        (told,) = re.findall(rf"ERROR at teardown of test_leaking_{number} _+\n.*\n((?:- .*\n)+)", output)
        assert f"- {name}: " in told
    assert "test_sound" not in output


CAREFUL = """

def test_careful(tmp_path, monkeypatch, caplog):
    monkeypatch.setenv("LEAKED", "1")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(sys.modules, "planted", sys)
    caplog.set_level("DEBUG", "headwater")
    subprocess.run(["true"], check=True)
    with socket.socket():
        threading.Timer(0.05, KEPT.clear).start()
"""


def test_a_checkout_below_the_folder_for_temporary_files_is_none_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(ROOT.parent))
    assert not is_temporary(sys.modules[__name__])
    monkeypatch.setattr(tempfile, "tempdir", str(Path(unittest.__file__).parents[2]))
    assert not is_temporary(unittest)


def test_a_test_may_use_all_that_when_it_puts_it_back(tmp_path: Path) -> None:
    output = run_planted(tmp_path, HEAD + CAREFUL)
    assert "1 passed" in output
    assert "error" not in output


SHARING = """
import pytest, threading

@pytest.fixture(scope="module")
def server():
    done, wanted = threading.Event(), threading.Event()
    def begin():
        wanted.wait()
        threading.Thread(target=done.wait).start()
    beginner = threading.Thread(target=begin)
    beginner.start()
    globals()["served"] = wanted, beginner
    yield
    done.set()

def test_one_that_uses_it(server):
    pass

def test_one_beside_it():
    wanted, beginner = served
    wanted.set()
    beginner.join()

def test_another_that_uses_it(server):
    pass
"""


def test_what_a_shared_thing_begins_is_not_laid_to_the_test_beside_it(tmp_path: Path) -> None:
    output = run_planted(tmp_path, SHARING, CONFTEST + HASTE)
    assert "3 passed" in output
    assert "error" not in output
