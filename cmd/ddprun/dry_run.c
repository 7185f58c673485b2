/*
 * dry_run.c - prints a plan for a person. What a worker would get is made by the code that makes
 * it; the seat, which only the rounds know, is that of the first node in a job of as many nodes as
 * it may have. Values of variables that look like secrets are not shown.
 */
#include "launcher.h"

#include "buf.h"
#include "shell_words.h"
#include "worker_env.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

extern char **environ;

enum { COLUMN = 14 };

DDP_PRINTF(2, 3) static void print_row(const char *name, const char *format, ...)
{
    va_list args;
    printf("%-*s", COLUMN, name);
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    putchar('\n');
}

void dry_run_print_command(char *const *words)
{
    struct ddpi_buf line;
    ddpi_buf_init(&line, 16 * 1024 * 1024);
    bool ok = true;
    for (; *words != NULL && ok; words++)
        ok = shell_words_add(&line, *words);
    printf("%.*s\n", (int)ddpi_buf_len(&line), (const char *)ddpi_buf_head(&line));
    ddpi_buf_finish(&line);
}

/* ---- the environment ---- */

static bool is_secret(const char *name, size_t len)
{
    static const char *const parts[] = {"TOKEN", "KEY", "SECRET", "PASS", "CRED"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (memmem(name, len, parts[i], strlen(parts[i])) != NULL)
            return true;
    return false;
}

static bool is_inherited(const char *entry)
{
    for (char *const *own = environ; *own != NULL; own++)
        if (strcmp(*own, entry) == 0)
            return true;
    return false;
}

static void print_environment(const struct plan *plan)
{
    const struct agent_config *agent = &plan->agent;
    uint32_t nodes = plan->several ? plan->says.terms.max_nodes : 1;
    struct ddp_round_seat seat = {.generation = 1,
                                  .world_size = nodes * agent->nproc,
                                  .nodes = nodes,
                                  .master_port = plan->meeting.master_port};
    const struct worker_place place = {.config = agent, .seat = &seat, .error_file = ""};
    struct ddp_error err;
    char **envp;
    bool first = true;
    snprintf(seat.master_address, sizeof seat.master_address, "%s",
             plan->several ? plan->multi.endpoint.host : agent->master_addr);
    if (worker_env_make(&place, &envp, &err) != DDP_OK) {
        print_row("environment", "%s", err.msg);
        return;
    }
    for (char **entry = envp; *entry != NULL; entry++) {
        size_t len = strcspn(*entry, "=");
        if (is_inherited(*entry))
            continue;
        bool later = (*entry)[len + 1] == '\0' || strcmp(*entry, "MASTER_PORT=0") == 0 ||
                     strncmp(*entry, "PMI_FD=", 7) == 0;
        print_row(first ? "environment" : "", "%.*s=%s", (int)len, *entry,
                  later                    ? "(chosen at the start)"
                  : is_secret(*entry, len) ? "..."
                                           : *entry + len + 1);
        first = false;
    }
    print_row("", "more is added at the start: addresses, keys and ports");
    worker_env_free(envp);
}

/* ---- the rest ---- */

void dry_run_print_sources(const struct ddprun_options *options)
{
    static const char line[] = "command line";
    for (uint32_t i = 0; i < options->source_count; i++) {
        const struct ddprun_source *source = &options->sources[i];
        bool by_variable = source->variable != NULL;
        print_row(i == 0 ? "options" : "", "--%s=%s  (%.*s)", source->option->name, source->text,
                  by_variable ? (int)source->variable_len : (int)sizeof line - 1,
                  by_variable ? source->variable : line);
    }
}

static void print_nodes(const struct plan *plan, const struct ddprun_options *options,
                        const struct scheduler_job *scheduled)
{
    const struct ddp_round_terms *terms = &plan->says.terms;
    if (!plan->several) {
        print_row("nodes", "this one alone; it has the store");
        return;
    }
    if (options->node_rank == UINT32_MAX)
        print_row("nodes", "%u to %u", terms->min_nodes, terms->max_nodes);
    else
        print_row("nodes", "%u to %u; this one would be %u", terms->min_nodes, terms->max_nodes,
                  options->node_rank);
    print_row("store", "%s%s", plan->store,
              plan->replicate.count > 0  ? ", kept by three machines"
              : plan->multi.is_host > 0  ? ", in this process"
              : plan->multi.is_host == 0 ? ", in another process"
                                         : ", in this process if the address is its machine's");
    if (scheduled->scheduler != NULL)
        print_row("scheduler", "%s, job %s", scheduled->scheduler, scheduled->id);
}

static void print_binding(const struct plan *plan)
{
    for (uint32_t i = 0; plan->binding.sets != NULL && i < plan->agent.nproc; i++) {
        const cpu_set_t *set = binding_of(&plan->binding, i);
        printf("%-*sworker %u on processors", COLUMN, i == 0 ? "binding" : "", i);
        for (size_t cpu = 0; cpu < plan->binding.size * 8; cpu++)
            if (CPU_ISSET_S(cpu, plan->binding.size, set))
                printf(" %zu", cpu);
        putchar('\n');
    }
}

int dry_run_print(const struct plan *plan, const struct ddprun_options *options,
                  const struct scheduler_job *scheduled)
{
    print_message("nothing is started (--dry-run)");
    printf("%-*s", COLUMN, "program");
    dry_run_print_command(plan->program.argv);
    print_row("workers", "%u on this node", plan->agent.nproc);
    print_row("job", "%s", plan->agent.run_id);
    print_nodes(plan, options, scheduled);
    print_binding(plan);
    dry_run_print_sources(options);
    print_environment(plan);
    return fflush(stdout) == 0 ? 0 : 1;
}
