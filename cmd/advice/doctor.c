/*
 * doctor.c - the verb "doctor": runs the checks of doctor_checks.c, and prints what each has found
 * and what to do about it.
 */
#include "advice.h"
#include "ddpctl.h"
#include "doctor_checks.h"
#include "error.h"
#include "text.h"

extern char **environ;

struct doctor_options {
    bool json, help;
};

#define FIELD(member) offsetof(struct doctor_options, member)

static const struct option table[] = {
    {"json", 0, NULL, NULL, NULL, "Options", "print one JSON object for each check", option_switch,
     FIELD(json), 0, 0},
    OPTION_HELP("Options", FIELD(help)),
};

const struct option_table ddpctl_doctor_table = {
    .program = "ddpctl doctor", .options = table, .count = sizeof table / sizeof *table};

static ddp_status print_finding(const char *name, const struct doctor_finding *finding, bool json,
                                struct ddp_error *err)
{
    static const char *const words[] = {
        [DOCTOR_OK] = "OK", [DOCTOR_WARN] = "WARN", [DOCTOR_FAIL] = "FAIL"};
    const char *verdict = words[finding->verdict];
    if (json)
        return ddpctl_print_json(json_pack("{s:s, s:s, s:s, s:s}", "check", name, "verdict",
                                           verdict, "found", finding->value, "fix", finding->fix),
                                 err);
    printf("%-4s  %-14s  %s\n", verdict, name, finding->value);
    if (finding->verdict != DOCTOR_OK)
        printf("      %-14s  -> %s\n", "", finding->fix);
    return DDP_OK;
}

/* Look at everything. DDPCTL_FAILED: a check has failed. */
static int examine(bool json)
{
    struct ddp_error err;
    int code = DDPCTL_DONE;
    for (const struct doctor_check *check = doctor_checks; check->name != NULL; check++) {
        struct doctor_finding finding = {.verdict = DOCTOR_OK};
        check->look(&finding);
        ddpi_text_mask(finding.value); /* names come from files and from the network */
        ddpi_text_mask(finding.fix);
        if (finding.verdict == DOCTOR_FAIL)
            code = DDPCTL_FAILED;
        if (print_finding(check->name, &finding, json, &err) != DDP_OK) {
            fprintf(stderr, "ddpctl doctor: %s\n", err.msg);
            return DDPCTL_FAILED;
        }
    }
    return code;
}

int ddpctl_doctor(int argc, char **argv)
{
    struct doctor_options options = {.json = false};
    struct ddp_error err;
    int operand, code = DDPCTL_DONE;
    ddp_status status =
        options_parse(&ddpctl_doctor_table, argc, argv, environ, &options, &operand, &err);
    if (status == DDP_OK && !options.help && operand < argc)
        status = ddpi_error_set(&err, DDP_E_INVALID, "'%.64s' is too much: it takes options only",
                                argv[operand]);
    if (status != DDP_OK) {
        fprintf(stderr, "ddpctl doctor: %s\n", err.msg);
        return DDPCTL_USAGE;
    }
    if (options.help) {
        fputs("usage: ddpctl doctor [OPTIONS]\n\nLook at this machine for what jobs need, and say "
              "what to change.\n",
              stdout);
        options_print_help(&ddpctl_doctor_table, stdout);
    } else {
        code = examine(options.json);
    }
    return fflush(stdout) == 0 ? code : DDPCTL_FAILED;
}
