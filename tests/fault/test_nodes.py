#!/usr/bin/env python3
"""test_nodes.py - jobs of several nodes: nodes die, hang, come, leave and lose their cables, and the
job goes on with whoever is left.

After each case: nothing of the job is left, no two workers had one rank of one generation, and none
was there when the next generation had begun. What makes starts slow, and cuts cables, needs root.
"""

import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / 'lib'))
from ddprun_run import DDPRUN, in_order, kill_all, probe, wait_until
from ddprund_run import DDPCTL
from nodes import (CRASH_LOOP, SHORT_LEASE, TRY_AGAIN, UNREACHABLE, NodesCase, WiredCase, Wires, free_port,
                   is_alive)
from scanner import NotPermitted, Scanner

TRIO = ('n1', 'n2', 'n3')
STORMS = 20
# Seconds: a fault that is over long before the lease, but lasts longer than from one heartbeat to the next.
BLINK_S, BLINK_LEASE = 3, 16
MEET = '20s' # for all nodes to come, where they do; and then to wait in vain


def order(generation):
    """The nodes by rank, each once."""
    return list(dict.fromkeys(record.node for _, record in sorted(generation.ranks.items())))


def pids_of(generation):
    return {rank: record.pid for rank, record in generation.ranks.items()}


class GoesOn(NodesCase):
    def assert_went_on(self, job, before):
        """No node of generation @before was lost: its processes run, and a failure of one of them is followed by the
        next generation with all nodes. This job has a restart for that."""
        nodes = order(before)
        self.assertEqual(pids_of(job.running(*nodes)), pids_of(before))
        job.fail(before, 0)
        self.assertEqual(job.running(*nodes, after=before.number).number, before.number + 1, job.tell())


class Deaths(GoesOn):
    """What ends by itself, or is killed: one store, agents on loopback."""

    def setUp(self):
        super().setUp()
        self.daemon_job = self.store()

    def assert_survived(self, before, after, lost):
        """Survivors keep their order."""
        self.assertEqual(order(after), [node for node in order(before) if node not in lost])

    def test_an_agent_is_killed(self):
        job = self.cluster('2:3')
        before = job.start_all(*TRIO)
        job.kill_agent('n2')
        after = job.running('n1', 'n3', after=before.number)
        self.assert_survived(before, after, ['n2'])
        job.expect('n2', 137, 'the agent was killed by SIGKILL')
        job.end('n1', 'n3')

    def test_the_agent_of_rank_0_is_killed(self):
        job = self.cluster('1:3')
        before = job.start_all(*TRIO)
        first, *others = order(before)
        job.kill_agent(first)
        after = job.running(*others, after=before.number)
        self.assert_survived(before, after, [first])
        job.expect(first, 137)
        job.end(*others)

    def test_a_whole_node_is_killed(self):
        job = self.cluster('1:3', mode=['fork'])
        before = job.start_all(*TRIO)
        job.kill_node('n3')
        after = job.running('n1', 'n2', after=before.number)
        self.assert_survived(before, after, ['n3'])
        job.expect('n3', -9)
        job.end('n1', 'n2')

    def test_a_node_that_was_killed_is_replaced(self):
        job = self.cluster('3')
        before = job.start_all(*TRIO)
        job.kill_node('n1')
        job.expect('n1', -9)
        for node in ('n2', 'n3'): # too few: nobody runs
            wait_until(lambda node=node: not any(map(is_alive, job.workers_of(node, before))),
                       'the end of the workers')
        job.start('n4')
        job.running('n2', 'n3', 'n4', after=before.number)
        job.end('n2', 'n3', 'n4')

    def test_a_guard_is_killed(self):
        job = self.cluster('1:2')
        before = job.start_all('n1', 'n2')
        job.agents['n2'].signal(signal.SIGKILL)
        job.running('n1', after=before.number)
        job.expect('n2', -9)
        job.end('n1')

    def test_a_worker_is_killed(self):
        """All nodes start again, and each restart is the job's, on whichever node it failed."""
        job = self.cluster('3', '--max-restarts=2', '--crash-loop=0')
        generation = job.start_all(*TRIO)
        for node in TRIO[:2]:
            os.kill(job.workers_of(node, generation)[0], signal.SIGKILL)
            generation = job.running(*TRIO, after=generation.number)
        job.fail(generation, generation.ranks[5].rank)
        for node in TRIO:
            job.expect(node, 7, 'rank 5')

    def stand_still(self, job, node):
        """The workers of @node, but those of the others do not."""
        job.collect()
        still = {record.node for record in job.records()
                 if record.alive < time.monotonic_ns() - 500_000_000}
        return still == {node}

    def test_nobody_reads_the_console_of_a_node(self):
        """Its workers wait until they can print, but the others' next generation does not, nor does
        its own. What is read at last is whole and in order."""
        job = self.cluster('3', '--max-restarts=1', mode=['talk'])
        for node in TRIO:
            job.start(node)
        stuck = job.agents['n2']
        stuck.open.discard(stuck.out_fd)
        before = job.running(*TRIO)
        wait_until(lambda: self.stand_still(job, 'n2'), 'the workers of n2 to stand still')
        rank = next(rank for rank, record in before.ranks.items() if record.node == 'n1')
        job.fail(before, rank)
        job.running(*TRIO, after=before.number)
        stuck.open.add(stuck.out_fd)
        job.end(*TRIO)
        pattern, next_line = r'\A\[default(\d+)\]:(\d+) (\d+) x+\Z', {}
        for line in stuck.out.splitlines():
            self.assertRegex(line, pattern)
            worker, generation, number = re.match(pattern, line).groups()
            self.assertGreaterEqual(int(generation), max((key[0] for key in next_line), default=0))
            self.assertEqual(int(number), next_line.get((int(generation), worker), 0), line)
            next_line[int(generation), worker] = int(number) + 1
        self.assertEqual(len(next_line), 4, next_line.keys())

    def test_crash_loop(self):
        job = self.cluster('2', '--max-restarts=100', mode=['broken'], at_least=5)
        for node in TRIO[:2]:
            job.start(node)
        for node in TRIO[:2]:
            job.expect(node, CRASH_LOOP, 'failed 5 times in a row with exit code 3')

    def test_all_nodes_pause_together(self):
        job = self.cluster('2', '--max-restarts=2', mode=['crash'], at_least=3)
        for node in TRIO[:2]:
            job.start(node)
        for node in TRIO[:2]:
            job.expect(node, 3, 'failed 2 times in a row with exit code 3', 'the next restart follows in 0.5 s',
                       'restart 2 of 2')

    def test_restart_storm(self):
        """Workers die at random moments, also while others are being started."""
        job = self.cluster('3', f'--max-restarts={STORMS}', '--crash-loop=0', at_least=STORMS)
        generation = job.start_all(*TRIO)
        choose = random.Random(5)
        for _ in range(STORMS):
            time.sleep(choose.random() * 0.05) # part of the storm, not a wait for something
            victim = choose.choice(list(generation.ranks.values()))
            os.kill(victim.pid, choose.choice([signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV]))
            generation = job.running(*TRIO, after=generation.number)
        job.fail(generation, 0)
        for node in TRIO:
            job.expect(node, 7)

    def test_the_store_is_killed_and_remembers(self):
        """What was running goes on, and so does the job afterwards."""
        port = free_port()
        daemon = self.store(f'--state={self.folder}/state', port=port)
        job = self.cluster('2:3', '--max-restarts=1')
        before = job.start_all(*TRIO)
        daemon.signal(signal.SIGKILL)
        daemon.wait()
        self.store(f'--state={self.folder}/state', port=port)
        for node in TRIO:
            job.agents[node].read_until('connected to the store')
        self.assert_went_on(job, before)
        job.kill_agent('n1')
        job.running('n2', 'n3', after=before.number + 1)
        job.expect('n1', 137)
        job.end('n2', 'n3')

    def test_another_store_takes_over(self):
        """It has another address, which the agents and workers were given, too."""
        ports = free_port(), free_port()
        daemon = self.store(f'--state={self.folder}/state', port=ports[0])
        self.endpoint = ','.join(f'127.0.0.1:{port}' for port in ports)
        both = self.endpoint
        job = self.cluster('2:3')
        before = job.start_all(*TRIO)
        daemon.signal(signal.SIGKILL)
        daemon.wait()
        self.store(f'--state={self.folder}/state', port=ports[1])
        for node in TRIO:
            job.agents[node].read_until('connected to the store')
        self.assertEqual(pids_of(job.running(*TRIO)), pids_of(before))
        self.endpoint = both
        job.kill_agent('n1')
        job.running('n2', 'n3', after=before.number)
        job.expect('n1', 137)
        job.end('n2', 'n3')

    def test_the_store_is_killed_and_forgets(self):
        """Its members are new to it, and begin anew behind the generations that they have had."""
        port = free_port()
        daemon = self.store(port=port)
        job = self.cluster('3', lease=SHORT_LEASE)
        before = job.start_all(*TRIO)
        daemon.signal(signal.SIGKILL)
        daemon.wait()
        self.store(port=port)
        job.running(*TRIO, after=before.number)
        job.end(*TRIO)

    def test_the_store_is_killed_for_good(self):
        job = self.cluster('1:3', f'--join-timeout={MEET}', at_least=1, lease=SHORT_LEASE)
        before = job.start_all(*TRIO)
        self.daemon_job.signal(signal.SIGKILL)
        wait_until(lambda: not any(is_alive(record.pid) for record in before.ranks.values()),
                   'the end of the workers')
        for node in TRIO:
            job.expect(node, UNREACHABLE)
            in_order(self, job.agents[node].err, '(--lease): its workers must end', '--join-timeout')

    def test_a_busy_port_is_taken_when_it_is_free(self):
        """As one of a program that was killed: nobody answers there, and nobody else can have it."""
        with socket.socket() as other:
            port = free_port()
            other.bind(('127.0.0.1', port))
            self.endpoint = f'127.0.0.1:{port}'
            job = self.cluster('2', at_least=1)
            for node in ('n1', 'n2'):
                job.start(node)
                job.agents[node].read_until(f'another program has port {port} of 127.0.0.1; it takes the port')
        job.running('n1', 'n2')
        job.end('n1', 'n2')

    def test_a_node_hosts_the_store_and_dies(self):
        self.endpoint = f'127.0.0.1:{free_port()}'
        job = self.cluster('1:3', f'--join-timeout={MEET}', at_least=1, lease=SHORT_LEASE)
        job.start('n1')
        job.running('n1')
        for node in ('n2', 'n3'):
            job.start(node)
        before = job.running(*TRIO)
        job.kill_node('n1')
        job.expect('n1', -9)
        for node in ('n2', 'n3'):
            job.expect(node, UNREACHABLE, '--join-timeout')
            self.assertFalse(any(map(is_alive, job.workers_of(node, before))))


class Comings(NodesCase):
    """Nodes that come, wait, leave, and do not fit: one store, agents on loopback."""

    def setUp(self):
        super().setUp()
        self.store()

    def checkpoint(self, job, key):
        self.done(self.endpoint, 'set', f'job/{job.name}/{key}', 'x')

    def test_a_newcomer_comes_in_at_once(self):
        job = self.cluster('1:2')
        before = job.start_all('n1')
        job.start('n2')
        after = job.running('n1', 'n2', after=before.number)
        self.assertEqual(order(after), ['n1', 'n2'])
        job.end('n1', 'n2')

    def test_a_newcomer_waits_for_a_checkpoint(self):
        job = self.cluster('1:3', '--join-policy=checkpoint')
        before = job.start_all('n1')
        job.start('n2').read_until('saved their state')
        self.assertEqual(job.running('n1').number, before.number)
        self.checkpoint(job, 'ddprun/checkpoint')
        after = job.running('n1', 'n2', after=before.number)
        job.start('n3').read_until('saved their state')
        self.checkpoint(job, f'g{after.number}/ddprun/checkpoint')
        job.running(*TRIO, after=after.number)
        job.end(*TRIO)

    def test_a_newcomer_is_never_let_in_but_after_a_failure(self):
        job = self.cluster('1:2', '--join-policy=never', '--max-restarts=1')
        before = job.start_all('n1')
        job.start('n2').read_until('stopped for another reason')
        self.checkpoint(job, 'ddprun/checkpoint')
        self.assertEqual(job.running('n1').number, before.number)
        job.fail(before, 1)
        job.running('n1', 'n2', after=before.number)
        job.end('n1', 'n2')

    def test_a_spare_steps_in(self):
        """A node beyond MAX waits, and takes the place of one that is lost."""
        job = self.cluster('2')
        before = job.start_all('n1', 'n2')
        job.start('n3').read_until('all 2 seats are taken; this node is a spare')
        job.kill_node('n1')
        after = job.running('n2', 'n3', after=before.number)
        self.assertEqual(order(after), ['n2', 'n3'])
        job.expect('n1', -9)
        job.end('n2', 'n3')

    def test_a_spare_that_is_not_needed_ends_with_the_job(self):
        job = self.cluster('1', name='one-of-two', at_least=1)
        job.nnodes = '1:2'
        job.start_all('n1', 'n2')
        job.start('n3').read_until('all 2 seats are taken; this node is a spare')
        job.end('n1', 'n2', 'n3')

    def test_ctrl_c_on_one_node_of_three(self):
        """Leaving is not closing, unless too few are left."""
        job = self.cluster('2:3')
        before = job.start_all(*TRIO)
        job.agents['n2'].signal(signal.SIGINT)
        job.running('n1', 'n3', after=before.number)
        job.expect('n2', 130, 'the job was ended by SIGINT')
        job.end('n1', 'n3')

    def test_ctrl_c_that_leaves_too_few(self):
        job = self.cluster('3', at_least=1)
        job.start_all(*TRIO)
        job.agents['n2'].signal(signal.SIGINT)
        for node in ('n1', 'n3'):
            job.expect(node, 130, 'has left, and 2 of at least 3 nodes are left')
        job.expect('n2', 130)

    def test_a_node_leaves_before_its_workers_obey(self):
        """Its workers ignore SIGTERM: the others wait for their end, not for a lease."""
        job = self.cluster('1:2', '--shutdown-timeout=700ms', mode=['deaf'])
        before = job.start_all('n1', 'n2')
        job.agents['n2'].signal(signal.SIGTERM)
        job.running('n1', after=before.number)
        job.expect('n2', 143)
        job.end('n1')

    def test_a_signal_while_workers_stop_for_another_node(self):
        """It is this node's first: nobody is impatient, and its workers have their time."""
        job = self.cluster('3', '--shutdown-timeout=1h', mode=['deaf'], at_least=1)
        generation = job.start_all(*TRIO)
        job.agents['n1'].signal(signal.SIGTERM)
        for node in ('n2', 'n3'):
            job.agents[node].read_until('is leaving', 1)
        job.agents['n2'].signal(signal.SIGTERM)
        job.agents['n2'].read_until('leaving when ')  # a worker that runs may still count as one that starts
        kill_all(pids_of(generation).values())
        job.expect('n1', 143)
        job.expect('n2', 143)
        self.assertNotIn('killing', job.agents['n2'].err)
        job.expect('n3', 130)

    def test_nodes_that_disagree(self):
        job = self.cluster('1:3', at_least=1)
        job.start_all('n1')
        for node, word, texts in (('n2', '--nnodes=2:3', ['--nnodes is 2:3 on this node and 1:3 in the job']),
                                  ('n3', '--max-restarts=4', ['restarts is 4 on this node and 0 in the job'])):
            job.start(node, word)
            job.expect(node, 78, *texts)
        self.assertEqual(job.running('n1').number, 1)
        job.end('n1')

    def test_who_waits_hears_why_others_do_not_come(self):
        job, other = self.cluster('2', at_least=1), self.cluster('2', name='typo', at_least=1)
        job.start('n1').read_until(f"waiting for 1 more node: 1 of at least 2 is here (job 'j' at {self.endpoint})")
        job.start('n2', '--nnodes=3')
        job.expect('n2', 78, '--nnodes is 3 on this node and 2 in the job')
        job.agents['n1'].read_until(' came with --nnodes=3 and was refused; this job has --nnodes=2')
        other.start('n3').read_until("waits at this store for job 'j', and not for this one")
        job.agents['n1'].read_until("waits at this store for job 'typo', and not for this one")
        for cluster, first, second in ((job, 'n1', 'n2'), (other, 'n3', 'n4')):
            cluster.start(second)
            cluster.running(first, second)
            cluster.end(first, second)
        self.assertEqual(job.agents['n1'].err.count('was refused'), 1)
        self.assertEqual(job.agents['n1'].err.count('waits at this store'), 1)

    def test_too_few_come(self):
        job = self.cluster('2', '--join-timeout=5s', at_least=0)
        job.start('n1')
        job.expect('n1', TRY_AGAIN, '--join-timeout')

    def test_two_agents_of_one_name(self):
        """On loopback all nodes have one: each is a member of its own, and so is one that joins twice."""
        job = self.cluster('1:4')
        before = job.start_all(*TRIO)
        job.start('again', host='n2')
        generation = job.running(*TRIO, 'again', after=before.number)
        job.kill_agent('n2')
        generation = job.running('n1', 'n3', 'again', after=generation.number)
        job.expect('n2', 137)
        job.end('n1', 'n3', 'again')

    def test_workers_of_different_numbers(self):
        job = self.cluster('2', at_least=1)
        job.start('n1', '--nproc-per-node=1')
        job.start('n2', '--nproc-per-node=3')
        generation = job.running('n1', 'n2')
        self.assertIn([record.node for _, record in sorted(generation.ranks.items())],
                      (['n1', 'n2', 'n2', 'n2'], ['n2', 'n2', 'n2', 'n1']))
        job.end('n1', 'n2')


class Names(NodesCase):
    """The name of the store has to be asked for, and the name server never answers. It is a socket
    that is bound before ddprun is executed, and that nobody reads."""

    BIND = 'import os, socket, sys; server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); ' \
           'server.bind(("127.0.0.1", 53)); server.set_inheritable(True); ' \
           'os.execv(sys.argv[1], sys.argv[1:])'
    SETTLE = 'ip link set lo up && mount --bind "$0" /etc/resolv.conf && ' \
             'mount --bind "$1" /etc/nsswitch.conf && shift && exec "$@"'
    ALONE = ['unshare', '--net', '--mount', *([] if os.geteuid() == 0 else ['--map-root-user'])]

    def enter(self):
        resolver = self.write('resolv.conf', 'nameserver 127.0.0.1\noptions timeout:30\n')
        return [*self.ALONE, 'sh', '-c', self.SETTLE, str(resolver),
                str(self.write('nsswitch.conf', 'hosts: dns\n')), sys.executable, '-c', self.BIND]

    def setUp(self):
        super().setUp()
        tried = subprocess.run([*self.enter(), '/bin/true'], capture_output=True, text=True,
                               check=False, env=self.env)
        if tried.returncode != 0:
            self.skipTest(f'namespaces cannot be made here: {tried.stderr.strip()}')

    @staticmethod
    def was_asked(pid):
        """There is something in the name server's queue."""
        lines = [line.split() for line in Path(f'/proc/{pid}/net/udp').read_text().splitlines()]
        return any(line[1] == '0100007F:0035' and int(line[4].split(':')[1], 16) > 0
                   for line in lines[1:])

    def look_up(self, *words):
        enter = self.enter()
        job = self.start(*enter[1:], DDPRUN, '--nnodes=2', '--rdzv-endpoint=store.example:29400',
                         *words, 'true', program=enter[0])
        wait_until(lambda: self.was_asked(job.pid), 'a question to the name server')
        return job

    def assert_over(self, job, code, *texts):
        self.assertEqual(job.wait(), code, job.err)
        job.wait_gone()
        for text in texts:
            self.assertIn(text, job.err)

    def test_a_signal_ends_it(self):
        job = self.look_up()
        job.signal(signal.SIGINT)
        self.assert_over(job, 130, "the look-up of the store's address, 'store.example', has not finished")

    def test_so_it_does_in_a_node_that_is_not_to_have_the_store(self):
        job = self.look_up('--rdzv-conf=is_host=0')
        job.signal(signal.SIGTERM)
        self.assert_over(job, 143)

    def test_so_does_the_time_to_join(self):
        job = self.look_up('--join-timeout=5s') # longer than it takes to ask
        self.assert_over(job, UNREACHABLE, '--join-timeout', 'has not finished')


class Pauses(GoesOn):
    """Processes that stop for a while: shorter than the lease is slow, longer is lost."""

    def setUp(self):
        super().setUp()
        self.store()

    def stop(self, job, node, whole):
        """Stop its agent, or all that it is; what lets it go on."""
        pids = job.processes(node) if whole else [job.agent_of(node)]
        job.freeze(pids)
        return lambda: job.thaw(pids)

    def start_two(self, **options):
        jobs = {True: self.cluster('1:3', '--max-restarts=1', name='whole', **options),
                False: self.cluster('1:3', '--max-restarts=1', name='agent', **options)}
        return jobs, {whole: job.start_all(*TRIO) for whole, job in jobs.items()}

    def test_shorter_than_the_lease(self):
        jobs, before = self.start_two(lease=BLINK_LEASE)
        go_on = [self.stop(job, 'n2', whole) for whole, job in jobs.items()]
        time.sleep(BLINK_S)
        for each in go_on:
            each()
        for whole, job in jobs.items():
            self.assert_went_on(job, before[whole])
            job.end(*TRIO)

    def test_longer_than_the_lease(self):
        """The others go on; the guard has ended the workers of an agent that is stopped alone. What
        wakes up must see that it is lost before it does anything, and joins anew."""
        jobs, before = self.start_two(lease=SHORT_LEASE)
        go_on = {whole: self.stop(job, 'n2', whole) for whole, job in jobs.items()}
        without = {}
        for whole, job in jobs.items():
            without[whole] = job.running('n1', 'n3', after=before[whole].number)
        self.assertFalse(any(map(is_alive, jobs[False].workers_of('n2', before[False]))))
        for whole, job in jobs.items():
            go_on[whole]()
        for whole, job in jobs.items():
            job.running(*TRIO, after=without[whole].number)
            job.end(*TRIO)

    def stop_agent_and_guard(self, job):
        before = job.start_all(*TRIO)
        pids = [job.agents['n2'].pid, job.agent_of('n2')]
        job.freeze(pids)
        after = job.running('n1', 'n3', after=before.number)
        return pids, job.workers_of('n2', before), after

    def test_the_agent_and_its_guard(self):
        """Workers in a world of libddpcomm end themselves before their ranks are given away."""
        job = self.cluster('1:3', lease=SHORT_LEASE, program=probe('node_comm'))
        pids, workers, after = self.stop_agent_and_guard(job)
        self.assertFalse(any(map(is_alive, workers)))
        job.thaw(pids)
        job.running(*TRIO, after=after.number)
        job.end(*TRIO)

    def test_the_agent_and_its_guard_with_other_workers(self):
        """They run on beside the next generation until the agent continues: KILL-MATRIX says so."""
        job = self.cluster('1:3', lease=SHORT_LEASE)
        pids, workers, after = self.stop_agent_and_guard(job)
        self.assertTrue(all(map(is_alive, workers)))
        job.thawed.update(dict.fromkeys(workers, time.monotonic_ns()))  # from here on check() excuses them
        job.thaw(pids)
        job.running(*TRIO, after=after.number)
        self.assertFalse(any(map(is_alive, workers)))
        job.end(*TRIO)

    def test_the_agent_of_workers_without_a_first_thread(self):
        """To the kernel they are zombies, and still they are ended in time."""
        job = self.cluster('1:3', lease=SHORT_LEASE, mode=['headless'])
        before = job.start_all(*TRIO)
        go_on = self.stop(job, 'n2', whole=False)
        after = job.running('n1', 'n3', after=before.number)
        self.assertFalse(any(map(is_alive, job.workers_of('n2', before))))
        go_on()
        job.running(*TRIO, after=after.number)
        job.end(*TRIO)


class SlowStarts(NodesCase):
    """To execute the program takes long. Nobody is lost by that, and no rank runs twice."""

    NPROC = 8
    PAUSE = SHORT_LEASE / NPROC + 0.2 # for each worker; all of a node's together take longer than the lease

    def setUp(self):
        super().setUp()
        self.store()
        self.program = self.folder / 'slow_node'
        shutil.copy(probe('node'), self.program)
        self.slow = {} # node -> seconds
        try:
            scanner = Scanner(self.program, self.seconds)
        except NotPermitted as fault:
            self.skipTest(str(fault))
        self.addCleanup(scanner.close)

    def seconds(self, pid):
        try:
            words = Path(f'/proc/{pid}/environ').read_bytes().split(b'\0')
        except OSError:
            return 0
        return next((self.slow.get(word[11:].decode(), 0) for word in words
                     if word.startswith(b'PROBE_NODE=')), 0)

    def assert_nobody_is_lost(self, job, *nodes):
        """All start, and start again, and nothing but the failures of workers ends a generation."""
        first = job.start_all(*nodes)
        self.assertEqual(first.number, 1, job.tell())
        job.fail(first, 0)
        self.assertEqual(job.running(*nodes, after=1).number, 2, job.tell())
        job.end(*nodes)

    def test_all_workers_together_take_longer_than_the_lease(self):
        self.slow = {'n1': self.PAUSE, 'n2': self.PAUSE}
        job = self.cluster('2', '--max-restarts=2', lease=SHORT_LEASE, nproc=self.NPROC, program=self.program)
        self.assert_nobody_is_lost(job, 'n1', 'n2')

    def test_one_worker_takes_longer_than_the_lease(self):
        self.slow = {'n2': SHORT_LEASE + 1}
        job = self.cluster('2', '--max-restarts=2', lease=SHORT_LEASE, nproc=1, program=self.program)
        self.assert_nobody_is_lost(job, 'n1', 'n2')

    def test_the_agent_is_stopped_while_it_starts_them(self):
        """For longer than the lease, with one of them half started: none may live when the ranks are
        given away, nor begin when the agent goes on."""
        self.slow = {'n2': self.PAUSE}
        job = self.cluster('1:2', lease=SHORT_LEASE, nproc=self.NPROC, program=self.program)
        job.settle = '10m'
        for node in ('n1', 'n2'):
            job.start(node)
        number = 0
        for _ in range(2):
            job.wait_for(lambda: sum(record.generation > number and record.node == 'n2'
                                     for record in job.records()) >= 2, 'the first workers of n2')
            agent = job.agent_of('n2')
            job.freeze([agent])
            number = job.running('n1', after=number).number
            job.thaw([agent])
        job.running('n1', 'n2', after=number)
        job.end('n1', 'n2')

    def test_a_signal_while_they_start(self):
        """It ends those that run and the one that is being started; the others never are."""
        self.slow = {'n1': self.PAUSE}
        job = self.cluster('1:2', at_least=1, nproc=self.NPROC, program=self.program)
        job.start('n1')
        wait_until(lambda: len(job.records()) >= 2, 'the first workers')
        job.agents['n1'].signal(signal.SIGTERM)
        job.expect('n1', 143)
        self.assertLess(len(job.records()), self.NPROC)


FIVE = ('n1', 'n2', 'n3', 'n4', 'n5')
CUT_LEASE = os.environ.get('DDPRUN_CUT_LEASE', SHORT_LEASE)


class Wired(WiredCase, GoesOn):
    """Five nodes and the store, each in a network namespace; any cable can be cut."""

    @classmethod
    def make_wires(cls):
        return Wires(['store', *FIVE])

    def setUp(self):
        super().setUp()
        self.token('make')

    def assert_gone_before(self, job, node, before, after):
        """The workers of a node that cannot be heard end before their ranks are somebody else's."""
        ended = max(record.alive for record in job.records()
                    if record.node == node and record.generation == before.number)
        started = min(record.start for record in after.ranks.values())
        self.assertLess(ended, started)
        self.assertFalse(any(map(is_alive, job.workers_of(node, before))))


class Cables(Wired):
    """The store is in a place of its own."""

    def setUp(self):
        super().setUp()
        self.store(node='store', port=29400)

    def stat(self, name):
        command = self.wires.enter('store', [DDPCTL, 'store', f'--endpoint={self.endpoint}', '--json', 'stats'])
        return json.loads(subprocess.run(command, env=self.env, check=True, capture_output=True).stdout)[name]

    def sessions(self):
        """How many nodes the store counts on."""
        return self.stat('sessions')

    def test_agents_and_nodes_are_killed(self):
        job = self.cluster('2:5')
        before = job.start_all(*FIVE)
        self.assertEqual(order(before), list(FIVE))
        job.kill_agent('n2')
        after = job.running('n1', 'n3', 'n4', 'n5', after=before.number)
        job.expect('n2', 137)
        job.kill_node('n4')
        after = job.running('n1', 'n3', 'n5', after=after.number)
        job.expect('n4', -9)
        job.start('n2') # it comes back, and goes to the end of the line
        after = job.running('n1', 'n3', 'n5', 'n2', after=after.number)
        self.assertEqual(order(after), ['n1', 'n3', 'n5', 'n2'])
        job.end('n1', 'n2', 'n3', 'n5')

    def test_the_node_of_rank_0_is_replaced(self):
        """Workers that bring a rendezvous of their own are told where rank 0 is now, old and new."""
        job = self.cluster('3', env={'TORCH_DISABLE_SHARE_RDZV_TCP_STORE': '1'})
        before = job.start_all(*TRIO)
        self.assertTrue(before.ranks[0].master.startswith(self.wires.address_of('n1') + ':'))
        job.kill_node('n1')
        job.expect('n1', -9)
        job.start('n4')
        after = job.running('n2', 'n3', 'n4', after=before.number)
        self.assertTrue(after.ranks[0].master.startswith(self.wires.address_of('n2') + ':'))
        job.end('n2', 'n3', 'n4')

    def test_power_failure(self):
        """No kernel is left to close a connection."""
        job = self.cluster('2:5', lease=SHORT_LEASE)
        before = job.start_all(*FIVE)
        self.wires.cut('n1')
        job.kill_node('n1')
        after = job.running(*FIVE[1:], after=before.number)
        self.assertEqual(order(after), list(FIVE[1:]))
        job.expect('n1', -9)
        job.end(*FIVE[1:])

    def test_a_cable_is_cut_and_mended(self):
        """An eighth of the lease is what a machine may keep a node, agent and guard, from running."""
        job = self.cluster('2:5', lease=CUT_LEASE)
        before = job.start_all(*FIVE)
        self.wires.cut('n3')
        began = time.monotonic()
        after = job.running('n1', 'n2', 'n4', 'n5', after=before.number)
        print(f'--lease={CUT_LEASE}: the others ran {time.monotonic() - began:.2f} s after the cut')
        self.assert_gone_before(job, 'n3', before, after)
        self.wires.heal('n3')
        after = job.running('n1', 'n2', 'n4', 'n5', 'n3', after=after.number)
        self.assertEqual(order(after), ['n1', 'n2', 'n4', 'n5', 'n3'])
        job.end(*FIVE)

    def test_a_cable_is_loose(self):
        """For less than the lease: nothing happens."""
        job = self.cluster('2:5', '--max-restarts=1', lease=BLINK_LEASE)
        before = job.start_all(*FIVE)
        self.wires.cut('n1', 'n5')
        time.sleep(BLINK_S)
        self.wires.heal('n1', 'n5')
        self.assert_went_on(job, before)
        job.end(*FIVE)

    def test_a_minority_is_cut_off(self):
        """It cannot go on by itself, although it is as many as MIN."""
        job = self.cluster('2:5', lease=SHORT_LEASE)
        before = job.start_all(*FIVE)
        self.wires.part('n4', 'n5')
        after = job.running('n1', 'n2', 'n3', after=before.number)
        for node in ('n4', 'n5'):
            self.assert_gone_before(job, node, before, after)
        self.assertEqual({record.generation for record in job.records() if record.node in ('n4', 'n5')},
                         {before.number})
        self.wires.heal('n4', 'n5')
        job.running(*FIVE, after=after.number)
        job.end(*FIVE)

    def test_the_store_is_cut_off(self):
        """Nobody may run, and all go on when it is back."""
        job = self.cluster('2:5', lease=SHORT_LEASE)
        before = job.start_all(*FIVE)
        self.wires.cut('store')
        wait_until(lambda: not any(is_alive(record.pid) for record in before.ranks.values()),
                   'the end of the workers')
        wait_until(lambda: self.sessions() == 0, 'the store to give up all nodes')
        self.wires.heal('store')
        job.running(*FIVE, after=before.number)
        job.end(*FIVE)

    def test_a_client_that_waits_loses_its_store(self):
        """Nobody but its kernel tells it that the machine of the store is gone. ddpctl does not connect again."""
        command = self.wires.enter('n1', [DDPCTL, 'store', f'--endpoint={self.endpoint}', '--timeout=1h', 'wait', 'key'])
        client = self.start(*command[1:], program=command[0])
        wait_until(lambda: self.stat('waits') == 1, 'the client')
        self.wires.cut('store')
        client.wait()
        self.assertEqual(client.code, UNREACHABLE)
        self.assertIn('Connection timed out', client.err)

    def test_a_node_is_stopped(self):
        """All of it, for a little longer than the lease. When it wakes up, in any order, it may not
        do a thing for its old ranks; nor may the guard, late, do something to its new ones."""
        job = self.cluster('2:5', lease=SHORT_LEASE)
        after = job.start_all(*FIVE)
        for in_order_of in (iter, reversed):
            pids = job.processes('n2')
            job.freeze(pids)
            after = job.running('n1', 'n3', 'n4', 'n5', after=after.number)
            job.thaw(in_order_of(pids))
            after = job.running('n1', 'n3', 'n4', 'n5', 'n2', after=after.number)
        job.end(*FIVE)

    def test_a_node_joins_twice(self):
        """Two agents on one machine are two members; the job loses only the one that is lost."""
        job = self.cluster('2:5')
        before = job.start_all('n1', 'n2')
        job.start('n2-again', host='n2')
        after = job.running('n1', 'n2', 'n2-again', after=before.number)
        job.kill_agent('n2')
        after = job.running('n1', 'n2-again', after=after.number)
        job.expect('n2', 137)
        job.end('n1', 'n2-again')

    def test_a_node_restarts_while_it_is_still_a_member(self):
        """Its power fails, and it is back before the lease is over: the old one is lost as if it had
        never come back."""
        job = self.cluster('2:3', lease=SHORT_LEASE)
        before = job.start_all(*TRIO)
        self.wires.cut('n2')
        job.kill_node('n2')
        job.expect('n2', -9)
        self.wires.heal('n2')
        job.start('n2')
        job.running(*TRIO, after=before.number)
        job.end(*TRIO)


class Hosts(Wired):
    """A node has the store."""

    def setUp(self):
        super().setUp()
        self.endpoint = f'{self.wires.address_of("n1")}:29400'

    def test_it_loses_its_cable(self):
        """It is a minority of one with the store: the others' workers end, and its own, too few for
        MIN, wait."""
        job = self.cluster('2:5', lease=SHORT_LEASE)
        before = job.start_all(*FIVE)
        self.wires.cut('n1')
        wait_until(lambda: not any(is_alive(record.pid) for record in before.ranks.values()),
                   'the end of all workers')
        self.wires.heal('n1')
        job.running(*FIVE, after=before.number)
        job.end(*FIVE)

    def test_it_leaves(self):
        """Its workers end, and the others', but the store stays until they have gone."""
        job = self.cluster('2:5', at_least=2)
        before = job.start_all(*FIVE)
        job.agents['n1'].signal(signal.SIGTERM)
        job.running(*FIVE[1:], after=before.number)
        job.agents['n1'].read_until('this node hosts the store and waits for the other nodes (4) to leave')
        job.end(*FIVE[1:])
        job.expect('n1', 143)


if __name__ == '__main__':
    unittest.main()
