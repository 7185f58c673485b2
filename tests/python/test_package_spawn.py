#!/usr/bin/env python3
"""test_package_spawn.py - ddprun.spawn(): ranks meet, the failure that came first is reported, nothing is left behind."""

import array
import os
import signal
import sys
import unittest
from datetime import timedelta

sys.dont_write_bytecode = True
import ddprun

LONG = timedelta(seconds=60)


def add(rank, path):
    with ddprun.Communicator() as comm:
        total = array.array('q', [rank + 1])
        comm.all_reduce(total)
    with open(path, 'a', encoding='utf-8') as file:
        file.write(f'{rank} of {comm.size}: {total[0]}\n')


def fail(rank, how):
    comm = ddprun.Communicator()
    comm.barrier()
    if rank == 1 and how == 'raise':
        raise KeyError('the cause')
    if rank == 1 and how == 'signal':
        os.kill(os.getpid(), signal.SIGKILL)
    if rank == 1 and how == 'exit':
        os._exit(7)
    comm.barrier()
    signal.pause()


def fail_at_once(rank):
    raise ValueError(f'rank {rank} has no id yet')


def wait_for_ever(_):
    signal.pause()


def is_alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


class Spawn(unittest.TestCase):
    def test_ranks_meet(self):
        read, write = os.pipe()
        self.addCleanup(os.close, read)
        ddprun.spawn(add, (f'/proc/{os.getpid()}/fd/{write}',), nprocs=3)
        os.close(write)
        self.assertEqual(sorted(os.read(read, 4096).decode().splitlines()), [f'{rank} of 3: 6' for rank in range(3)])

    def test_the_failure_that_came_first(self):
        for how, text, code in (('raise', "rank 1 (pid %d) raised KeyError: 'the cause'", 1),
                                ('signal', 'rank 1 (pid %d) was killed by SIGKILL', -9),
                                ('exit', 'rank 1 (pid %d) ended with exit code 7', 7)):
            with ddprun.spawn(fail, (how,), nprocs=3, join=False) as spawned:
                with self.assertRaises(ddprun.RankFailed) as caught:
                    spawned.join(LONG)
                pids = spawned.pids()
            error = caught.exception
            self.assertEqual((str(error), error.rank, error.exit_code, error.status), (text % pids[1], 1, code, 'peer-dead'))
            self.assertEqual('in fail' in error.trace, how == 'raise')
            self.assertEqual([pid for pid in pids if is_alive(pid)], [])

    def test_a_rank_that_fails_at_once(self):
        with self.assertRaisesRegex(ddprun.RankFailed, 'has no id yet'):
            ddprun.spawn(fail_at_once, nprocs=2)

    def test_closing_ends_them(self):
        with ddprun.spawn(wait_for_ever, nprocs=2, join=False) as spawned:
            self.assertFalse(spawned.join(timedelta(0)))
            self.assertEqual([is_alive(pid) for pid in spawned.pids()], [True, True])
        self.assertEqual([is_alive(pid) for pid in spawned.pids()], [False, False])

    def test_refusals(self):
        with self.assertRaisesRegex(ddprun.Invalid, 'nprocs is 0'):
            ddprun.spawn(add, nprocs=0)


if __name__ == '__main__':
    unittest.main()
