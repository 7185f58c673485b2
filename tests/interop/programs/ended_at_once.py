#!/usr/bin/env python3
"""ended_at_once.py PROGRAM [ARGUMENT...] - run a Python program, and end the process as soon as that has ended.

Threads of PyTorch's own process groups can free a tensor while Python finalizes, below any launcher; this aborts the
process with "terminate called without an active exception". So nothing is finalized here; all output is written.

NumPy's generators that are not seeded begin with 0: programs that compare sums of their random numbers fail by rounding
once in many runs, below any launcher.
"""

import os
import runpy
import sys
import traceback

import numpy


UNSEEDED = numpy.random.default_rng


def code_of(end):
    if end.code is None or isinstance(end.code, int):
        return end.code or 0
    print(end.code, file=sys.stderr)
    return 1


def run(program):
    try:
        runpy.run_path(program, run_name='__main__')
    except SystemExit as end:
        return code_of(end)
    except BaseException:  # as Python itself does it
        traceback.print_exc()
        return 1
    return 0


if __name__ == '__main__':
    numpy.random.default_rng = lambda seed=None: UNSEEDED(0 if seed is None else seed)
    del sys.argv[0]
    sys.path[0] = os.path.dirname(os.path.abspath(sys.argv[0]))
    CODE = run(sys.argv[0])
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(CODE)
