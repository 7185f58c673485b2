#!/usr/bin/env python3
"""test_etcd.py - ddprund with its state in a real etcd of one member or three, and in servers that only look like
one: restarts, takeovers, fencing, an etcd that is killed, without quorum, full, on a full disk, of others. With
DDPRUN_TAKEOVERS=N the history of N takeovers is checked. Skipped (77) where etcd is not installed, unless
DDPRUN_INTEROP=1 demands it.
"""

import base64
import os
import signal
import subprocess
import sys
import threading
import time
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / 'lib'))
import etcd_cluster
import takeovers
from ddprun_run import wait_until
from ddprund_run import CONFIG, DDPCTL, DdprundCase
from etcd_cluster import VERSION, Cluster, FakeEtcd, http_answer
from nodes import free_ports
from raw_store import SESSION_CLOSE, SESSION_OPEN, SET, SET_EPHEMERAL, TRY_GET, RawStore, frame, packed, set_frame
from skip import skip_program
from takeovers import Writer, connect_any

AGAIN = 75
NOT_FOUND = 2
TAKEOVERS = int(os.environ.get('DDPRUN_TAKEOVERS', '20'))


class EtcdCase(DdprundCase):
    members = 1
    words = ()

    def setUp(self):
        super().setUp()
        self.place = self.folder / 'etcd'
        self.place.mkdir()
        self.prepare_place()
        self.etcd = Cluster(self.place, self.members, *self.words)
        self.addCleanup(self.etcd.close)
        self.ports = free_ports(3)

    def prepare_place(self):
        """Called before etcd is started in self.place."""

    def store(self, which, *words, **options):
        """A ddprund; the lease is long, so that nothing happens because it is over."""
        lease = options.pop('lease', '60s')
        state = options.pop('state', None) or self.etcd.address()
        job = self.serve(f'--state={state}', f'--state-lease={lease}', *words,
                         listen=f'127.0.0.1:{self.ports[which]}', **options)
        job.endpoint = f'127.0.0.1:{self.ports[which]}'
        return job

    def leader(self, which, *words, **options):
        job = self.store(which, *words, **options)
        job.read_until('leading as')
        return job

    def standby(self, which, *words, **options):
        job = self.store(which, *words, **options)
        job.read_until('connected to the leader')
        return job

    def kill(self, job):
        job.signal(signal.SIGKILL)
        job.wait()

    def set(self, job, key, value):
        store = RawStore(job.endpoint)
        self.assertEqual(store.ask(SET, packed(key) + packed(value))[1], 0)
        store.close()

    def get(self, job, key):
        return self.done(job.endpoint, 'get', key).decode()


class OneMember(EtcdCase):
    def test_what_is_acknowledged_outlives_the_process(self):
        job = self.leader(0)
        self.done(job.endpoint, 'set', 'a', '1')
        self.done(job.endpoint, 'add', 'n', '5')
        number = job.err.split('this is the store ')[1][:16]
        self.kill(job)
        again = self.leader(0) # at the same address, so it knows that the lease is of a dead process
        self.assertEqual(self.get(again, 'a'), '1')
        self.assertEqual(self.done(again.endpoint, 'add', 'n', '1'), b'6\n')
        self.assertEqual(again.err.split('this is the store ')[1][:16], number)
        self.stop(again)
        third = self.leader(1) # the lease was given up
        self.assertEqual(self.get(third, 'a'), '1')
        self.stop(third)

    def test_a_standby_names_the_leader(self):
        leader = self.leader(0)
        standby = self.standby(1)
        code, _, err = self.ctl(standby.endpoint, '--timeout=5s', 'get', 'a')
        self.assertNotEqual(code, 0)
        self.assertIn(f'this store is a standby; the leader is {leader.endpoint}', err)
        self.stop(standby)
        self.stop(leader)

    def test_advertise(self):
        leader = self.leader(0, f'--advertise=localhost:{self.ports[0]}')
        standby = self.standby(1)
        self.assertIn(f'the leader is localhost:{self.ports[0]}', standby.err)
        self.kill(leader)
        standby.read_until('leading as')
        self.stop(standby)

    def test_kill_9_is_seen_by_the_connection(self):
        leader = self.leader(0)
        standbys = [self.standby(1), self.standby(2)]
        self.set(leader, 'a', '1')
        self.kill(leader)
        connect_any([job.endpoint for job in standbys]).close()
        wait_until(lambda: [job.collect(0) or 'leading as' in job.err for job in standbys].count(True) == 1, 'one')
        winner = next(job for job in standbys if 'leading as' in job.err)
        other = next(job for job in standbys if job is not winner)
        other.read_until(f'the leader is {winner.endpoint}')
        self.assertEqual(self.get(winner, 'a'), '1')
        self.stop(other)
        self.stop(winner)

    def test_a_leader_that_ends_does_not_drain(self):
        """It would answer beside its standby, which takes over when the listeners have closed."""
        leader, standby = self.leader(0, '--drain-timeout=10m'), self.standby(1)
        waiter = subprocess.Popen([DDPCTL, 'store', f'--endpoint={leader.endpoint}', '--timeout=10m', 'wait', 'later'],
                                  env=self.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_until(lambda: self.stats(leader.endpoint)['waits'] == 1, 'the wait')
        leader.signal(signal.SIGTERM)
        self.assertEqual(leader.wait(), 0, leader.err)
        standby.read_until('leading as')
        self.assertNotEqual(waiter.wait(), 0)
        self.stop(standby)

    def test_a_key_that_is_taken_away(self):
        """The lease goes on, but no longer says that this one leads."""
        leader = self.leader(0)
        self.set(leader, 'a', '1')
        self.etcd.members[0].post('/v3/kv/deleterange', {
            'key': base64.b64encode(b'/jobs/').decode(), 'range_end': base64.b64encode(b'/jobs0').decode()})
        self.assertEqual(leader.wait(), AGAIN, leader.err)
        self.assertIn("the leader's key was deleted", leader.err)

    def test_a_leader_that_ends_hands_over(self):
        leader = self.leader(0)
        standby = self.standby(1)
        self.set(leader, 'a', '1')
        self.stop(leader)
        standby.read_until('leading as')
        self.assertEqual(self.get(standby, 'a'), '1')
        self.stop(standby)

    def test_a_paused_leader_is_fenced(self):
        leader = self.leader(0, lease='10s')
        standby = self.standby(1)
        self.set(leader, 'a', 'old')
        before = RawStore(leader.endpoint)
        leader.signal(signal.SIGSTOP)
        before.socket.sendall(frame(TRY_GET, packed('a'), 5) + set_frame('a', 'mine', 6))
        standby.read_until('leading as')
        self.set(standby, 'a', 'new')
        leader.signal(signal.SIGCONT)
        self.assertEqual(leader.wait(), AGAIN, leader.err)
        self.assertIn('another ddprund', leader.err)
        with self.assertRaises(OSError): # neither the old value nor an acknowledgement
            while True:
                self.assertNotIn(before.answer()[0], (TRY_GET, SET))
        before.close()
        self.assertEqual(self.get(standby, 'a'), 'new')
        self.stop(standby)

    def test_two_that_start_at_once(self):
        jobs = [self.store(i) for i in range(3)]
        wait_until(lambda: [job.collect(0) for job in jobs] and sum('leading as' in job.err for job in jobs) == 1 and
                   sum('standing by' in job.err for job in jobs) == 2, 'one leader and two standbys')
        for job in jobs:
            self.stop(job)

    def test_sessions_and_queues(self):
        leader = self.leader(0)
        store = RawStore(leader.endpoint)
        token = store.ask(SESSION_OPEN, (60000).to_bytes(4, 'little'))[3][4:]
        self.assertEqual(store.ask(SET_EPHEMERAL, packed('mine') + packed('v') + packed(token))[1], 0)
        self.kill(leader)
        store.close()
        again = self.leader(0)
        self.assertEqual(self.get(again, 'mine'), 'v')
        store = RawStore(again.endpoint)
        self.assertEqual(store.ask(SESSION_CLOSE, packed(token))[1], 0)
        self.assertEqual(store.ask(TRY_GET, packed('mine'))[1], NOT_FOUND)
        store.close()
        self.stop(again)

    def test_the_workers_of_a_job_run_on(self):
        """The agent has the addresses of both; the leader is killed, and the other takes over."""
        leader, standby = self.leader(0), self.standby(1)
        go = self.folder / 'go'
        job = self.start('--nnodes=1:2', f'--rdzv-endpoint={leader.endpoint},{standby.endpoint}', '--rdzv-id=x',
                         '--lease=10m', '--nproc-per-node=2', '--no-prefix', 'sh', '-c',
                         f'echo up $$; until [ -e {go} ]; do sleep 0.05; done; echo done $$')
        job.read_until('up ', 2)
        self.kill(leader)
        job.read_until(f'connected to the store at {leader.endpoint},{standby.endpoint} again')
        stats = self.stats(standby.endpoint)
        self.assertEqual((stats['sessions'], stats['members']), (1, 1))
        go.write_text('')
        self.assertEqual(job.wait(), 0, job.err)
        self.assertNotIn('generation 2', job.err)
        pids = {kind: sorted(line.split()[1] for line in job.out.splitlines() if line.startswith(kind))
                for kind in ('up', 'done')}
        self.assertEqual(pids['up'], pids['done'])
        self.stop(standby)

    def test_long_turns_and_many_keys(self):
        leader = self.leader(0)
        store = RawStore(leader.endpoint)
        count = 3000
        frames = b''.join(set_frame(f'key/{i:05}', 'v' * 50, i + 2) for i in range(count))
        self.assertEqual(store.exchange(frames, count), {0: count})
        store.close()
        self.kill(leader)
        again = self.leader(0)
        self.assertEqual(len(takeovers.listed([again.endpoint], 'key/')), count)
        self.stop(again)

    def test_large_values(self):
        leader = self.leader(0)
        value = self.folder / 'value'
        value.write_bytes(b'x' * (700 * 1024))
        for key in ('a', 'b', 'c'):
            self.done(leader.endpoint, 'set', key, '-', given=value.read_bytes())
        code, _, err = self.ctl(leader.endpoint, 'set', 'd', '-', given=b'x' * (800 * 1024))
        self.assertNotEqual(code, 0)
        self.assertIn('720896', err)
        self.kill(leader)
        again = self.leader(0)
        self.assertEqual(self.done(again.endpoint, 'get', 'b'), value.read_bytes())
        self.stop(again)

    def test_long_values_after_many_short_ones(self):
        leader = self.leader(0)
        store = RawStore(leader.endpoint)
        frames = b''.join(set_frame(f'a/{i:05}', 'v', i + 2) for i in range(1500))
        self.assertEqual(store.exchange(frames, 1500), {0: 1500})
        for i in range(60):
            frame = set_frame(f'b/{i:05}', 'v' * 700 * 1024, i + 2)
            self.assertEqual(store.exchange(frame, 1), {0: 1})
        store.close()
        self.kill(leader)
        again = self.leader(0)
        self.assertEqual(len(takeovers.listed([again.endpoint], 'a/')), 1500)
        self.assertEqual(len(self.get(again, 'b/00059')), 700 * 1024)
        self.stop(again)

    def test_an_etcd_that_is_killed_and_started(self):
        leader = self.leader(0)
        writer = Writer('w', [leader.endpoint])
        writer.start()
        wait_until(lambda: len(writer.acknowledged) > 10, 'writes')
        self.etcd.members[0].kill()
        self.etcd.members[0].start()
        have = len(writer.acknowledged)
        wait_until(lambda: len(writer.acknowledged) > have + 10, 'more writes')
        writer.stop()
        takeovers.check(self, [writer], [leader.endpoint])
        self.stop(leader)

    def test_compaction(self):
        """All the time, also while a standby takes over in many pages, and under the watch of a client."""
        leader, standby = self.leader(0), self.standby(1)
        over = threading.Event()

        def compact():
            while not over.is_set():
                self.etcd.compact()

        compactor = threading.Thread(target=compact, daemon=True)
        compactor.start()
        self.addCleanup(over.set)
        store = RawStore(leader.endpoint)
        frames = b''.join(set_frame(f'key/{i:05}', 'v' * 50, i + 2) for i in range(5000))
        self.assertEqual(store.exchange(frames, 5000), {0: 5000})
        store.close()
        watch = self.ctl_start(','.join(self.endpoints()), 'watch', '--key', '--count=2', 'seen')
        self.await_stat(leader.endpoint, 'watches', 1)
        writer = Writer('w', self.endpoints())
        writer.start()
        wait_until(lambda: len(writer.acknowledged) > 5, 'writes')
        self.done(leader.endpoint, 'set', 'seen', 'before')
        self.kill(leader)
        standby.read_until('leading as')
        have = len(writer.acknowledged)
        wait_until(lambda: len(writer.acknowledged) > have + 5, 'writes')
        self.done(standby.endpoint, 'set', 'seen', 'after')
        out, err = watch.communicate()
        self.assertEqual(watch.returncode, 0, err)
        self.assertEqual([line.split()[-1] for line in out.decode().splitlines()], ['before', 'after'])
        writer.stop()
        over.set()
        compactor.join()
        takeovers.check(self, [writer], self.endpoints())
        self.assertEqual(len(takeovers.listed([standby.endpoint], 'key/')), 5000)
        self.stop(standby)

    def test_counters_of_etcd(self):
        leader = self.leader(0)
        before = self.stats(leader.endpoint)
        self.set(leader, 'a', '1')
        after = self.stats(leader.endpoint)
        self.assertGreater(after['etcd_request_us/inf'], before['etcd_request_us/inf'])
        self.assertGreater(after['etcd_request_us/sum'], before['etcd_request_us/sum'])
        bounds = [after[name] for name in after if name.startswith('etcd_request_us/') and not name.endswith('sum')]
        self.assertEqual(bounds, sorted(bounds))
        self.assertEqual(after['etcd_failures'], 0)
        self.etcd.members[0].kill()
        store = RawStore(leader.endpoint)
        store.socket.sendall(set_frame('a', '2', 1))
        leader.read_until('waiting for etcd: etcd at 127.0.0.1')
        self.etcd.members[0].start()
        self.assertEqual(store.answer()[:2], (SET, 0))
        leader.read_until('etcd answers again')
        store.close()
        self.assertGreater(self.stats(leader.endpoint)['etcd_failures'], 0)
        self.stop(leader)

    def test_two_jobs_of_one_id(self):
        """They reach the store through different ddprund, and meet all the same."""
        leader, standby = self.leader(0), self.standby(1)
        go = self.folder / 'go'

        def start(first, second, *words):
            return self.start(f'--rdzv-endpoint={first.endpoint},{second.endpoint}', '--rdzv-id=x', '--lease=10m',
                              '--no-prefix', *words, 'sh', '-c', f'echo runs; until [ -e {go} ]; do sleep 0.05; done')

        job = start(leader, standby, '--nnodes=1')
        job.read_until('runs')
        spare = start(standby, leader, '--nnodes=1')
        spare.read_until('all 1 seats are taken; this node is a spare')
        other = start(standby, leader, '--nnodes=2')
        self.assertEqual(other.wait(), CONFIG, other.err)
        self.assertIn('--nnodes is 2 on this node and 1 in the job; start all nodes with the same settings', other.err)
        go.write_text('')
        self.assertEqual((job.wait(), spare.wait()), (0, 0), job.err + spare.err)
        self.assertEqual(spare.out, '')
        self.stop(standby)
        self.stop(leader)

    def endpoints(self):
        return [f'127.0.0.1:{port}' for port in self.ports]

    def test_keys_of_others(self):
        self.etcd.put('/jobs/of/others', b'1')
        job = self.store(0)
        self.assertEqual(job.wait(), CONFIG, job.err)
        self.assertIn("keys of another program, such as '/jobs/of/others'", job.err)
        other = self.leader(0, state=self.etcd.address('/job'))
        self.stop(other)

    def test_a_damaged_record(self):
        job = self.leader(0)
        self.set(job, 'a', '1')
        self.stop(job)
        self.etcd.put('/jobs/v1/k/a', b'\1\2')
        job = self.store(0)
        self.assertEqual(job.wait(), CONFIG, job.err)
        self.assertIn("the record 'k/a' is damaged", job.err)

    def test_contents_changed_by_others(self):
        job = self.leader(0)
        self.set(job, 'a', '1')
        meta = self.etcd.keys('/jobs')[b'/jobs/v1/meta']
        self.etcd.put('/jobs/v1/meta', meta[:-16] + b'\xff' * 8 + meta[-8:]) # the number of its transaction
        with self.assertRaises(OSError):
            self.set(job, 'a', '2')
        self.assertEqual(job.wait(), CONFIG, job.err)
        self.assertIn('were changed by another program', job.err)

    def test_users(self):
        member = self.etcd.members[0]
        for path, body in (('user/add', {'name': 'root', 'password': 'secret'}), ('role/add', {'name': 'root'}),
                           ('user/grant', {'user': 'root', 'role': 'root'}), ('enable', {})):
            self.assertIsNotNone(member.post('/v3/auth/' + path, body))
        password = self.write('password', 'secret\n', 0o600)
        job = self.store(0)
        self.assertEqual(job.wait(), CONFIG, job.err)
        self.assertIn('--state-user', job.err)
        wrong = self.write('wrong', 'other\n', 0o600)
        job = self.store(0, '--state-user=root', f'--state-password-file={wrong}')
        self.assertEqual(job.wait(), CONFIG, job.err)
        job = self.leader(0, '--state-user=root', f'--state-password-file={password}')
        self.set(job, 'a', '1')
        member.kill() # it forgets its tokens
        member.start()
        self.set(job, 'a', '2')
        self.stop(job)
        password.chmod(0o644)
        job = self.daemon('--listen=127.0.0.1:0', f'--state={self.etcd.address()}', '--state-user=root',
                          f'--state-password-file={password}')
        self.assertEqual(job.wait(), CONFIG, job.err)
        self.assertIn('chmod 600', job.err)
        pipe = self.folder / 'pipe'
        os.mkfifo(pipe, 0o600)
        job = self.daemon('--listen=127.0.0.1:0', f'--state={self.etcd.address()}', '--state-user=root',
                          f'--state-password-file={pipe}')
        self.assertEqual(job.wait(), CONFIG, job.err)
        self.assertIn('is not a regular file', job.err)

    def test_a_password_that_is_changed(self):
        member = self.etcd.members[0]
        for path, body in (('user/add', {'name': 'root', 'password': 'secret'}), ('role/add', {'name': 'root'}),
                           ('user/grant', {'user': 'root', 'role': 'root'}), ('enable', {})):
            self.assertIsNotNone(member.post('/v3/auth/' + path, body))
        password = self.write('password', 'secret\n', 0o600)
        job = self.leader(0, '--state-user=root', f'--state-password-file={password}', lease='10s')
        token = member.post('/v3/auth/authenticate', {'name': 'root', 'password': 'secret'})['token']
        self.assertIsNotNone(member.post('/v3/auth/user/changepw', {'name': 'root', 'password': 'other'}, token))
        self.assertEqual(job.wait(), AGAIN, job.err)
        self.assertRegex(job.err, 'waiting for etcd: [^\n]*invalid user ID or password')
        self.assertRegex(job.err, 'its lease in etcd is over [^\n]*invalid user ID or password')

    def test_two_with_one_address(self):
        """They would take the leadership from each other for ever."""
        address = f'--advertise=localhost:{self.ports[0]}'
        first = self.leader(0, address)
        second = self.daemon(f'--listen=127.0.0.1:{self.ports[1]}', f'--state={self.etcd.address()}', address)
        second.wait()
        self.assert_sentence(second, CONFIG, f'already serves this state as localhost:{self.ports[0]}', '--advertise',
                             program='ddprund')
        self.assertEqual(self.stats(first.endpoint)['waits'], 0)  # it leads on
        self.kill(first)
        self.stop(self.leader(1, address))

    def test_no_etcd_yet(self):
        self.etcd.members[0].kill()
        job = self.store(0)
        job.read_until('waiting for etcd')
        self.etcd.members[0].start()
        job.read_until('leading as')
        self.stop(job)


class FullEtcd(EtcdCase):
    words = ('--quota-backend-bytes=2097152',)

    def test_no_room(self):
        leader = self.leader(0)
        acknowledged = []
        store = RawStore(leader.endpoint)
        with self.assertRaises(OSError):
            for i in range(1000):
                if store.ask(SET, packed(f'key/{i:04}') + packed(b'x' * 50000))[1] == 0:
                    acknowledged.append(f'key/{i:04}')
        store.close()
        self.assertEqual(leader.wait(), CONFIG, leader.err)
        self.assertIn('etcdctl alarm disarm', leader.err)
        member = self.etcd.members[0]
        member.words = [word for word in member.words if 'quota' not in word]
        member.kill()
        member.start()
        wait_until(self.etcd.works, 'etcd')
        alarms = member.post('/v3/maintenance/alarm', {'action': 'GET'}).get('alarms', [])
        for alarm in alarms:
            member.post('/v3/maintenance/alarm', {'action': 'DEACTIVATE', **alarm})
        again = self.leader(0)
        self.assertEqual(set(acknowledged) - takeovers.listed([again.endpoint], 'key/'), set())
        self.stop(again)


class FullDisk(EtcdCase):
    SIZE = 200 * 1024 * 1024 # etcd reserves 128 MiB for two files of its log

    def prepare_place(self):
        if subprocess.run(['mount', '-t', 'tmpfs', '-o', f'size={self.SIZE}', 'none', self.place],
                          stderr=subprocess.DEVNULL).returncode != 0:
            self.skipTest('only root can mount a small file system')
        self.addCleanup(subprocess.run, ['umount', self.place], check=True)

    def fill(self):
        """A file that leaves nothing."""
        with open(self.place / 'filler', 'wb', buffering=0) as filler, self.assertRaises(OSError):
            while True:
                filler.write(bytes(4096))

    def test_etcd_dies_of_it_and_comes_back(self):
        leader = self.leader(0)
        member = self.etcd.members[0]
        writer = Writer('w', [leader.endpoint], 'x' * 20000)
        writer.start()
        wait_until(lambda: len(writer.acknowledged) > 10, 'writes')
        self.fill()
        wait_until(lambda: member.process.poll() is not None, 'the end of etcd')
        have = len(writer.acknowledged)
        leader.read_until('waiting for etcd')
        (self.place / 'filler').unlink()
        member.start()
        wait_until(lambda: len(writer.acknowledged) > have + 10, 'more writes')
        writer.stop()
        takeovers.check(self, [writer], [leader.endpoint])
        self.stop(leader)


class Tls(DdprundCase):
    def setUp(self):
        super().setUp()
        self.place = self.folder / 'etcd'
        self.place.mkdir()
        subprocess.run(['openssl', 'req', '-x509', '-newkey', 'rsa:2048', '-nodes', '-days', '2', '-subj', '/CN=etcd',
                        '-addext', 'subjectAltName=IP:127.0.0.1', '-keyout', self.place / 'key', '-out',
                        self.place / 'cert'], check=True, capture_output=True)
        self.etcd = Cluster(self.place, 1, f'--cert-file={self.place}/cert', f'--key-file={self.place}/key', tls=True)
        self.addCleanup(self.etcd.close)

    def test_tls(self):
        address = self.etcd.address(scheme='etcds')
        job = self.serve(f'--state={address}', f'--state-ca-file={self.place}/cert')
        job.read_until('leading as')
        stranger = self.serve(f'--state={address}')
        stranger.read_until('waiting for etcd')
        stranger.read_until('certificate')
        self.done(job.endpoints[0], 'set', 'a', '1')
        self.stop(job)
        self.stop(stranger)


class ThreeMembers(EtcdCase):
    members = 3

    def test_the_leader_of_etcd_is_killed(self):
        job = self.leader(0)
        writer = Writer('w', [job.endpoint])
        writer.start()
        wait_until(lambda: len(writer.acknowledged) > 10, 'writes')
        wait_until(self.etcd.leader, 'a leader of etcd').kill()
        have = len(writer.acknowledged)
        wait_until(lambda: len(writer.acknowledged) > have + 10, 'more writes')
        writer.stop()
        takeovers.check(self, [writer], [job.endpoint])
        self.stop(job)

    def test_members_are_restarted_one_after_the_other(self):
        """As for an update: a member that stops answers oddly for a moment."""
        job, standby = self.leader(0), self.standby(1)
        writer = Writer('w', [job.endpoint])
        writer.start()
        for member in self.etcd.members * 2:
            have = len(writer.acknowledged)
            wait_until(lambda have=have: len(writer.acknowledged) > have + 20, 'writes')
            member.signal(signal.SIGTERM)
            member.process.wait()
            member.start()
            wait_until(self.etcd.works, 'etcd')
        writer.stop()
        takeovers.check(self, [writer], [job.endpoint])
        self.stop(standby)
        self.stop(job)

    def test_no_quorum(self):
        job = self.leader(0)
        self.set(job, 'a', '1')
        for member in self.etcd.members[:2]:
            member.kill()
        store = RawStore(job.endpoint) # served, as the lease is valid
        store.socket.sendall(set_frame('a', '2', 1))
        store.socket.settimeout(1)
        with self.assertRaises(TimeoutError):
            store.answer()
        store.socket.settimeout(None)
        self.etcd.members[0].start()
        self.assertEqual(store.answer()[:2], (SET, 0))
        store.close()
        self.stop(job)

    def test_no_quorum_for_longer_than_the_lease(self):
        job = self.leader(0, lease='5s')
        for member in self.etcd.members[:2]:
            member.kill()
        self.assertEqual(job.wait(), AGAIN, job.err)
        self.assertIn('its lease in etcd is over', job.err)

    def test_a_member_that_hangs(self):
        self.etcd.members[0].signal(signal.SIGSTOP)
        job = self.leader(0)
        self.set(job, 'a', '1')
        self.etcd.members[0].signal(signal.SIGCONT)
        self.stop(job)


class Takeovers(EtcdCase):
    def restart(self, which):
        job = self.store(which)
        job.collect_until(lambda: 'connected to the leader' in job.err or 'leading as' in job.err,
                          'it leads or stands by')
        return job

    def test_no_acknowledged_write_is_lost(self):
        jobs = [self.restart(0), self.restart(1)]
        endpoints = [job.endpoint for job in jobs]
        writers = [Writer(f'w{i}', endpoints) for i in range(4)]
        for writer in writers:
            writer.start()
        leading, times = 0, []
        for _ in range(TAKEOVERS):
            begun = time.monotonic()
            wait_until(lambda: self.first_after(writers, begun), 'a write')
            killed = time.monotonic()
            jobs[leading].signal(signal.SIGKILL)
            times.append(wait_until(lambda: self.first_after(writers, killed), 'a write after the takeover') - killed)
            jobs[leading].wait()
            self.jobs.remove(jobs[leading])
            jobs[leading].close()
            jobs[leading] = self.restart(leading)
            leading = 1 - leading
        for writer in writers:
            writer.stop()
        count = takeovers.check(self, writers, endpoints)
        times.sort()
        print(f'{TAKEOVERS} takeovers, {count} acknowledged writes, none lost; until the next one: '
              f'p50 {times[len(times) // 2] * 1000:.0f} ms, p99 {times[len(times) * 99 // 100] * 1000:.0f} ms, '
              f'most {times[-1] * 1000:.0f} ms', file=sys.stderr)
        for job in reversed(jobs):
            job.signal(signal.SIGKILL)
            job.wait()

    @staticmethod
    def first_after(writers, moment):
        return min((when for writer in writers if (when := writer.first_after(moment))), default=None)


class Fakes(DdprundCase):
    """What is no etcd ends in a sentence, or is waited for, and never crashes."""

    def fake(self, answer):
        server = FakeEtcd(answer)
        self.addCleanup(server.close)
        return server

    def refused(self, answer, text):
        job = self.serve(f'--state={self.fake(answer).address()}')
        self.assertEqual(job.wait(), CONFIG, job.err)
        self.assertIn(text, job.err)

    def waited_for(self, answer, text):
        job = self.serve(f'--state={self.fake(answer).address()}')
        job.read_until('waiting for etcd')
        job.read_until(text) # a closed connection may have been the first reason; the next one is told 10 s later
        self.stop(job)

    def test_old_versions(self):
        for version in ('3.3.27', '2.3.8', 'x'):
            self.refused(lambda *_, v=version: http_answer(f'{{"etcdserver":"{v}"}}'), 'needs 3.4 or later')

    def test_no_etcd(self):
        self.refused(lambda *_: http_answer('{"hello":1}'), 'is no etcd')

    def test_garbage(self):
        self.waited_for(lambda *_: http_answer(b'\0\xff' * 50), 'not JSON as etcd writes it')
        self.waited_for(lambda *_: b'SSH-2.0-OpenSSH\r\n', 'HTTP')

    @staticmethod
    def after_version(answer):
        return lambda path, body: http_answer(VERSION) if path == '/version' else answer

    def test_half_an_answer(self):
        self.waited_for(self.after_version(b'HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"header":'), 'waiting')
        self.waited_for(self.after_version(http_answer('{"header":{"revision":"1"}')), 'not JSON')

    def test_a_connection_that_is_reset(self):
        self.waited_for(lambda *_: None, 'Connection reset by peer')

    def test_endless_headers(self):
        self.waited_for(self.after_version(b'HTTP/1.1 200 OK\r\n' + b'X: y\r\n' * 200000), 'waiting')

    def test_an_error_with_200(self):
        self.refused(self.after_version(http_answer('{"error":"odd","message":"odd","code":3}')), 'odd')

    def test_wrong_types(self):
        self.refused(self.after_version(http_answer(
            '{"header":{"revision":"1"},"responses":[{"response_range":{"kvs":[{"key":7}]}}]}')), 'no text')

    def test_bad_addresses(self):
        for address in ('etcd://', 'etcd://h', 'etcd://u:p@h/p', 'etcd://h:0/p'):
            job = self.daemon(f'--state={address}')
            self.assertEqual(job.wait(), 2, job.err)
            self.assert_sentence(job, 2, '--state', program='ddprund')


if __name__ == '__main__':
    if etcd_cluster.ETCD is None:
        skip_program('etcd is missing (Debian package etcd-server)')
    unittest.main()
