"""installed.py - tries each program of an installation, and each verb and benchmark of it, where nothing else is in PATH."""

import os
import re
import subprocess
import tempfile
from pathlib import Path

VERSIONED = ('ddprun', 'ddprund', 'ddpctl')
HELPERS = ('ddp-perf-ddprun',)  # that ddp-perf starts
SIZE = ('-b', '4K', '-e', '4K')
# Each way in which ddp-perf starts a program of ours.
BENCHMARKS = (('allreduce', '--nproc=2', *SIZE), ('tune', '--nproc=2', *SIZE, '--output=table'))


class Installed:
    """The programs in the folder @programs, which run with @env besides PATH, in a folder of their own."""

    def __init__(self, case, programs, env, path='/usr/bin:/bin'):
        self.case, self.programs = case, Path(programs)
        folder = tempfile.TemporaryDirectory()
        case.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.env = {name: value for name, value in env.items() if not name.startswith('DDP')}
        self.env.pop('XDG_CONFIG_HOME', None)
        self.env.update(PATH=f'{programs}:{path}', HOME=self.folder)

    def run(self, program, *words, codes=(0,)):
        done = subprocess.run([str(self.programs / program), *words], cwd=self.folder, env=self.env, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        self.case.assertIn(done.returncode, codes, f'{program} {" ".join(words)}: exit code {done.returncode}\n{done.stdout}')
        return done.stdout

    def try_all(self):
        case = self.case
        for program in (*VERSIONED, 'ddp-perf', *HELPERS):
            case.assertTrue(os.access(self.programs / program, os.X_OK), program)
        versions = {self.run(program, '--version').split()[-1] for program in VERSIONED}
        case.assertEqual(len(versions), 1, versions)
        self.try_launcher()
        self.try_verbs()
        self.try_daemon()
        self.try_benchmarks()

    def try_launcher(self):
        out = self.run('ddprun', '--nproc-per-node=2', '--no-prefix', '--numa-binding=node', 'sh', '-c', 'echo rank=$RANK')
        self.case.assertEqual(re.findall(r'rank=\d', ''.join(sorted(out.splitlines(True)))), ['rank=0', 'rank=1'])

    def try_daemon(self):
        """And the verbs that need a store."""
        daemon = subprocess.Popen([str(self.programs / 'ddprund'), '--listen=127.0.0.1:0'], cwd=self.folder, env=self.env,
                                  stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.case.addCleanup(daemon.wait)
        self.case.addCleanup(daemon.kill)
        with daemon.stdout as lines:
            address = lines.readline().strip().removeprefix('listening on ')
            at = f'--endpoint={address}'
            self.run('ddpctl', 'store', at, 'set', 'key', 'value')
            self.case.assertEqual(self.run('ddpctl', 'store', at, 'get', 'key').strip(), 'value')
            self.case.assertIn('no job', self.run('ddpctl', 'status', at))
            daemon.terminate()
            self.case.assertEqual(daemon.wait(), 0)
        out = self.run('ddprun', '--no-prefix', 'sh', '-c', 'ddpctl store set a b && ddpctl store get a && ddpctl status')
        self.case.assertRegex(out, r'(?s)\Ab\n?job \S+ is (running|starting) generation 1\n')

    def try_verbs(self):
        listed = re.findall(r'(?m)^  (\w+)  ', self.run('ddpctl', '--help').partition('\nOptions')[0])
        self.case.assertGreater(len(listed), 10)
        for verb in listed:
            self.run('ddpctl', verb, '--help')
        self.case.assertIn('1: ', self.run('ddpctl', 'explain', '1'))
        self.case.assertIn('kernel', self.run('ddpctl', 'doctor', codes=(0, 1)))
        self.run('ddpctl', 'token', 'make')
        self.case.assertEqual(self.run('ddpctl', 'token', 'show-path').strip(), f'{self.folder}/.config/ddprun/token')
        self.case.assertIn('kind: ', self.run('ddpctl', 'template', 'kubernetes', '--nnodes=2', '--nproc-per-node=1',
                                              '--image=image', '--', 'train.py'))

    def try_benchmarks(self):
        for words in BENCHMARKS:
            self.run('ddp-perf', *words)
