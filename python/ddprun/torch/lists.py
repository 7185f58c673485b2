"""Several tensors that one rank gives to one call, for the form of the back end that is Python."""

from __future__ import annotations

import torch

from ..errors import Invalid
from .elements import OP, check_not_empty

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

COMBINE = {
    OP.SUM: torch.add, OP.PREMUL_SUM: torch.add, OP.PRODUCT: torch.mul, OP.MIN: torch.minimum, OP.MAX: torch.maximum,
    OP.BAND: torch.bitwise_and, OP.BOR: torch.bitwise_or, OP.BXOR: torch.bitwise_xor}


def check_alike(call: str, tensors: Sequence[torch.Tensor]) -> None:
    """Of one type, one layout and the same sizes."""
    check_not_empty(call, tensors)
    first = tensors[0]
    for i, other in enumerate(tensors):
        if (other.dtype, other.layout) != (first.dtype, first.layout):
            raise Invalid(f'ddp: {call}(): invalid tensor type at index {i} (expected {first.dtype}, {first.layout}, got '
                          f'{other.dtype}, {other.layout})')
        if (other.shape, other.device) != (first.shape, first.device):
            raise Invalid(f'ddp: {call}(): invalid tensor size at index {i} (expected {list(first.shape)} on '
                          f'{first.device}, got {list(other.shape)} on {other.device})')


def combined(tensors: Sequence[torch.Tensor], op: OP) -> torch.Tensor:
    """What @op makes of tensors of one rank, in memory of its own."""
    if op not in COMBINE:
        raise Invalid('ddp: allreduce() of several tensors of a rank has no average; pass one')
    total = tensors[0].clone(memory_format=torch.contiguous_format)
    for tensor in tensors[1:]:
        total = COMBINE[op](total, tensor)
    return total


def overlap(tensors: Sequence[torch.Tensor]) -> bool:
    """Whether an element may be in two of them."""
    ranges = []
    for tensor in tensors:
        last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride()))
        if tensor.numel() > 0:
            ranges.append((tensor.data_ptr(), tensor.data_ptr() + (last + 1) * tensor.element_size()))
    ranges.sort()
    return any(begin < end for (_, end), (begin, _) in zip(ranges, ranges[1:]))
