#!/usr/bin/env python3
"""ddprun --nproc-per-node=N [--no-prefix] PROGRAM [ARGUMENTS] - N processes that meet on files.

What tests/gpu/run puts where ddprun would be, as a GPU machine may lack what ddprun is built with. It
sets what libddpcomm reads, starts the processes and waits; when one fails it ends the others.
"""

import os
import signal
import subprocess
import sys


def start(rank, ranks, port, words):
    return subprocess.Popen(words, env=os.environ | {
        'RANK': str(rank), 'LOCAL_RANK': str(rank), 'WORLD_SIZE': str(ranks),
        'LOCAL_WORLD_SIZE': str(ranks), 'DDPRUN_STORE': f'127.0.0.1:{port}',
        'DDPRUN_STORE_PREFIX': 'job/'})


def main():
    words = sys.argv[1:]
    options = []
    while words and words[0].startswith('--'):
        options.append(words.pop(0))
    ranks = int(dict(option.partition('=')[::2] for option in options)['--nproc-per-node'])
    port = 1024 + os.getpid() % 60000
    workers = [start(rank, ranks, port, words) for rank in range(ranks)]
    signal.signal(signal.SIGTERM, lambda *_: [worker.kill() for worker in workers])
    waiting, code = {worker.pid: worker for worker in workers}, 0
    while waiting:
        pid, status = os.wait()
        worker = waiting.pop(pid, None)
        worker.returncode = os.waitstatus_to_exitcode(status)
        if worker.returncode != 0 and code == 0:
            code = worker.returncode
            for other in waiting.values():
                other.kill()
    return code if code >= 0 else 128 - code


sys.exit(main())
