#!/usr/bin/env python3
"""test_ddprun_preload.py - --preload: after a restart, workers are forked from a process that has
imported their modules, and cannot tell; whatever happens to that process costs a cold start only.
"""

import json
import os
import signal
import sys
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / 'lib'))
from ddprun_run import children, wait_until
from ddprund_run import DdprundCase

# A module that is worth keeping: it knows which process has imported it.
KEPT = '''
import os, random
PID = os.getpid()
ENV = dict(os.environ)
NUMBER = random.random()
os.environ['SET_BY_KEPT'] = 'yes'
os.environ.pop('UNSET_BY_KEPT', None)
'''

# A worker fails until it has been forked from the process that imported the module.
BEGIN = '''
import os, signal, sys
import kept
attempt = int(os.environ['TORCHELASTIC_RESTART_COUNT'])
forked = kept.PID != os.getpid()
'''
UNTIL_FORKED = BEGIN + 'if not forked: sys.exit(1)\n'

# What a process can find out about its start.
STATE = '''
def descriptors():
    found = {}
    for name in os.listdir('/proc/self/fd'):
        try:
            found[int(name)] = os.readlink('/proc/self/fd/' + name)
        except OSError:
            pass
    return {fd: text.partition(':')[0].partition(' (')[0] for fd, text in found.items()}

def status(*names):
    lines = dict(line.rstrip().partition(':\\t')[::2] for line in open('/proc/self/status'))
    return {name: lines[name] for name in names}

import ctypes, json, pickle, resource, threading, time
class Mine: pass
death = ctypes.c_int()
ctypes.CDLL(None).prctl(2, ctypes.byref(death), 0, 0, 0)
main = sys.modules['__main__']
while int(status('Threads')['Threads']) > threading.active_count(): # one that was joined may not have ended in the kernel
    time.sleep(0.001)
limits = [name for name in dir(resource) if name.startswith('RLIMIT_')]
state = dict(
    argv=sys.argv, orig=sys.orig_argv if hasattr(sys, 'orig_argv') else None, path=sys.path,
    name=__name__, file=__file__, spec=repr(__spec__), main=main.__dict__ is globals(),
    flags=repr(sys.flags), cwd=os.getcwd(), session=os.getsid(0) == os.getpid(),
    group=os.getpgid(0) == os.getpid(), parent=os.getppid(), death=death.value,
    descriptors=descriptors(), limits={name: resource.getrlimit(getattr(resource, name)) for name in limits},
    status=status('SigBlk', 'SigIgn', 'SigCgt', 'Umask', 'Threads'), priority=os.getpriority(os.PRIO_PROCESS, 0),
    handlers=[repr(signal.getsignal(sig)) for sig in sorted(signal.valid_signals())],
    pickled=type(pickle.loads(pickle.dumps(Mine()))) is Mine, thread=threading.current_thread().name,
    cpus=sorted(os.sched_getaffinity(0)), modules=sorted(sys.modules),
    env={name: value for name, value in os.environ.items()}, result=globals().get('result'))
place = f'{sys.argv[1]}/{"forked" if forked else "cold"}.{os.environ["RANK"]}'
with open(place + '.new', 'w') as file:
    json.dump(state, file, default=repr)
os.rename(place + '.new', place)
while not all(os.path.exists(place[:-1] + str(rank)) for rank in range(int(os.environ['WORLD_SIZE']))):
    time.sleep(0.001)
sys.exit(not forked)
'''
# Programs of which one that was forked gives the same result as one that was started.
PROGRAMS = {
    'arguments': 'import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument("folder")\n'
                 'parser.add_argument("--lr", type=float)\nresult = [parser.parse_args().lr, parser.prog, parser.format_usage()]',
    'asyncio': 'import asyncio\nasync def two(): return 2\nresult = asyncio.run(two())',
    'beside': 'import beside\nresult = [beside.VALUE, beside.__file__]',
    'collector': 'import gc\nresult = [gc.isenabled(), gc.get_threshold(), gc.get_debug()]',
    'dataclass': 'import dataclasses, pickle\n@dataclasses.dataclass\nclass Point:\n    x: int = 1\n'
                 'result = repr(pickle.loads(pickle.dumps(Point(5))))',
    'decimal': 'import decimal\nresult = [repr(decimal.getcontext()), str(decimal.Decimal(1) / 3)]',
    'environment': 'import subprocess\nresult = sorted(line for line in subprocess.run(["env"], capture_output=True, text=True)'
                   '.stdout.splitlines() if line.partition("=")[0] not in CHANGING)',
    'exception': 'import traceback\ndef deep(): return {}["a"]\ntry: deep()\nexcept KeyError: result = traceback.format_exc()',
    'faults': 'import faulthandler\nresult = [faulthandler.is_enabled(), sys.gettrace(), sys.getrecursionlimit()]',
    'fork': 'import multiprocessing\ndef double(x): return 2 * x\nwith multiprocessing.get_context("fork").Pool(2) as pool:\n'
            '    result = pool.map(double, range(5))',
    'hints': 'import typing\ndef f(x: "int") -> str: pass\nresult = repr(typing.get_type_hints(f))',
    'input': 'result = [sys.stdin.read(), sys.stdin.encoding]',
    'locale': 'import locale\nresult = [locale.setlocale(locale.LC_ALL), sys.getfilesystemencoding(), sys.getdefaultencoding()]',
    'logging': 'import logging\nlogging.basicConfig()\nresult = [repr(logging.getLogger()), logging.root.manager.disable]',
    'names': 'result = sorted(dir())',
    'output': 'result = [[stream.encoding, stream.errors, stream.line_buffering, stream.write_through, stream.isatty()] '
              'for stream in (sys.stdout, sys.stderr)]',
    'parallel': 'import multiprocessing\nprocess = multiprocessing.current_process()\n'
                'result = [process.name, multiprocessing.parent_process(), multiprocessing.get_start_method(), len(process.authkey)]',
    'run_path': 'import runpy\nresult = runpy.run_path(os.path.dirname(__file__) + "/beside.py")["VALUE"]',
    'source': 'import inspect\ndef source(): return 1\nresult = [inspect.getsource(source), inspect.getsourcefile(source)]',
    'threads': 'import threading\nfound = []\nthread = threading.Thread(target=found.append, args=[3])\nthread.start()\n'
               'thread.join()\nresult = [found, threading.active_count(), threading.main_thread() is threading.current_thread()]',
    'warnings': 'import warnings\nresult = [repr(entry) for entry in warnings.filters] + sys.warnoptions',
}
# These differ between two attempts, forked or not.
CHANGING = {'TORCHELASTIC_RESTART_COUNT', 'DDPRUN_STORE_PREFIX', 'TORCHELASTIC_ERROR_FILE', 'PMIX_NAMESPACE',
            'PMIX_SERVER_URI2', 'PMIX_SERVER_URI21', 'PMIX_SERVER_URI3', 'PMIX_SERVER_URI4', 'PMIX_SERVER_URI41',
            'JAX_COORDINATOR_ADDRESS', 'JAX_COORDINATOR_BIND_ADDRESS'}


class PreloadCase(DdprundCase):
    def setUp(self):
        super().setUp()
        self.modules = self.folder / 'modules'
        self.modules.mkdir()
        (self.folder / 'scripts').mkdir()
        self.write('modules/kept.py', KEPT)
        self.env['PYTHONPATH'] = str(self.modules)
        self.env['PYTHONDONTWRITEBYTECODE'] = '1'

    def write(self, name, text):
        path = self.folder / name
        path.write_text(text)
        return path

    def preload(self, script, *words, modules='kept', nproc=1, restarts=2000, options=(), run=True, **more):
        path = self.write('scripts/train.py', script)
        call = self.run_job if run else self.start
        return call(f'--preload={modules}', f'--nproc-per-node={nproc}', f'--max-restarts={restarts}',
                    '--crash-loop=0', '--no-prefix', '--failure-timeout=60s', *options, path, *words, **more)


class Preload(PreloadCase):
    def states(self, script, *words, nproc=1, **more):
        """What each rank has found out, started and forked."""
        job = self.preload(script + STATE, self.folder, *words, nproc=nproc, **more)
        self.assertEqual(job.code, 0, job.err[-2000:])
        for rank in range(nproc):
            cold, warm = (json.loads((self.folder / f'{start}.{rank}').read_text()) for start in ('cold', 'forked'))
            for state in (cold, warm):
                self.assertEqual(state['env']['RANK'], str(rank))
                state['env'] = {name: value for name, value in state['env'].items() if name not in CHANGING}
            # The process has modules of Python's library of its own.
            more = {name.partition('.')[0] for name in set(warm.pop('modules')) ^ set(cold.pop('modules'))}
            self.assertLessEqual(more, sys.stdlib_module_names)
            yield cold, warm

    def test_a_forked_worker_cannot_tell(self):
        for rank, (cold, warm) in enumerate(self.states(BEGIN, '--lr=0.1', '${local_rank}', nproc=2, options=[
                '--log-dir', self.folder / 'logs'], env={'UNSET_BY_KEPT': 'no'})):
            self.assertEqual(warm, cold)
            self.assertEqual(warm['argv'][1:], [str(self.folder), '--lr=0.1', str(rank)])
            self.assertEqual(warm['death'], signal.SIGKILL)
            self.assertTrue(warm['session'] and warm['pickled'] and warm['main'])
            self.assertEqual(warm['env']['SET_BY_KEPT'], 'yes')
            self.assertNotIn('UNSET_BY_KEPT', warm['env'])

    def test_programs_give_the_same_results(self):
        self.write('scripts/beside.py', 'VALUE = 5\n')
        for name, body in PROGRAMS.items():
            with self.subTest(name):
                (cold, warm), = self.states(f'{BEGIN}CHANGING = {CHANGING!r}\n{body}\n', '--lr=0.1')
                self.assertIsNotNone(cold['result'])
                self.assertEqual(warm, cold)

    def test_one_line_says_what_was_spared(self):
        job = self.preload(UNTIL_FORKED, nproc=3)
        self.assertEqual(job.code, 0, job.err[-2000:])
        self.assertEqual(job.err.count('workers were forked from a process that has imported kept: each is spared'), 1)

    def test_the_modules_are_imported_without_a_place_in_the_job(self):
        script = UNTIL_FORKED + ('print([name for name in kept.ENV if name.endswith(("RANK", "RESTART_COUNT")) or '
                                 '"MASTER" in name])\n')
        job = self.preload(script, nproc=2, env={'OMP_NUM_THREADS': ''})
        self.assertEqual(job.out, '[]\n[]\n', job.err[-2000:])

    def test_random_numbers_differ_between_ranks_and_restarts(self):
        """Of each generator that a process has. Two restarts with workers that are forked."""
        self.write('modules/torch.py', """
import random
class Generator:  # as of PyTorch's, which takes its seed from the system when it is loaded
    def seed(self):
        self.numbers = random.Random()
default_generator = Generator()
default_generator.seed()
""")
        script = UNTIL_FORKED + """
import multiprocessing, random, torch
numbers = [random.random(), torch.default_generator.numbers.random(), multiprocessing.current_process().authkey.hex()]
print(*numbers, flush=True)
mark = f'{sys.argv[1]}/{sys.argv[2]}'
if os.path.exists(mark): sys.exit()
while sum(name.startswith('first') for name in os.listdir(sys.argv[1])) < 2:
    open(mark, 'w').close()
    os.sched_yield()
sys.exit(1)
"""
        job = self.preload(script, self.folder, 'first${local_rank}', modules='kept,torch,multiprocessing', nproc=2)
        self.assertEqual(job.code, 0, job.err[-2000:])
        lines = [line.split() for line in job.out.splitlines()]
        self.assertGreaterEqual(len(lines), 3, job.out)  # one rank may be stopped before it has drawn
        for stream in zip(*lines):
            self.assertEqual(len(set(stream)), len(stream), job.out)

    def test_auto_imports_what_the_script_imports(self):
        packages = self.folder / 'elsewhere'
        packages.mkdir()
        self.write('scripts/beside.py', 'import os\nPID = os.getpid()\n')
        for name in ('one', 'two', 'late', 'never', 'after'):
            self.write(f'elsewhere/{name}.py', 'import os\nPID = os.getpid()\n')
        script = ('import os, sys\nimport one\ntry:\n    import two, not_installed\nexcept ImportError:\n    pass\n'
                  'import two\nimport beside\nif not sys.argv: import never\n'
                  'try:\n    {}[1]\n    import never\nexcept KeyError:\n    pass\n'
                  'os.environ["SET"] = "before the import"\nimport after\ndef later():\n    import late\n    return late.PID\n'
                  'mine = os.getpid()\n'
                  'if one.PID == mine: sys.exit(1)\n'
                  'print(one.PID == two.PID, beside.PID == mine, later() == mine, after.PID == mine, "never" in sys.modules)\n')
        job = self.preload(script, modules='auto', env={'PYTHONPATH': packages})
        self.assertEqual((job.code, job.out), (0, 'True True True True False\n'), job.err[-2000:])
        self.assertIn('imported one,two', job.err)

    def test_auto_without_packages(self):
        job = self.preload('import os, sys\nsys.exit(os.environ["TORCHELASTIC_RESTART_COUNT"] != "30")',
                           modules='auto', restarts=30)
        self.assertEqual(job.code, 0, job.err[-2000:])
        self.assertIn("cannot preload 'auto': the script imports no installed package; workers", job.err)

    # ---- how workers end

    def test_an_uncaught_exception_looks_the_same(self):
        script = ('def deep():\n    raise ValueError("the reason")\n'
                  'import sys, kept, os\nif kept.PID == os.getpid() and os.environ["TORCHELASTIC_RESTART_COUNT"] != "0":'
                  '\n    sys.exit(7)\n'
                  'try:\n    {}["a"]\nexcept KeyError:\n    deep()\n')
        cold, warm = self.two_endings(script)
        self.assertIn('ValueError: the reason', warm)
        self.assertEqual(warm, cold)

    def two_endings(self, script):
        """What a cold worker and a forked one write to stderr before they end."""
        log = self.folder / 'logs'
        self.preload(script, restarts=60, options=['--redirects=2', f'--log-dir={log}'])
        top, = log.glob('*_*')
        texts = [(top / f'attempt_{attempt}' / '0' / 'stderr.log').read_text() for attempt in range(61)]
        return texts[0], next(text for text in texts[1:] if text)

    def test_exit_codes_and_signals(self):
        cases = (('sys.exit(5)', 'exit code 5'), ('sys.exit("a reason")', 'exit code 1'), ('os._exit(9)', 'exit code 9'),
                 ('os.kill(os.getpid(), 9)', 'killed by SIGKILL'), ('raise KeyboardInterrupt', 'killed by SIGINT'),
                 ('x = (', 'exit code 1'))
        for code, how in cases:
            with self.subTest(code):
                script = self.folder / 'changing.py'
                script.write_text(UNTIL_FORKED + 'import time\nprint("forked", flush=True)\n' + (
                    code if '= (' not in code else f'open(__file__, "w").write({code!r})\nsys.exit(4)\n'))
                job = self.start('--preload=kept', '--max-restarts=100000', '--crash-loop=0', '--no-prefix', script)
                job.read_until('forked\n')
                job.read_until(f'rank 0 failed first: {how}')
                job.signal(signal.SIGTERM)
                job.wait()
                job.wait_gone()

    def test_atexit_and_threads_end_as_usual(self):
        script = UNTIL_FORKED + ('import atexit, threading\natexit.register(print, "at exit")\n'
                                 'gate = threading.Event()\n'
                                 'def last():\n    gate.wait()\n    os.write(1, b"thread\\n")\n'
                                 'threading.Thread(target=last).start()\nos.write(1, b"main\\n")\ngate.set()\n')
        job = self.preload(script)
        self.assertEqual((job.code, job.out), (0, 'main\nthread\nat exit\n'), job.err[-2000:])

    def test_multiprocessing_spawn_finds_the_script(self):
        script = ('import multiprocessing, os, sys\ndef double(x):\n    return 2 * x\n'
                  'if __name__ == "__main__":\n    import kept\n'
                  '    if kept.PID == os.getpid(): sys.exit(1)\n'
                  '    with multiprocessing.get_context("spawn").Pool(1) as pool:\n'
                  '        print(pool.map(double, [1, 2, 3]))\n')
        job = self.preload(script)
        self.assertEqual((job.code, job.out), (0, '[2, 4, 6]\n'), job.err[-2000:])

    # ---- what goes wrong

    def test_a_module_that_is_not_there(self):
        job = self.preload('import os, sys\nsys.exit(os.environ["TORCHELASTIC_RESTART_COUNT"] != "30")',
                           modules='no_such_module', restarts=30)
        self.assertEqual(job.code, 0, job.err[-2000:])
        self.assertEqual(job.err.count("cannot preload 'no_such_module': ModuleNotFoundError: No module named "
                                       "'no_such_module'; workers start without it"), 1, job.err[-2000:])
        self.assertNotIn('forked', job.err[-2000:])

    def refused(self, module, sentence):
        self.write('modules/bad.py', module)
        job = self.preload('import time; time.sleep(600)', modules='bad', run=False)
        job.read_until(f"cannot preload 'bad': {sentence}")
        job.signal(signal.SIGTERM)
        self.assertEqual(job.wait(), 128 + signal.SIGTERM)

    def test_a_module_that_fails(self):
        self.refused('raise RuntimeError("out of\\nluck")', 'RuntimeError: out of;')

    def test_a_module_that_exits(self):
        self.refused('import sys; sys.exit(3)', 'SystemExit: 3;')

    def test_a_module_that_starts_a_thread(self):
        self.refused('import threading\nthreading.Thread(target=threading.Event().wait, name="w", daemon=True).start()',
                     'it started a thread (w), which a fork does not copy;')

    def test_a_library_that_starts_a_thread(self):
        self.refused('import ctypes\nlibc = ctypes.CDLL(None)\n'
                     'assert libc.pthread_create(ctypes.byref(ctypes.c_ulong()), None, libc.pause, None) == 0\n',
                     'it started a thread (python')

    def test_a_library_that_ends_its_thread_before_a_fork(self):
        self.write('modules/careful.py', """
import ctypes, os
libc = ctypes.CDLL(None)
thread, semaphore = ctypes.c_ulong(), ctypes.create_string_buffer(64)
assert libc.sem_init(semaphore, 0, 0) == 0
assert libc.pthread_create(ctypes.byref(thread), None, libc.sem_wait, semaphore) == 0
def end():
    global thread
    if thread:
        libc.sem_post(semaphore)
        libc.pthread_join(thread, None)
    thread = None
os.register_at_fork(before=end)
""")
        job = self.preload(UNTIL_FORKED, modules='kept,careful')
        self.assertEqual(job.code, 0, job.err[-2000:])

    def test_a_module_that_reads_what_each_worker_has(self):
        for name, module in (('RANK', 'RANK = int(os.getenv("RANK", -1))'), ('LOCAL_RANK', '"LOCAL_RANK" in os.environ'),
                             ('WORLD_SIZE', 'os.environb.get(b"WORLD_SIZE")'), ('MASTER_ADDR', 'os.environ.setdefault("MASTER_ADDR", "x")'),
                             ('TORCHELASTIC_RESTART_COUNT', 'try: os.environ["TORCHELASTIC_RESTART_COUNT"]\nexcept KeyError: pass')):
            with self.subTest(name):
                self.refused('import os\n' + module, f'bad reads {name} while it is imported, and each worker has its own;')

    def test_a_module_may_read_what_all_workers_share(self):
        self.write('modules/reads.py', 'import os\nFOUND = [os.getenv(name) for name in ("ROLE_NAME", "LOCAL_WORLD_SIZE", "HOME")]\n')
        job = self.preload(UNTIL_FORKED + 'import reads\nprint(reads.FOUND == [os.getenv(name) for name in '
                           '("ROLE_NAME", "LOCAL_WORLD_SIZE", "HOME")], reads.FOUND)', modules='kept,reads',
                           options=['--role=trainer'], env={'HOME': str(self.folder)})
        self.assertEqual((job.code, job.out), (0, f"True ['trainer', '1', '{self.folder}']\n"), job.err[-2000:])

    def test_a_module_that_writes_to_the_socket(self):
        self.refused('import os; os.write(3, b"nonsense")', 'the process that imports it has sent something unexpected')

    def test_a_module_that_crashes(self):
        self.write('modules/bad.py', 'import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)')
        job = self.preload('import time; time.sleep(600)', modules='bad', run=False)
        job.read_until("the process that has 'bad' imported was killed by SIGSEGV")
        job.signal(signal.SIGTERM)
        job.wait()

    def test_the_process_is_killed(self):
        script = BEGIN + ('mark = sys.argv[1] + "/killed"\n'
                          'if not forked: sys.exit(1)\n'
                          'if not os.path.exists(mark):\n'
                          '    open(mark, "w").close()\n    os.kill(kept.PID, signal.SIGKILL)\n    sys.exit(1)\n')
        job = self.preload(script, self.folder)
        self.assertEqual(job.code, 0, job.err[-2000:])
        self.assertEqual(job.err.count("the process that has 'kept' imported was killed by SIGKILL"), 1, job.err[-2000:])
        self.assertEqual(job.err.count('were forked'), 2)

    def test_the_process_does_not_answer(self):
        script = BEGIN + ('mark = sys.argv[1] + "/stopped"\n'
                          'if os.path.exists(mark): sys.exit(forked)\n'
                          'if not forked: sys.exit(1)\n'
                          'open(mark, "w").close()\nos.kill(kept.PID, signal.SIGSTOP)\nsys.exit(1)\n')
        job = self.preload(script, self.folder)
        self.assertEqual(job.code, 0, job.err[-2000:])
        self.assertIn('the warm process has not answered within 2000 ms; workers start without it', job.err)

    def test_a_change_of_the_script_counts(self):
        script = self.folder / 'scripts' / 'train.py'
        text = UNTIL_FORKED + 'open(__file__, "w").write("print(\'the new one\')")\nsys.exit(1)\n'
        job = self.preload(text)
        self.assertEqual((job.code, job.out), (0, 'the new one\n'), job.err[-2000:])
        self.assertEqual(script.read_text(), "print('the new one')")

    # ---- supervision

    def forked_job(self, body, **more):
        job = self.preload(UNTIL_FORKED + body, run=False, **more)
        job.read_until('running', more.get('nproc', 1))
        return job

    def test_nothing_is_left_when_the_agent_is_killed(self):
        job = self.forked_job('import subprocess, time\nsubprocess.Popen(["sleep", "600"], start_new_session=True)\n'
                              'print("running", flush=True)\ntime.sleep(600)', nproc=2)
        os.kill(job.agent(), signal.SIGKILL)
        job.wait()
        job.wait_gone()

    def test_nothing_is_left_when_the_guard_is_killed(self):
        job = self.forked_job('import time\nprint("running", flush=True)\ntime.sleep(600)', nproc=2)
        os.kill(job.pid, signal.SIGKILL)
        job.wait_gone()

    def test_orphans_of_forked_workers_are_swept_and_the_process_is_spared(self):
        script = BEGIN + ('import subprocess\nmark = sys.argv[1] + "/pids"\n'
                          'if not forked: sys.exit(1)\n'
                          'if os.path.exists(mark):\n'
                          '    orphan, warm = map(int, open(mark).read().split())\n'
                          '    print(os.path.exists(f"/proc/{orphan}"), kept.PID == warm)\n    sys.exit()\n'
                          'orphan = subprocess.Popen(["sleep", "600"], start_new_session=True).pid\n'
                          'open(mark, "w").write(f"{orphan} {kept.PID}")\nsys.exit(1)\n')
        job = self.preload(script, self.folder)
        self.assertEqual((job.code, job.out), (0, 'False True\n'), job.err[-2000:])

    def test_workers_are_children_of_the_agent_and_stop_by_signals(self):
        """One by its handler, the others by the signal itself: nobody kills them before ten minutes are over."""
        body = ('if os.environ["RANK"] == "0": signal.signal(signal.SIGTERM, lambda *_: sys.exit("told to stop"))\n'
                'print("running", flush=True)\nsignal.pause()')
        job = self.forked_job(body, nproc=3, options=['--shutdown-timeout=10m'])
        agent = job.agent()
        self.assertEqual(len(children(agent)), 4)
        job.signal(signal.SIGTERM)
        self.assertEqual(job.wait(), 128 + signal.SIGTERM)
        self.assertEqual(job.err.count('told to stop\n'), 1, job.err[-2000:])
        job.wait_gone()

    # ---- not for others

    def test_other_programs_start_as_without(self):
        for words in (['sh', '-c', 'echo "$0"', 'x'], ['-m', 'kept'], ['--no-python', '/bin/true']):
            job = self.run_job('--preload=auto', *words)
            self.assertEqual(job.code, 0, job.err[-2000:])
            self.assertIn('--preload does nothing: ', job.err)

    def test_bad_names_are_refused(self):
        for text in (',', 'a,,b', '1a', '.a', 'a b', 'a;b', '../a', "__import__('os')"):
            with self.subTest(text):
                job = self.run_job(f'--preload={text}', 'train.py')
                self.assert_sentence(job, 2, 'is not the name of a Python module')


def waits_for_requests(agent):
    """The process that @agent keeps has told it that it is ready, and sleeps in recvmsg()."""
    recvmsg = {'x86_64': '47', 'aarch64': '212'}[os.uname().machine]
    return any(Path(f'/proc/{pid}/syscall').read_text().split()[0] == recvmsg for pid in children(agent))


class SeveralNodes(PreloadCase):
    def node(self, store, *options):
        return self.preload(BEGIN + 'print("forked" if forked else "cold", flush=True)', options=[
            '--rdzv-id=train', f'--rdzv-endpoint={store.endpoints[0]}', '--lease=10m', '--settle=0.1', *options],
            run=False)

    def test_a_node_imports_while_it_waits(self):
        store = self.serve()
        self.addCleanup(self.stop, store)
        first = self.node(store, '--nnodes=2')
        wait_until(lambda: waits_for_requests(first.agent()), 'the modules to be imported')
        second = self.node(store, '--nnodes=2')
        self.assertEqual((first.wait(), second.wait()), (0, 0), first.err + second.err)
        self.assertEqual(first.out, 'forked\n')
        self.assertIn('1 of 1 workers were forked', first.err)


if __name__ == '__main__':
    unittest.main()
