/*
 * worker_env.c - the table of the variables that a worker gets. Reads the environment that it is
 * given, never the process's own.
 *
 * Names and values are torchrun's, so that an unmodified script runs. Names that ddprun adds begin
 * with DDPRUN_.
 */
#include "worker_env.h"

#include "buf.h"
#include "bytes.h"
#include "error.h"
#include "flight_file.h"
#include "life_slot.h"
#include "mem.h"
#include "parse.h"
#include "spawn.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { VALUE_MAX = DDPI_HOST_MAX + 16 }; /* a number, the name of a device, a host and its port */

/* Either a number or a text. NULL text: we do not set the variable; an inherited one stays, unless
 * @gone removes it. */
struct value {
    const char *text;
    const char *more; /* behind @text; NULL: nothing */
    bool gone;
    char number[VALUE_MAX];
};

typedef void (*value_of)(const struct worker_place *p, struct value *out);

/* The inherited value of @name; NULL: not set. */
static const char *lookup(const struct worker_place *p, const char *name)
{
    return ddpi_parse_env(p->config->envp, name, strlen(name));
}

static void set_number(struct value *out, uint32_t number)
{
    snprintf(out->number, sizeof out->number, "%" PRIu32, number);
    out->text = out->number;
}

#define NUMBER_VALUE(fn, expression)                                \
    static void fn(const struct worker_place *p, struct value *out) \
    {                                                               \
        (void)p;                                                    \
        set_number(out, expression);                                \
    }
#define TEXT_VALUE(fn, expression)                                  \
    static void fn(const struct worker_place *p, struct value *out) \
    {                                                               \
        out->text = (expression);                                   \
    }

NUMBER_VALUE(rank, worker_rank(p->seat, p->local_rank))
NUMBER_VALUE(local_rank, p->config->virtual_local_rank ? 0 : p->local_rank)
NUMBER_VALUE(world_size, p->seat->world_size)
NUMBER_VALUE(local_world_size, p->config->nproc)
NUMBER_VALUE(group_rank, p->seat->node_rank)
NUMBER_VALUE(group_world_size, p->seat->nodes)
NUMBER_VALUE(restart_count, p->seat->restarts)
NUMBER_VALUE(max_restarts, p->config->max_restarts)
NUMBER_VALUE(master_port, p->seat->master_port)
TEXT_VALUE(role_name, p->config->role)
TEXT_VALUE(run_id, p->config->run_id)
TEXT_VALUE(master_addr,
           p->seat->master_address[0] != '\0' ? p->seat->master_address : p->config->master_addr)
TEXT_VALUE(error_file, p->error_file)
TEXT_VALUE(timer_file, p->config->timer_file)
TEXT_VALUE(store, p->config->store)
TEXT_VALUE(signals_to_handle, p->config->ending_signals_text)
/* PyTorch tests for exactly "True"; anything else makes its rank 0 host a store. */
TEXT_VALUE(use_agent_store, p->config->agent_store ? "True" : "False")
TEXT_VALUE(tls, p->config->tls ? "1" : NULL)
TEXT_VALUE(tls_ranks, p->config->tls_ranks ? "1" : NULL)
TEXT_VALUE(timeline, p->config->timeline)
TEXT_VALUE(local_address, p->config->local_address)
TEXT_VALUE(library, p->library)

/* A server of an earlier version does not report roles: then all workers have the same one. */
NUMBER_VALUE(role_rank, p->seat->role_world_size > 0 ? p->seat->role_first_rank + p->local_rank
                                                     : worker_rank(p->seat, p->local_rank))
NUMBER_VALUE(role_world_size,
             p->seat->role_world_size > 0 ? p->seat->role_world_size : p->seat->world_size)

static bool proves_to_store(const struct worker_place *p)
{
    return p->key.fd > 0 && p->key.for_store;
}

/* The store shows an authenticated worker the keys of its job only, without the job's prefix. */
static void store_prefix(const struct worker_place *p, struct value *out)
{
    worker_env_store_prefix(out->number, sizeof out->number,
                            proves_to_store(p) ? "" : p->config->store_prefix, p->seat->generation);
    out->text = out->number;
}

/* A descriptor number inherited from a surrounding job means nothing here: replace or remove it. */
static void key_fd(struct value *out, bool has_key)
{
    if (has_key)
        set_number(out, SPAWN_KEY_FD);
    out->gone = !has_key;
}

static void token_fd(const struct worker_place *p, struct value *out)
{
    key_fd(out, proves_to_store(p));
}

static void rank_key_fd(const struct worker_place *p, struct value *out)
{
    key_fd(out, p->key.fd > 0);
}

static void nccl_async(const struct worker_place *p, struct value *out)
{
    if (lookup(p, "TORCH_NCCL_ASYNC_ERROR_HANDLING") == NULL)
        out->text = "1";
}

/* Several workers with a thread per core each would compete for the cores. */
static void omp_num_threads(const struct worker_place *p, struct value *out)
{
    if (p->config->omp_threads > 0)
        set_number(out, p->config->omp_threads);
}

static void columns(const struct worker_place *p, struct value *out)
{
    if (p->columns > 0 && lookup(p, "COLUMNS") == NULL)
        set_number(out, p->columns);
}

/* Entry local_rank of the comma list, without blanks around it; "" if the list is too short. */
static const char *own_device(const struct worker_place *p, const char *list, size_t *ret_len)
{
    for (uint32_t i = 0; list != NULL && i < p->local_rank; i++) {
        list = strchr(list, ',');
        list = list != NULL ? list + 1 : NULL;
    }
    if (list == NULL)
        list = "";
    list += strspn(list, " \t");
    *ret_len = strcspn(list, ", \t");
    return list;
}

static void one_device(const struct worker_place *p, const char *list, struct value *out)
{
    size_t len;
    const char *device = own_device(p, list, &len);
    snprintf(out->number, sizeof out->number, "%.*s", (int)len, device);
    out->text = out->number;
}

static void cuda_device(const struct worker_place *p, struct value *out)
{
    const char *list = lookup(p, "CUDA_VISIBLE_DEVICES");
    if (p->config->virtual_local_rank && list != NULL)
        one_device(p, list, out);
    else if (p->config->virtual_local_rank)
        set_number(out, p->local_rank);
}

static void hip_device(const struct worker_place *p, struct value *out)
{
    const char *list = lookup(p, "HIP_VISIBLE_DEVICES");
    if (p->config->virtual_local_rank && list != NULL)
        one_device(p, list, out);
}

/* Empty rather than left out, to replace a value inherited from a surrounding job. */
static void life_fd(const struct worker_place *p, struct value *out)
{
    out->text = "";
    if (p->has_life_page)
        set_number(out, SPAWN_LIFE_FD);
}

static void life_slot(const struct worker_place *p, struct value *out)
{
    out->text = "";
    if (p->has_life_page)
        set_number(out, p->local_rank);
}

static void flight_fd(const struct worker_place *p, struct value *out)
{
    out->text = "";
    if (p->has_recorder)
        set_number(out, SPAWN_FLIGHT_FD);
}

/* MPICH reads PMI_FD, the world, and which ranks share the machine. */
NUMBER_VALUE(mpi_local_rank, p->local_rank)

static void pmi_number(const struct worker_place *p, uint32_t number, struct value *out)
{
    out->gone = !p->config->serves_pmi;
    if (p->config->serves_pmi)
        set_number(out, number);
}

static void pmi_fd(const struct worker_place *p, struct value *out)
{
    pmi_number(p, SPAWN_PMI_FD, out);
}

static void pmi_rank(const struct worker_place *p, struct value *out)
{
    pmi_number(p, worker_rank(p->seat, p->local_rank), out);
}

static void pmi_size(const struct worker_place *p, struct value *out)
{
    pmi_number(p, p->seat->world_size, out);
}

/* MPICH 5 takes PMIx where it finds both, and is often built without it. */
static void pmi_version(const struct worker_place *p, struct value *out)
{
    if (p->config->serves_pmi && p->config->serves_pmix &&
        lookup(p, "MPIR_CVAR_PMI_VERSION") == NULL)
        out->text = "1";
}

/* What a PMIx server would set for its ranks, but that there is none until the first rank connects.
 * Values of a surrounding job are removed. */
static void pmix_text(const struct worker_place *p, const char *text, struct value *out)
{
    out->gone = p->pmix_port == 0;
    if (p->pmix_port != 0)
        out->text = text;
}

static void pmix_namespace(const struct worker_place *p, struct value *out)
{
    worker_env_job_name(out->number, sizeof out->number, p->config, p->seat);
    pmix_text(p, out->number, out);
}

static void pmix_rank(const struct worker_place *p, struct value *out)
{
    snprintf(out->number, sizeof out->number, "%" PRIu32, worker_rank(p->seat, p->local_rank));
    pmix_text(p, out->number, out);
}

static void pmix_uri(const struct worker_place *p, struct value *out)
{
    snprintf(out->number, sizeof out->number, "ddprun.0;tcp4://127.0.0.1:%u", p->pmix_port);
    pmix_text(p, out->number, out);
}

static void pmix_security(const struct worker_place *p, struct value *out)
{
    pmix_text(p, "native", out);
}

static void pmix_buffers(const struct worker_place *p, struct value *out)
{
    pmix_text(p, "PMIX_BFROP_BUFFER_NON_DESC", out);
}

/* No shared memory with the server, which would be left behind. */
static void pmix_data_store(const struct worker_place *p, struct value *out)
{
    pmix_text(p, "hash", out);
}

static void pmix_host_name(const struct worker_place *p, struct value *out)
{
    pmix_text(p, p->config->host, out);
}

/* Open MPI 4 asks a PMIx server only below a launcher that it knows: this names IBM's jsrun, of
 * which nothing else is used. */
static void pmix_launcher(const struct worker_place *p, struct value *out)
{
    pmix_text(p, "1", out);
}

static void pmix_not_ours(const struct worker_place *p, struct value *out)
{
    (void)p;
    out->gone = true;
}

/* Horovod's names. Its controllers are the user's choice; what a surrounding job has said of its
 * rendezvous means nothing here. */
TEXT_VALUE(host_name, p->config->host)

/* Whether all nodes have the same number of workers, and so each of them has a peer on each node.
 * Else it is alone in its group across nodes: Horovod needs that group only if they have. */
static bool is_even(const struct ddp_round_seat *seat)
{
    return seat->most_workers == 0 ||
           (uint64_t)seat->most_workers * seat->nodes == seat->world_size;
}

NUMBER_VALUE(cross_rank, is_even(p->seat) ? p->seat->node_rank : 0)
NUMBER_VALUE(cross_size, is_even(p->seat) ? p->seat->nodes : 1)

static void horovod_gloo(const struct worker_place *p, const char *name, struct value *out)
{
    if (lookup(p, name) == NULL)
        out->text = "gloo";
}

static void horovod_controller(const struct worker_place *p, struct value *out)
{
    horovod_gloo(p, "HOROVOD_CONTROLLER", out);
}

static void horovod_operations(const struct worker_place *p, struct value *out)
{
    horovod_gloo(p, "HOROVOD_CPU_OPERATIONS", out);
}

static bool serves_horovod(const struct worker_place *p)
{
    return p->config->horovod != NULL && p->config->horovod->port > 0;
}

static void horovod_address(const struct worker_place *p, struct value *out)
{
    out->text = serves_horovod(p) ? "127.0.0.1" : NULL;
    out->gone = !serves_horovod(p);
}

static void horovod_port(const struct worker_place *p, struct value *out)
{
    if (serves_horovod(p))
        set_number(out, p->config->horovod->port);
    out->gone = !serves_horovod(p);
}

static void horovod_interface(const struct worker_place *p, struct value *out)
{
    if (serves_horovod(p) && p->config->horovod->interface[0] != '\0' &&
        lookup(p, "HOROVOD_GLOO_IFACE") == NULL)
        out->text = p->config->horovod->interface;
}

/* JAX's names. jax.distributed.initialize() reads the first two, programs the others. What a
 * surrounding job has said of its coordinator means nothing here. */
static void jax_coordinator(const struct worker_place *p, struct value *out)
{
    struct ddpi_endpoint at = {.port = p->seat->coordinator_port};
    out->gone = at.port == 0;
    if (out->gone)
        return;
    snprintf(at.host, sizeof at.host, "%s", p->seat->coordinator_address);
    ddpi_endpoint_text(&at, out->number, sizeof out->number);
    out->text = out->number;
}

/* JAX's coordinator asks for no proof, and listens on all addresses unless it is told where to. */
static void jax_bind(const struct worker_place *p, struct value *out)
{
    if (ddpi_host_is_loopback(p->seat->coordinator_address) &&
        lookup(p, "JAX_COORDINATOR_BIND_ADDRESS") == NULL)
        jax_coordinator(p, out);
}

static void tf_config(const struct worker_place *p, struct value *out)
{
    if (p->config->tf_cluster == NULL)
        return;
    snprintf(out->number, sizeof out->number,
             "{\"task\":{\"type\":\"worker\",\"index\":%" PRIu32 "},",
             worker_rank(p->seat, p->local_rank));
    out->text = out->number;
    out->more = *p->config->tf_cluster;
}

/* A worker without a device of its own would use another worker's. */
static ddp_status check_devices(const struct worker_place *p, struct ddp_error *err)
{
    static const char *const names[] = {"CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"};
    for (size_t i = 0; p->config->virtual_local_rank && i < sizeof names / sizeof *names; i++) {
        const char *list = lookup(p, names[i]);
        size_t len;
        if (list == NULL)
            continue;
        own_device(p, list, &len);
        if (len == 0 || len >= VALUE_MAX)
            return ddpi_error_set(err, DDP_E_INVALID,
                                  "%s='%s' has no entry for local rank %" PRIu32
                                  ", and --virtual-local-rank gives each worker one of them; "
                                  "list more, or start fewer workers",
                                  names[i], list, p->local_rank);
    }
    return DDP_OK;
}

static const struct {
    const char *name;
    value_of value;
    enum { OWN, SHARED } by; /* shared: the same for all workers, in all generations */
} variables[] = {
    {"RANK", rank, OWN},
    {"LOCAL_RANK", local_rank, OWN},
    {"WORLD_SIZE", world_size, OWN},
    {"LOCAL_WORLD_SIZE", local_world_size, SHARED},
    {"GROUP_RANK", group_rank, OWN},
    {"GROUP_WORLD_SIZE", group_world_size, OWN},
    {"ROLE_NAME", role_name, SHARED},
    {"ROLE_RANK", role_rank, OWN},
    {"ROLE_WORLD_SIZE", role_world_size, OWN},
    {"MASTER_ADDR", master_addr, OWN},
    {"MASTER_PORT", master_port, OWN},
    {"TORCHELASTIC_RUN_ID", run_id, SHARED},
    {"TORCHELASTIC_RESTART_COUNT", restart_count, OWN},
    {"TORCHELASTIC_MAX_RESTARTS", max_restarts, SHARED},
    {"TORCHELASTIC_ERROR_FILE", error_file, OWN},
    {"TORCHELASTIC_TIMER_FILE", timer_file, SHARED},
    {"TORCHELASTIC_USE_AGENT_STORE", use_agent_store, SHARED},
    {"TORCHELASTIC_SIGNALS_TO_HANDLE", signals_to_handle, SHARED},
    {"TORCH_NCCL_ASYNC_ERROR_HANDLING", nccl_async, SHARED},
    {"OMP_NUM_THREADS", omp_num_threads, SHARED},
    {"COLUMNS", columns, OWN},
    {"CUDA_VISIBLE_DEVICES", cuda_device, OWN},
    {"HIP_VISIBLE_DEVICES", hip_device, OWN},
    {"DDPRUN_STORE", store, OWN},
    {"DDPRUN_STORE_PREFIX", store_prefix, OWN},
    {"DDPRUN_TOKEN_FD", token_fd, OWN},
    {"DDPRUN_RANK_KEY_FD", rank_key_fd, OWN},
    {"DDPRUN_TLS", tls, OWN},
    {"DDPRUN_TLS_RANKS", tls_ranks, OWN},
    {"DDP_TIMELINE", timeline, OWN},
    {"DDPRUN_LOCAL_ADDR", local_address, SHARED},
    {DDPI_LIFE_FD_ENV, life_fd, OWN},
    {DDPI_LIFE_SLOT_ENV, life_slot, OWN},
    {DDPI_FLIGHT_FD_ENV, flight_fd, OWN},
    {"PMI_FD", pmi_fd, OWN},
    {"PMI_RANK", pmi_rank, OWN},
    {"PMI_SIZE", pmi_size, OWN},
    {"MPI_LOCALRANKID", mpi_local_rank, OWN},
    {"MPI_LOCALNRANKS", local_world_size, SHARED},
    {"MPIR_CVAR_PMI_VERSION", pmi_version, SHARED},
    {"PMIX_NAMESPACE", pmix_namespace, OWN},
    {"PMIX_RANK", pmix_rank, OWN},
    {"PMIX_SERVER_URI41", pmix_uri, OWN},
    {"PMIX_SERVER_URI4", pmix_uri, OWN},
    {"PMIX_SERVER_URI3", pmix_uri, OWN},
    {"PMIX_SERVER_URI21", pmix_uri, OWN},
    {"PMIX_SERVER_URI2", pmix_uri, OWN},
    {"PMIX_SECURITY_MODE", pmix_security, OWN},
    {"PMIX_BFROP_BUFFER_TYPE", pmix_buffers, OWN},
    {"PMIX_GDS_MODULE", pmix_data_store, OWN},
    {"PMIX_HOSTNAME", pmix_host_name, OWN},
    {"PMIX_SERVER_TMPDIR", pmix_not_ours, OWN},
    {"PMIX_DSTORE_21_BASE_PATH", pmix_not_ours, OWN},
    {"PMIX_DSTORE_ESH_BASE_PATH", pmix_not_ours, OWN},
    {"JSM_JSRUN_PORT", pmix_launcher, OWN},
    {"LD_PRELOAD", library, OWN},
    {"HOROVOD_RANK", rank, OWN},
    {"HOROVOD_SIZE", world_size, OWN},
    {"HOROVOD_LOCAL_RANK", mpi_local_rank, OWN},
    {"HOROVOD_LOCAL_SIZE", local_world_size, SHARED},
    {"HOROVOD_CROSS_RANK", cross_rank, OWN},
    {"HOROVOD_CROSS_SIZE", cross_size, OWN},
    {"HOROVOD_HOSTNAME", host_name, SHARED},
    {"HOROVOD_CONTROLLER", horovod_controller, SHARED},
    {"HOROVOD_CPU_OPERATIONS", horovod_operations, SHARED},
    {"HOROVOD_GLOO_RENDEZVOUS_ADDR", horovod_address, OWN},
    {"HOROVOD_GLOO_RENDEZVOUS_PORT", horovod_port, OWN},
    {"HOROVOD_GLOO_IFACE", horovod_interface, OWN},
    {"JAX_COORDINATOR_ADDRESS", jax_coordinator, OWN},
    {"JAX_COORDINATOR_BIND_ADDRESS", jax_bind, OWN},
    {"JAX_NUM_PROCESSES", world_size, OWN},
    {"JAX_PROCESS_ID", rank, OWN},
    {"TF_CONFIG", tf_config, OWN},
};

enum { VARIABLES = sizeof variables / sizeof *variables };

static bool is_replaced(const char *entry, const struct value values[VARIABLES])
{
    size_t len = strcspn(entry, "=");
    for (size_t i = 0; i < VARIABLES; i++)
        if ((values[i].text != NULL || values[i].gone) && strlen(variables[i].name) == len &&
            strncmp(entry, variables[i].name, len) == 0)
            return true;
    return false;
}

static const char *more_of(const struct value *value)
{
    return value->more != NULL ? value->more : "";
}

/* One allocation holds the array and, after it, the text of our own entries. */
static ddp_status make_envp(char *const *inherited, const struct value values[VARIABLES],
                            char ***ret_envp, struct ddp_error *err)
{
    size_t entries = VARIABLES + 1, text_len = 0, used = 0;
    for (size_t i = 0; i < VARIABLES; i++)
        if (values[i].text != NULL)
            text_len += strlen(variables[i].name) + strlen(values[i].text) +
                        strlen(more_of(&values[i])) + 2;
    for (char *const *entry = inherited; *entry != NULL; entry++)
        entries++;
    size_t bytes = entries * sizeof(char *) + text_len;
    char **envp = ddpi_calloc(bytes, 1);
    if (envp == NULL)
        return ddpi_error_nomem(err, bytes);

    for (char *const *entry = inherited; *entry != NULL; entry++)
        if (!is_replaced(*entry, values))
            envp[used++] = *entry;
    char *text = (char *)(envp + entries);
    for (size_t i = 0; i < VARIABLES; i++) {
        if (values[i].text == NULL)
            continue;
        envp[used++] = text;
        size_t len = 1 + (size_t)snprintf(text, text_len, "%s=%s%s", variables[i].name,
                                          values[i].text, more_of(&values[i]));
        text += len;
        text_len -= len;
    }
    *ret_envp = envp;
    return DDP_OK;
}

ddp_status worker_env_make(const struct worker_place *place, char ***ret_envp,
                           struct ddp_error *err)
{
    struct value values[VARIABLES] = {0};
    ddp_status status = check_devices(place, err);
    if (status != DDP_OK)
        return status;
    for (size_t i = 0; i < VARIABLES; i++)
        variables[i].value(place, &values[i]);
    return make_envp(place->config->envp, values, ret_envp, err);
}

ddp_status worker_env_make_shared(const struct agent_config *config, char ***ret_envp,
                                  struct ddp_error *err)
{
    const struct worker_place place = {.config = config};
    struct value values[VARIABLES] = {0};
    for (size_t i = 0; i < VARIABLES; i++)
        if (variables[i].by == SHARED)
            variables[i].value(&place, &values[i]);
    return make_envp(config->envp, values, ret_envp, err);
}

char *worker_env_own_names(const struct agent_config *config)
{
    const struct ddp_round_seat seat = {.master_address = "any"};
    const struct worker_place place = {.config = config, .seat = &seat, .error_file = ""};
    struct ddpi_buf names;
    bool ok = true;
    ddpi_buf_init(&names, SIZE_MAX);
    for (size_t i = 0; i < VARIABLES && ok; i++) {
        struct value value = {0};
        variables[i].value(&place, &value);
        if (variables[i].by == OWN && (value.text != NULL || value.gone))
            ok = ddpi_buf_append(&names, variables[i].name, strlen(variables[i].name)) &&
                 ddpi_buf_append(&names, ",", 1);
    }
    char *text =
        ok ? ddpi_strndup((const char *)ddpi_buf_head(&names), ddpi_buf_len(&names)) : NULL;
    ddpi_buf_finish(&names);
    return text;
}

void worker_env_free(char **envp)
{
    ddpi_free(envp);
}

void worker_env_job_name(char *text, size_t size, const struct agent_config *config,
                         const struct ddp_round_seat *seat)
{
    char of_job[512];
    snprintf(of_job, sizeof of_job, "%u %d %.400s", seat->master_port,
             seat->nodes == 1 ? (int)getpid() : 0, config->run_id != NULL ? config->run_id : "");
    uint32_t hash = ddpi_digest32(DDPI_DIGEST32_NONE, of_job, strlen(of_job));
    snprintf(text, size, "ddprun-%08" PRIx32 "-%" PRIu64, hash, seat->generation);
}

void worker_env_store_prefix(char *text, size_t size, const char *of_job, uint64_t generation)
{
    snprintf(text, size, "%sg%" PRIu64 "/", of_job, generation);
}
