"""attack_ranks.py - what strangers try with the ranks of a job: to pass for one, to freeze one, to take its places."""

import array
import os
import re
import shutil
import socket
import struct
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / 'lib'))
from ddprun_run import DDPRUN, probe
from ddprund_run import DdprundCase
from strangers import as_stranger, needs_strangers

SHM, PEER = 1, 1
JOIN_KIND, JOIN = 4, 2


def open_files(pid):
    """What the descriptors of @pid are; some may be closed meanwhile."""
    found = set()
    for name in os.listdir(f'/proc/{pid}/fd'):
        try:
            found.add(os.readlink(f'/proc/{pid}/fd/{name}'))
        except OSError:
            pass
    return found


def local_names(pid):
    """The abstract names on which process @pid listens."""
    inodes = open_files(pid)
    with open('/proc/net/unix', encoding='ascii', errors='replace') as file:
        rows = [line.split() for line in file.readlines()[1:]]
    return sorted({row[7][1:] for row in rows
                   if len(row) == 8 and row[7].startswith('@ddprun-') and f'socket:[{row[6]}]' in inodes})


def tcp_ports(pid):
    """The IPv4 ports on which process @pid listens."""
    inodes = open_files(pid)
    with open(f'/proc/{pid}/net/tcp', encoding='ascii') as file:
        rows = [line.split() for line in file.readlines()[1:]]
    return [int(row[1].split(':')[1], 16) for row in rows if row[3] == '0A' and f'socket:[{row[9]}]' in inodes]


def call_local(name):
    sock = socket.socket(socket.AF_UNIX)
    sock.connect('\0' + name)
    return sock


def call_tcp(port):
    sock = socket.socket()
    sock.connect(('127.0.0.1', port))
    return sock


def all_that_comes(sock):
    """What the other side says until it hangs up: hexadecimal digits."""
    data = b''
    try:
        while piece := sock.recv(4096):
            data += piece
    except ConnectionError:
        pass
    return data.hex()


def says_something(sock):
    try:
        return sock.recv(1) != b''
    except ConnectionError:
        return False


def lingering():
    """A socket whose last close() takes an hour."""
    listener = socket.socket()
    listener.bind(('127.0.0.1', 0))
    listener.listen(1)
    sock = call_tcp(listener.getsockname()[1])
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 3600))
    sock.setblocking(False)
    try:
        while True:
            sock.send(bytes(1 << 16))
    except BlockingIOError:
        return listener, sock


class Ranks(DdprundCase):
    def setUp(self):
        super().setUp()
        self.go = self.folder / 'go'
        self.folder.chmod(0o755)

    def meet(self, *words, program=None, env=None):
        """A job of two ranks that stand in a ring; its pids by rank."""
        program = program or [probe('ranks')]
        job = self.start('--nproc-per-node=2', '--no-prefix', *words, *program, self.go, env=env)
        job.read_until(' is process ', 2)
        pids = {int(rank): int(pid) for rank, pid in re.findall(r'rank (\d) is process (\d+)', job.out)}
        self.assertEqual(sorted(pids), [0, 1])
        return job, pids

    def let_go(self, job):
        """The ranks end, and have heard nobody but each other."""
        seen = job.out.count('turn ')
        job.read_until('turn ', seen + 2)
        self.go.touch()
        self.assertEqual(job.wait(), 0, job.err)
        found = re.search(r'received (\d+), descriptors before (\d+), now (\d+)', job.out)
        self.assertEqual(found[1], '4711', job.out)
        return int(found[2]), int(found[3])

    @needs_strangers
    def test_nobody_else_asks_for_pmix(self):
        """A rank that does starts a server, and where there is none, as beside this copy, the job ends."""
        alone, late = self.folder / 'ddprun', self.folder / 'late'
        shutil.copy(DDPRUN, alone)
        os.mkfifo(late)
        job = self.start('--no-prefix', 'sh', '-c', f'echo at $PMIX_SERVER_URI2; read nothing <{late}', program=alone)
        job.read_until('at ')
        port = int(re.search(r'127\.0\.0\.1:(\d+)', job.out)[1])

        def knock():
            with call_tcp(port) as sock:
                sock.sendall(b'x')
                return all_that_comes(sock)
        self.assertEqual(as_stranger(knock), '')
        with call_tcp(port) as scan:  # of the user's own, without a word
            scan.shutdown(socket.SHUT_WR)
            self.assertEqual(all_that_comes(scan), '')
        late.write_text('\n')
        self.assertEqual(job.wait(), 0, job.err)

    @needs_strangers
    def test_nothing_that_others_can_read_lets_one_join(self):
        """The card in the store, as an observer reads it while rank 0 waits for the other one: 16 bytes of it
        were the secret. Nobody joins by it, and when all have met it is gone."""
        late = self.folder / 'late'
        os.mkfifo(late)
        words = ['--no-python', 'sh', '-c',
                 f'[ $RANK = 0 ] && echo store $DDPRUN_STORE $DDPRUN_STORE_PREFIX || read nothing <{late}; '
                 f'exec {probe("ranks")} "$1"', 'sh']
        job = self.start('--nproc-per-node=2', '--no-prefix', *words, self.go, env={'DDP_FORCE_TCP': '1'})
        job.read_until('store ')
        store, prefix = re.search(r'store (\S+) (\S+)', job.out).groups()
        self.done(store, 'wait', '--timeout=60s', f'{prefix}comm/world/host')
        card = self.done(store, 'get', f'{prefix}comm/world/host')
        secrets = [card[at:at + 16] for at in (12, 16, 20)]
        pid, = struct.unpack_from('<I', card, 12)
        port, = tcp_ports(pid)

        def attack():
            for secret in secrets:
                old, join = call_tcp(port), call_tcp(port)
                old.sendall(struct.pack('<4s3I', b'DDPG', 2, 1, PEER) + secret)
                old.shutdown(socket.SHUT_WR)
                join.sendall(struct.pack('<4s6I', b'DDPI', JOIN_KIND, JOIN, 1, 0, 1, 0) + secret + secret)
                challenge = join.recv(64, socket.MSG_WAITALL)
                join.sendall(challenge[32:])  # its own proof
                if says_something(old) or all_that_comes(join) != '' or len(challenge) != 64:
                    return 'let in'
            return 'sent away'
        self.assertEqual(as_stranger(attack), 'sent away')
        late.write_text('\n')
        job.read_until(' is process ', 2)
        self.assertNotIn('comm/', self.done(store, 'list', '').decode())
        self.let_go(job)

    @needs_strangers
    def test_another_user_is_not_heard(self):
        """Nor does he learn anything, whatever he says."""
        job, pids = self.meet()
        name, = local_names(pids[0])

        def attack():
            hello = struct.pack('<4s6I', b'DDPI', SHM, PEER, 1, 0, 1, 0) + bytes(32)
            told = []
            for words in (b'', hello, b'GET / HTTP/1.1\r\n\r\n'):
                sock = call_local(name)
                try:
                    sock.sendall(words)
                except ConnectionError:
                    pass
                told.append(all_that_comes(sock))
            return told
        self.assertEqual(as_stranger(attack), ['', '', ''])
        self.let_go(job)

    @needs_strangers
    def test_a_descriptor_that_lingers_freezes_nobody(self):
        job, pids = self.meet()
        name, = local_names(pids[0])

        kept = []  # until the stranger's process ends, which lingers for nobody

        def attack():
            for _ in range(3):
                listener, sock = lingering()
                connection = call_local(name)
                kept.extend([listener, sock])
                try:
                    connection.sendmsg([b'D'], [(socket.SOL_SOCKET, socket.SCM_RIGHTS,
                                                 array.array('i', [sock.fileno()]))])
                except OSError:
                    continue  # he may not send any; and to close it would be his own hour
                kept.pop().close()
                all_that_comes(connection)
        as_stranger(attack)
        self.let_go(job)

    @needs_strangers
    def test_silent_connections_do_not_stay(self):
        """More than there are places for; whoever is there longest has to go."""
        job, pids = self.meet(env={'DDP_FORCE_TCP': '1'})
        port, = tcp_ports(pids[0])

        def attack():
            socks = [call_tcp(port) for _ in range(108)]
            told = [all_that_comes(sock) for sock in socks[:44]]
            return len([words for words in told if words == ''])
        self.assertEqual(as_stranger(attack), 44)
        before, now = self.let_go(job)
        self.assertLess(now - before, 10)

    @needs_strangers
    def test_a_guess_is_no_proof(self):
        job, pids = self.meet(env={'DDP_FORCE_TCP': '1'})
        port, = tcp_ports(pids[0])

        def attack():
            for kind in (2, 3):
                sock = call_tcp(port)
                sock.sendall(struct.pack('<4s6I', b'DDPI', kind, PEER, 1, 0, 1, 0) + bytes(32))
                challenge = sock.recv(64, socket.MSG_WAITALL)
                sock.sendall(challenge[32:])  # its own proof
                if all_that_comes(sock) != '' or len(challenge) != 64:
                    return 'let in'
            return 'sent away'
        self.assertEqual(as_stranger(attack), 'sent away')
        self.let_go(job)

    @needs_strangers
    def test_a_rank_without_descriptors_goes_on(self):
        """As many connections as descriptors are left: none of them is worth a collective."""
        limited = ['--no-python', 'sh', '-c', f'ulimit -n 24; exec {probe("ranks")} "$1"', 'sh']
        job, pids = self.meet(program=limited, env={'DDP_FORCE_TCP': '1'})
        port, = tcp_ports(pids[0])
        socks = as_stranger_holding(self, port, 100)
        self.addCleanup(socks)
        seen = job.out.count('turn ')
        job.read_until('turn ', seen + 3)
        socks()
        self.let_go(job)


def as_stranger_holding(case, port, count):
    """A process of a stranger that holds @count connections to @port, until the answer is called."""
    reader, writer = os.pipe()
    ready, done = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(writer)
            os.setgroups([])
            os.setresgid(65534, 65534, 65534)
            os.setresuid(65534, 65534, 65534)
            socks = [call_tcp(port) for _ in range(count)]
            os.write(done, b'%d' % len(socks))
            os.read(reader, 1)
        finally:
            os._exit(0)
    os.close(reader)
    os.close(done)
    case.assertEqual(os.read(ready, 16), b'%d' % count)
    os.close(ready)
    state = {'open': True}

    def end():
        if state.pop('open', False):
            os.close(writer)
            os.waitpid(pid, 0)
    return end
