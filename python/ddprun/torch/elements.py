"""Types and reductions of PyTorch as those of libddpcomm, for the form of the back end that is Python."""

from __future__ import annotations

import torch
import torch.distributed as dist

from ..errors import Invalid
from ..interface import DTYPES, REDUCE_OPS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

NAMES = {
    torch.float32: 'float32', torch.float64: 'float64', torch.float16: 'float16', torch.bfloat16: 'bfloat16',
    torch.int32: 'int32', torch.int64: 'int64', torch.uint8: 'uint8', torch.int8: 'int8', torch.int16: 'int16',
    torch.uint16: 'uint16', torch.uint32: 'uint32', torch.uint64: 'uint64', torch.bool: 'bool',
    torch.float8_e4m3fn: 'float8_e4m3', torch.float8_e5m2: 'float8_e5m2', torch.complex64: 'complex64',
    torch.complex128: 'complex128'}
NUMBERS = {dtype: DTYPES[name][0] for dtype, name in NAMES.items()}
BYTE = DTYPES['byte'][0]
OP = dist.ReduceOp.RedOpType
OPS = {op: REDUCE_OPS[name] for op, name in {
    OP.SUM: 'sum', OP.AVG: 'average', OP.PRODUCT: 'product', OP.MIN: 'min', OP.MAX: 'max', OP.BAND: 'bit_and',
    OP.BOR: 'bit_or', OP.BXOR: 'bit_xor', OP.PREMUL_SUM: 'premul_sum'}.items()}

PREMUL_SUM = REDUCE_OPS['premul_sum']


def elements(tensor: torch.Tensor) -> tuple[int, int]:
    """The number of the type as which it is moved, and how many of these it has: types without a number go as bytes."""
    number = NUMBERS.get(tensor.dtype)
    return (BYTE, tensor.nbytes) if number is None else (number, tensor.numel())


def reduced(tensor: torch.Tensor) -> int:
    """The number of a type that can be reduced."""
    try:
        return NUMBERS[tensor.dtype]
    except KeyError:
        raise Invalid(f'ddp: tensors of {tensor.dtype} can be moved, but not reduced; convert them first') from None


def check_not_empty(call: str, tensors: Sequence[torch.Tensor]) -> None:
    if not tensors:
        raise Invalid(f'ddp: {call}() requires a non-empty tensor list')


def check(call: str, *tensors: torch.Tensor) -> None:
    """Dense tensors of one type, in memory of the host."""
    check_not_empty(call, tensors)
    first = tensors[0]
    for tensor in tensors:
        if tensor.layout != torch.strided:
            raise Invalid(f'ddp: {call}() takes dense tensors, not {tensor.layout}; call to_dense() first')
        if tensor.is_cuda:
            raise Invalid(f'ddp: {call}(): tensors on cuda need the compiled part of the back end: run '
                          '"python -m ddprun.torch.build"')
        if not tensor.is_cpu:
            raise Invalid(f'ddp: {call}() takes tensors on cpu or cuda, not on {tensor.device}')
        if tensor is not first and (tensor.dtype != first.dtype or tensor.device != first.device):
            raise Invalid(f'ddp: {call}(): one tensor is of {tensor.dtype} on {tensor.device}, another one of '
                          f'{first.dtype} on {first.device}')
