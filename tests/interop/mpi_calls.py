"""mpi_calls.py - calls of MPI 5 that ask something of the launcher, through mpi4py: each prints a line of its own. The
ranks are those of a job of ddprun, or of the MPI's own mpiexec.

  mpi_calls.py            all calls that are served
  mpi_calls.py spawn      MPI_Comm_spawn, which ddprun refuses
  mpi_calls.py leave      rank 1 ends without MPI_Finalize, and the others wait for it
  mpi_calls.py kill FILE  rank 1 is killed while shared memory is in use, whose names are in FILE
"""

import os
import signal
import sys

from mpi4py import MPI

WORLD = MPI.COMM_WORLD


def say(*words):
    print(*words, flush=True)


def groups():
    """Also groups of one rank each, to which all ranks give the same name."""
    for group in (MPI.COMM_SELF.Get_group(), WORLD.Get_group()):
        for _ in range(2):
            comm = MPI.Intracomm.Create_from_group(group)
            say('group of', comm.size, 'sum', comm.allreduce(WORLD.rank))
            comm.Free()


def sessions():
    session = MPI.Session.Init()
    names = [session.Get_nth_pset(i) for i in range(session.Get_num_psets())]
    say('session', 'mpi://WORLD' in names, 'mpi://SELF' in names)
    session.Finalize()


def accept_and_connect():
    """Ranks of even numbers accept, the others connect."""
    halves = WORLD.Split(WORLD.rank % 2)
    accepts, root = WORLD.rank % 2 == 0, WORLD.rank < 2
    port = MPI.Open_port() if accepts and root else ''
    if port:
        MPI.Publish_name('ddprun-test', port)
    WORLD.Barrier()
    if accepts:
        other = halves.Accept(port)
    else:
        other = halves.Connect(MPI.Lookup_name('ddprun-test') if root else '')
    say('connected', other.size, 'to', other.remote_size)
    other.Disconnect()
    if port:
        MPI.Unpublish_name('ddprun-test', port)
        MPI.Close_port(port)


def spawn():
    for call, program in (('Spawn', '/bin/true'), ('Spawn_multiple', ['/bin/true', '/bin/true'])):
        try:
            getattr(MPI.COMM_SELF, call)(program)
            say('spawned')
        except MPI.Exception:
            say('refused')
    WORLD.Barrier() # the answer to it is none of those


def leave():
    if WORLD.rank == 1:
        os._exit(0)
    MPI.Intracomm.Create_from_group(WORLD.Get_group())


def kill():
    MPI.Win.Allocate_shared(1 << 20, 1, comm=WORLD)
    with open('/proc/self/maps', encoding='utf-8') as maps, open(sys.argv[2], 'a', encoding='utf-8') as names:
        names.writelines(line[line.index('/dev/shm/'):] for line in maps if '/dev/shm/' in line)
    WORLD.Barrier()
    if WORLD.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    WORLD.Barrier()


def main():
    say('rank', WORLD.rank, 'of', WORLD.size, 'on this node', WORLD.Split_type(MPI.COMM_TYPE_SHARED).size)
    if sys.argv[1:]:
        {'spawn': spawn, 'leave': leave, 'kill': kill}[sys.argv[1]]()
        return
    say('sum', WORLD.allreduce(WORLD.rank))
    groups()
    sessions()
    WORLD.Barrier()
    accept_and_connect()


main()
