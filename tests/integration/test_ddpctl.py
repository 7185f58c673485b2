#!/usr/bin/env python3
"""test_ddpctl.py - ddpctl store against a ddprund: what it prints, how what goes on is ended, and
its exit codes."""

import base64
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / 'lib'))
from ddprun_run import wait_until
from ddprund_run import DDPCTL, DENIED, TIMEOUT, UNREACHABLE, USAGE, DdprundCase
from nodes import free_port

FAILED = 1


class WithStore(DdprundCase):
    def setUp(self):
        super().setUp()
        self.job = self.serve()
        self.addCleanup(self.stop, self.job)
        self.store = self.job.endpoints[0]

    def run_ok(self, *words, **options):
        return self.done(self.store, *words, **options)

    def run_json(self, *words, **options):
        out = self.run_ok(*words, '--json', **options) if len(words) == 1 else \
            self.run_ok('--json', *words, **options)
        self.assertEqual(out.count(b'\n'), 1)
        return json.loads(out)

    def fails(self, code, text, *words, **options):
        got, out, err = self.ctl(self.store, *words, **options)
        self.assertEqual((got, out), (code, b''), err)
        self.assertRegex(err, r'\Addpctl: [^\n]+\n\Z')
        self.assertIn(text, err)


class Actions(WithStore):
    def test_set_and_get(self):
        self.assertEqual(self.run_ok('set', 'key', 'a value\n'), b'')
        self.assertEqual(self.run_ok('get', 'key'), b'a value\n')
        self.assertEqual(self.run_ok('set', 'key', ''), b'')
        self.assertEqual(self.run_ok('get', 'key'), b'')
        self.fails(FAILED, "there is no key 'other'", 'get', 'other')

    def test_values_from_standard_input(self):
        for value in (b'', b'text', bytes(range(256)), os.urandom(16 << 20)):
            self.run_ok('set', 'key', '-', given=value)
            self.assertEqual(self.run_ok('get', 'key'), value)
        self.fails(FAILED, 'more than 16777216 bytes', 'set', 'key', '-', given=bytes((16 << 20) + 1))

    def test_json(self):
        written = self.run_json('set', 'key', '\u20ac "quoted"')
        self.assertEqual(written, {'key': 'key', 'version': written['version']})
        self.assertEqual(self.run_json('get', 'key'), {'value': '\u20ac "quoted"', **written})
        value = bytes(range(256))
        self.run_ok('set', 'key', '-', given=value)
        answer = self.run_json('get', 'key')['value']
        self.assertEqual(base64.b64decode(answer['base64']), value)
        self.assertEqual(self.run_json('add', 'n', '-7'), {'key': 'n', 'value': -7})
        self.assertEqual(self.run_json('wait', 'n', 'key'), {'keys': ['n', 'key']})
        self.assertEqual(self.run_json('list'), {'keys': ['key', 'n']})
        self.assertEqual(self.run_json('delete', 'n'), {'keys': ['n']})
        self.assertEqual(self.run_json('list', 'x'), {'keys': []})

    def test_add(self):
        self.assertEqual(self.run_ok('add', 'n'), b'1\n')
        self.assertEqual(self.run_ok('add', 'n', '-3'), b'-2\n')
        self.assertEqual(self.run_ok('get', 'n'), b'-2')
        self.run_ok('set', 'n', 'text')
        self.fails(FAILED, "'n' is not a decimal", 'add', 'n')
        self.fails(USAGE, "'1.5'", 'add', 'n', '1.5')

    def test_versions(self):
        first = self.run_json('set', '--if-version=0', 'key', 'a')['version']
        self.fails(FAILED, f"has version {first}, not 0", 'set', '--if-version=0', 'key', 'b')
        self.run_ok('set', f'--if-version={first}', 'key', 'b')
        self.fails(FAILED, 'version', 'set', f'--if-version={first}', 'key', 'c')
        self.assertEqual(self.run_ok('get', 'key'), b'b')
        self.fails(USAGE, '--if-version', 'get', '--if-version=1', 'key')

    def test_wait(self):
        client = self.ctl_start(self.store, 'wait', '--timeout=1m', 'a', 'b')
        self.await_stat(self.store, 'waits', 1)
        self.run_ok('set', 'a', '')
        self.await_stat(self.store, 'waits', 1)
        self.run_ok('set', 'b', '')
        self.assertEqual(client.wait(), 0)
        self.fails(TIMEOUT, 'after 2000 ms', 'wait', '--timeout=2s', 'never')
        self.fails(TIMEOUT, "'never'", 'wait', '--timeout=0', 'a', 'never')

    def test_list_and_delete(self):
        for key in ('b', 'a/1', 'a/2', 'a\nb', 'back\\slash', '\u20ac', '\x1b[31m'):
            self.run_ok('set', key, '')
        self.assertEqual(self.run_ok('list').decode(),
                         '\\x1b[31m\na\\x0ab\na/1\na/2\nb\nback\\\\slash\n\u20ac\n')
        self.assertEqual(self.run_ok('list', 'a/'), b'a/1\na/2\n')
        self.assertIn('a\nb', self.run_json('list')['keys'])
        self.run_ok('delete', 'a/1', 'a\nb')
        self.fails(FAILED, "there is no key 'a/1'", 'delete', 'a/2', 'a/1', 'b')
        self.assertEqual(self.run_ok('list', 'b'), b'b\nback\\\\slash\n')

    def test_keys_that_are_not_text(self):
        key = b'\xff\xfe'
        self.run_ok('set', os.fsdecode(key), 'x')
        self.assertEqual(self.run_json('list')['keys'],
                         [{'base64': base64.b64encode(key).decode()}])

    def test_stats(self):
        self.run_ok('set', 'key', 'value')
        stats = self.stats(self.store)
        self.assertEqual((stats['keys'], stats['connections'], stats['accepted']), (1, 1, 2))
        lines = dict(line.split() for line in self.run_ok('stats').decode().splitlines())
        self.assertEqual(lines.keys(), stats.keys())

    def test_errors_have_the_key_as_it_was_given(self):
        self.fails(TIMEOUT, "among them 'never'", 'wait', '--prefix=g1/', '--timeout=0', 'never')
        self.fails(TIMEOUT, "among them 'g1/never'", 'wait', '--prefix=g1/', '--timeout=0', 'g1/never')

    def test_prefixes(self):
        self.run_ok('set', '--prefix=job/', 'key', 'value')
        self.assertEqual(self.run_ok('get', 'job/key'), b'value')
        env = {'DDPRUN_STORE_PREFIX': 'job/'}
        self.assertEqual(self.run_ok('get', 'key', env=env), b'value')
        self.assertEqual(self.run_ok('list', env=env), b'key\n')
        self.assertEqual(self.run_ok('--prefix=', 'list', env=env), b'job/key\n')

    def test_in_a_worker(self):
        script = '"$0" store set from-worker yes && "$0" store list'
        job = self.run_job('--no-prefix', 'sh', '-c', script, DDPCTL)
        self.assertEqual((job.code, job.out), (0, 'from-worker\n'), job.err)


class Watch(WithStore):
    def watch(self, *words, watches=1):
        """A watch that has begun."""
        client = self.ctl_start(self.store, 'watch', *words)
        self.await_stat(self.store, 'watches', watches)
        return client

    def lines(self, client, count):
        return [client.stdout.readline().decode().rstrip('\n') for _ in range(count)]

    def ended(self, client, code=0):
        out, err = client.communicate()
        self.assertEqual(client.returncode, code, err)
        return out.decode(), err.decode()

    def test_changes_are_lines(self):
        client = self.watch('--count=3', 'a')
        self.run_ok('set', 'b', '1')
        version = self.run_json('set', 'a\n', 'x\ty\\')['version']
        self.assertEqual(self.lines(client, 1), [f'{version}\tset\ta\\x0a\tx\\x09y\\\\'])
        self.run_ok('delete', 'a\n')
        self.run_ok('set', 'abc', '')
        self.assertEqual(self.ended(client), (f'{version + 1}\tdeleted\ta\\x0a\n'
                                              f'{version + 2}\tset\tabc\t\n', ''))

    def test_one_key_as_json(self):
        client = self.watch('--key', '--json', '--count=2', 'a')
        self.run_ok('set', 'ab', '1')
        version = self.run_json('set', 'a', '-', given=b'\xff')['version']
        self.run_ok('delete', 'a')
        lines = [json.loads(line) for line in self.ended(client)[0].splitlines()]
        self.assertEqual(lines, [
            {'key': 'a', 'value': {'base64': '/w=='}, 'version': version, 'kind': 'set'},
            {'key': 'a', 'value': None, 'version': version + 1, 'kind': 'deleted'}])

    def test_initial(self):
        for key in ('b/2', 'a', 'b/1'):
            self.run_ok('set', key, key)
        client = self.watch('--initial', '--count=1', 'b/')
        self.assertEqual(self.lines(client, 2), ['3\tset\tb/1\tb/1', '1\tset\tb/2\tb/2'])
        self.run_ok('delete', 'b/2')
        self.assertEqual(self.ended(client)[0], '4\tdeleted\tb/2\n')
        for key, lines in (('a', ['2\tset\ta\ta']), ('none', [])):
            code, out, _ = self.ctl(self.store, 'watch', '--initial', '--key', '--timeout=4s', key)
            self.assertEqual((code, out.decode().splitlines()), (TIMEOUT, lines))

    def test_from_a_version(self):
        self.watch()  # from now on the server remembers
        for value in 'xyz':
            self.run_ok('set', 'a', value)
        out = self.run_ok('watch', '--from=2', '--count=2').decode()
        self.assertEqual(out, '2\tset\ta\ty\n3\tset\ta\tz\n')
        self.fails(FAILED, 'does not have the changes', 'watch', '--from=99')

    def test_a_timeout_begins_anew_with_each_change(self):
        client = self.watch('--timeout=10s')
        self.run_ok('set', 'a', '1')
        self.assertEqual(self.lines(client, 1), ['1\tset\ta\t1'])
        self.assertIn('nothing has changed', self.ended(client, TIMEOUT)[1])

    def test_signals(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            client = self.watch()
            client.send_signal(number)
            self.assertEqual(self.ended(client), ('', ''))
            self.await_stat(self.store, 'watches', 0)

    def test_nobody_reads_any_more(self):
        client = self.watch()
        client.stdout.close()
        self.assertEqual(client.wait(), 0)
        client.stdout = open(os.devnull, 'rb')
        self.assertEqual(client.stderr.read(), b'')

    def test_a_server_that_starts_again(self):
        state = self.folder / 'state'
        job = self.serve(f'--state={state}', listen=f'127.0.0.1:{free_port()}')
        self.store = job.endpoints[0]
        client = self.watch('--count=3')
        self.run_ok('set', 'a', '1')
        self.stop(job)
        again = self.serve(f'--state={state}', listen=self.store)
        self.addCleanup(self.stop, again)
        self.await_stat(self.store, 'watches', 1)
        self.run_ok('set', 'b', '2')
        self.run_ok('delete', 'a')
        out, err = self.ended(client)
        self.assertEqual(out, '1\tset\ta\t1\n2\tset\tb\t2\n3\tdeleted\ta\n')
        self.assertRegex(err, r'\Addpctl: the connection is lost \([^\n]+\n'
                              r'ddpctl: connected again\n\Z')

    def test_a_server_that_has_forgotten(self):
        job = self.serve(listen=f'127.0.0.1:{free_port()}')
        self.store = job.endpoints[0]
        client = self.watch('--initial', '--count=2')
        self.run_ok('set', 'a', '1')
        self.stop(job)
        again = self.serve(listen=self.store)
        self.addCleanup(self.stop, again)
        self.await_stat(self.store, 'watches', 1)
        self.run_ok('set', 'b', '2')
        out, err = self.ended(client)
        self.assertIn('1\tset\tb\t2\n', out)
        self.assertIn('changes were missed', err)

    def test_another_store_while_the_keys_of_one_are_read(self):
        """Wherever the connection to the first one is cut, all that the second one has is shown, and nothing else."""
        other = self.serve()
        self.addCleanup(self.stop, other)
        for number in range(4):
            self.run_ok('set', f'first{number}', number)
            self.done(other.endpoints[0], 'set', f'second{number}', number)
        for piece in range(1, 20):
            cut = Cut(self.store, other.endpoints[0], piece)
            client = self.ctl_start(cut.endpoint, 'watch', '--initial')
            shown = []
            while not shown or shown[-1].split('\t')[2] not in ('second3', 'first3' if not cut.done else ''):
                shown += self.lines(client, 1)
            client.send_signal(signal.SIGINT)
            self.ended(client)
            cut.close()
            of_second = [f'{number + 1}\tset\tsecond{number}\t{number}' for number in range(4)]
            self.assertEqual(shown[-4:] if cut.done else of_second, of_second, (piece, shown))
            for line in shown:
                self.assertRegex(line, r'\A(\d)\tset\t(first|second)(\d)\t\3\Z', (piece, shown))
            if not cut.done:
                break
        self.assertGreater(piece, 4)


class Cut:
    """Passes connections on to the store at @first, and cuts when piece number @piece goes there; later ones to @second."""

    def __init__(self, first, second, piece):
        self.stores = iter([(first, piece), (second, None)])
        self.done = False
        self.sockets = []
        self.listener = socket.create_server(('127.0.0.1', 0))
        self.endpoint = '127.0.0.1:%d' % self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        for store, piece in self.stores:
            try:
                client, _ = self.listener.accept()
            except OSError: # closed
                return
            host, _, port = store.rpartition(':')
            server = socket.create_connection((host, int(port)))
            self.sockets += [client, server]
            threading.Thread(target=self._pass, args=(server, client, None), daemon=True).start()
            threading.Thread(target=self._pass, args=(client, server, piece), daemon=True).start()

    def _pass(self, source, target, piece):
        count = 0
        try:
            while data := source.recv(65536):
                count += 1
                if count == piece:
                    self.done = True
                    break
                target.sendall(data)
        except OSError:
            pass
        for sock in (source, target):
            try:
                sock.shutdown(socket.SHUT_RDWR)
            except OSError: # by the other direction
                pass

    def close(self):
        for sock in [self.listener, *self.sockets]:
            sock.close()


class Bench(WithStore):
    def test_figures(self):
        self.run_ok('set', 'key', 'value')
        for words in ([], ['--op=set', '--clients=3'], ['--op=get', '--clients=3', '--shared'],
                      ['--value-size=100K', '--prefix=p/']):
            figures = self.run_json('bench', '--duration=1s', *words)
            self.assertGreater(figures['requests'], 0)
            self.assertGreater(figures['requests_per_s'], 0)
            self.assertLessEqual(figures['p50_us'], figures['p99_us'])
            self.assertLess(0, figures['max_us'])
        self.assertEqual(self.run_ok('list'), b'key\n')
        self.assertRegex(self.run_ok('bench', '--duration=1s').decode(),
                         r'\Amix, 1 client, values of 64 bytes: \d+ requests/s\nlatency: p50 [^\n]+\n\Z')

    def test_an_interrupted_one_leaves_nothing(self):
        client = self.ctl_start(self.store, 'bench', '--clients=2', '--duration=1m')
        wait_until(lambda: self.stats(self.store)['keys'] == 32, 'keys of both clients')
        client.send_signal(signal.SIGINT)
        out, err = client.communicate()
        self.assertEqual((client.returncode, err), (0, b''))
        self.assertIn(b'requests/s', out)
        self.assertEqual(self.run_ok('list'), b'')

    def test_refusals(self):
        self.fails(DENIED, 'observer', 'bench', '--role=observer')
        self.fails(USAGE, "'put'", 'bench', '--op=put')
        self.fails(USAGE, 'bench only', 'list', '--clients=2')
        self.fails(USAGE, 'watch only', 'list', '--count=2')


class Jobs(WithStore):
    def test_fence(self):
        self.assertEqual(self.run_ok('fence', 'train', '3'), b'')
        self.assertEqual(self.run_json('fence', 'train', '3'), {'job': 'train', 'epoch': 3})
        self.fails(FAILED, 'epoch 3', 'fence', 'train', '2')
        self.fails(USAGE, "'x'", 'fence', 'train', 'x')
        self.fails(DENIED, "'train'", '--job=train', 'fence', 'other', '1')
        worker = ['--role=worker', '--job=train']
        self.fails(DENIED, 'epoch 3', *worker, '--epoch=2', 'list')
        self.run_ok(*worker, '--epoch=3', 'set', 'g3/key', 'value')
        self.fails(DENIED, "'g3/'", *worker, '--epoch=3', 'set', 'g4/key', 'value')
        self.assertEqual(self.run_ok('list'), b'epoch/train\njob/train/g3/key\n')

    def test_port(self):
        client = self.ctl_start(self.store, 'port', '--json', 'train')
        answer = json.loads(client.stdout.readline())
        self.assertEqual(answer['job'], 'train')
        address = ('127.0.0.1', answer['port'])
        self.run_ok('set', 'key', 'value')
        self.run_ok('set', 'job/train/key', 'of the job')
        self.assertEqual(self.done('127.0.0.1:%d' % address[1], 'get', 'key'), b'of the job')
        client.send_signal(signal.SIGTERM)
        self.assertEqual(client.wait(), 0)
        wait_until(lambda: self.is_closed(address), 'the port to be closed')

    @staticmethod
    def is_closed(address):
        with socket.socket() as sock:
            return sock.connect_ex(address) != 0

    def test_a_port_ends_with_its_server(self):
        job = self.serve()
        client = self.ctl_start(job.endpoints[0], 'port', 'train')
        self.assertRegex(client.stdout.readline(), rb'\A\d+\n\Z')
        self.stop(job)
        self.assertEqual(client.wait(), UNREACHABLE)


class CommandLine(WithStore):
    def test_options_stand_before_or_behind_the_action(self):
        self.run_ok('--timeout=5s', 'set', '--prefix', 'p/', 'key', '-x')
        self.assertEqual(self.run_ok('get', 'p/key'), b'-x')
        self.assertEqual(self.ctl(None, '--endpoint', self.store, 'get', 'p/key')[1], b'-x')
        self.run_ok('set', '--', '--json', 'value')
        self.assertEqual(self.run_ok('get', '--', '--json'), b'value')

    def test_usage(self):
        for words, text in ((['get'], 'store get KEY'), (['get', 'a', 'b'], '2 words were given; options come before'),
                            (['get', 'a', '--endpoint=x:1'], "put '--endpoint=x:1' before 'a'"),
                            (['set', 'a'], 'set KEY VALUE'), (['delete'], 'KEY...'),
                            (['stats', 'x'], "'ddpctl store stats'"), (['put', 'a'], "'put'"),
                            ([], "an action is missing after 'ddpctl store'"), (['--jsn', 'list'], "'--json'"),
                            (['--timeout=soon', 'list'], "'soon'"),
                            (['--timeout=50d', 'list'], "'50d'"),
                            (['--endpoint=host', 'list'], 'has no port'),
                            (['--endpoint=::1:5', 'list'], "'::1:5'"),
                            (['set', '--if-version=-1', 'a', 'b'], "'-1'")):
            with self.subTest(words):
                self.fails(USAGE, text, *words)
        code, _, err = self.ctl(None, 'list')
        self.assertEqual(code, USAGE)
        self.assertIn('DDPRUN_STORE', err)

    def test_verbs(self):
        for words, code, text in ((['--help'], 0, 'store'), (['-h'], 0, 'store'),
                                  (['--version'], 0, 'ddpctl 0.'), (['store', '--help'], 0, 'delete'),
                                  (['store', 'get', '-h'], 0, 'delete'),
                                  (['stauts'], USAGE, "unknown verb 'stauts'; did you mean 'status'? ("),
                                  (['xyzzy'], USAGE, "unknown verb 'xyzzy'; 'ddpctl --help'"), ([], USAGE, "no verb is given")):
            with self.subTest(words):
                done = subprocess.run([DDPCTL, *words], capture_output=True, text=True, env=self.env)
                self.assertEqual(done.returncode, code)
                self.assertIn(text, done.stdout + done.stderr)

    def test_an_answer_that_cannot_be_written(self):
        self.run_ok('set', 'key', 'value')
        with open('/dev/full', 'w') as full:
            for words in (['get', 'key'], ['--json', 'get', 'key'], ['list'], ['stats'], ['--help']):
                code, _, err = self.ctl(self.store, *words, stdout=full)
                self.assertEqual(code, FAILED, words)
                self.assertIn('ddpctl: cannot write', err)


class Unreachable(DdprundCase):
    def refused(self, endpoint, text):
        code, out, err = self.ctl(endpoint, 'list', '--timeout=50ms')
        self.assertEqual((code, out), (UNREACHABLE, b''), err)
        self.assertIn(text, err)

    def test_nobody_there(self):
        with socket.socket() as bound:
            bound.bind(('127.0.0.1', 0))
            endpoint = '127.0.0.1:%d' % bound.getsockname()[1]
            self.refused(endpoint, f'no store answers at {endpoint}')

    def test_something_else_there(self):
        with socket.create_server(('127.0.0.1', 0)) as mute:
            self.refused('127.0.0.1:%d' % mute.getsockname()[1], 'does not answer')

    def test_a_store_that_goes_away(self):
        job = self.serve('--drain-timeout=0')
        client = self.ctl_start(job.endpoints[0], 'wait', '--timeout=1m', 'never')
        self.await_stat(job.endpoints[0], 'waits', 1)
        self.stop(job)
        self.assertEqual(client.wait(), UNREACHABLE)


if __name__ == '__main__':
    unittest.main()
