"""Threads of the command line share one heap."""

import ctypes
import subprocess
import sys

import pytest
from ldp_beam.pipelines.heap import share_heap

PROGRAM = """
import ctypes, threading
from ldp_beam.pipelines.heap import share_heap
if {share}:
    share_heap()
def work():
    held = [bytes(50_000) for _ in range(100)]
    barrier.wait()
barrier = threading.Barrier(5)
threads = [threading.Thread(target=work) for _ in range(4)]
for one in threads: one.start()
barrier.wait()
for one in threads: one.join()
ctypes.CDLL(None).malloc_stats()
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_stats"), reason="the C library is not glibc")
@pytest.mark.parametrize("share", [True, False])
def test_threads_share_one_heap(share):
    program = [sys.executable, "-c", PROGRAM.format(share=share)]
    done = subprocess.run(program, capture_output=True, text=True, check=True)
    assert (done.stderr.count("Arena ") == 1) == share


def test_another_c_library_is_left_alone(monkeypatch):
    monkeypatch.setattr(ctypes, "CDLL", lambda name: object())
    share_heap()
