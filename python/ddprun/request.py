"""An operation that is under way: ask whether it has ended, or wait for it."""

from __future__ import annotations

import ctypes

from . import durations, libraries
from .errors import exception
from .interface import CError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from datetime import timedelta

    from .communicator import Communicator


class Dropped:
    """A request that the program has dropped before its end: owns it, and keeps its buffers."""

    def __init__(self, address: int, keep: object) -> None:
        self._address = address
        self._keep = keep

    def has_ended(self) -> bool:
        """An error has no one left to go to; the communicator keeps it."""
        done = ctypes.c_int()
        libraries.comm().ddp_request_test(self._address, ctypes.byref(done), None)
        return bool(done.value)

    def __del__(self) -> None:
        libraries.comm().ddp_request_free(self._address)


class Request:
    """What a call with async_op=True returns. It keeps the buffers until the operation has ended.

    Bytes move while a thread is in test(), wait() or a blocking call of the communicator, or at any time after its
    start_progress(). A request that is dropped before its end goes on.
    """

    def __init__(self, comm: Communicator, address: int, keep: object, source: ctypes.c_uint32 | None) -> None:
        self._comm = comm
        self._address = address
        self._keep: object = keep
        self._source = source
        self._done = False

    @property
    def done(self) -> bool:
        """Whether test() or wait() has seen the end. Does not look again."""
        return self._done

    @property
    def source(self) -> int | None:
        """Of a receive that has ended: the rank that has sent the message."""
        return self._source.value if self._source is not None and self._done else None

    def test(self) -> bool:
        """Whether the operation has ended; raises its error if it has failed. Does not sleep."""
        done, error = ctypes.c_int(), CError()
        status = libraries.comm().ddp_request_test(self._address, ctypes.byref(done), ctypes.byref(error))
        self._note(status, bool(done.value), error)
        return self._done

    def wait(self, timeout: timedelta | None = None) -> None:
        """Wait until the operation has ended; raises its error. After @timeout raises Timeout; then it goes on."""
        done, error = ctypes.c_int(), CError()
        status = libraries.comm().ddp_request_wait(self._address, durations.optional(timeout), ctypes.byref(done),
                                                   ctypes.byref(error))
        self._note(status, bool(done.value), error)

    def _note(self, status: int, done: bool, error: CError) -> None:
        if done and not self._done:
            self._done = True
            self._keep = None
        if status != 0:
            raise exception(error, status)

    def __del__(self) -> None:
        if self._done:
            libraries.comm().ddp_request_free(self._address)
        else:
            self._comm._keep_until_ended(Dropped(self._address, self._keep))
