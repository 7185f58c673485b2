/*
 * job_dump.c - the verb dump: asks the agents of a job for what their workers have recorded
 * (flight_ask.h), waits until all ranks have answered or --timeout ends, and prints what they were
 * doing. Owns the session to which question and answers belong.
 */
#include "ddpctl_job.h"
#include "dump_pickle.h"
#include "dump_set.h"
#include "error.h"
#include "flight_ask.h"
#include "mem.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    JOB_PREFIX_SIZE = sizeof "job//" + DDPI_JOB_MAX,
    KEY_SIZE = JOB_PREFIX_SIZE + sizeof DDPI_FLIGHT_ANSWER_PREFIX + DDPI_FLIGHT_ID_CHARS + 2,
    LEASE_EXTRA_MS = 10000,
    PATH_SIZE = 4096,
    LAST = 256, /* records of each rank, if --last is not given */
};

struct dump_call {
    struct ddpctl_job_call *job;
    char prefix[JOB_PREFIX_SIZE]; /* of the job's keys; "": the store is the agent's own */
    struct ddpi_flight_ask ask;
    struct ddp_store_session session;
    bool asks; /* the session is open */
    struct dump_set set;
};

/* ---- which job ---- */

/* A job of one node has a store of its own, in which it is not listed. */
static ddp_status choose_prefix(struct dump_call *dump, struct ddp_error *err)
{
    char **names;
    size_t count;
    ddp_status status = ddpctl_job_list(dump->job, &names, &count, err);
    if (status != DDP_OK)
        return status;
    for (size_t i = 0; i < count; i++)
        ddpi_free(names[i]);
    ddpi_free(names);
    if (count == 0 && dump->job->job == NULL)
        return DDP_OK;
    status = ddpctl_job_find(dump->job, err);
    if (status == DDP_OK)
        snprintf(dump->prefix, sizeof dump->prefix, "job/%s/", dump->job->view.name);
    return status;
}

/* NULL: of one node. */
static const char *job_name(const struct dump_call *dump)
{
    return dump->prefix[0] != '\0' ? dump->job->view.name : NULL;
}

/* ---- questions and answers ---- */

static ddp_status make_id(struct ddpi_flight_ask *ask, struct ddp_error *err)
{
    uint64_t random;
    if (getrandom(&random, sizeof random, 0) != sizeof random)
        return ddpi_error_sys(err, errno, "cannot get a random number");
    snprintf(ask->id, sizeof ask->id, "%016" PRIx64, random);
    return DDP_OK;
}

static ddp_status ask_agents(struct dump_call *dump, struct ddp_error *err)
{
    char key[KEY_SIZE];
    unsigned char value[DDPI_FLIGHT_ASK_SIZE];
    struct ddpctl_job_call *job = dump->job;
    uint32_t left_ms = ddpctl_job_left_ms(job);
    ddp_status status =
        ddp_store_session_open(job->store, left_ms + LEASE_EXTRA_MS, left_ms, &dump->session, err);
    if (status != DDP_OK)
        return status;
    dump->asks = true;
    memcpy(dump->ask.session, dump->session.token, sizeof dump->ask.session);
    snprintf(key, sizeof key, "%s" DDPI_FLIGHT_ANSWER_PREFIX "%s/", dump->prefix, dump->ask.id);
    status = ddp_store_watch(job->store, key, DDP_STORE_WATCH_PREFIX, 0, left_ms, NULL, NULL, err);
    ddpi_flight_ask_put(&dump->ask, value);
    snprintf(key, sizeof key, "%s" DDPI_FLIGHT_ASK_PREFIX "%s", dump->prefix, dump->ask.id);
    if (status == DDP_OK)
        status = ddp_store_set_ephemeral(job->store, &dump->session, key, value, sizeof value,
                                         ddpctl_job_left_ms(job), NULL, err);
    return status;
}

static ddp_status take_answer(struct dump_call *dump, struct ddp_error *err)
{
    struct ddp_store_event *event;
    ddp_status status =
        ddp_store_next_event(dump->job->store, ddpctl_job_left_ms(dump->job), &event, err);
    if (status != DDP_OK)
        return status;
    if (event->kind == DDP_STORE_EVENT_SET)
        status = dump_set_take(&dump->set, event->value, event->value_len, err);
    ddp_store_free(event);
    return status;
}

static ddp_status no_answer(const struct dump_call *dump, struct ddp_error *err)
{
    const char *name = job_name(dump);
    return ddpi_error_set(err, DDP_E_TIMEOUT,
                          "no agent of %s%s has answered; does it run, and for more than a second? "
                          "'ddpctl status' lists the jobs of a store",
                          name != NULL ? "job " : "a job", name != NULL ? name : " of one node");
}

/* Ranks that have not answered in time are told by their number. */
static ddp_status collect_answers(struct dump_call *dump, struct ddp_error *err)
{
    ddp_status status = make_id(&dump->ask, err);
    if (status == DDP_OK)
        status = ask_agents(dump, err);
    while (status == DDP_OK && !dump_set_complete(&dump->set))
        status = take_answer(dump, err);
    if (status == DDP_E_TIMEOUT)
        status = dump->set.count > 0 ? DDP_OK : no_answer(dump, err);
    return status;
}

/* ---- output ---- */

static ddp_status write_whole(const char *path, const struct ddpi_buf *bytes, struct ddp_error *err)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (fd < 0)
        return ddpi_error_sys(err, errno, "cannot create %s", path);
    const uint8_t *at = ddpi_buf_head(bytes);
    for (size_t left = ddpi_buf_len(bytes); left > 0;) {
        ssize_t written = write(fd, at, left);
        if (written < 0 && errno != EINTR) {
            ddp_status status = ddpi_error_sys(err, errno, "cannot write %s", path);
            close(fd);
            return status;
        }
        at += written > 0 ? written : 0;
        left -= written > 0 ? (size_t)written : 0;
    }
    return close(fd) == 0 ? DDP_OK : ddpi_error_sys(err, errno, "cannot write %s", path);
}

/* The name by which PyTorch's analyser finds the rank: a prefix, then the number at the end. */
static ddp_status write_rank(const struct dump_call *dump, size_t index, struct ddp_error *err)
{
    char path[PATH_SIZE];
    struct ddpi_buf pickle;
    int len = snprintf(path, sizeof path, "%s/rank_%" PRIu32, dump->job->options->output,
                       dump->set.logs[index]->place.rank);
    if (len >= (int)sizeof path)
        return ddpi_error_set(err, DDP_E_INVALID, "the path '%.100s...' is too long",
                              dump->job->options->output);
    json_t *json = dump_json_rank(&dump->set, index);
    ddpi_buf_init(&pickle, SIZE_MAX);
    ddp_status status = json != NULL && dump_pickle(json, &pickle)
                            ? write_whole(path, &pickle, err)
                            : ddpi_error_nomem(err, ddpi_buf_len(&pickle));
    ddpi_buf_finish(&pickle);
    json_decref(json);
    return status;
}

static ddp_status write_ranks(const struct dump_call *dump, struct ddp_error *err)
{
    const char *directory = dump->job->options->output;
    if (mkdir(directory, 0777) != 0 && errno != EEXIST)
        return ddpi_error_sys(err, errno, "cannot create the directory %s", directory);
    ddp_status status = DDP_OK;
    for (size_t i = 0; i < dump->set.count && status == DDP_OK; i++)
        status = write_rank(dump, i, err);
    return status;
}

static ddp_status show_dump(struct dump_call *dump, struct ddp_error *err)
{
    ddp_status status = dump_set_compare(&dump->set, err);
    if (status == DDP_OK && dump->job->options->output != NULL)
        status = write_ranks(dump, err);
    if (status != DDP_OK)
        return status;
    if (dump->job->options->json)
        return ddpctl_print_json(dump_json(&dump->set, job_name(dump)), err);
    dump_text_print(&dump->set, job_name(dump), stdout);
    return DDP_OK;
}

ddp_status ddpctl_job_dump(struct ddpctl_job_call *call, struct ddp_error *err)
{
    struct dump_call dump = {.job = call,
                             .ask.last = call->options->last != 0 ? call->options->last : LAST};
    ddp_status status = choose_prefix(&dump, err);
    if (status == DDP_OK)
        status = collect_answers(&dump, err);
    if (status == DDP_OK)
        status = show_dump(&dump, err);
    if (dump.asks)
        (void)!ddp_store_session_close(call->store, &dump.session, LEASE_EXTRA_MS, NULL);
    dump_set_finish(&dump.set);
    return status;
}
