/*
 * test_store_trouble.c - what a person reads when a store refuses a node.
 */
#include "check_main.h"
#include "store_trouble.h"

#include <string.h>

static char text[STORE_TROUBLE_TEXT];

static const char *refused(const char *token_file, ddp_status status, const char *why)
{
    const struct multi_node_config config = {.store = "node1:29400", .token_file = token_file};
    store_trouble_refused(&config, status, why, text);
    return text;
}

START_TEST(a_denial_is_about_the_token)
{
    ck_assert_ptr_nonnull(strstr(refused("/none", DDP_E_DENIED, "denied"), "this one has none"));
    ck_assert_ptr_nonnull(strstr(refused("/dev/null", DDP_E_DENIED, "denied"), "token differs"));
    /* Without a token the store says by itself what to do. */
    ck_assert_str_eq(refused(NULL, DDP_E_DENIED, "it wants a token"),
                     "the store at node1:29400 refuses this node: it wants a token");
}
END_TEST

START_TEST(another_refusal_is_not)
{
    static const char whole[] = "the store at node1:29400 refuses this node: it is older";
    ck_assert_str_eq(refused("/none", DDP_E_UNSUPPORTED, "it is older"), whole);
    ck_assert_str_eq(refused(NULL, DDP_E_INVALID, "it is older"), whole);
    ck_assert_ptr_nonnull(strstr(refused("/none", DDP_E_PROTOCOL, "what?"), "is no store"));
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("store_trouble");
    TCase *tcase = tcase_create("store_trouble");
    ADD_TESTS(tcase, a_denial_is_about_the_token, another_refusal_is_not);
    suite_add_tcase(suite, tcase);
    return suite;
}
