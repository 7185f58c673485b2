#!/usr/bin/env python3
"""test_keeper.py - three `ddprund --cluster` with a real etcd each, on three addresses of loopback: each of their
processes is killed, machines lose their data, strangers knock. With DDPRUN_KILLS=N as many are killed one after the
other, while writers note what was acknowledged. Skipped (77) where etcd is not installed, unless DDPRUN_INTEROP=1
demands it.
"""

import json
import os
import random
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / 'lib'))
from ddprun_run import left_in, wait_until
from ddprund_run import CONFIG, needs_tls
from etcd_cluster import ETCD
from keepers import KeeperCase, name_of
from raw_store import RawStore
from skip import skip_program
from takeovers import Writer

KILLS = int(os.environ.get('DDPRUN_KILLS', '6'))
KEEPER, KEEPER_STATUS = 3, 37


@needs_tls
class Deaths(KeeperCase):
    def test_any_one_may_die_and_comes_back_empty(self):
        keepers = self.three()
        self.done(self.list, 'set', 'a', '1')
        for _ in range(2):
            leader = self.leader_of(keepers)
            which = keepers.index(leader)
            self.kill(leader)
            self.assertEqual(self.done(self.list, '--timeout=10m', 'get', 'a'), b'1')
            keepers[which] = self.keeper(which)
            keepers[which].read_until('joining the cluster')
            self.until_whole() # its etcd has the contents
        other = next(job for job in keepers if job is not self.leader_of(keepers))
        self.kill(other)
        self.done(self.list, '--timeout=10m', 'set', 'b', '2')
        which = keepers.index(other)
        keepers[which] = self.keeper(which)
        self.until_whole()
        self.end(*keepers)

    def test_its_processes_are_started_again(self):
        keepers = self.three()
        self.done(self.list, 'set', 'a', '1')
        for job in keepers:
            etcd, store = self.parts(job)
            os.kill(store, signal.SIGKILL)
            again = wait_until(lambda: self.parts(job)[1] not in (None, store) and self.parts(job)[1], 'a ddprund')
            self.assertNotEqual(again, store)
            self.assertEqual(self.done(self.list, '--timeout=10m', 'get', 'a'), b'1')
            os.kill(etcd, signal.SIGKILL)
            wait_until(lambda: self.parts(job)[0] not in (None, etcd), 'an etcd')
            job.read_until('etcd was killed by signal 9 (Killed); it is started again')
            self.done(self.list, '--timeout=10m', 'set', 'a', '1')
        self.end(*keepers)
        for job in keepers:
            self.assertNotIn('of the store is given up', job.err)

    def test_who_leaves_too_few_says_so(self):
        keepers = [self.keeper(i) for i in range(2)] # the third has never been heard
        self.until_kept(f'no other loss until {self.hosts[2]} is back')
        self.end(keepers[0])
        self.assertIn('only one of the three is left: the store stops until two are there', keepers[0].err)
        self.end(keepers[1])

    def test_two_that_die_are_a_new_store(self):
        keepers = self.three()
        self.done(self.list, 'set', 'a', '1')
        for which in (0, 1):
            self.kill(keepers[which])
        for which in (0, 1):
            keepers[which] = self.keeper(which)
        keepers[2].read_until("this machine's part of the store is given up")
        for job in keepers:
            job.read_until('ing the cluster', 2 if job is keepers[2] else 1)
        self.until_whole()
        self.assertEqual(self.done(self.list, '--timeout=10m', 'list', 'a'), b'')
        self.end(*keepers)

    def test_an_etcd_that_cannot_write(self):
        """The other two go on. It says why, and not where in its program."""
        stack = 'panic: no space left on device\\n\\ngoroutine 1 [running]:\\nmain.main()\\n\\tmain.go:28 +0x17\\n'
        env = self.with_etcd(f'[ "$1" = --version ] && exec {ETCD} "$@"', f'printf "{stack}" >&2', 'exit 2')
        keepers = [self.keeper(0, env=env), self.keeper(1), self.keeper(2)]
        self.until_kept(f'no other loss until {self.hosts[0]} is back')
        keepers[0].read_until('ended with exit code 2; it is started again; its last line was: panic: no space left')
        self.end(*keepers)

    def certainly(self, *words, **options):
        """Once more if the leader has ended meanwhile."""
        def look():
            code, out, _ = self.ctl(self.list, '--timeout=10m', *words, **options)
            return (out,) if code == 0 else None
        return wait_until(look, f'{words[:2]} to be done')[0]

    def test_an_etcd_that_is_full(self):
        """Of revisions that nobody needs: the same keys are written again and again."""
        small = '[ "$1" = --version ] || set -- "$@" --quota-backend-bytes=16000000 --auto-compaction-retention=1h'
        self.env.update(self.with_etcd(small, f'exec {ETCD} "$@"'))
        keepers = self.three()
        for number in range(50):
            self.certainly('set', f'k{number % 3}', '-', given=b'%08d' % number + bytes(600000))
        for number in (47, 48, 49):
            value = self.certainly('get', f'k{number % 3}')
            self.assertEqual((int(value[:8]), len(value)), (number, 600008))
        for job in keepers:
            job.collect(0)
        self.assertIn('etcd has forgotten what is old', ''.join(job.err for job in keepers))
        self.end(*keepers)

    def test_a_signal_ends_all_and_leaves_nothing(self):
        keepers = self.three()
        parts = [pid for job in keepers for pid in self.parts(job)]
        self.assertEqual(len(list(self.tmp.glob('ddprund-keeper-*'))), 3)
        self.end(*keepers)
        self.assertEqual([pid for pid in parts if name_of(pid)], [])
        self.assertEqual(left_in(self.tmp), [])

    def test_what_is_acknowledged_survives_kills(self):
        """Of each kind of process on each machine, one after the other."""
        chance = random.Random(KILLS)
        keepers = self.three()
        writers = [Writer(f'w{i}', self.endpoints) for i in range(2)]
        for writer in writers:
            writer.start()
        for number in range(KILLS):
            which = chance.randrange(3)
            kind = ('keeper', 'etcd', 'ddprund')[number % 3]
            before = sum(len(writer.acknowledged) for writer in writers)
            if kind == 'keeper':
                self.kill(keepers[which])
                keepers[which] = self.keeper(which)
                keepers[which].read_until('joining the cluster')
                self.until_whole()
            else:
                os.kill(self.parts(keepers[which])[kind == 'ddprund'] or self.etcd_of(keepers[which]), signal.SIGKILL)
            wait_until(lambda: sum(len(writer.acknowledged) for writer in writers) >= before + 50, 'further writes')
        for writer in writers:
            writer.stopped = True
            writer.join()
        listed = set(self.done(self.list, '--timeout=10m', 'list', 'w').decode().split())
        for writer in writers:
            self.assertEqual(set(writer.acknowledged) - listed, set())
        self.end(*keepers)


@needs_tls
class Seen(KeeperCase):
    def test_status_says_what_the_store_survives(self):
        keepers = self.three()
        leader = self.leader_of(keepers)
        other = next(job for job in keepers if job is not leader)
        for killed in (other, leader):
            which = keepers.index(killed)
            self.kill(killed)
            seen = self.until_kept(f'no other loss until {self.hosts[which]} is back')
            states = {machine['endpoint']: machine['state'] for machine in seen['machines']}
            self.assertNotEqual(seen['leader'], killed.endpoint)
            self.assertEqual(states.pop(killed.endpoint), 'missing')
            self.assertEqual(set(states.values()), {'member'})
            keepers[which] = self.keeper(which)
            states = [machine['state'] for machine in self.until_whole()['machines']]
            self.assertEqual(states, ['member'] * 3)
        text = self.done(self.list, verb='status').decode()
        said = re.fullmatch(f'no jobs\n\nstore led by (.*)\n  members     {", ".join(self.endpoints)}\n'
                            f'  survives    any one of {", ".join(self.hosts)}\n', text)
        self.assertIn(said and said[1], self.endpoints, text)
        self.end(*keepers)

    def test_a_leader_whose_keeper_is_stopped_says_nothing(self):
        keepers = self.three()
        silent = False
        while not silent: # on a slow machine another one may have come to lead meanwhile
            leader = self.leader_of(keepers)
            leader.signal(signal.SIGSTOP)
            silent = wait_until(lambda: self.status_without(leader), 'no word of the store') == b'no jobs\n'
            leader.signal(signal.SIGCONT)
            self.until_whole()
        self.end(*keepers)

    def status_without(self, leader):
        """What ddpctl status says, once it does not say that @leader leads."""
        text = self.done(self.list, '--timeout=10m', verb='status')
        return text if f'led by {leader.endpoint}'.encode() not in text else None


class JobCase(KeeperCase):
    script = 'echo "rank $RANK of $WORLD_SIZE"; exec sleep 100000'

    def agent(self, number):
        return self.start('--nnodes=2:3', '--nproc-per-node=1', '--max-restarts=5', '--rdzv-id=job', '--settle=60s',
                          f'--rdzv-endpoint={self.list}', f'--local-addr=127.0.0.{number + 1}', f'--node-rank={number}',
                          f'--event-log={self.folder}/events{number}', f'--metrics-textfile={self.folder}/metrics{number}',
                          'sh', '-c', self.script)

    def agents(self):
        agents = [self.agent(i) for i in range(3)]
        for agent in agents:
            agent.read_until(' of 3')
        return agents


@needs_tls
class Jobs(JobCase):
    lease = '2s'

    def test_a_job_outlives_the_machine_of_its_leader(self):
        keepers = self.three()
        agents = self.agents()
        for number in range(3):
            wait_until(lambda: 'ddprun_store_members 3' in self.metrics(number), f'that agent {number} knows the store')
        leader = self.leader_of(keepers)
        which = keepers.index(leader)
        agents[which].signal(signal.SIGKILL)
        self.kill(leader)
        agents[which].wait_gone()
        left = [agent for agent in agents if agent is not agents[which]]
        for agent in left:
            agent.read_until(' of 2')
            agent.read_until(f'leads the store instead of {leader.endpoint}')
            agent.read_until(f'{leader.endpoint} is missing: the store survives no other loss until')
        keepers[which] = self.keeper(which) # it removes the folder of the one that was killed
        for agent in left:
            agent.read_until(f'{leader.endpoint} is a new member, as it had lost its data: the store survives')
        for agent in left:
            agent.signal(signal.SIGTERM)
        for agent in agents:
            agent.wait()
        for number, agent in enumerate(agents):
            if agent in left:
                self.check_what_was_seen(number, leader.endpoint)
        self.end(*keepers)

    def metrics(self, number):
        path = self.folder / f'metrics{number}'
        return path.read_text() if path.exists() else ''

    def check_what_was_seen(self, number, lost):
        lines = [json.loads(line) for line in (self.folder / f'events{number}').read_text().splitlines()]
        events = [line['event'] for line in lines if 'endpoint' in line]
        self.assertIn('store_leader_changed', events)
        of_lost = [line['event'] for line in lines if line.get('endpoint') == lost and line['event'].startswith('member_')]
        leader = [line['endpoint'] for line in lines if line['event'] == 'store_leader_changed'][-1]
        self.assertEqual((of_lost[0], of_lost[-1]), ('member_lost', 'member_replaced'))
        metrics = self.metrics(number)
        self.assertRegex(metrics, r'\nddprun_store_members [23]\n')
        self.assertIn(f'\nddprun_store_leader{{endpoint="{lost}"}} {int(leader == lost)}\n', metrics)


@needs_tls
class Ends(JobCase):
    """A store that is for one job ends with it, and by no signal that others get."""
    end_signal = signal.SIGPWR
    words = ['--cluster-job=job']

    def setUp(self):
        super().setUp()
        self.go = self.folder / 'go'
        self.script = f'echo "rank $RANK of $WORLD_SIZE"; until [ -e {self.go} ]; do sleep 0.1; done'

    def finish(self, agents):
        """All agents end well."""
        self.go.touch()
        for agent in agents:
            self.assertEqual(agent.wait(), 0, agent.err)
        self.go.unlink()

    def assert_ended(self, *keepers):
        for job in keepers:
            self.assertEqual(job.wait(), 0, job.err)
            self.assertIn('the job job is over: this keeper ends', job.err)
            self.assertNotIn('of the store is given up', job.err)

    def test_all_end_with_the_job(self):
        """Also one that was given no job, a witness; and the next job begins where they were."""
        for second in (self.words, []):
            keepers = [self.keeper(0, *self.words), self.keeper(1, *second), self.keeper(2, *self.words)]
            parts = [pid for job in keepers for pid in (self.etcd_of(job), *self.parts(job)) if pid]
            self.finish(self.agents())
            self.assert_ended(*keepers)
            self.assertEqual([pid for pid in parts if name_of(pid)], [])
            self.assertEqual(left_in(self.tmp), [])

    def test_a_job_whose_nodes_were_lost_is_not_over(self):
        keepers = self.three(*self.words)
        for job in self.agents():
            os.kill(job.agent(), signal.SIGKILL) # it does not leave in order
            job.wait_gone()
        self.finish(self.agents()) # they come back, and the job has a result
        self.assert_ended(*keepers)

    def test_a_store_that_restarts_knows_the_job(self):
        keepers = self.three(*self.words)
        agents = self.agents()
        self.kill(keepers[0])
        os.kill(self.parts(self.leader_of(keepers[1:]))[1], signal.SIGKILL)
        self.finish(agents)
        self.assert_ended(*keepers[1:])
        for folder in self.tmp.glob('ddprund-keeper-*'): # of the one that was killed
            shutil.rmtree(folder)

    def test_who_is_stopped_through_the_end_is_left(self):
        keepers = self.three(*self.words)
        agents = self.agents()
        leader = self.leader_of(keepers)
        stopped = next(job for job in keepers if job is not leader)
        stopped.signal(signal.SIGSTOP)
        self.finish(agents)
        self.assert_ended(*[job for job in keepers if job is not stopped])
        stopped.signal(signal.SIGCONT)
        self.end(stopped)

    def test_a_job_that_comes_at_the_end_waits(self):
        """Its keepers found another store as soon as the old ones are gone."""
        keepers = self.three(*self.words)
        self.finish(self.agents())
        following = []
        for which, job in enumerate(keepers):
            self.assert_ended(job)
            following.append(self.keeper(which, *self.words))
        self.finish(self.agents())
        self.assert_ended(*following)

    def test_a_second_keeper_of_a_machine_waits(self):
        keepers = self.three(*self.words)
        second = [self.keeper(0, *self.words) for _ in range(2)]
        for job in second:
            job.read_until('another keeper of this machine is at work')
        agents = self.agents()
        self.kill(keepers[0])
        wait_until(lambda: [job for job in second if job.collect(0) or 'joining the cluster' in job.err],
                   'that one of them takes its place')
        taken = next(job for job in second if 'joining the cluster' in job.err)
        self.until_whole()
        other = next(job for job in second if job is not taken)
        self.finish(agents)
        self.assert_ended(taken, *keepers[1:])
        self.assertEqual(other.wait(), 0)
        self.assertNotIn('listening on', other.out)
        self.assertEqual(left_in(self.tmp), [])

    def test_a_signal_ends_the_wait(self):
        first = self.keeper(0, *self.words)
        first.read_until('listening on')
        second = self.keeper(0, *self.words)
        second.read_until('another keeper of this machine is at work')
        for job in (first, second):
            for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGINT): # as all processes of a service may get
                job.signal(number)
        os.kill(self.parts(first)[1], signal.SIGTERM)
        self.end(second, first)
        self.assertNotIn('was killed', first.err)

    def test_a_second_keeper_of_another_job(self):
        first = self.keeper(0, *self.words)
        first.read_until('listening on')
        second = self.keeper(0, '--cluster-job=other')
        self.assertEqual(second.wait(), CONFIG)
        self.assertIn("is that of a keeper of the job 'job'", second.err)
        unfit = self.keeper(0, *self.words, env=self.etcd_that_says('3.6.1'))
        self.assertEqual(unfit.wait(), CONFIG) # it waits for nobody
        self.assertIn('3.6.1', unfit.err)
        third = self.keeper(0) # a service of its own does not wait
        self.assertEqual(third.wait(), CONFIG)
        self.assertIn('one is enough', third.err)
        self.end(first)

    def test_two_jobs_with_one_list(self):
        first = self.keeper(0, '--cluster-job=job', '--log-level=warning') # a person waits
        first.read_until(f'waiting for the keepers at {self.endpoints[1]} and {self.endpoints[2]}')
        second = self.keeper(1, '--cluster-job=other')
        self.assertEqual(second.wait(), CONFIG)
        self.assertIn(self.endpoints[0], second.err)
        self.assertIn("one of the job 'job', and this one of 'other'", second.err)
        self.end(first)

    def test_a_store_of_no_job_is_not_taken(self):
        keepers = self.three()
        self.kill(keepers[0])
        job = self.keeper(0, *self.words)
        self.assertEqual(job.wait(), CONFIG)
        self.assertIn('have a store that is for no job: use it without --replicate', job.err)
        for job in keepers[1:]: # not by the signal of this class: they are of no job
            job.signal(signal.SIGTERM)
            self.assertEqual(job.wait(), 0, job.err)
        for folder in self.tmp.glob('ddprund-keeper-*'): # of the one that was killed
            shutil.rmtree(folder)


@needs_tls
class Strangers(KeeperCase):
    def test_only_keepers_hear_what_keepers_tell(self):
        keepers = self.three()
        for job in keepers:
            try:
                store = RawStore(job.endpoint)
            except AssertionError:
                continue # a standby refuses all others
            kind, status, _, text = store.ask(KEEPER_STATUS, b'')
            self.assertNotEqual(status, 0)
            self.assertIn(b'only a keeper that has proven the token', text)
            store.close()
        for job in keepers: # a claim is no proof
            try:
                store = RawStore(job.endpoint, role=KEEPER)
            except AssertionError:
                continue
            self.assertNotEqual(store.ask(KEEPER_STATUS, b'')[1], 0)
            store.close()
        self.end(*keepers)

    def test_the_port_of_etcd_takes_no_other_certificate(self):
        keepers = self.three()
        folder = next(self.tmp.glob('ddprund-keeper-*'))
        host = '127.0.0.1'
        own = (folder / 'peer.crt', folder / 'peer.key')
        foreign = (self.folder / 'f.crt', self.folder / 'f.key')
        subprocess.run(['openssl', 'req', '-x509', '-newkey', 'ed25519', '-nodes', '-subj', '/CN=ddprun', '-days', '9',
                        '-out', foreign[0], '-keyout', foreign[1], '-addext', 'subjectAltName=IP:127.0.0.1'],
                       check=True, capture_output=True)
        answers = []
        for pair in (own, foreign, None):
            context = ssl.create_default_context(cafile=str(own[0]))
            if pair:
                context.load_cert_chain(*map(str, pair))
            try:
                with context.wrap_socket(socket.create_connection((host, self.peer_port)), server_hostname=host) as peer:
                    peer.sendall(b'GET /version HTTP/1.0\r\n\r\n')
                    answers.append(b'etcdserver' in peer.recv(4096))
            except (ssl.SSLError, ConnectionError):
                answers.append(False)
        self.assertEqual(answers, [True, False, False])
        self.end(*keepers)

    def test_garbage_on_both_ports(self):
        chance = random.Random(1)
        keepers = self.three()
        lives = self.lives()
        writer = Writer('w', self.endpoints)
        writer.start()
        held = []
        for _ in range(20):
            for host in self.hosts:
                for port in (int(keepers[0].endpoint.rpartition(':')[2]), self.peer_port):
                    start = chance.choice([b'', b'\x16\x03\x01\xff\xff', b'POST /raft HTTP/1.1\r\nContent-Length: 9999999\r\n\r\n'])
                    held.append(socket.create_connection((host, port)))
                    try:
                        held[-1].sendall(start + chance.randbytes(chance.choice([0, 1, 100, 100000])))
                    except OSError: # it has closed the connection
                        pass
        before = len(writer.acknowledged)
        wait_until(lambda: len(writer.acknowledged) >= before + 50, 'further writes')
        writer.stopped = True
        writer.join()
        for connection in held:
            connection.close()
        self.until_whole()
        self.assertEqual(self.lives(), lives)
        listed = set(self.done(self.list, '--timeout=10m', 'list', 'w').decode().split())
        self.assertEqual(set(writer.acknowledged) - listed, set())
        self.end(*keepers)

    def test_another_token(self):
        first = self.keeper(0)
        first.read_until('listening on')
        other = self.folder / 'token'
        other.write_text('0' * 64 + '\n')
        other.chmod(0o600)
        second = self.keeper(1, f'--token-file={other}')
        second.read_until(f'the keeper at {self.endpoints[0]}:')
        self.end(first, second)

    def test_another_list(self):
        first = self.keeper(0)
        first.read_until('listening on')
        mine = ','.join([*self.endpoints[:2], '127.0.0.0:29400']) # sorted, the others have other numbers in it
        second = self.keeper(1, cluster=mine)
        self.assertEqual(second.wait(), CONFIG)
        self.assertIn('127.0.0.0:29400', second.err)
        self.assertIn(self.endpoints[2], second.err)
        self.assertIn('give all three machines the same', second.err)
        first.signal(signal.SIGTERM)
        first.wait()


if __name__ == '__main__':
    if not ETCD or not shutil.which('openssl'):
        skip_program('etcd or openssl is missing (Debian packages etcd-server and openssl)')
    unittest.main()
