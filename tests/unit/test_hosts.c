/*
 * test_hosts.c - lists of hosts and choices among them, the words for their shells, what is said on
 * a leash, and when a host that has failed is tried again.
 */
#include "blacklist.h"
#include "check_main.h"
#include "head_command.h"
#include "host_list.h"
#include "leash_text.h"
#include "mem.h"
#include "shell_words.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct ddp_error error;

/* "user@name:slots/devices ...". */
static void write_list(const struct host_list *list, char *text, size_t size)
{
    *text = '\0';
    for (size_t i = 0; i < list->count; i++) {
        const struct host_entry *entry = &list->entries[i];
        size_t used = strlen(text);
        snprintf(text + used, size - used, "%s%s%s%s:%u%s%s", used > 0 ? " " : "", entry->user,
                 entry->user[0] != '\0' ? "@" : "", entry->name, entry->slots,
                 entry->devices[0] != '\0' ? "/" : "", entry->devices);
    }
}

/* ---- lists ---- */

static const struct {
    bool file;
    const char *text, *list;
} read_rows[] = {
    {false, "a", "a:0"},
    {false, "a:4,b:2", "a:4 b:2"},
    {false, "root@10.0.0.1:4096,b", "root@10.0.0.1:4096 b:0"},
    {false, "n[01-03]:8,x", "n01:8 n02:8 n03:8 x:0"},
    {false, "[fe80::1]:2,[::2]", "fe80::1:2 ::2:0"},
    {true, "a slots=4\nb slots=2\n", "a:4 b:2"},
    {true, "# remark\n\n  a:4   # behind it\nb\tslots=2 max_slots=8", "a:4 b:2"},
    {true, "a\r\nb slots=1\r\n", "a:0 b:1"},
    {true, "n[1-2] slots=3", "n1:3 n2:3"},
    {true, "u@h slots=1 max-slots=2\n", "u@h:1"},
};

START_TEST(what_is_read)
{
    struct host_list list = {0};
    char text[512];
    ddp_status status = read_rows[_i].file
                            ? host_list_add_file(&list, read_rows[_i].text, "file", &error)
                            : host_list_add(&list, read_rows[_i].text, &error);
    ck_assert_msg(status == DDP_OK, "%s", error.msg);
    write_list(&list, text, sizeof text);
    ck_assert_str_eq(text, read_rows[_i].list);
    host_list_finish(&list);
}
END_TEST

static const struct {
    bool file;
    const char *text, *said;
} refused[] = {
    {false, "", "'' is not the name of a host"},
    {false, "a,", "'' is not the name"},
    {false, "-oProxyCommand=x", "'-oProxyCommand=x' is not the name"},
    {false, "u@-x", "is not the name"},
    {false, "a b", "'a b' is not the name"},
    {false, "a;reboot", "is not the name"},
    {false, "$(x)", "is not the name"},
    {false, "a:0", "host 'a': '0' is not a number of slots from 1 to 4096"},
    {false, "a:4097", "'4097' is not a number of slots"},
    {false, "a:", "'' is not a number of slots"},
    {false, "a:b:2", "'b:2' is not a number of slots"},
    {false, "a:2,b,a:1", "host 'a' is listed twice"},
    {false, "n[1-2],n2", "host 'n2' is listed twice"},
    {false, "n[1-99999]", "too many hosts"},
    {true, "", "hosts.txt lists no host"},
    {true, "# a\n\n", "hosts.txt lists no host"},
    {true, "a\nb slots=0\n", "hosts.txt, line 2: '0' is not a number of slots"},
    {true, "a slot=3\n", "hosts.txt, line 1: 'slot=3' is not slots=N"},
    {true, "a\nb\n\na\n", "hosts.txt: host 'a' is listed twice, in lines 1 and 4"},
};

START_TEST(what_is_refused)
{
    struct host_list list = {0};
    ddp_status status = refused[_i].file
                            ? host_list_add_file(&list, refused[_i].text, "hosts.txt", &error)
                            : host_list_add(&list, refused[_i].text, &error);
    ck_assert_int_eq(status, DDP_E_INVALID);
    ck_assert_msg(strstr(error.msg, refused[_i].said) != NULL, "%s", error.msg);
    host_list_finish(&list);
}
END_TEST

START_TEST(ten_thousand_lines)
{
    enum { LINES = 10000, LINE = 32 };
    struct host_list list = {0};
    char *text = ddpi_calloc(LINES, LINE), *end = text;
    for (int i = 0; i < LINES; i++)
        end += snprintf(end, LINE, "host%05d slots=8\n", i);
    ck_assert_int_eq(host_list_add_file(&list, text, "file", &error), DDP_OK);
    ck_assert_uint_eq(list.count, LINES);
    ck_assert_str_eq(list.entries[9999].name, "host09999");
    snprintf(end, LINE, "host00000 slots=8\n");
    host_list_finish(&list);
    ck_assert_int_eq(host_list_add_file(&list, text, "file", &error), DDP_E_INVALID);
    ck_assert_msg(strstr(error.msg, "lines 1 and 10001") != NULL, "%s", error.msg);
    host_list_finish(&list);
    ddpi_free(text);
}
END_TEST

/* ---- choices ---- */

static const struct {
    const char *hosts, *include, *exclude;
    uint32_t workers; /* 0: no limit */
    const char *list; /* NULL: refused ... */
    const char *said; /* ... with this */
} choices[] = {
    {"a:2,b:2", NULL, NULL, 0, "a:2 b:2", NULL},
    {"a:2,b:2", "", "", 0, "a:2 b:2", NULL},
    {"a:2,b:2,c:2", "b@c:1", NULL, 0, "b:2 c:1/1", NULL},
    {"a:4", "a:3,0", NULL, 0, "a:2/0,3", NULL},
    {"a:4", "a:0@a:2", NULL, 0, "a:2/0,2", NULL},
    {"a", "a:0,7", NULL, 0, "a:2/0,7", NULL},
    {"[::1]:2,b:1", "[::1]:1", NULL, 0, "::1:1/1", NULL},
    {"a:2,b:2", NULL, "a", 0, "b:2", NULL},
    {"a:2,b:2", NULL, "a:0", 0, "a:1/1 b:2", NULL},
    {"a:2,b:2", NULL, "a:0,1", 0, "b:2", NULL},
    {"a:2,b:2", "c", NULL, 0, NULL, "host 'c' is not in the list"},
    {"a:2,b:2", "a:2", NULL, 0, NULL, "host 'a' has no slot '2': they go from 0 to 1"},
    {"a:2,b:2", "a:x", NULL, 0, NULL, "no slot 'x'"},
    {"a:2", NULL, "a", 0, NULL, "no host is left"},
    {"a", NULL, "a:1", 0, NULL, "cannot be excluded"},
    {"a:2,b:2,c:2", NULL, NULL, 3, "a:2 b:1", NULL},
    {"a:2,b:2,c:2", NULL, NULL, 2, "a:2", NULL},
    {"a:2,b:2", NULL, NULL, 4, "a:2 b:2", NULL},
    {"a:2,b:2", NULL, NULL, 5, NULL, "5 workers need more slots than the 4"},
    {"a,b:2", NULL, NULL, 2, NULL, "'a' has no number of slots"},
};

START_TEST(what_is_chosen)
{
    struct host_list list = {0};
    char text[256];
    ck_assert_int_eq(host_list_add(&list, choices[_i].hosts, &error), DDP_OK);
    ddp_status status = host_list_choose(&list, choices[_i].include, choices[_i].exclude, &error);
    if (status == DDP_OK && choices[_i].workers > 0)
        status = host_list_limit(&list, choices[_i].workers, &error);
    if (choices[_i].list != NULL) {
        ck_assert_msg(status == DDP_OK, "%s", error.msg);
        write_list(&list, text, sizeof text);
        ck_assert_str_eq(text, choices[_i].list);
    } else {
        ck_assert_int_eq(status, DDP_E_INVALID);
        ck_assert_msg(strstr(error.msg, choices[_i].said) != NULL, "%s", error.msg);
    }
    host_list_finish(&list);
}
END_TEST

/* ---- words ---- */

static const char *const words[] = {
    "plain", "/a/b-c_d.e:1,2@3=4%",  "",     "a b", "it's", "'",
    "!x!",   "$HOME `x` \\ \"q\" *", "a\nb", "~",   "#",
};

/* A shell gets back every word as it was. */
START_TEST(words_survive_a_shell)
{
    struct ddpi_buf line;
    char expected[256], got[256];
    size_t used = 0;
    ddpi_buf_init(&line, 4096);
    ck_assert(ddpi_buf_append(&line, "printf '%s|'", strlen("printf '%s|'")));
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        ck_assert(shell_words_add(&line, words[i]));
        used += (size_t)snprintf(expected + used, sizeof expected - used, "%s|", words[i]);
    }
    ck_assert(ddpi_buf_append(&line, "", 1));
    FILE *shell = popen((const char *)ddpi_buf_head(&line), "r");
    size_t len = fread(got, 1, sizeof got - 1, shell);
    got[len] = '\0';
    ck_assert_int_eq(pclose(shell), 0);
    ck_assert_str_eq(got, expected);
    ddpi_buf_finish(&line);
}
END_TEST

START_TEST(a_launcher_has_words)
{
    char text[] = "  ssh\t-p  22 ", many[] = "a b c d";
    char *split[4];
    ck_assert_uint_eq(shell_words_split(text, split, 3), 3);
    ck_assert_str_eq(split[0], "ssh");
    ck_assert_str_eq(split[2], "22");
    ck_assert_ptr_null(split[3]);
    ck_assert_uint_eq(shell_words_split(many, split, 3), 4);
}
END_TEST

/* ---- the command of a host ---- */

static char launcher_path[] = "/bin/ssh", option[] = "--max-restarts=3", program[] = "./my worker",
            argument[] = "-x";
static char *launcher[] = {launcher_path, NULL}, *given[] = {option, NULL},
            *operands[] = {program, argument, NULL};
static const struct head_command command = {.launcher = launcher,
                                            .this_host = "here",
                                            .folder = "/data/me",
                                            .program = "/usr/bin/ddprun",
                                            .options = given,
                                            .operands = operands,
                                            .job = "j",
                                            .template = "[${rank}]:",
                                            .has_token = true,
                                            .min_nodes = 2,
                                            .max_nodes = 3};

#define OPTIONS_OF_B                                                                        \
    "--max-restarts=3 --nnodes=2:3 --node-rank=1 --nproc-per-node=4 --rdzv-backend=static " \
    "--rdzv-endpoint=10.0.0.9:1 --rdzv-id=j --token-file=/dev/fd/20 "

START_TEST(what_a_host_is_started_with)
{
    const struct host_entry far = {.user = "me", .name = "b", .slots = 4};
    char **argv = head_command_make(&command, &far, 1, "10.0.0.9:1");
    ck_assert_str_eq(argv[0], "/bin/ssh");
    ck_assert_str_eq(argv[1], "me@b");
    ck_assert_str_eq(argv[2], "cd /data/me && exec /usr/bin/ddprun --leash " OPTIONS_OF_B
                              "'--log-line-prefix-template=[${rank}]:' -- './my worker' -x");
    ck_assert_ptr_null(argv[3]);
    ddpi_free(argv);
    static const char *const near[] = {"here", "localhost", "127.0.0.1", "::1"};
    for (size_t i = 0; i < sizeof near / sizeof *near; i++) {
        struct host_entry entry = {.slots = 0};
        snprintf(entry.name, sizeof entry.name, "%s", near[i]);
        ck_assert(head_command_is_local(&command, &entry));
        argv = head_command_make(&command, &entry, 0, "127.0.0.1:1");
        ck_assert_str_eq(argv[0], "/usr/bin/ddprun");
        ck_assert_str_eq(argv[1], "--leash");
        ck_assert_str_eq(argv[4], "--node-rank=0");
        ck_assert_str_eq(argv[5],
                         "--rdzv-backend=static"); /* no slots: --nproc-per-node as given */
        ddpi_free(argv);
    }
    ck_assert(!head_command_is_local(&command, &far));
}
END_TEST

START_TEST(a_command_may_be_too_long)
{
    char *longer = ddpi_calloc(1, 200 * 1024);
    char *words_of_it[] = {program, longer, NULL};
    struct head_command large = command;
    const struct host_entry host = {.name = "b"};
    memset(longer, 'x', 200 * 1024 - 1);
    large.operands = words_of_it;
    ck_assert_ptr_null(head_command_make(&large, &host, 0, "h:1"));
    ddpi_free(longer);
}
END_TEST

/* ---- the leash ---- */

START_TEST(a_leash_says_what_was_put_on_it)
{
    char path[] = "PATH=/bin", odd[] = "LC_ALL=a\nb\\n", secret[] = "SECRET=1", mine[] = "MINE=2";
    char *const envp[] = {path, odd, secret, mine, NULL};
    const char *const exports[] = {"MINE", "OTHER=3", "UNSET", "PATH=/opt"};
    static const struct {
        enum leash_kind kind;
        const char *text;
    } expected[] = {
        {LEASH_GREETING, NULL},     {LEASH_TOKEN, "abcd"},       {LEASH_VARIABLE, "LC_ALL=a\nb\\n"},
        {LEASH_VARIABLE, "MINE=2"}, {LEASH_VARIABLE, "OTHER=3"}, {LEASH_VARIABLE, "PATH=/opt"},
        {LEASH_GO, NULL},           {LEASH_SIGNAL, "SIGUSR1"}};
    struct ddpi_buf text;
    struct leash_line line;
    ddpi_buf_init(&text, LEASH_TEXT_MAX);
    ck_assert(leash_put_greeting(&text, "abcd"));
    ck_assert(leash_put_environment(&text, envp, exports, 4));
    ck_assert(leash_put_go(&text) && leash_put_signal(&text, SIGUSR1));
    ck_assert(ddpi_buf_append(&text, "", 1));
    char *at = (char *)text.data + text.head, *word;
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        word = strsep(&at, "\n");
        ck_assert_msg(leash_parse(word, &line, &error) == DDP_OK, "%s", error.msg);
        ck_assert_int_eq(line.kind, expected[i].kind);
        if (expected[i].text != NULL)
            ck_assert_str_eq(line.text, expected[i].text);
    }
    ck_assert_int_eq(line.sig, SIGUSR1);
    ck_assert_str_eq(at, "");
    ddpi_buf_finish(&text);
}
END_TEST

static const struct {
    const char *line;
    ddp_status status;
} leash_refused[] = {
    {"", DDP_E_INVALID},          {"GET / HTTP/1.1", DDP_E_INVALID},
    {"go ", DDP_E_INVALID},       {"env =x", DDP_E_INVALID},
    {"env A", DDP_E_INVALID},     {"env 1=2", DDP_E_INVALID},
    {"env A=\\x", DDP_E_INVALID}, {"env A=\\", DDP_E_INVALID},
    {"env A B=x", DDP_E_INVALID}, {"signal KILL", DDP_E_INVALID},
    {"signal", DDP_E_INVALID},    {"signal TERM,INT", DDP_E_INVALID},
    {"token", DDP_E_INVALID},     {"ddprun leash 2", DDP_E_UNSUPPORTED},
};

START_TEST(what_is_no_leash)
{
    char line[64];
    struct leash_line parsed;
    snprintf(line, sizeof line, "%s", leash_refused[_i].line);
    ck_assert_int_eq(leash_parse(line, &parsed, &error), leash_refused[_i].status);
    ck_assert_msg(strstr(error.msg, "launcher") != NULL, "%s", error.msg);
}
END_TEST

/* ---- hosts that have failed ---- */

START_TEST(when_a_host_is_tried_again)
{
    const struct blacklist_range range = {10, 35}, never = {0, 0};
    struct blacklist_entry entry = {0}, gone = {0};
    ck_assert(!blacklist_has(&entry, 0));
    static const uint64_t waits[] = {10, 20, 35, 35};
    uint64_t now = 1000;
    for (size_t i = 0; i < sizeof waits / sizeof *waits; i++) {
        blacklist_fail(&entry, &range, now);
        ck_assert(blacklist_has(&entry, now + waits[i] - 1));
        ck_assert(!blacklist_has(&entry, now + waits[i]));
        now += 100;
    }
    blacklist_fail(&gone, &never, now);
    ck_assert(blacklist_has(&gone, UINT64_MAX - 1));
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("hosts");
    TCase *tcase = tcase_create("hosts");
    tcase_add_loop_test(tcase, what_is_read, 0, sizeof read_rows / sizeof *read_rows);
    tcase_add_loop_test(tcase, what_is_refused, 0, sizeof refused / sizeof *refused);
    tcase_add_test(tcase, ten_thousand_lines);
    tcase_add_loop_test(tcase, what_is_chosen, 0, sizeof choices / sizeof *choices);
    ADD_TESTS(tcase, words_survive_a_shell, a_launcher_has_words, what_a_host_is_started_with,
              a_command_may_be_too_long, a_leash_says_what_was_put_on_it);
    tcase_add_loop_test(tcase, what_is_no_leash, 0, sizeof leash_refused / sizeof *leash_refused);
    tcase_add_test(tcase, when_a_host_is_tried_again);
    suite_add_tcase(suite, tcase);
    return suite;
}
