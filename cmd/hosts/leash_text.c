/*
 * leash_text.c - writes and reads the lines of a leash. The variables that every host gets are
 * those of the table below; all others only if the user names them, as a variable may be a secret,
 * or true of this host alone.
 */
#include "leash_text.h"

#include "error.h"
#include "signames.h"

#include <ctype.h>
#include <signal.h>
#include <string.h>

static const char greeting[] = "ddprun leash 1", no_token[] = "-";

/* Ends in '*': all names that begin so. */
static const char *const passed_on[] = {
    "PATH",    "LD_LIBRARY_PATH", "LANG",   "LC_*",     "PYTHON*",   "VIRTUAL_ENV", "CONDA_PREFIX",
    "HF_HOME", "TORCH*",          "CUDA_*", "NVIDIA_*", "NCCL_*",    "UCX_*",       "OMP_*",
    "MKL_*",   "PET_*",           "DDP_*",  "DDPRUN_*", "HOROVOD_*",
};

/* ---- writing ---- */

static bool put_text(struct ddpi_buf *text, const char *word)
{
    return ddpi_buf_append(text, word, strlen(word));
}

static bool put_line(struct ddpi_buf *text, const char *word, const char *value)
{
    return put_text(text, word) && put_text(text, " ") && put_text(text, value) &&
           put_text(text, "\n");
}

bool leash_put_greeting(struct ddpi_buf *text, const char *token_hex)
{
    return put_text(text, greeting) && put_text(text, "\n") &&
           put_line(text, "token", token_hex != NULL ? token_hex : no_token);
}

bool leash_put_variable(struct ddpi_buf *text, const char *entry)
{
    bool ok = put_text(text, "env ");
    while (ok && *entry != '\0') {
        size_t len = strcspn(entry, "\\\n");
        ok = ddpi_buf_append(text, entry, len);
        entry += len;
        if (ok && *entry != '\0')
            ok = put_text(text, *entry++ == '\n' ? "\\n" : "\\\\");
    }
    return ok && put_text(text, "\n");
}

bool leash_put_go(struct ddpi_buf *text)
{
    return put_text(text, "go\n");
}

bool leash_put_signal(struct ddpi_buf *text, int sig)
{
    char name[SIGNAME_MAX];
    return put_line(text, "signal", signame_of(sig, name));
}

/* ---- variables ---- */

static bool is_passed_on(const char *name, size_t len)
{
    for (size_t i = 0; i < sizeof passed_on / sizeof *passed_on; i++) {
        size_t wanted = strlen(passed_on[i]);
        bool begins = passed_on[i][wanted - 1] == '*';
        wanted -= begins;
        if (len >= wanted && (begins || len == wanted) && memcmp(name, passed_on[i], wanted) == 0)
            return true;
    }
    return false;
}

/* Whether @exports names the variable, with a value or without. */
static bool is_named(const char *name, size_t len, const char *const *exports, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (strcspn(exports[i], "=") == len && memcmp(exports[i], name, len) == 0)
            return true;
    return false;
}

static bool put_export(struct ddpi_buf *text, char *const *envp, const char *name)
{
    if (strchr(name, '=') != NULL)
        return leash_put_variable(text, name);
    size_t len = strlen(name);
    for (; *envp != NULL; envp++)
        if (strncmp(*envp, name, len) == 0 && (*envp)[len] == '=')
            return leash_put_variable(text, *envp);
    return true;
}

bool leash_put_environment(struct ddpi_buf *text, char *const *envp, const char *const *exports,
                           size_t count)
{
    bool ok = true;
    for (char *const *entry = envp; *entry != NULL && ok; entry++) {
        size_t len = strcspn(*entry, "=");
        if (is_passed_on(*entry, len) && !is_named(*entry, len, exports, count))
            ok = leash_put_variable(text, *entry);
    }
    for (size_t i = 0; i < count && ok; i++)
        ok = put_export(text, envp, exports[i]);
    return ok;
}

/* ---- reading ---- */

static bool unescape(char *text)
{
    char *to = text;
    for (; *text != '\0'; text++) {
        bool escaped = *text == '\\';
        text += escaped;
        if (escaped && *text != 'n' && *text != '\\')
            return false;
        *to++ = escaped && *text == 'n' ? '\n' : *text;
    }
    *to = '\0';
    return true;
}

/* The value after @word and a blank; NULL: the line begins in another way. */
static char *value_after(char *line, const char *word)
{
    size_t len = strlen(word);
    return strncmp(line, word, len) == 0 && line[len] == ' ' ? line + len + 1 : NULL;
}

static bool is_variable(const char *entry)
{
    size_t len = strcspn(entry, "=");
    bool ok = len > 0 && entry[len] == '=' && !isdigit((unsigned char)*entry);
    for (size_t i = 0; i < len && ok; i++)
        ok = isgraph((unsigned char)entry[i]);
    return ok;
}

static bool parse_signal(const char *name, int *ret)
{
    sigset_t set;
    if (strchr(name, ',') != NULL || signame_parse_list(name, &set, NULL) != DDP_OK)
        return false;
    for (*ret = 1; *ret < NSIG && sigismember(&set, *ret) != 1;)
        ++*ret;
    return *ret < NSIG;
}

ddp_status leash_parse(char *line, struct leash_line *ret, struct ddp_error *err)
{
    struct leash_line parsed = {.kind = LEASH_GREETING};
    bool ok = true;
    if (strcmp(line, "go") == 0) {
        parsed.kind = LEASH_GO;
    } else if ((parsed.text = value_after(line, "token")) != NULL) {
        parsed.kind = LEASH_TOKEN;
        if (strcmp(parsed.text, no_token) == 0)
            *parsed.text = '\0';
    } else if ((parsed.text = value_after(line, "env")) != NULL) {
        parsed.kind = LEASH_VARIABLE;
        ok = unescape(parsed.text) && is_variable(parsed.text);
    } else if ((parsed.text = value_after(line, "signal")) != NULL) {
        parsed.kind = LEASH_SIGNAL;
        ok = parse_signal(parsed.text, &parsed.sig);
    } else if (strncmp(line, greeting, sizeof greeting - 2) == 0) {
        if (strcmp(line, greeting) != 0)
            return ddpi_error_set(err, DDP_E_UNSUPPORTED,
                                  "the launcher speaks '%.40s', and this agent '%s': install the "
                                  "same version of ddprun on all hosts",
                                  line, greeting);
    } else {
        ok = false;
    }
    if (!ok)
        return ddpi_error_set(err, DDP_E_INVALID,
                              "'%.40s' is no line of a launcher: --leash is for the agents that "
                              "ddprun itself starts on the hosts of --hosts",
                              line);
    *ret = parsed;
    return DDP_OK;
}
