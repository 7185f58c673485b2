/*
 * pmix_job.h - tells libpmix what ranks ask about the job: its size, its nodes, and who is where.
 */
#ifndef CMD_PMIX_JOB_H
#define CMD_PMIX_JOB_H

#include "pmix_place.h"

enum { PMIX_JOB_ADDRESS_SIZE = 64 };

/* Register the job and the ranks of this node, so that these may connect. Blocks for some ms.
 * @nodes: all nodes of the job, in the order of their ranks. @ret_server is the server's address,
 * "127.0.0.1:PORT". */
DDP_MUST_CHECK ddp_status pmix_job_register(const struct pmix_place *place,
                                            const struct pmix_node *nodes,
                                            char ret_server[PMIX_JOB_ADDRESS_SIZE],
                                            struct ddp_error *err);

/* All ranks have ended: libpmix removes the files that they have asked it to. */
void pmix_job_end(const struct pmix_place *place);

#endif
