"""jax_worker.py - a program of JAX: the sum of what all of its processes have, by a collective of the compiler.

With an argument rank 0 fails in the first attempt.
"""

import os
import sys

import jax
import numpy
from jax.sharding import Mesh, NamedSharding, PartitionSpec

jax.distributed.initialize(num_processes=int(os.environ['WORLD_SIZE']), process_id=int(os.environ['RANK']),
                           local_device_ids=int(os.environ['LOCAL_RANK']))
if len(sys.argv) > 1 and os.environ['TORCHELASTIC_RESTART_COUNT'] == '0' and jax.process_index() == 0:
    sys.exit(7)
everywhere = NamedSharding(Mesh(numpy.array(jax.devices()), ('all',)), PartitionSpec('all'))
own = numpy.full((1,), jax.process_index() + 1, numpy.int32)
total = jax.jit(lambda values: values.sum())(jax.make_array_from_process_local_data(everywhere, own))
print(f'jax {jax.process_index()} of {jax.process_count()}: {total}', flush=True)
