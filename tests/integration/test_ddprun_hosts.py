"""A job on many hosts that one ddprun starts: lists of hosts, remote shells that fail in every way, signals,
and that nothing is left on any host, whatever ends. The remote shells here are scripts that run the command
on this machine; a real sshd is in tests/interop."""

import os
import signal
import socket
import subprocess
import sys
import time
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / 'lib'))
from ddprun_run import DDPRUN, DdprunCase, children, wait_until
from ddprund_run import DDPCTL
from nodes import is_alive, may_unshare
from proc_tree import all_processes

UNREACHABLE, TRY_AGAIN, CONFIG, STOPPED = 69, 75, 78, 143
MORE_THAN_IS_QUEUED = 1024 * 1024 + 3 * 32 * 1024 # bytes; what is more fits into the two pipes between reader and worker

SHELL = r'''#!/bin/sh
host=${1#*@}
echo "$1" >>"$TMPDIR/../started"
case $host in
bad) echo "ssh: Could not resolve hostname $host: Name or service not known" >&2; exit 255 ;;
locked) echo "$host: Permission denied (publickey,password)." >&2; exit 255 ;;
hang) exec sleep 1000 ;;
sick) export SICK=1 ;;
slow) trap '' TERM; sleep 1 ;;
late) until [ -e "$TMPDIR/../ended" ]; do sleep 0.02; done ;;
named*) exec unshare $UNSHARE --uts sh -c "hostname $host; exec sh -c \"\$0\"" "$2" ;;
flood) yes garbage | head -c 1000000 ;;
prompting) printf "%01000d user@host:~\$ " 0 ;;
noisy) echo "Welcome to $host!"; echo motd >&2 ;;
weak*) sh -c "$2"; exit ;;
silent) exit 0 ;;
empty) echo "sh: 1: ddprun: not found" >&2; exit 127 ;;
esac
exec sh -c "$2"
'''


# Works until there is a file "end-WORLD_SIZE", which has its exit code.
WORKER = 'echo "world $WORLD_SIZE"; until [ -e end-$WORLD_SIZE ]; do sleep 0.02; done; exit $(cat end-$WORLD_SIZE)'
AS_USER = ('--user', '--map-root-user')
UNSHARE = () if may_unshare('--uts') else AS_USER if may_unshare(*AS_USER, '--uts') else None
needs_names = unittest.skipIf(UNSHARE is None, 'a process may not have a host name of its own here: that takes root or '
                              'user namespaces')


class HostsCase(DdprunCase):
    def setUp(self):
        super().setUp()
        self.shell = self.write('shell', SHELL)
        self.env['XDG_CONFIG_HOME'] = str(self.folder / 'config')
        self.env['UNSHARE'] = ' '.join(UNSHARE or ())
        self.started = self.folder / 'started'
        self.started.write_text('')

    def words(self, *words):
        return ['--launcher', self.shell, '--local-addr=127.0.0.1', '--lease=10m', *words]

    def job(self, *words, **options):
        return self.run_job(*self.words(*words), **options)

    def ctl(self, verb, job, *words):
        """ddpctl on a job whose workers have said where its store is."""
        store = next(line.split()[1] for line in job.out.splitlines() if line.startswith('store '))
        done = subprocess.run([DDPCTL, verb, '--endpoint', store, *words], env=self.env, capture_output=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)

    def show(self, *words, code=0):
        """The lines of workers that show their place."""
        job = self.job(*words, '--no-prefix', 'sh', '-c', 'echo $RANK/$WORLD_SIZE $GROUP_RANK $LOCAL_RANK')
        self.assertEqual(job.code, code, job.err)
        return sorted(job.out.splitlines())


class Lists(HostsCase):
    def test_how_much_is_said_holds_for_each_host(self):
        loud = self.job('-H', 'a:1,b:1', '--verbose', 'true').err
        for line, count in (("ddprun runs on host '", 2), ('has ended: exit code 0', 2), ('this node is', 2)):
            self.assertEqual(loud.count(line), count, loud)
        quiet = self.job('-H', 'a:1,b:1', '--quiet', 'true')
        self.assertEqual((quiet.code, quiet.err), (0, ''))

    def test_workers_of_all_hosts(self):
        self.assertEqual(self.show('-H', 'a:2,me@b:1'), ['0/3 0 0', '1/3 0 1', '2/3 1 0'])
        self.assertEqual(sorted(self.started.read_text().split()), ['a', 'me@b'])

    def test_number_of_workers(self):
        self.assertEqual(self.show('-np', '3', '-H', 'a:2,b:2,c:2'), ['0/3 0 0', '1/3 0 1', '2/3 1 0'])
        self.assertEqual(sorted(self.started.read_text().split()), ['a', 'b'])
        self.assertEqual(self.show('--nproc-per-node=2', '--hosts=a'), ['0/2 0 0', '1/2 0 1'])
        # Without hosts it is the number of workers here.
        job = self.run_job('-np', '2', '--no-prefix', 'sh', '-c', 'echo $LOCAL_RANK')
        self.assertEqual(sorted(job.out.split()), ['0', '1'])
        job = self.run_job('-x', 'GIVEN=a=b', '-x', 'HOME', '--no-prefix', 'sh', '-c', 'echo $GIVEN')
        self.assertEqual(job.out, 'a=b\n')
        self.assert_sentence(self.run_job('--include=a', 'true'), 2, '--include', '--hosts')

    def test_files(self):
        file = self.write('hosts', '# two hosts\na slots=1\nb slots=2 # the other\n')
        self.assertEqual(self.show('--hostfile', file), ['0/3 0 0', '1/3 1 0', '2/3 1 1'])
        self.assertEqual(self.show('-hostfile', file, '--exclude=a'), ['0/2 0 0', '1/2 0 1'])

    def test_chosen_slots_are_the_devices(self):
        job = self.job('-H', 'a:4,b:4', '--include=a:1,3@b:0', '--no-prefix', 'sh', '-c', 'echo $CUDA_VISIBLE_DEVICES')
        self.assertEqual(sorted(job.out.split()), ['0', '1,3', '1,3'])

    def test_hosts_of_this_machine_need_no_shell(self):
        name = socket.gethostname().split('.')[0]
        job = self.run_job('-H', f'{name}:2', '--no-prefix', 'sh', '-c', 'echo $WORLD_SIZE $MASTER_ADDR')
        self.assertEqual((job.code, job.out), (0, '2 127.0.0.1\n' * 2), job.err)
        self.assertEqual(self.started.read_text(), '')

    def test_what_is_wrong_with_a_list(self):
        file = self.write('hosts', 'a slots=2\nb slots=none\n')
        for words, code, *texts in ((['-H', 'a:0'], 2, '--hosts', "'0' is not a number of slots"),
                                    (['-H', 'a,a'], 2, '--hosts', "'a' is listed twice"),
                                    (['--hostfile', file], 2, '--hostfile', 'line 2', "'none'"),
                                    (['--hostfile', '/nowhere'], 2, '--hostfile', '/nowhere'),
                                    (['-H', 'a', '--hostfile', file], 2, 'give one of them'),
                                    (['-H', 'a:1', '-np', '2'], 2, '-np', 'more slots than the 1'),
                                    (['-H', 'a', '--include=b'], 2, '--include', "'b' is not in the list"),
                                    (['-H', 'a', '--nnodes=2'], 2, '--nnodes', 'only 1 host is listed'),
                                    (['-H', 'a', '--standalone'], 2, '--standalone'),
                                    (['-H', 'a', '--rdzv-endpoint=b:1'], 2, '--rdzv-endpoint'),
                                    (['-H', 'a', '--blacklist-cooldown-range=1:2'], 2, '--blacklist-cooldown-range',
                                     '--host-discovery-script')):
            self.assert_sentence(self.job(*words, 'true'), code, *texts)
        self.assert_sentence(self.run_job('--launcher=no-such-shell', '-H', 'a', 'true'), CONFIG, 'no-such-shell')
        self.assert_sentence(self.run_job('--launcher', self.shell, '-H', 'no.such.host.invalid', 'true'), CONFIG,
                             '--local-addr')
        self.assertEqual(self.started.read_text(), '')


class Environment(HostsCase):
    def test_what_other_hosts_get(self):
        shell = self.write('clean', '#!/bin/sh\nexec env -i TMPDIR="$TMPDIR" '
                           'DDPRUN_TEST_MARK="$DDPRUN_TEST_MARK" HOME=/there sh -c "$2"\n')
        env = {'NCCL_DEBUG': 'INFO', 'SECRET': 'x', 'MINE': "it's\n2", 'PYTHONPATH': '/p', 'HOME': '/here'}
        script = 'echo "$NCCL_DEBUG,$SECRET,$MINE,$PYTHONPATH,$HOME,$GIVEN"'
        job = self.run_job('--launcher', shell, '--local-addr=127.0.0.1', '-H', 'a', '-x', 'MINE', '-x', 'GIVEN=a b',
                           '--no-prefix', 'sh', '-c', script, env=env)
        self.assertEqual((job.code, job.out), (0, "INFO,,it's\n2,/p,/there,a b\n"), job.err)

    def test_arguments_and_folder_come_as_they_are(self):
        job = self.job('-H', 'a', '--no-prefix', 'sh', '-c', 'pwd; for i; do echo "<$i>"; done', 'x', "it's", '', 'a  b',
                       '$HOME', '*', '!')
        self.assertEqual(job.out.splitlines(), [str(self.folder), "<it's>", '<>', '<a  b>', '<$HOME>', '<*>', '<!>'])

    def test_the_token_is_on_no_command_line(self):
        job = self.start(*self.words('-H', 'a,b', 'sh', '-c', 'echo up; sleep 1000'))
        job.read_until('up', 2)
        token = (self.folder / 'config/ddprun/token').read_text().strip()
        self.assertEqual(len(token), 64)
        for pid in job.running():
            for file in ('cmdline', 'environ'):
                try:
                    text = Path('/proc', str(pid), file).read_bytes()
                except PermissionError: # nobody but root may
                    continue
                self.assertNotIn(token.encode(), text)
        job.signal(signal.SIGTERM)
        self.assertEqual(job.wait(), 128 + signal.SIGTERM)

    def test_a_leash_is_for_launchers(self):
        self.assert_sentence(self.run_job('--leash', 'true'), 2, 'launcher is gone')
        self.assert_sentence(self.run_job('--nproc-per-node=1', '--leash', 'true'), 2, '--leash must be the first')
        job = subprocess.run([DDPRUN, '--leash', 'true'], input=b'GET / HTTP/1.1\n', capture_output=True, check=False)
        self.assertEqual(job.returncode, 2)
        self.assertIn(b"'GET / HTTP/1.1' is no line of a launcher", job.stderr)


class Failures(HostsCase):
    def test_a_command_that_is_too_long(self):
        words = ['-H', 'a,b', 'true', *('x' * 1000 for _ in range(200))]
        self.assert_sentence(self.job(*words), CONFIG, "'a'", '128 KiB', 'into a file')
        self.assert_sentence(self.job('--dry-run', *words), CONFIG, "'a'", '128 KiB', 'into a file')

    def test_a_worker_that_fails(self):
        job = self.job('-H', 'a:2,b:2', 'sh', '-c', 'if [ $RANK = 3 ]; then echo oh no >&2; exit 7; fi; sleep 1000')
        self.assertEqual(job.code, 7, job.err)
        self.assertEqual(job.err.count('rank 3 failed first: exit code 7'), 1, job.err)

    def test_a_job_that_is_over_is_not_run_again(self):
        """Neither by a spare host nor by one that answers late; their codes do not count."""
        job = self.job('-H', 'a:1,b:1,c:1', '--nnodes=1:2', '--settle=1s', 'sh', '-c', '[ $RANK = 0 ] || exit 7; sleep 1000')
        self.assertEqual(job.code, 7, job.err)
        self.assertEqual(sorted(self.started.read_text().split()), ['a', 'b'])
        self.started.write_text('')
        job = self.start(*self.words('-H', 'a:1,b:1,c:1', '--nnodes=1:2', '--no-prefix', 'sh', '-c',
                                     'echo "store $DDPRUN_STORE"; sleep 1000'))
        job.read_until('store', 2)
        self.ctl('stop', job)
        self.assertEqual(job.wait(), STOPPED, job.err)
        self.assertEqual(sorted(self.started.read_text().split()), ['a', 'b'])
        job = self.job('-H', 'a:1,late:1', '--nnodes=1:2', '--settle=0s', '--join-policy=never', '--no-prefix', 'sh', '-c',
                       'echo ran; touch ended')
        self.assertEqual((job.code, job.out), (0, 'ran\n'), job.err)

    def test_workers_that_end_as_a_broken_connection_does(self):
        for script, code in (('kill -9 $$$$', 128 + signal.SIGKILL), ('exit 255', 255)):
            job = self.job('-H', 'a:1,b:1', 'sh', '-c', f'[ $RANK = 1 ] && {script}; sleep 1000')
            self.assertEqual(job.code, code, job.err)
            self.assertIn('rank 1 failed first', job.err)
            self.assertNotIn('is lost', job.err)

    def test_a_host_that_leaves(self):
        """As its user has sent it a signal. The others go on, and have the result."""
        for code in (0, 5):
            job = self.job('-H', 'a:1,b:1', '--nnodes=1:2', 'sh', '-c',
                           f'[ $WORLD_SIZE = 1 ] && exit {code}; [ $RANK = 1 ] && kill -TERM $PPID; sleep 1000')
            self.assertEqual(job.code, code, job.err)
            self.assertNotIn('is lost', job.err)
        job = self.job('-H', 'a:1,b:1', 'sh', '-c', '[ $RANK = 1 ] && kill -TERM $PPID; sleep 1000')
        self.assertEqual(job.code, 128 + signal.SIGTERM, job.err)

    @needs_names
    def test_a_host_that_is_drained(self):
        job = self.start(*self.words('-H', 'named-a:1,named-b:1,named-c:1', '--nnodes=1:2', '--shutdown-timeout=1s', '--no-prefix',
                                     'sh', '-c', f'echo "store $DDPRUN_STORE"; {WORKER}'))
        job.read_until('world 2', 2)
        self.ctl('drain', job, 'named-b')
        job.read_until('world 2', 4)
        self.write('end-2', '5')
        self.assertEqual(job.wait(), 5, job.err)
        self.assertEqual(self.started.read_text().split()[2:], ['named-c'])

    def test_a_restart(self):
        job = self.job('-H', 'a:1,b:1', '--max-restarts=1', '--no-prefix', 'sh', '-c',
                       'echo $TORCHELASTIC_RESTART_COUNT; [ $TORCHELASTIC_RESTART_COUNT = 1 ] || '
                       '{ [ $RANK = 1 ] && exit 3; sleep 1000; }')
        self.assertEqual((job.code, job.out.split().count('1')), (0, 2), job.err)

    def test_a_host_that_cannot_be_started(self):
        for host, text in (('bad', 'Could not resolve hostname bad'), ('locked', 'Permission denied'),
                           ('empty', 'ddprun: not found')):
            job = self.job('-H', f'a:1,{host}:1,c:1', 'sleep', '1000')
            self.assertEqual(job.code, UNREACHABLE, job.err)
            self.assertEqual(job.err.count('could not be started'), 1, job.err)
            self.assertIn(f"ddprun: host '{host}' could not be started: exit code ", job.err)
            self.assertIn(text, job.err)

    def test_names_that_only_ssh_knows(self):
        job = self.run_job('--launcher', self.shell, '-H', 'alias.invalid:1,other.invalid:1', 'true')
        self.assert_sentence(job, CONFIG, "any of the hosts, such as 'alias.invalid'", '--local-addr=ADDRESS')

    def test_a_host_that_answers_too_late(self):
        """It has been given up: its hello means nothing, and it ends with its leash."""
        job = self.job('-H', 'slow:1', '--start-timeout=0.3', 'sh', '-c', 'touch ran')
        self.assertEqual(job.code, UNREACHABLE, job.err)
        self.assertIn("ddprun: host 'slow' could not be started: no answer within 0.3 s", job.err)
        self.assertFalse((self.folder / 'ran').exists())

    def test_a_host_that_does_not_answer(self):
        job = self.job('-H', 'a:1,hang:1', '--start-timeout=10s', 'sleep', '1000')  # in which the other one answers
        self.assertEqual(job.code, UNREACHABLE, job.err)
        self.assertIn("host 'hang' could not be started: no answer within 10.0 s", job.err)
        self.assertNotIn('was ended by SIGTERM', job.err)  # nobody has sent it one

    def test_a_host_that_is_not_needed(self):
        job = self.start(*self.words('-H', 'a:1,bad:1', '--nnodes=1:2', '--no-prefix', 'sh', '-c',
                                     'until [ -e told ]; do sleep 0.02; done; echo $WORLD_SIZE'))
        job.read_until("host 'bad' could not be started")
        self.write('told', '')
        self.assertEqual((job.wait(), job.out), (0, '1\n'), job.err)
        job.wait_gone()

    def test_what_a_login_shell_prints_is_no_output(self):
        job = self.job('-H', 'noisy:1,flood:1,prompting:1', '--no-prefix', 'echo', 'hi')
        self.assertEqual((job.code, job.out), (0, 'hi\n' * 3), job.err)

    def test_one_error_for_all_hosts(self):
        job = self.job('-H', 'h[1-9]', './no-such-program')
        self.assertEqual(job.code, CONFIG, job.err)
        self.assertEqual(job.err.count("'./no-such-program' does not exist"), 1, job.err)

    def test_a_connection_that_breaks(self):
        job = self.start(*self.words('-H', 'weak1:1,weak2:1', 'sh', '-c', 'echo up $$; sleep 1000'))
        job.read_until('up', 2)
        shells = [pid for head in children(job.pid) for pid in children(head)]
        self.assertEqual(len(shells), 2)
        os.kill(shells[0], signal.SIGKILL)
        self.assertEqual(job.wait(), UNREACHABLE, job.err)
        self.assertRegex(job.err, "host 'weak[12]' is lost: killed by signal 9")

    def test_a_spare_host_steps_in_at_the_start(self):
        """For one that cannot be started, and for one that fails its check, though all seats are needed."""
        for host, *words in (('bad',), ('sick', '--node-check=[ -z "$SICK" ]', '--join-timeout=20s')):
            job = self.job('-H', f'a:1,{host}:1,c:1', '--nnodes=2', *words, '--no-prefix', 'sh', '-c', 'echo "world $WORLD_SIZE"')
            self.assertEqual((job.code, job.out), (0, 'world 2\n' * 2), job.err)

    def test_a_host_is_tried_once(self):
        """Also one whose shell says that all is well."""
        job = self.start(*self.words('-H', 'a:1,silent:1', '--nnodes=1:2', '--settle=0s', '--no-prefix', 'sh', '-c',
                                     'echo up; read -r line <go'))
        os.mkfifo(self.folder / 'go')
        job.read_until("host 'silent' could not be started: exit code 0")
        job.read_until('up')
        (self.folder / 'go').write_text('\n')
        self.assertEqual(job.wait(), 0, job.err)
        self.assertEqual(sorted(self.started.read_text().split()), ['a', 'silent'])

    def test_a_host_that_was_not_needed_steps_in(self):
        job = self.start(*self.words('-H', 'weak1:1,weak2:1,c:1', '--nnodes=1:2', '--settle=0s', '--no-prefix', 'sh', '-c',
                                     'echo "world $WORLD_SIZE"; sleep 1000'))
        job.read_until('world 2', 2)
        os.kill(children(children(job.pid)[0])[0], signal.SIGKILL)
        job.read_until('world 2', 4)
        self.assertEqual(self.started.read_text().split()[2:], ['c'])
        job.signal(signal.SIGTERM)
        self.assertEqual(job.wait(), 128 + signal.SIGTERM, job.err)

    def ended_with_output(self, code):
        """A job whose host has ended before all of its output was read: the rest is in the pipes from it."""
        job = self.start(*self.words('-H', 'a:1', '--no-prefix', 'sh', '-c',
                                     f'yes 0123456789abcde | head -c {MORE_THAN_IS_QUEUED}; echo THE REASON >&2; exit {code}'))
        head = job.agent()
        wait_until(lambda: self.started.read_text() and not children(head), 'the end of the host')
        return job, head

    def test_a_reader_that_pauses_loses_nothing(self):
        job, _ = self.ended_with_output(3)
        time.sleep(1.5) # longer than what ddprun waits for leftover pipes
        self.assertEqual(job.wait(), 3, job.err)
        self.assertEqual(len(job.out), MORE_THAN_IS_QUEUED)
        for line in ('THE REASON\n', 'rank 0 failed first: exit code 3'):
            self.assertIn(line, job.err)

    def test_output_that_nobody_reads_keeps_nobody(self):
        job, _ = self.ended_with_output(0)
        job.signal(signal.SIGTERM)
        self.assertEqual(job.process.wait(), 0)
        job, head = self.ended_with_output(0)
        os.kill(job.pid, signal.SIGKILL)
        job.process.wait()
        job.wait_gone()

    def test_the_limit_on_open_files_is_that_of_the_shell(self):
        job = self.run_job('-c', 'ulimit -Sn 512; exec "$@"', '-', DDPRUN,
                           *self.words('-H', 'a:1', '--no-prefix', 'sh', '-c', 'ulimit -Sn'), program='sh')
        self.assertEqual((job.code, job.out), (0, '512\n'), job.err)

    def test_signals(self):
        script = 'trap "echo usr1" USR1; trap "echo term; exit 0" TERM; echo up; while :; do sleep 1000 & wait $!; done'
        job = self.start(*self.words('-H', 'a:1,b:1', 'sh', '-c', script))
        job.read_until('up', 2)
        job.signal(signal.SIGUSR1)
        job.read_until('usr1', 2)
        job.signal(signal.SIGTERM)
        self.assertEqual(job.wait(), 128 + signal.SIGTERM, job.err)
        self.assertEqual(job.out.count('term'), 2)

    def test_the_second_signal_kills(self):
        job = self.start(*self.words('-H', 'a:1,b:1', 'sh', '-c', 'trap "" TERM; echo up; while :; do sleep 1000; done'))
        job.read_until('up', 2)
        job.signal(signal.SIGTERM)
        job.read_until('stopping 1 worker', 2)
        job.insist(signal.SIGTERM)
        self.assertEqual(job.wait(), 128 + signal.SIGTERM, job.err)

    def test_nothing_is_left_when_the_launcher_is_killed(self):
        for victim in ('guard', 'head'):
            job = self.start(*self.words('-H', 'a:2,b:2', 'sh', '-c', 'echo up; sleep 1000'))
            job.read_until('up', 4)
            os.kill(job.pid if victim == 'guard' else job.agent(), signal.SIGKILL)
            job.wait()
            job.wait_gone()


class Discovery(HostsCase):
    def setUp(self):
        super().setUp()
        self.list = self.folder / 'list'
        self.list_hosts('a:1\n')
        self.script = self.write('discover', f'#!/bin/sh\ncat {self.list}\n')

    def list_hosts(self, text):
        """At once: the script that reads the list must not see half of it."""
        self.write('new-list', text).rename(self.list)

    def discover(self, *words, **options):
        return self.start(*self.words('--host-discovery-script', self.script, '--settle=0s', *words), **options)

    def test_what_a_script_leaves_behind_ends_with_its_run(self):
        """It keeps the output open, so the run has no end of its own. The next one is fine."""
        left = self.folder / 'left'
        self.script = self.write('leave', f'#!/bin/sh\n[ -e {left} ] || {{ sleep 1000 & echo $! >{left}; }}\ncat {self.list}\n')
        job = self.discover('true')
        self.assertEqual(job.wait(), 0, job.err)
        self.assertIn("leave' did not end within 10 s", job.err)
        self.assertFalse(is_alive(int(left.read_text())))

    def test_hosts_come_and_go(self):
        job = self.discover('--nnodes=1:2', '--no-prefix', 'sh', '-c', 'echo "world $WORLD_SIZE"; sleep 1000')
        job.read_until('world 1\n')
        self.list_hosts('a:1\nb:1\n')
        job.read_until('world 2\n', 2)
        self.list_hosts('b:1\n')
        job.read_until("host 'a' is no longer listed")
        job.read_until('world 1\n', 2)
        job.signal(signal.SIGTERM)
        self.assertEqual(job.wait(), 128 + signal.SIGTERM, job.err)

    def test_a_worker_that_is_killed_is_no_lost_host(self):
        job = self.discover('--blacklist-cooldown-range=1s:1s', 'sh', '-c', '[ -e once ] || { touch once; kill -9 $$$$; }')
        self.assertEqual(job.wait(), 128 + signal.SIGKILL, job.err)
        self.assertEqual(self.started.read_text().split(), ['a'])

    def test_a_host_that_left_comes_back(self):
        self.list_hosts('a:1\nb:1\n')
        job = self.discover('--nnodes=1:2', '--settle=1s', '--no-prefix', 'sh', '-c',
                            f'[ $RANK = 1 ] && [ ! -e once ] && {{ touch once; kill -TERM $PPID; sleep 1000; }}; {WORKER}')
        job.read_until('world 2', 3)
        self.write('end-2', '0')
        self.assertEqual(job.wait(), 0, job.err)

    def test_a_host_that_comes_back_with_other_slots(self):
        job = self.discover('--no-prefix', 'sh', '-c', WORKER)
        job.read_until('world 1')
        self.list_hosts('')
        job.read_until("host 'a' is no longer listed")
        self.list_hosts('a:2\n')
        self.write('end-2', '0')
        self.assertEqual(job.wait(), 0, job.err)
        self.assertEqual(job.out.count('world 2'), 2)

    @needs_names
    def test_a_host_that_is_drained_stays_away(self):
        """As long as it is listed. The script lists the hosts again and again meanwhile."""
        self.list_hosts('named-a:1\nnamed-b:1\n')
        runs = self.folder / 'runs'
        self.write('discover', f'#!/bin/sh\necho run >>{runs}\ncat {self.list}\n')
        job = self.discover('--nnodes=1:2', '--no-prefix', 'sh', '-c', f'echo "store $DDPRUN_STORE"; {WORKER}')
        job.read_until('world 2', 2)
        self.ctl('drain', job, 'named-b')
        job.read_until('world 1')
        before = runs.read_text().count('run')
        wait_until(lambda: runs.read_text().count('run') >= before + 3, 'three more lists')
        self.write('end-1', '0')
        self.assertEqual(job.wait(), 0, job.err)
        self.assertEqual(self.started.read_text().count('named-b'), 1)

    def test_what_a_script_leaves_behind_is_collected(self):
        runs = self.folder / 'runs'
        self.write('discover', f'#!/bin/sh\nsleep 0.1 >/dev/null &\necho run >>{runs}\ncat {self.list}\n')
        job = self.discover('sleep', '1000')
        head = job.agent()
        def dead_after(count):
            wait_until(lambda: runs.exists() and runs.read_text().count('run') >= count, f'{count} runs')
            return {process.pid for process in all_processes() if process.parent == head and process.state == 'Z'}
        self.assertEqual(dead_after(3) & dead_after(5), set())
        job.signal(signal.SIGTERM)
        self.assertEqual(job.wait(), 128 + signal.SIGTERM, job.err)

    def test_a_script_that_fails_changes_nothing(self):
        job = self.discover('--nnodes=1:2', '--no-prefix', 'sh', '-c', 'echo up; read line <go')
        go = self.folder / 'go'
        os.mkfifo(go)
        job.read_until('up')
        for script, text in (('exit 3', 'ended with exit code 3'), ('echo a:none', "'none' is not a number of slots"),
                             ('kill -9 $$', 'killed by signal 9'), ('yes', 'printed more than')):
            new = self.write('new', f'#!/bin/sh\n{script}\n')
            new.rename(self.script)
            job.read_until(text)
        go.write_text('\n')
        self.assertEqual(job.wait(), 0, job.err)

    def test_a_host_that_failed_comes_back_after_its_cooldown(self):
        shell = self.write('once', '#!/bin/sh\n[ -e "$TMPDIR/../failed" ] || { : >"$TMPDIR/../failed"; exit 255; }\n'
                           'exec sh -c "$2"\n')
        for words, code, output in ((['--blacklist-cooldown-range=100ms:1s'], 0, 'hi\n'),
                                    (['--join-timeout=6s'], TRY_AGAIN, '')):
            (self.folder / 'failed').unlink(missing_ok=True)
            job = self.run_job('--launcher', shell, '--local-addr=127.0.0.1', '--host-discovery-script', self.script,
                               '--settle=0s', *words, '--no-prefix', 'echo', 'hi')
            self.assertEqual((job.code, job.out), (code, output), job.err)
            self.assertIn("host 'a' could not be started: exit code 255", job.err)

    def test_no_host_at_all(self):
        self.list_hosts('')
        job = self.discover('--join-timeout=1s', 'true')
        self.assertEqual(job.wait(), TRY_AGAIN, job.err)
        self.assertIn('no host could be started within 1 s', job.err)
        hanging = self.write('hanging', '#!/bin/sh\nsleep 1000\n') # it is ended with the job
        job = self.job('--host-discovery-script', hanging, '--join-timeout=1s', 'true')
        self.assertEqual(job.code, TRY_AGAIN, job.err)
        self.assert_sentence(self.run_job('--host-discovery-script=./nowhere', 'true'), 2, './nowhere')


if __name__ == '__main__':
    unittest.main()
