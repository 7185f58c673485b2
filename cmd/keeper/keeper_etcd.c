/*
 * keeper_etcd.c - see keeper_etcd.h.
 */
#include "keeper_etcd.h"

#include "certificate.h"
#include "error.h"
#include "mem.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define LOG "etcd.log"

enum {
    VERSION_MS = 10000,
    ELECTION_SHARE = 4, /* of the lease */
    HEARTBEATS = 10,    /* in an election timeout */
    SNAPSHOT_COUNT = 5000,
    WORDS_MAX = 40,
    WORD_MAX = DDPI_CLUSTER_LIST_TEXT + 128,
};

/* ---- which etcd ---- */

static bool is_program(const char *folder, size_t len, char ret[256])
{
    return len > 0 && folder[0] == '/' && snprintf(ret, 256, "%.*s/etcd", (int)len, folder) < 256 &&
           access(ret, X_OK) == 0;
}

static bool find_program(char ret[256])
{
    const char *path = getenv("PATH"), *folder;
    size_t len;
    for (const char *cursor = path;
         cursor != NULL && ddpi_parse_list_next(&cursor, ':', &folder, &len);)
        if (is_program(folder, len, ret))
            return true;
    return is_program("/usr/bin", strlen("/usr/bin"), ret);
}

/* What the program prints, as much as fits. */
static ddp_status ask_version(const char *program, char *text, size_t size, struct ddp_error *err)
{
    char name[] = "etcd", option[] = "--version";
    char *argv[] = {name, option, NULL}, *envp[] = {NULL};
    int out = memfd_create("etcd-version", MFD_CLOEXEC);
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    struct spawn_child child;
    const struct spawn_request request = {
        .path = program, .argv = argv, .envp = envp, .stdio = {null, out, null}};
    ddp_status status = out < 0 || null < 0 ? ddpi_error_sys(err, errno, "cannot ask etcd")
                                            : spawn_process(&request, &child, err);
    if (status == DDP_OK) {
        struct pollfd over = {.fd = child.pidfd, .events = POLLIN};
        if (poll(&over, 1, VERSION_MS) <= 0)
            kill(child.pid, SIGKILL);
        waitpid(child.pid, NULL, 0);
        close(child.pidfd);
        ssize_t len = pread(out, text, size - 1, 0);
        text[len > 0 ? len : 0] = '\0';
    }
    close(out);
    close(null);
    return status;
}

static bool is_at_least(const char *version, const char *series, int64_t least)
{
    int64_t patch;
    return strncmp(version, series, strlen(series)) == 0 &&
           ddpi_parse_int(version + strlen(series), least, INT32_MAX, &patch, NULL) == DDP_OK;
}

ddp_status keeper_etcd_find(struct keeper_etcd *etcd, struct ddp_error *err)
{
    static const char says[] = "etcd Version: ";
    char text[256];
    if (!find_program(etcd->program))
        return ddpi_error_set(err, DDP_E_UNSUPPORTED,
                              "--cluster needs etcd, and there is none in PATH; install it "
                              "(Debian: etcd-server)");
    ddp_status status = ask_version(etcd->program, text, sizeof text, err);
    if (status != DDP_OK)
        return status;
    const char *version = strncmp(text, says, strlen(says)) == 0 ? text + strlen(says) : "";
    snprintf(etcd->version, sizeof etcd->version, "%.*s", (int)strcspn(version, "\r\n"), version);
    if (is_at_least(etcd->version, "3.4.", 16) || is_at_least(etcd->version, "3.5.", 3))
        return DDP_OK;
    if (etcd->version[0] == '\0')
        return ddpi_error_set(err, DDP_E_UNSUPPORTED, "'%s --version' names no version of etcd",
                              etcd->program);
    return ddpi_error_set(err, DDP_E_UNSUPPORTED,
                          "%s is etcd %s; --cluster needs 3.4.16 or 3.5.3, or a later one of "
                          "3.4 or 3.5 (Debian: etcd-server)",
                          etcd->program, etcd->version);
}

/* ---- the certificate ---- */

/* The key belongs to the list as well: another list of the same user is another cluster. */
static void derive_secret(const struct ddpi_cluster_list *list, const struct ddpi_credential *token,
                          uint8_t ret[DDPI_KEY_SIZE])
{
    char text[DDPI_CLUSTER_LIST_TEXT], info[DDPI_CLUSTER_LIST_TEXT + 32];
    ddpi_cluster_list_put(list, text);
    int len = snprintf(info, sizeof info, "ddprun cluster 1 %s", text);
    ddpi_hkdf_expand(token->secret, info, (size_t)len, ret, DDPI_KEY_SIZE);
}

ddp_status keeper_etcd_certify(const struct keeper_etcd *etcd, const struct ddpi_credential *token,
                               struct ddp_error *err)
{
    struct ddpi_certificate made;
    uint8_t secret[DDPI_KEY_SIZE];
    const char *hosts[DDPI_CLUSTER_SIZE];
    for (unsigned i = 0; i < DDPI_CLUSTER_SIZE; i++)
        hosts[i] = etcd->list->at[i].host;
    derive_secret(etcd->list, token, secret);
    ddp_status status = ddpi_certificate_make(secret, hosts, DDPI_CLUSTER_SIZE, &made, err);
    ddpi_wipe(secret, sizeof secret);
    if (status == DDP_OK)
        status = keeper_folder_write(etcd->folder, "peer.crt", made.certificate, err);
    if (status == DDP_OK)
        status = keeper_folder_write(etcd->folder, "peer.key", made.key, err);
    ddpi_wipe(&made, sizeof made);
    return status;
}

/* ---- the start ---- */

struct words {
    char *argv[WORDS_MAX + 1];
    char texts[WORDS_MAX][WORD_MAX];
    unsigned count;
};

static void DDP_PRINTF(2, 3) add(struct words *words, const char *format, ...)
{
    va_list args;
    char *text = words->texts[words->count];
    va_start(args, format);
    vsnprintf(text, WORD_MAX, format, args);
    va_end(args);
    words->argv[words->count++] = text;
}

static void add_peers(struct words *words, const struct keeper_etcd *etcd, bool existing)
{
    char url[DDPI_CLUSTER_ENDPOINT + 8], initial[DDPI_CLUSTER_LIST_TEXT + 64];
    unsigned self = etcd->self->number;
    bool six = strchr(etcd->self->peer_host, ':') != NULL;
    ddpi_cluster_list_peer_url(etcd->list, self, url);
    ddpi_cluster_list_initial(etcd->list, initial);
    add(words, "--listen-peer-urls=https://%s%s%s:%u", six ? "[" : "", etcd->self->peer_host,
        six ? "]" : "", etcd->list->peer_port[self]);
    add(words, "--initial-advertise-peer-urls=%s", url);
    add(words, "--initial-cluster=%s", initial);
    add(words, "--initial-cluster-state=%s", existing ? "existing" : "new");
    add(words, "--peer-cert-file=peer.crt");
    add(words, "--peer-key-file=peer.key");
    add(words, "--peer-trusted-ca-file=peer.crt");
    add(words, "--peer-client-cert-auth");
    add(words, "--experimental-peer-skip-client-san-verification");
}

void keeper_etcd_data(uint64_t life, char name[KEEPER_DATA_NAME])
{
    snprintf(name, KEEPER_DATA_NAME, "data-%016" PRIx64, life);
}

static void add_words(struct words *words, const struct keeper_etcd *etcd, uint64_t life,
                      uint64_t number, bool existing)
{
    char data[KEEPER_DATA_NAME];
    keeper_etcd_data(life, data);
    uint64_t election_ms = etcd->lease_ms / ELECTION_SHARE;
    add(words, "etcd");
    add(words, "--name=m%u", etcd->self->number);
    add(words, "--data-dir=%s", data);
    add(words, "--listen-client-urls=unix://" KEEPER_SOCKET);
    add(words, "--advertise-client-urls=unix://" KEEPER_SOCKET);
    add(words, "--initial-cluster-token=%016" PRIx64, number);
    add_peers(words, etcd, existing);
    add(words, "--pre-vote");
    add(words, "--heartbeat-interval=%" PRIu64, election_ms / HEARTBEATS);
    add(words, "--election-timeout=%" PRIu64, election_ms);
    add(words, "--unsafe-no-fsync"); /* a life never outlasts its machine */
    add(words, "--snapshot-count=%d", SNAPSHOT_COUNT);
    add(words, "--quota-backend-bytes=2147483648");
    add(words, "--auto-compaction-mode=periodic");
    add(words, "--auto-compaction-retention=1m");
}

static int open_log(const struct keeper_etcd *etcd)
{
    char path[KEEPER_PATH + 32];
    snprintf(path, sizeof path, "%s/" LOG, etcd->folder->path);
    return open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
}

ddp_status keeper_etcd_start(const struct keeper_etcd *etcd, uint64_t life, uint64_t number,
                             bool existing, struct keeper_child *child, uv_loop_t *loop,
                             struct ddp_error *err)
{
    char *envp[] = {NULL};
    struct words *words = ddpi_calloc(1, sizeof *words);
    if (words == NULL)
        return ddpi_error_nomem(err, sizeof *words);
    add_words(words, etcd, life, number, existing);
    keeper_folder_clear(etcd->folder, KEEPER_SOCKET);
    int log = open_log(etcd), null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    const struct spawn_request request = {.path = etcd->program,
                                          .argv = words->argv,
                                          .envp = envp,
                                          .folder = etcd->folder->path,
                                          .stdio = {null, log, log}};
    ddp_status status =
        log < 0 || null < 0
            ? ddpi_error_sys(err, errno, "cannot open the log of etcd in '%s'", etcd->folder->path)
            : keeper_child_start(child, loop, &request, err);
    if (log >= 0)
        close(log);
    if (null >= 0)
        close(null);
    ddpi_free(words);
    return status;
}

/* The last line of @text; but of a Go program that panicked, whose stack is last, why it did. */
static const char *find_reason(char *text)
{
    char *last = strrchr(text, '\n'), *reason = last != NULL ? last + 1 : text;
    bool stack = reason[0] == '\t';
    for (char *at = text; stack && (at = strstr(at, "\npanic: ")) != NULL; at++)
        reason = at + 1;
    reason[strcspn(reason, "\n")] = '\0';
    return reason;
}

void keeper_etcd_last_line(const struct keeper_etcd *etcd, char line[KEEPER_ETCD_LINE])
{
    char path[KEEPER_PATH + 32], text[16384];
    snprintf(path, sizeof path, "%s/" LOG, etcd->folder->path);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    off_t size = fd >= 0 ? lseek(fd, 0, SEEK_END) : 0;
    off_t from = size > (off_t)sizeof text - 1 ? size - (off_t)sizeof text + 1 : 0;
    ssize_t len = fd >= 0 ? pread(fd, text, sizeof text - 1, from) : 0;
    if (fd >= 0)
        close(fd);
    while (len > 0 && (text[len - 1] == '\n' || text[len - 1] == ' '))
        len--;
    text[len > 0 ? len : 0] = '\0';
    snprintf(line, KEEPER_ETCD_LINE, "%.*s", KEEPER_ETCD_LINE - 1, find_reason(text));
}
