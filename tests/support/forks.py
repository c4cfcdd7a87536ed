"""Programs that each need a process of their own, without importing torch for each of them."""

import atexit
import functools
import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

# Nothing runs before the fork but imports: threads would be missing in the copy.
# What a program frees goes back to the system at once: blocks of a few MB otherwise lie in glibc's
# heaps, one for each thread, between holes that freed blocks have left, so that the peak of one
# program varied by 20 MB.
SERVER = """
import {modules}
import ctypes, json, os, signal, sys, tempfile, traceback

M_MMAP_THRESHOLD = -3
assert ctypes.CDLL(None).mallopt(M_MMAP_THRESHOLD, 65536) == 1

def become(program, seconds, output, errors):
    os.dup2(output.fileno(), 1)
    os.dup2(errors.fileno(), 2)
    signal.alarm(seconds)
    status = 1
    try:
        exec(program, {{"__name__": "__main__"}})
        status = 0
    except SystemExit as end:
        status = end.code
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)

for line in sys.stdin:
    program, seconds = json.loads(line)
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        child = os.fork()
        if not child:
            become(program, seconds, output, errors)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        output.seek(0)
        errors.seek(0)
        print(json.dumps([status, output.read(), errors.read()]), flush=True)
"""


@functools.cache
def _server(modules: str) -> subprocess.Popen:
    code = SERVER.format(modules=modules)
    server = subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    atexit.register(server.communicate)  # which ends its input
    return server


def in_fork(program: str, *, modules: str = "torch, simcore", timeout: int = 600) -> str:
    """Standard output of ``program``, run in a copy of a process that imported ``modules`` alone.

    The copy has the memory of a fresh process after its imports, and takes milliseconds.
    """
    server = _server(modules)
    print(json.dumps([program, timeout]), file=server.stdin, flush=True)
    status, output, errors = json.loads(server.stdout.readline())
    if status:
        raise RuntimeError(f"exit status {status}\n{output}\n{errors}")
    return output
