#!/usr/bin/env python3
"""kept.py [OPTIONS of ddprund] - a store on three machines in place of the one that a benchmark starts: it is given as
--ddprund=tests/bench/kept.py, and starts three keepers, on three addresses of loopback. It prints the endpoint of
127.0.0.1 once that one leads. All end when it is killed.
"""

import ctypes
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / 'lib'))
from ddprun_run import ROOT, children
from nodes import free_ports

DDPRUND, DDPCTL = (os.environ.get(name.upper(), ROOT / 'build' / 'bin' / name) for name in ('ddprund', 'ddpctl'))
PR_SET_PDEATHSIG = 1
LIBC = ctypes.CDLL(None)


def end_with_us():
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def leads(endpoint):
    words = [DDPCTL, 'store', '--timeout=1s', 'stats']
    return subprocess.run(words, env={**os.environ, 'DDPRUN_STORE': endpoint}, capture_output=True, check=False).returncode == 0


def keeper(endpoints, endpoint, peer_port, words):
    words = [DDPRUND, f'--cluster={",".join(endpoints)}', f'--advertise={endpoint}', f'--peer-port={peer_port}',
             '--state-lease=2s', *words]
    return subprocess.Popen(words, stdout=subprocess.DEVNULL, preexec_fn=end_with_us)


def main():
    port, peer_port = free_ports(2)
    endpoints = [f'127.0.0.{number}:{port}' for number in (1, 2, 3)]
    words = [word for word in sys.argv[1:] if not word.startswith('--listen=')]
    keepers = [keeper(endpoints, endpoint, peer_port, words) for endpoint in endpoints]
    while not leads(endpoints[0]):
        for endpoint, job in zip(endpoints[1:], keepers[1:]):
            if leads(endpoint): # so that another one does
                for pid in children(job.pid):
                    if os.readlink(f'/proc/{pid}/exe').endswith('ddprund'):
                        os.kill(pid, signal.SIGKILL)
        time.sleep(0.2)
    print(f'listening on {endpoints[0]}', flush=True)
    for job in keepers:
        job.wait()


if __name__ == '__main__':
    main()
