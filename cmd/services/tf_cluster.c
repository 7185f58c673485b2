/*
 * tf_cluster.c - see tf_cluster.h. Owns the text, and what was read of the job.
 */
#include "tf_cluster.h"

#include "error.h"
#include "mem.h"
#include "parse.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

enum { TEXT_MAX = 120 * 1024 }; /* Linux takes 128 KiB, with the name and the task */

/* ---- the text ---- */

static ddp_status check_node(const struct ddp_round_member *says, struct ddp_error *err)
{
    if (!says->terms.worker_ports)
        return ddpi_error_set(err, DDP_E_INVALID,
                              "node %s runs without --tf-config, so it is not known where its "
                              "workers listen; give the option on all nodes",
                              says->name);
    if (says->first_port == 0 || says->first_port + says->nproc - 1 > UINT16_MAX)
        return ddpi_error_set(err, DDP_E_INVALID,
                              "--tf-config: node %s has found no %u free ports in a row for its "
                              "workers; end programs there that use many, or start fewer workers",
                              says->name, says->nproc);
    return DDP_OK;
}

static ddp_status add_node(json_t *workers, const struct ddp_round_member *says,
                           struct ddp_error *err)
{
    ddp_status status = check_node(says, err);
    for (uint32_t i = 0; i < says->nproc && status == DDP_OK; i++) {
        struct ddpi_endpoint one = {.port = (uint16_t)(says->first_port + i), .has_port = true};
        char text[DDPI_HOST_MAX + 16];
        snprintf(one.host, sizeof one.host, "%s", says->address);
        ddpi_endpoint_text(&one, text, sizeof text);
        if (json_array_append_new(workers, json_string(text)) != 0)
            status = ddpi_error_nomem(err, sizeof text);
    }
    return status;
}

/* What follows the task in TF_CONFIG. */
static ddp_status write_text(json_t *workers, char **ret_text, struct ddp_error *err)
{
    json_t *all = json_pack("{s: {s: O}}", "cluster", "worker", workers);
    char *json = json_dumps(all, JSON_COMPACT);
    ddp_status status = DDP_OK;
    json_decref(all);
    if (json == NULL)
        return ddpi_error_nomem(err, TEXT_MAX);
    if (strlen(json) > TEXT_MAX)
        status = ddpi_error_set(err, DDP_E_LIMIT,
                                "--tf-config: the addresses of %zu workers are longer than a "
                                "variable of the environment can be",
                                json_array_size(workers));
    else if ((*ret_text = ddpi_strdup(json + 1)) == NULL)
        status = ddpi_error_nomem(err, strlen(json));
    free(json);
    return status;
}

ddp_status tf_cluster_make(struct tf_cluster *cluster, const struct ddp_round_member *const *nodes,
                           uint32_t count, struct ddp_error *err)
{
    json_t *workers = json_array();
    ddp_status status = workers != NULL ? DDP_OK : ddpi_error_nomem(err, sizeof *nodes);
    ddpi_free(cluster->text);
    cluster->text = NULL;
    for (uint32_t i = 0; i < count && status == DDP_OK; i++)
        status = add_node(workers, nodes[i], err);
    if (status == DDP_OK)
        status = write_text(workers, &cluster->text, err);
    json_decref(workers);
    return status;
}

/* ---- what the nodes say ---- */

static void on_begun(void *ctx)
{
    struct tf_cluster *cluster = ctx;
    char name[DDPI_JOB_MAX + 1];
    memcpy(name, cluster->view.name, sizeof name);
    job_view_finish(&cluster->view);
    job_view_init(&cluster->view, name);
}

static void on_value(void *ctx, const char *key, uint64_t version, const void *value, size_t len)
{
    struct tf_cluster *cluster = ctx;
    ddp_status status = job_view_take(&cluster->view, key, version, value, len);
    if (status != DDP_OK)
        cluster->keys.status = status;
}

/* Puts the nodes of the generation into @nodes, by rank; false: it is not the latest any more. */
static bool find_nodes(const struct tf_cluster *cluster, const struct ddp_round_member **nodes)
{
    const struct ddp_round_seat *seat = &cluster->seat;
    uint32_t found = 0;
    for (size_t i = 0; i < cluster->view.nnodes; i++) {
        const struct job_node *node = cluster->view.nodes[i];
        bool there = node->member.there && !node->member.bad && node->order.there &&
                     !node->order.bad && node->seat.order == DDP_ROUND_RUN;
        if (!there || node->seat.generation != seat->generation ||
            node->seat.node_rank >= seat->nodes || nodes[node->seat.node_rank] != NULL)
            continue;
        nodes[node->seat.node_rank] = &node->says;
        found++;
    }
    return found == seat->nodes;
}

/* Why nodes of the generation are not found. DDP_OK: another one has begun. */
static ddp_status check_reading(const struct tf_cluster *cluster, struct ddp_error *err)
{
    ddp_status status = cluster->keys.status;
    if (status != DDP_OK)
        return ddpi_error_set(err, status,
                              "--tf-config: what the other nodes say about their workers cannot be "
                              "read: %s",
                              ddp_status_text(status));
    for (size_t i = 0; i < cluster->view.nnodes; i++) {
        const struct job_node *node = cluster->view.nodes[i];
        if ((node->member.there && node->member.bad) || (node->order.there && node->order.bad))
            return ddpi_error_set(err, DDP_E_PROTOCOL,
                                  "--tf-config: the store has a record of a node that this ddprun "
                                  "cannot read; start all nodes with the same version of ddprun");
    }
    return DDP_OK;
}

static void on_over(void *ctx)
{
    struct tf_cluster *cluster = ctx;
    struct ddp_error err;
    const struct ddp_round_member **nodes = ddpi_calloc(cluster->seat.nodes, sizeof(void *));
    ddp_status status =
        nodes != NULL ? DDP_OK : ddpi_error_nomem(&err, cluster->seat.nodes * sizeof(void *));
    bool found = nodes != NULL && find_nodes(cluster, nodes);
    if (found)
        status = tf_cluster_make(cluster, nodes, cluster->seat.nodes, &err);
    else if (status == DDP_OK)
        status = check_reading(cluster, &err);
    if (found || status != DDP_OK)
        cluster->done(cluster->ctx, &cluster->seat, status == DDP_OK ? NULL : err.msg);
    ddpi_free(nodes);
}

void tf_cluster_open(struct tf_cluster *cluster, ddp_store_uv *store, const char *job,
                     tf_cluster_done *done, void *ctx)
{
    const struct job_keys_hooks hooks = {cluster, on_begun, on_value, on_over};
    job_view_init(&cluster->view, job);
    job_keys_init(&cluster->keys, job, &hooks);
    cluster->keys.store = store;
    cluster->done = done;
    cluster->ctx = ctx;
}

void tf_cluster_read(struct tf_cluster *cluster, const struct ddp_round_seat *seat)
{
    cluster->seat = *seat;
    job_keys_read(&cluster->keys, false);
}

void tf_cluster_stop(struct tf_cluster *cluster)
{
    job_keys_stop(&cluster->keys);
}

void tf_cluster_finish(struct tf_cluster *cluster)
{
    job_view_finish(&cluster->view);
    ddpi_free(cluster->text);
    cluster->text = NULL;
}
