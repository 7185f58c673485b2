#!/usr/bin/env python3
"""test_ddprund_cluster.py - what `ddprund --cluster` refuses before it starts anything. Its etcd is a script, which says
what version it is; tests/interop/test_keeper.py has a real one.
"""

import signal
import socket
import sys
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / 'lib'))
from ddprund_run import CONFIG, USAGE
from keepers import KeeperCase


class Refusals(KeeperCase):
    def setUp(self):
        super().setUp()
        self.env.update(self.etcd_that_says('3.5.16'))

    def refused(self, *words, code=CONFIG, **options):
        job = self.daemon(*words, **options)
        self.assertEqual(job.wait(), code, job.err)
        return job.err

    def test_lists(self):
        self.assertIn('lists two machines', self.refused('--cluster=127.0.0.1,127.0.0.2'))
        self.assertIn('none of the listed machines', self.refused('--cluster=198.51.100.1,198.51.100.2,198.51.100.3'))
        self.assertIn('3 of the listed machines', self.refused(f'--cluster={self.list}'))
        self.assertIn('is not one of the listed machines',
                      self.refused(f'--cluster={self.list}', '--advertise=127.0.0.9:1'))
        self.assertIn('which no other machine reaches',
                      self.refused('--cluster=localhost:1,198.51.100.1:1,198.51.100.2:1', '--advertise=localhost:1'))

    def test_of_a_job(self):
        """A machine that is not listed needs no keeper; one that is says what to do with the options of ddprun."""
        for words in (['--cluster=198.51.100.1,198.51.100.2,198.51.100.3'],
                      [f'--cluster={self.list}', '--advertise=127.0.0.9:1']):
            job = self.daemon(*words, '--cluster-job=J')
            self.assertEqual((job.wait(), job.out, job.err), (0, '', ''))
        self.assertIn('say which it is with --local-addr', self.refused(f'--cluster={self.list}', '--cluster-job=J'))
        self.assertIn('needs --cluster', self.refused('--cluster-job=J', code=USAGE))
        self.assertIn('name of a job', self.refused(f'--cluster={self.list}', '--cluster-job=a/b', code=USAGE))

    def test_a_name_without_an_address(self):
        """It may be this machine's, and come later; meanwhile nobody need wait for this keeper."""
        notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.addCleanup(notify.close)
        notify.bind(str(self.folder / 'notify'))
        job = self.daemon('--cluster=198.51.100.1,198.51.100.2,nobody.invalid', '--cluster-job=J',
                          env={'NOTIFY_SOCKET': str(self.folder / 'notify')})
        job.read_until("the name 'nobody.invalid' in the list (198.51.100.1,198.51.100.2,nobody.invalid) has no address")
        self.assertEqual(notify.recv(64), b'READY=1')
        self.assertIsNone(job.process.poll())
        job.signal(signal.SIGTERM)
        job.wait()

    def test_an_address_of_a_listed_name(self):
        port = self.endpoints[0].rpartition(':')[2]
        address = socket.getaddrinfo('localhost', None, type=socket.SOCK_STREAM)[0][4][0]
        at = f'[{address}]:{port}' if ':' in address else f'{address}:{port}'
        self.assertIn(f"'localhost' is {address} here",
                      self.refused(f'--cluster=localhost:{port},198.51.100.1,198.51.100.2', f'--advertise={at}'))

    def test_other_options(self):
        for words in (['--state=/tmp/x'], ['--no-auth']):
            job = self.daemon(f'--cluster={self.list}', *words)
            self.assertNotEqual(job.wait(), 0)
            self.assertIn('leave', job.err)

    def test_a_taken_port(self):
        host, _, port = self.endpoints[0].rpartition(':')
        for taken, says in ((self.peer_port, '--peer-port'), (int(port), port)):
            with socket.create_server((host, taken)):
                job = self.keeper(0)
                self.assertEqual(job.wait(), CONFIG, job.err)
                self.assertIn(says, job.err)

    def test_another_etcd(self):
        for version in ('3.6.1', '3.3.25', '3.4.15', '3.5.2', '4.0.0', ''):
            job = self.keeper(0, env=self.etcd_that_says(version))
            self.assertEqual(job.wait(), CONFIG)
            self.assertIn(version or 'names no version', job.err)


if __name__ == '__main__':
    unittest.main()
