/*
 * test_gpu_fault.c - the table of Xids: meaning, advice, and which ones explain a death.
 */
#include "check_main.h"
#include "gpu_fault.h"

#include <string.h>

static struct gpu_fault xid(uint32_t number)
{
    return (struct gpu_fault){.kind = GPU_FAULT_XID, .xid = number, .times = 1};
}

static void blames(uint32_t number, enum gpu_fault_blame blame)
{
    const struct gpu_fault fault = xid(number);
    ck_assert_msg(gpu_fault_meaning(&fault).blame == blame, "Xid %u", number);
}

START_TEST(the_well_known_ones_blame_the_right_one)
{
    static const uint32_t program[] = {13, 31, 43};
    static const uint32_t hardware[] = {48, 64, 74, 79, 94, 95};
    static const uint32_t driver[] = {61, 62, 119, 120};
    for (size_t i = 0; i < sizeof program / sizeof *program; i++)
        blames(program[i], GPU_FAULT_OF_PROGRAM);
    for (size_t i = 0; i < sizeof hardware / sizeof *hardware; i++)
        blames(hardware[i], GPU_FAULT_OF_HARDWARE);
    for (size_t i = 0; i < sizeof driver / sizeof *driver; i++)
        blames(driver[i], GPU_FAULT_OF_DRIVER);
    blames(45, GPU_FAULT_AFTERMATH);
    blames(63, GPU_FAULT_NOTICE);
    blames(92, GPU_FAULT_NOTICE);
}
END_TEST

/* None too long for the line that it stands in, none without an advice. */
START_TEST(every_one_has_its_sentences)
{
    for (uint32_t number = 0; number < 1000; number++) {
        const struct gpu_fault fault = xid(number);
        const struct gpu_fault_meaning meaning = gpu_fault_meaning(&fault);
        char name[256];
        gpu_fault_name(&fault, name, sizeof name);
        ck_assert_uint_lt(strlen(name), 150);
        ck_assert_uint_gt(strlen(meaning.what), 10);
        ck_assert_uint_gt(strlen(meaning.advice), 10);
        ck_assert_uint_gt(strlen(gpu_fault_blames(meaning.blame)), 10);
    }
}
END_TEST

START_TEST(names)
{
    char text[256];
    struct gpu_fault fault = xid(79);
    gpu_fault_name(&fault, text, sizeof text);
    ck_assert_str_eq(text, "Xid 79 (the GPU has fallen off the bus)");
    fault.times = 3;
    gpu_fault_name(&fault, text, sizeof text);
    ck_assert_str_eq(text, "Xid 79 (the GPU has fallen off the bus), 3 times");
    fault = xid(4711);
    gpu_fault_name(&fault, text, sizeof text);
    ck_assert_str_eq(text, "Xid 4711 (not known to ddprun)");
    fault = (struct gpu_fault){.kind = GPU_FAULT_ECC_SINGLE, .times = 1};
    gpu_fault_name(&fault, text, sizeof text);
    ck_assert_str_eq(text, "ECC: single-bit memory error, which was corrected");
}
END_TEST

START_TEST(what_explains_an_end)
{
    struct gpu_fault fault = xid(79);
    ck_assert(gpu_fault_explains(&fault));
    fault = xid(31);
    ck_assert(gpu_fault_explains(&fault));
    fault = xid(45);
    ck_assert(!gpu_fault_explains(&fault));
    fault = xid(63);
    ck_assert(!gpu_fault_explains(&fault));
    fault = (struct gpu_fault){.kind = GPU_FAULT_ECC_DOUBLE};
    ck_assert(gpu_fault_explains(&fault));
    fault = (struct gpu_fault){.kind = GPU_FAULT_ECC_SINGLE};
    ck_assert(!gpu_fault_explains(&fault));
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("gpu_fault");
    TCase *tcase = tcase_create("gpu_fault");
    ADD_TESTS(tcase, the_well_known_ones_blame_the_right_one, every_one_has_its_sentences, names,
              what_explains_an_end);
    suite_add_tcase(suite, tcase);
    return suite;
}
