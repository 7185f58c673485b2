"""tensorflow_worker.py - a program of TensorFlow: the sum of what all workers have, by MultiWorkerMirroredStrategy."""

import os

os.environ['TF_CPP_MIN_LOG_LEVEL'] = '2'
import tensorflow as tf  # noqa: E402

strategy = tf.distribute.MultiWorkerMirroredStrategy()
rank = strategy.cluster_resolver.task_id


@tf.function
def add():
    def reduce():
        return tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, tf.constant(rank + 1))
    return strategy.run(reduce)


total = int(strategy.experimental_local_results(add())[0])
print(f'tensorflow {rank} of {strategy.num_replicas_in_sync}: {total}', flush=True)
