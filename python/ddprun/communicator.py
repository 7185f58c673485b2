"""ddprun.Communicator: the ranks of a job, or some of them; how one is made, how it ends, and what it tells."""

from __future__ import annotations

import collections
import contextlib
import ctypes
import threading
import warnings
from datetime import timedelta

from . import arguments, durations, interface, libraries
from .buffers import buffer, element, written
from .collectives import Collectives
from .errors import Error, Invalid, exception
from .interface import CError
from .lifetime import Handle
from .meeting import Meeting
from .request import Dropped, Request

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import TracebackType
    from typing import Any

    from typing_extensions import Self

    from .meeting import AnyStore

MOST_LOCAL = 256 # ranks in one process
MOST_ENQUEUED = 256 # the last calls on device memory without a request, whose buffers are kept


def _ranks(ranks: Sequence[int]) -> ctypes.Array[ctypes.c_uint32]:
    if any(not 0 <= rank < 2**32 for rank in ranks):
        raise Invalid(f'these are no ranks: {list(ranks)}')
    return (ctypes.c_uint32 * len(ranks))(*ranks)


class Communicator(Collectives):
    """Joins the other ranks; blocks until all have. Its operations are those of Collectives.

    Without arguments all comes from the environment that ddprun or torchrun sets; a process without a launcher is a world
    of one rank. Ranks can also meet through @store (a ddprun.Store or a torch.distributed.Store), by a @unique_id of
    get_unique_id(), or at a store's @endpoint. @name is different for each communicator of a job. Any thread may use it.
    Every rank calls the same operations in the same order. At the end of a "with" block what was sent has arrived.
    """

    def __init__(self, *, store: AnyStore | None = None, unique_id: bytes | None = None, endpoint: str | None = None,
                 prefix: str | None = None, name: str | None = None, rank: int | None = None,
                 world_size: int | None = None, init_timeout: timedelta | None = None, timeout: timedelta | None = None,
                 force_tcp: bool = False, algorithm: str = 'auto') -> None:
        meeting = Meeting(store=store, unique_id=unique_id, endpoint=endpoint, prefix=prefix, name=name, rank=rank,
                          world_size=world_size, init_timeout=init_timeout, timeout=timeout, force_tcp=force_tcp,
                          algorithm=algorithm)
        self._own(meeting.join())

    def _own(self, address: int) -> None:
        self._library = libraries.comm()
        self._handle = Handle('communicator', address)
        self.rank: int = self._library.ddp_comm_rank(address)
        self.size: int = self._library.ddp_comm_world_size(address)
        self._dropped: set[Dropped] = set()
        self._most_dropped = 0 # with more than these, look for ended ones
        self._group: tuple[int, list[tuple[object, bool]]] | None = None # the thread that has a group open; what its calls use
        self._enqueued: collections.deque[object] = collections.deque(maxlen=MOST_ENQUEUED) # no request tells their end

    @classmethod
    def _of(cls, address: int) -> Self:
        made = cls.__new__(cls)
        made._own(address)
        return made

    @classmethod
    def local(cls, count: int) -> list[Self]:
        """A world of @count ranks in this process, for a thread each."""
        if not 0 < count <= MOST_LOCAL:
            raise Invalid(f'{count} ranks in a process; there may be 1 to {MOST_LOCAL}')
        addresses = (ctypes.c_void_p * count)()
        libraries.call(libraries.comm().ddp_comm_init_local, count, None, addresses)
        return [cls._of(address) for address in addresses if address is not None]

    # ---- operations ----

    def _carry_out(self, operation: interface.Operation, keep: object, async_op: bool,
                   on_device: bool = False) -> Request | None:
        if async_op:
            return self._handle.use(self._start, operation, keep)
        grouped = self._group is not None and self._group[0] == threading.get_ident()
        if on_device and not grouped:
            self._enqueue(operation, keep)
            return None
        error = CError()
        status = self._handle.use(self._library.ddp_run, operation, error)
        if status != 0:
            raise exception(error, status)
        self._note((operation, keep), on_device)
        return None

    def _enqueue(self, operation: interface.Operation, keep: object) -> None:
        """It goes on after the call, and a request that is dropped keeps what it uses: also what earlier ones do that have
        none, as operations on device memory run one after the other.
        """
        earlier, self._enqueued = self._enqueued, collections.deque(maxlen=MOST_ENQUEUED)
        try:
            request: Request = self._handle.use(self._start, operation, keep, earlier)
        except Error:
            self._enqueued.extendleft(reversed(earlier))
            raise
        request.test() # what is known to have failed is raised

    def _start(self, address: int, operation: interface.Operation, keep: Any, earlier: object = None) -> Request:
        request = ctypes.c_void_p()
        libraries.call(self._library.ddp_start, address, ctypes.byref(operation), ctypes.byref(request))
        assert request.value is not None
        source = keep[1] if operation.kind == interface.RECV else None
        return Request(self, request.value, (operation, keep, earlier), source)

    def _invoke(self, name: str, *arguments: object) -> None:
        function = getattr(self._library, name)
        self._handle.use(lambda address: libraries.call(function, address, *arguments))

    def send_recv(self, send: object, to: int, recv: object, source: int, *, dtype: str | None = None,
                  stream: int | None = None) -> None:
        """Send to rank @to and receive from rank @source, both at once; neither waits for the other's order."""
        given, taken = buffer(send, 'send', dtype, stream), written(recv, 'recv', dtype, stream)
        if given.dtype != taken.dtype:
            raise Invalid(f'send_recv: send has elements of {given.dtype}, and recv of {taken.dtype}')
        arguments.rank(to, 'the rank to send to')
        arguments.rank(source, 'the rank to receive from')
        chosen = stream if stream is not None else given.stream
        self._invoke('ddp_send_recv', given.address, given.count, to, taken.address, taken.count, source,
                     element(given.dtype)[0], chosen)
        self._note((given, taken), given.on_device or taken.on_device)

    def _note(self, keep: object, on_device: bool) -> None:
        """Keep what a call uses that was only noted, as this thread has a group open, or that is only enqueued."""
        if self._group is not None and self._group[0] == threading.get_ident():
            self._group[1].append((keep, on_device))
        elif on_device:
            self._enqueued.append(keep)

    @contextlib.contextmanager
    def group(self) -> Iterator[None]:
        """Calls in the block are noted, and begin together at its end, which waits for them: messages in any order.

        On device memory they are enqueued then; their buffers are kept until a later operation there has ended.
        """
        self._invoke('ddp_group_start')
        outer = self._group
        self._group = (threading.get_ident(), outer[1] if outer else [])
        try:
            yield
        finally:
            try:
                self._invoke('ddp_group_end')
            finally:
                if outer is None:
                    self._enqueued.extend(keep for keep, on_device in self._group[1] if on_device)
                self._group = outer

    def start_progress(self) -> None:
        """Start a thread in the library that moves the bytes of requests, also while the program does other things."""
        self._invoke('ddp_comm_start_progress')

    # ---- other communicators ----

    def split(self, color: int | None, key: int = 0) -> Self | None:
        """All ranks call it. Those with one @color become a communicator, in the order of @key; None: this rank is in none."""
        made = ctypes.c_void_p()
        if color is not None and not 0 <= color < 2**31 or not -2**31 <= key < 2**31:
            raise Invalid(f'split: the color {color} or the key {key} is out of range')
        self._invoke('ddp_comm_split', interface.NO_COLOR if color is None else color, key, ctypes.byref(made))
        return self._of(made.value) if made.value is not None else None

    def create_group(self, ranks: Sequence[int]) -> Self:
        """A communicator of @ranks, in this order. Only they call it."""
        made = ctypes.c_void_p()
        self._invoke('ddp_comm_create_group', _ranks(ranks), len(ranks), ctypes.byref(made))
        assert made.value is not None
        return self._of(made.value)

    def shrink(self, excluded: Sequence[int] = (), *, abort: bool = False, timeout: timedelta | None = None) -> Self:
        """A communicator of the ranks that live and are not @excluded. This one may have failed; close it afterwards."""
        made = ctypes.c_void_p()
        self._invoke('ddp_comm_shrink', _ranks(excluded), len(excluded), interface.SHRINK_ABORT if abort else 0,
                     durations.optional(timeout), ctypes.byref(made))
        assert made.value is not None
        return self._of(made.value)

    # ---- what it tells ----

    @property
    def timeout(self) -> timedelta:
        """The time limit of each operation."""
        return timedelta(milliseconds=self._handle.use(self._library.ddp_comm_get_timeout))

    def set_timeout(self, timeout: timedelta) -> None:
        self._invoke('ddp_comm_set_timeout', durations.optional(timeout))

    def check(self) -> None:
        """Raise the first cause of its failure, if it has failed. Sends nothing; any thread may call it at any time."""
        self._invoke('ddp_comm_check')

    def stats(self) -> dict[str, int]:
        """Counters: see struct ddp_comm_stats."""
        stats = interface.CommStats(size=ctypes.sizeof(interface.CommStats))
        self._handle.use(self._library.ddp_comm_get_stats, ctypes.byref(stats))
        return {name: getattr(stats, name) for name, *_ in stats._fields_ if name != 'size'}

    # ---- its end ----

    def abort(self) -> None:
        """Let the current and all later operations fail with Aborted, on all ranks. Does not block."""
        self._handle.use(self._library.ddp_comm_abort)

    def finalize(self, timeout: timedelta | None = None) -> None:
        """Wait until all operations have ended and the others have taken what was sent; then only close() is left.

        Requests that receive, and whose message has not begun to come, end with an Error whose status is "canceled".
        """
        self._invoke('ddp_comm_finalize', durations.optional(timeout))

    def close(self) -> None:
        """Leave at once; ranks that need this one get PeerDead. Calls of other threads end with Aborted.

        A signal handler may call it, also within a call of its own thread; that one then aborts the communicator, and its
        end closes it.
        """
        self._handle.close(self._library.ddp_comm_abort, self._free)

    def _free(self, address: int) -> None:
        self._library.ddp_comm_destroy(address)
        self._dropped.clear()
        self._enqueued.clear()

    def _keep_until_ended(self, dropped: Dropped) -> None:
        """Any thread gets here, at any time, as it drops a request. It looks at all when they have doubled, which costs each
        drop the same, however many operations do not end.
        """
        self._dropped.add(dropped)
        if len(self._dropped) > self._most_dropped:
            for one in self._dropped.copy():
                if one.has_ended():
                    self._dropped.discard(one)
            self._most_dropped = 2 * len(self._dropped)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            if kind is None and not self._handle.closed and not self._has_failed():
                self.finalize()
        finally:
            self.close()

    def _has_failed(self) -> bool:
        try:
            self.check()
        except Error:
            return True
        return False

    def __del__(self) -> None:
        if hasattr(self, '_handle'):
            if not self._handle.closed and not self._handle.inherited:
                warnings.warn(f'a communicator of {self.size} ranks was not closed', ResourceWarning, source=self)
            self.close()

    def __repr__(self) -> str:
        state = ', closed' if self._handle.closed else ''
        return f'<ddprun.Communicator: rank {self.rank} of {self.size}{state}>'
