"""ddprun.spawn(): ranks as children of a Python program, without a launcher.

Over multiprocessing's "spawn" and not ddp_spawn(), which forks: a Python process has threads, and often CUDA, and neither
survives a fork. So the function and its arguments are pickled, as with torch.multiprocessing.spawn(). Rank 0 makes a
unique id, this process hands it on, and Communicator() finds it in the environment.
"""

from __future__ import annotations

import contextlib
import ctypes
import multiprocessing
import os
import signal
import sys
import time
import traceback
from datetime import timedelta
from multiprocessing.connection import Connection, wait
from typing import TYPE_CHECKING, Any

from . import durations
from .errors import Aborted, Closed, Error, Invalid, PeerDead

if TYPE_CHECKING:
    from collections.abc import Callable

MOST = 65536
PR_SET_PDEATHSIG = 1
PATIENCE = 2.0 # seconds for a failure that explains one that follows from it
DEFAULT_GRACE = timedelta(seconds=5)


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


def _child(function: Callable[..., object], rank: int, size: int, arguments: tuple[object, ...], pipe: Connection,
           parent: int) -> None:
    """What a rank does: report to the parent (trace, whether another's failure is the cause), and end with 0 or 1."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent: # it died before that call
        os._exit(1)
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(size), LOCAL_WORLD_SIZE=str(size))
    try:
        if rank == 0:
            from .meeting import get_unique_id
            pipe.send(get_unique_id())
        os.environ['DDP_UNIQUE_ID'] = pipe.recv().hex()
        function(rank, *arguments)
    except Exception as error:
        pipe.send((f'{type(error).__name__}: {error}', traceback.format_exc(), isinstance(error, (PeerDead, Closed, Aborted))))
        sys.exit(1)


class Spawned:
    """The ranks of a spawn(join=False). Ends them when it is closed, or at the end of a "with" block."""

    def __init__(self, function: Callable[..., object], arguments: tuple[object, ...], nprocs: int, grace: timedelta) -> None:
        context = multiprocessing.get_context('spawn')
        self.grace = durations.milliseconds(grace, 'grace') / 1000
        self.processes: list[Any] = []
        self.pipes: list[Connection] = []
        self.failures: dict[int, tuple[str, str, bool]] = {}
        try:
            for rank in range(nprocs):
                ours, theirs = context.Pipe()
                self.pipes.append(ours)
                process = context.Process(target=_child, args=(function, rank, nprocs, arguments, theirs, os.getpid()))
                process.start()
                self.processes.append(process)
                theirs.close()
            self._hand_on()
        except BaseException:
            self.close()
            raise

    def _hand_on(self) -> None:
        """The unique id of rank 0 to all; none, if that rank has ended before."""
        with contextlib.suppress(EOFError, OSError):
            made = self.pipes[0].recv()
            if not isinstance(made, bytes): # rank 0 has failed, and says how
                self.failures[0] = made
                return
            for pipe in self.pipes:
                with contextlib.suppress(OSError): # this rank has ended
                    pipe.send(made)

    def pids(self) -> list[int]:
        return [process.pid for process in self.processes]

    def join(self, timeout: timedelta | None = None) -> bool:
        """Wait until all ranks have ended: True. After @timeout False. RankFailed: one failed, and the others were ended."""
        deadline = None if timeout is None else time.monotonic() + durations.milliseconds(timeout) / 1000
        while running := [process for process in self.processes if process.exitcode is None]:
            if any(process.exitcode for process in self.processes):
                self._await_the_cause()
                self._end()
                break
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            if not wait([process.sentinel for process in running], left) and left is not None:
                return False
        first = self._first_failure()
        if first is not None:
            raise first
        return True

    def _read_reports(self) -> None:
        for rank, pipe in enumerate(self.pipes):
            with contextlib.suppress(EOFError, OSError):
                while rank not in self.failures and pipe.poll():
                    self.failures[rank] = pipe.recv()

    def _failed(self) -> list[int]:
        self._read_reports()
        return [rank for rank, process in enumerate(self.processes) if process.exitcode]

    def _follows(self, rank: int) -> bool:
        return rank in self.failures and self.failures[rank][2]

    def _await_the_cause(self) -> None:
        """Where all failures so far follow from another one, that may come within a moment."""
        deadline = time.monotonic() + min(PATIENCE, self.grace)
        while all(self._follows(rank) for rank in self._failed()):
            running = [process.sentinel for process in self.processes if process.exitcode is None]
            left = deadline - time.monotonic()
            if left <= 0 or not running or not wait(running, left):
                break

    def _first_failure(self) -> RankFailed | None:
        failed = [rank for rank in self._failed() if rank not in self._ended]
        if not failed:
            return None
        rank = min(failed, key=self._follows)
        code = self.processes[rank].exitcode
        what, trace, _ = self.failures.get(rank, ('', '', False))
        end = f'was killed by {signal.Signals(-code).name}' if code < 0 else f'ended with exit code {code}'
        return RankFailed(f'rank {rank} (pid {self.processes[rank].pid}) ' + (f'raised {what}' if what else end), rank, code,
                          trace)

    _ended: frozenset[int] = frozenset() # ranks that were running when another failed

    def _end(self) -> None:
        running = [process for process in self.processes if process.exitcode is None]
        self._ended = self._ended | {rank for rank, process in enumerate(self.processes) if process in running}
        for process in running:
            process.terminate()
        deadline = time.monotonic() + self.grace
        for process in running:
            process.join(max(0.0, deadline - time.monotonic()))
            if process.exitcode is None:
                process.kill()
                process.join()

    def close(self) -> None:
        """End the ranks that run: SIGTERM and, after the grace, SIGKILL."""
        self._end()
        for pipe in self.pipes:
            pipe.close()

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
