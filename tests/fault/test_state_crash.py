#!/usr/bin/env python3
"""test_state_crash.py - ddprund --state is killed, fails, or runs out of disk: what it has
acknowledged is there when it starts again, and what it has not is there once at most.

Clients speak PyTorch's protocol. Each turn of a client writes a key and a queue, which have no
answers, and counts up, which has: its answer acknowledges all three. With failpoints in the build
it also dies at each of them.
"""

import os
import random
import resource
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / 'lib'))
from ddprun_run import ROOT
from ddprund_run import CONFIG, DdprundCase, connect

CLIENTS = 4
HAS_FAILPOINTS = os.environ.get('DDPRUN_HAS_FAILPOINTS') == '1'

# All failpoints of the state, and how often a life gets there at least.
POINTS = {'state.begin': 20, 'state.change': 60, 'state.commit': 20, 'state.committed': 20}
AT_LOAD = 'state.load'


class Peer:
    """One client. `acked` turns are acknowledged, `begun` have been asked for."""

    VALIDATE, SET, GET, ADD, PUSH, LEN = 0, 1, 3, 4, 14, 16
    MAGIC = 0x3C85F7CE

    def __init__(self, name):
        self.name = name
        self.begun = self.acked = 0
        self.sock = None

    def open(self, endpoint):
        self.sock = connect(endpoint)
        self.sock.sendall(struct.pack('<BI', self.VALIDATE, self.MAGIC))

    def close(self):
        self.sock.close()

    @staticmethod
    def _text(text):
        return struct.pack('<Q', len(text)) + text

    def _key(self, kind):
        return self._text(f'{kind}/{self.name}'.encode())

    def _receive(self, size):
        data = b''
        while len(data) < size:
            more = self.sock.recv(size - len(data))
            if not more:
                raise ConnectionError('closed')
            data += more
        return data

    def _number(self):
        return struct.unpack('<q', self._receive(8))[0]

    def turn(self):
        """Raises OSError when the server is gone."""
        self.begun += 1
        value = self._text(b'%d' % self.begun)
        self.sock.sendall(bytes([self.SET]) + self._key('key') + value +
                          bytes([self.PUSH]) + self._key('queue') + value +
                          bytes([self.ADD]) + self._key('count') + struct.pack('<q', 1))
        count = self._number()
        self.acked += 1
        return count

    def seen(self):
        """The key's value, the queue's length, the count."""
        self.sock.sendall(bytes([self.ADD]) + self._key('count') + struct.pack('<q', 0))
        count = self._number()
        self.sock.sendall(bytes([self.LEN]) + self._key('queue'))
        queued = self._number()
        if count == 0:
            return 0, queued, count
        self.sock.sendall(bytes([self.GET]) + self._key('key'))
        size = struct.unpack('<Q', self._receive(8))[0]
        return int(self._receive(size)), queued, count


class StateCrash(DdprundCase):
    def setUp(self):
        super().setUp()
        self.disk = tempfile.mkdtemp(prefix='ddprund-state-')
        self.addCleanup(shutil.rmtree, self.disk, ignore_errors=True)
        self.peers = [Peer(str(i)) for i in range(CLIENTS)]

    def begin(self, *words, failpoints='', **options):
        job = self.serve(f'--state={self.disk}/state', *words,
                         env={'DDPRUN_FAILPOINTS': failpoints}, **options)
        for peer in self.peers:
            peer.open(job.endpoints[0])
        return job

    def run_peers(self, turns=None, on_turn=lambda: None):
        """Each in a thread of its own, until the server is gone or the turns are done."""
        def run(peer):
            done = 0
            try:
                while turns is None or done < turns:
                    peer.turn()
                    done += 1
                    on_turn()
            except OSError:
                pass
            finally:
                peer.close()
        threads = [threading.Thread(target=run, args=[peer]) for peer in self.peers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def check(self):
        """What a fresh process holds is what was acknowledged, and maybe what was under way."""
        job = self.begin()
        for peer in self.peers:
            with self.subTest(peer=peer.name, acked=peer.acked, begun=peer.begun):
                value, queued, count = peer.seen()
                # No part of a turn without what was before it.
                self.assertLessEqual(peer.acked, count)
                self.assertLessEqual(count, queued)
                self.assertLessEqual(queued, value)
                self.assertLessEqual(value, peer.begun)
                peer.begun = peer.acked = count
                if not count == queued == value: # the life ended in the middle: go on even
                    peer.name += "'"
                    peer.begun = peer.acked = 0
            peer.close()
        self.stop(job)

    def test_killed_at_random(self):
        rng = random.Random(20261121)
        for _ in range(8):
            job = self.begin()
            left = rng.randrange(1, 200)
            lock = threading.Lock()

            def count_down():
                nonlocal left
                with lock:
                    left -= 1
                    if left == 0:
                        job.signal(9)
            self.run_peers(on_turn=count_down)
            self.assertEqual(job.wait(), -9)
            self.check()

    def test_stopped_and_started_again(self):
        for turns in (5, 0, 5):
            job = self.begin()
            self.run_peers(turns)
            self.stop(job)
            self.assertEqual(os.listdir(self.disk), ['state']) # no log is left to be replayed
            self.check()
        self.assertEqual([peer.acked for peer in self.peers], [10] * CLIENTS)

    def refused_disk(self, job, texts):
        self.run_peers()
        self.assertEqual(job.wait(), CONFIG, job.err)
        for text in texts:
            self.assertIn(text, job.err)
        self.check()

    def test_a_file_that_may_not_grow(self):
        def limit():
            resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
        self.refused_disk(self.begin(preexec_fn=limit), [f'ddprund: the state {self.disk}/state'])
        self.assertGreater(sum(peer.acked for peer in self.peers), 0)

    def test_a_full_disk(self):
        if os.geteuid() != 0:
            self.skipTest('only root can mount a small disk')
        mounted = subprocess.run(['mount', '-t', 'tmpfs', '-o', 'size=300k', 'none', self.disk],
                                 capture_output=True, text=True)
        if mounted.returncode != 0:
            self.skipTest('a small disk cannot be mounted here: ' + mounted.stderr.strip())
        self.addCleanup(subprocess.run, ['umount', '--lazy', self.disk], check=True)
        job = self.begin()
        self.run_peers()
        self.assertEqual(job.wait(), CONFIG, job.err)
        self.assertIn('the disk is full', job.err)
        subprocess.run(['mount', '-o', 'remount,size=10m', self.disk], check=True)
        self.check()
        self.assertGreater(sum(peer.acked for peer in self.peers), 0)

    @unittest.skipUnless(HAS_FAILPOINTS, 'this build has no failpoints (-Dfailpoints=true)')
    def test_killed_at_every_failpoint(self):
        for point, often in POINTS.items():
            for hit in (1, 2, often):
                with self.subTest(point=point, hit=hit):
                    job = self.begin(failpoints=f'{point}=kill@{hit}')
                    self.run_peers()
                    self.assertEqual(job.wait(), -9)
                    self.check()

    @unittest.skipUnless(HAS_FAILPOINTS, 'this build has no failpoints (-Dfailpoints=true)')
    def test_an_error_at_every_failpoint(self):
        for point, often in POINTS.items():
            if point == 'state.committed': # there is nothing left to fail
                continue
            for hit in (1, often):
                with self.subTest(point=point, hit=hit):
                    self.refused_disk(self.begin(failpoints=f'{point}=error:28@{hit}'),
                                      ['the state', 'No space left on device'])

    @unittest.skipUnless(HAS_FAILPOINTS, 'this build has no failpoints (-Dfailpoints=true)')
    def test_what_happens_while_it_is_read(self):
        job = self.begin()
        self.run_peers(3)
        job.signal(9)
        job.wait()
        for action, code in (('kill', -9), ('error:5', CONFIG)):
            job = self.daemon('--listen=127.0.0.1:0', f'--state={self.disk}/state',
                              env={'DDPRUN_FAILPOINTS': f'{AT_LOAD}={action}'})
            self.assertEqual(job.wait(), code, job.err)
        self.check()

    def test_the_list_is_complete(self):
        text, = (path.read_text() for path in (ROOT / 'rendezvous').glob('**/sqlite_sink.c'))
        points = set(part.split('"')[0] for part in text.split('DDPI_FAILPOINT("')[1:])
        self.assertEqual(points, set(POINTS) | {AT_LOAD})


if __name__ == '__main__':
    unittest.main()
