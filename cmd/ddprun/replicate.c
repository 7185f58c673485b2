/*
 * replicate.c - see replicate.h. Owns the words.
 */
#include "replicate.h"

#include "error.h"
#include "mem.h"
#include "worker_program.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stddef.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

extern char **environ;

enum { MACHINES = 3 };

ddp_status replicate_check(const struct ddprun_options *options, struct ddp_error *err)
{
    if (!options->replicate)
        return DDP_OK;
    if (ddprun_options_have_hosts(options) || options->leash)
        return ddpi_error_set(err, DDP_E_INVALID,
                              "--replicate cannot be used with --hosts: the job ends with the host "
                              "that starts the others; start ddprun on each node");
    if (options->standalone)
        return ddpi_error_set(err, DDP_E_INVALID,
                              "--standalone runs one node, and --replicate needs three; leave one "
                              "out");
    if (options->auth == DDPI_SERVER_AUTH_NEVER)
        return ddpi_error_set(err, DDP_E_INVALID,
                              "--replicate needs a token, and --no-auth uses none; leave one out");
    if (options->rdzv_endpoints.count != MACHINES)
        return ddpi_error_set(
            err, DDP_E_INVALID,
            "--replicate keeps the store on three machines, and --rdzv-endpoint (or "
            "PET_RDZV_ENDPOINT) lists %u: of fewer no majority is left when one dies; list three, "
            "such as node1,node2,node3, of which one may only run 'ddprund --cluster'",
            options->rdzv_endpoints.count);
    if (options->lease_ms < DDPRUN_REPLICATE_LEASE_MS)
        return ddpi_error_set(err, DDP_E_INVALID,
                              "--lease=%" PRIu64
                              "ms is too short for --replicate: it takes up to %d ms until another "
                              "node has the store of one that has died",
                              options->lease_ms, DDPRUN_REPLICATE_LEASE_MS);
    return DDP_OK;
}

/* ddprund beside this program; else in PATH. */
static ddp_status find_program(char **ret, struct ddp_error *err)
{
    *ret = program_find_beside("ddprund");
    if (*ret != NULL)
        return DDP_OK;
    if (program_find("ddprund", ret, NULL) == DDP_OK)
        return DDP_OK;
    return ddpi_error_set(err, DDP_E_NOT_FOUND,
                          "--replicate needs the program ddprund, and it is neither beside ddprun "
                          "nor in PATH; install it there (it is in the same package)");
}

/* The kernel chooses the name. */
static ddp_status open_notify(struct replicate *replicate, struct ddp_error *err)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    socklen_t size = sizeof name;
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return ddpi_error_sys(err, errno, "cannot make a socket for the keeper");
    replicate->notify = fd;
    if (bind(fd, (struct sockaddr *)&name, sizeof name.sun_family) != 0 ||
        getsockname(fd, (struct sockaddr *)&name, &size) != 0)
        return ddpi_error_sys(err, errno, "cannot name the socket for the keeper");
    int on = 1;
    if (setsockopt(fd, SOL_SOCKET, SO_PASSCRED, &on, sizeof on) != 0)
        return ddpi_error_sys(err, errno, "cannot ask who writes to the socket for the keeper");
    int len = (int)(size - offsetof(struct sockaddr_un, sun_path)) - 1;
    replicate->notify_word = ddpi_asprintf("NOTIFY_SOCKET=@%.*s", len, name.sun_path + 1);
    return replicate->notify_word != NULL ? DDP_OK : ddpi_error_nomem(err, sizeof name);
}

/* Ours, but if a service manager listens to this ddprun, the keeper must not speak to it. */
static ddp_status make_environment(struct replicate *replicate, struct ddp_error *err)
{
    static const char notify[] = "NOTIFY_SOCKET=";
    size_t count = 0, used = 0;
    while (environ[count] != NULL)
        count++;
    replicate->envp = ddpi_calloc(count + 2, sizeof *replicate->envp);
    if (replicate->envp == NULL)
        return ddpi_error_nomem(err, count * sizeof *replicate->envp);
    for (size_t i = 0; i < count; i++)
        if (strncmp(environ[i], notify, sizeof notify - 1) != 0)
            replicate->envp[used++] = environ[i];
    replicate->envp[used] = replicate->notify_word;
    return DDP_OK;
}

/* Takes @word; NULL: there was no memory for it. */
static void add_word(struct replicate *replicate, char *word)
{
    replicate->complete &= word != NULL;
    if (word != NULL)
        replicate->words[replicate->count++] = word;
}

/* Which of the listed machines this one is, if --local-addr says so. */
static void add_place(struct replicate *replicate, const struct ddprun_options *options,
                      const struct ddpi_endpoints *endpoints)
{
    char text[DDPI_HOST_MAX + 16];
    for (uint32_t i = 0; option_given(options->local_addr) && i < endpoints->count; i++)
        if (strcasecmp(endpoints->at[i].host, options->local_addr) == 0) {
            ddpi_endpoint_text(&endpoints->at[i], text, sizeof text);
            add_word(replicate, ddpi_asprintf("--advertise=%s", text));
            return;
        }
}

ddp_status replicate_plan(struct replicate *replicate, const struct ddprun_options *options,
                          const struct ddpi_endpoints *endpoints, const char *job,
                          struct ddp_error *err)
{
    char list[DDPI_ENDPOINTS_TEXT];
    if (!options->replicate)
        return DDP_OK;
    ddpi_endpoints_text(endpoints, list, sizeof list);
    replicate->complete = true;
    add_word(replicate, ddpi_strdup("ddprund"));
    add_word(replicate, ddpi_asprintf("--cluster=%s", list));
    add_word(replicate, ddpi_asprintf("--cluster-job=%s", job));
    add_word(replicate, ddpi_asprintf("--state-lease=%dms", REPLICATE_STATE_LEASE_MS));
    add_word(replicate, ddpi_strdup("--log-level=warning"));
    add_place(replicate, options, endpoints);
    if (option_given(options->token_file))
        add_word(replicate, ddpi_asprintf("--token-file=%s", options->token_file));
    if (options->auth == DDPI_SERVER_AUTH_ALWAYS)
        add_word(replicate, ddpi_strdup("--auth=always"));
    if (options->trust_local_users)
        add_word(replicate, ddpi_strdup("--trust-local-users"));
    if (options->agent.tls)
        add_word(replicate, ddpi_strdup("--tls"));
    return replicate->complete ? DDP_OK : ddpi_error_nomem(err, sizeof replicate->words);
}

ddp_status replicate_open(struct replicate *replicate, const struct spawn_request **ret,
                          struct ddp_error *err)
{
    *ret = NULL;
    if (replicate->count == 0)
        return DDP_OK;
    ddp_status status = find_program(&replicate->path, err);
    if (status == DDP_OK)
        status = open_notify(replicate, err);
    if (status == DDP_OK)
        status = make_environment(replicate, err);
    if (status != DDP_OK)
        return status;
    /* Standard output belongs to the workers. */
    replicate->null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (replicate->null < 0)
        return ddpi_error_sys(err, errno, "cannot open /dev/null");
    replicate->request =
        (struct spawn_request){.path = replicate->path,
                               .argv = replicate->words,
                               .envp = replicate->envp,
                               .stdio = {replicate->null, replicate->null, STDERR_FILENO}};
    *ret = &replicate->request;
    return DDP_OK;
}

/* The socket's name is open to all users of this machine, so the sender's user decides. */
bool replicate_hears_ready(int notify)
{
    static const char ready[] = "READY=1";
    char says[64];
    union {
        struct cmsghdr aligned;
        char bytes[CMSG_SPACE(sizeof(struct ucred))];
    } control;
    struct ucred sender;
    struct iovec part = {.iov_base = says, .iov_len = sizeof says};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof control.bytes};
    ssize_t len = recvmsg(notify, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (len != (ssize_t)sizeof ready - 1 || memcmp(says, ready, (size_t)len) != 0)
        return false;
    const struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    if (head == NULL || head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_CREDENTIALS ||
        head->cmsg_len != CMSG_LEN(sizeof sender))
        return false;
    memcpy(&sender, CMSG_DATA(head), sizeof sender);
    return sender.uid == geteuid();
}

void replicate_finish(struct replicate *replicate)
{
    for (unsigned i = 0; i < replicate->count; i++)
        ddpi_free(replicate->words[i]);
    ddpi_free(replicate->path);
    ddpi_free(replicate->envp);
    ddpi_free(replicate->notify_word);
    if (replicate->notify > 0)
        close(replicate->notify);
    if (replicate->null > 0)
        close(replicate->null);
    *replicate = (struct replicate){0};
}
