"""The exceptions of the package. Each carries the sentence of the C library, and what that names.

One class for each status that programs handle; all others are Error itself. The libraries name ranks in sentences, so
rank, host, operation and sequence are read from there: None where the sentence names none.
"""

from __future__ import annotations

from . import sentences
from .interface import STATUSES, CError


class Error(Exception):
    """A call failed. str() is a sentence with what happened and what to do; @status a short name that never changes."""

    status: str = 'system'
    sys_errno: int = 0

    def __init__(self, sentence: str, status: str | None = None, sys_errno: int = 0) -> None:
        super().__init__(sentence)
        if status is not None:
            self.status = status
        self.sys_errno = sys_errno

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (str(self), self.status, self.sys_errno)

    @property
    def rank(self) -> int | None:
        """The rank that is to blame, if the sentence names exactly one."""
        return sentences.find_rank(str(self))[0]

    @property
    def host(self) -> str | None:
        """The host of that rank."""
        return sentences.find_rank(str(self))[1]

    @property
    def operation(self) -> str | None:
        """The operation in which this rank was, such as 'all_reduce'."""
        return sentences.find_call(str(self))[0]

    @property
    def sequence(self) -> int | None:
        """The number of that operation in its communicator."""
        return sentences.find_call(str(self))[1]


class Invalid(Error, ValueError):
    """An argument, a variable of the environment or the state of an object does not allow the call. It had no effect."""
    status = 'invalid'


class Timeout(Error, TimeoutError):
    """The time limit passed."""
    status = 'timeout'


class PeerDead(Error):
    """A rank has died, or has left."""
    status = 'peer-dead'


class Closed(Error, ConnectionError):
    """A connection has ended, although the other side lives."""
    status = 'closed'


class Mismatch(Error):
    """Ranks called different operations; the sentence names both."""
    status = 'mismatch'


class Aborted(Error):
    """A rank called abort()."""
    status = 'aborted'


class NotFound(Error, LookupError):
    """There is no such key."""
    status = 'not-found'


class LibraryError(Error, ImportError):
    """A library was not found, or is of another version than this package."""
    status = 'unsupported'


CLASSES: dict[str, type[Error]] = {
    kind.status: kind for kind in (Invalid, Timeout, PeerDead, Closed, Mismatch, Aborted, NotFound)}


def exception(error: CError, status: int) -> Error:
    """The exception for what a C function has returned and put into its struct ddp_error."""
    name = STATUSES.get(status, 'internal')
    sentence = error.msg.decode('utf-8', 'replace') or f'the C library returned {name}'
    return CLASSES.get(name, Error)(sentence, name, error.sys_errno)
