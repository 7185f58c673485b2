/*
 * pmix_names.h - names that ranks publish and look up (MPI_Publish_name, MPI_Comm_accept): keys of
 * the job's store, so all ranks of the job find them, and no others.
 */
#ifndef CMD_PMIX_NAMES_H
#define CMD_PMIX_NAMES_H

#include "pmix_gather.h"
#include "pmix_tasks.h"

#include <pmix_server.h>

/* Before any rank connects. Both stay with the caller. */
void pmix_names_open(struct pmix_gathering *gathering, struct pmix_tasks *tasks);

/* Functions of pmix_server_module_t. libpmix calls them from its thread and keeps what it passes;
 * they copy it. The answers come from the loop's thread. */
pmix_status_t pmix_names_publish(const pmix_proc_t *proc, const pmix_info_t info[], size_t ninfo,
                                 pmix_op_cbfunc_t done, void *cbdata);
pmix_status_t pmix_names_lookup(const pmix_proc_t *proc, char **keys, const pmix_info_t info[],
                                size_t ninfo, pmix_lookup_cbfunc_t done, void *cbdata);
pmix_status_t pmix_names_unpublish(const pmix_proc_t *proc, char **keys, const pmix_info_t info[],
                                   size_t ninfo, pmix_op_cbfunc_t done, void *cbdata);

#endif
