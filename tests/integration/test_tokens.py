#!/usr/bin/env python3
"""test_tokens.py - tokens as a user meets them: ddprund, ddpctl store and ddpctl token."""

import os
import re
import socket
import subprocess
import sys
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / 'lib'))
from ddprund_run import CONFIG, DDPCTL, DENIED, USAGE, DdprundCase, own_address

FAILED = 1


class Tokens(DdprundCase):
    def path(self):
        return self.home / '.config' / 'ddprun' / 'token'

    def test_where_it_is(self):
        self.assertEqual(self.token('show-path'), str(self.path()))
        self.assertEqual(self.token('show-path', env={'XDG_CONFIG_HOME': '/x'}), '/x/ddprun/token')
        self.assertEqual(self.token('show-path', env={'DDPRUN_TOKEN_FILE': '/t'}), '/t')
        self.assertEqual(self.token('--token-file=/u', 'show-path', env={'DDPRUN_TOKEN_FILE': '/t'}),
                         '/u')
        self.assertFalse(self.path().exists())

    def test_it_is_made_once(self):
        self.assertEqual(self.token('make'), str(self.path()))
        text = self.path().read_text()
        self.assertRegex(text, r'\A[0-9a-f]{64}\n\Z')
        self.assertEqual(self.path().stat().st_mode & 0o777, 0o600)
        self.assertEqual(self.path().parent.stat().st_mode & 0o777, 0o700)
        self.token('make')
        self.assertEqual(self.path().read_text(), text)

    def test_keys_are_derived(self):
        self.token('make')
        store = '--store=00112233aabbccdd'
        line = self.token('derive', '--role=worker', '--job=a.b', '--epoch=7', store)
        self.assertRegex(line, r'\Addprun-key 2 worker a\.b 7 00112233aabbccdd [0-9a-f]{64}\Z')
        self.assertEqual(self.token('--role=worker', store, 'derive', '--job=a.b', '--epoch=7'), line)
        for words in (('--epoch=8', store), ('--epoch=7', '--store=00112233aabbccde')):
            other = self.token('derive', '--role=worker', '--job=a.b', *words)
            self.assertNotEqual(other.split()[-1], line.split()[-1])
        self.assertNotIn(line.split()[-1], self.path().read_text())

    def test_words_that_are_wrong(self):
        for words, text in (((), "an action is missing after 'ddpctl token'"), (('steal',), "'steal'"), (('make', 'x'), "'x'"),
                            (('derive',), '--role=observer'), (('derive', '--role=root'), "'root'"),
                            (('derive', '--role=worker', '--job=.x'), "'.x'"),
                            (('derive', '--role=worker', '--epoch=-1'), "'-1'"),
                            (('derive', '--role=worker', '--store=1'), "'1'"),
                            (('derive', '--role=worker'), '--endpoint=HOST:PORT')):
            self.token('make')
            code, out, err = self.ctl(None, *words, verb='token')
            self.assertEqual((code, out), (USAGE, b''), words)
            self.assertIn(text, err)
        self.path().unlink()
        code, _, err = self.ctl(None, 'derive', '--role=worker', verb='token')
        self.assertEqual(code, FAILED)
        self.assertIn('ddpctl token make', err)


class Stores(DdprundCase):
    def setUp(self):
        super().setUp()
        self.file = Path(self.token('make'))
        self.with_token = f'--token-file={self.file}'

    def strict(self, *words, **options):
        job = self.serve('--auth=always', *words, **options)
        self.addCleanup(self.stop, job)
        return job

    def derive(self, name, *words):
        key = self.home / name
        key.write_text(self.token('derive', *words) + '\n')
        key.chmod(0o600)
        return key

    def denied(self, endpoint, text, *words, **options):
        code, out, err = self.ctl(endpoint, *words, **options)
        self.assertEqual((code, out), (DENIED, b''), err)
        self.assertRegex(err, r'\Addpctl: [^\n]+\n\Z')
        self.assertIn(text, err)

    def test_the_token_opens(self):
        job = self.strict()
        store = job.endpoints[0]
        self.done(store, self.with_token, 'set', 'k', 'v')
        self.assertEqual(self.done(store, 'get', 'k', env={'DDPRUN_TOKEN_FILE': self.file}), b'v')
        with open(self.file, 'rb') as file:
            got = self.done(store, f'--token-fd={file.fileno()}', 'get', 'k',
                            pass_fds=[file.fileno()])
        self.assertEqual(got, b'v')
        self.assertEqual(self.done(store, 'get', 'k'), b'v')  # it is this user's
        self.denied(store, '--token-file=FILE', 'get', 'k', env={'HOME': '/nowhere'})
        self.denied(store, '--token-file=FILE', self.with_token, '--no-auth', 'get', 'k')
        job.read_until('denied')

    def test_another_token_does_not(self):
        job = self.strict()
        other = self.home / 'other'
        self.token('make', f'--token-file={other}')
        self.denied(job.endpoints[0], f': denied; most likely its token differs from {other}: copy the file that '
                    "'ddpctl token show-path' names", f'--token-file={other}', '--role=worker',
                    '--job=mine', 'get', 'k')
        job.read_until("worker of job 'mine'")
        stats = self.done(job.endpoints[0], self.with_token, 'stats').decode()
        self.assertIn('\ndenied 1\n', stats)

    def test_an_observer_reads(self):
        job = self.strict()
        store = job.endpoints[0]
        key = self.derive('observer.key', '--role=observer', f'--endpoint={store}')
        # The same where the store is not to be reached, by its number.
        job.read_until('this is the store')
        number = re.search('this is the store ([0-9a-f]{16})', job.err)[1]
        self.assertEqual(self.token('derive', '--role=observer', f'--store={number}') + '\n',
                         key.read_text())
        self.done(store, self.with_token, 'set', 'k', 'v')
        self.assertEqual(self.done(store, f'--token-file={key}', 'get', 'k'), b'v')
        self.denied(store, "'observer'", f'--token-file={key}', 'set', 'k', 'w')
        self.denied(store, 'needs another', f'--token-file={key}', '--role=worker', 'get', 'k')

    def test_a_worker_keeps_to_its_job(self):
        store = self.strict().endpoints[0]
        key = self.derive('worker.key', '--role=worker', '--job=j', '--epoch=1', f'--endpoint={store}')
        self.done(store, f'--token-file={key}', 'set', 'g1/k', 'v')
        self.done(store, f'--token-file={self.file}', 'set', 'job/i/k', 'v')
        self.assertEqual(self.done(store, f'--token-file={self.file}', 'list', 'job/'),
                         b'job/i/k\njob/j/g1/k\n')
        self.assertEqual(self.done(store, f'--token-file={key}', 'list', ''), b'g1/k\n')

    def test_files_that_are_refused(self):
        store = self.strict().endpoints[0]
        self.file.chmod(0o644)
        self.denied(store, 'chmod 600', self.with_token, 'get', 'k')
        self.file.chmod(0o600)
        link = self.home / 'link'
        link.symlink_to(self.file)
        self.denied(store, 'symbolic link', f'--token-file={link}', 'get', 'k')
        self.denied(store, 'ddpctl token make', '--token-file=/no/such', 'get', 'k')

    def test_a_service_that_is_given_a_bad_one(self):
        self.file.chmod(0o644)
        for words, text in (([self.with_token], 'chmod 600'),
                            (['--token-file=/no/such'], 'ddpctl token make')):
            job = self.daemon('--listen=127.0.0.1:0', *words)
            job.wait()
            self.assert_sentence(job, CONFIG, text, program='ddprund')
        self.file.chmod(0o600)
        key = self.derive('key', '--role=observer', '--store=00112233aabbccdd')
        job = self.daemon('--listen=127.0.0.1:0', f'--token-file={key}')
        job.wait()
        self.assert_sentence(job, CONFIG, "'observer'", program='ddprund')

    def test_a_service_without_one(self):
        job = self.serve(env={'HOME': ''})
        self.done(job.endpoints[0], '--no-auth', 'set', 'k', 'v')
        self.denied(job.endpoints[0], 'has no token', self.with_token, 'get', 'k')
        self.stop(job)

    def test_one_that_is_there_is_used_on_loopback_too(self):
        job = self.serve()
        store = job.endpoints[0]
        self.addCleanup(self.stop, job)
        self.done(store, 'set', 'k', 'v')  # with a proof of both, without a word
        self.done(store, '--no-auth', 'set', 'k', 'v')  # nobody has to
        text = self.file.read_text()
        self.file.unlink()
        self.done(store, 'set', 'k', 'v')
        self.file.write_text(text.replace('0', '1').replace('f', '0'))
        self.file.chmod(0o600)
        self.denied(store, ': denied', 'get', 'k')

    def test_a_key_is_for_one_store(self):
        job = self.serve('--auth=always')
        key = self.derive('observer.key', '--role=observer', f'--endpoint={job.endpoints[0]}')
        self.done(job.endpoints[0], f'--token-file={key}', 'list', '')
        self.stop(job)
        self.denied(self.strict().endpoints[0], 'begun anew', f'--token-file={key}', 'list', '')

    def test_a_store_that_remembers_is_the_same(self):
        words = (f'--state={self.home}/state',)
        job = self.serve('--auth=always', *words)
        key = self.derive('observer.key', '--role=observer', f'--endpoint={job.endpoints[0]}')
        self.stop(job)
        self.done(self.strict(*words).endpoints[0], f'--token-file={key}', 'list', '')

    def test_beyond_loopback(self):
        address = own_address()
        if address is None:
            self.skipTest('this machine has no address but those of loopback')
        self.file.unlink()
        job = self.serve(listen=f'{address}:0')
        self.addCleanup(self.stop, job)
        job.read_until(str(self.file))  # made on first use
        store = job.endpoints[0]
        self.done(store, 'set', 'k', 'v')  # with the token of this user, without a word
        self.denied(store, '--token-file=FILE', '--no-auth', 'get', 'k')
        with socket.create_connection((address, int(store.rpartition(':')[2]))) as torch:
            torch.sendall(b'\x00\xce\xf7\x85\x3c\x0dping')
            self.assertEqual(torch.recv(4), b'')
        text = self.file.read_text()
        self.file.unlink()
        self.denied(store, 'no token file', 'get', 'k')
        self.file.write_text(re.sub('[0-9a-f]', lambda digit: 'f' if digit[0] == '0' else '0', text))
        self.file.chmod(0o600)
        self.denied(store, ': denied', 'get', 'k')

    def test_first_uses_at_once(self):
        self.file.unlink()
        jobs = [subprocess.Popen([DDPCTL, 'token', 'make'], env=self.env, stdout=subprocess.PIPE)
                for _ in range(8)]
        for job in jobs:
            self.assertEqual(job.communicate()[0].decode(), f'{self.file}\n')
        self.assertEqual(os.listdir(self.file.parent), ['token'])


if __name__ == '__main__':
    unittest.main()
