/*
 * scheduler_vars.h - reading the variables of a scheduler, and the functions that do so for each
 * scheduler. For this folder alone.
 */
#ifndef CMD_SCHEDULER_VARS_H
#define CMD_SCHEDULER_VARS_H

#include "scheduler.h"

enum { SCHEDULER_NODES_MAX = 1000000 };

/* The value of the variable @name; NULL: not set, or empty. */
const char *scheduler_var(char *const *envp, const char *name);

/* The number in the variable @name, which must be set, from @min to @max. The error names it. */
DDP_MUST_CHECK ddp_status scheduler_number(char *const *envp, const char *name, uint32_t min,
                                           uint32_t max, uint32_t *ret, struct ddp_error *err);

/* Copy the name of a host of @len bytes into @ret. DDP_E_INVALID: it is empty, too long, or has
 * characters that no name or address has; the error quotes it, and names the variable @from. */
DDP_MUST_CHECK ddp_status scheduler_host(const char *host, size_t len, const char *from,
                                         char ret[DDPI_HOST_MAX], struct ddp_error *err);

/* "PREFIX-ID" as the name of a job, with a '-' for each character that a name cannot have. */
void scheduler_id(char ret[DDPI_JOB_MAX + 1], const char *prefix, const char *id);

/* A port for the store that depends on @id alone, so all nodes of a job have the same, and jobs
 * that share a node most likely do not. It is below the ports that kernels give out by default. */
uint16_t scheduler_port(const char *id);

/* One function for each scheduler. @ret is zeroed before. */
typedef ddp_status scheduler_reader(char *const *envp, const char *host_fqdn,
                                    struct scheduler_job *ret, struct ddp_error *err);
scheduler_reader slurm_read, lsf_read, openmpi_read, kubernetes_read;

#endif
