/*
 * lsf.c - reads LSF's variables. LSB_MCPU_HOSTS has the hosts of the job, each with its slots:
 * "hosta 4 hostb 4". LSF numbers no nodes, so the place of this host in that list is its number.
 */
#include "scheduler_vars.h"

#include "error.h"

#include <string.h>
#include <strings.h>

static const char hosts_name[] = "LSB_MCPU_HOSTS";

/* The next word of *@cursor; false: there is none. */
static bool next_word(const char **cursor, const char **ret, size_t *ret_len)
{
    *ret = *cursor + strspn(*cursor, " \t");
    *ret_len = strcspn(*ret, " \t");
    *cursor = *ret + *ret_len;
    return *ret_len > 0;
}

/* Names may be written with their domain or without. */
static bool same_host(const char *host, size_t len, const char *fqdn)
{
    size_t short_len = strcspn(fqdn, ".");
    bool has_domain = memchr(host, '.', len) != NULL;
    size_t wanted = has_domain ? strlen(fqdn) : short_len;
    return len == wanted && strncasecmp(host, fqdn, len) == 0;
}

ddp_status lsf_read(char *const *envp, const char *host_fqdn, struct scheduler_job *ret,
                    struct ddp_error *err)
{
    const char *cursor = scheduler_var(envp, hosts_name), *host, *slots;
    size_t len, slots_len;
    bool found = false;
    ddp_status status = DDP_OK;
    if (cursor == NULL)
        return DDP_OK;
    while (status == DDP_OK && next_word(&cursor, &host, &len)) {
        if (!next_word(&cursor, &slots, &slots_len) || strspn(slots, "0123456789") < slots_len)
            return ddpi_error_set(err, DDP_E_INVALID, "%s: '%.*s' has no number of slots after it",
                                  hosts_name, (int)(len < 64 ? len : 64), host);
        if (ret->nodes == 0)
            status = scheduler_host(host, len, hosts_name, ret->host, err);
        if (!found && host_fqdn != NULL && same_host(host, len, host_fqdn)) {
            ret->node_rank = ret->nodes;
            found = true;
        }
        ret->nodes++;
    }
    if (status == DDP_OK && !found && ret->nodes > 1)
        return ddpi_error_set(err, DDP_E_INVALID, "%s does not list this host, '%.64s'", hosts_name,
                              host_fqdn != NULL ? host_fqdn : "which has no name");
    scheduler_id(ret->id, "lsf", scheduler_var(envp, "LSB_JOBID"));
    ret->port = scheduler_port(ret->id);
    return status;
}
