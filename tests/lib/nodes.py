"""nodes.py - several nodes on one machine: agents of ddprun, the store, and the wires between them.

On loopback nodes are nothing but processes. In network namespaces (root, and `ip netns`) each has an
address and a cable of its own, which can be cut without a word to anybody; the store has one too.
Workers are probe_node, whose records say afterwards who ran when: check_records() finds two of one
rank, and workers of a generation that were still there when the next had begun.
"""

import atexit
import contextlib
import ctypes
import os
import random
import re
import signal
import socket
import struct
import subprocess
import threading
import time
import unittest
from collections import namedtuple

from ddprun_run import DDPRUN, kill_all, probe, wait_until
from ddprund_run import DDPRUND, DdprundCase
from proc_tree import descendants

UNREACHABLE, TRY_AGAIN, CRASH_LOOP = 69, 75, 93
# Seconds, the same for all nodes of a job. Nobody is lost by the long one but who died with something unread, of which
# its kernel tells by a reset. A job in which nothing else tells that a node is lost has the short one. A node that
# lives says a word many times within it, on a busy machine too.
LEASE, SHORT_LEASE = 60, 8

Record = namedtuple('Record', 'generation rank world node master pid start alive')
Generation = namedtuple('Generation', 'number ranks') # rank -> Record


def state_of(pid):
    """The kernel's letter; X for those that are not there."""
    try:
        with open(f'/proc/{pid}/stat', encoding='ascii', errors='replace') as file:
            return file.read().rpartition(')')[2].split()[0]
    except OSError:
        return 'X'


def is_alive(pid):
    """It can run: a zombie cannot, unless nothing but its first thread has ended."""
    state = state_of(pid)
    if state != 'Z':
        return state != 'X'
    try:
        return len(os.listdir(f'/proc/{pid}/task')) > 1
    except OSError:
        return False


def may_unshare(*flags):
    """Whether namespaces of these kinds, flags of unshare(1), may be made here."""
    try:
        return subprocess.run(['unshare', *flags, 'true'], capture_output=True, check=False).returncode == 0
    except OSError:
        return False


# ---- wires ------------------------------------------------------------------------------------

class Loopback:
    """No wires: everything is on 127.0.0.1."""

    cables = False

    def __init__(self):
        self.address = '127.0.0.1'

    def enter(self, name, words):
        """The command by which @words run on node @name."""
        return words

    def address_of(self, name):
        return self.address

    def close(self):
        pass


class NotPermitted(Exception):
    pass


class Tap:
    """What passes the switch, on all of its ports. The kernel keeps it until it is asked for."""

    ETH_P_ALL, SOL_PACKET, PACKET_STATISTICS, SO_RCVBUFFORCE = 3, 263, 6, 33
    MOST = 256 << 20

    def __init__(self, opened):
        self.socket = opened
        opened.setsockopt(socket.SOL_SOCKET, self.SO_RCVBUFFORCE, self.MOST)
        opened.setblocking(False)
        self.seen = bytearray()

    def saw(self, secret):
        """Whether a packet had @secret in it; none has gone by unseen."""
        try:
            while True:
                self.seen += self.socket.recv(1 << 17) + bytes(1)
        except BlockingIOError:
            pass
        lost = self.socket.getsockopt(self.SOL_PACKET, self.PACKET_STATISTICS, 8)
        if struct.unpack('II', lost)[1]:
            raise AssertionError('the kernel has dropped packets of the tap')
        return secret in self.seen

    def close(self):
        self.socket.close()


class Wires:
    """A namespace for each node, and one for a switch with two halves. Their names bear our pid, so
    that those of a test that was killed can be found, and removed by the next."""

    PREFIX = 'ddpn'
    NETWORK = '10.99.0'
    SWITCH = 'sw'
    cables = True

    def __init__(self, nodes):
        self.made = []
        self.numbers = {name: number for number, name in enumerate(nodes, 1)}
        self._remove_leftovers()
        atexit.register(self.close)
        try:
            self._build(nodes)
        except (OSError, subprocess.CalledProcessError) as fault:
            self.close()
            detail = getattr(fault, 'stderr', None) or str(fault)
            raise NotPermitted(f'network namespaces cannot be made here: {detail.strip()}') from fault

    @staticmethod
    def _ip(*words, given=None):
        subprocess.run(['ip', *words], input=given, check=True, capture_output=True, text=True)

    def _name(self, node):
        return f'{self.PREFIX}{os.getpid()}-{node}'

    def _remove_leftovers(self):
        if not os.path.isdir('/run/netns'):
            return
        for name in os.listdir('/run/netns'):
            match = re.fullmatch(rf'{self.PREFIX}(\d+)-\w+', name)
            if match and not os.path.exists(f'/proc/{match[1]}'):
                subprocess.run(['ip', 'netns', 'delete', name], check=False, capture_output=True)

    def _build(self, nodes):
        for node in (self.SWITCH, *nodes):
            self._ip('netns', 'add', self._name(node))
            self.made.append(node)
        # With addresses of their own: they would take the lowest of their ports', which come and go.
        switch = ['link add left address 02:99:00:00:00:01 type bridge',
                  'link add right address 02:99:00:00:00:02 type bridge', 'link set left up',
                  'link set right up']
        for node in nodes:
            switch += [f'link add {node} type veth peer name eth0 netns {self._name(node)}',
                       f'link set {node} master left', f'link set {node} up']
        self._switch(*switch)
        for node in nodes:
            self._ip('-n', self._name(node), '-batch', '-',
                     given=f'link set lo up\naddress add {self.address_of(node)}/24 dev eth0\n'
                           'link set eth0 up\n')

    def _switch(self, *lines):
        self._ip('-n', self._name(self.SWITCH), '-batch', '-', given='\n'.join(lines) + '\n')

    def address_of(self, node):
        return f'{self.NETWORK}.{self.numbers[node]}'

    def enter(self, node, words):
        """In its namespace, and with a host name of its own."""
        return ['nsenter', f'--net=/run/netns/{self._name(node)}', 'unshare', '--uts', 'sh', '-c',
                'hostname "$0" && exec "$@"', node, *words]

    def tap(self):
        """Listen at the switch. A socket is of the namespace that its thread was in."""
        opened = []

        def enter():
            with open(f'/run/netns/{self._name(self.SWITCH)}', encoding='ascii') as switch:
                if ctypes.CDLL(None).setns(switch.fileno(), 0) == 0:
                    opened.append(socket.socket(socket.AF_PACKET, socket.SOCK_RAW,
                                                socket.htons(Tap.ETH_P_ALL)))
        thread = threading.Thread(target=enter)
        thread.start()
        thread.join()
        return Tap(opened[0])

    def cut(self, *nodes):
        """The switch's ports go down: what is sent is lost without a word."""
        self._switch(*[f'link set {node} down' for node in nodes])

    def part(self, *nodes):
        """These are on the other half of the switch, with each other alone."""
        self._switch(*[f'link set {node} master right' for node in nodes])

    def heal(self, *nodes):
        self._switch(*[line for node in nodes or self.numbers
                       for line in (f'link set {node} master left', f'link set {node} up')])

    def close(self):
        while self.made:
            subprocess.run(['ip', 'netns', 'delete', self._name(self.made.pop())], check=False,
                           capture_output=True)
        atexit.unregister(self.close)


class TwoNetworks(Wires):
    """Two networks: on the first, which has the default route, the nodes reach the store alone; on the second, each
    other."""

    def second_address_of(self, node):
        return f'10.98.0.{self.numbers[node]}'

    def _build(self, nodes):
        super()._build(nodes)
        for node in nodes:
            self._switch(f'link add {node}-2 type veth peer name eth1 netns {self._name(node)}',
                         f'link set {node}-2 master right', f'link set {node}-2 up',
                         f'link set {node} type bridge_slave isolated {"off" if node == "store" else "on"}')
            self._ip('-n', self._name(node), '-batch', '-',
                     given=f'address add {self.second_address_of(node)}/24 dev eth1\nlink set eth1 up\n'
                           'route add default via 10.99.0.254\n')


class DebianNames(Wires):
    """/etc/hosts as Debian's installer leaves it, and the other nodes: the own name of each is 127.0.1.1; or, with @own
    None, its address, as where names come from a server."""

    def __init__(self, nodes, folder, own='127.0.1.1'):
        super().__init__(nodes)
        for node in nodes:
            self._ip('-n', self._name(node), 'route', 'add', 'default', 'via', f'{self.NETWORK}.254')
            names = [f'{own if own and name == node else self.address_of(name)} {name}' for name in nodes]
            (folder / node).write_text('\n'.join(['127.0.0.1 localhost alias', *names, '']))
        self.folder = folder

    def enter(self, node, words):
        """With a file of its own at /etc/hosts, that nobody else sees."""
        return ['nsenter', f'--net=/run/netns/{self._name(node)}', 'unshare', '--uts', '--mount', 'sh', '-c',
                'hostname "$0" && mount --bind "$1" /etc/hosts && shift && exec "$@"', node,
                str(self.folder / node), *words]

    def give_address(self, node, address):
        """One more, such as that of a service."""
        self._ip('-n', self._name(node), 'address', 'add', f'{address}/24', 'dev', 'eth0')

    def move(self, node, address):
        """It has this one instead of its own, and all know."""
        self._ip('-n', self._name(node), 'address', 'del', f'{self.address_of(node)}/24', 'dev', 'eth0')
        self.give_address(node, address)
        for name in self.numbers:
            path = self.folder / name # it is changed, and not replaced: the nodes have it mounted
            path.write_text(path.read_text().replace(f'{self.address_of(node)} ', f'{address} '))


# ---- jobs -------------------------------------------------------------------------------------

class Cluster:
    """One job: its agents by name, the directory with its workers' records."""

    def __init__(self, case, name, nnodes, *words, nproc=2, mode=(), at_least=2,
                 env=None, lease=LEASE, program=None):
        """@at_least: generations, or the test has proved too little."""
        self.case, self.name, self.nnodes, self.nproc = case, name, nnodes, nproc
        self.words, self.mode, self.lease = words, mode, lease
        self.program = program or probe('node')
        self.settle = '300ms'
        self.records_dir = case.folder / f'records-{name}'
        self.records_dir.mkdir()
        self.env = env or {}
        self.agents = {}
        self.thawed = {} # pid -> when, in nanoseconds
        self.at_least = at_least

    def start(self, node, *words, host=None):
        """An agent on @node; a second one of that name takes the first one's place here."""
        command = [DDPRUN, f'--nnodes={self.nnodes}', f'--nproc-per-node={self.nproc}',
                   f'--rdzv-id={self.name}', f'--rdzv-endpoint={self.case.endpoint}',
                   f'--settle={self.settle}', f'--lease={self.lease}', '--failure-timeout=300ms',
                   '--log-dir=/dev/null', *self.words, *words,
                   self.program, self.records_dir, *self.mode]
        command = self.case.wires.enter(host or node, [str(word) for word in command])
        self.agents[node] = self.case.start(*command[1:], program=command[0],
                                            env={'PROBE_NODE': node, **self.env})
        return self.agents[node]

    def start_all(self, *nodes):
        """At once, so that the first generation is of all of them, in their order, if the job is
        complete with them."""
        if len(nodes) == int(self.nnodes.split(':')[-1]):
            self.settle = '10m'
        for node in nodes:
            self.start(node)
        return self.running(*nodes)

    def records(self):
        found = []
        for path in self.records_dir.iterdir():
            text = path.read_text() if path.name[0].isdigit() else ''
            words = text.replace(': ', ':').split()
            if len(words) == len(Record._fields):
                numbers = [word if field in ('node', 'master') else int(word)
                           for field, word in zip(Record._fields, words)]
                found.append(Record(*numbers))
        return found

    def running(self, *nodes, after=0):
        """The generation behind @after that runs with exactly these @nodes, once all of its workers
        do."""
        def look():
            ended = [node for node in nodes if self.agents[node].process.poll() is not None]
            if ended:
                raise AssertionError(f'{ended} ended before a generation after {after} on {nodes}\n{self.tell()}')
            by_rank = {}
            records = self.records()
            number = max((record.generation for record in records), default=0)
            for record in records:
                if record.generation == number and is_alive(record.pid):
                    by_rank[record.rank] = record
            world = {record.world for record in by_rank.values()}
            if number > after and world == {len(by_rank)} and \
                    {record.node for record in by_rank.values()} == set(nodes):
                return Generation(number, by_rank)
            self.collect()
            return None
        return self.wait_for(look, f'a generation after {after} on {nodes}')

    def collect(self):
        for agent in self.agents.values():
            if agent.open:
                agent.collect(0)

    def wait_for(self, condition, what):
        """As wait_until(), which tells what the agents said and the workers recorded, too."""
        return wait_until(condition, lambda: f'{what}\n{self.tell()}')

    def tell(self):
        self.collect()
        return '\n'.join(f'--- {node}\n{agent.err}' for node, agent in self.agents.items()) + \
            '\n' + '\n'.join(map(str, sorted(self.records())))

    def processes(self, node):
        """Guard, agent and all below."""
        return [self.agents[node].pid, *(process.pid for process in descendants(self.agents[node].pid))]

    def agent_of(self, node):
        return self.agents[node].agent()

    def workers_of(self, node, generation):
        return [record.pid for record in generation.ranks.values() if record.node == node]

    def kill_agent(self, node):
        os.kill(self.agent_of(node), signal.SIGKILL)

    def kill_node(self, node):
        """As if its power had failed: all at the same time, nobody has time to say something."""
        pids = []
        while (found := self.processes(node)) != pids: # until none can fork any more
            pids = found
            self.freeze(pids)
            wait_until(lambda: all(state_of(pid) in 'TZX' for pid in pids), 'all to stop')
        kill_all(reversed(pids)) # an agent without a guard is continued by the kernel

    def freeze(self, pids):
        kill_all(pids, signal.SIGSTOP)

    def thaw(self, pids):
        """Workers among them that were stopped are back at once; nobody can prevent that they run,
        besides a generation that has begun meanwhile, until their agent or guard, back at the same
        time, ends them; which is before the next one begins."""
        for pid in pids:
            self.thawed[pid] = time.monotonic_ns()
            kill_all([pid], signal.SIGCONT)

    def end(self, *nodes):
        """Let the workers end well; the agents do as well. All are read together: workers whose output
        is not taken cannot end, and the other nodes wait for them."""
        (self.records_dir / 'end').touch()
        def ended():
            self.collect()
            return not any(self.agents[node].open for node in nodes)
        self.wait_for(ended, f'the end of {nodes}')
        for node in nodes:
            self.expect(node, 0)

    def fail(self, generation, rank):
        (self.records_dir / f'fail-{generation.number}-{rank}').touch()

    def expect(self, node, code, *texts):
        """@node's agent ends with @code, having said @texts, and leaves nothing behind."""
        agent = self.agents[node]
        agent.wait()
        self.case.assertEqual(agent.code, code, f'{node}:\n{agent.err}')
        for text in texts:
            self.case.assertIn(text, agent.err)
        agent.wait_gone()

    def check(self):
        """The invariants, of all that has run."""
        records = sorted(self.records(), key=lambda record: record.start)
        fail = self.case.fail
        seats, first_start, masters = {}, {}, {}
        for record in records:
            seat = record.generation, record.rank
            if seat in seats:
                fail(f'two workers had rank and generation: {seats[seat]}, {record}')
            seats[seat] = record
            first_start.setdefault(record.generation, record.start)
            if masters.setdefault(record.generation, record.master) != record.master:
                fail(f'workers of one generation are to meet at {masters[record.generation]}, and: '
                     f'{record}')
        begun = sorted(first_start, key=first_start.get)
        self.case.assertEqual(begun, sorted(begun), f'generations do not grow\n{self.tell()}')
        for record in records:
            for number, start in first_start.items():
                behind = number > record.generation and start >= self.thawed.get(record.pid, 0)
                if behind and record.alive > start:
                    fail(f'{record} ran {(record.alive - start) / 1e6:.1f} ms into generation '
                         f'{number}\n{self.tell()}')
        self.case.assertGreaterEqual(len(begun), self.at_least, 'too little has happened')


class NodesCase(DdprundCase):
    """A case with a store (self.endpoint) and jobs on self.wires."""

    wires = Loopback()

    def setUp(self):
        super().setUp()
        self.clusters = []
        # Before the processes are ended, so that what is found is the jobs' own doing.
        self.addCleanup(self._check_clusters)

    def _check_clusters(self):
        for cluster in self.clusters:
            cluster.check()

    def store(self, *words, node='store', port=0):
        """A ddprund, on @node."""
        address = self.wires.address_of(node)
        command = self.wires.enter(node, [DDPRUND, f'--listen={address}:{port}',
                                          '--log-level=warning', *map(str, words)])
        daemon = self.start(*command[1:], program=command[0])
        daemon.read_until('\n')
        self.endpoint = re.search(r'listening on (\S+)', daemon.out)[1]
        self.addCleanup(self._stop_store, daemon)
        return daemon

    @staticmethod
    def _stop_store(daemon):
        if daemon.process.poll() is None:
            daemon.signal(signal.SIGTERM)
            daemon.wait()

    def cluster(self, nnodes, *words, name='j', **options):
        cluster = Cluster(self, name, nnodes, *words, **options)
        self.clusters.append(cluster)
        return cluster


class WiredCase(NodesCase):
    """On wires of its class, whose cables can be cut; skipped where there can be none."""

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
        self.addCleanup(self.wires.heal)


def free_port():
    """A port that is free and stays so: below those that the kernel gives to the programs of other tests."""
    with open('/proc/sys/net/ipv4/ip_local_port_range', encoding='ascii') as limits:
        first = int(limits.read().split()[0])
    while True:
        port = random.randrange(1024, first)
        with socket.socket() as sock, contextlib.suppress(OSError):
            sock.bind(('', port))
            return port


def free_ports(count):
    """So many different ones."""
    ports = set()
    while len(ports) < count:
        ports.add(free_port())
    return list(ports)
