/*
 * test_gpu.c - CUDA_VISIBLE_DEVICES as CUDA reads it, and how GPUs are named.
 */
#include "check_main.h"
#include "gpu.h"

#include <string.h>

#define UUID(n) "GPU-" #n "a56a4bc-d184-a047-2620-be19f0f2a00" #n

static const struct gpu whole[] = {
    {.index = 0, .uuid = UUID(0)},
    {.index = 1, .uuid = UUID(1)},
    {.index = 2, .uuid = UUID(2)},
    {.index = 3, .uuid = UUID(3)},
};

/* The places are written as digits, one behind the other. */
static void sees_of(const struct gpu *gpus, uint32_t count, const char *list, const char *expected)
{
    uint32_t places[GPUS_MAX];
    char text[GPUS_MAX + 1] = "";
    uint32_t visible = gpu_visible(gpus, count, list, places);
    ck_assert_uint_le(visible, count);
    for (uint32_t i = 0; i < visible; i++)
        text[i] = (char)('0' + places[i]);
    ck_assert_msg(strcmp(text, expected) == 0, "'%s' gives '%s', not '%s'", list ? list : "(null)",
                  text, expected);
}

static void sees(const char *list, const char *expected)
{
    sees_of(whole, 4, list, expected);
}

START_TEST(without_a_list_all_are_seen)
{
    sees(NULL, "0123");
    sees_of(whole, 0, NULL, "");
    sees_of(whole, 0, "0", "");
}
END_TEST

START_TEST(indices)
{
    sees("0", "0");
    sees("3,1", "31");
    sees(" 2 ,\t0", "20");
    sees("1x,2", "12");
    sees("007", "");
    sees("002", "2");
}
END_TEST

START_TEST(a_list_ends_at_the_first_bad_entry)
{
    static const char *const lists[] = {
        "1,-1,2", "1,4,2",       "1,,2", "1,x", "1, ", "1,", "1,99999999999999999999999,2",
        "1,+2",   "1,4294967296"};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        sees(lists[i], "1");
    sees("", "");
    sees("-1", "");
    sees("NoDevFiles", "");
    sees(",0", "");
}
END_TEST

START_TEST(uuids_may_be_cut)
{
    sees(UUID(2), "2");
    sees(UUID(3) "," UUID(0), "30");
    sees("GPU-1,GPU-2a56", "12");
    sees("GPU-", "");
    sees("GPU-1,GPU-9,GPU-2", "1");
    sees("GPU-1a56a4bc-d184-a047-2620-be19f0f2a001x", "");
    sees("gpu-1", "");
}
END_TEST

START_TEST(kinds_do_not_mix)
{
    sees("0,GPU-1", "0");
    sees("GPU-1,0", "1");
    sees("GPU-1,MIG-1", "1");
}
END_TEST

START_TEST(twice_is_none)
{
    sees("1,1", "");
    sees("0,1,2,0", "");
    sees("GPU-1,GPU-2,GPU-1a", "");
    sees("0,9,0", "0"); /* what is behind the end does not count */
}
END_TEST

static const struct gpu split[] = {
    {.index = 0, .uuid = UUID(0)},
    {.index = 1,
     .uuid = UUID(1),
     .split = true,
     .instances = 2,
     .instance_uuids = {"MIG-aaaa", "MIG-abbb"}},
    {.index = 2, .uuid = UUID(2), .split = true},
    {.index = 3, .uuid = UUID(3)},
};

START_TEST(of_instances_a_process_gets_one)
{
    sees_of(split, 4, NULL, "1");
    sees_of(split, 4, "0,1", "1");
    sees_of(split, 4, "1", "1");
    sees_of(split, 4, "MIG-aaaa", "1");
    sees_of(split, 4, "MIG-abbb,MIG-aaaa", "1");
    sees_of(split, 4, "MIG-" UUID(1) "/1/0", "1");
}
END_TEST

START_TEST(without_an_instance_a_split_gpu_is_no_device)
{
    sees_of(split, 4, "0,2,3", "03");
    sees_of(split, 4, "2", "");
    sees_of(split, 4, "MIG-cccc", "");
    sees_of(split, 4, "MIG-" UUID(2) "/1/0", "");
}
END_TEST

START_TEST(labels)
{
    char text[GPU_LABEL];
    struct gpu gpu = {.index = 3, .uuid = UUID(3), .name = "NVIDIA H200"};
    gpu_label(&gpu, text);
    ck_assert_str_eq(text, "GPU 3 (NVIDIA H200, GPU-3a56a4bc)");
    gpu.name[0] = '\0';
    gpu_label(&gpu, text);
    ck_assert_str_eq(text, "GPU 3 (GPU-3a56a4bc)");
    memset(gpu.name, 'n', sizeof gpu.name - 1);
    memset(gpu.uuid, 'u', sizeof gpu.uuid - 1);
    gpu_label(&gpu, text);
    ck_assert_uint_lt(strlen(text), sizeof text);
}
END_TEST

START_TEST(sizes)
{
    char text[GPU_SIZE_TEXT];
    gpu_size(0, text);
    ck_assert_str_eq(text, "0 MiB");
    gpu_size(UINT64_C(512) << 20, text);
    ck_assert_str_eq(text, "512 MiB");
    gpu_size(UINT64_C(13207024435), text);
    ck_assert_str_eq(text, "12.3 GiB");
    gpu_size(UINT64_MAX, text);
    ck_assert_str_eq(text, "17179869184.0 GiB");
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("gpu");
    TCase *tcase = tcase_create("gpu");
    ADD_TESTS(tcase, without_a_list_all_are_seen, indices, a_list_ends_at_the_first_bad_entry,
              uuids_may_be_cut, kinds_do_not_mix, twice_is_none, of_instances_a_process_gets_one,
              without_an_instance_a_split_gpu_is_no_device, labels, sizes);
    suite_add_tcase(suite, tcase);
    return suite;
}
