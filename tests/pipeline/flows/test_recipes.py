"""The recipes of docs/pipeline.md, run as cron, a shell and Airflow run them: the very text that is printed there.

Airflow lives in an environment of its own; HEADWATER_AIRFLOW_PYTHON names its Python, and then the task is run, too.
"""

import json
import os
import re
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

import headwater.sync
from headwater import Outgoing
from tests.docs.samples import find_fences
from tests.pipeline.store import JAVA_OPTIONS
from tests.tidy.tree import ROOT

DOCUMENT = (ROOT / "docs/pipeline.md").read_text(encoding="utf-8")
PRINTED_FOLDER = "/srv/shop"
AIRFLOW_PYTHON = "HEADWATER_AIRFLOW_PYTHON"
# What cron gives to a command, and no more; Java is told to be quick.
CRON = {"HOME": "/", "LOGNAME": "shop", "SHELL": "/bin/sh", "PATH": "/usr/bin:/bin", "JAVA_TOOL_OPTIONS": JAVA_OPTIONS}
SECONDS_MAX = 280


def printed(language: str, *marks: str) -> str:
    """The one fence of a language that has all of these texts."""
    found = [
        fence.text
        for fence in find_fences(DOCUMENT)
        if fence.words[0] == language and all(mark in fence.text for mark in marks)
    ]
    assert len(found) == 1, f"{language} with {marks} is there {len(found)} times"
    return found[0]


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """A folder with a store and a `.venv`, as the recipes have it."""
    programs = tmp_path / ".venv" / "bin"
    programs.mkdir(parents=True)
    program = programs / "headwater"
    program.write_text(
        f'#!/bin/sh\nPYTHONPATH="{os.pathsep.join(sys.path)}" exec "{sys.executable}" -m headwater.cli "$@"\n'
    )
    program.chmod(0o755)
    with headwater.sync.open(str(tmp_path / "headwater.db"), housekeeping=False) as hw:
        orders = [Outgoing(payload={"customer": f"c-{number % 3}", "amount": number}) for number in range(30)]
        hw.queue("orders").push_many(orders)
    return tmp_path


def run(shop: Path, shell: str, command: str, environment: dict[str, str]) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [shell, "-c", command.replace(PRINTED_FOLDER, str(shop))],
        cwd=shop,
        env=environment,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )


def test_the_line_for_cron_does_its_work_in_the_environment_of_cron(shop: Path) -> None:
    fields = printed("crontab").split(maxsplit=5)
    assert [bool(re.fullmatch(r"[\d*/,-]+", field)) for field in fields] == [True] * 5 + [False]
    ended = run(shop, "/bin/sh", fields[5], CRON)
    log = (shop / "rollup.log").read_text()
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", ""), log
    assert re.search(r"(?m)^messages +30\s*$", log), log
    assert "<svg" in (shop / "chart.html").read_text()


def test_what_spark_submit_is_given_pushes_its_totals(shop: Path) -> None:
    (shop / "totals.py").write_text(printed("python", "start_session()", '"totals"'))
    path = os.pathsep.join([str(shop / ".venv/bin"), sysconfig.get_path("scripts"), CRON["PATH"]])
    environment = {**CRON, "PATH": path, "PYTHONPATH": os.pathsep.join(sys.path)}
    ended = run(shop, "/bin/sh", f"set -e\n{printed('sh', 'spark-submit')}", environment)
    assert ended.returncode == 0, ended.stderr[-3_000:]
    with headwater.sync.open(str(shop / "headwater.db"), housekeeping=False) as hw:
        totals = hw.queue("totals").pop(batch=100)
    assert {message.payload["customer"]: message.payload["total"] for message in totals} == {
        f"c-{customer}": sum(range(customer, 30, 3)) for customer in range(3)
    }


def airflow_command() -> str:
    found = re.search(r'bash_command="([^"]+)"', printed("python", "BashOperator"))
    assert found is not None
    return found[1]


def test_the_command_for_airflow_ends_with_its_summary(shop: Path) -> None:
    ended = run(shop, "bash", airflow_command(), CRON)
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout.splitlines()[-1])["archived"] == 30
    assert (shop / "archive" / "_manifest.json").is_file()


@pytest.mark.skipif(AIRFLOW_PYTHON not in os.environ, reason=f"set {AIRFLOW_PYTHON} to a Python that has Airflow")
def test_airflow_itself_runs_the_task(shop: Path) -> None:
    dags = shop / "dags"
    dags.mkdir()
    (dags / "shop.py").write_text(printed("python", "BashOperator").replace(PRINTED_FOLDER, str(shop)))
    environment = {
        **CRON,
        "AIRFLOW_HOME": str(shop / "airflow"),
        "AIRFLOW__CORE__DAGS_FOLDER": str(dags),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "false",
    }
    python = os.environ[AIRFLOW_PYTHON]
    for command in ("db migrate", "dags test shop_archive"):
        ended = run(shop, "bash", f'"{python}" -m airflow {command}', environment)
        assert ended.returncode == 0, ended.stdout[-2_000:] + ended.stderr[-3_000:]
    assert (shop / "archive" / "_manifest.json").is_file(), ended.stdout[-3_000:]
