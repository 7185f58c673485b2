/*
 * test_pmi_library.c - the library that programs of Open MPI load: what it says to the agent, what
 * it makes of the answers, and of an agent that answers wrongly or not at all.
 *
 * The answer is written before the call, as the library reads a line only after it has sent one.
 */
#include "check_main.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

int PMI_Init(int *ret_spawned);
int PMI_Initialized(int *ret);
int PMI_Finalize(void);
int PMI_Get_size(int *ret);
int PMI_Get_rank(int *ret);
int PMI_Get_universe_size(int *ret);
int PMI_Get_appnum(int *ret);
int PMI_Get_clique_size(int *ret);
int PMI_Get_clique_ranks(int *ret_ranks, int length);
int PMI_Barrier(void);
int PMI_Abort(int exit_code, const char *message);
int PMI_KVS_Get_my_name(char *ret_name, int length);
int PMI_KVS_Get_name_length_max(int *ret);
int PMI_KVS_Get_key_length_max(int *ret);
int PMI_KVS_Get_value_length_max(int *ret);
int PMI_KVS_Put(const char *kvs, const char *key, const char *value);
int PMI_KVS_Commit(const char *kvs);
int PMI_KVS_Get(const char *kvs, const char *key, char *ret_value, int length);

enum { DONE = 0, FAILED = -1, BAD_ARGUMENT = 3, TOO_SHORT = 8 };

static int agent; /* its end of the socket */

static void set(void)
{
    int ends[2];
    char fd[16];
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    agent = ends[0];
    snprintf(fd, sizeof fd, "%d", ends[1]);
    setenv("PMI_FD", fd, 1);
    setenv("PMI_RANK", "5", 1);
    setenv("PMI_SIZE", "9", 1);
    setenv("MPI_LOCALRANKID", "1", 1);
    setenv("MPI_LOCALNRANKS", "3", 1);
}

static void answer(const char *line)
{
    ck_assert_int_eq(write(agent, line, strlen(line)), (ssize_t)strlen(line));
}

static void heard(const char *line)
{
    char text[4096];
    ssize_t len = recv(agent, text, sizeof text - 1, MSG_DONTWAIT);
    text[len > 0 ? len : 0] = '\0';
    ck_assert_str_eq(text, line);
}

START_TEST(the_life_of_a_rank)
{
    int number = -1, ranks[3];
    char text[64];
    answer("cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n");
    ck_assert_int_eq(PMI_Init(&number), DONE);
    ck_assert_int_eq(number, 0);
    heard("cmd=init pmi_version=1 pmi_subversion=1\n");
    ck_assert(PMI_Initialized(&number) == DONE && number == 1);
    ck_assert(PMI_Get_rank(&number) == DONE && number == 5);
    ck_assert(PMI_Get_size(&number) == DONE && number == 9);
    ck_assert(PMI_Get_universe_size(&number) == DONE && number == 9);
    ck_assert(PMI_Get_appnum(&number) == DONE && number == 0);
    ck_assert(PMI_Get_clique_size(&number) == DONE && number == 3);
    ck_assert_int_eq(PMI_Get_clique_ranks(ranks, 3), DONE);
    ck_assert(ranks[0] == 4 && ranks[1] == 5 && ranks[2] == 6);
    heard("");
    answer("cmd=maxes kvsname_max=64 keylen_max=63 vallen_max=1024\n");
    ck_assert(PMI_KVS_Get_value_length_max(&number) == DONE && number == 1024);
    answer("cmd=maxes kvsname_max=64 keylen_max=63 vallen_max=1024\n");
    ck_assert(PMI_KVS_Get_name_length_max(&number) == DONE && number == 64);
    answer("cmd=maxes kvsname_max=64 keylen_max=63 vallen_max=1024\n");
    ck_assert(PMI_KVS_Get_key_length_max(&number) == DONE && number == 63);
    heard("cmd=get_maxes\ncmd=get_maxes\ncmd=get_maxes\n");
    answer("cmd=my_kvsname kvsname=generation_1\n");
    ck_assert_int_eq(PMI_KVS_Get_my_name(text, sizeof text), DONE);
    ck_assert_str_eq(text, "generation_1");
    heard("cmd=get_my_kvsname\n");
    answer("cmd=barrier_out\n");
    ck_assert_int_eq(PMI_Barrier(), DONE);
    heard("cmd=barrier_in\n");
    ck_assert_int_eq(PMI_Abort(7, "why"), DONE);
    heard("cmd=abort exitcode=7\n");
    answer("cmd=finalize_ack\n");
    ck_assert_int_eq(PMI_Finalize(), DONE);
    heard("cmd=finalize\n");
}
END_TEST

/* Open MPI's values end in blanks, which the lines have no room for. */
START_TEST(values_with_blanks)
{
    char value[32];
    answer("cmd=put_result rc=0 msg=success\n");
    ck_assert_int_eq(PMI_KVS_Put("kvs", "key", "ab= c  -"), DONE);
    heard("cmd=put kvsname=kvs key=key value=ab=\xa0"
          "c\xa0\xa0-\n");
    ck_assert_int_eq(PMI_KVS_Commit("kvs"), DONE);
    answer("cmd=get_result rc=0 msg=success value=ab=\xa0"
           "c\xa0\xa0-\n");
    ck_assert_int_eq(PMI_KVS_Get("kvs", "key", value, sizeof value), DONE);
    ck_assert_str_eq(value, "ab= c  -");
    heard("cmd=get kvsname=kvs key=key\n");
}
END_TEST

START_TEST(what_is_refused_is_not_sent)
{
    static const char *const bad[] = {"", "a b", "a\nb", NULL};
    static char huge[4096];
    char value[8];
    int ranks[2];
    memset(huge, 'x', sizeof huge - 1);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        ck_assert_int_eq(PMI_KVS_Put(bad[i], "key", "value"), BAD_ARGUMENT);
        ck_assert_int_eq(PMI_KVS_Put("kvs", bad[i], "value"), BAD_ARGUMENT);
        ck_assert_int_eq(PMI_KVS_Get("kvs", bad[i], value, sizeof value), BAD_ARGUMENT);
    }
    ck_assert_int_eq(PMI_KVS_Put("kvs", "key", NULL), BAD_ARGUMENT);
    ck_assert_int_eq(PMI_KVS_Put("kvs", "key", ""), BAD_ARGUMENT);
    ck_assert_int_eq(PMI_KVS_Put("kvs", "key", "a\nb"), BAD_ARGUMENT);
    ck_assert_int_eq(PMI_KVS_Put("kvs", "key", "a\xa0"), BAD_ARGUMENT);
    ck_assert_int_eq(PMI_KVS_Put("kvs", "key", huge), BAD_ARGUMENT);
    huge[2040] = '\0';
    ck_assert_int_eq(PMI_KVS_Put("kvs", "key", huge), FAILED);
    ck_assert_int_eq(PMI_KVS_Get("kvs", "key", NULL, 8), BAD_ARGUMENT);
    ck_assert_int_eq(PMI_KVS_Get("kvs", "key", value, 0), BAD_ARGUMENT);
    ck_assert_int_eq(PMI_KVS_Get_my_name(NULL, 8), BAD_ARGUMENT);
    ck_assert_int_eq(PMI_Get_clique_ranks(NULL, 3), BAD_ARGUMENT);
    ck_assert_int_eq(PMI_Get_clique_ranks(ranks, 2), TOO_SHORT);
    ck_assert_int_eq(PMI_Get_rank(NULL), BAD_ARGUMENT);
    ck_assert_int_eq(PMI_Init(NULL), BAD_ARGUMENT);
    ck_assert_int_eq(PMI_KVS_Commit(NULL), BAD_ARGUMENT);
    heard("");
}
END_TEST

static const char *const wrong[] = {
    "cmd=get_result rc=-1 msg=key_not_found\n",
    "cmd=other rc=0 value=v\n",
    "\n",
    "value=v\n",
    "cmd=get_result rc=0 value=12345678\n", /* does not fit */
    "cmd=get_result rc=0\n",
    "cmd=get_result rc=0 xvalue=v\n",
};

START_TEST(a_wrong_answer)
{
    char value[8] = "before";
    answer(wrong[_i]);
    ck_assert_int_eq(PMI_KVS_Get("kvs", "key", value, sizeof value), FAILED);
    ck_assert_str_eq(value, "before");
}
END_TEST

START_TEST(an_agent_that_is_gone)
{
    int number;
    close(agent);
    ck_assert_int_eq(PMI_Init(&number), FAILED);
    ck_assert_int_eq(PMI_Barrier(), FAILED);
    ck_assert_int_eq(PMI_Abort(7, "why"), FAILED);
    setenv("PMI_FD", "nonsense", 1);
    ck_assert_int_eq(PMI_Barrier(), FAILED);
    unsetenv("PMI_FD");
    ck_assert_int_eq(PMI_Barrier(), FAILED);
}
END_TEST

START_TEST(an_answer_that_does_not_end)
{
    char bytes[3000];
    memset(bytes, 'x', sizeof bytes);
    ck_assert_int_eq(write(agent, bytes, sizeof bytes), sizeof bytes);
    ck_assert_int_eq(PMI_Barrier(), FAILED);
}
END_TEST

static const char *const bad_numbers[] = {"", "-1", "x", "5x", "99999999999", " "};

START_TEST(an_environment_that_is_wrong)
{
    int number = 7, ranks[4];
    setenv("PMI_RANK", bad_numbers[_i], 1);
    ck_assert_int_eq(PMI_Get_rank(&number), FAILED);
    ck_assert_int_eq(number, 7);
    ck_assert_int_eq(PMI_Get_clique_ranks(ranks, 4), FAILED);
    setenv("PMI_RANK", "0", 1); /* less than its local rank */
    ck_assert_int_eq(PMI_Get_clique_ranks(ranks, 4), FAILED);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("pmi_library");
    TCase *tcase = tcase_create("core");
    tcase_add_checked_fixture(tcase, set, NULL);
    ADD_TESTS(tcase, the_life_of_a_rank, values_with_blanks, what_is_refused_is_not_sent);
    tcase_add_loop_test(tcase, a_wrong_answer, 0, sizeof wrong / sizeof *wrong);
    tcase_add_test(tcase, an_agent_that_is_gone);
    tcase_add_test(tcase, an_answer_that_does_not_end);
    tcase_add_loop_test(tcase, an_environment_that_is_wrong, 0,
                        sizeof bad_numbers / sizeof *bad_numbers);
    suite_add_tcase(suite, tcase);
    return suite;
}
