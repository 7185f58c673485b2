#!/usr/bin/env python3
"""test_ddprun_keys.py - workers of a job whose store is beyond loopback: they prove themselves, without the token.

In a network namespace of its own, where an address that is not loopback reaches nobody. Skipped
where such a namespace may not be made.
"""

import os
import subprocess
import sys
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / 'lib'))
from ddprun_run import DDPRUN
from ddprund_run import DdprundCase, DDPCTL

ADDRESS = '192.0.2.1'
STORE = f'{ADDRESS}:29400'
INSIDE = ['unshare', '--map-root-user', '--net', 'sh', '-c',
          f'ip link set lo up && ip addr add {ADDRESS}/32 dev lo && exec "$@"', 'sh']
ALLREDUCE = Path(DDPRUN).resolve().parents[1] / 'examples' / 'allreduce'
# Two nodes in one namespace; the second is the one that is looked at.
BOTH = (f'"$0" {{0}} {ALLREDUCE} & "$0" {{0}} sh -c "$1"; code=$?; wait; exit $code')


def permitted():
    try:
        return subprocess.run([*INSIDE, 'true'], check=False, capture_output=True).returncode == 0
    except OSError:
        return False


@unittest.skipUnless(permitted(), 'network namespaces may not be made here')
class WorkerKeys(DdprundCase):
    def two_nodes(self, script, *options):
        words = ' '.join(['--nnodes=2', '--rdzv-id=train', f'--rdzv-endpoint={STORE}', '--no-prefix',
                          *options])
        program, *rest = INSIDE
        job = self.start(*rest, 'sh', '-c', BOTH.format(words), DDPRUN, script, program=program)
        job.wait()
        job.wait_gone()
        return job

    def test_libddpcomm_passes_it_on(self):
        job = self.two_nodes(f'exec {ALLREDUCE}')
        self.assertEqual(job.code, 0, job.err)
        self.assertEqual(sorted(job.out.splitlines()),
                         ['rank 0 of 2: the sum is 3', 'rank 1 of 2: the sum is 3'])

    def test_what_a_worker_can_do_with_it(self):
        look = (f'exec {ALLREDUCE} & '
                'echo "prefix $DDPRUN_STORE_PREFIX fd $DDPRUN_TOKEN_FD"; '
                'key=/proc/self/fd/3; cut -d" " -f1-5 <$key; '
                f'store() {{ DDPRUN_TOKEN_FILE=$KEY HOME=/nowhere {DDPCTL} store "$@"; }}; '
                'umask 077; KEY=key; cat $key >$KEY; '
                'store set ${DDPRUN_STORE_PREFIX}mine yes && echo "$(store get ${DDPRUN_STORE_PREFIX}mine)"; '
                'store fence train 99 || echo "fence $?"; wait')
        job = self.two_nodes(look)
        self.assertEqual(job.code, 0, job.err)
        for text in ('prefix g1/ fd 3', 'ddprun-key 1 worker train 1', 'yes', 'fence 77'):
            self.assertIn(text, job.out.splitlines(), job.out + job.err)
        token = (self.home / '.config/ddprun/token').read_text().strip()
        self.assertNotIn(token, (self.folder / 'key').read_text())

    def test_without_authentication_there_is_none(self):
        job = self.two_nodes(f'echo "$DDPRUN_STORE_PREFIX ${{DDPRUN_TOKEN_FD-none}}"; exec {ALLREDUCE}',
                             '--no-auth')
        self.assertEqual(job.code, 0, job.err)
        self.assertIn('job/train/g1/ none', job.out.splitlines())


if __name__ == '__main__':
    unittest.main()
