/*
 * ddprun_options.c - ddprun's option table and the parsers of its particular values. The names,
 * letters, variables and defaults are torchrun's.
 */
#include "ddprun_options.h"

#include "auth_option.h"
#include "error.h"
#include "flight_file.h"
#include "foreign_options.h"
#include "host.h"
#include "local_ranks.h"
#include "signames.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum { RESTARTS_MAX = 1000000, NODES_MAX = 1000000 };

/* A duration that neither an option nor a variable sets. */
#define NOT_GIVEN UINT64_MAX

/* Stays text: counting GPUs asks their driver, which --help does not need. */
static ddp_status parse_workers(const struct option *option, const char *text, void *field,
                                struct ddp_error *err)
{
    ddp_status status = host_check_workers(text, err);
    return status == DDP_OK ? option_text(option, text, field, err) : status;
}

static ddp_status parse_nnodes(const struct option *option, const char *text, void *field,
                               struct ddp_error *err)
{
    (void)option;
    uint32_t *range = field; /* min_nodes, and max_nodes behind it */
    const char *colon = strchr(text, ':');
    char min[32];
    int64_t low, high;
    snprintf(min, sizeof min, "%.*s", colon != NULL ? (int)(colon - text) : 31, text);
    ddp_status status = ddpi_parse_int(min, 1, NODES_MAX, &low, err);
    if (status == DDP_OK)
        status = ddpi_parse_int(colon != NULL ? colon + 1 : min, low, NODES_MAX, &high, err);
    if (status != DDP_OK)
        return ddpi_error_wrap(err, status, "'%s' is not N or MIN:MAX", text);
    range[0] = (uint32_t)low;
    range[1] = (uint32_t)high;
    return DDP_OK;
}

/* "auto", or names of Python modules: "torch,torch.distributed". */
static ddp_status parse_preload(const struct option *option, const char *text, void *field,
                                struct ddp_error *err)
{
    const char *name;
    size_t len;
    for (const char *cursor = text; ddpi_parse_list_next(&cursor, ',', &name, &len);) {
        bool ok = len > 0 && !isdigit((unsigned char)*name) && *name != '.';
        for (size_t i = 0; i < len && ok; i++) /* names may have letters beyond ASCII */
            ok = isalnum((unsigned char)name[i]) || strchr("._", name[i]) != NULL ||
                 (unsigned char)name[i] >= 0x80;
        if (!ok)
            return ddpi_error_set(err, DDP_E_INVALID,
                                  "'%.*s' is not the name of a Python module; name modules as in "
                                  "'torch,numpy', or say 'auto'",
                                  (int)len, name);
    }
    return option_text(option, text, field, err);
}

static ddp_status parse_legacy(const struct option *option, const char *text, void *field,
                               struct ddp_error *err)
{
    (void)option;
    bool dash = strcmp(text, "local-rank") == 0;
    if (!dash && strcmp(text, "local_rank") != 0 && strcmp(text, "1") != 0)
        return ddpi_error_set(err, DDP_E_INVALID, "'%s' is neither local_rank nor local-rank",
                              text);
    *(enum ddprun_legacy *)field = dash ? DDPRUN_LOCAL_DASH : DDPRUN_LOCAL_RANK;
    return DDP_OK;
}

static ddp_status parse_export(const struct option *option, const char *text, void *field,
                               struct ddp_error *err)
{
    struct ddprun_exports *exports = field;
    size_t len = strcspn(text, "=");
    bool ok = len > 0 && !isdigit((unsigned char)*text);
    (void)option;
    for (size_t i = 0; i < len && ok; i++)
        ok = isalnum((unsigned char)text[i]) || text[i] == '_';
    if (!ok)
        return ddpi_error_set(err, DDP_E_INVALID, "'%.64s' is neither NAME nor NAME=VALUE", text);
    if (exports->count == DDPRUN_EXPORTS_MAX)
        return ddpi_error_set(err, DDP_E_INVALID, "more than %d variables are given",
                              DDPRUN_EXPORTS_MAX);
    exports->names[exports->count++] = text;
    return DDP_OK;
}

/* "10 100", as horovodrun has it in two arguments, or "10:100": seconds, or with a unit. */
static ddp_status parse_cooldown(const struct option *option, const char *text, void *field,
                                 struct ddp_error *err)
{
    struct blacklist_range *range = field, parsed;
    char min[32];
    size_t len = strcspn(text, ": ");
    snprintf(min, sizeof min, "%.*s", len < sizeof min ? (int)len : 31, text);
    uint64_t most = (uint64_t)option->max;
    ddp_status status = text[len] == '\0'
                            ? DDP_E_INVALID
                            : ddpi_parse_duration_ms(min, 1000, most, &parsed.min_ms, NULL);
    if (status == DDP_OK)
        status = ddpi_parse_duration_ms(text + len + 1, 1000, most, &parsed.max_ms, NULL);
    if (status != DDP_OK || parsed.min_ms == 0 || parsed.min_ms > parsed.max_ms)
        return ddpi_error_set(err, DDP_E_INVALID,
                              "'%s' is not MIN:MAX, two durations such as 10:100", text);
    *range = parsed;
    return DDP_OK;
}

static ddp_status parse_conf(const struct option *option, const char *text, void *field,
                             struct ddp_error *err)
{
    (void)option;
    return rdzv_conf_parse(text, field, err);
}

static ddp_status parse_endpoints(const struct option *option, const char *text, void *field,
                                  struct ddp_error *err)
{
    (void)option;
    if (*text == '\0')
        return DDP_OK; /* torchrun's way to say "none" */
    return ddpi_parse_endpoints(text, field, err);
}

static ddp_status parse_event_handler(const struct option *option, const char *text, void *field,
                                      struct ddp_error *err)
{
    (void)option;
    bool console = strcmp(text, "console") == 0;
    if (!console && strcmp(text, "null") != 0)
        return ddpi_error_set(err, DDP_E_UNSUPPORTED, "'%s' is not served; use console or null",
                              text);
    *(const char **)field = console ? "-" : NULL;
    return DDP_OK;
}

/* These stay text: what they mean depends on how many workers there are. */
static ddp_status parse_streams_text(const struct option *option, const char *text, void *field,
                                     struct ddp_error *err)
{
    uint8_t bits[HOST_NPROC_MAX];
    ddp_status status = local_ranks_parse_streams(text, HOST_NPROC_MAX, bits, err);
    return status == DDP_OK ? option_text(option, text, field, err) : status;
}

static ddp_status parse_filter_text(const struct option *option, const char *text, void *field,
                                    struct ddp_error *err)
{
    bool hidden[HOST_NPROC_MAX];
    ddp_status status = local_ranks_parse_filter(text, HOST_NPROC_MAX, hidden, err);
    return status == DDP_OK ? option_text(option, text, field, err) : status;
}

/* Stays text too, as the workers see it in TORCHELASTIC_SIGNALS_TO_HANDLE. */
static ddp_status parse_signals_text(const struct option *option, const char *text, void *field,
                                     struct ddp_error *err)
{
    sigset_t set;
    ddp_status status = signame_parse_list(text, &set, err);
    return status == DDP_OK ? option_text(option, text, field, err) : status;
}

#define FIELD(member) offsetof(struct ddprun_options, member)
#define JOB           "The job"
#define RESTART       "Failures and signals"
#define OUTPUT        "Output"
#define PROGRAM       "The program"
#define HOSTS         "Hosts, started from here"
#define MEETING       "Where nodes and workers meet"
#define OTHER         "Other"

#define HOURS_MS (INT64_C(3600) * 1000)

static const struct option table[] = {
    {"nproc-per-node", 0, "N", "PET_NPROC_PER_NODE", "1", JOB,
     "number of workers to start on this node; 'cpu': one per CPU that this process may use, "
     "'gpu': one per GPU, 'auto': gpu if there is one, else cpu",
     parse_workers, FIELD(workers), 0, 0},
    {"nnodes", 0, "N|MIN:MAX", "PET_NNODES", "1:1", JOB,
     "number of nodes; run this command on each. With MIN:MAX the job continues while at least MIN "
     "nodes are left, and takes in new nodes up to MAX",
     parse_nnodes, FIELD(min_nodes), 0, 0},
    {"node-rank", 0, "N", "PET_NODE_RANK", "by name", JOB, "preferred rank of this node",
     option_u32, FIELD(node_rank), 0, NODES_MAX - 1},
    {"standalone", 0, NULL, "PET_STANDALONE", NULL, JOB,
     "run on this node alone, with a random id and free ports; overrides --rdzv-endpoint and "
     "--rdzv-id",
     option_switch, FIELD(standalone), 0, 0},
    {"rdzv-id", 0, "ID", "PET_RDZV_ID", "random with one node", JOB,
     "name of the job. Nodes without one are one job at a node's store; a ddprund refuses them",
     option_text, FIELD(rdzv_id), 0, 0},
    {"role", 0, "NAME", "PET_ROLE", "default", JOB,
     "role of the workers; they see it as ROLE_NAME, and their lines begin with it", option_text,
     FIELD(agent.role), 0, 0},

    {"hosts", 'H', "HOST[:SLOTS],...", NULL, NULL, HOSTS,
     "run the job on these hosts, with SLOTS workers on each (--nproc-per-node where none are "
     "given): start ddprun on each by ssh, end all when the job ends. n[01-04]:8 is four hosts",
     option_text, FIELD(hosts), 0, 0},
    {"hostfile", 0, "FILE", NULL, NULL, HOSTS,
     "read the hosts from FILE, with a line HOST slots=N or HOST:N for each", option_text,
     FIELD(hostfile), 0, 0},
    {"np", 0, "N", NULL, NULL, HOSTS,
     "number of workers of the job, on the first hosts that have enough slots; without hosts: "
     "--nproc-per-node=N",
     option_u32, FIELD(np), 1, NODES_MAX},
    {"include", 0, "HOST[:SLOT,...]@...", NULL, NULL, HOSTS,
     "use only these hosts and slots of the list; the slots are CUDA_VISIBLE_DEVICES there",
     option_text, FIELD(include), 0, 0},
    {"exclude", 0, "HOST[:SLOT,...]@...", NULL, NULL, HOSTS, "use all but these", option_text,
     FIELD(exclude), 0, 0},
    {"export", 'x', "NAME[=VALUE]", NULL, NULL, HOSTS,
     "set this variable on the other hosts too; may be repeated. PATH, LD_LIBRARY_PATH, LANG, "
     "VIRTUAL_ENV and names that begin with PYTHON, CUDA_, NCCL_, OMP_, TORCH, DDP or PET_ always "
     "are",
     parse_export, FIELD(exports), 0, 0},
    {"launcher", 0, "COMMAND", "DDPRUN_LAUNCHER", "ssh -o BatchMode=yes -o ServerAliveInterval=5",
     HOSTS, "run COMMAND HOST LINE to start the shell command LINE on HOST", option_text,
     FIELD(launcher), 0, 0},
    {"start-timeout", 0, "DURATION", NULL, "30s", HOSTS,
     "give up on a host on which ddprun does not run after this long", option_duration,
     FIELD(start_timeout_ms), 1, HOURS_MS},
    {"host-discovery-script", 0, "PROGRAM", NULL, NULL, HOSTS,
     "ask PROGRAM for the hosts every second; it prints a line HOST or HOST:SLOTS for each. New "
     "ones join the job up to --nnodes=MIN:MAX, others leave it",
     option_text, FIELD(discovery), 0, 0},
    {"blacklist-cooldown-range", 0, "MIN:MAX", NULL, "never", HOSTS,
     "try a host of --host-discovery-script that has failed again after MIN, twice as long after "
     "each further failure, at most MAX",
     parse_cooldown, FIELD(cooldown), 0, 24 * HOURS_MS},
    {"leash", 0, NULL, NULL, NULL, NULL,
     "what ddprun gives to the ddprun that it starts on each host: read the token, variables and "
     "signals from standard input, end the job when that ends",
     option_switch, FIELD(leash), 0, 0},

    {"rdzv-backend", 0, "static|c10d", "PET_RDZV_BACKEND", "static", MEETING,
     "read the other options as this backend of torchrun does; the store is ddprun's own in both "
     "cases",
     option_choice, FIELD(rdzv_backend), 0, 0},
    {"rdzv-endpoint", 0, "HOST[:PORT],...", "PET_RDZV_ENDPOINT", NULL, MEETING,
     "where the nodes meet: the address of a ddprund, or else of the node that then hosts the "
     "store, such as node1:29400 (the default port). Several addresses: ddprund with one etcd. One "
     "node: loopback address of the store; with static, MASTER_ADDR and MASTER_PORT",
     parse_endpoints, FIELD(rdzv_endpoints), 0, 0},
    {"replicate", 0, NULL, "DDPRUN_REPLICATE", NULL, MEETING,
     "keep the store on three nodes, of which any may die; needs etcd", option_switch,
     FIELD(replicate), 0, 0},
    {"rdzv-conf", 0, "LIST", "PET_RDZV_CONF", NULL, MEETING,
     "torchrun's settings as KEY=VALUE,...: join_timeout or timeout (like --join-timeout), "
     "last_call_timeout (like --settle), keep_alive_interval times keep_alive_max_attempt (like "
     "--lease), in seconds; is_host (this node has the store); others: ignored",
     parse_conf, FIELD(conf), 0, 0},
    {"settle", 0, "DURATION", NULL, "1s", MEETING,
     "at the first start, wait this long for more nodes once MIN are there; start at once when MAX "
     "are there",
     option_duration, FIELD(settle_ms), 0, 24 * HOURS_MS},
    {"join-timeout", 0, "DURATION", NULL, "10m", MEETING,
     "give up after this long without store or nodes", option_duration, FIELD(join_timeout_ms), 1,
     24 * HOURS_MS},
    {"join-policy", 0, "now|checkpoint|never", NULL, "now", MEETING,
     "when to take in a node that arrives while workers run: restart them now; at the next "
     "checkpoint (a worker sets the key ddprun/checkpoint); never: with the next restart",
     option_choice, FIELD(join_policy), 0, 0},
    {"lease", 0, "DURATION", NULL, "3s", MEETING,
     "declare a node lost after this much silence; it kills its own workers before that",
     option_duration, FIELD(lease_ms), 200, HOURS_MS},
    {"token-file", 0, "FILE", "DDPRUN_TOKEN_FILE", "~/.config/ddprun/token", MEETING,
     "shared secret by which nodes and store authenticate each other; on a loopback address it is "
     "used only if the file exists",
     option_text, FIELD(token_file), 0, 0},
    AUTH_OPTIONS("DDPRUN", MEETING, FIELD(auth), FIELD(trust_local_users)),
    {"tls", 0, NULL, "DDPRUN_TLS", NULL, MEETING,
     "encrypt connections between nodes and the store (TLS 1.3, keyed by the token); PyTorch's "
     "store clients cannot, so rank 0 then hosts PyTorch's own store, unencrypted",
     option_switch, FIELD(agent.tls), 0, 0},
    {"tls-ranks", 0, NULL, "DDPRUN_TLS_RANKS", NULL, MEETING,
     "encrypt libddpcomm's data between nodes, too; this is slower", option_switch,
     FIELD(agent.tls_ranks), 0, 0},
    {"master-addr", 0, "HOST", "PET_MASTER_ADDR", "127.0.0.1", MEETING,
     "MASTER_ADDR of the workers", option_text, FIELD(master_addr), 0, 0},
    {"master-port", 0, "PORT", "PET_MASTER_PORT", "a free port", MEETING,
     "MASTER_PORT of the workers: a port that rank 0 may bind", option_u32, FIELD(master_port), 0,
     65535},
    {"local-addr", 0, "HOST", "PET_LOCAL_ADDR", NULL, MEETING,
     "address of this node for the other nodes and their ranks: MASTER_ADDR if rank 0 runs here, "
     "unless --master-addr is given",
     option_text, FIELD(local_addr), 0, 0},

    {"max-restarts", 0, "K", "PET_MAX_RESTARTS", "0", RESTART,
     "restart all workers after a failure, up to K times", option_u32, FIELD(agent.max_restarts), 0,
     RESTARTS_MAX},
    {"shutdown-timeout", 0, "DURATION", "PET_SHUTDOWN_TIMEOUT TORCH_ELASTIC_SHUTDOWN_TIMEOUT",
     "30s", RESTART,
     "give workers this long to stop (after SIGTERM, or the signal that arrived) before killing "
     "them; seconds, or with a unit: 500ms, 2m",
     option_duration, FIELD(agent.shutdown_timeout_ms), 0, 24 * HOURS_MS},
    {"signal-scope", 0, "main|group", NULL, "main", RESTART,
     "signal a worker's main program, or its group", option_choice, FIELD(agent.signal_scope), 0,
     0},
    {"failure-timeout", 0, "DURATION", NULL, "1s", RESTART,
     "give workers this long to stop after another worker failed or was lost", option_duration,
     FIELD(agent.failure_timeout_ms), 0, 24 * HOURS_MS},
    {"gpu-memory-timeout", 0, "DURATION", NULL, "5s", RESTART,
     "before a restart, wait this long for the GPU memory of the previous workers to be freed; "
     "then name the processes that still hold it",
     option_duration, FIELD(agent.gpu_memory_timeout_ms), 0, HOURS_MS},
    {"crash-loop", 0, "K", NULL, "5", RESTART,
     "give up with exit code 93 after K identical failures in 30 s or more, each within 10 s of "
     "its start; 0: never",
     option_u32, FIELD(crash_loop), 0, 1000},
    {"node-check", 0, "COMMAND", NULL, NULL, RESTART,
     "leave this node out if this shell command fails, before it joins and before each generation",
     option_text, FIELD(node_check), 0, 0},
    {"node-check-timeout", 0, "DURATION", NULL, "60s", RESTART,
     "a node check that takes longer is ended, and has failed", option_duration,
     FIELD(agent.node_check_timeout_ms), 1, 24 * HOURS_MS},
    {"quarantine", 0, "K", NULL, "0", RESTART,
     "leave a node out that was the first cause of K failures in a row; 0: never", option_u32,
     FIELD(quarantine), 0, 1000},
    {"signals-to-handle", 0, "LIST", "PET_SIGNALS_TO_HANDLE", "SIGTERM,SIGINT,SIGHUP,SIGQUIT",
     RESTART, "signals that end the job: pass the first to the workers, kill them at the second",
     parse_signals_text, FIELD(signals_to_handle), 0, 0},
    {"forward-signals", 0, "LIST", NULL, "SIGUSR1,SIGUSR2", RESTART,
     "signals to pass to the workers without ending the job", parse_signals_text,
     FIELD(forward_signals), 0, 0},
    {"monitor-interval", 0, "DURATION", "PET_MONITOR_INTERVAL", NULL, RESTART,
     "accepted for compatibility with torchrun; ddprun does not poll", option_duration,
     FIELD(monitor_interval_ms), 0, 24 * HOURS_MS},

    {"log-dir", 0, "DIR", "PET_LOG_DIR", NULL, OUTPUT,
     "write logs and error files below DIR, as ID_RANDOM/attempt_N/LOCAL_RANK/; DIR/latest is the "
     "last run",
     option_text, FIELD(log_dir), 0, 0},
    {"redirects", 'r', "STREAMS", "PET_REDIRECTS", "0", OUTPUT,
     "write to files instead of the console: 1 stdout, 2 stderr, 3 both; or by local rank: 0:3,1:2",
     parse_streams_text, FIELD(redirects), 0, 0},
    {"tee", 't', "STREAMS", "PET_TEE", "0", OUTPUT,
     "write to files and to the console; STREAMS as with --redirects", parse_streams_text,
     FIELD(tee), 0, 0},
    {"local-ranks-filter", 0, "LIST", "PET_LOCAL_RANKS_FILTER", "all", OUTPUT,
     "show only these local ranks on the console, such as 0,1", parse_filter_text,
     FIELD(local_ranks_filter), 0, 0},
    {"duplicate-stdout-filters", 0, "LIST", "PET_DUPLICATE_STDOUT_FILTERS", NULL, OUTPUT,
     "copy lines of --tee that contain one of these words to attempt_N/filtered_stdout.log; "
     "separate words by commas (two commas: a comma within a word)",
     option_text, FIELD(agent.filters[0]), 0, 0},
    {"duplicate-stderr-filters", 0, "LIST", "PET_DUPLICATE_STDERR_FILTERS", NULL, OUTPUT,
     "likewise for stderr", option_text, FIELD(agent.filters[1]), 0, 0},
    {"log-line-prefix-template", 0, "TEXT",
     "PET_LOG_LINE_PREFIX_TEMPLATE TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE",
     "[${role_name}${local_rank}]:", OUTPUT,
     "print this before each line on the console; ${role_name}, ${local_rank}, ${rank} and "
     "${hostname} are replaced",
     option_text, FIELD(line_template), 0, 0},
    {"quiet", 'q', NULL, "PET_QUIET", NULL, OUTPUT,
     "of ddprun itself print only errors and the report of a failure", option_switch, FIELD(quiet),
     0, 0},
    {"verbose", 'v', NULL, "PET_VERBOSE", NULL, OUTPUT,
     "print what ddprun does, too; overrides --quiet", option_switch, FIELD(verbose), 0, 0},
    {"no-prefix", 0, NULL, NULL, NULL, OUTPUT,
     "print lines without a prefix, for output that a program reads", option_switch,
     FIELD(no_prefix), 0, 0},
    {"pty", 0, NULL, NULL, NULL, OUTPUT,
     "connect workers to terminals instead of pipes, so that they print progress bars and colours; "
     "the default for a single worker if ddprun itself is on a terminal",
     option_switch, FIELD(pty), 0, 0},
    {"no-pty", 0, NULL, NULL, NULL, OUTPUT, "always use pipes", option_switch, FIELD(no_pty), 0, 0},
    {"event-log-handler", 0, "console|null", "PET_EVENT_LOG_HANDLER", NULL, OUTPUT,
     "torchrun's name for --event-log: console means --event-log=-, null means none",
     parse_event_handler, FIELD(event_log), 0, 0},
    {"event-log", 0, "FILE", NULL, NULL, OUTPUT,
     "append the events of the job on this node to FILE, one JSON object per line; '-': standard "
     "error",
     option_text, FIELD(event_log), 0, 0},
    {"metrics-listen", 0, "ADDRESS", "DDPRUN_METRICS_LISTEN", NULL, OUTPUT,
     "serve a page, /metrics for Prometheus and /healthz at [HOST:]PORT; beyond loopback clients "
     "need a token",
     option_text, FIELD(metrics_listen), 0, 0},
    {"metrics-token-file", 0, "FILE", "DDPRUN_METRICS_TOKEN_FILE", "~/.config/ddprun/metrics-token",
     OUTPUT, "that token, which is made if there is none", option_text, FIELD(metrics_token_file),
     0, 0},
    {"metrics-textfile", 0, "FILE", "DDPRUN_METRICS_TEXTFILE", NULL, OUTPUT,
     "write the metrics to FILE every 15 s, for node_exporter", option_text,
     FIELD(metrics_textfile), 0, 0},
    {"timeline-filename", 0, "FILE", "DDP_TIMELINE", NULL, OUTPUT,
     "rank 0 writes a Chrome trace of the tensors that libddpcomm reduces in any order "
     "(ddprun/ddp_tensors.h) to FILE; the name is horovodrun's",
     option_text, FIELD(agent.timeline), 0, 0},
    {"flight-records", 0, "N", "DDPRUN_FLIGHT_RECORDS", "2048", OUTPUT,
     "keep the last N operations of libddpcomm that each worker called, 64 bytes each, for ddpctl "
     "dump; N is rounded up to a power of two; 0: none",
     option_u32, FIELD(agent.flight_records), 0, DDPI_FLIGHT_RECORDS_MAX},

    {"module", 'm', NULL, "PET_MODULE", NULL, PROGRAM,
     "run PROGRAM as a Python module: python3 -u -m PROGRAM", option_switch, FIELD(module), 0, 0},
    {"no-python", 0, NULL, "PET_NO_PYTHON", NULL, PROGRAM,
     "execute PROGRAM itself even if its name ends in .py", option_switch, FIELD(no_python), 0, 0},
    {"preload", 0, "MODULES", "DDPRUN_PRELOAD", NULL, PROGRAM,
     "keep an idle process that has imported these Python modules (torch,numpy), and fork the "
     "workers of a script from it after a restart; auto: the installed packages that it imports",
     parse_preload, FIELD(preload), 0, 0},
    {"virtual-local-rank", 0, NULL, "PET_VIRTUAL_LOCAL_RANK", NULL, PROGRAM,
     "set LOCAL_RANK=0 in every worker, and CUDA_VISIBLE_DEVICES to its own GPU", option_switch,
     FIELD(agent.virtual_local_rank), 0, 0},
    {"numa-binding", 0, "node|socket|exclusive|core-complex", NULL, NULL, PROGRAM,
     "let each worker run only on the processors of the NUMA node of its GPU (without GPUs: of its "
     "share of the nodes), of that node's socket, on cores of the node that no other worker has, "
     "or on those that share a last-level cache",
     option_choice, FIELD(numa_binding), 0, 0},
    {"mpi", 0, "auto|pmi|pmix", NULL, "auto", PROGRAM,
     "serve MPI programs by PMI-1 (MPICH's family), by PMIx (Open MPI), or by what each asks for",
     option_choice, FIELD(mpi), 0, 0},
    {"tf-config", 0, NULL, NULL, NULL, PROGRAM,
     "set TF_CONFIG, for TensorFlow's MultiWorkerMirroredStrategy", option_switch, FIELD(tf_config),
     0, 0},
    {"start-method", 0, "spawn", "PET_START_METHOD", NULL, PROGRAM,
     "accepted for compatibility with torchrun; it has no effect", option_choice,
     FIELD(start_method), 0, 0},
    {"use-env", 0, NULL, NULL, NULL, PROGRAM,
     "accepted for compatibility with torch.distributed.launch; workers always have LOCAL_RANK",
     option_switch, FIELD(use_env), 0, 0},
    {"legacy-local-rank", 0, "[=local_rank|local-rank]", NULL, NULL, PROGRAM,
     "give each worker its local rank as the first argument, as torch.distributed.launch does: "
     "--local_rank=N, or with the value local-rank --local-rank=N (PyTorch 2.0 and newer)",
     parse_legacy, FIELD(legacy_local_rank), 0, 0},

    {"help", 0, NULL, NULL, NULL, OTHER, "print this list and exit", option_show, FIELD(help), 0,
     0},
    {"usage", 'h', NULL, NULL, NULL, OTHER, "print a summary with examples and exit", option_show,
     FIELD(usage), 0, 0},
    {"dry-run", 0, NULL, NULL, NULL, OTHER,
     "print what would be started, with which environment, and where each option is from; start "
     "nothing",
     option_switch, FIELD(dry_run), 0, 0},
    {"print-completion", 0, "bash|zsh|fish", NULL, NULL, OTHER,
     "print what this shell reads to complete the options of ddprun, and exit", option_choice,
     FIELD(completion), 0, 0},
    {"version", 0, NULL, NULL, NULL, OTHER, "print the version and exit", option_show,
     FIELD(version), 0, 0},

    {"run-path", 0, NULL, "PET_RUN_PATH", NULL, OTHER,
     "ddprun has no Python interpreter inside; give the script as the program instead", NULL, 0, 0,
     0},
    {"logs-specs", 0, "NAME", NULL, NULL, OTHER,
     "Python plug-ins cannot be loaded; use --log-dir, --redirects and --tee", NULL, 0, 0, 0},
};

static void note_source(void *config, const struct option *option, const char *variable, size_t len,
                        const char *text)
{
    struct ddprun_options *options = config;
    if (options->source_count < DDPRUN_SOURCES_MAX)
        options->sources[options->source_count++] =
            (struct ddprun_source){option, variable, len, text};
}

const struct option_table ddprun_option_table = {
    .program = "ddprun",
    .refused_heading = "Options of torchrun that ddprun refuses, with a reason",
    .options = table,
    .count = sizeof table / sizeof *table,
    .foreign = ddprun_foreign_options,
    .runs_program = true,
    .taken = note_source,
};

void ddprun_options_init(struct ddprun_options *options)
{
    *options = (struct ddprun_options){
        .workers = "1",
        .agent.role = "default",
        .redirects = "0",
        .tee = "0",
        .signals_to_handle = "SIGTERM,SIGINT,SIGHUP,SIGQUIT",
        .forward_signals = "SIGUSR1,SIGUSR2",
        .master_port = UINT32_MAX,
        .node_rank = UINT32_MAX,
        .crash_loop = 5,
        .completion = COMPLETION_NONE,
        .numa_binding = BINDING_NONE,
        .agent.signal_scope = SIGNAL_MAIN,
        .agent.flight_records = DDPI_FLIGHT_RECORDS_DEFAULT,
        .agent.shutdown_timeout_ms = 30000,
        .agent.failure_timeout_ms = 1000,
        .agent.node_check_timeout_ms = 60000,
        .agent.gpu_memory_timeout_ms = 5000,
        .settle_ms = NOT_GIVEN,
        .lease_ms = NOT_GIVEN,
        .join_timeout_ms = NOT_GIVEN,
        .launcher = "ssh -o BatchMode=yes -o ServerAliveInterval=5",
        .start_timeout_ms = 30000,
        .conf = {NOT_GIVEN, NOT_GIVEN, NOT_GIVEN, .is_host = -1},
    };
}

/* An option of our own counts more than what --rdzv-conf says of the same. */
static void settle_on(uint64_t *option_ms, uint64_t conf_ms, uint64_t standard_ms)
{
    if (*option_ms == NOT_GIVEN)
        *option_ms = conf_ms != NOT_GIVEN ? conf_ms : standard_ms;
}

enum voice ddprun_options_voice(const struct ddprun_options *options)
{
    return options->verbose ? VOICE_VERBOSE : options->quiet ? VOICE_QUIET : VOICE_NORMAL;
}

/* What follows such a word are its own options, which have the names of ours. */
static bool is_launcher(const char *word)
{
    static const char *const names[] = {"ddprun", "torchrun", "torch.distributed.run",
                                        "torch.distributed.launch"};
    const char *slash = strrchr(word, '/');
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(slash != NULL ? slash + 1 : word, names[i]) == 0)
            return true;
    return false;
}

const char *ddprun_options_misplaced(char *const *operands)
{
    static const char *const groups[] = {JOB, MEETING, RESTART};
    for (; *operands != NULL && strcmp(*operands, "--") != 0 && !is_launcher(*operands);
         operands++) {
        const struct option *option = options_find(&ddprun_option_table, *operands);
        bool listed = option != NULL && option_is_listed(option);
        for (size_t i = 0; listed && i < sizeof groups / sizeof *groups; i++)
            if (strcmp(option->group, groups[i]) == 0)
                return *operands;
    }
    return NULL;
}

bool ddprun_options_have_hosts(const struct ddprun_options *options)
{
    const char *const given[] = {options->hosts, options->hostfile, options->discovery};
    for (size_t i = 0; i < sizeof given / sizeof *given && !options->leash; i++)
        if (given[i] != NULL && *given[i] != '\0')
            return true;
    return false;
}

bool ddprun_options_want_scheduler(const struct ddprun_options *options)
{
    bool meets_elsewhere = options->rdzv_endpoints.count > 0 ||
                           (options->master_addr != NULL && *options->master_addr != '\0') ||
                           options->master_port != UINT32_MAX;
    return !options->standalone && !options->leash && !meets_elsewhere &&
           (options->min_nodes == 0 || options->max_nodes > 1);
}

void ddprun_options_take_scheduler(struct ddprun_options *options, const struct scheduler_job *job)
{
    if (options->min_nodes == 0)
        options->min_nodes = options->max_nodes = job->nodes;
    if (options->max_nodes < 2 || job->host[0] == '\0')
        return;
    struct ddpi_endpoint *endpoint = &options->rdzv_endpoints.at[0];
    options->rdzv_endpoints.count = 1;
    memcpy(endpoint->host, job->host, sizeof endpoint->host);
    endpoint->port = job->port;
    endpoint->has_port = true;
    if (options->conf.is_host < 0 && !job->host_is_any)
        options->conf.is_host = job->node_rank == 0;
    if (options->node_rank == UINT32_MAX)
        options->node_rank = job->node_rank;
    if (options->rdzv_id == NULL || *options->rdzv_id == '\0')
        options->rdzv_id = job->id;
}

void ddprun_options_complete_times(struct ddprun_options *options)
{
    settle_on(&options->settle_ms, options->conf.settle_ms, 1000);
    settle_on(&options->lease_ms, options->conf.lease_ms,
              options->replicate ? DDPRUN_REPLICATE_LEASE_MS : 3000);
    settle_on(&options->join_timeout_ms, options->conf.join_timeout_ms, 600000);
}

ddp_status ddprun_options_complete(struct ddprun_options *options, struct ddp_error *err)
{
    ddprun_options_complete_times(options);
    char np[16];
    if (options->min_nodes == 0)
        options->min_nodes = options->max_nodes = 1;
    snprintf(np, sizeof np, "%u", options->np);
    if (options->np > 0 && !options->leash && !ddprun_options_have_hosts(options))
        return host_count_workers(np, &options->agent.nproc, err);
    ddp_status status = host_count_workers(options->workers, &options->agent.nproc, err);
    return status == DDP_OK
               ? DDP_OK
               : ddpi_error_wrap(err, status, "--nproc-per-node (or PET_NPROC_PER_NODE)");
}
