"""gpu_steps.py - the steps of tests/gpu/run: each is a command with a bound, all are within total_s.

A step's output goes to a file, not through a pipe: whatever survives the step, holding its output open,
holds up nobody. After each step the log has its output, and whoever asked for it is told.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from gpu_build import ROOT

sys.path.insert(0, str(ROOT / 'tests/lib'))
from proc_tree import stack  # noqa: E402

SKIPPED, CANNOT_START = 77, 127
MOST_TEXT = 256 * 1024  # of one step's output


def clip(text):
    if len(text) <= MOST_TEXT:
        return text
    half = MOST_TEXT // 2
    return f'{text[:half]}\n... {len(text) - MOST_TEXT} characters are left out ...\n{text[-half:]}'


def read_figures(path):
    """Of the lines that are whole: a benchmark that was killed may have left a part of one."""
    figures = []
    for line in path.read_text(encoding='utf-8').splitlines() if path.exists() else []:
        try:
            figures.append(json.loads(line))
        except ValueError:
            break
    return figures


def stacks_of_group(group):
    """Where the processes of a step are that has come to its limit."""
    texts = []
    for pid in (int(path.name) for path in Path('/proc').iterdir() if path.name.isdigit()):
        try:
            if os.getpgid(pid) == group:
                texts.append(stack(pid))
        except ProcessLookupError:
            continue
    return '\n'.join(texts)


class Steps:
    """Runs commands and remembers what became of them: @done has a row for each, @results what is to
    be shown of it. Several threads may run steps. @tell(self) is called after each."""

    def __init__(self, log, env, scratch, total_s, tell):
        self.log, self.env, self.scratch, self.total_s, self.tell = log, env, scratch, total_s, tell
        self.done, self.results = [], []
        self.began, self.count = time.monotonic(), 0
        self.lock = threading.Lock()

    def note(self, name, result, seconds, text=''):
        with self.lock:
            self.done.append({'step': name, 'result': result, 'seconds': round(seconds, 1)})
            self.log.write(f'==== {name}: {result}, {seconds:.1f} s\n{text}\n')
            self.log.flush()
            print(f'{result:>10}  {seconds:6.1f} s  {name}', flush=True)
            if result == 'failed':
                print('\n'.join(text.rstrip().split('\n')[-15:]), flush=True)
            self.tell(self)

    def keep(self, name, purpose, text, figures, good):
        with self.lock:
            self.results.append({'name': name, 'purpose': purpose, 'text': text, 'good': good,
                                 'figures': [figure | {'name': name} for figure in figures]})
            self.tell(self)

    def run(self, name, words, limit_s, optional=False, purpose=None, figures=False, env=None):
        """Whether it has ended well. What is optional may run out of time. With a @purpose the output
        belongs into the report, and with @figures what the command writes to the file of its option
        --json, too."""
        limit_s = min(limit_s, self.total_s - (time.monotonic() - self.began))
        if limit_s < 5:
            self.note(name, 'left out' if optional else 'failed', 0, 'the time is over')
            return False
        with self.lock:
            self.count += 1
            output = self.scratch / f'output-{self.count}'
        path = output.with_suffix('.json')
        path.unlink(missing_ok=True)
        words = [str(word) for word in words] + ([f'--json={path}'] if figures else [])
        began = time.monotonic()
        try:
            status = self.await_end(words, output, limit_s, self.env | (env or {}))
        except OSError as error:
            output.write_text(f'cannot be started: {error}', encoding='utf-8')
            status = CANNOT_START
        text = clip(output.read_text(encoding='utf-8', errors='replace'))
        if status is None:
            result = 'unfinished' if optional else 'failed'
            text += f'\nnot done in {limit_s:.0f} s'
        else:
            result = {0: 'ok', SKIPPED: 'skipped'}.get(status, 'failed')
        self.note(name, result, time.monotonic() - began, f'$ {" ".join(words)}\n{text}')
        if purpose is not None:
            self.keep(name, purpose, text, read_figures(path), result == 'ok')
        return result == 'ok'

    @staticmethod
    def await_end(words, output, limit_s, env):
        """The exit status; None: it was killed, with its process group, when the time was over."""
        with open(output, 'wb') as file:
            process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=file,
                                       stderr=subprocess.STDOUT, env=env, cwd=ROOT,
                                       start_new_session=True)
        try:
            return process.wait(timeout=limit_s)
        except subprocess.TimeoutExpired:
            with open(output, 'ab') as file:
                file.write(stacks_of_group(process.pid).encode())
            os.killpg(process.pid, signal.SIGKILL)
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            pass  # stuck in the driver; nobody waits for it
        return None

    def failed(self):
        return any(step['result'] == 'failed' for step in self.done)
