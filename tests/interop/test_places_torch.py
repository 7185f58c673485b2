#!/usr/bin/env python3
"""test_places_torch.py - where the ranks of unmodified PyTorch scripts find themselves, and each other: jobs
of one worker, of two nodes, with ports and roles that were asked for; what can be under torchrun as well.

$INTEROP_PYTHON is the Python that has PyTorch; skipped (77) where there is none, unless
DDPRUN_INTEROP=1 makes that a failure.
"""

import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / 'lib'))
from nodes import free_port
from sample import WHOLE, whole_only
from skip import need_torch

DDPRUN = os.environ.get('DDPRUN', '')
PYTHON = os.environ.get('INTEROP_PYTHON', '')
LAUNCHERS = {'ddprun': [DDPRUN, '--no-prefix', '--failure-timeout=1s', '--lease=10m'],
             'torchrun': [PYTHON, '-m', 'torch.distributed.run']}
# torchrun itself hangs now and then in its static form: it is given up after so many seconds, and started again.
HANGS_S, ATTEMPTS = 75, 3

SPAWN = '''
import os, sys
import torch, torch.distributed as dist, torch.multiprocessing as mp

def main(rank, size, port):
    os.environ['MASTER_ADDR'], os.environ['MASTER_PORT'] = 'localhost', port
    dist.init_process_group('gloo', rank=rank, world_size=size)
    tensor = torch.ones(1)
    dist.all_reduce(tensor)
    if rank == 0:
        print('sum', tensor.item(), flush=True)
    dist.destroy_process_group()

if __name__ == '__main__':
    mp.spawn(main, args=(2, sys.argv[1]), nprocs=2)
'''

PLACES = '''
import os, sys
import torch, torch.distributed as dist

dist.init_process_group('gloo')
env = os.environ
attempt = int(env['TORCHELASTIC_RESTART_COUNT'])
tensor = torch.ones(1)
dist.all_reduce(tensor)
store = dist.distributed_c10d._get_default_store()
assert store.add('arrivals', 1) <= dist.get_world_size()    # a key of this attempt
dist.barrier()
if 'fail' in sys.argv and attempt == 0 and dist.get_rank() == 1:
    raise RuntimeError('once')
os.write(1, (f'{dist.get_rank()} {env["ROLE_NAME"]} {env["ROLE_RANK"]}/{env["ROLE_WORLD_SIZE"]} '
             f'{env["MASTER_ADDR"]}:{env["MASTER_PORT"]} sum {tensor.item()}\\n').encode()) # in one piece
dist.barrier()
dist.destroy_process_group()
'''


class Places(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.env = dict(os.environ, PYTHON_EXEC=PYTHON, HOME=self.folder, OMP_NUM_THREADS='1', GLOO_SOCKET_IFNAME='lo')

    def script(self, text):
        path = os.path.join(self.folder, 'script.py')
        with open(path, 'w', encoding='ascii') as file:
            file.write(text)
        return path

    def run_nodes(self, launcher, *of_each, words=(), workers=2):
        """The lines of all nodes' workers, sorted."""
        script = self.script(PLACES)
        nodes = [subprocess.Popen([*LAUNCHERS[launcher], f'--nnodes={len(of_each)}', f'--nproc-per-node={workers}', *own,
                                   script, *words], env=self.env, stdin=subprocess.DEVNULL,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for own in of_each]
        try:
            said = [node.communicate(timeout=HANGS_S if launcher == 'torchrun' else None) for node in nodes]
        finally:
            for node in nodes:
                node.terminate() # torchrun ends its workers then, and not when it is killed
            for node in nodes:
                node.communicate()
        for node, (_, errors) in zip(nodes, said):
            self.assertEqual(node.returncode, 0, errors)
        return sorted(line for lines, _ in said for line in lines.splitlines())

    def static(self, launcher, *own, **more):
        """Two nodes of torchrun's static form; what is found, and the port that was asked for."""
        for _ in range(ATTEMPTS):
            port = free_port()
            try:
                return self.run_nodes(launcher, *[['--node-rank', str(rank), '--master-addr=127.0.0.1',
                                                   f'--master-port={port}', *own, f'--role={role}']
                                                  for rank, role in enumerate(('ps', 'trainer'))], **more), port
            except subprocess.TimeoutExpired:
                pass
        self.skipTest(f'torchrun has not ended within {HANGS_S} s, {ATTEMPTS} times')

    def test_the_only_worker_spawns_ranks_of_its_own(self):
        """With MASTER_ADDR and MASTER_PORT as the script likes them."""
        done = subprocess.run([*LAUNCHERS['ddprun'], self.script(SPAWN), str(free_port())], env=self.env,
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        self.assertEqual((done.returncode, done.stdout), (0, 'sum 2.0\n'), done.stderr)

    def test_the_only_worker_meets_itself(self):
        done = subprocess.run([*LAUNCHERS['ddprun'], self.script(PLACES)], env=self.env, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r'\A0 default 0/1 127\.0\.0\.1:\d+ sum 1\.0\n\Z')

    def test_the_static_form_is_as_under_torchrun(self):
        for launcher in LAUNCHERS if WHOLE else ['ddprun']:
            with self.subTest(launcher):
                found, port = self.static(launcher)
                self.assertEqual(found, [f'{rank} {role} {rank % 2}/2 127.0.0.1:{port} sum 4.0'
                                         for rank, role in enumerate(('ps', 'ps', 'trainer', 'trainer'))])

    @whole_only
    def test_the_static_form_starts_again(self):
        found, port = self.static('ddprun', '--max-restarts=1', words=['fail'])
        attempts = [f'{rank} {role} {rank % 2}/2 127.0.0.1:{port} sum 4.0'
                    for rank, role in enumerate(('ps', 'ps', 'trainer', 'trainer'))]
        self.assertEqual(set(found), set(attempts))

    def test_a_port_that_was_asked_for_beside_an_endpoint(self):
        """Rank 0 listens there itself."""
        port, endpoint = free_port(), f'--rdzv-endpoint=127.0.0.1:{free_port()}'
        found = self.run_nodes('ddprun', *[['--rdzv-backend=c10d', endpoint, f'--master-port={port}']] * 2, workers=1)
        self.assertEqual([line.split()[3] for line in found], [f'127.0.0.1:{port}'] * 2)
        self.assertEqual({line.split(' sum ')[1] for line in found}, {'2.0'})


if __name__ == '__main__':
    need_torch(PYTHON)
    unittest.main()
