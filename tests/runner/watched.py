"""watched.py - runs one command to its end, and ends it only when it has stopped working.

No verdict depends on how long a command takes by the clock: on a busy machine all of them take long. One that
neither computes nor writes for two minutes hangs, and one that has used ten times the processor time that it is
known to use runs in circles. Each is ended, after the stacks of all its processes were written to its log.

Every command has a process of its own that watches it. What the command leaves behind becomes a child of that process
(prctl(2), PR_SET_CHILD_SUBREAPER), so that it is found, counted and ended too. The same holds for the runner itself, to
which everything falls if a watching process is killed.
"""

import ctypes
import json
import os
import resource
import select
import signal
import subprocess
import sys
import time
import traceback
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / 'lib'))
from proc_tree import descendants, name_all, send, stacks

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
LOOK_EVERY_S = 5
IDLE_LOOKS, IDLE_CPU_S = 24, 1.0  # two minutes
ABORT_S = 5  # for a Python process to write its stack
END_ROUNDS, END_ROUND_S = 100, 0.1
STOPS = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM)
WORKING, HANGS, CIRCLES = 'working', 'hangs', 'runs in circles'


class Progress:
    """Judges from what each look at a command shows whether it still works. It counts looks: a machine that was paused
    has not looked meanwhile."""

    def __init__(self, limit_s):
        self.limit_s = limit_s
        self.idle_looks, self.looks_above, self.cpu_s, self.written = 0, 0, 0.0, 0

    def judge(self, cpu_s, written):
        # Processes are not looked at all at once, so one look may count a child twice.
        self.looks_above = self.looks_above + 1 if cpu_s > self.limit_s else 0
        if self.looks_above == 2:
            return CIRCLES
        self.cpu_s = min(self.cpu_s, cpu_s)  # what dead children used is lost if their parent ignores SIGCHLD
        if written != self.written or cpu_s - self.cpu_s >= IDLE_CPU_S:
            self.idle_looks, self.cpu_s, self.written = 0, cpu_s, written
        else:
            self.idle_looks += 1
        return HANGS if self.idle_looks >= IDLE_LOOKS else WORKING


def used_s():
    """Processor seconds of this process's children that have ended, and of theirs."""
    times = os.times()
    return times.children_user + times.children_system


def deaths():
    """A descriptor that can be read when a child has died."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    return reader


def adopt_orphans():
    """Makes this process the parent of all that its descendants leave behind."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    return libc


def reap(child=None):
    """Reaps dead children, orphans of the command among them; sets the exit status of @child if it is one of them.
    False: there are no children any more."""
    try:
        while (found := os.waitpid(-1, os.WNOHANG))[0]:
            if child and found[0] == child.pid:
                child.returncode = os.waitstatus_to_exitcode(found[1])
    except ChildProcessError:
        return False
    return True


def end_all(child=None):
    """Kills all descendants of this process and reaps them. Returns those that it may not or cannot kill."""
    for _ in range(END_ROUNDS):
        for process in descendants(os.getpid()):
            send(process.pid, signal.SIGKILL)
        if not reap(child):
            return []
        select.select([], [], [], END_ROUND_S if descendants(os.getpid()) else 0)
    return descendants(os.getpid())


def can_be_read(descriptor, seconds):
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return poll.poll(max(0, seconds) * 1000) != []


def wait_for(child, died, progress, log):
    """Waits until the command has ended; what it did instead, if it does not."""
    look_at = time.monotonic() + LOOK_EVERY_S
    while True:
        if can_be_read(died, look_at - time.monotonic()):
            os.read(died, 4096)
        reap(child)
        if child.returncode is not None:
            return None
        if time.monotonic() >= look_at:
            look_at = time.monotonic() + LOOK_EVERY_S
            cpu_s = used_s() + sum(process.cpu_s for process in descendants(os.getpid()))
            verdict = progress.judge(cpu_s, os.fstat(log).st_size)
            if verdict != WORKING:
                return verdict


def explain(verdict, progress, log):
    """Writes to the log why the command is ended and where its processes are. Python tells its own stacks on SIGABRT."""
    why = {HANGS: f'used less than {IDLE_CPU_S:g} s of processor time in {IDLE_LOOKS * LOOK_EVERY_S:g} s, and wrote nothing',
           CIRCLES: f'used more than {progress.limit_s:g} s of processor time: ten times what tests/runner/seconds.txt says, '
                    'and at least a minute'}[verdict]
    write(log, f'\nended: it {why}. Its processes:\n{stacks(descendants(os.getpid()))}')
    for process in descendants(os.getpid()):
        if process.name.startswith('python'):
            ask_python(process.pid)
    return why


def write(log, text):
    try:
        os.write(log, text.encode())
    except OSError:
        pass  # a full disk; the verdict stands all the same


def ask_python(pid):
    """Lets it write its stack and die, without a core file; one that ignores the signal dies later."""
    try:
        pidfd = os.pidfd_open(pid)
    except OSError:
        return
    try:
        # The number may have been another's since it was looked up.
        if any(process.pid == pid for process in descendants(os.getpid())):
            resource.prlimit(pid, resource.RLIMIT_CORE, (0, 0))
            signal.pidfd_send_signal(pidfd, signal.SIGABRT)
            can_be_read(pidfd, ABORT_S)
    except OSError:
        pass  # it has ended, or belongs to another user
    finally:
        os.close(pidfd)


def run(command, env, folder, log, limit_s):
    """Runs the command in this process, which has no other children. The result is a dictionary."""
    begin = time.monotonic()
    progress = Progress(limit_s)
    died = deaths()
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=env, cwd=folder,
                             start_new_session=True)
    verdict = wait_for(child, died, progress, log)
    why = explain(verdict, progress, log) if verdict else None
    wall_s = time.monotonic() - begin
    stays = end_all(child)
    if stays:
        why = f'{f"{why}, and it " if why else ""}left processes that cannot be killed: {name_all(stays)}'
    return {'code': None if why else child.returncode, 'ended': why, 'wall_s': wall_s, 'cpu_s': used_s()}


def stop(*_):
    raise SystemExit


def start(command, env, folder, log_path, limit_s):
    """Forks the process that watches the command. Returns its pid and a descriptor from which result() reads."""
    reader, writer = os.pipe()
    signal.pthread_sigmask(signal.SIG_BLOCK, STOPS)
    parent, pid = os.getpid(), os.fork()
    if pid:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPS)
        os.close(writer)
        return pid, reader
    try:
        watch(parent, writer, command, env, folder, log_path, limit_s)
    finally:
        os._exit(0)


def watch(parent, writer, command, env, folder, log_path, limit_s):
    """In the process that start() forked."""
    for number in STOPS:  # a command must not inherit that the runner ignores one
        signal.signal(number, stop if signal.getsignal(number) != signal.SIG_IGN else lambda *_: None)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPS)
    try:
        adopt_orphans().prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
        if os.getppid() != parent:
            stop()
        log = os.open(log_path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_TRUNC)
        try:
            os.write(writer, json.dumps(run(command, env, folder, log, limit_s)).encode())
        except Exception:
            write(log, traceback.format_exc())
    finally:
        for number in STOPS:
            signal.signal(number, signal.SIG_IGN)
        end_all()


def result(pid, reader):
    """What run() returned in the process @pid, or None if that came to no result. Blocks until it has ended."""
    with open(reader, 'rb') as file:
        text = file.read()
    os.waitpid(pid, 0)
    return json.loads(text) if text else None
