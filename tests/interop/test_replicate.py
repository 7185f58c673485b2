#!/usr/bin/env python3
"""test_replicate.py - jobs with --replicate on nodes in network namespaces: any one of the three nodes that keep the
store dies, leaves or loses its cable, and the job goes on. With DDPRUN_KILLS=N, N faults by chance, and half as many of
two nodes and a witness. Skipped (77) where etcd is not installed, unless DDPRUN_INTEROP=1 demands it.
"""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / 'lib'))
from ddprun_run import children, growing, left_in, wait_until
from ddprund_run import CONFIG, DDPCTL, DDPRUND, USAGE, needs_tls
from etcd_cluster import ETCD
from keepers import name_of
from nodes import UNREACHABLE, DebianNames, WiredCase, Wires, is_alive
from skip import skip_program

TRIO = ('n1', 'n2', 'n3')
KILLS = int(os.environ.get('DDPRUN_KILLS', '4'))
LEASE_S = 5
PORT = 29400


class ReplicateCase(WiredCase):
    @classmethod
    def make_wires(cls):
        return Wires([*TRIO, 'n4'])

    def setUp(self):
        super().setUp()
        self.token('make')
        self.endpoint = ','.join(self.wires.address_of(node) for node in TRIO)
        self.patience = growing(1, 8)

    def job(self, nnodes='2:4', *words, lease=LEASE_S, **options):
        return self.cluster(nnodes, '--replicate', *words, lease=lease, **options)

    def keeper_of(self, job, node):
        """The keeper of @node, a ddprund, and its children by name."""
        for pid in children(job.agents[node].pid):
            if name_of(pid) == 'ddprund':
                return pid, {name_of(child): child for child in children(pid)}
        return None, {}

    def kept(self):
        """What the store shows of its keepers; None where no leader answers, who gets more time at the next look."""
        seconds = next(self.patience)
        for node in TRIO:
            words = self.wires.enter(node, [DDPCTL, 'store', f'--timeout={seconds}s', 'get', 'store/keepers'])
            answer = subprocess.run(words, env={**self.env, 'DDPRUN_STORE': self.at(node)},
                                    capture_output=True, check=False)
            if answer.returncode == 0:
                self.patience = growing(1, 8)
                return json.loads(answer.stdout)
        return None

    def leader(self, job, dead=()):
        """The node whose store leads, once the store survives the loss of any one, and has not the lives @dead of
        machines any more: it notices a death after a second."""
        def look():
            kept = self.kept()
            return kept if kept and kept['survives'].startswith('any one of') and not dead & self.lives(kept) else None
        dead = set(dead)
        kept = job.wait_for(look, 'a store that survives any one loss')
        return next(node for node in TRIO if self.at(node) == kept['leader'])

    def at(self, node):
        return f'{self.wires.address_of(node)}:{PORT}'

    @staticmethod
    def lives(kept):
        return {machine['life'] for machine in kept['machines']}

    def life_of(self, job, node):
        """Of what the keeper of @node has."""
        kept = job.wait_for(self.kept, 'a leader')
        return next(machine['life'] for machine in kept['machines'] if machine['endpoint'] == self.at(node))

    def dies(self, job, node):
        """All of it at once. What its keeper had in memory-like files is removed by the next one there, or here."""
        job.kill_node(node)
        job.expect(node, -9)
        self.addCleanup(self.remove_folders)

    def remove_folders(self):
        for folder in self.tmp.glob('ddprund-keeper-*'):
            shutil.rmtree(folder)


@needs_tls
class Lives(ReplicateCase):
    """Nothing dies but what ends."""

    def test_it_runs_and_ends(self):
        job = self.job('3', at_least=1)
        job.start_all(*TRIO)
        job.end(*TRIO)
        self.assertEqual(left_in(self.tmp), [])

    def test_its_exit_code_is_that_of_the_job(self):
        job = self.job('3:4', at_least=1)
        before = job.start_all(*TRIO, 'n4') # which keeps nothing
        self.assertEqual(self.keeper_of(job, 'n4'), (None, {}))
        job.fail(before, 0)
        for node in (*TRIO, 'n4'):
            job.expect(node, 7)

    def test_a_node_leaves(self):
        """Its keeper stays until the others have gone, or until a second signal."""
        job = self.job('1:3')
        before = job.start_all(*TRIO)
        first = self.leader(job)
        second, third = (node for node in TRIO if node != first)
        job.agents[first].signal(signal.SIGTERM)
        before = job.running(second, third, after=before.number)
        job.agents[first].read_until('keeps a copy of its store')
        job.agents[second].signal(signal.SIGTERM)
        before = job.running(third, after=before.number)
        job.agents[second].read_until('keeps a copy of its store')
        job.agents[second].signal(signal.SIGTERM)
        job.expect(second, 143)
        job.end(third)
        job.expect(first, 143)

    def test_the_same_command_again(self):
        for number in range(2):
            job = self.job('3', '--rdzv-id=again', at_least=1, name=f'j{number}')
            job.start_all(*TRIO)
            job.end(*TRIO)


@needs_tls
class Deaths(ReplicateCase):
    def test_the_node_of_the_leader_dies(self):
        job = self.job('2:3')
        before = job.start_all(*TRIO)
        first = self.leader(job)
        others = [node for node in TRIO if node != first]
        self.dies(job, first)
        job.running(*others, after=before.number)
        job.end(*others)

    def test_the_node_of_the_leader_loses_its_cable(self):
        job = self.job('2:3')
        before = job.start_all(*TRIO)
        first = self.leader(job)
        others = [node for node in TRIO if node != first]
        self.wires.cut(first)
        before = job.running(*others, after=before.number)
        wait_until(lambda: not any(map(is_alive, job.workers_of(first, before))), 'the end of its workers')
        self.wires.heal(first)
        job.running(*TRIO, after=before.number)
        job.end(*TRIO)

    def test_a_part_of_a_keeper_dies(self):
        """No worker hears of it."""
        job = self.job('2:3', lease=60, at_least=1)
        before = job.start_all(*TRIO)
        for kind in ('etcd', 'ddprund', 'keeper'):
            first = self.leader(job)
            dead = {self.life_of(job, first)} if kind == 'keeper' else set()
            keeper, parts = self.keeper_of(job, first)
            os.kill(keeper if kind == 'keeper' else parts[kind], signal.SIGKILL)
            def back():
                pid, now = self.keeper_of(job, first)
                new = pid != keeper if kind == 'keeper' else now.get(kind) != parts[kind]
                return pid and set(now) == {'etcd', 'ddprund'} and new # the name of a zombie is empty
            job.wait_for(back, f'another {kind}')
            self.leader(job, dead)
        self.addCleanup(self.remove_folders)
        self.assertEqual(job.running(*TRIO).number, before.number)
        job.end(*TRIO)

    def test_an_agent_or_a_guard_dies(self):
        job = self.job('1:3')
        before = job.start_all(*TRIO)
        first = self.leader(job)
        second, third = (node for node in TRIO if node != first)
        dead = {self.life_of(job, first)}
        job.kill_agent(first)
        before = job.running(second, third, after=before.number)
        job.expect(first, 137)
        job.start(first)
        before = job.running(*TRIO, after=before.number)
        self.leader(job, dead)
        job.agents[second].signal(signal.SIGKILL)
        job.expect(second, -9)
        self.addCleanup(self.remove_folders)
        job.running(first, third, after=before.number)
        job.end(first, third)

    def test_a_witness(self):
        """Two nodes, and a machine that has a keeper alone."""
        witness = self.wires.enter('n3', [DDPRUND, f'--cluster={self.endpoint}', '--state-lease=2s'])
        witness = self.start(*witness[1:], program=witness[0])
        job = self.job('1:2')
        before = job.start_all('n1', 'n2')
        self.leader(job)
        self.dies(job, 'n1')
        job.running('n2', after=before.number)
        job.end('n2')
        self.assertEqual(witness.wait(), 0, witness.err)


DEADLY = ('node', 'agent', 'guard', 'keeper') # its data is gone
WRITER = 'i=0; while :; do i=$((i + 1)); "$0" store --timeout=10m set w/$i $i && echo $i; done'


@needs_tls
class Names(ReplicateCase):
    """The list has names, and each node a file that says what they mean."""

    @classmethod
    def make_wires(cls):
        folder = tempfile.TemporaryDirectory(prefix='ddprun_hosts_')
        cls.addClassCleanup(folder.cleanup)
        return DebianNames(TRIO, Path(folder.name), own=None)

    def setUp(self):
        super().setUp()
        self.endpoint = ','.join(TRIO)

    def at(self, node):
        return f'{node}:{PORT}'

    def test_a_node_comes_back_under_another_address(self):
        job = self.job('2:3')
        before = job.start_all(*TRIO)
        first = self.leader(job)
        dead = {self.life_of(job, first)}
        others = [node for node in TRIO if node != first]
        self.dies(job, first)
        before = job.running(*others, after=before.number)
        self.wires.move(first, '10.99.0.77')
        job.start(first)
        job.running(*TRIO, after=before.number)
        self.leader(job, dead)
        job.end(*TRIO)


@needs_tls
class Storm(ReplicateCase):
    """One fault after another, on a node by chance. No acknowledged write is lost, and the job goes on after each."""

    nodes, kills = TRIO, KILLS
    kinds = ('node', 'cable', 'stop', 'agent', 'keeper', 'guard', 'etcd', 'ddprund', 'twice', 'follower')

    def setUp(self):
        super().setUp()
        self.chance = random.Random(KILLS)
        self.stores = ','.join(map(self.at, TRIO))

    def fault(self, job, kind, node):
        """The lives that have ended with it."""
        if kind in ('cable', 'stop'):
            seconds, before = self.chance.choice([0.3, 1.5, 4, 9]), job.running(*self.nodes)
            if self.part(job, kind, node, seconds) < LEASE_S / 2:
                self.leader(job) # all is as before
                self.assertEqual(job.running(*self.nodes).number, before.number, f'{kind} of {node} for {seconds} s')
            return set()
        if kind in ('twice', 'follower'):
            return self.two_faults(job, kind, node)
        dead = {self.life_of(job, node)} if kind in DEADLY else set()
        keeper, parts = self.keeper_of(job, node)
        if kind in ('keeper', 'etcd', 'ddprund'):
            os.kill(keeper if kind == 'keeper' else parts[kind], signal.SIGKILL)
            return dead
        if kind == 'node':
            self.dies(job, node)
        elif kind == 'agent':
            job.kill_agent(node)
            job.expect(node, 137)
        else:
            job.agents[node].signal(signal.SIGKILL)
            job.expect(node, -9)
        job.start(node)
        return dead

    def two_faults(self, job, kind, node):
        """A machine dies. While it is taken in again, or before, it dies once more, or a process of the leader is
        killed."""
        leader = self.leader(job)
        if kind == 'follower' and node == leader:
            node = next(other for other in TRIO if other != leader)
        dead = {self.life_of(job, node)}
        self.dies(job, node)
        job.start(node)
        job.wait_for(lambda: self.keeper_of(job, node)[1], f'a keeper on {node}')
        time.sleep(self.chance.uniform(0, 6))
        if kind == 'follower':
            part = self.chance.choice(['etcd', 'ddprund'])
            os.kill(job.wait_for(lambda: self.keeper_of(job, leader)[1].get(part), f'{part} of {leader}'), signal.SIGKILL)
            return dead
        self.dies(job, node)
        dead.add(self.life_of(job, node))
        job.start(node)
        return dead

    def part(self, job, kind, node, seconds):
        """It is silent for that long. How long that was, in seconds."""
        pids, began = job.processes(node), time.monotonic()
        if kind == 'cable':
            self.wires.cut(node)
        else:
            job.freeze(pids)
        time.sleep(seconds)
        if kind == 'cable':
            self.wires.heal(node)
        else:
            job.thaw(pids)
        return time.monotonic() - began

    def writer(self):
        words = self.wires.enter('n4', ['sh', '-c', WRITER, DDPCTL])
        return self.start(*words[1:], program=words[0], env={'DDPRUN_STORE': self.stores})

    def check_writes(self, job, writer, what):
        acknowledged = {f'w/{number}' for number in writer.out.split()}
        words = self.wires.enter('n4', [DDPCTL, 'store', '--timeout=10m', 'list', 'w/'])
        listed = subprocess.run(words, env={**self.env, 'DDPRUN_STORE': self.stores}, capture_output=True, check=True)
        lost = acknowledged - set(listed.stdout.decode().split())
        self.assertFalse(lost, lost and f'{len(lost)} of {len(acknowledged)} acknowledged writes are lost after '
                                        f'{what}\n{job.tell()}')
        return acknowledged

    def test_storm(self):
        count = len(self.nodes)
        job = self.job(f'{count - 1}:{count}', '--max-restarts=1000', '--crash-loop=0', at_least=1)
        job.start_all(*self.nodes)
        first = self.leader(job)
        writer = self.writer()
        for number in range(self.kills):
            kind = self.kinds[number % len(self.kinds)]
            node = first if number % 2 == 0 and first in self.nodes else self.chance.choice(self.nodes)
            before = writer.out.count('\n')
            dead = self.fault(job, kind, node)
            job.running(*self.nodes)
            first = self.leader(job, dead)
            job.wait_for(lambda: writer.collect(0) or writer.out.count('\n') > before + 10, f'writes after {kind} of {node}')
            self.check_writes(job, writer, f'{kind} of {node}, fault {number}')
        writer.signal(signal.SIGKILL)
        writer.wait()
        acknowledged = self.check_writes(job, writer, 'all')
        print(f'{self.kills} faults, {len(acknowledged)} acknowledged writes, none lost', file=sys.stderr)
        self.addCleanup(self.remove_folders)
        job.end(*self.nodes)


class StormOfTwo(Storm):
    """The same with two nodes and a witness."""

    nodes, kills = TRIO[:2], KILLS // 2
    kinds = Storm.kinds[:-1]

    def setUp(self):
        super().setUp()
        words = self.wires.enter('n3', [DDPRUND, f'--cluster={self.endpoint}', '--state-lease=2s'])
        self.witness = self.start(*words[1:], program=words[0])

    def test_storm(self):
        super().test_storm()
        self.assertEqual(self.witness.wait(), 0, self.witness.err)


@needs_tls
class Refusals(ReplicateCase):
    def start_with_unfit_etcd(self, job, node):
        """It takes a while to say what it is."""
        folder = self.folder / 'bin'
        folder.mkdir(exist_ok=True)
        (folder / 'etcd').write_text('#!/bin/sh\nsleep 1\necho "etcd Version: 3.6.1"\n')
        (folder / 'etcd').chmod(0o755)
        job.env = {'PATH': f'{folder}:{self.env["PATH"]}'}
        job.start(node)
        job.env = {}

    def test_an_etcd_that_is_not_fit(self):
        """The node where it is says so, and has no worker; the others are enough."""
        job = self.job('2:3', at_least=1)
        self.start_with_unfit_etcd(job, 'n1')
        job.expect('n1', CONFIG, '3.6.1')
        self.assertEqual(job.agents['n1'].err.count('3.6.1'), 1)
        self.assertIn('this node leaves, as its keeper of the store cannot run\n', job.agents['n1'].err)
        self.assertNotIn('SIGTERM', job.agents['n1'].err)
        for node in ('n2', 'n3'):
            job.start(node)
        job.running('n2', 'n3')
        job.end('n2', 'n3')

    def test_an_etcd_that_is_not_fit_beside_a_store(self):
        """The node does not join, though it is the one that the others wait for."""
        job = self.job('3', at_least=1)
        for node in ('n2', 'n3'):
            job.start(node)
        job.wait_for(self.kept, 'a leader')
        self.start_with_unfit_etcd(job, 'n1')
        job.expect('n1', CONFIG, '3.6.1')
        self.assertEqual(job.records(), [])
        job.start('n1')
        job.running(*TRIO)
        job.end(*TRIO)

    def test_one_of_three_comes(self):
        job = self.job('2:3', '--join-timeout=15s', at_least=0)
        job.start('n1')
        others = [self.at(node) for node in TRIO[1:]]
        job.expect('n1', UNREACHABLE, 'waiting for the keepers at ' + ' and '.join(others), 'no store leads')

    def test_options(self):
        for words, text in ((['--rdzv-endpoint=a,b'], 'lists 2'), (['--rdzv-endpoint=a,b,c', '--no-auth'], '--no-auth'),
                            (['-H', 'a,b'], '--hosts'), (['--rdzv-endpoint=a,b,c', '--lease=4s'], '--lease=4000ms'),
                            (['--standalone'], '--standalone')):
            self.assert_sentence(self.run_job('--replicate', *words, 'true'), USAGE, text)


if __name__ == '__main__':
    if not ETCD:
        skip_program('etcd is missing (Debian package etcd-server)')
    unittest.main()
