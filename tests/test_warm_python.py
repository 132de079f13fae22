"""Commands that are forks end, print and take signals as commands of their own do."""

import os
import signal
import subprocess
import sys
import time

import pytest

PROGRAMS = [
    ("exit", ["-c", "import sys; sys.exit(5)"], ""),
    ("text", ["-c", "import sys; sys.exit('no')"], ""),
    ("error", ["-c", "print(1 / 0)"], ""),
    ("arguments", ["-c", "import sys; print(sys.argv, sys.path[0], __name__)", "a", "-b"], ""),
    ("stdin", ["-", "a"], "import sys; print(sys.argv, __name__)\nprint('later', file=sys.stderr)\n"),
    ("module", ["-m", "ldp_beam.pipelines", "--version"], ""),
    ("usage", ["-m", "ldp_beam.pipelines", "collekt"], ""),
    ("warning", ["-W", "error", "-c", "import warnings; warnings.warn('hm')"], ""),
    ("killed", ["-c", "import os; os.kill(os.getpid(), 9)"], ""),
    ("option", ["-S", "-c", "import sys; print(sys.flags.no_site)"], ""),
]


def run(python, arguments, text, environment, folder):
    return subprocess.run(
        [python, *arguments], input=text, env=environment, cwd=folder, capture_output=True, text=True, timeout=120
    )


@pytest.mark.parametrize(("arguments", "text"), [given[1:] for given in PROGRAMS], ids=[given[0] for given in PROGRAMS])
def test_a_fork_does_what_a_new_interpreter_does(arguments, text, warm_python, tmp_path):
    environment = warm_python.environment()
    fork = run(warm_python.python, arguments, text, environment, tmp_path)
    new = run(sys.executable, arguments, text, environment, tmp_path)
    assert (fork.returncode, fork.stdout) == (new.returncode, new.stdout)
    assert fork.stderr.splitlines()[-1:] == new.stderr.splitlines()[-1:]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_reaches_the_command(number, warm_python):
    process = start(warm_python, "print('up', flush=True); time.sleep(60)")
    assert process.stdout.readline() == "up\n"
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == -number
    assert ("KeyboardInterrupt" in err) == (number == signal.SIGINT)


def test_a_client_that_is_killed_takes_its_command_along(warm_python):
    process = start(warm_python, "print(os.getpid(), flush=True); time.sleep(60)")
    command = int(process.stdout.readline())
    assert command != process.pid
    process.kill()
    process.communicate(timeout=60)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            os.kill(command, 0)
        except ProcessLookupError:
            return
        time.sleep(0.05)
    pytest.fail("the command goes on")


def start(warm_python, code):
    command = [warm_python.python, "-c", f"import os, time; {code}"]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
