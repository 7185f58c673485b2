/*
 * foreign_options.h - options of other launchers, and what to use instead.
 */
#ifndef CMD_FOREIGN_OPTIONS_H
#define CMD_FOREIGN_OPTIONS_H

#include "options.h"

/* Options of mpirun (Open MPI, MPICH), horovodrun, srun, deepspeed and accelerate. Ends with a NULL
 * word. */
extern const struct option_foreign ddprun_foreign_options[];

#endif
