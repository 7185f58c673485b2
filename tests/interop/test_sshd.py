#!/usr/bin/env python3
"""test_sshd.py - jobs on hosts that a real sshd serves: on loopback, and in network namespaces that a cable
can be pulled out of. Skipped (77) where OpenSSH's server is not installed or this is not root, unless
DDPRUN_INTEROP=1 demands it.
"""

import fcntl
import os
import shutil
import signal
import subprocess
import sys
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / 'lib'))
from ddprun_run import DdprunCase, children, error_folder, wait_until
from nodes import NotPermitted, Wires, free_port
from skip import skip_program

SSHD = shutil.which('sshd', path='/usr/sbin:/usr/bin')
UNREACHABLE = 69


def may_lock(folder):
    file = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(file)
    return True


class SshCase(DdprunCase):
    def setUp(self):
        super().setUp()
        self.keys = self.folder / 'keys'
        self.keys.mkdir(mode=0o700)
        for name in ('host', 'user', 'stranger'):
            subprocess.run(['ssh-keygen', '-q', '-t', 'ed25519', '-N', '', '-f', self.keys / name], check=True)
        shutil.copy(self.keys / 'user.pub', self.keys / 'authorized')
        self.port = free_port()
        self.known('127.0.0.2', '127.0.0.3')
        self.env['XDG_CONFIG_HOME'] = str(self.folder / 'config')
        os.makedirs('/run/sshd', exist_ok=True)

    def known(self, *addresses):
        key = ' '.join((self.keys / 'host.pub').read_text().split()[:2])
        (self.keys / 'known').write_text(''.join(f'[{address}]:{self.port} {key}\n' for address in addresses))

    def serve(self, name, addresses, enter=lambda words: words):
        """sshd at @addresses; it is ended with the test."""
        listening = ''.join(f'ListenAddress {address}:{self.port}\n' for address in addresses)
        config = self.write(f'sshd-{name}', f'{listening}HostKey {self.keys}/host\nAuthorizedKeysFile {self.keys}/authorized\n'
                            'StrictModes no\nUsePAM no\nPidFile none\nPermitRootLogin prohibit-password\n'
                            'MaxStartups 100\n', mode=0o600)
        log = open(self.folder / f'sshd-{name}.log', 'wb')
        self.addCleanup(log.close)
        process = subprocess.Popen(enter([SSHD, '-D', '-e', '-f', str(config)]), stdin=subprocess.DEVNULL, stdout=log,
                                   stderr=log)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        path = self.folder / f'sshd-{name}.log'
        wait_until(lambda: path.read_text().count('Server listening') == len(addresses), 'sshd')
        return process

    def launcher(self, key='user', **options):
        options = {'StrictHostKeyChecking': 'yes', 'UserKnownHostsFile': self.keys / 'known', 'BatchMode': 'yes',
                   'IdentitiesOnly': 'yes', 'ConnectTimeout': 60, 'ServerAliveInterval': 5, **options}
        words = ' '.join(f'-o {name}={value}' for name, value in options.items())
        return f'ssh -F none -p {self.port} -i {self.keys}/{key} {words}'

    def wait_gone(self, job):
        """Agents have the mark from their leash, so the kernel does not show it."""
        job.wait_gone()
        wait_until(lambda: may_lock(error_folder(self.tmp)), 'the end of the agents')

    def words(self, hosts, *words, launcher=None):
        return ['--launcher', launcher or self.launcher(), '-H', hosts, '-x', 'TMPDIR', '--lease=10m', *words]


class Loopback(SshCase):
    """Addresses of 127.0.0.0/8 are two hosts for ssh."""

    HOSTS = '127.0.0.2:2,127.0.0.3:2'

    def setUp(self):
        super().setUp()
        self.serve('loopback', ['127.0.0.2', '127.0.0.3'])

    def test_a_job(self):
        job = self.run_job(*self.words(self.HOSTS, '--no-prefix', 'sh', '-c', 'echo $RANK/$WORLD_SIZE; pwd'))
        self.assertEqual(job.code, 0, job.err)
        self.assertEqual(sorted(job.out.split()), sorted([f'{rank}/4' for rank in range(4)] + [str(self.folder)] * 4))

    def test_ranks_meet(self):
        job = self.run_job(*self.words(self.HOSTS, '--no-prefix', os.environ['ALLREDUCE']))
        self.assertEqual(job.code, 0, job.err)

    def test_the_code_of_a_worker(self):
        job = self.run_job(*self.words(self.HOSTS, 'sh', '-c', '[ $RANK = 2 ] && exit 9; sleep 1000'))
        self.assertEqual(job.code, 9, job.err)
        self.assertEqual(job.err.count('rank 2 failed first: exit code 9'), 1, job.err)

    def test_what_ssh_refuses(self):
        unknown = self.keys / 'nothing'
        for launcher, text in ((self.launcher('stranger'), 'Permission denied'),
                               (self.launcher(UserKnownHostsFile=unknown), 'Host key verification failed'),
                               (self.launcher().replace(f'-p {self.port}', '-p 1'), 'Connection refused')):
            job = self.run_job(*self.words(self.HOSTS, 'true', launcher=launcher))
            self.assertEqual(job.code, UNREACHABLE, job.err)
            self.assertRegex(job.err, r"host '127\.0\.0\.[23]' could not be started: exit code 255")
            self.assertIn(text, job.err)
            self.assertEqual(job.err.count('could not be started'), 1, job.err)

    def test_nothing_is_left_whatever_ends(self):
        for victim in ('guard', 'head', 'ssh'):
            with self.subTest(victim):
                job = self.start(*self.words(self.HOSTS, 'sh', '-c', 'echo up; sleep 1000'))
                job.read_until('up', 4)
                head = job.agent()
                pid = {'guard': job.pid, 'head': head, 'ssh': children(head)[0]}[victim]
                os.kill(pid, signal.SIGKILL)
                self.assertNotEqual(job.wait(), 0)
                self.wait_gone(job)

    def test_signals(self):
        job = self.start(*self.words(self.HOSTS, '--no-prefix', 'sh', '-c', 'trap "echo term; exit 0" TERM; echo up; '
                                     'while :; do sleep 1000 & wait $!; done'))
        job.read_until('up', 4)
        job.signal(signal.SIGTERM)
        self.assertEqual(job.wait(), 128 + signal.SIGTERM, job.err)
        self.assertEqual(job.out.count('term'), 4)


class Namespaces(SshCase):
    def setUp(self):
        super().setUp()
        try:
            self.wires = Wires(['head', 'one', 'two'])
        except NotPermitted as why:
            self.skipTest(str(why))
        self.addCleanup(self.wires.close)
        self.addresses = {name: self.wires.address_of(name) for name in ('head', 'one', 'two')}
        self.known(self.addresses['one'], self.addresses['two'])
        for name in ('one', 'two'):
            self.serve(name, [self.addresses[name]], lambda words, name=name: self.wires.enter(name, words))

    def begin(self, *words):
        hosts = f"{self.addresses['one']}:1,{self.addresses['two']}:1"
        command = self.wires.enter('head', [os.environ['DDPRUN'], *map(str, self.words(hosts, *words))])
        return self.start(*command[1:], program=command[0])

    def test_a_job(self):
        job = self.begin('--no-prefix', 'sh', '-c', 'echo $(hostname) $RANK $MASTER_ADDR')
        self.assertEqual(job.wait(), 0, job.err)
        self.assertEqual(sorted(job.out.splitlines()), [f"one 0 {self.addresses['head']}", f"two 1 {self.addresses['head']}"])

    def test_a_cable_that_is_pulled(self):
        """The node without the network ends its worker within its lease, and the others go on."""
        job = self.begin('--nnodes=1:2', '--lease=8s', '--shutdown-timeout=1s', '--join-timeout=30s', '--no-prefix',
                         'sh', '-c', 'echo "$(hostname) of $WORLD_SIZE"; [ $WORLD_SIZE = 1 ] || sleep 1000')
        job.read_until('of 2', 2)
        self.wires.cut('two')
        self.assertEqual(job.wait(), 0, job.err)
        self.assertIn('one of 1', job.out)
        self.wait_gone(job)


if __name__ == '__main__':
    if os.geteuid() != 0 or SSHD is None:
        skip_program('sshd is missing (Debian package openssh-server), or this is not root')
    unittest.main()
