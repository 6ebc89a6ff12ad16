"""Parties' processes end with the process that started them, and all they started."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from skvfl.federation import _lifeline

SOON = 10  # a quarter of a second, and whatever keeps a busy machine from looking

CHILD = """
import ctypes, os, sys, time
exec(open({path!r}).read())
if {by_looking}:
    del fcntl.F_SETSIG
end_with(int(sys.argv[1]), int(sys.argv[2]))
grandchild = os.fork()
if not grandchild:
    time.sleep(600)
os.write(1, b"%d %d\\n" % (os.getpid(), grandchild))
{work}
"""
STARTER = """
import os, subprocess, sys, time
reader, writer = os.pipe()
if {forks}:
    # Holds the pipe open when the starter is gone.
    fork = os.fork()
    if not fork:
        time.sleep(2 * {soon})
        os._exit(0)
child = subprocess.Popen(
    [sys.executable, "-c", {child!r}, str(os.getpid()), str(reader)],
    pass_fds=[reader], start_new_session=True,
)
time.sleep(600)
"""
WORK = {
    "Python": "while True: pass",
    "C code that lets no thread run": "ctypes.PyDLL(None).sleep(600)",
}
on_linux = pytest.mark.skipif(
    sys.platform != "linux", reason="the kernel's help is Linux's"
)


def is_alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    stat = Path(f"/proc/{pid}/stat")
    try:
        return stat.read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return not Path("/proc").exists()


def assert_gone_soon(pids):
    deadline = time.monotonic() + SOON
    while alive := [pid for pid in pids if is_alive(pid)]:
        assert time.monotonic() < deadline, alive
        time.sleep(0.02)


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize(
    ("by_looking", "forks", "work"),
    [
        pytest.param(False, False, "C code that lets no thread run", marks=on_linux),
        pytest.param(False, False, "Python", marks=on_linux),
        (True, False, "Python"),
        (False, True, "Python"),
    ],
)
def test_a_busy_process_ends_with_its_starter(how, by_looking, forks, work):
    path = _lifeline.__file__
    child = CHILD.format(path=path, by_looking=by_looking, work=WORK[work])
    starter = subprocess.Popen(
        [sys.executable, "-c", STARTER.format(child=child, forks=forks, soon=SOON)],
        stdout=subprocess.PIPE,
        text=True,
    )
    with starter:
        pids = [int(pid) for pid in starter.stdout.readline().split()]
        time.sleep(0.3)
        alive = [pid for pid in pids if is_alive(pid)]
        starter.send_signal(how)
    assert len(pids) == len(alive) == 2
    assert_gone_soon(pids)


SCRIPT = """
import ctypes, os, time
from skvfl import CommunicationLog, ProcessTransport
from skvfl.federation import Party, operation

class Busy(Party):
    @operation
    def work(self):
        grandchild = os.fork()
        if not grandchild:
            time.sleep(600)
        # One write: lines of two processes that share a pipe must not mix.
        os.write(1, b"%d %d\\n" % (os.getpid(), grandchild))
        ctypes.PyDLL(None).sleep(600)

parties = [Busy("bank"), Busy("shop")]
with ProcessTransport().connect(parties, CommunicationLog()) as session:
    session.call("work")
"""


@on_linux
@pytest.mark.parametrize(
    "how", [pytest.param(signal.SIGTERM, marks=pytest.mark.slow), signal.SIGKILL]
)
def test_parties_end_with_the_centre_while_they_are_busy(tmp_path, how):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    centre = subprocess.Popen(
        [sys.executable, str(script)], stdout=subprocess.PIPE, text=True
    )
    with centre:
        pids = [int(pid) for _ in range(2) for pid in centre.stdout.readline().split()]
        alive = [pid for pid in pids if is_alive(pid)]
        centre.send_signal(how)
    assert len(pids) == len(alive) == 4
    assert_gone_soon(pids)
