/*
 * mpi_program.c - an MPI program such as a user would bring, compiled by MPICH's own mpicc: sums
 * ranks, passes a message round, and then does what its argument says.
 *
 *   (none)   finalizes and ends
 *   abort N  rank 1 calls MPI_Abort with code N while the others wait
 *   leave    rank 1 ends with code 0 before MPI_Init, and the others wait for it there
 *   restart  fails once, in the generation that is not a restart
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int pass_round(int rank, int size)
{
    int value = rank, from = 0;
    for (int i = 0; i < size; i++) {
        MPI_Sendrecv(&value, 1, MPI_INT, (rank + 1) % size, 0, &from, 1, MPI_INT,
                     (rank + size - 1) % size, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        value = from;
    }
    return value;
}

int main(int argc, char **argv)
{
    int rank, size, sum = 0;
    const char *todo = argc > 1 ? argv[1] : "";
    const char *own_rank = getenv("PMI_RANK");
    if (strcmp(todo, "leave") == 0 && own_rank != NULL && strcmp(own_rank, "1") == 0)
        return 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (strcmp(todo, "abort") == 0 && rank == 1)
        MPI_Abort(MPI_COMM_WORLD, (int)strtol(argv[2], NULL, 10));
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (strcmp(todo, "restart") == 0 && strcmp(getenv("TORCHELASTIC_RESTART_COUNT"), "0") == 0)
        return 3;
    printf("rank %d of %d: sum %d, %s round\n", rank, size, sum,
           pass_round(rank, size) == rank ? "all the way" : "not");
    MPI_Finalize();
    return 0;
}
