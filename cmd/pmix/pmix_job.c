/*
 * pmix_job.c - see pmix_job.h. Each node names its own host as the host names itself, as the ranks
 * there do; another node of the same name, on the same machine, gets its number behind it.
 */
#include "pmix_job.h"

#include "buf.h"
#include "error.h"

#include <inttypes.h>
#include <pmix.h>
#include <pmix_server.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { JOB_VALUES_MAX = 16, RANK_VALUES = 9, JOB_TEXT_MAX = 64 << 20 };

/* What is registered for the job: values of the job and one for each rank. */
struct job_values {
    pmix_info_t *values;
    size_t count;
};

static void add_number(struct job_values *job, const char *key, uint32_t number)
{
    PMIX_INFO_LOAD(&job->values[job->count++], key, &number, PMIX_UINT32);
}

static void add_text(struct job_values *job, const char *key, const char *text)
{
    PMIX_INFO_LOAD(&job->values[job->count++], key, text, PMIX_STRING);
}

DDP_PRINTF(2, 3) static bool put_text(struct ddpi_buf *text, const char *format, ...)
{
    char part[PLACE_NAME_SIZE + 16];
    va_list args;
    va_start(args, format);
    int len = vsnprintf(part, sizeof part, format, args);
    va_end(args);
    return ddpi_buf_append(text, part, (size_t)len);
}

static bool put_ranks(struct ddpi_buf *text, const struct pmix_node *node)
{
    bool good = true;
    for (uint32_t i = 0; i < node->nproc && good; i++)
        good = put_text(text, "%s%" PRIu32, i > 0 ? "," : "", node->first_rank + i);
    return good;
}

static bool put_host(struct ddpi_buf *text, const struct pmix_place *place,
                     const struct pmix_node *nodes, uint32_t node)
{
    bool same = node != place->node_rank && strcmp(nodes[node].host, place->own.host) == 0;
    return same ? put_text(text, "%s-%" PRIu32, nodes[node].host, node)
                : put_text(text, "%s", nodes[node].host);
}

/* PMIx's own short form of @text, made by @shorten. */
static bool add_map(struct job_values *job, const char *key, struct ddpi_buf *text,
                    pmix_status_t (*shorten)(const char *, char **))
{
    char *map;
    bool good = ddpi_buf_append(text, "", 1) &&
                shorten((const char *)ddpi_buf_head(text), &map) == PMIX_SUCCESS;
    ddpi_buf_consume(text, ddpi_buf_len(text));
    if (good)
        PMIX_INFO_LOAD(&job->values[job->count++], key, map, PMIX_REGEX);
    return good;
}

/* Which hosts there are, which ranks each has, and which ranks this one has. */
static bool add_maps(struct job_values *job, const struct pmix_place *place,
                     const struct pmix_node *nodes)
{
    struct ddpi_buf text;
    ddpi_buf_init(&text, JOB_TEXT_MAX);
    bool good = put_ranks(&text, &place->own) && ddpi_buf_append(&text, "", 1);
    if (good)
        add_text(job, PMIX_LOCAL_PEERS, (const char *)ddpi_buf_head(&text));
    ddpi_buf_consume(&text, ddpi_buf_len(&text));
    for (uint32_t i = 0; i < place->node_count && good; i++)
        good = (i == 0 || put_text(&text, ",")) && put_host(&text, place, nodes, i);
    good = good && add_map(job, PMIX_NODE_MAP, &text, PMIx_generate_regex);
    for (uint32_t i = 0; i < place->node_count && good; i++)
        good = (i == 0 || put_text(&text, ";")) && put_ranks(&text, &nodes[i]);
    good = good && add_map(job, PMIX_PROC_MAP, &text, PMIx_generate_ppn);
    ddpi_buf_finish(&text);
    return good;
}

static void add_rank(struct job_values *job, const struct pmix_place *place, uint32_t node,
                     uint32_t local, pmix_rank_t rank)
{
    pmix_data_array_t data = {.type = PMIX_INFO, .size = RANK_VALUES};
    pmix_info_t *values;
    char folder[PMIX_FOLDER_SIZE + 16];
    snprintf(folder, sizeof folder, "%s/%" PRIu32, place->folder, local);
    uint16_t local_rank = (uint16_t)local;
    uint32_t none = 0;
    PMIX_INFO_CREATE(values, RANK_VALUES);
    PMIX_INFO_LOAD(&values[0], PMIX_RANK, &rank, PMIX_PROC_RANK);
    PMIX_INFO_LOAD(&values[1], PMIX_GLOBAL_RANK, &rank, PMIX_PROC_RANK);
    PMIX_INFO_LOAD(&values[2], PMIX_APP_RANK, &rank, PMIX_PROC_RANK);
    PMIX_INFO_LOAD(&values[3], PMIX_LOCAL_RANK, &local_rank, PMIX_UINT16);
    PMIX_INFO_LOAD(&values[4], PMIX_NODE_RANK, &local_rank, PMIX_UINT16);
    PMIX_INFO_LOAD(&values[5], PMIX_NODEID, &node, PMIX_UINT32);
    PMIX_INFO_LOAD(&values[6], PMIX_APPNUM, &none, PMIX_UINT32);
    PMIX_INFO_LOAD(&values[7], PMIX_REINCARNATION, &none, PMIX_UINT32);
    PMIX_INFO_LOAD(&values[8], PMIX_PROCDIR, folder, PMIX_STRING); /* read by this node's alone */
    data.array = values;
    PMIX_INFO_LOAD(&job->values[job->count++], PMIX_PROC_DATA, &data, PMIX_DATA_ARRAY);
    PMIX_INFO_FREE(values, RANK_VALUES);
}

static void add_values(struct job_values *job, const struct pmix_place *place,
                       const struct pmix_node *nodes)
{
    pmix_rank_t leader = place->own.first_rank;
    add_text(job, PMIX_JOBID, place->nspace);
    add_text(job, PMIX_TMPDIR, place->folder);
    add_text(job, PMIX_NSDIR, place->folder);
    add_number(job, PMIX_UNIV_SIZE, place->world_size);
    add_number(job, PMIX_JOB_SIZE, place->world_size);
    add_number(job, PMIX_MAX_PROCS, place->world_size);
    add_number(job, PMIX_JOB_NUM_APPS, 1);
    add_number(job, PMIX_NUM_NODES, place->node_count);
    add_number(job, PMIX_LOCAL_SIZE, place->own.nproc);
    add_number(job, PMIX_NODE_SIZE, place->own.nproc);
    PMIX_INFO_LOAD(&job->values[job->count++], PMIX_LOCALLDR, &leader, PMIX_PROC_RANK);
    for (uint32_t i = 0; i < place->node_count; i++)
        for (uint32_t local = 0; local < nodes[i].nproc; local++)
            add_rank(job, place, i, local, nodes[i].first_rank + local);
}

/* Both calls below block, as they have no callback; they say so by another kind of success. */
static bool has_worked(pmix_status_t status)
{
    return status == PMIX_SUCCESS || status == PMIX_OPERATION_SUCCEEDED;
}

static pmix_status_t register_ranks(const struct pmix_place *place)
{
    pmix_status_t status = PMIX_SUCCESS;
    for (uint32_t i = 0; i < place->own.nproc && has_worked(status); i++) {
        pmix_proc_t proc;
        PMIX_LOAD_PROCID(&proc, place->nspace, place->own.first_rank + i);
        status = PMIx_server_register_client(&proc, geteuid(), getegid(), NULL, NULL, NULL);
    }
    return status;
}

/* libpmix tells its address only in the variables for a rank. */
static bool find_server(const struct pmix_place *place, char ret_server[PMIX_JOB_ADDRESS_SIZE])
{
    static const char scheme[] = ";tcp4://";
    char **env = NULL;
    pmix_proc_t proc;
    PMIX_LOAD_PROCID(&proc, place->nspace, place->own.first_rank);
    ret_server[0] = '\0';
    if (PMIx_server_setup_fork(&proc, &env) != PMIX_SUCCESS)
        return false;
    for (char **entry = env; entry != NULL && *entry != NULL; entry++) {
        const char *address =
            strncmp(*entry, "PMIX_SERVER_URI", 15) == 0 ? strstr(*entry, scheme) : NULL;
        if (address != NULL)
            snprintf(ret_server, PMIX_JOB_ADDRESS_SIZE, "%s", address + sizeof scheme - 1);
    }
    PMIX_ARGV_FREE(env);
    return ret_server[0] != '\0';
}

void pmix_job_end(const struct pmix_place *place)
{
    PMIx_server_deregister_nspace(place->nspace, NULL, NULL);
}

ddp_status pmix_job_register(const struct pmix_place *place, const struct pmix_node *nodes,
                             char ret_server[PMIX_JOB_ADDRESS_SIZE], struct ddp_error *err)
{
    struct job_values job = {.count = 0};
    size_t room = JOB_VALUES_MAX + (size_t)place->world_size;
    PMIX_INFO_CREATE(job.values, room);
    if (job.values == NULL)
        return ddpi_error_nomem(err, room * sizeof *job.values);
    add_values(&job, place, nodes);
    pmix_status_t status = PMIX_ERR_NOMEM;
    if (add_maps(&job, place, nodes))
        status = PMIx_server_register_nspace(place->nspace, (int)place->own.nproc, job.values,
                                             job.count, NULL, NULL);
    PMIX_INFO_FREE(job.values, room);
    if (has_worked(status))
        status = register_ranks(place);
    if (!has_worked(status))
        return ddpi_error_set(err, DDP_E_PROTOCOL, "libpmix does not take the job: %s",
                              PMIx_Error_string(status));
    return find_server(place, ret_server)
               ? DDP_OK
               : ddpi_error_set(err, DDP_E_PROTOCOL, "libpmix does not say where it listens");
}
