"""proc_tree.py - what /proc says of a process and all that it started: who they are, what they used, where they are."""

import os
import shutil
import signal
import subprocess
from collections import namedtuple
from pathlib import Path

TICKS_PER_SECOND = os.sysconf('SC_CLK_TCK')
STACKS_MOST, STACK_S = 30, 60  # how many processes have their stack taken, and how long a tool may try

# cpu_s: seconds of processor time, with those of children that it has waited for.
Process = namedtuple('Process', 'pid parent name state cpu_s')


def parse_stat(text):
    """A Process from the text of /proc/PID/stat. The name may have spaces and brackets in it."""
    head, _, rest = text.rpartition(')')
    pid, _, name = head.partition(' (')
    words = rest.split()
    ticks = sum(map(int, words[11:15]))  # utime, stime, cutime, cstime
    return Process(int(pid), int(words[1]), name, words[0], ticks / TICKS_PER_SECOND)


def all_processes():
    found = []
    for name in os.listdir('/proc'):
        if not name.isdigit():
            continue
        try:
            found.append(parse_stat(Path('/proc', name, 'stat').read_text(errors='replace')))
        except (OSError, ValueError, IndexError):
            pass  # it has ended meanwhile
    return found


def below(root, processes):
    """Those of @processes that descend from the process @root, without itself."""
    children = {}
    for process in processes:
        children.setdefault(process.parent, []).append(process)
    found, todo = [], [root]
    while todo:
        for child in children.get(todo.pop(), []):
            found.append(child)
            todo.append(child.pid)
    return found


def descendants(root):
    return below(root, all_processes())


def name_all(processes):
    return ', '.join(f'{process.pid} ({process.name})' for process in processes)


def read(pid, name):
    try:
        return Path('/proc', str(pid), name).read_text(errors='replace').replace('\0', ' ').strip()
    except OSError:
        return ''


def stack(pid):
    """The stacks of the threads of a process, as far as this machine has a tool for it that may look."""
    tool = next((path for path in map(shutil.which, ('eu-stack', 'gdb')) if path), None)
    if not tool:
        return 'neither eu-stack (Debian package elfutils) nor gdb is installed\n'
    command = [tool, '-p', str(pid)]
    if tool.endswith('gdb'):
        command += ['-nx', '-batch', '-ex', 'thread apply all bt']
    env = {name: value for name, value in os.environ.items() if name != 'DEBUGINFOD_URLS'}
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=env,
                              text=True, errors='replace', timeout=STACK_S)
    except subprocess.TimeoutExpired:
        return f'{tool} has not looked into it within {STACK_S} s\n'
    if done.returncode != 0 and read('sys', 'kernel/yama/ptrace_scope') not in ('', '0'):
        return f'{done.stdout}a user may not look into it here: sysctl kernel.yama.ptrace_scope=0 permits it\n'
    return ''.join(f'{line}\n' for line in done.stdout.splitlines() if not line.startswith(('[New', 'warning:')))


def stacks(processes):
    """A text that says of each process what it is and where its threads are."""
    parts = []
    for process in processes[:STACKS_MOST]:
        parts.append(f'process {process.pid} ({process.name}), state {process.state}, waits in '
                     f'{read(process.pid, "wchan") or "?"}: {read(process.pid, "cmdline")[:300]}\n')
        if process.state not in 'ZD':
            parts.append(stack(process.pid))
    if len(processes) > STACKS_MOST:
        parts.append(f'and {len(processes) - STACKS_MOST} more: {name_all(processes[STACKS_MOST:])}\n')
    return ''.join(parts)


def send(pid, number):
    try:
        os.kill(pid, number)
    except OSError:
        pass  # it has ended, or belongs to another user
