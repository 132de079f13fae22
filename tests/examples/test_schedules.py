"""The schedule files: cron line and systemd service run as they stand, the DAG loads in a real Airflow and runs."""

import configparser
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

SCHEDULE = Path(__file__).parents[2] / "examples" / "schedule"
FOLDER = "/srv/ldp-beam"
PROGRAMS = "/opt/ldp-beam/bin"
BIN = Path(sys.executable).parent
DEFINITION = """
name      = "fruit"
mechanism = "pckv-grr"
epsilon   = 2
padding   = 1
[keys]
count = 3
[values]
range = [-1, 1]
"""


@pytest.fixture(scope="module")
def quick(warm_python):
    """Return a function like `environment` that finds programs which start at once; cron's test takes the real ones."""

    def make(**more):
        return environment(**more) | {"PATH": f"{warm_python.bin}:{environment()['PATH']}"}

    return make


@pytest.fixture(scope="module")
def reports(quick, tmp_path_factory):
    """A folder as on a server: a definition, and reports of the last two nights."""
    folder = tmp_path_factory.mktemp("server")
    (folder / "collection.toml").write_text(DEFINITION)
    (folder / "records.csv").write_text("user_id,key,value\n" + "".join(f"u{i},{i % 3},0.5\n" for i in range(50)))
    today = datetime.now(UTC).date()
    for back in (1, 2):
        day = (today - timedelta(days=back)).isoformat()
        command = [
            *("ldp-beam", "perturb", "--collection", "collection.toml", "--input", "records.csv"),
            *("--output", f"reports/{day}", "--seed", "1", "--period", day, "--json"),
        ]
        subprocess.run(["/usr/bin/env", *command], cwd=folder, env=quick(), check=True, capture_output=True)
    return folder


@pytest.fixture
def server(reports, tmp_path):
    """A copy of that folder, of the test's own."""
    shutil.copytree(reports, tmp_path / "server")
    return tmp_path / "server"


def environment(**more):
    return {"PATH": f"{BIN}:/usr/bin:/bin", "HOME": os.environ.get("HOME", "/"), "PYTHONWARNINGS": "ignore", **more}


def check(told):
    """What both runs say: two of thirty nights, the rest are gaps."""
    assert told["counts_store"]["days"] == 2
    assert len(told["counts_store"]["counted"]) == 2
    assert len(told["counts_store"]["gaps"]) == 28
    assert told["reports"]["counted"] == 100


# -- cron --------------------------------------------------------------------------------------------------------

FIELDS = [("minute", 0, 59), ("hour", 0, 23), ("day", 1, 31), ("month", 1, 12), ("weekday", 0, 7)]


def cron_entry():
    """The settings and the only entry of the crontab, as cron reads them."""
    settings, entries = {}, []
    for line in (SCHEDULE / "crontab").read_text().splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        setting = re.fullmatch(r"([A-Z_]+)=(.*)", line)
        if setting:
            settings[setting[1]] = setting[2]
        else:
            entries.append(line.split(None, 5))
    (entry,) = entries
    return settings, entry[:5], entry[5]


def test_the_cron_line_is_one():
    settings, times, command = cron_entry()
    assert settings["PATH"].split(":")[0] == PROGRAMS
    assert len(times) == 5
    for text, (name, low, high) in zip(times, FIELDS, strict=True):
        assert text == "*" or low <= int(text) <= high, name
    assert "%" not in command.replace(r"\%", "")  # cron would take it for the end of the line
    assert (SCHEDULE / "crontab").read_text().endswith("\n")  # cron ignores a last line without


def test_the_cron_command_runs(server):
    _, _, command = cron_entry()
    assert command.count(FOLDER) == 1
    done = subprocess.run(
        ["/bin/sh", "-c", command.replace(FOLDER, str(server))], env=environment(), capture_output=True, text=True
    )
    assert done.returncode == 3, done.stderr  # 28 nights are missing
    check(json.loads((server / "last-run.json").read_text()))


# -- systemd -----------------------------------------------------------------------------------------------------


def unit(name):
    """A unit file as systemd reads it: lines that end in a backslash go on."""
    parser = configparser.RawConfigParser(strict=True)
    parser.optionxform = str
    parser.read_string((SCHEDULE / name).read_text().replace("\\\n", " "))
    return parser


def test_the_timer_starts_the_service():
    timer, service = unit("ldp-beam-nightly.timer"), unit("ldp-beam-nightly.service")
    assert timer["Install"]["WantedBy"] == "timers.target"
    assert timer["Timer"]["Persistent"] == "true"
    assert "Unit" not in timer["Timer"]  # then it is the service of the same name
    assert service["Service"]["Type"] == "oneshot"
    assert "Install" not in service  # else it would run at every start as well
    assert service["Service"]["WorkingDirectory"] in service["Service"]["ReadWritePaths"]


def test_the_command_of_the_service_runs(server):
    service = unit("ldp-beam-nightly.service")["Service"]
    assert service["WorkingDirectory"] == FOLDER
    program, *arguments = shlex.split(service["ExecStart"])
    assert program == f"{PROGRAMS}/ldp-beam"
    assert not any(character in service["ExecStart"] for character in "%$|>;&")  # systemd runs no shell
    done = subprocess.run([BIN / "ldp-beam", *arguments], cwd=server, env=environment(), capture_output=True, text=True)
    assert done.returncode == 3, done.stderr
    check(json.loads(done.stdout))


def test_systemd_finds_nothing_to_say(tmp_path):
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is absent; the test before this one ran the command")
    for path in SCHEDULE.glob("ldp-beam-nightly.*"):
        (tmp_path / path.name).write_text(path.read_text().replace(f"{PROGRAMS}/ldp-beam", str(BIN / "ldp-beam")))
    units = sorted(map(str, tmp_path.glob("ldp-beam-nightly.*")))
    assert len(units) == 2
    done = subprocess.run(["systemd-analyze", "verify", *units], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "ldp-beam-nightly" not in done.stderr
    calendar = unit("ldp-beam-nightly.timer")["Timer"]["OnCalendar"]
    done = subprocess.run(["systemd-analyze", "calendar", calendar], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


# -- Airflow -----------------------------------------------------------------------------------------------------

AIRFLOW = "apache-airflow>=3.1,<4"
#: Loads the DAG as Airflow does and prints what it is, with the commands as they are for a run of 4 November.
LOAD = """
import json, sys
from datetime import UTC, datetime
from types import SimpleNamespace
from airflow.dag_processing.dagbag import DagBag
from airflow.sdk.execution_time import macros

bag = DagBag(sys.argv[1])
(dag,) = bag.dags.values()
run = SimpleNamespace(run_after=datetime(2026, 11, 4, 3, 15, tzinfo=UTC))
variables = SimpleNamespace(get=lambda name, default=None: sys.argv[2] if name == "ldp_beam_folder" else default)
context = {"dag_run": run, "macros": macros, "var": SimpleNamespace(value=variables)}
render = lambda text: dag.get_template_env().from_string(text).render(**context)
print(json.dumps({
    "errors": bag.import_errors,
    "id": dag.dag_id,
    "catchup": dag.catchup,
    "at_once": dag.max_active_runs,
    "schedule": dag.schedule,
    "tasks": {
        task.task_id: {
            "after": sorted(task.upstream_task_ids),
            "retries": task.retries,
            "command": render(task.bash_command),
            "cwd": render(task.cwd),
        }
        for task in dag.tasks
    },
}))
"""


@pytest.fixture(scope="module")
def airflow(tmp_path_factory):
    """Python of a virtual environment that has Airflow, which needs other versions than we do."""
    if os.environ.get("CI") != "true" and not os.environ.get("LDP_BEAM_TEST_AIRFLOW"):
        pytest.skip("installs Airflow into a virtual environment; set LDP_BEAM_TEST_AIRFLOW=1 to let it")
    uv = shutil.which("uv", path=f"{BIN}:{os.environ['PATH']}")
    assert uv is not None, "uv is absent; it belongs to the extra test"
    folder = tmp_path_factory.mktemp("airflow") / "venv"
    subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, folder], check=True)
    subprocess.run([uv, "pip", "install", "--quiet", "--python", folder / "bin" / "python", AIRFLOW], check=True)
    return folder / "bin" / "python"


def test_the_dag_loads_in_airflow_and_its_commands_run(airflow, server, quick, tmp_path):
    dags = tmp_path / "dags"
    dags.mkdir()
    shutil.copy(SCHEDULE / "ldp_beam_nightly.py", dags)
    quiet = {"AIRFLOW_HOME": str(tmp_path / "home"), "AIRFLOW__CORE__LOAD_EXAMPLES": "False"}
    done = subprocess.run(
        [airflow, "-c", LOAD, str(dags), str(server)], env=environment(**quiet), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    dag = json.loads(done.stdout.splitlines()[-1])
    assert dag["errors"] == {}
    assert (dag["id"], dag["catchup"], dag["at_once"], dag["schedule"]) == ("ldp_beam_nightly", False, 1, "15 3 * * *")
    first, second = dag["tasks"]["aggregate"], dag["tasks"]["over_time"]
    assert (first["after"], second["after"]) == ([], ["aggregate"])
    assert first["cwd"] == second["cwd"] == str(server)
    assert "--since 2026-10-05 --until 2026-11-03" in first["command"]

    for back, day in ((1, "2026-11-03"), (2, "2026-11-02")):  # reports of the nights before that run
        for path in (server / "reports").glob("*/*.parquet"):
            if back == 1:
                path.unlink()
        command = [
            *("/usr/bin/env", "ldp-beam", "perturb", "--collection", "collection.toml", "--input", "records.csv"),
            *("--output", f"reports/{day}", "--seed", "1", "--period", day, "--json"),
        ]
        subprocess.run(command, cwd=server, env=quick(), check=True, capture_output=True)
    done = subprocess.run(["bash", "-c", first["command"]], cwd=server, env=quick(), capture_output=True, text=True)
    assert done.returncode == 3, done.stderr
    check(json.loads(done.stdout))
    done = subprocess.run(["bash", "-c", second["command"]], cwd=server, env=quick(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "2026-11-03" in (server / "over-time.html").read_text(encoding="utf-8")


def test_the_three_schedules_do_the_same():
    """One page explains them, so they take the same options."""
    texts = [
        cron_entry()[2],
        unit("ldp-beam-nightly.service")["Service"]["ExecStart"],
        (SCHEDULE / "ldp_beam_nightly.py").read_text(),
    ]
    for option in ("--input", "--counts-store store", "--max-gaps 0", "--max-rejects 0.01", "--overwrite", "--json"):
        assert all(option in text for text in texts), option
