"""attack_files.py - what a stranger on the machine tries with the files of ddprun."""

import os
import signal
import stat
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / 'lib'))
from ddprun_run import DdprunCase, children, wait_until
from ddprund_run import CONFIG, DDPRUND, DdprundCase
from nodes import may_unshare
from strangers import STRANGER, as_stranger, needs_strangers


@needs_strangers
class Files(DdprundCase):
    def test_a_stranger_cannot_read_the_token(self):
        token = self.token('make')

        def attack():
            try:
                with open(token, encoding='ascii') as file:
                    return file.read()
            except PermissionError:
                return 'refused'
        # Nothing but the modes that ddpctl gave stands in the way: the folders above are opened.
        for folder in (self.folder, self.home):
            folder.chmod(0o755)
        self.assertEqual(as_stranger(attack), 'refused')


@needs_strangers
class LogTree(DdprunCase):
    """Somebody else may write to a directory on the way to the log tree."""

    def setUp(self):
        super().setUp()
        self.folder.chmod(0o755)
        self.theirs = self.folder / 'theirs'
        self.theirs.mkdir()
        os.chown(self.theirs, STRANGER, STRANGER)
        self.secret = self.folder / 'secret'
        self.secret.write_text('secret\n')
        self.secret.chmod(0o600)

    def log_to(self, path, *words):
        return self.run_job(f'--log-dir={path}', '--tee=3', '--rdzv-id=j', *(words or ('echo', 'x')))

    def test_a_directory_of_another_user_is_refused(self):
        for below in ('', '/logs', '/logs/deeper'):
            job = self.log_to(f'{self.theirs}{below}')
            self.assert_sentence(job, CONFIG, '--log-dir', f"'theirs' belongs to another user (uid {STRANGER})",
                                 'choose a directory of your own')
            self.assertNotIn('chmod', job.err)
        self.assertEqual(os.listdir(self.theirs), [])

    def test_a_sticky_directory_of_another_user_is_refused(self):
        """Its owner may rename what others have made in it."""
        for mode in (0o1755, 0o1777):
            self.theirs.chmod(mode)
            job = self.log_to(self.theirs / 'logs')
            self.assert_sentence(job, CONFIG, '--log-dir', f"'theirs' belongs to another user (uid {STRANGER})")
        self.assertEqual(os.listdir(self.theirs), [])

    def test_one_that_everybody_may_write_to_is_refused(self):
        ours = self.folder / 'ours'
        ours.mkdir()
        ours.chmod(0o777)
        self.assert_sentence(self.log_to(ours / 'logs'), CONFIG, "'ours' is writable by all users")
        ours.chmod(0o1777)
        self.assert_succeeded(self.log_to(ours / 'logs'))

    def test_a_link_of_another_user_is_refused(self):
        (self.folder / 'root').mkdir(0o700)
        shared = self.folder / 'shared'
        shared.mkdir()
        shared.chmod(0o1777)
        as_stranger(lambda: os.symlink(self.folder / 'root', shared / 'logs'))
        self.assert_sentence(self.log_to(shared / 'logs'), CONFIG, "the link 'logs' belongs to another user")
        self.assertEqual(os.listdir(self.folder / 'root'), [])

    def test_a_link_of_ones_own_is_followed(self):
        (self.folder / 'there').mkdir()
        (self.folder / 'here').symlink_to('there')
        self.assert_succeeded(self.log_to(self.folder / 'here' / 'logs'))
        self.assertTrue((self.folder / 'there' / 'logs' / 'latest').is_dir())

    def test_the_temporary_directory_too(self):
        job = self.start('true', env={'TMPDIR': self.theirs})
        job.wait()
        self.assert_sentence(job, CONFIG, 'TMPDIR', "'theirs' belongs to another user")

    def test_a_tree_that_is_moved_away_is_written_where_it_is(self):
        """Whoever may rename it can plant links of the same names."""
        logs = self.folder / 'logs'
        job = self.start(f'--log-dir={logs}', '--tee=3', '--rdzv-id=j', '--max-restarts=1', 'sh', '-c',
                         'echo x; [ "$$TORCHELASTIC_RESTART_COUNT" = 1 ] || { : > begun; '
                         'until [ -e go ]; do :; done; exit 1; }')
        wait_until((self.folder / 'begun').exists, 'the first attempt')

        def plant():
            tree = (logs / 'latest').resolve()
            tree.rename(logs / 'moved')
            for stream in ('stdout', 'stderr'):
                place = tree / 'attempt_1' / '0'
                place.mkdir(parents=True, exist_ok=True)
                (place / f'{stream}.log').symlink_to(self.secret)
        plant()
        (self.folder / 'go').write_text('')
        self.assertEqual(job.wait(), 0, job.err)
        self.assertEqual(self.secret.read_text(), 'secret\n')
        self.assertEqual((logs / 'moved/attempt_1/0/stdout.log').read_text(), 'x\n')


class EventLog(DdprunCase):
    def test_nobody_else_may_read_it(self):
        log = self.folder / 'events'
        job = self.run_job(f'--event-log={log}', 'true', preexec_fn=lambda: os.umask(0))
        self.assertEqual(job.code, 0, job.err)
        self.assertEqual(stat.S_IMODE(log.stat().st_mode), 0o600)


class Terminal(DdprunCase):
    """What a worker writes reaches a person's terminal by the report, too."""

    def test_the_report_spells_control_characters_out(self):
        script = self.write('worker.py', 'import sys\n'
                            'sys.stderr.buffer.write(b"a\\x9b31mb\\xc2\\x9b31mc\\x1b[2Jd \\xe2\\x80\\x94\\n")\n'
                            'sys.exit(1)\n')
        job = self.run_job(script)
        self.assertIn(b'  | a\\x9b31mb\\x9b31mc\\x1b[2Jd \xe2\x80\x94\n', job.err_bytes)


class Root(DdprundCase):
    @unittest.skipUnless(os.geteuid() == 0, 'a service of root can be started by root only')
    @unittest.skipUnless(may_unshare('--pid', '--fork'), 'a namespace of processes may not be made here')
    def test_a_service_that_is_root_says_so_but_in_a_container(self):
        service = self.serve()
        contained = os.readlink('/proc/self/ns/pid') != 'pid:[4026531836]'
        service.signal(signal.SIGTERM)
        service.wait()
        self.assertEqual('runs as root' in service.err, not contained, service.err)
        service = self.start('--pid', '--fork', '--kill-child', DDPRUND, '--listen=127.0.0.1:0',
                             program='unshare')
        service.read_until('listening on ')
        self.assertNotIn('runs as root', service.err)
        os.kill(children(service.pid)[0], signal.SIGTERM)
        service.wait()
