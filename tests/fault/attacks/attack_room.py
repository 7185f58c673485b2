"""attack_room.py - what one client's appetite costs the others of a store: room, time and memory."""

import os
import sys
import tempfile
import threading
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / 'lib'))
from ddprun_run import SANITIZED
from ddprund_run import DdprundCase
from raw_store import (FENCE, LIST, SESSION_CLOSE, SESSION_KEEP, SESSION_OPEN, SET_EPHEMERAL, STATS, TRY_GET,
                       RawStore, delete_frame, frame, list_frame, packed, set_frame)

KEYS = 300000
BATCH = 100000
MIB = 1 << 20
LIMIT = 7
NOT_FOUND = 2


def resident(pid):
    with open(f'/proc/{pid}/statm', encoding='ascii') as file:
        return int(file.read().split()[1]) * os.sysconf('SC_PAGESIZE')


@unittest.skipIf(SANITIZED, 'the sanitizer keeps memory that was freed')
class Memory(DdprundCase):
    def test_it_returns_when_keys_have_gone(self):
        job = self.serve(f'--max-job-keys={KEYS}', '--max-job-bytes=1G')
        store = RawStore(job.endpoints[0])
        self.addCleanup(store.close)
        before = resident(job.pid)
        for make in (lambda n: set_frame(f'key/{n}', b'v' * 64, n), lambda n: delete_frame(f'key/{n}', n)):
            largest = resident(job.pid)
            for first in range(0, KEYS, BATCH):
                requests = b''.join(map(make, range(first, first + BATCH)))
                self.assertEqual(store.exchange(requests, BATCH), {0: BATCH})
        self.assertGreater(largest - before, 30 * MIB)
        self.assertLess(resident(job.pid) - before, 10 * MIB)
        self.stop(job)


class Room(DdprundCase):
    """Somebody fills the store; nodes of other jobs still meet, and whoever is refused is told why."""

    def fill(self, endpoint, job='greedy', count=3000, size=64):
        store = RawStore(endpoint, job)
        self.addCleanup(store.close)
        requests = b''.join(set_frame(f'key/{n}', b'v' * size, n) for n in range(count))
        statuses = store.exchange(requests, count)
        self.assertGreater(statuses.get(LIMIT, 0), 0, statuses)
        return store

    def node(self, endpoint, *words, job='honest'):
        return self.start('--nnodes=2', '--nproc-per-node=1', f'--rdzv-endpoint={endpoint}', f'--rdzv-id={job}',
                          '--no-auth', '--lease=10m', *words, '--', 'true')

    def both_meet(self, endpoint, *words):
        jobs = [self.node(endpoint, *words) for _ in range(2)]
        self.assertEqual([job.wait() for job in jobs], [0, 0], [job.err for job in jobs])

    def test_one_job_does_not_fill_it(self):
        job = self.serve('--max-keys=1000')
        self.fill(job.endpoints[0])
        stats = self.stats(job.endpoints[0])
        self.assertEqual((stats['keys'], stats['over_share'], stats['job/greedy/keys']), (500, 2500, 500))
        other = RawStore(job.endpoints[0], 'honest')
        self.assertEqual(other.exchange(set_frame('mine', b'v', 1), 1), {0: 1})
        self.assertIn('job/honest/keys 1', other.ask(STATS, b'')[3].decode())
        self.assertNotIn('greedy', other.ask(STATS, b'')[3].decode())
        other.close()
        self.both_meet(job.endpoints[0])
        self.stop(job)

    def test_a_full_store_holds_up_no_membership(self):
        job = self.serve('--max-keys=1000', '--max-bytes=400K', '--max-job-keys=1000', '--max-job-bytes=400K')
        self.fill(job.endpoints[0])
        code, _, err = self.ctl(job.endpoints[0], 'set', 'one', 'more')
        self.assertEqual(code, 1)
        self.assertRegex(err, r"the store is full: it holds \d+ of at most \d+ (keys|bytes); the most, \d+ keys "
                              r"and \d+ bytes, belong to the job 'greedy'; delete keys or raise the limit")
        self.both_meet(job.endpoints[0])
        self.stop(job)

    def test_nor_do_small_limits(self):
        for limit in ('--max-keys=1', '--max-sessions=1', '--max-value=8', '--max-key=8'):
            with self.subTest(limit):
                job = self.serve(limit)
                self.both_meet(job.endpoints[0])
                self.stop(job)

    def test_who_is_refused_waits(self):
        job = self.serve('--max-keys=1', '--reserve=4K')
        agent = RawStore(job.endpoints[0])
        self.addCleanup(agent.close)
        statuses = agent.exchange(b''.join(set_frame(f'round/j/want/{n}', b'', n) for n in range(100)), 100)
        self.assertGreater(statuses[LIMIT], 0)
        before = self.stats(job.endpoints[0])['requests']
        node = self.node(job.endpoints[0], '--join-timeout=8s')
        node.read_until('the store is full: the nodes of jobs hold')
        self.assertEqual(node.wait(), 75, node.err)
        self.assertRegex(node.err, r'the store has refused this node for \d+ s \(--join-timeout\): .*the store is '
                                   r'full: the nodes of jobs hold \d+ of at most 4096 bytes')
        self.assertNotIn('could not be reached', node.err)
        self.assertLess(self.stats(job.endpoints[0])['requests'] - before, 300)  # it was 65,000 a second
        self.stop(job)

    def test_what_is_over_makes_room(self):
        job = self.serve('--max-keys=1000')
        agent = RawStore(job.endpoints[0])
        self.addCleanup(agent.close)
        self.both_meet(job.endpoints[0])
        for prefix in ('job/honest/g1/', 'job/honest/tcp/', 'job/honest/mine/'):
            requests = b''.join(set_frame(f'{prefix}{n}', b'v', n) for n in range(80))
            self.assertEqual(agent.exchange(requests, 80), {0: 80})
        self.assertEqual(self.stats(job.endpoints[0])['reclaimed'], 0)  # it is not needed
        self.fill(job.endpoints[0])
        self.await_stat(job.endpoints[0], 'reclaimed', 160)
        self.assertEqual(self.stats(job.endpoints[0])['job/honest/keys'], 80)
        self.stop(job)


class Time(DdprundCase):
    """What one client asks that takes long, while another one wants to be heard."""
    KEYS = 50000 if SANITIZED else 100000
    LISTS = 40
    TURNS = 20  # of two requests
    TURN = 4096  # entries, for what requests cost in a turn of the server's loop
    GONE = 100000
    LARGE = (f'--max-job-keys={GONE}', f'--max-keys={10 * GONE}')

    def fill(self, endpoint, make=lambda n: set_frame(f'key/{n:07}', b'', n), keys=KEYS):
        store = RawStore(endpoint)
        self.addCleanup(store.close)
        for first in range(0, keys, 50000):
            requests = b''.join(make(n) for n in range(first, first + 50000))
            self.assertEqual(store.exchange(requests, 50000), {0: 50000})
        return store

    def gone_at_once(self, store, request, prefix):
        """@request deletes all keys with @prefix: nobody sees the last of them any more, though in the same turn of
        the loop, in which all of these are answered, no more than some thousands are dropped."""
        store.socket.sendall(request + frame(TRY_GET, packed(f'{prefix}{self.GONE - 1:07}'), 2) + frame(STATS, b'', 3))
        self.assertEqual(store.answer()[1:3], (0, 1))
        self.assertEqual(store.answer()[1:3], (NOT_FOUND, 2))
        left = int(dict(line.split() for line in store.answer()[3].decode().splitlines())['keys'])
        self.assertGreater(left, self.GONE - 10 * self.TURN)

    def fence(self, endpoint):
        store = self.fill(endpoint, lambda n: set_frame(f'job/old/tcp/{n:07}', b'', n), self.GONE)
        self.gone_at_once(store, frame(FENCE, packed('old') + (1).to_bytes(8, 'little'), 1), 'job/old/tcp/')
        return store

    def test_a_fence_holds_up_nobody(self):
        job = self.serve(*self.LARGE)
        store = self.fence(job.endpoints[0])
        self.assertEqual(store.ask(LIST, packed('job/old/')), (LIST, 0, 1, bytes(4)))
        self.await_stat(job.endpoints[0], 'keys', 1)  # the epoch
        self.stop(job)

    def test_nor_does_the_end_of_a_session(self):
        job = self.serve(*self.LARGE)
        other = RawStore(job.endpoints[0])
        self.addCleanup(other.close)
        token = other.ask(SESSION_OPEN, (60000).to_bytes(4, 'little'))[3]
        store = self.fill(job.endpoints[0],
                          lambda n: frame(SET_EPHEMERAL, packed(f'mine/{n:07}') + packed('') + token, n),
                          self.GONE)
        self.gone_at_once(store, frame(SESSION_CLOSE, token, 1), 'mine/')
        self.assertEqual(store.ask(LIST, packed('mine/')), (LIST, 0, 1, bytes(4)))
        self.await_stat(job.endpoints[0], 'keys', 0)
        self.assertEqual(other.ask(SESSION_KEEP, token)[1], NOT_FOUND)
        self.stop(job)

    def test_what_is_gone_does_not_come_back(self):
        """Killed while it drops keys, the store goes on with that when it starts again."""
        with tempfile.TemporaryDirectory() as disk:
            words = (*self.LARGE, f'--state={disk}/state')
            job = self.serve(*words)
            self.fence(job.endpoints[0])
            job.process.kill()
            job.wait()
            job = self.serve(*words)
            store = RawStore(job.endpoints[0])
            self.addCleanup(store.close)
            self.assertEqual(store.ask(LIST, packed('job/old/')), (LIST, 0, 1, bytes(4)))
            self.await_stat(job.endpoints[0], 'keys', 1)
            self.stop(job)

    def test_lists_hold_up_nobody(self):
        job = self.serve(f'--max-job-keys={KEYS}')
        other = self.fill(job.endpoints[0])
        kind, status, _, token = other.ask(SESSION_OPEN, (60000).to_bytes(4, 'little'))
        self.assertEqual((kind, status), (SESSION_OPEN, 0))
        lister = RawStore(job.endpoints[0])
        self.addCleanup(lister.close)
        answers, over = [], threading.Event()

        def read():
            """Until it is over, there are always as many lists to come."""
            asked = self.LISTS
            while len(answers) < asked:
                kind, status, number, payload = lister.answer()
                answers.append((kind, status, number, int.from_bytes(payload[:4], 'little')))
                if not over.is_set():
                    lister.socket.sendall(list_frame('key/', asked))
                    asked += 1
        reader = threading.Thread(target=read)
        lister.socket.sendall(b''.join(list_frame('key/', n) for n in range(self.LISTS)))
        reader.start()
        try:
            self.await_stat(job.endpoints[0], 'working', 1)
            before = len(answers)
            for turn in range(self.TURNS):
                self.assertEqual(other.ask(SESSION_KEEP, token)[1], 0)
                self.assertEqual(other.exchange(set_frame(f'other/{turn}', b'v', turn), 1), {0: 1})
            # Who asked for one entry was not behind millions, each time; one list and another may be.
            self.assertLess(len(answers) - before, self.TURNS * self.LISTS)
        finally:
            over.set()
        reader.join()
        self.assertEqual(answers, [(LIST, 0, n, self.KEYS) for n in range(len(answers))])
        self.stop(job)
