"""warm_python.py - runs in the warm process: imports modules once, then forks a worker for each
request of the agent (warm_process.h), so that no worker pays for the imports again.

Part of ddprun, which holds it as text and starts it with

    python3 -u -c 'import os; exec(os.read(3, ...))' MODULES SCRIPT [ARGUMENT...]

Descriptor 3 is the socket to the agent, whose second message names the variables of which each
worker has its own value; 4 to 6 keep the numbers that workers need. A worker must not be able to
tell its start from "python3 -u SCRIPT ...": the same descriptors, session, signals, environment,
sys.argv, sys.path and __main__. This process must not touch a GPU.
"""

import array
import ast
import builtins
import ctypes
import gc
import importlib.machinery
import importlib.util
import itertools
import os
import socket
import struct
import sys
import threading
import time
import types

CONTROL = 3
FIRST_FREE = 7
MOST_FDS = 16
NAMES_MAX = 65536
CHANNEL, CGROUP = 64, 65  # targets that are no descriptor numbers (warm_fork.c)
HEAD = struct.Struct('=II')  # of what the agent sends to a worker: arguments, bytes that follow
PR_SET_PDEATHSIG, SIGKILL = 1, 9
PF_EXITING = 4


class NotWarm(Exception):
    """There is nothing to import, or what was imported does not survive a fork."""


# ---- imports ----------------------------------------------------------------------------------


def belongs_to_script(name, folder):
    """Modules beside the script may have changed when the next worker starts."""
    spec = importlib.util.find_spec(name)
    places = [spec.origin] if spec and spec.origin else []
    places += list(spec.submodule_search_locations or []) if spec else []
    return any(os.path.realpath(place).startswith(folder + os.sep) for place in places)


def is_import(node):
    return isinstance(node, (ast.Import, ast.ImportFrom))


def mentions_environment(node):
    return any(getattr(part, 'attr', getattr(part, 'id', '')) in ('environ', 'putenv')
               for part in ast.walk(node))


def statements_of(body):
    """The imports that run whenever the script starts: at its top and at the top of "try" and
    "with". Those behind a change of the environment may depend on it."""
    for node in body:
        if is_import(node):
            yield node
        elif isinstance(node, ast.With):
            yield from statements_of(node.body)
        elif isinstance(node, ast.Try):
            yield from statements_of(itertools.takewhile(is_import, node.body))
        if mentions_environment(node):
            return


def top_names(node):
    if isinstance(node, ast.Import):
        return {alias.name.partition('.')[0] for alias in node.names}
    return {node.module.partition('.')[0]} if node.module and node.level == 0 else set()


def import_as_script_does(script, folder):
    """Carry out its imports of installed packages. One that fails is left to the script."""
    with open(script, 'rb') as file:
        tree = ast.parse(file.read(), script)
    names = set()
    for node in statements_of(tree.body):
        try:
            tops = top_names(node) - {'__future__'}
            if not tops or any(belongs_to_script(name, folder) for name in tops):
                continue
            exec(compile(ast.Module([node], []), script, 'exec', dont_inherit=True), {})
            names |= tops
        except Exception:
            continue
    return sorted(names - set(getattr(sys, 'stdlib_module_names', ())))


def import_modules(wanted, script):
    folder = os.path.dirname(os.path.realpath(script))
    if sys.path and sys.path[0] == '':
        sys.path[0] = folder
    if wanted == 'auto':
        names = import_as_script_does(script, folder)
        if not names:
            raise NotWarm('the script imports no installed package')
        return names
    names = wanted.split(',')
    for name in names:
        importlib.import_module(name)
    return names


# ---- what does not survive a fork --------------------------------------------------------------


class WatchedEnvironment(dict):
    """What os.environ keeps its entries in while modules are imported. Notes who reads first a
    variable of which each worker has its own: what the module made of it would hold for all."""

    def __init__(self, entries, own):
        super().__init__(entries)
        self.before = dict(entries)
        self.own = own
        self.read = None

    def __getitem__(self, name):
        if name in self.own and self.read is None:
            self.read = (module_that_asks(), os.fsdecode(name))
        return super().__getitem__(name)

    def changes(self):
        """What the modules have set, and None for what they have removed."""
        names = {*self, *self.before}
        now = {name: self.get(name) for name in names}
        return {name: now[name] for name in names if now[name] != self.before.get(name)}


def module_that_asks():
    frame = sys._getframe(2)
    while frame and frame.f_globals.get('__name__') in ('os', 'collections.abc'):
        frame = frame.f_back
    return frame.f_globals.get('__name__', '?') if frame else '?'


def watch_environment(own):
    entries = WatchedEnvironment(os.environ._data, own)
    os.environ._data = os.environb._data = entries
    return entries


def check_what_was_read(entries):
    os.environ._data = os.environb._data = dict(entries)
    if entries.read:
        module, name = entries.read
        raise NotWarm(f'{module} reads {name} while it is imported, and each worker has its own')


def living_threads():
    """The names of the threads but this one, by the kernel: libraries start threads, too. One
    that ends is seen for a moment after it was waited for."""
    names = []
    for task in os.listdir('/proc/self/task'):
        try:
            with open(f'/proc/self/task/{task}/stat', errors='replace') as file:
                name, _, fields = file.read().partition('(')[2].rpartition(')')
        except OSError:
            continue
        if int(task) != os.getpid() and not int(fields.split()[6]) & PF_EXITING:
            names.append(name)
    return names


def check_threads():
    names = [thread.name for thread in threading.enumerate()[1:]]
    if not names:
        pid = os.fork()  # some libraries, as OpenBLAS, end their threads before a fork
        if pid == 0:
            os._exit(0)
        os.waitpid(pid, 0)
        names = living_threads()
    if names:
        raise NotWarm(f'it started a thread ({", ".join(names)}), which a fork does not copy')


def check_devices():
    for name in os.listdir('/proc/self/fd'):
        try:
            target = os.readlink(f'/proc/self/fd/{name}')
        except OSError:
            continue
        if target.startswith('/dev/nvidia'):
            raise NotWarm(f'it opened a GPU ({target}), which does not survive a fork')


# ---- a worker ---------------------------------------------------------------------------------


def read_exactly(channel, size):
    data = bytearray()
    while len(data) < size:
        piece = channel.recv(size - len(data))
        if not piece:  # the agent is gone, or has started this worker in another way
            os._exit(0)
        data += piece
    return bytes(data)


def read_words(channel):
    """The worker's arguments and environment."""
    count, size = HEAD.unpack(read_exactly(channel, HEAD.size))
    words = read_exactly(channel, size).split(b'\0')[:-1]
    return [os.fsdecode(word) for word in words[:count]], words[count:]


def die_with(agent):
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0)
    if os.getppid() != agent:  # it died before prctl(): no signal will come
        os._exit(127)


def place_descriptors(fds):
    """@fds: by the number that each becomes."""
    if CGROUP in fds:
        try:
            os.write(fds[CGROUP], b'0')
        except OSError:
            pass  # the sweep ends it
    for target in (0, 1, 2, *range(CONTROL, FIRST_FREE)):
        if target in fds:
            os.dup2(fds[target], target)
        elif target >= CONTROL:
            os.close(target)
    for fd in fds.values():
        os.close(fd)


def reseed():
    """Random numbers as in a process that has imported the modules itself. Python's own generator
    does so after each fork. Those of CUDA and TensorFlow draw a seed when they are first used."""
    if 'numpy.random' in sys.modules:
        sys.modules['numpy.random'].seed()
    generator = getattr(sys.modules.get('torch'), 'default_generator', None)
    if generator is not None:
        generator.seed()
    if 'multiprocessing.process' in sys.modules:
        sys.modules['multiprocessing.process'].current_process().authkey = os.urandom(32)


def run_script(script):
    path = os.path.abspath(script)
    main = types.ModuleType('__main__')
    main.__dict__.update(__file__=path, __builtins__=builtins, __cached__=None,
                         __loader__=importlib.machinery.SourceFileLoader('__main__', path))
    if '__annotations__' in globals():  # before Python 3.14
        main.__annotations__ = {}
    sys.modules['__main__'] = main
    try:
        with open(path, 'rb') as file:
            code = compile(file.read(), path, 'exec', dont_inherit=True)
    except OSError as error:
        sys.stderr.write(f"{sys.executable}: can't open file {path!r}: "
                         f'[Errno {error.errno}] {os.strerror(error.errno)}\n')
        sys.exit(2)
    except (SyntaxError, ValueError) as error:
        sys.excepthook(type(error), error.with_traceback(None), None)
        sys.exit(1)
    try:
        exec(code, main.__dict__)
    except (SystemExit, KeyboardInterrupt):
        raise
    except BaseException as error:
        trace = error.__traceback__.tb_next  # without this function
        sys.excepthook(type(error), error.with_traceback(trace), trace)
        sys.exit(1)


def set_environment(entries, changes):
    """As after the imports: what modules set then is set."""
    os.environ.clear()
    for entry in entries:
        name, _, value = entry.partition(b'=')
        if name:
            os.environb[name] = value
    for name, value in changes.items():
        if value is not None:
            os.environb[name] = value
        else:
            os.environb.pop(name, None)


def become_worker(fds, agent, changes):
    with socket.socket(fileno=fds.pop(CHANNEL)) as channel:
        argv, env = read_words(channel)
    die_with(agent)
    place_descriptors(fds)
    set_environment(env, changes)
    script = argv[2:]  # after python3 -u
    sys.argv[:] = script
    if hasattr(sys, 'orig_argv'):
        sys.orig_argv[:] = argv
    if sys.path and not getattr(sys.flags, 'safe_path', False):
        sys.path[0] = os.path.dirname(os.path.realpath(script[0]))
    reseed()
    run_script(script[0])


# ---- the warm process -------------------------------------------------------------------------


def fork_worker(fds):
    """Fork a grandchild whose parent ends at once, so that the agent, which adopts orphans, becomes
    its parent. True: this is the worker. False: the warm process, which has told the agent."""
    reading, writing = os.pipe()
    middle = os.fork()
    if middle == 0:
        try:
            if os.fork() != 0:
                os._exit(0)
            os.setsid()
            os.dup2(reading, CONTROL)  # not closed: no other descriptor may take its number
            os.close(reading)
            os.write(writing, b'%d' % os.getpid())
            os.close(writing)
            return True
        except OSError:
            os._exit(1)
    os.close(writing)
    for fd in fds.values():
        os.close(fd)
    pid = os.read(reading, 32)
    os.close(reading)
    os.waitpid(middle, 0)
    os.write(CONTROL, pid or b'0')
    return False


def receive_request(control):
    """Descriptors by target; None: the agent is gone, or does not need this process any more."""
    targets, ancillary, _, _ = control.recvmsg(
        MOST_FDS, socket.CMSG_SPACE(MOST_FDS * 4), socket.MSG_CMSG_CLOEXEC)
    fds = array.array('i')
    for level, kind, data in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            fds.frombytes(data[:len(data) // 4 * 4])
    return dict(zip(targets, fds)) if targets else None


def serve(agent, changes):
    """Returns in workers only."""
    control = socket.socket(fileno=CONTROL)
    while True:
        fds = receive_request(control)
        if fds is None:
            os._exit(0)
        if fork_worker(fds):
            control.detach()
            become_worker(fds, agent, changes)
            return


def keep_low_numbers():
    """Nothing that is opened from now on may have a number that workers need."""
    fd = os.open('/dev/null', os.O_RDONLY)
    while fd < FIRST_FREE:
        fd = os.dup(fd)
    os.close(fd)


def main():
    agent = os.getppid()
    keep_low_numbers()
    began = time.monotonic()
    wanted, script = sys.argv[1:3]
    entries = watch_environment(frozenset(os.read(CONTROL, NAMES_MAX).split(b',')))
    try:
        names = import_modules(wanted, script)
        check_what_was_read(entries)
        check_threads()
        check_devices()
    except BaseException as error:
        text = str(error).partition('\n')[0]
        kind = '' if isinstance(error, NotWarm) else type(error).__name__ + ': '
        os.write(CONTROL, f'failed {kind}{text}'.encode(errors='replace')[:400])
        os._exit(1)
    gc.collect()
    gc.freeze()  # the collector would write to, and so copy, the pages that workers share
    spent_ms = int((time.monotonic() - began) * 1000)
    os.write(CONTROL, f'ready {spent_ms} {",".join(names)}'.encode(errors='replace')[:400])
    serve(agent, entries.changes())


main()
