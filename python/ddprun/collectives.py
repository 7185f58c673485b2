"""The operations of a communicator: what their arguments mean, and how many elements each buffer must have.

Owns nothing; communicator.py carries the operations out. The C library trusts counts, so all of them are checked here.
"""

from __future__ import annotations

import ctypes
from ctypes import c_size_t, c_uint32

from . import arguments, durations, interface
from .buffers import Buffer, buffer, element, written
from .errors import Invalid
from .interface import ANY_RANK, REDUCE_OPS, ListedBuffer, Operation

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import timedelta
    from typing import Any

    from .request import Request

OPERATION_SIZE = ctypes.sizeof(Operation)


def reduce_op(name: str) -> int:
    try:
        return REDUCE_OPS[name]
    except KeyError:
        raise Invalid(f'there is no reduction {name!r}; there are {", ".join(REDUCE_OPS)}') from None


def _demand(found: Buffer, count: int, call: str, what: str) -> None:
    if found.count != count:
        raise Invalid(f'{call}: {what} has {found.count} elements, and needs {count}')


def _same_type(send: Buffer, recv: Buffer, call: str) -> None:
    if send.dtype != recv.dtype:
        raise Invalid(f'{call}: send has elements of {send.dtype}, and recv of {recv.dtype}')


def _counts(counts: Sequence[int], size: int, call: str) -> ctypes.Array[c_size_t]:
    if len(counts) != size:
        raise Invalid(f'{call}: there are {len(counts)} counts for {size} ranks')
    if any(count < 0 for count in counts):
        raise Invalid(f'{call}: a count is negative: {list(counts)}')
    return (c_size_t * size)(*counts)


class Collectives:
    """Operations. With async_op=True each returns a Request at once; else None, when it is complete.

    Buffers are whatever buffers.py finds elements in. On device memory a call enqueues the operation, in @stream (a number,
    as of torch.cuda.Stream.cuda_stream), else in the stream that the buffer names, else in the default one. @dtype says
    what the elements are where a buffer cannot: 'bfloat16' in an array of uint16, say. @timeout is of this call.
    """

    rank: int
    size: int

    def _carry_out(self, operation: Operation, keep: object, async_op: bool,
                   on_device: bool = False) -> Request | None:
        raise NotImplementedError

    def _call(self, kind: int, send: Buffer | None, recv: Buffer | None, count: int, *, op: int = 0, factor: float = 0.0,
              peer: int = 0, tag: int = 0, stream: int | None = None, timeout: timedelta | None = None,
              send_counts: Any = None, recv_counts: Any = None, uneven: bool = False, async_op: bool = False,
              ) -> Request | None:
        given = recv or send
        number, stream_of = (element(given.dtype)[0], given.stream) if given else (0, None)
        arguments.rank(peer, 'the rank')
        arguments.number(tag, 0, arguments.LARGEST_TAG, 'the tag')
        operation = Operation(
            OPERATION_SIZE, kind, send.address if send else None, recv.address if recv else None, count, number, op, factor,
            peer, tag, 0 if timeout is None else durations.optional(timeout), uneven)
        if uneven:
            operation.send_counts, operation.recv_counts = send_counts, recv_counts
        if stream is not None or stream_of is not None:
            operation.stream = stream if stream is not None else stream_of
        return self._carry_out(operation, (send, recv, send_counts, recv_counts), async_op,
                               any(one is not None and one.on_device for one in (send, recv)))

    # ---- reductions ----

    def all_reduce(self, send: object, recv: object = None, op: str = 'sum', *, factor: float = 0.0,
                   dtype: str | None = None, stream: int | None = None, timeout: timedelta | None = None,
                   async_op: bool = False) -> Request | None:
        """Reduce @send over all ranks; every rank gets the result in @recv, or in @send without one.

        @op: sum average min max product bit_and bit_or bit_xor premul_sum (with this rank's @factor) average_before.
        """
        if recv is None:
            source = target = written(send, 'send', dtype, stream)
        else:
            source, target = buffer(send, 'send', dtype, stream), written(recv, 'recv', dtype, stream)
            _same_type(source, target, 'all_reduce')
            _demand(target, source.count, 'all_reduce', 'recv')
        return self._call(interface.ALL_REDUCE, source, target, source.count, op=reduce_op(op), factor=factor,
                          stream=stream, timeout=timeout, async_op=async_op)

    def all_reduce_many(self, buffers: Sequence[object], op: str = 'sum', *, factor: float = 0.0, dtype: str | None = None,
                        stream: int | None = None, timeout: timedelta | None = None, async_op: bool = False,
                        ) -> Request | None:
        """all_reduce() of all @buffers, in place, in one pass. They have one element type."""
        return self._many(interface.ALL_REDUCE, 'all_reduce_many', buffers, 0, reduce_op(op), factor, dtype, stream,
                          timeout, async_op)

    def broadcast_many(self, buffers: Sequence[object], root: int = 0, *, dtype: str | None = None,
                       stream: int | None = None, timeout: timedelta | None = None, async_op: bool = False,
                       ) -> Request | None:
        """broadcast() of all @buffers in one pass. They have one element type."""
        return self._many(interface.BROADCAST, 'broadcast_many', buffers, root, 0, 0.0, dtype, stream, timeout, async_op)

    def _many(self, kind: int, call: str, buffers: Sequence[object], peer: int, op: int, factor: float, dtype: str | None,
              stream: int | None, timeout: timedelta | None, async_op: bool) -> Request | None:
        found = [written(one, f'buffer {index}', dtype, stream) for index, one in enumerate(buffers)]
        types = sorted({one.dtype for one in found})
        if len(types) > 1:
            raise Invalid(f'{call}: buffers have different element types: {", ".join(types)}')
        listed = (ListedBuffer * max(1, len(found)))(*[
            ListedBuffer(one.address, one.address, one.count) for one in found])
        streams = [stream] if stream is not None else [one.stream for one in found if one.stream is not None]
        operation = Operation(OPERATION_SIZE, kind, dtype=element(types[0])[0] if types else 0, op=op, factor=factor,
                              peer=arguments.rank(peer, 'the rank'), timeout_ms=durations.optional(timeout), buffers=listed, nbuffers=len(found),
                              stream=streams[0] if streams else None)
        return self._carry_out(operation, (found, listed), async_op, any(one.on_device for one in found))

    def reduce(self, send: object, recv: object = None, root: int = 0, op: str = 'sum', *, factor: float = 0.0,
               dtype: str | None = None, stream: int | None = None, timeout: timedelta | None = None,
               async_op: bool = False) -> Request | None:
        """Reduce over all ranks; rank @root gets the result in @recv, or in @send without one."""
        if self.rank != root:
            source, target = buffer(send, 'send', dtype, stream), None
        elif recv is None:
            source = target = written(send, 'send', dtype, stream)
        else:
            source, target = buffer(send, 'send', dtype, stream), written(recv, 'recv', dtype, stream)
            _same_type(source, target, 'reduce')
            _demand(target, source.count, 'reduce', 'recv')
        return self._call(interface.REDUCE, source, target, source.count, op=reduce_op(op), factor=factor, peer=root,
                          stream=stream, timeout=timeout, async_op=async_op)

    def reduce_scatter(self, send: object, recv: object, op: str = 'sum', *, counts: Sequence[int] | None = None,
                       factor: float = 0.0, dtype: str | None = None, stream: int | None = None,
                       timeout: timedelta | None = None, async_op: bool = False) -> Request | None:
        """Reduce over all ranks; rank r gets the r-th part in @recv. Parts are equal, or have @counts elements."""
        source, target = buffer(send, 'send', dtype, stream), written(recv, 'recv', dtype, stream)
        _same_type(source, target, 'reduce_scatter')
        array = self._parts(source, target, counts, 'reduce_scatter', 'send', 'recv')
        return self._call(interface.REDUCE_SCATTER, source, target, target.count, op=reduce_op(op), factor=factor,
                          send_counts=array, uneven=counts is not None, stream=stream, timeout=timeout, async_op=async_op)

    # ---- moving ----

    def broadcast(self, buffer_: object, root: int = 0, *, dtype: str | None = None, stream: int | None = None,
                  timeout: timedelta | None = None, async_op: bool = False) -> Request | None:
        """Copy the buffer of rank @root to all ranks. On the root it may be read-only."""
        find = buffer if self.rank == root else written
        found = find(buffer_, 'the buffer', dtype, stream)
        return self._call(interface.BROADCAST, None, found, found.count, peer=root, stream=stream, timeout=timeout,
                          async_op=async_op)

    def all_gather(self, send: object, recv: object, *, counts: Sequence[int] | None = None, dtype: str | None = None,
                   stream: int | None = None, timeout: timedelta | None = None, async_op: bool = False) -> Request | None:
        """Collect @send of all ranks in @recv, one after the other. Parts are equal, or have @counts elements."""
        source, target = buffer(send, 'send', dtype, stream), written(recv, 'recv', dtype, stream)
        _same_type(source, target, 'all_gather')
        array = self._parts(target, source, counts, 'all_gather', 'recv', 'send')
        return self._call(interface.ALL_GATHER, source, target, source.count, recv_counts=array,
                          uneven=counts is not None, stream=stream, timeout=timeout, async_op=async_op)

    def gather(self, send: object, recv: object = None, root: int = 0, *, counts: Sequence[int] | None = None,
               dtype: str | None = None, stream: int | None = None, timeout: timedelta | None = None,
               async_op: bool = False) -> Request | None:
        """Collect @send of all ranks in @recv of rank @root. With @counts, on all ranks, parts have so many elements."""
        source, target, array = buffer(send, 'send', dtype, stream), None, None
        if self.rank == root:
            target = written(recv, 'recv', dtype, stream)
            _same_type(source, target, 'gather')
            array = self._parts(target, source, counts, 'gather', 'recv', 'send')
        return self._call(interface.GATHER, source, target, source.count, peer=root, recv_counts=array,
                          uneven=counts is not None, stream=stream, timeout=timeout, async_op=async_op)

    def scatter(self, send: object, recv: object, root: int = 0, *, counts: Sequence[int] | None = None,
                dtype: str | None = None, stream: int | None = None, timeout: timedelta | None = None,
                async_op: bool = False) -> Request | None:
        """Give each rank its part of @send of rank @root, in @recv; other ranks pass None for @send. @counts as gather()."""
        source, target, array = None, written(recv, 'recv', dtype, stream), None
        if self.rank == root:
            source = buffer(send, 'send', dtype, stream)
            _same_type(source, target, 'scatter')
            array = self._parts(source, target, counts, 'scatter', 'send', 'recv')
        return self._call(interface.SCATTER, source, target, target.count, peer=root, send_counts=array,
                          uneven=counts is not None, stream=stream, timeout=timeout, async_op=async_op)

    def all_to_all(self, send: object, recv: object, *, send_counts: Sequence[int] | None = None,
                   recv_counts: Sequence[int] | None = None, dtype: str | None = None, stream: int | None = None,
                   timeout: timedelta | None = None, async_op: bool = False) -> Request | None:
        """Give the r-th part of @send to rank r, and get one of each rank in @recv. With counts parts are uneven."""
        if (send_counts is None) != (recv_counts is None):
            raise Invalid('all_to_all: pass both send_counts and recv_counts, or neither')
        source, target = buffer(send, 'send', dtype, stream), written(recv, 'recv', dtype, stream)
        _same_type(source, target, 'all_to_all')
        arrays = None, None
        if send_counts is None or recv_counts is None:
            self._parts(source, None, None, 'all_to_all', 'send', '')
            _demand(target, source.count, 'all_to_all', 'recv')
        else:
            arrays = (self._parts(source, None, send_counts, 'all_to_all', 'send', ''),
                      self._parts(target, None, recv_counts, 'all_to_all', 'recv', ''))
        return self._call(interface.ALL_TO_ALL, source, target, source.count // self.size, send_counts=arrays[0],
                          recv_counts=arrays[1], uneven=send_counts is not None, stream=stream, timeout=timeout,
                          async_op=async_op)

    def _parts(self, whole: Buffer, own: Buffer | None, counts: Sequence[int] | None, call: str, whole_name: str,
               own_name: str) -> Any:
        """Check that @whole has a part for each rank, of which @own is as large as this rank's; the array of counts."""
        if counts is not None:
            array = _counts(counts, self.size, call)
            _demand(whole, sum(counts), call, whole_name)
            if own:
                _demand(own, counts[self.rank], call, own_name)
            return array
        if own:
            _demand(whole, own.count * self.size, call, whole_name)
        elif whole.count % self.size:
            raise Invalid(f'{call}: {whole_name} has {whole.count} elements, which are not a part for each of {self.size} '
                          f'ranks')
        return None

    # ---- messages ----

    def send(self, buffer_: object, peer: int, tag: int = 0, *, dtype: str | None = None, stream: int | None = None,
             timeout: timedelta | None = None, async_op: bool = False) -> Request | None:
        """Send to rank @peer. As with MPI_Send, do not rely on buffering: use send_recv(), group() or async_op."""
        found = buffer(buffer_, 'the buffer', dtype, stream)
        return self._call(interface.SEND, found, None, found.count, peer=peer, tag=tag, stream=stream, timeout=timeout,
                          async_op=async_op)

    def recv(self, buffer_: object, peer: int | None = None, tag: int = 0, *, dtype: str | None = None,
             stream: int | None = None, timeout: timedelta | None = None, async_op: bool = False) -> Any:
        """Receive from rank @peer, or from any rank: returns the rank that has sent it, or a Request, which has it later.

        In a group(), and on device memory, that of a message of any rank is not known yet: None.
        """
        found = written(buffer_, 'the buffer', dtype, stream)
        source = c_uint32(ANY_RANK if peer is None else arguments.rank(peer, 'the rank'))
        operation = Operation(
            OPERATION_SIZE, interface.RECV, recv=found.address, count=found.count, dtype=element(found.dtype)[0],
            peer=source.value, tag=arguments.number(tag, 0, arguments.LARGEST_TAG, 'the tag'), timeout_ms=durations.optional(timeout),
            stream=stream if stream is not None else found.stream, source=ctypes.pointer(source))
        request = self._carry_out(operation, (found, source), async_op, found.on_device)
        return request if async_op else None if source.value == ANY_RANK else source.value

    # ---- barriers ----

    def barrier(self, *, stream: int | None = None, timeout: timedelta | None = None, async_op: bool = False,
                ) -> Request | None:
        """Wait until all ranks have called it; with @stream, later work of that waits."""
        return self._call(interface.BARRIER, None, None, 0, stream=stream, timeout=timeout, async_op=async_op)

    def monitored_barrier(self, timeout: timedelta | None = None, *, async_op: bool = False) -> Request | None:
        """barrier() whose error names all ranks that do not come."""
        return self._call(interface.MONITORED_BARRIER, None, None, 0, timeout=timeout, async_op=async_op)
