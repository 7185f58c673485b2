#!/usr/bin/env python3
"""test_node_addresses.py - nodes whose addresses and names are not all alike: two networks of which one connects them.

Each node is in a network namespace, which needs root.
"""

import sys
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / 'lib'))
from ddprun_run import DDPRUN, probe
from nodes import NodesCase, NotPermitted, TwoNetworks

PORT = 29400
BOTH = ('host1', 'host2')
SUM = 'the sum is 10' # of two nodes with two ranks each


class Meetings(NodesCase):
    """Ranks of all nodes add up their numbers, so that each has to reach another."""

    @classmethod
    def make_wires(cls):
        raise NotImplementedError

    @classmethod
    def setUpClass(cls):
        try:
            cls.wires = cls.make_wires()
        except NotPermitted as fault:
            raise unittest.SkipTest(str(fault)) from None
        cls.addClassCleanup(cls.wires.close)

    def setUp(self):
        super().setUp()
        self.keys = self.folder / 'keys'
        self.keys.mkdir()

    def node(self, name, *words, by_functions=False, program=(), env=None):
        """ddprun with @words on the node @name, and @program in front of the probe. With @by_functions its ranks meet as
        those of back end "ddp"."""
        command = [DDPRUN, '--nproc-per-node=2', *words, *program, probe('sum'), *([self.keys] if by_functions else [])]
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


if __name__ == '__main__':
    unittest.main()
