"""ddprun.spawn(): ranks as children of a Python program, without a launcher.

Over multiprocessing's "spawn" and not ddp_spawn(), which forks: a Python process has threads, and often CUDA, and neither
survives a fork. So the function and its arguments are pickled, as with torch.multiprocessing.spawn(). Rank 0 makes a
unique id, the others get it through a pipe, and Communicator() finds it in the environment.
"""

from __future__ import annotations

import contextlib
import ctypes
import multiprocessing
import os
import select
import signal
import sys
import time
import traceback
from datetime import timedelta
from multiprocessing.connection import Connection, wait
from typing import TYPE_CHECKING, Any, NamedTuple

from . import durations
from .errors import Aborted, Closed, Error, Invalid, PeerDead

if TYPE_CHECKING:
    from collections.abc import Callable

MOST = 65536
PR_SET_PDEATHSIG = 1
PATIENCE = 2.0 # seconds for a failure that explains one that follows from it
DEFAULT_GRACE = timedelta(seconds=5)


def _name(number: int) -> str:
    """Of a signal: real-time ones have only a number."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f'signal {number}'


class RankFailed(Error):
    """A rank of spawn() failed: the one that came first. @exit_code is negative for a signal; @trace may be empty."""

    def __init__(self, sentence: str, rank: int, exit_code: int | None, trace: str) -> None:
        super().__init__(sentence, 'peer-dead')
        self.failed_rank, self.exit_code, self.trace = rank, exit_code, trace

    @property
    def rank(self) -> int:
        return self.failed_rank

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (str(self), self.failed_rank, self.exit_code, self.trace)


class Failure(NamedTuple):
    """How a rank failed: at which time.monotonic(), by which exception, and whether another's failure is the cause."""

    when: float
    what: str = ''
    trace: str = ''
    follows: bool = False


def _meet(rank: int, shared: tuple[Connection, Connection]) -> bytes:
    """The unique id: rank 0 makes it, and each other takes it out of the shared pipe and puts it back for the next."""
    reader, writer = shared
    if rank == 0:
        from .meeting import get_unique_id
        made = get_unique_id()
    else:
        made = os.read(reader.fileno(), select.PIPE_BUF)
    os.write(writer.fileno(), made)
    reader.close()
    writer.close()
    return made


def _child(function: Callable[..., object], rank: int, size: int, arguments: tuple[object, ...], report: Connection,
           shared: tuple[Connection, Connection], parent: int) -> None:
    """What a rank does: call the function, report its exception to the parent, and end with 0 or 1."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent: # it died before that call
        os._exit(1)
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(size), LOCAL_WORLD_SIZE=str(size))
    try:
        os.environ['DDP_UNIQUE_ID'] = _meet(rank, shared).hex()
        function(rank, *arguments)
    except Exception as error:
        now = time.monotonic()
        report.send(Failure(now, f'{type(error).__name__}: {error}', traceback.format_exc(),
                            isinstance(error, (PeerDead, Closed, Aborted))))
        sys.exit(1)


class Spawned:
    """The ranks of a spawn(join=False). Ends them when it is closed, or at the end of a "with" block."""

    def __init__(self, function: Callable[..., object], arguments: tuple[object, ...], nprocs: int, grace: timedelta) -> None:
        context = multiprocessing.get_context('spawn')
        self.grace = durations.milliseconds(grace, 'grace') / 1000
        self.processes: list[Any] = []
        self.reports: dict[Connection, int] = {} # where a rank may still report
        self.failures: dict[int, Failure] = {}
        self.ended: set[int] = set() # ranks that were running when another failed
        reader, writer = context.Pipe(duplex=False)
        try:
            with reader, writer:
                for rank in range(nprocs):
                    ours, theirs = context.Pipe(duplex=False)
                    self.reports[ours] = rank
                    with theirs:
                        given = function, rank, nprocs, arguments, theirs, (reader, writer), os.getpid()
                        process = context.Process(target=_child, args=given)
                        process.start()
                    self.processes.append(process)
        except BaseException:
            self.close()
            raise

    def pids(self) -> list[int]:
        return [process.pid for process in self.processes]

    def join(self, timeout: timedelta | None = None) -> bool:
        """Wait until all ranks have ended: True. After @timeout False. RankFailed: one failed, and the others were ended."""
        deadline = None if timeout is None else time.monotonic() + durations.milliseconds(timeout) / 1000
        while self._running() and not self.failures:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            if not self._wait(left) and left is not None:
                return False
        self._wait(0) # for reports of those that have ended
        if self.failures:
            self._await_the_cause()
            self._end()
            raise self._first_failure()
        return True

    def _running(self) -> list[int]:
        return [rank for rank, process in enumerate(self.processes) if process.exitcode is None]

    def _wait(self, left: float | None) -> bool:
        """Wait until a rank has reported or ended: True. After @left seconds False.

        A report can be longer than what a pipe holds, so a rank ends only when it is read.
        """
        codes = [process.exitcode for process in self.processes]
        failed = [rank for rank, code in enumerate(codes) if code and rank not in self.failures and rank not in self.ended]
        self.failures.update((rank, Failure(time.monotonic())) for rank in failed)
        running = [process.sentinel for process, code in zip(self.processes, codes) if code is None]
        ready = wait([*running, *self.reports], left if running and not failed else 0)
        for pipe in [pipe for pipe in self.reports if pipe in ready]:
            self._read(pipe)
        return bool(failed or ready)

    def _read(self, pipe: Connection) -> None:
        rank = self.reports.pop(pipe)
        with pipe, contextlib.suppress(EOFError, OSError): # it has ended without
            failure = pipe.recv()
            if rank not in self.ended:
                self.failures[rank] = failure

    def _await_the_cause(self) -> None:
        """Where all failures so far follow from another one, that may come within a moment."""
        deadline = time.monotonic() + min(PATIENCE, self.grace)
        while self._running() and all(failure.follows for failure in self.failures.values()):
            left = deadline - time.monotonic()
            if left <= 0 or not self._wait(left):
                break

    def _first_failure(self) -> RankFailed:
        rank, failure = min(self.failures.items(), key=lambda item: (item[1].follows, item[1].when))
        process, code = self.processes[rank], self.processes[rank].exitcode
        if failure.what:
            end = f'raised {failure.what}'
        else:
            end = f'was killed by {_name(-code)}' if code < 0 else f'ended with exit code {code}'
        return RankFailed(f'rank {rank} (pid {process.pid}) {end}', rank, code, failure.trace)

    def _end(self) -> None:
        """SIGTERM to ranks that run, but not to one that has reported and ends by itself; SIGKILL after the grace."""
        self._wait(0)
        running = [rank for rank in self._running() if rank not in self.failures]
        self.ended.update(running)
        for rank in running:
            self.processes[rank].terminate()
        deadline = time.monotonic() + self.grace
        while self._running() and (left := deadline - time.monotonic()) > 0:
            self._wait(left)
        for process in self.processes:
            process.kill()
            process.join()

    def close(self) -> None:
        """End the ranks that run: SIGTERM and, after the grace, SIGKILL."""
        self._end()
        for pipe in self.reports:
            pipe.close()
        self.reports.clear()

    def __enter__(self) -> Spawned:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def spawn(function: Callable[..., object], args: tuple[object, ...] = (), nprocs: int = 1, join: bool = True, *,
          grace: timedelta = DEFAULT_GRACE) -> Spawned | None:
    """Start @nprocs processes that call function(rank, *args), in which Communicator() joins the others, once.

    Waits for them, and raises RankFailed if one fails: the others get SIGTERM and, after @grace, SIGKILL. With join=False
    it returns a Spawned at once. The processes end with the thread that called this.
    """
    if not 0 < nprocs <= MOST:
        raise Invalid(f'nprocs is {nprocs}; there may be 1 to {MOST}')
    started = Spawned(function, tuple(args), nprocs, grace)
    if not join:
        return started
    with started:
        started.join()
    return None
