#!/usr/bin/env python3
"""test_node_addresses.py - nodes whose addresses and names are not all alike: two networks of which one connects them,
names that mean another address on the machine itself, and endpoints that nobody, or nobody else, can reach.

Most nodes are in network namespaces, which needs root.
"""

import os
import signal
import sys
import tempfile
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / 'lib'))
from ddprun_run import DDPRUN, in_order, probe
from ddprund_run import DDPRUND
from nodes import DebianNames, NodesCase, TwoNetworks, WiredCase, free_port

PORT = 29400
BOTH = ('host1', 'host2')
SUM = 'the sum is 10' # of two nodes with two ranks each


class Meetings(WiredCase):
    """Ranks of all nodes add up their numbers, so that each has to reach another."""

    def setUp(self):
        super().setUp()
        self.keys = self.folder / 'keys'
        self.keys.mkdir()

    def node(self, name, *words, by_functions=False, program=(), env=None):
        """ddprun with @words on the node @name, and @program in front of the probe. With @by_functions its ranks meet as
        those of back end "ddp"."""
        command = [DDPRUN, '--nproc-per-node=2', '--lease=10m', *words, *program, probe('sum'), *([self.keys] if by_functions else [])]
        command = self.wires.enter(name, [str(word) for word in command])
        return self.start(*command[1:], program=command[0],
                          env={'DDP_HOST_ID': name, 'DDP_INIT_TIMEOUT': '60s', **(env or {})})

    def nodes(self, *words, **options):
        """The same command on both."""
        return [self.node(name, *words, **options) for name in BOTH]

    def assert_met(self, *jobs):
        for job in jobs:
            job.wait()
        for job in jobs:
            self.assertEqual(job.code, 0, '\n'.join(job.out + job.err for job in jobs))
            self.assertEqual(job.out.count(SUM), 2, job.out)


class Networks(Meetings):
    """The default route leads to a network that does not connect the nodes."""

    @classmethod
    def make_wires(cls):
        return TwoNetworks(['store', *BOTH])

    def setUp(self):
        super().setUp()
        self.token('make')

    def meet_on_the_second(self, **options):
        endpoint = f'{self.wires.second_address_of("host1")}:{PORT}'
        self.assert_met(*self.nodes('--nnodes=2', f'--rdzv-endpoint={endpoint}', **options))

    def test_ranks_meet_where_the_store_is(self):
        self.meet_on_the_second()

    def test_ranks_of_back_end_ddp_meet_where_master_addr_is(self):
        self.meet_on_the_second(by_functions=True)

    def test_local_addr_is_another_network_than_that_of_the_store(self):
        self.store(node='store', port=PORT)
        for by_functions in (False, True):
            jobs = [self.node(name, '--nnodes=2', f'--rdzv-endpoint={self.endpoint}', f'--rdzv-id=j{by_functions}',
                              f'--local-addr={self.wires.second_address_of(name)}', by_functions=by_functions)
                    for name in BOTH]
            self.assert_met(*jobs)


class Names(Meetings):
    """The own name of each node is 127.0.1.1 there, and its address on all others."""

    EVERYWHERE = "'host1' is 127.0.1.1 here, which no other machine can reach: this node hosts the store on all"

    @classmethod
    def make_wires(cls):
        folder = tempfile.TemporaryDirectory(prefix='ddprun_hosts_')
        cls.addClassCleanup(folder.cleanup)
        return DebianNames(BOTH, Path(folder.name))

    def meet(self, *words, master='host1', **options):
        """The node that hosts the store makes the token. The nodes share a home directory, so the other one reads it."""
        first = self.node('host1', *words, **options)
        first.read_until(self.EVERYWHERE)
        second = self.node('host2', *words, **options)
        self.assert_met(first, second)
        for job in (first, second):
            self.assertEqual(job.out.count(f'MASTER_ADDR is {master}\n'), 2, job.out)
        self.assertNotIn(self.EVERYWHERE, second.err)
        self.assertRegex(first.err, r'ddprun: token made in /[^\n]*/token; copy it to every other node\n')
        self.assertNotIn('token made', second.err)

    def test_the_endpoint_is_the_name_of_a_node(self):
        self.meet('--nnodes=2', f'--rdzv-endpoint=host1:{PORT}')

    def test_ranks_of_back_end_ddp(self):
        self.meet('--nnodes=2', f'--rdzv-endpoint=host1:{PORT}', by_functions=True)

    def test_ranks_that_meet_at_the_tcpstore(self):
        """As programs of PyTorch, which know nothing of DDPRUN_STORE."""
        self.meet('--nnodes=2', f'--rdzv-endpoint=host1:{PORT}', program=['env', '-u', 'DDPRUN_STORE'])

    def test_rank_0_has_a_port_of_its_own(self):
        self.meet('--nnodes=2', f'--rdzv-endpoint=host1:{PORT}', '--master-port=29500', by_functions=True)

    def test_a_node_that_is_to_host_it(self):
        words = '--nnodes=2', f'--rdzv-endpoint=host1:{PORT}', '--no-auth'
        first = self.node('host1', *words, '--rdzv-conf=is_host=true')
        first.read_until(self.EVERYWHERE)
        self.assert_met(first, self.node('host2', *words, '--rdzv-conf=is_host=false'))

    def test_a_job_of_slurm(self):
        """With no option but the number of workers."""
        def env(rank):
            return {'SLURM_JOB_ID': '7', 'SLURM_STEP_ID': '0', 'SLURM_STEP_NUM_NODES': '2', 'SLURM_STEP_NUM_TASKS': '2',
                    'SLURM_NODEID': rank, 'SLURM_STEP_NODELIST': 'host[1-2]'}
        first = self.node('host1', env=env('0'))
        first.read_until(self.EVERYWHERE)
        self.assert_met(first, self.node('host2', env=env('1')))

    def test_two_nodes_of_one_machine(self):
        """The second finds the port taken, on all addresses."""
        words = ['--nnodes=3', f'--rdzv-endpoint=host1:{PORT}', '--nproc-per-node=1']
        first = self.node('host1', *words)
        first.read_until(self.EVERYWHERE)
        jobs = [first, self.node('host1', *words), self.node('host2', *words)]
        for job in jobs:
            self.assertEqual(job.wait(), 0, job.err)
            self.assertEqual(job.out.count('the sum is 6'), 1, job.out)

    @unittest.skipUnless(os.environ.get('DDPRUN_HAS_HTTP', '1') == '1',
                         'this build has no HTTP: libmicrohttpd was missing (Debian package libmicrohttpd-dev)')
    def test_the_interface_of_horovod(self):
        words = ['--nnodes=2', f'--rdzv-endpoint=host1:{PORT}', '--nproc-per-node=1']
        program = ['sh', '-c', 'echo "the interface is $HOROVOD_GLOO_IFACE"']
        first = self.node('host1', *words, program=program)
        first.read_until(self.EVERYWHERE)
        for job in (first, self.node('host2', *words, program=program)):
            self.assertEqual(job.wait(), 0, job.err)
            self.assertIn('the interface is eth0', job.out)

    def test_a_ddprund_of_this_machine_that_is_down(self):
        """It is waited for, although the node would listen on all addresses; its name is published, too."""
        def serve():
            command = self.wires.enter('host1', [DDPRUND, f'--listen=0.0.0.0:{PORT}', f'--state={self.folder}/state'])
            daemon = self.start(*command[1:], program=command[0])
            daemon.read_until('listening on')
            return daemon
        self.token('make')
        daemon = serve()
        daemon.signal(signal.SIGTERM)
        daemon.wait()
        words = ['--nnodes=2', '--rdzv-id=train', f'--rdzv-endpoint=host1:{PORT}', '--master-port=29500']
        first = self.node('host1', *words)
        first.read_until("says that this endpoint is a ddprund's")
        daemon = serve()
        self.assert_met(first, self.node('host2', *words))
        self.assertEqual(first.out.count('MASTER_ADDR is host1\n'), 2, first.out)
        daemon.signal(signal.SIGTERM)
        daemon.wait()

    def test_a_name_of_the_loopback_interface(self):
        """It is no node's own: a node that is alone with it is told, and goes on."""
        words = ['--nnodes=2', f'--rdzv-endpoint=alias:{PORT}']
        first = self.node('host1', *words)
        first.read_until(f"no other machine can reach alias:{PORT} (127.0.0.1 here): ")
        self.assertNotIn(self.EVERYWHERE, first.err)
        self.assert_met(first, self.node('host1', *words))

    def test_an_address_that_no_node_has(self):
        """The node that is told so goes on, until there is a store: in a node that was told to have it."""
        service = '10.99.0.77'
        second = self.node('host2', '--nnodes=2', f'--rdzv-endpoint={service}:{PORT}')
        second.read_until(f'no store answers at {service}:{PORT}, and this node cannot host it')
        in_order(self, second.err, f'waits for its store at {service}:{PORT}, at most 600 s', 'this node cannot host it',
                 f'--rdzv-endpoint=0.0.0.0:{PORT} --rdzv-conf=is_host=true --local-addr=HOST')
        self.wires.give_address('host1', service)
        first = self.node('host1', '--nnodes=2', f'--rdzv-endpoint=0.0.0.0:{PORT}', '--rdzv-conf=is_host=true',
                          f'--local-addr={service}')
        self.assert_met(first, second)
        self.assertNotIn('no store answers', first.err)


class Loopback(NodesCase):
    """A loopback endpoint, which needs no namespaces."""

    def node(self, nnodes, *program):
        return self.start(f'--nnodes={nnodes}', '--nproc-per-node=1', '--settle=0',
                          f'--rdzv-endpoint=127.0.0.1:{self.port}', *program)

    def alone(self, nnodes, *program):
        self.port = free_port()
        job = self.node(nnodes, *program)
        job.read_until(f'no other machine can reach 127.0.0.1:{self.port}: ')
        self.assertIn(f'give all nodes the same --rdzv-endpoint=HOST:{self.port}, ', job.err)
        return job

    def test_a_node_waits_for_another(self):
        job = self.alone(2, 'true')
        other = self.node(2, 'true')
        self.assertEqual((other.wait(), job.wait()), (0, 0), job.err + other.err)
        self.assertEqual(job.err.count('no other machine can reach'), 1, job.err)

    def test_a_node_runs_without_the_others_that_may_come(self):
        go = self.folder / 'go'
        job = self.alone('1:2', 'sh', '-c', f'until [ -e {go} ]; do sleep 0.05; done')
        go.write_text('')
        self.assertEqual(job.wait(), 0, job.err)


if __name__ == '__main__':
    unittest.main()
