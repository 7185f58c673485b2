/*
 * foreign_options.h - what users of other launchers type, and what they should type instead.
 */
#ifndef CMD_FOREIGN_OPTIONS_H
#define CMD_FOREIGN_OPTIONS_H

#include "options.h"

/* Those of mpirun (Open MPI, MPICH), horovodrun, srun, deepspeed and accelerate; ends with a NULL
 * word. */
extern const struct option_foreign ddprun_foreign_options[];

#endif
