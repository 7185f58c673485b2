"""attack_store.py - what strangers try at the store's listeners, and with its port while it is down."""

import os
import socket
import struct
import subprocess
import sys
import threading
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / 'lib'))
from ddprun_run import wait_until
from ddprund_run import DDPCTL, DENIED, DdprundCase, connect, has_ipv6, own_address
from nodes import free_port
from strangers import STRANGER, as_stranger, needs_strangers, reachable

PREAMBLE = b'DDPS' + struct.pack('<HH', 3, 3)
HELLO, BYE = 1, 2
E_DENIED = 6


def frame(kind, payload, status=0):
    return struct.pack('<IBbHQ', len(payload), kind, status, 0, 0) + payload


def bye(status, text):
    return frame(BYE, struct.pack('<QI', 0, len(text)) + text, status)


# What it takes from clients is right; its proof, which it cannot know, is zero.
WELCOME = frame(HELLO, struct.pack('<IIIQ', 4096, 4096, 16, 1) + bytes(32))


class Impostor:
    """Has the store's port, says the same to all who come, and keeps what they said."""

    def __init__(self, port, words):
        self.words, self.heard, self.visits = words, b'', 0
        self.listener = socket.create_server(('127.0.0.1', port))
        self.port = self.listener.getsockname()[1]
        self.thread = threading.Thread(target=self.serve, daemon=True)
        self.thread.start()

    def serve(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            with client:
                self.answer(client)
            self.visits += 1

    def answer(self, client):
        try:
            client.sendall(self.words)
            while piece := client.recv(4096):
                self.heard += piece
        except OSError:
            pass

    def close(self):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.thread.join()


class Impostors(DdprundCase):
    """Whoever takes the port of a store that is down; a user's token is where it always is."""

    def setUp(self):
        super().setUp()
        self.token('make')

    def impostor(self, port, words):
        impostor = Impostor(port, words)
        self.addCleanup(impostor.close)
        return impostor

    def test_a_client_on_loopback_tells_an_impostor_nothing(self):
        for words in (PREAMBLE + WELCOME, PREAMBLE + frame(3, bytes(40)) + WELCOME):
            impostor = self.impostor(0, words)
            code, _, err = self.ctl(f'127.0.0.1:{impostor.port}', 'set', 'key', 'a secret')
            self.assertIn(code, (DENIED, 69), err)
            wait_until(lambda it=impostor: it.visits, 'its visit to end')
            self.assertNotIn(b'a secret', impostor.heard)

    def test_a_refusal_without_proof_ends_no_node(self):
        store, end = f'127.0.0.1:{free_port()}', self.folder / 'end'
        state = f'--state={self.folder}/state'
        daemon = self.serve(state, listen=store)
        node = self.start('--nnodes=1:2', '--settle=50ms', '--lease=10m', '--rdzv-id=train',
                          f'--rdzv-endpoint={store}', '--no-prefix', 'sh', '-c',
                          f'echo runs; until test -e {end}; do sleep 0.05; done')
        node.read_until('runs')
        os.kill(daemon.pid, 9)
        daemon.wait()
        impostor = Impostor(int(store.rpartition(':')[2]), PREAMBLE + bye(E_DENIED, b'denied'))
        wait_until(lambda: impostor.visits > 2 or not node.running(), 'the node to ask thrice')
        impostor.close()
        daemon = self.serve(state, listen=store)
        self.addCleanup(self.stop, daemon)
        node.read_until('again')
        end.touch()
        self.assertEqual(node.wait(), 0, node.err)
        self.assertEqual(node.out.count('runs'), 1, node.err)


PING = b'\0\xce\xf7\x85\x3c\x0dping' # PyTorch's VALIDATE, and PING with a number of four bytes


def greet(endpoint, source=None):
    """The status of the store's answer to a native client that proves nothing; None: it hangs up."""
    host, _, port = endpoint.rpartition(':')
    with socket.socket() as sock:
        if source:
            sock.bind((source, 0))
        sock.connect((host, int(port)))
        hello = struct.pack('<IBQI', 0, 0, 0, 0) + bytes(32) + struct.pack('<I', 0)
        sock.sendall(PREAMBLE + frame(HELLO, hello))
        answer = b''
        try:
            while len(answer) < 24 and (piece := sock.recv(4096)):
                answer += piece
        except ConnectionResetError:
            pass
        return struct.unpack_from('<b', answer, 13)[0] if len(answer) >= 24 else None


def ping(endpoint):
    """Whether the store serves a TCPStore client."""
    with connect(endpoint) as sock:
        try:
            sock.sendall(PING)
            return sock.recv(4) == b'ping'
        except ConnectionResetError:
            return False


class Access(DdprundCase):
    """Who is let in without a proof."""

    def serve_until_the_end(self, *words, **options):
        daemon = self.serve(*words, **options)
        self.addCleanup(self.stop, daemon)
        return daemon, daemon.endpoints[0]

    def test_the_user_himself(self):
        for words in ((), ('--trust-local-users',)):
            _, store = self.serve_until_the_end(*words)
            self.assertEqual((greet(store), ping(store)), (0, True))

    @needs_strangers
    def test_a_stranger_on_loopback(self):
        daemon, store = self.serve_until_the_end()
        self.assertEqual(as_stranger(lambda: (greet(store), ping(store))), [E_DENIED, False])
        daemon.read_until(f'user {STRANGER}')
        _, store = self.serve_until_the_end('--trust-local-users')
        self.assertEqual(as_stranger(lambda: (greet(store), ping(store))), [0, True])
        _, store = self.serve_until_the_end('--no-auth')
        self.assertEqual(as_stranger(lambda: (greet(store), ping(store))), [0, True])

    @needs_strangers
    @unittest.skipUnless(has_ipv6(), 'this machine has no IPv6')
    def test_a_stranger_on_loopback_of_ipv6(self):
        _, store = self.serve_until_the_end(listen='[::1]:0')
        self.assertTrue(ping(store))
        self.assertFalse(as_stranger(lambda: ping(store)))

    @needs_strangers
    def test_a_stranger_in_a_job_of_one_node(self):
        end = self.folder / 'end'
        job = self.start('--no-prefix', 'sh', '-c',
                         f'echo "at $DDPRUN_STORE"; until test -e {end}; do sleep 0.05; done')
        job.read_until('at 127')
        store = job.out.split()[1]
        self.assertTrue(ping(store))
        self.assertEqual(as_stranger(lambda: (greet(store), ping(store))), [E_DENIED, False])
        job.read_until(f'user {STRANGER}')
        end.touch()
        self.assertEqual(job.wait(), 0, job.err)

    @needs_strangers
    def test_a_stranger_with_the_token_proves_it(self):
        _, store = self.serve_until_the_end(f'--token-file={self.token("make")}')
        self.assertEqual(as_stranger(lambda: (greet(store), ping(store))), [E_DENIED, False])
        token = self.home / 'his'
        token.write_bytes((self.home / '.config/ddprun/token').read_bytes())
        token.chmod(0o600)
        os.chown(token, STRANGER, STRANGER)
        for folder in (self.folder, self.home):
            folder.chmod(0o755)
        command = [reachable(self, DDPCTL), 'store', f'--endpoint={store}', f'--token-file={token}', 'set', 'k', 'v']
        self.assertEqual(as_stranger(lambda: subprocess.call(command, env={'HOME': '/nowhere'})), 0)

    def test_a_local_address_is_no_person(self):
        """Who binds 127.0.0.1 can reach the store at its network address from there."""
        address = own_address()
        if address is None:
            self.skipTest('this machine has no address but those of loopback')
        _, store = self.serve_until_the_end(listen=f'{address}:0')
        for source in ('127.0.0.1', '127.1.2.3', address):
            self.assertEqual(greet(store, source), E_DENIED, source)

    @needs_strangers
    def test_failures_of_a_stranger_are_his_own(self):
        self.token('make')
        _, store = self.serve_until_the_end('--auth=always', '--connection-rate=1')

        def attack():
            answers = []
            while None not in answers and len(answers) < 1000:
                try:
                    answers.append(greet(store))
                except OSError: # turned away
                    answers.append(None)
            return len(answers)
        self.assertLess(as_stranger(attack), 1000)
        self.assertGreaterEqual(self.stats(store)['throttled'], 1)
        self.assertEqual(greet(store), E_DENIED) # which is an answer

    def test_an_agent_vouches_for_its_own_job(self):
        self.token('make')
        port = free_port()
        _, store = self.serve_until_the_end('--auth=always', f'--data-port=train=127.0.0.1:{port}',
                                            listeners=2)
        data = f'127.0.0.1:{port}'
        self.assertFalse(ping(data))
        end = self.folder / 'end'
        for name, served in (('other', False), ('train', True)):
            node = self.start('--nnodes=1:2', '--settle=50ms', f'--rdzv-id={name}', '--no-prefix',
                              f'--rdzv-endpoint={store}', 'sh', '-c',
                              f'echo runs; until test -e {end}-{name}; do sleep 0.05; done')
            node.read_until('runs')
            self.assertEqual(ping(data), served, name)
            (self.folder / f'end-{name}').touch()
            self.assertEqual(node.wait(), 0, node.err)


class Generations(DdprundCase):
    """What a worker leaves behind for those that come after it."""

    SCRIPT = ('put() { for key in "$@"; do $0 store --no-auth --prefix= set $key planted; done; }; '
              'case $TORCHELASTIC_RESTART_COUNT in '
              '0) put {0}g2/early {0}g3/earlier; exit 1 ;; '
              '*) echo "found <$($0 store --no-auth --prefix= list {0}g2/)>" ;; esac')

    def plant(self, prefix, *options):
        job = self.start('--max-restarts=1', '--no-prefix', *options, 'sh', '-c',
                         self.SCRIPT.replace('{0}', prefix), DDPCTL)
        self.assertEqual(job.wait(), 0, job.err)
        self.assertEqual(job.out, 'found <>\n', job.err)

    def test_a_job_of_one_node_begins_with_nothing(self):
        self.plant('')

    def test_a_job_of_several_too(self):
        self.plant('job/train/', '--nnodes=1:2', '--settle=50ms', '--rdzv-id=train',
                   f'--rdzv-endpoint=127.0.0.1:{free_port()}')


class Endpoints(DdprundCase):
    """No attack but an accident: a node that is started while the ddprund of this machine is down."""

    def setUp(self):
        super().setUp()
        self.store = f'127.0.0.1:{free_port()}'

    def node(self, *options):
        return self.start('--nnodes=1:2', '--settle=50ms', '--rdzv-id=train', '--no-prefix',
                          f'--rdzv-endpoint={self.store}', *options, 'echo', 'runs')

    def test_it_is_left_to_ddprund(self):
        state = f'--state={self.folder}/state'
        for end in (9, 15):
            daemon = self.serve(state, listen=self.store)
            daemon.signal(end)
            daemon.wait()
            node = self.node()
            node.read_until('is_host=true')
            daemon = self.serve(state, listen=self.store)
            self.assertEqual((node.wait(), node.out), (0, 'runs\n'), node.err)
            self.stop(daemon)

    def test_also_where_it_listens_everywhere(self):
        port = self.store.rpartition(':')[2]
        daemon = self.serve(listen=f'0.0.0.0:{port}')
        daemon.signal(9)
        daemon.wait()
        node = self.node()
        node.read_until('is_host=true')
        node.signal(15)
        node.wait()

    def test_one_that_is_said_to_have_it_takes_it(self):
        daemon = self.serve(listen=self.store)
        daemon.signal(9)
        daemon.wait()
        node = self.node('--rdzv-conf=is_host=true')
        self.assertEqual((node.wait(), node.out), (0, 'runs\n'), node.err)

    def test_nobody_waits_for_a_ddprund_that_has_left_nothing(self):
        """It had neither a state nor a job; or there was none at all, and that since the machine was started."""
        self.stop(self.serve(listen=self.store))
        node = self.node()
        self.assertEqual((node.wait(), node.out), (0, 'runs\n'), node.err)
        mark = self.folder / 'run' / 'ddprun' / f'store-{self.store}'
        mark.parent.mkdir(parents=True, exist_ok=True)
        mark.write_text('00000000-0000-0000-0000-000000000000 net:[1]\n')
        node = self.node()
        self.assertEqual((node.wait(), node.out), (0, 'runs\n'), node.err)

    def test_a_mark_of_a_service_is_for_all_to_see(self):
        runtime = self.folder / 'service'
        daemon = self.serve(listen=self.store, env={'RUNTIME_DIRECTORY': str(runtime)})
        mark = runtime / f'store-{self.store}'
        self.assertEqual((mark.stat().st_mode & 0o777, runtime.stat().st_mode & 0o777), (0o644, 0o755))
        self.stop(daemon)
        self.assertFalse(mark.exists())
