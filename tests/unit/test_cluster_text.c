/*
 * test_cluster_text.c - lists of keepers, their status as text, and what the one that leads tells
 * people.
 */
#include "check_main.h"
#include "cluster_summary.h"

#include <stdio.h>
#include <string.h>

static struct ddp_error why;

/* ---- lists ---- */

START_TEST(a_list_does_not_depend_on_its_order)
{
    struct ddpi_cluster_list one, other;
    char text[DDPI_CLUSTER_LIST_TEXT], again[DDPI_CLUSTER_LIST_TEXT];
    ck_assert_int_eq(ddpi_cluster_list_parse("n2,n1:5,[fe80::1]:7", 29400, 0, &one, &why), DDP_OK);
    ck_assert_int_eq(ddpi_cluster_list_parse("[fe80::1]:7,n2:29400,n1:5", 1, 0, &other, &why),
                     DDP_OK);
    ddpi_cluster_list_put(&one, text);
    ddpi_cluster_list_put(&other, again);
    ck_assert_str_eq(text, "[fe80::1]:7/1007,n1:5/1005,n2:29400/30400");
    ck_assert_str_eq(text, again);
    struct ddpi_endpoint at = {.host = "n1", .port = 5, .has_port = true};
    ck_assert_uint_eq(ddpi_cluster_list_find(&one, &at), 1);
    at.port = 6;
    ck_assert_uint_eq(ddpi_cluster_list_find(&one, &at), DDPI_CLUSTER_SIZE);
}
END_TEST

START_TEST(what_is_no_list)
{
    static const struct {
        const char *text;
        const char *says;
    } rows[] = {
        {"n1,n2", "lists two machines"},
        {"n1", "lists 1 machines"},
        {"n1,n2,n3,n4", "lists 4 machines"},
        {"n1,n2,n1:29400", "lists n1:29400 twice"},
        {"n1,n2,", ""},
        {"", ""},
        {"n1,n2,n3:0", "port 0"},
        {"n1,n2,n3:65000", "--peer-port"},
        {"a:b:c,n2,n3", ""},
    };
    struct ddpi_cluster_list list;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        ck_assert_msg(ddpi_cluster_list_parse(rows[i].text, 29400, 0, &list, &why) == DDP_E_INVALID,
                      "%s", rows[i].text);
        ck_assert_msg(strstr(why.msg, rows[i].says) != NULL, "%s: %s", rows[i].text, why.msg);
    }
    ck_assert_int_eq(ddpi_cluster_list_parse("a,b,c:65000", 29400, 4000, &list, &why), DDP_OK);
    ck_assert_int_eq(ddpi_cluster_list_parse("a,b,c:4000", 29400, 4000, &list, &why),
                     DDP_E_INVALID);
}
END_TEST

START_TEST(what_etcd_is_told)
{
    struct ddpi_cluster_list list;
    char text[DDPI_CLUSTER_LIST_TEXT + 64];
    ck_assert_int_eq(ddpi_cluster_list_parse("c,b,a", 100, 0, &list, &why), DDP_OK);
    ddpi_cluster_list_initial(&list, text);
    ck_assert_str_eq(text, "m0=https://a:1100,m1=https://b:1100,m2=https://c:1100");
}
END_TEST

/* ---- the status as text ---- */

START_TEST(a_status_is_read_as_it_was_written)
{
    const struct ddpi_keeper_status status = {.list = "a:1/2,b:1/2,c:1/2",
                                              .self = 2,
                                              .job = "j",
                                              .phase = KEEPER_ENDING,
                                              .life = UINT64_MAX,
                                              .number = 1,
                                              .founders = {1, 2, UINT64_C(1) << 63},
                                              .leads = true,
                                              .admitted = {0, 9, 0}};
    struct ddpi_keeper_status got;
    char text[DDPI_KEEPER_STATUS_MAX];
    size_t len = ddpi_keeper_status_put(&status, text);
    ck_assert_uint_gt(len, 0);
    ck_assert_int_eq(ddpi_keeper_status_get(text, len, &got, &why), DDP_OK);
    ck_assert_int_eq(memcmp(&got, &status, sizeof got), 0);
    for (size_t cut = 0; cut < len; cut++)
        ck_assert_int_eq(ddpi_keeper_status_get(text, cut, &got, &why), DDP_E_PROTOCOL);
}
END_TEST

START_TEST(what_is_no_status)
{
    static const struct {
        const char *from, *to;
    } changes[] = {
        {"\"self\":2", "\"self\":3"},
        {"\"self\":2", "\"self\":-1"},
        {"\"self\":2", "\"self\":2.0"},
        {"\"empty\"", "\"full\""},
        {"\"empty\"", "7"},
        {"ffffffffffffffff", "fffffffffffffff"},
        {"ffffffffffffffff", "-fffffffffffffff"},
        {"\"leads\":true", "\"leads\":1"},
        {"\"life\"", "\"live\""},
        {"\"job\":\"\"", "\"job\":7"},
        {"\"job\":\"\"",
         "\"job\":\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\""},
    };
    const struct ddpi_keeper_status status = {
        .list = "a", .self = 2, .life = UINT64_MAX, .leads = true};
    char text[DDPI_KEEPER_STATUS_MAX + 1], changed[2 * DDPI_KEEPER_STATUS_MAX];
    text[ddpi_keeper_status_put(&status, text)] = '\0';
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        struct ddpi_keeper_status got;
        const char *at = strstr(text, changes[i].from);
        ck_assert_msg(at != NULL, "%s", changes[i].from);
        snprintf(changed, sizeof changed, "%.*s%s%s", (int)(at - text), text, changes[i].to,
                 at + strlen(changes[i].from));
        ck_assert_msg(ddpi_keeper_status_get(changed, strlen(changed), &got, &why) ==
                          DDP_E_PROTOCOL,
                      "%s", changed);
    }
}
END_TEST

/* ---- how the store is kept ---- */

enum { LED_MS = 5000 };

/* As the machine @self of @text knows it, which has just begun to lead: it has not heard others. */
static void lead(struct ddpi_cluster *cluster, struct ddpi_cluster_list *list, const char *text,
                 unsigned self)
{
    *cluster = (struct ddpi_cluster){.quiet_ms = 1};
    ck_assert_int_eq(ddpi_cluster_list_parse(text, 29400, 0, list, &why), DDP_OK);
    ddpi_cluster_begin(cluster, list, self, "", 100 + self, 1, 0);
    cluster->own.number = 7;
    cluster->own.phase = KEEPER_MEMBER;
    ddpi_cluster_led(cluster, true, true, true, LED_MS);
}

static void hear(struct ddpi_cluster *cluster, unsigned i, enum ddpi_keeper_phase phase,
                 uint64_t number, bool knows_leader, uint64_t asked_ms)
{
    const struct ddpi_keeper_status status = {
        .self = i, .phase = phase, .life = 100 + i, .number = number, .knows_leader = knows_leader};
    ddpi_cluster_hear(cluster, &status, asked_ms);
}

START_TEST(what_the_store_survives)
{
    enum { NOW_MS = LED_MS + 3000 };
    static const struct {
        enum ddpi_keeper_phase phase;
        uint64_t number;
        bool knows_leader;
        uint64_t age_ms;
        enum ddpi_machine_state state;
    } rows[] = {
        {KEEPER_MEMBER, 7, true, 0, MACHINE_MEMBER},
        {KEEPER_MEMBER, 7, true, 1000, MACHINE_MEMBER},
        {KEEPER_MEMBER, 7, true, 1001, MACHINE_MISSING},
        {KEEPER_MEMBER, 7, false, 0, MACHINE_JOINING},
        {KEEPER_MEMBER, 8, true, 0, MACHINE_JOINING},
        {KEEPER_PROMISED, 7, true, 0, MACHINE_JOINING},
        {KEEPER_EMPTY, 0, true, 0, MACHINE_JOINING},
    };
    struct ddpi_cluster cluster;
    struct ddpi_cluster_list list;
    struct ddpi_cluster_summary summary;
    char text[DDPI_CLUSTER_SURVIVES];
    lead(&cluster, &list, "n1,n2,n3", 0);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        bool whole = rows[i].state == MACHINE_MEMBER;
        hear(&cluster, 1, rows[i].phase, rows[i].number, rows[i].knows_leader,
             NOW_MS - rows[i].age_ms);
        hear(&cluster, 2, KEEPER_MEMBER, 7, true, NOW_MS);
        ck_assert(ddpi_cluster_summarize(&cluster, &list, NOW_MS, &summary));
        ck_assert_int_eq(summary.leader, 0);
        ck_assert_int_eq(summary.machines[0].state, MACHINE_MEMBER);
        ck_assert_msg(summary.machines[1].state == rows[i].state, "row %zu", i);
        ck_assert_uint_eq(summary.machines[1].life, 101);
        ddpi_cluster_survives(&summary, text);
        ck_assert_str_eq(text, whole ? "any one of n1, n2, n3" : "no other loss until n2 is back");
    }
    ck_assert(ddpi_cluster_summarize(&cluster, &list, NOW_MS + 5000, &summary));
    ddpi_cluster_survives(&summary, text);
    ck_assert_str_eq(text, "no other loss until n2 and n3 are back");
    ck_assert_uint_eq(ddpi_cluster_members(&summary), 1);
}
END_TEST

START_TEST(a_new_leader_says_nothing_of_who_has_spoken_before)
{
    struct ddpi_cluster cluster;
    struct ddpi_cluster_list list;
    struct ddpi_cluster_summary summary;
    lead(&cluster, &list, "n1,n2,n3", 1);
    hear(&cluster, 0, KEEPER_MEMBER, 7, true, LED_MS - 1); /* and then it has died */
    hear(&cluster, 2, KEEPER_MEMBER, 7, true, LED_MS);
    ck_assert(!ddpi_cluster_summarize(&cluster, &list, LED_MS + 999, &summary));
    ck_assert(ddpi_cluster_summarize(&cluster, &list, LED_MS + 1000, &summary));
    ck_assert_int_eq(summary.machines[0].state, MACHINE_MISSING);
    ddpi_cluster_led(&cluster, true, false, true, LED_MS + 1000);
    ck_assert(!ddpi_cluster_summarize(&cluster, &list, LED_MS + 1000, &summary));
}
END_TEST

START_TEST(a_summary_is_read_as_it_was_written)
{
    static const char *const changes[][2] = {{"n1:5", "n2:5"},
                                             {"n1:5", "n1"},
                                             {"n1:5", "n\\u00001:5"},
                                             {"\"missing\"", "\"lost\""},
                                             {"\"missing\"", "1"},
                                             {"n1:5", "n\\\"1:5"},
                                             {"\"life\":102", "\"life\":-1"},
                                             {"\"machines\"", "\"m\""}};
    struct ddpi_cluster cluster;
    struct ddpi_cluster_list list;
    struct ddpi_cluster_summary summary, got;
    char text[DDPI_CLUSTER_SUMMARY_MAX + 1], again[DDPI_CLUSTER_SUMMARY_MAX];
    char changed[sizeof text + 32];
    lead(&cluster, &list, "n1:5,n1:6,[fe80::1]:7", 1);
    hear(&cluster, 0, KEEPER_MEMBER, 7, true, LED_MS);
    hear(&cluster, 2, KEEPER_MEMBER, 7, true, LED_MS - 2000);
    ck_assert(ddpi_cluster_summarize(&cluster, &list, LED_MS, &summary));
    size_t len = ddpi_cluster_summary_put(&summary, text);
    text[len] = '\0';
    ck_assert_str_eq(text, "{\"leader\":\"n1:5\",\"machines\":["
                           "{\"endpoint\":\"[fe80::1]:7\",\"state\":\"member\",\"life\":100},"
                           "{\"endpoint\":\"n1:5\",\"state\":\"member\",\"life\":101},"
                           "{\"endpoint\":\"n1:6\",\"state\":\"missing\",\"life\":102}],"
                           "\"survives\":\"no other loss until n1:6 is back\"}");
    ck_assert_int_eq(ddpi_cluster_summary_get(text, len, &got, &why), DDP_OK);
    ck_assert_uint_eq(ddpi_cluster_summary_put(&got, again), len);
    ck_assert_int_eq(memcmp(text, again, len), 0);
    for (size_t cut = 0; cut < len; cut++)
        ck_assert_int_eq(ddpi_cluster_summary_get(text, cut, &got, &why), DDP_E_PROTOCOL);
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        const char *at = strstr(text, changes[i][0]);
        snprintf(changed, sizeof changed, "%.*s%s%s", (int)(at - text), text, changes[i][1],
                 at + strlen(changes[i][0]));
        ck_assert_msg(ddpi_cluster_summary_get(changed, strlen(changed), &got, &why) ==
                          DDP_E_PROTOCOL,
                      "%s", changed);
    }
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("cluster_text");
    TCase *words = tcase_create("words");
    ADD_TESTS(words, a_list_does_not_depend_on_its_order, what_is_no_list, what_etcd_is_told,
              a_status_is_read_as_it_was_written, what_is_no_status, what_the_store_survives,
              a_new_leader_says_nothing_of_who_has_spoken_before,
              a_summary_is_read_as_it_was_written);
    suite_add_tcase(suite, words);
    return suite;
}
