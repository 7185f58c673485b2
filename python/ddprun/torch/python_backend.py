"""The back end "ddp" as a Python subclass of PyTorch's: for versions of PyTorch for which the C++ form is not compiled.

Collectives are carried out before the call returns, as the error of a future made in Python is lost on its way through
C++; so a failure is raised by the call itself. Messages are requests. PyTorch itself keeps this form from some things that
the C++ form has: is_completed(), the source of a message from any rank, gather_single, built-in C++ hooks.
"""

from __future__ import annotations

import itertools
import warnings
from datetime import timedelta

import torch
import torch.distributed as dist

from .. import interface
from ..communicator import Communicator
from ..errors import Error, Invalid
from . import sparse
from .elements import check, check_not_empty, elements
from .job import Job, raised
from .lists import check_alike, combined, overlap

MOST_MS = 2**32 - 1
MILLISECOND = timedelta(milliseconds=1)


def milliseconds(timeout):
    """For libddpcomm, to which 0 means that no timeout is set. PyTorch says that with -1 ms."""
    count = timeout // MILLISECOND
    return 0 if count < 0 else max(1, min(count, MOST_MS))


class Done(dist._Work):
    """A call that has been carried out."""

    def __init__(self, tensors):
        super().__init__()
        self._tensors = tensors

    def wait(self, timeout=None):
        return True

    def is_completed(self):
        return True

    def get_future(self):
        """Made when it is asked for: most calls are only waited for, and it would take a tenth of a small one's time."""
        future = torch.futures.Future()
        future.set_result(self._tensors)
        return future


class Message(dist._Work):
    """A message that is under way. Its time begins with wait(): a receive may be called long before the message is sent."""

    def __init__(self, job, request, tensors, limit):
        """limit: of a wait() without a timeout."""
        super().__init__()
        self._job, self._request, self._tensors, self._limit = job, request, tensors, limit

    def wait(self, timeout=None):
        """PyTorch's own callers say 0 or less for no timeout."""
        limit = timeout if timeout is not None and timeout > timedelta(0) else self._limit
        try:
            self._request.wait(limit if limit > timedelta(0) else None)
        except Error as error:
            raise raised(error) from None
        self._job.finish()
        return True

    def is_completed(self):
        try:
            return self._request.test()
        except Error as error:
            raise raised(error) from None

    def get_future(self):
        """Waits: nobody moves bytes for a future, and only one made by then() carries an error into C++."""
        begun = torch.futures.Future()
        begun.set_result(None)
        return begun.then(lambda _: (self.wait(), self._tensors)[1])


class PythonBackend(dist.distributed_c10d.C10DBackend):
    """A communicator, and PyTorch's calls in terms of it."""

    def __init__(self, comm, name, timeout, members):
        """members: ranks of the default group; none: this is the default group."""
        super().__init__(comm.rank, comm.size)
        self._comm = comm
        self._closed = False
        self._sequence = 0
        self._own_options = self.Options('ddp', timeout)
        self._own_options.group_name = name
        self._own_options.global_ranks_in_group = members

    @classmethod
    def join(cls, options):
        comm = Communicator(store=options.store, name='torch', rank=options.group_rank, world_size=options.group_size,
                            init_timeout=options.timeout, timeout=options.timeout)
        return cls(comm, options.group_id, options.timeout, options.global_ranks_in_group)

    # ---- what it is ----

    def getBackendName(self):
        return 'ddp'

    @property
    def options(self):
        return self._own_options

    @property
    def supports_splitting(self):
        return True

    @property
    def supports_coalescing(self):
        return False

    def split(self, _, ranks, options):
        self._check_open()
        if self._comm.rank not in ranks: # None would end the process
            raise dist.DistBackendError(f'ddp: rank {self._comm.rank} is in none of the groups of split_group(), which a '
                                        'back end in Python cannot tell PyTorch: name it alone in another one, or compile '
                                        'the back end ("python -m ddprun.torch.build")')
        above = self._own_options.global_ranks_in_group
        members = [above[rank] for rank in ranks] if above else ranks
        return PythonBackend(self._comm.create_group(ranks), options.group_name, options._timeout, members)

    def set_timeout(self, timeout):
        self._check_open()
        self._own_options._timeout = timeout
        self._comm.set_timeout(timeout)

    def _get_sequence_number_for_group(self):
        return self._sequence

    def shutdown(self):
        """What other ranks still take from this one arrives, even if it did not wait for it. A failure that came before was
        raised by a call.
        """
        self._closed = True
        try:
            if not self._comm._has_failed():
                self._comm.finalize()
        except Error as error:
            warnings.warn(f'ddp: {error}', RuntimeWarning, stacklevel=2)
        finally:
            self._comm.close()

    def abort(self):
        if not self._closed:
            self._comm.abort()

    # ---- jobs ----

    def _check_open(self):
        if self._closed:
            raise dist.DistBackendError('ddp: this process group has been destroyed')

    def _job(self, kind, options, count=0, peer=0):
        self._check_open()
        self._sequence += 1
        return Job(kind, milliseconds(options.timeout), count, peer)

    def _run(self, job, tensors):
        job.run(self._comm)
        return Done(tensors)

    def _check_list(self, call, tensors):
        if len(tensors) != self._comm.size:
            raise Invalid(f'ddp: {call}() takes a tensor for each of {self._comm.size} ranks, not {len(tensors)}')
        check(call, *tensors)

    def _check_single(self, call, items):
        if len(items) != 1:
            raise Invalid(f'ddp: {call}() takes one tensor, or one list of tensors, not {len(items)}')

    def _check_root_tensor(self, call, tensors, options):
        if not 0 <= options.rootTensor < len(tensors):
            raise Invalid(f'ddp: {call}(): invalid root tensor: {options.rootTensor}')

    def _check_root_has(self, call, lists):
        if lists:
            raise Invalid(f'ddp: {call}() takes a list of tensors from the root only; pass an empty one here')

    def _check_counts(self, call, tensors, like):
        for tensor in tensors:
            if tensor.numel() != like.numel():
                raise Invalid(f'ddp: {call}(): the list has a tensor of {tensor.numel()} elements, the other tensor has '
                              f'{like.numel()}')

    def _check_pair(self, call, whole, part):
        check(call, whole, part)
        if whole.numel() != part.numel() * self._comm.size:
            raise Invalid(f'ddp: {call}(): one tensor has {whole.numel()} elements, the other {part.numel()}; '
                          f'{self._comm.size} times as many are needed')

    # ---- one value for all ----

    def broadcast(self, tensors, options):
        check_alike('broadcast', tensors)
        check('broadcast', *tensors)
        self._check_root_tensor('broadcast', tensors, options)
        tensor = tensors[options.rootTensor]
        job = self._job(interface.BROADCAST, options, peer=options.rootRank, count=elements(tensor)[1])
        memory = job.input(tensor) if options.rootRank == self._comm.rank else job.output(tensor)
        job.recv(memory)
        for other in tensors:
            if other is not tensor:
                job.copy_later(other, memory)
        return self._run(job, tensors)

    def allreduce(self, tensors, options):
        check_alike('allreduce', tensors)
        if tensors[0].layout == torch.sparse_coo:
            return self._sum_sparse(tensors, options)
        check('allreduce', *tensors)
        job = self._job(interface.ALL_REDUCE, options, tensors[0].numel())
        with torch.no_grad():
            whole = tensors[0] if len(tensors) == 1 else combined(tensors, options.reduceOp.op)
        job.reduce_in_place(options.reduceOp, whole)
        for tensor in tensors:
            if tensor is not whole:
                job.copy_later(tensor, whole)
        return self._run(job, tensors)

    allreduce_sparse = allreduce

    def _gather_rows(self, rows, counts, options):
        whole = torch.empty((sum(counts), *rows.shape[1:]), dtype=rows.dtype)
        self.allgather([list(whole.split(counts))], [rows], options)
        return whole

    def _sum_sparse(self, tensors, options):
        """In host memory, wherever they are."""
        if options.reduceOp != dist.ReduceOp.SUM:
            raise Invalid('ddp: allreduce() of sparse tensors only works with ReduceOp.SUM')
        with torch.inference_mode():
            own = sum(tensors[1:], start=tensors[0]).coalesce().cpu()
            about = sparse.describe(own).expand(self._comm.size, -1).contiguous()
            self.all_gather_single(about, about[self._comm.rank].clone(), options)
            counts = sparse.count_elements(about, self._comm.rank)
            indices, values = (self._gather_rows(rows, counts, options) for rows in (own._indices().t(), own._values()))
            total = sparse.total(indices, values, own.shape)
            for tensor in tensors:
                tensor.copy_(total)
        return Done(tensors)

    def allreduce_coalesced(self, tensors, options):
        check_not_empty('allreduce_coalesced', tensors)
        for tensor in tensors:
            check('allreduce', tensor)
        copies = len(tensors) > 1 and overlap(tensors)
        for _, run in itertools.groupby(tensors, lambda tensor: tensor.dtype):
            alike = list(run)
            check('allreduce', *alike)
            job = self._job(interface.ALL_REDUCE, options)
            job.buffers([job.in_a_copy(tensor) if copies else job.in_place(tensor) for tensor in alike])
            job.reduce(options.reduceOp, alike[0])
            job.run(self._comm)
        return Done(tensors)

    def reduce(self, tensors, options):
        self._check_single('reduce', tensors)
        self._check_root_tensor('reduce', tensors, options)
        check('reduce', *tensors)
        job = self._job(interface.REDUCE, options, peer=options.rootRank, count=tensors[0].numel())
        if options.rootRank == self._comm.rank:
            memory = job.in_place(tensors[0])
            job.recv(memory)
        else:
            memory = job.input(tensors[0])
        job.send(memory)
        job.reduce(options.reduceOp, tensors[0])
        return self._run(job, tensors)

    # ---- a part of each rank ----

    def all_gather_single(self, output, tensor, options):
        self._check_pair('all_gather', output, tensor)
        job = self._job(interface.ALL_GATHER, options, count=elements(tensor)[1])
        job.send(job.input(tensor))
        job.recv(job.output(output))
        return self._run(job, [output])

    def all_gather_single_coalesced(self, outputs, tensors, options):
        for output, tensor in zip(outputs, tensors, strict=True):
            self.all_gather_single(output, tensor, options)
        return Done(outputs)

    def _gather_all(self, whole, tensor, options):
        """An output for each rank, which may be of different sizes."""
        self._check_list('all_gather', whole)
        check('all_gather', whole[0], tensor)
        if whole[self._comm.rank].numel() != tensor.numel():
            raise Invalid(f'ddp: all_gather(): output {self._comm.rank} has {whole[self._comm.rank].numel()} elements, '
                          f'the input of this rank {tensor.numel()}')
        job = self._job(interface.ALL_GATHER, options, count=elements(tensor)[1])
        job.send(job.input(tensor))
        job.recv(job.output_parts(whole))
        if len({one.numel() for one in whole}) > 1:
            job.counts('recv_counts', [elements(one)[1] for one in whole])
        job.run(self._comm)

    def allgather(self, outputs, tensors, options):
        """Each list of outputs has the inputs of rank 0, then those of rank 1, ..."""
        check_alike('all_gather', tensors)
        if len(outputs) != len(tensors):
            raise Invalid(f'ddp: all_gather() takes a list for each of {len(tensors)} inputs, not {len(outputs)}')
        for whole in outputs:
            if len(whole) != len(tensors) * self._comm.size:
                raise Invalid(f'ddp: all_gather() takes a tensor for each input of each of {self._comm.size} ranks, not '
                              f'{len(whole)}')
            for to, first in zip(whole, outputs[0]):
                if (to.dtype, to.numel()) != (first.dtype, first.numel()):
                    raise Invalid('ddp: all_gather(): all lists must have outputs of the same types and sizes')
        for i, tensor in enumerate(tensors):
            self._gather_all(outputs[0][i::len(tensors)], tensor, options)
        with torch.inference_mode():
            for whole in outputs[1:]:
                for to, tensor in zip(whole, outputs[0]):
                    to.copy_(tensor)
        return Done(outputs if len(outputs) > 1 else outputs[0])

    def allgather_coalesced(self, outputs, tensors, options):
        """List i of the outputs belongs to rank i here, not to input i."""
        check_not_empty('all_gather_coalesced', tensors)
        if len(outputs) != self._comm.size or any(len(of_rank) != len(tensors) for of_rank in outputs):
            raise Invalid(f'ddp: all_gather_coalesced() takes {self._comm.size} lists, one for each rank, of {len(tensors)} '
                          f'outputs, one for each input; it got lists of {[len(of_rank) for of_rank in outputs]}')
        for of_input, tensor in zip(zip(*outputs), tensors):
            self._gather_all(of_input, tensor, options)
        return Done(list(itertools.chain(*outputs)))

    def gather(self, outputs, tensors, options):
        self._check_single('gather', tensors)
        check('gather', *tensors)
        job = self._job(interface.GATHER, options, peer=options.rootRank, count=elements(tensors[0])[1])
        if options.rootRank == self._comm.rank:
            self._check_single('gather', outputs)
            self._check_list('gather', outputs[0])
            check('gather', outputs[0][0], *tensors)
            self._check_counts('gather', outputs[0], tensors[0])
            job.recv(job.output_parts(outputs[0]))
        else:
            self._check_root_has('gather', outputs)
        job.send(job.input(tensors[0]))
        return self._run(job, outputs[0] if outputs else tensors)

    def scatter(self, outputs, tensors, options):
        self._check_single('scatter', outputs)
        check('scatter', *outputs)
        job = self._job(interface.SCATTER, options, peer=options.rootRank, count=elements(outputs[0])[1])
        if options.rootRank == self._comm.rank:
            self._check_single('scatter', tensors)
            self._check_list('scatter', tensors[0])
            check('scatter', tensors[0][0], *outputs)
            self._check_counts('scatter', tensors[0], outputs[0])
            job.send(job.input_parts(tensors[0]))
        else:
            self._check_root_has('scatter', tensors)
        job.recv(job.output(outputs[0]))
        return self._run(job, outputs)

    # ---- reduced parts ----

    def reduce_scatter_single(self, output, tensor, options):
        self._check_pair('reduce_scatter', tensor, output)
        job = self._job(interface.REDUCE_SCATTER, options, count=output.numel())
        job.send(job.input(tensor))
        job.recv(job.output(output))
        job.reduce(options.reduceOp, output)
        return self._run(job, [output])

    def reduce_scatter_single_coalesced(self, outputs, tensors, options):
        for output, tensor in zip(outputs, tensors, strict=True):
            self.reduce_scatter_single(output, tensor, options)
        return Done(outputs)

    def reduce_scatter(self, outputs, tensors, options):
        self._check_single('reduce_scatter', outputs)
        self._check_single('reduce_scatter', tensors)
        whole = tensors[0]
        self._check_list('reduce_scatter', whole)
        check('reduce_scatter', whole[0], *outputs)
        if whole[self._comm.rank].numel() != outputs[0].numel():
            raise Invalid(f'ddp: reduce_scatter(): input {self._comm.rank} has {whole[self._comm.rank].numel()} elements, '
                          f'the output of this rank {outputs[0].numel()}')
        job = self._job(interface.REDUCE_SCATTER, options, count=outputs[0].numel())
        job.send(job.input_parts(whole))
        job.recv(job.output(outputs[0]))
        job.reduce(options.reduceOp, outputs[0])
        if len({one.numel() for one in whole}) > 1:
            job.counts('send_counts', [one.numel() for one in whole])
        return self._run(job, outputs)

    # ---- all to all ----

    def _split_counts(self, tensor, splits):
        rows, size = tensor.shape[0] if tensor.dim() else 1, self._comm.size
        if not splits and rows % size == 0:
            splits = [rows // size] * size
        if len(splits) != size or sum(splits) != rows or min(splits) < 0:
            raise Invalid(f'ddp: all_to_all_single(): the split sizes must be {size} numbers whose sum is the first '
                          f'dimension, {rows}')
        return [split * elements(tensor)[1] // rows if rows else 0 for split in splits]

    def all_to_all_single(self, output, tensor, output_splits, input_splits, options):
        check('all_to_all_single', output, tensor)
        job = self._job(interface.ALL_TO_ALL, options)
        job.counts('send_counts', self._split_counts(tensor, input_splits))
        job.counts('recv_counts', self._split_counts(output, output_splits))
        job.send(job.input(tensor))
        job.recv(job.output(output))
        return self._run(job, [output])

    def alltoall(self, outputs, tensors, options):
        self._check_list('all_to_all', outputs)
        self._check_list('all_to_all', tensors)
        check('all_to_all', outputs[0], tensors[0])
        job = self._job(interface.ALL_TO_ALL, options)
        job.counts('send_counts', [elements(one)[1] for one in tensors])
        job.counts('recv_counts', [elements(one)[1] for one in outputs])
        job.send(job.input_parts(tensors))
        job.recv(job.output_parts(outputs))
        return self._run(job, outputs)

    # ---- messages and barriers ----

    def _new_message(self, kind, tensors, peer, tag):
        self._check_open()
        call = 'send' if kind == interface.SEND else 'recv'
        self._check_single(call, tensors)
        check(call, *tensors)
        if tag < 0:
            raise Invalid(f'ddp: the tag is {tag}; it cannot be negative')
        return Job(kind, MOST_MS, elements(tensors[0])[1], peer, tag)

    def send(self, tensors, rank, tag):
        job = self._new_message(interface.SEND, tensors, rank, tag)
        job.send(job.input(tensors[0]))
        return Message(job, job.start(self._comm), tensors, self._own_options._timeout)

    def recv(self, tensors, rank, tag):
        job = self._new_message(interface.RECV, tensors, rank, tag)
        job.recv(job.output(tensors[0]))
        return Message(job, job.start(self._comm), tensors, self._own_options._timeout)

    def barrier(self, options):
        return self._run(self._job(interface.BARRIER, options), [])

    def monitored_barrier(self, options, _=False):
        self._job(interface.MONITORED_BARRIER, options).run(self._comm)
