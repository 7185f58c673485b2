"""ddprun_run.py - runs ddprun as a user does, and finds whatever it leaves behind.

Every process of a job inherits a mark in its environment, by which this module finds it wherever it
has fled to; only marked processes are ever killed. Each test case has a temporary directory of its
own, which is TMPDIR of the job too. After each case neither may have anything in it.
"""

import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import uuid
from pathlib import Path

from proc_tree import all_processes, below

ROOT = Path(__file__).resolve().parents[2]
DDPRUN = os.environ.get('DDPRUN', str(ROOT / 'build' / 'bin' / 'ddprun'))
PROBES = Path(os.environ.get('DDPRUN_PROBES', ROOT / 'build' / 'tests' / 'integration' / 'probes'))
SANITIZED = os.environ.get('DDPRUN_SANITIZED', '') == '1'

MARK = 'DDPRUN_TEST_MARK'
TELL_AFTER_S = 60  # after this time a wait prints once what it waits for: the runner may end the test
# The caller's own settings must not leak into a job, nor out of an outer launcher.
FOREIGN = ('PET_', 'TORCH', 'DDPRUN', 'OMP_', 'CUDA_', 'RANK', 'WORLD_SIZE', 'LOCAL_', 'GROUP_',
           'ROLE_', 'MASTER_', 'PYTHON', 'VIRTUAL_ENV', 'SLURM', 'OMPI_', 'PMIX_', 'HOROVOD_', 'LSB_', 'JOB_COMPLETION_')


# "nohup make test &" ignores these, and a signal that ddprun inherits as ignored stays so.
signal.signal(signal.SIGHUP, signal.SIG_DFL)
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGQUIT, signal.SIG_DFL)


def probe(name):
    return str(PROBES / f'probe_{name}')


def clean_environment():
    env = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}
    # A python3 that starts at once, rather than a wrapper that looks for one.
    env['PATH'] = os.path.dirname(os.path.realpath(sys.executable)) + ':' + env.get('PATH', '')
    env['OMP_NUM_THREADS'] = '1'  # many tests run at once
    return env


def tell(text):
    print(f'\nwaiting for {text}', file=sys.stderr, flush=True)


def wait_until(condition, what):
    """The first true value of condition(). It waits as long as it takes, and tells once what for: @what, or what that
    returns. It looks again ever less often, as to look may cost much, and a test that computes seems to get on."""
    begin = time.monotonic()
    told = False
    while not (value := condition()):
        waited = time.monotonic() - begin
        if waited > TELL_AFTER_S and not told:
            tell(what() if callable(what) else what)
            told = True
        time.sleep(min(max(waited / 50, 0.001), 1))
    return value


def growing(seconds, most):
    """Time limits: @seconds first, then each twice the one before, but never more than @most."""
    while True:
        yield seconds
        seconds = min(2 * seconds, most)


def marked_processes(mark):
    """The pids of all running processes that bear @mark. The dead have no environment."""
    wanted = f'{MARK}={mark}'.encode()
    found = []
    for name in os.listdir('/proc'):
        if not name.isdigit():
            continue
        try:
            with open(f'/proc/{name}/environ', 'rb') as file:
                if wanted in file.read().split(b'\0'):
                    found.append(int(name))
        except OSError:
            pass
    return found


def kill_all(pids, sig=signal.SIGKILL):
    for pid in pids:
        try:
            os.kill(pid, sig)
        except ProcessLookupError:
            pass


def describe(pid):
    try:
        return f'{pid} ({Path(f"/proc/{pid}/comm").read_text().strip()})'
    except OSError:
        return str(pid)


def children(pid):
    return [process.pid for process in all_processes() if process.parent == pid]


class Job:
    """One ddprun (or other program), from start to end. Its output is collected as it comes."""

    def __init__(self, case, words, env=None, program=DDPRUN, **popen):
        self.mark = uuid.uuid4().hex
        self.env = dict(case.env, TMPDIR=str(case.tmp), **{MARK: self.mark})
        self.env.update({name: str(value) for name, value in (env or {}).items()})
        options = {'stdin': subprocess.DEVNULL, 'stdout': subprocess.PIPE,
                   'stderr': subprocess.PIPE, 'cwd': str(case.folder)}
        options.update(popen)
        self.process = subprocess.Popen([program, *map(str, words)], env=self.env, **options)
        self.pid = self.process.pid
        self.pipes = {file.fileno(): [file, bytearray()]
                      for file in (self.process.stdout, self.process.stderr) if file}
        self.out_fd = self.process.stdout.fileno() if self.process.stdout else None
        self.err_fd = self.process.stderr.fileno() if self.process.stderr else None
        self.open = set(self.pipes)
        self.told = False
        self.seen = set() # pids and names of processes that were below it

    def collect(self, timeout=None):
        """Wait for output, if need be for @timeout seconds only, and keep what came."""
        ready, _, _ = select.select(list(self.open), [], [], timeout)
        for fd in ready:
            data = os.read(fd, 1 << 20)
            if data:
                self.pipes[fd][1].extend(data)
            else:
                self.open.discard(fd)

    def collect_until(self, condition, what):
        """Collect output until condition(). What the job has said so far is told once if nothing comes for long."""
        while not condition():
            if not self.open:
                raise AssertionError(f'the output ended before {what}:\n{self.out}{self.err}')
            if not self.told and not select.select(list(self.open), [], [], TELL_AFTER_S)[0]:
                self.told = True
                tell(f'{what} of {self.process.args}:\n{self.out}{self.err}')
            self.collect()

    @property
    def out_bytes(self):
        return bytes(self.pipes[self.out_fd][1]) if self.out_fd is not None else b''

    @property
    def err_bytes(self):
        return bytes(self.pipes[self.err_fd][1]) if self.err_fd is not None else b''

    @property
    def out(self):
        return self.out_bytes.decode(errors='backslashreplace')

    @property
    def err(self):
        return self.err_bytes.decode(errors='backslashreplace')

    def read_until(self, text, count=1):
        """Collect output until @text has appeared @count times on stdout and stderr together."""
        self.collect_until(lambda: self.out.count(text) + self.err.count(text) >= count, f'{text!r}, {count} times')

    def signal(self, sig):
        self.look_below(all_processes()) # what it leaves behind is not below it any more
        os.kill(self.pid, sig)

    def insist(self, sig):
        """Send @sig until it ends, as an impatient user does: what comes at once might be the first once more."""
        while self.process.poll() is None:
            self.signal(sig)
            self.collect(0.3)

    def agent(self):
        """The guard's child."""
        found = wait_until(lambda: children(self.pid) or self.process.poll() is not None, 'the agent')
        if found is True:
            raise AssertionError(f'ddprun has ended without an agent:\n{self.out}{self.err}')
        return found[0]

    def look_below(self, everybody):
        self.seen |= {(process.pid, process.name) for process in below(self.pid, everybody)}

    def running(self):
        """The pids of all its running processes. Without CAP_SYS_PTRACE the environment of ddprun and ddprund, and so the
        mark, cannot be read: they are those that were seen below it before."""
        found = set(marked_processes(self.mark))
        if self.process.poll() is None:
            found.add(self.pid)
        everybody = all_processes()
        self.look_below(everybody)
        found |= {process.pid for process in everybody if process.state != 'Z' and (process.pid, process.name) in self.seen}
        return sorted(found)

    def wait(self):
        """Collect to the end; the exit code, or -N for signal N."""
        self.collect_until(lambda: not self.open, 'the end')
        self.code = self.process.wait()
        return self.code

    def wait_gone(self):
        """Until no process of the job is left. One in the middle of exec has no environment for a moment: look twice."""
        wait_until(lambda: not self.running() and not self.running(), lambda: f'the end of {[describe(pid) for pid in self.running()]}')

    def close(self):
        """End whatever is left; the names of what was."""
        left = [describe(pid) for pid in self.running()]
        while pids := self.running():
            kill_all(pids)
        self.process.wait()
        for file in [file for file, _ in self.pipes.values()] + [self.process.stdin]:
            if file:
                file.close()
        return left


def error_folder(tmp):
    """Of this user's jobs in TMPDIR. It stays; while one of them runs, it is locked."""
    return tmp / f'ddprun-{os.geteuid()}'


def left_in(tmp):
    """What jobs have left in TMPDIR."""
    folders = set(tmp.glob('ddprun-[0-9]*'))
    return sorted(set(tmp.iterdir()) - folders | {path for folder in folders for path in folder.iterdir()})


class DdprunCase(unittest.TestCase):
    """A case that leaves nothing behind: no process of its jobs, no file in their TMPDIR."""

    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix='ddprun_test_'))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.tmp = self.folder / 'tmp'
        self.tmp.mkdir()
        self.env = clean_environment()
        self.env['XDG_RUNTIME_DIR'] = str(self.folder / 'run')
        self.jobs = []
        self.addCleanup(self._check_nothing_left)

    def _check_nothing_left(self):
        left = [name for job in self.jobs for name in job.close()]
        self.assertEqual(left, [], 'processes left')
        self.assertEqual(left_in(self.tmp), [], 'files left in TMPDIR')

    def start(self, *words, **options):
        job = Job(self, words, **options)
        self.jobs.append(job)
        return job

    def run_job(self, *words, **options):
        job = self.start(*words, **options)
        job.wait()
        job.wait_gone()
        return job

    def assert_succeeded(self, job):
        self.assertEqual(job.code, 0, job.err)

    def write(self, name, text, mode=0o755):
        path = self.folder / name
        path.write_text(text)
        path.chmod(mode)
        return path

    def assert_sentence(self, job, code, *texts, program='ddprun'):
        """@job was refused: one line on stderr that has all of @texts in it, nothing on stdout."""
        self.assertEqual(job.code, code, job.err)
        self.assertEqual(job.out, '')
        self.assertRegex(job.err, rf'\A{program}: [^\n]+\n\Z')
        for text in texts:
            self.assertIn(text, job.err)


def in_order(case, text, *parts):
    """Assert that all of @parts occur in @text, one behind the other."""
    at = 0
    for part in parts:
        found = text.find(part, at)
        case.assertGreaterEqual(found, 0, f'{part!r} is not (in this place) in:\n{text}')
        at = found + len(part)
