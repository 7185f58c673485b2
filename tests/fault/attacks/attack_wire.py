"""attack_wire.py - who stands between two machines: what he reads, changes, cuts, repeats and answers,
and who comes in clear where TLS is asked for.

The wire is a relay on loopback which records what passes; that both ends have the token is why TLS is
spoken there, too. Addresses beyond loopback are in a network namespace, which takes root.
"""

import os
import socket
import subprocess
import sys
import threading
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / 'lib'))
from ddprun_run import DDPRUN, probe, wait_until
from ddprund_run import (CONFIG, DDPCTL, DDPRUND, DENIED, HAS_TLS, DdprundCase, connect, needs_tls)
from nodes import NotPermitted, Wires

SECRET_KEY, SECRET_VALUE = b'the-key-nobody-sees', b'the-value-nobody-sees' * 100
REFUSAL = bytes([21, 3, 3, 0, 2, 2, 49])
LIBRARIES = ('libssl', 'libcrypto')


class Relay:
    """Between clients and the server at @endpoint. What passes is kept, by direction; @change may make
    something else of it: change(direction, offset, bytes)."""

    def __init__(self, endpoint, change=None):
        host, _, port = endpoint.rpartition(':')
        self.server = (host, int(port))
        self.change = change or (lambda direction, offset, data: data)
        self.seen = {'up': bytearray(), 'down': bytearray()}
        self.connections = 0
        self.listener = socket.create_server(('127.0.0.1', 0))
        self.endpoint = '127.0.0.1:%d' % self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
                self.connections += 1
                server = socket.create_connection(self.server)
            except OSError:
                return
            for direction, source, target in (('up', client, server), ('down', server, client)):
                threading.Thread(target=self._pass, args=(direction, source, target),
                                 daemon=True).start()

    def _pass(self, direction, source, target):
        offset = 0
        try:
            while data := source.recv(65536):
                self.seen[direction] += data
                target.sendall(self.change(direction, offset, data))
                offset += len(data)
            target.shutdown(socket.SHUT_WR)
        except OSError:
            for sock in (source, target):
                sock.close()

    def saw(self, secret):
        return secret in self.seen['up'] or secret in self.seen['down']

    def close(self):
        self.listener.close()


def flip(wanted, at):
    """Change a bit of the byte number @at of each connection, in the direction @wanted."""
    def change(direction, offset, data):
        if direction != wanted or not offset <= at < offset + len(data):
            return data
        changed = bytearray(data)
        changed[at - offset] ^= 1
        return bytes(changed)
    return change


class WireCase(DdprundCase):
    def setUp(self):
        super().setUp()
        self.file = self.token('make')
        self.env['DDPRUN_TOKEN_FILE'] = self.file

    def relay(self, endpoint, change=None):
        relay = Relay(endpoint, change)
        self.addCleanup(relay.close)
        return relay

    def other_token(self):
        path = str(self.folder / 'other')
        self.token('make', '--token-file', path)
        return path


@needs_tls
class Secrets(WireCase):
    def spoken(self, *words):
        """What a relay sees of a key and a value that are set and got."""
        job = self.serve(*words)
        relay = self.relay(job.endpoints[0])
        self.done(relay.endpoint, *words, 'set', SECRET_KEY.decode(), '-', given=SECRET_VALUE)
        self.assertEqual(self.done(relay.endpoint, *words, 'get', SECRET_KEY.decode()), SECRET_VALUE)
        self.stop(job)
        return relay

    def test_nobody_between_reads_keys_or_values(self):
        clear, secret = self.spoken(), self.spoken('--tls')
        self.assertTrue(clear.saw(SECRET_KEY) and clear.saw(SECRET_VALUE))
        self.assertFalse(secret.saw(SECRET_KEY) or secret.saw(SECRET_VALUE[:21]))
        self.assertIn(b'ddprun 1 agent - 0 0', secret.seen['up'])  # who he is, is no secret

    def test_a_job_of_two_nodes(self):
        job = self.serve('--tls')
        relay = self.relay(job.endpoints[0])
        words = ['--nnodes=2', '--rdzv-id=wired', f'--rdzv-endpoint={relay.endpoint}', '--tls',
                 f'--token-file={self.file}', DDPCTL, 'store', 'set', SECRET_KEY, SECRET_VALUE]
        words = [os.fsdecode(word) for word in words]
        nodes = [self.start(*words, env={'LOCAL_TEST': n}) for n in range(2)]
        for node in nodes:
            self.assertEqual(node.wait(), 0, node.err)
        self.assertGreaterEqual(relay.connections, 2)
        self.assertFalse(relay.saw(b'round/') or relay.saw(b'job/wired') or relay.saw(SECRET_KEY))
        self.stop(job)

    def test_a_job_of_one_node(self):
        for words in ['--tls'], ['--tls', f'--token-file={self.file}']:
            job = self.start(*words, DDPCTL, 'store', 'set', 'k', 'v')
            self.assertEqual(job.wait(), 0, job.err)

    def test_who_does_not_ask_for_tls_does_not_load_it(self):
        def loaded(pid):
            maps = Path(f'/proc/{pid}/maps').read_text(encoding='ascii')
            return [name for name in LIBRARIES if name in maps]
        clear, secret = self.serve(), self.serve('--tls')
        try:
            services = loaded(clear.pid), loaded(secret.pid)
        except PermissionError:
            services = None
        self.stop(clear)
        self.stop(secret)
        # A job of one node says nothing to others, whatever it was asked for.
        del self.env['DDPRUN_TOKEN_FILE']
        job = self.start('--tls', 'sh', '-c', 'cat /proc/$PPID/maps; echo DDPRUN_TLS is $DDPRUN_TLS')
        self.assertEqual(job.wait(), 0, job.err)
        self.assertIn('libsodium', job.out)
        self.assertIn('DDPRUN_TLS is 1', job.out)
        for name in LIBRARIES:
            self.assertNotIn(name, job.out)
        if services is None:
            self.skipTest('the memory of ddprund may not be looked into here: that takes root with CAP_SYS_PTRACE')
        self.assertEqual(services, ([], list(LIBRARIES)))


@needs_tls
class Ranks(WireCase):
    """Ranks that talk through TCP, as on two machines. That nobody between reads what they say is in
    Between."""

    def ranks(self, *words, before=''):
        command = f'{before} exec {probe("ranks")} /'
        return self.start(*words, '--nproc-per-node=3', 'sh', '-c', command, env={'DDP_FORCE_TCP': 1})

    def test_they_meet_by_tls(self):
        job = self.ranks('--tls-ranks', before='env;')
        self.assertEqual(job.wait(), 0, job.err)
        self.assertIn('received ', job.out)
        self.assertIn('DDPRUN_TLS_RANKS=1', job.out)

    def test_one_of_them_does_not(self):
        job = self.ranks('--tls-ranks', before='[ $RANK != 1 ] || unset DDPRUN_TLS_RANKS;')
        self.assertNotEqual(job.wait(), 0, job.out)
        self.assertNotIn('received ', job.out)

    def test_without_a_key_there_is_no_tls(self):
        job = self.ranks('--tls-ranks', before='unset DDPRUN_RANK_KEY_FD;')
        self.assertNotEqual(job.wait(), 0, job.out)
        self.assertIn('TLS between ranks (DDPRUN_TLS_RANKS) needs the key', job.err)


@needs_tls
class Changes(WireCase):
    def test_whoever_changes_a_byte_is_noticed(self):
        job = self.serve('--tls')
        self.done(job.endpoints[0], '--tls', 'set', 'k', 'good')
        whole = self.relay(job.endpoints[0])
        self.done(whole.endpoint, '--tls', 'get', 'k')
        # What comes before these is of no weight: two bytes of the version of each record.
        for direction in ('up', 'down'):
            size = len(whole.seen[direction])
            for at in {11, size // 3, size // 2, size - 20, size - 1}:
                with self.subTest(direction, at=at, size=size):
                    relay = self.relay(job.endpoints[0], flip(direction, at))
                    code, out, err = self.ctl(relay.endpoint, '--tls', 'get', 'k')
                    self.assertNotEqual(code, 0, (out, err))
                    self.assertEqual(out, b'')
        self.assertEqual(self.done(job.endpoints[0], '--tls', 'get', 'k'), b'good')
        self.stop(job)

    def test_what_was_recorded_changes_nothing(self):
        job = self.serve('--tls')
        relay = self.relay(job.endpoints[0])
        self.done(relay.endpoint, '--tls', 'set', 'k', 'old')
        self.done(job.endpoints[0], '--tls', 'set', 'k', 'new')
        before = self.stats(job.endpoints[0])
        with connect(job.endpoints[0]) as replay:
            replay.sendall(relay.seen['up'])
            replay.shutdown(socket.SHUT_WR)
            while replay.recv(65536):
                pass
        self.assertEqual(self.done(job.endpoints[0], '--tls', 'get', 'k'), b'new')
        self.assertEqual(self.stats(job.endpoints[0])['denied'], before['denied'] + 1)
        self.stop(job)

    def test_nobody_is_talked_out_of_tls(self):
        """The answer of a server without TLS can be forged; the client then says nothing more."""
        job = self.serve()
        hello = self.relay(job.endpoints[0])
        code, _, err = self.ctl(hello.endpoint, '--tls', 'set', SECRET_KEY.decode(), 'x')
        self.assertEqual(code, DENIED, err)
        self.assertIn('started without it (--tls)', err)
        self.assertEqual(bytes(hello.seen['down']), REFUSAL)
        self.assertFalse(hello.saw(SECRET_KEY) or hello.saw(b'DDPS'))
        self.assertEqual(hello.connections, 1)
        self.stop(job)

    def test_an_impostor_with_another_token(self):
        other = self.other_token()
        impostor = self.serve('--tls', f'--token-file={other}')
        relay = self.relay(impostor.endpoints[0])
        code, _, err = self.ctl(relay.endpoint, '--tls', 'set', SECRET_KEY.decode(), 'x')
        self.assertEqual(code, DENIED, err)
        self.assertIn('another key', err)
        self.assertFalse(relay.saw(SECRET_KEY))
        impostor.read_until('denied: TLS')
        self.stop(impostor)

    def test_an_observer_is_no_server(self):
        """Who has been given the key of a role cannot pass for the store to the others."""
        key = self.folder / 'observer'
        store = self.serve('--tls')
        line = self.token('derive', '--role=observer', f'--endpoint={store.endpoints[0]}', '--tls')
        key.write_text(line + '\n', encoding='ascii')
        key.chmod(0o600)
        relay = self.relay(store.endpoints[0])
        self.done(relay.endpoint, '--tls', f'--token-file={key}', 'stats')
        self.assertIn(b'ddprun 1 observer - 0 ', relay.seen['up'])
        self.stop(store)
        job = self.daemon('--tls', '--listen=127.0.0.1:0', f'--token-file={key}')
        self.assertEqual(job.wait(), CONFIG)
        self.assertIn('a server needs the token itself', job.err)

    def test_a_certificate_is_no_key(self):
        certificate, key = self.folder / 'certificate', self.folder / 'key'
        try:
            subprocess.run(['openssl', 'req', '-x509', '-newkey', 'rsa:2048', '-nodes', '-subj',
                            '/CN=localhost', '-keyout', key, '-out', certificate], check=True,
                           capture_output=True)
        except FileNotFoundError:
            self.skipTest('the program openssl is missing (Debian package openssl)')
        import ssl  # pylint: disable=import-outside-toplevel
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        listener = socket.create_server(('127.0.0.1', 0))
        heard = bytearray()

        def answer():
            client, _ = listener.accept()
            try:
                with context.wrap_socket(client, server_side=True) as stream:
                    while data := stream.recv(65536):
                        heard.extend(data)
            except OSError:
                pass
        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        code, _, err = self.ctl('127.0.0.1:%d' % listener.getsockname()[1], '--tls', 'get', 'k')
        thread.join()
        listener.close()
        self.assertEqual((code, bytes(heard)), (DENIED, b''), err)
        self.assertIn('shows a certificate', err)


class Strangers(WireCase):
    """Who has no key and speaks TLS, or what begins like it."""

    def ended(self, job, data):
        """What the server answers to @data until it closes."""
        with connect(job.endpoints[0]) as stranger:
            stranger.sendall(data)
            got = bytearray()
            while more := stranger.recv(65536):
                got.extend(more)
            return bytes(got)

    @needs_tls
    def test_a_greeting_without_an_end(self):
        job = self.serve('--tls', '--greeting-timeout=2s')
        self.assertEqual(self.ended(job, b'\x16'), b'')
        self.assertEqual(self.ended(job, b'\x16\x03\x01\x01\x00' + bytes(255)), b'')
        job.read_until('its greeting was not complete in time', 2)
        self.stop(job)

    @needs_tls
    def test_a_greeting_that_is_too_long(self):
        job = self.serve('--tls', '--greeting-timeout=1m')
        self.assertEqual(self.ended(job, b'\x16\x03\x01\x40\x00'), b'')
        job.read_until('first TLS record is too long')
        self.stop(job)

    @needs_tls
    def test_bytes_that_mean_nothing(self):
        job = self.serve('--tls')
        for record in (bytes(64), b'\x01' + bytes(63), b'\x01\x00\x00\x3c' + bytes(60)):
            answer = self.ended(job, b'\x16\x03\x01' + len(record).to_bytes(2, 'big') + record)
            self.assertIn(answer[:1], (b'', b'\x15'))
        self.done(job.endpoints[0], '--tls', 'add', 'alive')
        self.stop(job)

    def test_no_tls_where_nobody_has_asked_for_it(self):
        job = self.serve()
        self.assertEqual(self.ended(job, b'\x16\x03\x01'), REFUSAL)
        job.read_until('started without --tls')
        self.stop(job)


@unittest.skipIf(HAS_TLS, 'this build has TLS, and the test is about one without')
class Without(WireCase):
    """A build that has no TLS says so, and does nothing in clear instead."""

    def test_it_is_refused(self):
        sentence = 'TLS is requested, but ddprun was built without it'
        job = self.daemon('--tls', '--listen=127.0.0.1:0')
        self.assertEqual(job.wait(), CONFIG)
        self.assertIn(sentence, job.err)
        job = self.serve()
        relay = self.relay(job.endpoints[0])
        code, _, err = self.ctl(relay.endpoint, '--tls', 'set', SECRET_KEY.decode(), 'x')
        self.assertNotEqual(code, 0)
        self.assertIn(sentence, err)
        self.assertEqual(bytes(relay.seen['up']), b'')
        self.stop(job)


@needs_tls
class Elsewhere(WireCase):
    """A store that other machines reach: here, another namespace."""

    def setUp(self):
        super().setUp()
        try:
            self.wires = Wires(['store', 'client'])
        except NotPermitted as fault:
            self.skipTest(str(fault))
        self.addCleanup(self.wires.close)

    def serve_there(self, *words):
        address = self.wires.address_of('store')
        command = self.wires.enter('store', [DDPRUND, f'--listen={address}:29400', *words])
        job = self.start(*command[1:], program=command[0])
        job.read_until('listening on')
        job.endpoints = [f'{address}:29400']
        return job

    def run_there(self, node, *command, **options):
        command = self.wires.enter(node, [os.fsdecode(word) for word in command])
        done = subprocess.run(command, env=dict(self.env, DDPRUN_STORE=self.endpoint),
                              capture_output=True, check=False, text=True, **options)
        return done.returncode, done.stdout, done.stderr

    # As PyTorch's clients begin: "validate", with its number; then a ping.
    TCPSTORE = ("import socket, sys; sock = socket.create_connection(('%s', 29400)); "
                "sock.sendall(bytes([0]) + (0x3C85F7CE).to_bytes(4, 'little') + bytes([13]) + bytes(4)); "
                "print(len(sock.recv(4)))")

    def tcpstore(self, node):
        return self.run_there(node, sys.executable, '-c',
                              self.TCPSTORE % self.wires.address_of('store'))[1].strip()

    def test_who_comes_in_clear(self):
        job = self.serve_there('--tls')
        self.endpoint = job.endpoints[0]
        code, _, err = self.run_there('client', DDPCTL, 'store', 'get', 'k')
        self.assertEqual(code, DENIED, err)
        self.assertIn('this server speaks TLS with other machines: give --tls', err)
        self.assertEqual(self.run_there('client', DDPCTL, 'store', '--tls', 'set', 'k', 'v')[0], 0)
        code, out, err = self.run_there('client', DDPCTL, 'store', '--tls', 'get', 'k')
        self.assertEqual((code, out), (0, 'v'), err)
        # A client that has no key cannot speak TLS, and does not speak without.
        code, _, err = self.run_there('client', DDPCTL, 'store', '--tls', '--no-auth', 'get', 'k')
        self.assertEqual(code, DENIED, err)
        self.assertIn("TLS needs the server's token", err)
        self.stop(job)

    def agent(self):
        """From a host where one is, TCPStore clients are let in."""
        command = self.wires.enter('client', [DDPCTL, 'store', '--tls', 'watch'])
        watch = self.start(*command[1:], program=command[0], env={'DDPRUN_STORE': self.endpoint})
        def seen():
            self.run_there('client', DDPCTL, 'store', '--tls', 'set', 'seen', 'x')
            watch.collect(0.1)
            return 'seen' in watch.out
        wait_until(seen, 'the agent')
        return watch

    def test_tcpstore_clients(self):
        for words, welcome in ((['--tls'], '0'), (['--tls', '--tcpstore-in-clear'], '4')):
            with self.subTest(words):
                job = self.serve_there(*words)
                self.endpoint = job.endpoints[0]
                self.assertEqual(self.tcpstore('client'), '0')  # nobody vouches for it
                watch = self.agent()
                self.assertEqual(self.tcpstore('client'), welcome, job.err)
                if welcome == '0':
                    job.read_until('a TCPStore client cannot speak TLS')
                watch.signal(15)
                watch.wait()
                self.stop(job)


@needs_tls
class Between(WireCase):
    """Who listens at the switch between the machines of a job, and its store."""

    WORD, OTHER = 'gradients-nobody-sees', 'messages-nobody-sees'

    def setUp(self):
        super().setUp()
        try:
            self.wires = Wires(['store', 'n1', 'n2'])
        except NotPermitted as fault:
            self.skipTest(str(fault))
        self.addCleanup(self.wires.close)

    def there(self, node, *words, **options):
        command = self.wires.enter(node, [os.fsdecode(word) for word in words])
        return self.start(*command[1:], program=command[0], **options)

    def listen_to(self, *words):
        """A job of two nodes with these @words, and a value in the store, as a tap hears them."""
        tap = self.wires.tap()
        self.addCleanup(tap.close)
        tls = [word for word in words if word == '--tls']
        endpoint = f'{self.wires.address_of("store")}:29400'
        store = self.there('store', DDPRUND, f'--listen={endpoint}', *tls)
        store.read_until('listening on')
        client = self.there('n1', DDPCTL, 'store', *tls, 'set', SECRET_KEY, SECRET_VALUE,
                            env={'DDPRUN_STORE': endpoint})
        self.assertEqual(client.wait(), 0, client.err)
        nodes = [self.there(node, DDPRUN, '--nnodes=2', '--nproc-per-node=1', '--lease=10m', '--rdzv-id=overheard',
                            f'--rdzv-endpoint={endpoint}', *words, probe('words'), self.WORD,
                            self.OTHER) for node in ('n1', 'n2')]
        for node in nodes:
            self.assertEqual(node.wait(), 0, node.err)
        self.assertEqual(sum(node.out.count('heard ') for node in nodes), 3)
        self.stop(store)
        return tap

    def test_what_is_heard(self):
        """Of the store with --tls, of the ranks with --tls-ranks, neither is anything."""
        for words in [], ['--tls'], ['--tls-ranks'], ['--tls', '--tls-ranks']:
            with self.subTest(words):
                tap = self.listen_to(*words)
                for secret in SECRET_KEY, SECRET_VALUE[:20], b'round/overheard/':
                    self.assertEqual(tap.saw(secret), '--tls' not in words, secret)
                for secret in self.WORD, self.OTHER:
                    self.assertEqual(tap.saw(secret.encode()), '--tls-ranks' not in words, secret)


if __name__ == '__main__':
    unittest.main()
