#!/usr/bin/env python3
"""test_ddprun_places.py - what the workers of a job of several nodes are told of their places: roles, and
where they meet. The nodes are agents on loopback.
"""

import socket
import sys
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / 'lib'))
from nodes import NodesCase, free_port

PRINT = 'echo "$RANK $ROLE_NAME $ROLE_RANK/$ROLE_WORLD_SIZE $MASTER_ADDR $MASTER_PORT $TORCHELASTIC_USE_AGENT_STORE"'


class Places(NodesCase):
    def run_nodes(self, *of_each, common=('--nproc-per-node=2',)):
        """A node for each list of options; its workers' lines by rank."""
        agents = [self.start(f'--nnodes={len(of_each)}', '--lease=10m', '--no-prefix', *common, *words, 'sh', '-c',
                             PRINT)
                  for words in of_each]
        lines = []
        for agent in agents:
            self.assertEqual(agent.wait(), 0, agent.err)
            lines += [line.split() for line in agent.out.splitlines()]
        return sorted(lines, key=lambda words: int(words[0]))

    def roles(self, *names):
        endpoint = f'--rdzv-endpoint=127.0.0.1:{free_port()}'
        found = self.run_nodes(*[[endpoint, f'--node-rank={rank}', f'--role={name}']
                                 for rank, name in enumerate(names)])
        return [f'{words[1]} {words[2]}' for words in found]

    def test_ranks_within_a_role(self):
        self.assertEqual(self.roles('ps', 'trainer'), ['ps 0/2', 'ps 1/2', 'trainer 0/2', 'trainer 1/2'])

    def test_roles_that_are_mixed(self):
        self.assertEqual(self.roles('trainer', 'ps', 'trainer'),
                         ['trainer 0/4', 'trainer 1/4', 'ps 0/2', 'ps 1/2', 'trainer 2/4', 'trainer 3/4'])

    def ports(self, found):
        """The port that all workers are told, and whether it is the store's."""
        ports = {(words[4], words[5]) for words in found}
        self.assertEqual(len(ports), 1, found)
        port, shared = ports.pop()
        return int(port), shared == 'True'

    def test_a_port_that_was_asked_for(self):
        """Rank 0 may listen there."""
        wanted, endpoint = free_port(), f'--rdzv-endpoint=127.0.0.1:{free_port()}'
        for backend in ([], ['--rdzv-backend=c10d']):
            found = self.run_nodes(*[[endpoint, f'--master-port={wanted}', *backend]] * 2)
            self.assertEqual(self.ports(found), (wanted, False))

    def test_the_static_form(self):
        """The store is there, and PyTorch's ranks use it."""
        wanted = free_port()
        found = self.run_nodes(*[[f'--node-rank={rank}', '--master-addr=127.0.0.1', f'--master-port={wanted}']
                                 for rank in range(2)])
        self.assertEqual(self.ports(found), (wanted, True))
        self.assertEqual({words[3] for words in found}, {'127.0.0.1'})

    def test_an_endpoint_of_the_static_backend(self):
        wanted = free_port()
        found = self.run_nodes(*[[f'--rdzv-endpoint=127.0.0.1:{wanted}']] * 2)
        self.assertEqual(self.ports(found), (wanted, True))

    def test_no_port_was_asked_for(self):
        store = free_port()
        found = self.run_nodes(*[['--rdzv-backend=c10d', f'--rdzv-endpoint=127.0.0.1:{store}']] * 2)
        port, shared = self.ports(found)
        self.assertTrue(shared)
        self.assertNotEqual(port, store)

    def test_a_port_in_use_is_no_obstacle_to_those_who_do_not_need_it(self):
        """Such as the second agent of a machine, when the first one's rank 0 listens there already."""
        endpoint = f'--rdzv-endpoint=127.0.0.1:{free_port()}'
        with socket.create_server(('', 0)) as taken:
            wanted = taken.getsockname()[1]
            agents = [self.start('--nnodes=2', '--lease=10m', '--no-prefix', endpoint, f'--master-port={wanted}',
                                 'sh', '-c', PRINT)
                      for _ in range(2)]
            for agent in agents:
                self.assertEqual(agent.wait(), 0, agent.err)
                self.assertIn(f' {wanted} False', agent.out)
                self.assertRegex(agent.err, rf'--master-port: cannot bind port {wanted} .* cannot listen there')


if __name__ == '__main__':
    unittest.main()
