"""ddprund_run.py - runs ddprund and ddpctl as a user does; nothing of them is left behind."""

import json
import os
import socket
import subprocess
import unittest

from ddprun_run import ROOT, DdprunCase, wait_until

DDPRUND = os.environ.get('DDPRUND', str(ROOT / 'build' / 'bin' / 'ddprund'))
DDPCTL = os.environ.get('DDPCTL', str(ROOT / 'build' / 'bin' / 'ddpctl'))

HAS_TLS = os.environ.get('DDPRUN_HAS_TLS', '1') == '1'

needs_tls = unittest.skipUnless(HAS_TLS, 'this build has no TLS: the headers of OpenSSL 3 were missing (Debian package '
                                         'libssl-dev)')

USAGE, UNREACHABLE, TIMEOUT, DENIED, CONFIG = 2, 69, 75, 77, 78


def has_ipv6():
    try:
        with socket.socket(socket.AF_INET6) as sock:
            sock.bind(('::1', 0))
        return True
    except OSError:
        return False


def own_address():
    """An address of this machine that is not loopback, or None. Nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        try:
            sock.connect(('192.0.2.1', 9))
        except OSError:
            return None
        address = sock.getsockname()[0]
    return None if address.startswith(('127.', '0.')) else address


def connect(endpoint):
    host, _, port = endpoint.rpartition(':')
    return socket.create_connection((host.strip('[]'), int(port)))


def kept(leader, *states, life=1):
    """The key store/keepers of a store on the machines n0, n1 and n2, which are in these states; @life is n0's."""
    machines = [{'endpoint': f'n{i}:29400', 'state': state, 'life': 9 if i else life} for i, state in enumerate(states)]
    return json.dumps({'leader': f'n{leader}:29400', 'machines': machines})


class DdprundCase(DdprunCase):
    """A case with services, and clients of them, in a home directory of their own."""

    def setUp(self):
        super().setUp()
        self.home = self.folder / 'home'
        self.home.mkdir()
        self.env['HOME'] = str(self.home)
        self.env.pop('XDG_CONFIG_HOME', None)

    def daemon(self, *words, **options):
        """A ddprund with exactly these @words."""
        return self.start(*words, **{'program': DDPRUND, **options})

    def serve(self, *words, listen='127.0.0.1:0', listeners=1, **options):
        """A ddprund that listens; its addresses are in .endpoints."""
        words = [f'--listen={listen}', *words] if listen else words
        job = self.daemon(*words, **options)
        job.collect_until(lambda: not job.open or job.out.count('\n') >= listeners, 'the addresses')
        job.endpoints = [line.removeprefix('listening on ') for line in job.out.splitlines()]
        self.assertEqual(job.out.count('listening on '), listeners, job.err)
        return job

    def ctl_start(self, endpoint, *words, verb='store', **options):
        env = dict(self.env, **options.pop('env', {}))
        if endpoint:
            env['DDPRUN_STORE'] = endpoint
        process = subprocess.Popen([DDPCTL, verb, *map(str, words)], env=env,
                                   stdin=options.pop('stdin', subprocess.DEVNULL),
                                   stdout=options.pop('stdout', subprocess.PIPE),
                                   stderr=subprocess.PIPE, **options)
        self.addCleanup(self._end, process)
        return process

    @staticmethod
    def _end(process):
        process.kill()
        process.wait()
        for file in (process.stdin, process.stdout, process.stderr):
            if file:
                file.close()

    def ctl(self, endpoint, *words, given=None, **options):
        """One ddpctl to its end: exit code, stdout as bytes, stderr as text."""
        if given is not None:
            options['stdin'] = subprocess.PIPE
        process = self.ctl_start(endpoint, *words, **options)
        out, err = process.communicate(given)
        return process.returncode, out, err.decode()

    def done(self, endpoint, *words, **options):
        """The same for what must succeed, without a word on stderr; its stdout."""
        code, out, err = self.ctl(endpoint, *words, **options)
        self.assertEqual((code, err), (0, ''), words)
        return out

    def token(self, *words, **options):
        """ddpctl token, which must succeed; the line that it prints."""
        return self.done(None, *words, verb='token', **options).decode().rstrip('\n')

    def stats(self, endpoint):
        return json.loads(self.done(endpoint, 'stats', '--json'))

    def await_stat(self, endpoint, name, value):
        wait_until(lambda: self.stats(endpoint)[name] == value, f'{name} to be {value}')

    def stop(self, job, code=0):
        job.signal(15)
        self.assertEqual(job.wait(), code, job.err)
