/*
 * test_bytes.c - bytes are compared as a whole and from their start, and their digests are FNV-1a.
 */
#include "bytes.h"
#include "check_main.h"

START_TEST(a_prefix_comes_first)
{
    struct ddpi_bytes none = ddpi_bytes_of(NULL, 0), ab = ddpi_bytes_of("ab", 2);
    struct ddpi_bytes abc = ddpi_bytes_of("abc", 3), b = ddpi_bytes_of("b", 1);
    ck_assert_int_lt(ddpi_bytes_compare(none, ab), 0);
    ck_assert_int_lt(ddpi_bytes_compare(ab, abc), 0);
    ck_assert_int_lt(ddpi_bytes_compare(abc, b), 0);
    ck_assert_int_eq(ddpi_bytes_compare(ab, ab), 0);
    ck_assert(ddpi_bytes_has_prefix(abc, ab) && ddpi_bytes_has_prefix(ab, none));
    ck_assert(!ddpi_bytes_has_prefix(ab, abc) && !ddpi_bytes_has_prefix(ab, b));
    ck_assert(ddpi_bytes_equal(none, none) && !ddpi_bytes_equal(ab, abc));
}
END_TEST

/* The values are those that the authors of the function publish. */
START_TEST(digests_are_those_of_fnv)
{
    ck_assert_uint_eq(ddpi_digest32(DDPI_DIGEST32_NONE, NULL, 0), 0x811c9dc5);
    ck_assert_uint_eq(ddpi_digest32(DDPI_DIGEST32_NONE, "a", 1), 0xe40c292c);
    ck_assert_uint_eq(ddpi_digest32(DDPI_DIGEST32_NONE, "foobar", 6), 0xbf9cf968);
    ck_assert(ddpi_digest64(DDPI_DIGEST64_NONE, NULL, 0) == UINT64_C(0xcbf29ce484222325));
    ck_assert(ddpi_digest64(DDPI_DIGEST64_NONE, "a", 1) == UINT64_C(0xaf63dc4c8601ec8c));
    ck_assert(ddpi_digest64(DDPI_DIGEST64_NONE, "foobar", 6) == UINT64_C(0x85944171f73967e8));
}
END_TEST

START_TEST(a_digest_goes_on)
{
    uint32_t foo32 = ddpi_digest32(DDPI_DIGEST32_NONE, "foo", 3);
    uint64_t foo64 = ddpi_digest64(DDPI_DIGEST64_NONE, "foo", 3);
    ck_assert_uint_eq(ddpi_digest32(foo32, "bar", 3), 0xbf9cf968);
    ck_assert(ddpi_digest64(foo64, "bar", 3) == UINT64_C(0x85944171f73967e8));
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("bytes");
    TCase *tcase = tcase_create("bytes");
    ADD_TESTS(tcase, a_prefix_comes_first, digests_are_those_of_fnv, a_digest_goes_on);
    suite_add_tcase(suite, tcase);
    return suite;
}
