"""run_all.py - runs many tests at a time, the longest first, and tells how each ended."""

import os
import random
import select
import shlex
import signal
import sys
from collections import Counter, namedtuple

import counts
import watched
from plan import ROOT, label

LOOK_AT_MACHINE_MS = 250
CPU_LIMIT = 10  # times what the table says
CPU_LIMIT_LEAST_S = 60  # for a test that takes little, on a machine that is slow
CPU_LIMIT_WHOLE = 10  # times as much if a test that has seconds of a sample runs all its cases
HEAD_SHOWN, TAIL_SHOWN = 64 << 10, 4 << 20  # bytes of a log that is longer

# code is None if the test was ended, for the reason `ended`. lines: those that name what failed.
Outcome = namedtuple('Outcome', 'test code ended wall_s cpu_s counted reasons lines log')


def environment(test):
    """What a test finds in its environment beside what the caller has there."""
    return {
        # Memory that was freed or is not yet written has some value other than zero, as in a long-lived process.
        'MALLOC_PERTURB_': str(random.randint(1, 255)),
        'UBSAN_OPTIONS': 'halt_on_error=1:abort_on_error=1:print_stacktrace=1',
        # By default each process with threads would sleep for a second before it ends.
        'TSAN_OPTIONS': 'atexit_sleep_ms=20',
        # The address sanitizer guesses where the variables of threads are from what stands before them, and its leak
        # check crashes if memory happens to look so; without the guess the check reads them as blocks of the heap.
        'ASAN_OPTIONS': 'intercept_tls_get_addr=0:halt_on_error=1:abort_on_error=1:print_summary=1',
        'LSAN_OPTIONS': f'suppressions={ROOT}/tests/leaks.supp:print_suppressions=0',
        **test.env}


def command_of(test):
    """Python says on SIGABRT where it is if asked to by an option, which the programs that it starts do not inherit."""
    program, *words = test.command
    return [program, '-X', 'faulthandler', *words] if 'python' in os.path.basename(program) else test.command


def cpu_limit(test):
    whole = CPU_LIMIT_WHOLE if os.environ.get('DDPRUN_TEST_WHOLE') == '1' else 1
    return max(test.seconds * CPU_LIMIT, CPU_LIMIT_LEAST_S * test.build.slower) * whole


def by_hand(test, env):
    """The command that repeats it, with what the caller's environment says to tests and sanitizers."""
    said = {name: value for name, value in os.environ.items() if name in env or name.startswith('DDP')}
    settings = [f'{name}={value}' for name, value in {**env, **said, **test.env}.items()]
    return f'cd {shlex.quote(str(ROOT / test.build.dir))} && {shlex.join(["env", *settings, *command_of(test)])}'


class Running:
    """A test that runs: the process that watches it, and where its output goes."""

    def __init__(self, test, turn):
        name = test.name if turn == 1 else f'{test.name}.{turn}'
        self.test, self.log = test, ROOT / test.build.dir / 'test-logs' / f'{name}.log'
        self.log.parent.mkdir(parents=True, exist_ok=True)
        self.log.unlink(missing_ok=True)
        added = environment(test)
        self.by_hand = by_hand(test, added)
        # Check's variables choose cases and silence it.
        callers = {name: value for name, value in os.environ.items() if not name.startswith('CK_')}
        self.pid, self.reader = watched.start(command_of(test), {**added, **callers, **test.env}, ROOT / test.build.dir,
                                              self.log, cpu_limit(test))

    def outcome(self):
        found = watched.result(self.pid, self.reader)
        found = found or {'code': None, 'ended': 'was not watched to its end', 'wall_s': 0, 'cpu_s': 0}
        output = read_log(self.log)
        append(self.log, f'\n{cause(found["code"], found["ended"])}; to repeat it:\n{self.by_hand}\n')
        counted = counts.count_test(found['code'], output)
        return Outcome(self.test, found['code'], found['ended'], found['wall_s'], found['cpu_s'], counted,
                       counts.skip_reasons(found['code'], output), counts.failure_lines(output) if counted['failed'] else [],
                       self.log)


def append(log, text):
    try:
        with open(log, 'a', encoding='utf-8') as file:
            file.write(text)
    except OSError:
        pass  # a full disk; what the test wrote counts


def read_log(log):
    """What is in the file, without the middle if it is long."""
    try:
        with open(log, 'rb') as file:
            size = os.fstat(file.fileno()).st_size
            text = file.read(HEAD_SHOWN)
            if size > HEAD_SHOWN + TAIL_SHOWN:
                file.seek(-TAIL_SHOWN, os.SEEK_END)
                text += f'\n[... {size - HEAD_SHOWN - TAIL_SHOWN} bytes ...]\n'.encode()
            text += file.read()
            return text.decode(errors='replace')
    except OSError:
        return ''


def cause(code, ended):
    if ended:
        return f'it {ended}'
    return f'killed by {signal_name(-code)}' if code < 0 else f'exit status {code}'


def signal_name(number):
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal
        return f'signal {number}'


def verdict(outcome):
    if outcome.ended:
        return 'ENDED'
    return 'FAILED' if outcome.counted['failed'] else 'skipped' if outcome.code == counts.SKIPPED_CODE else 'ok'


def tell(outcome, number, total):
    print(f'{number:4}/{total} {label(outcome.test):48} {verdict(outcome):7} {outcome.wall_s:6.1f} s, '
          f'processor {outcome.cpu_s:6.1f} s', flush=True)
    if outcome.counted['failed']:
        sys.stdout.write(read_log(outcome.log))


def start_some(waiting, places, turns):
    """Starts those of @waiting for which there are places, the longest first; what runs now, by its descriptor."""
    started = {}
    for test in list(waiting):
        weight = min(test.weight or places.all, places.all)
        if weight <= places.free:
            waiting.remove(test)
            turns[label(test)] += 1
            running = Running(test, turns[label(test)])
            started[running.reader] = running, weight
            places.free -= weight
    return started


class Places:
    def __init__(self, count):
        self.all = self.free = count


def run_all(tests, machine, at_a_time):
    """The outcomes of @tests in the order of their ends; those that were reached if it is interrupted."""
    waiting = sorted(tests, key=lambda test: -test.wall_s)
    places, running, outcomes, turns = Places(at_a_time), {}, [], Counter()
    poll = select.poll()
    try:
        while waiting or running:
            started = start_some(waiting, places, turns)
            running.update(started)
            for reader in started:
                poll.register(reader, select.POLLIN)
            machine.look(label(test.test) for test, _ in running.values())
            for reader, _ in poll.poll(LOOK_AT_MACHINE_MS):
                poll.unregister(reader)
                ended, weight = running.pop(reader)
                places.free += weight
                outcomes.append(ended.outcome())
                tell(outcomes[-1], len(outcomes), len(tests))
    except KeyboardInterrupt:
        print(f'\nstopped: {len(outcomes)} of {len(tests)} tests have ended', flush=True)
    return outcomes
