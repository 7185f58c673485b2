"""ddprun.Store: a client of the store of a job, with the method names of torch.distributed.Store."""

from __future__ import annotations

import ctypes
import os
from datetime import timedelta

from . import arguments, durations, interface, libraries
from .errors import Error, Invalid, NotFound
from .lifetime import Handle

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from typing_extensions import Self

DEFAULT_TIMEOUT = timedelta(seconds=300) # as torch.distributed.Store has
BRIEF_MS = 10_000 # for calls that do not wait for other clients


def _key(key: str) -> bytes:
    found = arguments.text(key, 'a key')
    if found is None:
        raise Invalid('a key is a str, not None')
    return found


def _setting(name: str) -> bytes | None:
    value = os.environ.get(name)
    return value.encode() if value else None


class Store:
    """A connection to a store. Any number of threads may use it at once, and none holds up another.

    Without @endpoint ("host:port") it is the store of the job that ddprun started this process in, with that one's prefix
    and proof. After fork() the child has to make its own.
    """

    def __init__(self, endpoint: str | None = None, *, prefix: str | None = None, timeout: timedelta = DEFAULT_TIMEOUT,
                 connect_timeout: timedelta | None = None, token_file: str | os.PathLike[str] | None = None,
                 token_fd: int = 0, role: str = 'agent', job: str | None = None, epoch: int = 0, tls: bool = False,
                 reconnect: bool = True) -> None:
        self._timeout_ms = durations.milliseconds(timeout)
        self._library = libraries.store()
        if role not in interface.STORE_ROLES:
            raise Invalid(f'role is {role!r}; there are {", ".join(interface.STORE_ROLES)}')
        options = interface.StoreOptions(
            size=ctypes.sizeof(interface.StoreOptions), endpoint=arguments.text(endpoint or None, 'endpoint'),
            prefix=arguments.text(prefix, 'prefix'),
            connect_timeout_ms=durations.optional(connect_timeout, 'connect_timeout'),
            token_fd=arguments.number(token_fd, 0, 2**31 - 1, 'token_fd'), token_file=_path(token_file), role=interface.STORE_ROLES[role],
            job=arguments.text(job or None, 'job'), epoch=arguments.number(epoch, 0, 2**64 - 1, 'epoch'),
            flags=(interface.STORE_TLS if tls else 0) | (0 if reconnect else interface.STORE_NO_RECONNECT))
        if endpoint is None:
            _fill_from_environment(options)
        address = ctypes.c_void_p()
        libraries.call(self._library.ddp_store_connect, ctypes.byref(options), ctypes.byref(address))
        assert address.value is not None
        self._handle = Handle('store', address.value)

    # ---- as torch.distributed.Store ----

    @property
    def timeout(self) -> timedelta:
        """How long get() and wait() wait."""
        return timedelta(milliseconds=self._timeout_ms)

    def set_timeout(self, timeout: timedelta) -> None:
        self._timeout_ms = durations.milliseconds(timeout)

    def set(self, key: str, value: str | bytes) -> None:
        data = arguments.data(value, 'a value')
        self._call('set', _key(key), data, len(data), BRIEF_MS, None)

    def get(self, key: str) -> bytes:
        """Wait until @key exists; its value. Timeout, if it does not within the time limit."""
        return self._get('get', key, self._timeout_ms)

    def try_get(self, key: str) -> bytes:
        """The value of @key; NotFound if there is no such key now."""
        return self._get('try_get', key, BRIEF_MS)

    def multi_get(self, keys: Sequence[str]) -> list[bytes]:
        self.wait(keys)
        return [self.get(key) for key in keys]

    def multi_set(self, keys: Sequence[str], values: Sequence[str | bytes]) -> None:
        if len(keys) != len(values):
            raise Invalid(f'{len(keys)} keys and {len(values)} values')
        for key, value in zip(keys, values):
            self.set(key, value)

    def wait(self, keys: Sequence[str], timeout: timedelta | None = None) -> None:
        """Wait until all @keys exist."""
        if keys:
            limit = self._timeout_ms if timeout is None else durations.milliseconds(timeout)
            self._call('wait', _array(keys), len(keys), limit)

    def add(self, key: str, amount: int) -> int:
        """Add to the decimal number at @key (none: 0); the sum."""
        result = ctypes.c_int64()
        arguments.number(amount, -2**63, 2**63 - 1, 'the amount')
        self._call('add', _key(key), amount, BRIEF_MS, ctypes.byref(result))
        return result.value

    def compare_set(self, key: str, expected_value: str | bytes, desired_value: str | bytes) -> bytes:
        """Set @key to @desired_value if it has @expected_value, or, with an empty one, does not exist.

        Returns what @key has afterwards; @expected_value if it does not exist and another one was expected.
        """
        expected, desired = (arguments.data(value, 'a value') for value in (expected_value, desired_value))
        while True:
            version = self._swap('compare_and_swap_value', _key(key), expected, len(expected), desired)
            if version is None:
                return desired
            if version == 0 and expected:
                return expected
            if version == 0:
                if self._swap('compare_and_swap', _key(key), 0, desired) is None:
                    return desired
                continue # another client was faster
            try:
                return self.try_get(key)
            except NotFound: # another client has deleted it since
                pass

    def delete_key(self, key: str) -> bool:
        """Whether @key existed."""
        try:
            self._call('delete', _key(key), BRIEF_MS)
        except NotFound:
            return False
        return True

    def num_keys(self) -> int:
        return len(self._list(''))

    def check(self, keys: Sequence[str]) -> bool:
        """Whether all @keys exist now."""
        if not keys:
            return True
        values = ctypes.POINTER(interface.StoreValue)()
        self._call('try_get_many', _array(keys), len(keys), BRIEF_MS, ctypes.byref(values))
        try:
            return all(values[index].version for index in range(len(keys)))
        finally:
            self._library.ddp_store_free(values)

    # ---- more ----

    def list_keys(self, prefix: str = '') -> list[str]:
        """All keys that begin with @prefix, sorted by bytes. A byte that is no UTF-8 is a surrogate, as in names of files."""
        return [key.decode(errors='surrogateescape') for key in self._list(prefix)]

    def close(self) -> None:
        """End calls of other threads, and the connection. Further calls raise Invalid; a second close() does nothing."""
        self._handle.close(self._library.ddp_store_cancel, self._free)

    def _free(self, address: int) -> None:
        if not self._handle.inherited:
            self._library.ddp_store_close(address)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def __del__(self) -> None:
        if hasattr(self, '_handle'):
            self.close()

    # ---- inside ----

    def _call(self, name: str, *arguments: object) -> None:
        handle = self._handle
        if handle.inherited:
            raise Invalid(f'this store belongs to process {handle.pid}, which has forked this one: connect another one here')
        function = getattr(self._library, f'ddp_store_{name}')
        handle.use(lambda address: libraries.call(function, address, *arguments))

    def _list(self, prefix: str) -> list[bytes]:
        keys, count = ctypes.POINTER(ctypes.c_char_p)(), ctypes.c_size_t()
        self._call('list', _key(prefix), BRIEF_MS, ctypes.byref(keys), ctypes.byref(count))
        try:
            return [keys[index] or b'' for index in range(count.value)]
        finally:
            self._library.ddp_store_free(keys)

    def _get(self, name: str, key: str, timeout_ms: int) -> bytes:
        value, length = ctypes.c_void_p(), ctypes.c_size_t()
        self._call(name, _key(key), timeout_ms, ctypes.byref(value), ctypes.byref(length), None)
        try:
            return ctypes.string_at(value, length.value)
        finally:
            self._library.ddp_store_free(value)

    def _swap(self, name: str, key: bytes, *arguments: bytes | int) -> int | None:
        """None if the key was set, else the version that it has (0: no such key)."""
        version = ctypes.c_uint64()
        desired = arguments[-1]
        assert isinstance(desired, bytes)
        try:
            self._call(name, key, *arguments, len(desired), BRIEF_MS, ctypes.byref(version))
        except Error as error:
            if error.status != 'conflict':
                raise
            return version.value
        return None


def _path(path: str | os.PathLike[str] | None) -> bytes | None:
    return arguments.text(os.fspath(path), 'token_file') if path is not None else None


def _array(keys: Sequence[str]) -> ctypes.Array[ctypes.c_char_p]:
    if isinstance(keys, str):
        raise Invalid(f'keys is a str: pass a list, such as [{keys!r}]')
    return (ctypes.c_char_p * len(keys))(*[_key(key) for key in keys])


def _fill_from_environment(options: interface.StoreOptions) -> None:
    """What ddprun tells its workers, as libddpcomm reads it."""
    options.endpoint = _setting('DDPRUN_STORE')
    if options.endpoint is None:
        raise Invalid('there is no endpoint, and DDPRUN_STORE is not set: pass "host:port", or run the program with ddprun')
    if options.prefix is None:
        options.prefix = _setting('DDPRUN_STORE_PREFIX')
    token_fd = os.environ.get('DDPRUN_TOKEN_FD', '')
    if not options.token_file and not options.token_fd and token_fd:
        if not token_fd.isdecimal():
            raise Invalid(f'DDPRUN_TOKEN_FD is {token_fd!r}, which is no number of a descriptor')
        options.token_fd, options.auth = int(token_fd), interface.STORE_AUTH_BEYOND_LOOPBACK
    if os.environ.get('DDPRUN_TLS', '0') not in ('', '0'):
        options.flags |= interface.STORE_TLS
