#!/usr/bin/env python3
"""test_package_spawn.py - ddprun.spawn(): ranks meet, the failure that came first is reported, nothing is left behind."""

import array
import multiprocessing
import os
import signal
import sys
import unittest
from datetime import timedelta

sys.dont_write_bytecode = True
import ddprun

LONG = timedelta(seconds=60)
LENGTH = 1 << 20 # more than pipes and sockets hold


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
    if rank == 1 and how == 'real-time signal':
        os.kill(os.getpid(), signal.SIGRTMIN + 1)
    if rank == 1 and how == 'exit':
        os._exit(7)
    comm.barrier()
    signal.pause()


def die_alone(rank):
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    signal.pause()


def fail_at_once(rank):
    raise ValueError(f'rank {rank} has no id yet')


class Noted(Exception):
    """Sets an event when its rank reports it."""

    def __init__(self, event):
        super().__init__()
        self.event = event

    def __str__(self):
        self.event.set()
        return 'the first'


def fail_second_as_rank_0(rank, first):
    if rank == 1:
        raise Noted(first)
    first.wait()
    raise ValueError('the second')


def fail_at_length(rank):
    raise ValueError(str(rank) * LENGTH)


def read_to_the_end(path):
    with open(path, 'rb') as file:
        return file.read()


class Held:
    """An argument that holds up the process which takes it, until no one writes to the pipe any more."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return read_to_the_end, (self.path,)


def return_at_once(rank, held):
    pass


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
                                ('real-time signal', f'rank 1 (pid %d) was killed by signal {signal.SIGRTMIN + 1}',
                                 -(signal.SIGRTMIN + 1)),
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

    def test_a_death_that_no_other_rank_notices(self):
        with self.assertRaisesRegex(ddprun.RankFailed, 'was killed by SIGKILL'):
            ddprun.spawn(die_alone, nprocs=2)

    def test_ranks_that_have_ended_before_join(self):
        first = multiprocessing.get_context('spawn').Event()
        with ddprun.spawn(fail_second_as_rank_0, (first,), nprocs=2, join=False) as spawned:
            for process in spawned.processes:
                process.join()
            with self.assertRaisesRegex(ddprun.RankFailed, r'rank 1 \(pid \d+\) raised Noted: the first'):
                spawned.join()

    def test_long_reports(self):
        with self.assertRaisesRegex(ddprun.RankFailed, r'^rank ([01]) \(pid \d+\) raised ValueError: \1{%d}$' % LENGTH):
            ddprun.spawn(fail_at_length, nprocs=2)

    def test_spawn_does_not_wait_for_ranks(self):
        read, write = os.pipe()
        held = Held(f'/proc/{os.getpid()}/fd/{read}')
        with ddprun.spawn(return_at_once, (held,), nprocs=2, join=False) as spawned:
            os.close(write)
            self.assertTrue(spawned.join())
        os.close(read)

    def test_closing_ends_them(self):
        with ddprun.spawn(wait_for_ever, nprocs=2, join=False) as spawned:
            self.assertFalse(spawned.join(timedelta(0)))
            self.assertEqual([is_alive(pid) for pid in spawned.pids()], [True, True])
        self.assertEqual([is_alive(pid) for pid in spawned.pids()], [False, False])
        self.assertTrue(spawned.join()) # none has failed by itself

    def test_refusals(self):
        with self.assertRaisesRegex(ddprun.Invalid, 'nprocs is 0'):
            ddprun.spawn(add, nprocs=0)


if __name__ == '__main__':
    unittest.main()
