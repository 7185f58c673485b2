/*
 * test_binding.c - the processors of each worker, on machines that hwloc makes up and on this one.
 */
#include "binding.h"
#include "check_main.h"

#include <hwloc/glibc-sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { WORKERS_MAX = 8 };

/* Two packages of two NUMA nodes, each with two last-level caches of two cores of two threads. */
static const char two_packages[] = "pack:2 [numa] group:2 l3:2 core:2 pu:2";
static const char two_nodes[] = "numa:2 pack:1 l3:2 core:2 pu:2";
static const char one_node[] = "pack:1 core:3 pu:1"; /* and no cache of level 3 */

static struct ddp_error error;

static hwloc_topology_t made_up(const char *description)
{
    hwloc_topology_t topology;
    ck_assert_int_eq(hwloc_topology_init(&topology), 0);
    ck_assert_int_eq(hwloc_topology_set_synthetic(topology, description), 0);
    ck_assert_int_eq(hwloc_topology_load(topology), 0);
    return topology;
}

static const struct {
    const char *machine;
    enum binding_mode mode;
    uint32_t nproc;
    const char *near[WORKERS_MAX]; /* processors near its GPU */
    const char *sets[WORKERS_MAX]; /* as hwloc lists them; none: refused */
} rows[] = {
    {two_nodes, BINDING_NODE, 1, {NULL}, {"0-7"}},
    {two_nodes, BINDING_NODE, 2, {NULL}, {"0-7", "8-15"}},
    {two_nodes, BINDING_NODE, 4, {NULL}, {"0-7", "0-7", "8-15", "8-15"}},
    {two_nodes, BINDING_NODE, 3, {NULL}, {"0-7", "0-7", "8-15"}},
    {two_nodes, BINDING_NODE, 2, {"8-15", "0-7"}, {"8-15", "0-7"}},
    {two_nodes, BINDING_NODE, 2, {"9", "12"}, {"8-15", "8-15"}},
    {two_nodes, BINDING_SOCKET, 2, {NULL}, {"0-7", "8-15"}},
    {two_packages, BINDING_SOCKET, 2, {NULL}, {"0-15", "16-31"}},
    {two_nodes, BINDING_EXCLUSIVE, 2, {NULL}, {"0-7", "8-15"}},
    {two_nodes, BINDING_EXCLUSIVE, 4, {NULL}, {"0-3", "4-7", "8-11", "12-15"}},
    {two_nodes, BINDING_EXCLUSIVE, 3, {"0", "0", "0"}, {"0-3", "4-5", "6-7"}},
    {two_nodes,
     BINDING_EXCLUSIVE,
     8,
     {NULL},
     {"0-1", "2-3", "4-5", "6-7", "8-9", "10-11", "12-13", "14-15"}},
    {two_nodes, BINDING_EXCLUSIVE, 5, {"0", "0", "0", "0", "0"}, {NULL}},
    {two_nodes, BINDING_CORE_COMPLEX, 4, {NULL}, {"0-3", "4-7", "8-11", "12-15"}},
    {two_nodes, BINDING_CORE_COMPLEX, 3, {"8", "8", "8"}, {"8-11", "12-15", "8-11"}},
    {one_node, BINDING_CORE_COMPLEX, 2, {NULL}, {"0-2", "0-2"}},
    {one_node, BINDING_EXCLUSIVE, 2, {NULL}, {"0-1", "2"}},
    {one_node, BINDING_NONE, 2, {NULL}, {"0-2", "0-2"}},
};

START_TEST(which_processors)
{
    hwloc_topology_t topology = made_up(rows[_i].machine);
    uint32_t nproc = rows[_i].nproc;
    hwloc_bitmap_t near[WORKERS_MAX] = {NULL}, sets[WORKERS_MAX];
    for (uint32_t i = 0; i < nproc; i++) {
        sets[i] = hwloc_bitmap_alloc();
        if (rows[_i].near[i] == NULL)
            continue;
        near[i] = hwloc_bitmap_alloc();
        ck_assert_int_eq(hwloc_bitmap_list_sscanf(near[i], rows[_i].near[i]), 0);
    }
    ddp_status status =
        binding_choose(topology, rows[_i].mode, nproc,
                       (const hwloc_const_bitmap_t *)(const void *)near, sets, &error);
    if (rows[_i].sets[0] == NULL) {
        ck_assert_int_eq(status, DDP_E_INVALID);
        ck_assert_msg(strstr(error.msg, "4 cores for 5 workers") != NULL, "%s", error.msg);
    } else {
        ck_assert_msg(status == DDP_OK, "%s", error.msg);
    }
    for (uint32_t i = 0; i < nproc; i++) {
        char text[64];
        hwloc_bitmap_list_snprintf(text, sizeof text, sets[i]);
        if (status == DDP_OK)
            ck_assert_str_eq(text, rows[_i].sets[i]);
        hwloc_bitmap_free(sets[i]);
        hwloc_bitmap_free(near[i]);
    }
    hwloc_topology_destroy(topology);
}
END_TEST

/* An object of hwloc's XML, without its end. */
#define OBJECT(type, index, processors, nodes)                                              \
    "<object type=\"" type "\" os_index=\"" index "\" cpuset=\"" processors                 \
    "\" complete_cpuset=\"" processors "\" nodeset=\"" nodes "\" complete_nodeset=\"" nodes \
    "\">\n"
#define CORE(index, processors, nodes)       \
    OBJECT("Core", index, processors, nodes) \
    OBJECT("PU", index, processors, nodes) "</object>\n</object>\n"
#define PACKAGE(index, processors, nodes)       \
    OBJECT("Package", index, processors, nodes) \
    OBJECT("NUMANode", index, processors, nodes) "</object>\n"
#define DEVICE(place, type)                                                                    \
    "<object type=\"Bridge\" bridge_type=\"0-1\">\n<object type=\"PCIDev\" pci_busid=\"" place \
    "\" pci_type=\"" type " [0000:0000] a1\"/>\n</object>\n"
#define HEAD                                                                                  \
    "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<!DOCTYPE topology SYSTEM \"hwloc2.dtd\">\n" \
    "<topology version=\"2.0\">\n" OBJECT("Machine", "0", "0xf", "0x3")
#define END        "</object>\n"
#define GPU(place) DEVICE(place, "0302 [10de:2330]")

/* Two packages of two processors. The places of GPUs are not in the order of packages, and two
 * devices are no GPUs of NVIDIA: the sound of one, and a display of another maker. */
static const char with_gpus[] = HEAD                /* and what follows in it */
    PACKAGE("0", "0x3", "0x1")                      /* of processors 0 and 1 */
    CORE("0", "0x1", "0x1") CORE("1", "0x2", "0x1") /* a thread each */
    GPU("0000:80:00.0")                             /* number 2 for CUDA */
    GPU("0000:41:00.0")                             /* number 1 */
    DEVICE("0000:02:00.1", "0403 [10de:228e]")      /* sound */
    DEVICE("0000:01:00.0", "0300 [1a03:2000]")      /* a display */
    END PACKAGE("1", "0xc", "0x2")                  /* of processors 2 and 3 */
    CORE("2", "0x4", "0x2") CORE("3", "0x8", "0x2") /* a thread each */
    GPU("0001:02:00.0")                             /* number 3 */
    GPU("0000:10:00.0")                             /* number 0 */
    END END "</topology>\n";

static const struct {
    const char *devices;   /* CUDA_VISIBLE_DEVICES */
    const char *usable;    /* processors */
    const char *driver[3]; /* entries of its folder; none: there is no folder */
    uint32_t nproc;
    bool by_gpu;
    const char *sets[WORKERS_MAX];
} gpu_rows[] = {
    {NULL, "0-3", {NULL}, 4, true, {"2-3", "0-1", "0-1", "2-3"}},
    {NULL, "0-3", {NULL}, 5, false, {"2-3", "0-1", "0-1", "2-3", "2-3"}},
    {"1,0", "0-3", {NULL}, 2, true, {"0-1", "2-3"}},
    {"1, 0 ", "0-3", {NULL}, 2, true, {"0-1", "2-3"}},
    {"2,7", "0-3", {NULL}, 2, false, {"0-1", "2-3"}},
    {NULL, "2-3", {NULL}, 1, true, {"2-3"}},
    {"3", "2-3", {NULL}, 1, true, {"2-3"}},
    {"1", "2-3", {NULL}, 1, false, {"2-3"}},
    {"3", "0,3", {NULL}, 1, true, {"3"}},
    {NULL, "0-3", {"0000:41:00.0", "0001:02:00.0"}, 2, true, {"0-1", "2-3"}},
    {"1", "0-3", {"0000:10:00.0"}, 1, false, {"0-1"}},
};

static void make_driver_folder(char *path, const char *const *entries)
{
    char entry[128];
    ck_assert_ptr_nonnull(mkdtemp(path));
    for (; *entries != NULL; entries++) {
        snprintf(entry, sizeof entry, "%s/%s", path, *entries);
        ck_assert_int_eq(mkdir(entry, 0700), 0);
    }
}

static void remove_driver_folder(const char *path, const char *const *entries)
{
    char entry[128];
    for (; *entries != NULL; entries++) {
        snprintf(entry, sizeof entry, "%s/%s", path, *entries);
        ck_assert_int_eq(rmdir(entry), 0);
    }
    ck_assert_int_eq(rmdir(path), 0);
}

static hwloc_topology_t described(const char *xml, size_t size)
{
    hwloc_topology_t topology;
    ck_assert_int_eq(hwloc_topology_init(&topology), 0);
    ck_assert_int_eq(hwloc_topology_set_xmlbuffer(topology, xml, (int)size), 0);
    hwloc_topology_set_io_types_filter(topology, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
    ck_assert_int_eq(hwloc_topology_load(topology), 0);
    return topology;
}

START_TEST(near_gpus)
{
    char folder[] = "/tmp/test_binding-XXXXXX";
    bool driver = gpu_rows[_i].driver[0] != NULL;
    struct binding binding;
    hwloc_topology_t topology = described(with_gpus, sizeof with_gpus);
    hwloc_bitmap_t usable = hwloc_bitmap_alloc(), set = hwloc_bitmap_alloc();
    ck_assert_int_eq(hwloc_bitmap_list_sscanf(usable, gpu_rows[_i].usable), 0);
    if (driver)
        make_driver_folder(folder, gpu_rows[_i].driver);
    const struct binding_machine machine = {topology, usable, driver ? folder : "/nowhere"};
    ddp_status status = binding_make_on(&binding, &machine, BINDING_NODE, gpu_rows[_i].nproc,
                                        gpu_rows[_i].devices, &error);
    if (driver)
        remove_driver_folder(folder, gpu_rows[_i].driver);
    ck_assert_msg(status == DDP_OK, "%s", error.msg);
    for (uint32_t i = 0; i < gpu_rows[_i].nproc; i++) {
        char text[64];
        hwloc_cpuset_from_glibc_sched_affinity(topology, set, binding_of(&binding, i),
                                               binding.size);
        hwloc_bitmap_list_snprintf(text, sizeof text, set);
        ck_assert_str_eq(text, gpu_rows[_i].sets[i]);
    }
    ck_assert_int_eq(binding.by_gpu, gpu_rows[_i].by_gpu);
    binding_finish(&binding);
    hwloc_bitmap_free(usable);
    hwloc_bitmap_free(set);
    hwloc_topology_destroy(topology);
}
END_TEST

/* What the kernel takes: within what this process may use, and not less than the machine has. */
START_TEST(on_this_machine)
{
    static const enum binding_mode modes[] = {BINDING_NODE, BINDING_SOCKET, BINDING_EXCLUSIVE,
                                              BINDING_CORE_COMPLEX};
    static const char *const devices[] = {NULL, "", "0", "7,x", "GPU-1234"};
    cpu_set_t usable;
    ck_assert_int_eq(sched_getaffinity(0, sizeof usable, &usable), 0);
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++)
        for (size_t k = 0; k < sizeof devices / sizeof *devices; k++) {
            struct binding binding;
            ck_assert_msg(binding_make(&binding, modes[i], 1, devices[k], &error) == DDP_OK, "%s",
                          error.msg);
            const cpu_set_t *set = binding_of(&binding, 0);
            ck_assert_int_gt(CPU_COUNT_S(binding.size, set), 0);
            for (size_t cpu = 0; cpu < binding.size * 8 && cpu < CPU_SETSIZE; cpu++)
                ck_assert(!CPU_ISSET_S(cpu, binding.size, set) || CPU_ISSET(cpu, &usable));
            ck_assert_uint_gt(binding.cores, 0);
            binding_finish(&binding);
        }
    struct binding none;
    ck_assert_int_eq(binding_make(&none, BINDING_NONE, 4, NULL, &error), DDP_OK);
    ck_assert_ptr_null(binding_of(&none, 0));
    binding_finish(&none);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("binding");
    TCase *tcase = tcase_create("binding");
    tcase_add_loop_test(tcase, which_processors, 0, sizeof rows / sizeof *rows);
    tcase_add_loop_test(tcase, near_gpus, 0, sizeof gpu_rows / sizeof *gpu_rows);
    tcase_add_test(tcase, on_this_machine);
    suite_add_tcase(suite, tcase);
    return suite;
}
