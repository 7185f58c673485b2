"""One call of the back end that is Python: an operation, the tensors that it works on, and what is copied in the end."""

from __future__ import annotations

import ctypes

import torch
import torch.distributed as dist

from ..errors import Error, Invalid
from ..interface import ANY_RANK, RECV, ListedBuffer, Operation
from .elements import OPS, PREMUL_SUM, elements, reduced

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..communicator import Communicator
    from ..request import Request

SIZE = ctypes.sizeof(Operation)


def raised(error: Error) -> Exception:
    """What PyTorch's users catch."""
    return error if isinstance(error, Invalid) else dist.DistBackendError(f'{error} ({error.status})')


def neighbours(tensors: Sequence[torch.Tensor]) -> bool:
    """Whether they lie one after the other, as those of chunk() do."""
    end = None
    for tensor in tensors:
        if tensor.untyped_storage().data_ptr() != tensors[0].untyped_storage().data_ptr():
            return False
        if not tensor.is_contiguous() or end not in (None, tensor.data_ptr()) and tensor.numel() > 0:
            return False
        if tensor.numel() > 0:
            end = tensor.data_ptr() + tensor.nbytes
    return True


def span(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """All elements of neighbours."""
    first = next((tensor for tensor in tensors if tensor.numel() > 0), tensors[0])
    return first.as_strided((sum(tensor.numel() for tensor in tensors),), (1,))


class Job:
    """Owns the memory between the call's tensors and the operation."""

    def __init__(self, kind: int, timeout_ms: int, count: int = 0, peer: int = 0, tag: int = 0) -> None:
        self.operation = Operation(SIZE, kind, None, None, count, 0, 0, 0.0, peer, tag, timeout_ms)
        self._keep: list[object] = []
        self._copies: list[tuple[torch.Tensor, torch.Tensor]] = []
        self._source: ctypes.c_uint32 | None = None
        if kind == RECV:
            self._source = ctypes.c_uint32(ANY_RANK)
            self.operation.source = ctypes.pointer(self._source)

    # ---- its tensors ----

    def input(self, tensor: torch.Tensor) -> torch.Tensor:
        memory = tensor.contiguous()
        self._keep.append(memory)
        return memory

    def output(self, tensor: torch.Tensor) -> torch.Tensor:
        if tensor.is_contiguous():
            return self.input(tensor)
        memory = self.input(torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device))
        self.copy_later(tensor, memory)
        return memory

    def in_place(self, tensor: torch.Tensor) -> torch.Tensor:
        memory = self.input(tensor)
        if memory is not tensor:
            self.copy_later(tensor, memory)
        return memory

    def in_a_copy(self, tensor: torch.Tensor) -> torch.Tensor:
        """Of which the tensor gets the result."""
        memory = self.input(tensor.clone(memory_format=torch.contiguous_format))
        self.copy_later(tensor, memory)
        return memory

    def copy_later(self, tensor: torch.Tensor, memory: torch.Tensor) -> None:
        """Before anything is sent: copy_() would refuse it when the other ranks have their results."""
        if 0 in (stride for size, stride in zip(tensor.shape, tensor.stride()) if size > 1):
            raise Invalid('ddp: a tensor whose elements share memory, such as one of expand(), cannot have a result: clone() '
                          'it first')
        self._copies.append((tensor, memory))

    def input_parts(self, tensors: Sequence[torch.Tensor]) -> torch.Tensor:
        return self.input(span(tensors) if neighbours(tensors) else torch.cat([one.reshape(-1) for one in tensors]))

    def output_parts(self, tensors: Sequence[torch.Tensor]) -> torch.Tensor:
        if neighbours(tensors):
            return self.input(span(tensors))
        memory = self.input(torch.empty(sum(one.numel() for one in tensors), dtype=tensors[0].dtype,
                                        device=tensors[0].device))
        parts = memory.split([one.numel() for one in tensors])
        for one, part in zip(tensors, parts):
            self.copy_later(one, part.view(one.shape))
        return memory

    # ---- its operation ----

    def send(self, tensor: torch.Tensor) -> None:
        self.operation.send, self.operation.dtype = tensor.data_ptr(), elements(tensor)[0]

    def recv(self, tensor: torch.Tensor) -> None:
        self.operation.recv, self.operation.dtype = tensor.data_ptr(), elements(tensor)[0]

    def reduce_in_place(self, op: dist.ReduceOp, tensor: torch.Tensor) -> None:
        memory = self.in_place(tensor)
        self.operation.send = self.operation.recv = memory.data_ptr()
        self.reduce(op, memory)

    def reduce(self, op: dist.ReduceOp, tensor: torch.Tensor) -> None:
        """How elements are reduced, and as which type: that of @tensor."""
        number = OPS[op.op]
        self.operation.op, self.operation.dtype = number, reduced(tensor)
        if number == PREMUL_SUM:
            self.operation.factor = float(op.factor)

    def counts(self, member: str, counts: Sequence[int]) -> None:
        array = (ctypes.c_size_t * len(counts))(*counts)
        self._keep.append(array)
        setattr(self.operation, member, array)
        self.operation.uneven = 1

    def buffers(self, tensors: Sequence[torch.Tensor]) -> None:
        listed = (ListedBuffer * len(tensors))(*[ListedBuffer(one.data_ptr(), one.data_ptr(), one.numel())
                                                 for one in tensors])
        self._keep.append(listed)
        self.operation.buffers, self.operation.nbuffers = listed, len(tensors)

    # ---- its life ----

    def run(self, comm: Communicator) -> None:
        """Carry it out."""
        try:
            comm._carry_out(self.operation, self._keep, False)
        except Error as error:
            raise raised(error) from None
        self.finish()

    def start(self, comm: Communicator) -> Request:
        try:
            request = comm._carry_out(self.operation, (self._keep, self._source), True)
        except Error as error:
            raise raised(error) from None
        assert request is not None
        return request

    def finish(self) -> None:
        with torch.inference_mode():  # the caller's tensors may be leaves of a graph, or of that mode
            for to, memory in self._copies:
                to.copy_(memory)
        self._copies.clear()
