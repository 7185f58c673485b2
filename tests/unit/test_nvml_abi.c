/*
 * test_nvml_abi.c - our declarations of NVML are those of nvml.h, where there is one. Everything is
 * decided when this file is compiled; without that header there is nothing to see.
 */
#include "check_main.h"
#include "nvml_library.h"

#if __has_include(<nvml.h>)

#include <nvml.h>

#define SAME_RESULT(name, value) \
    _Static_assert((int)NVML_LIBRARY_##name == (int)NVML_##name, #name);
NVML_LIBRARY_RESULT_MAP(SAME_RESULT)

_Static_assert(NVML_LIBRARY_DEVICE_MIG_ENABLE == NVML_DEVICE_MIG_ENABLE, "MIG");
_Static_assert(NVML_LIBRARY_EVENT_ECC_SINGLE == nvmlEventTypeSingleBitEccError, "ECC");
_Static_assert(NVML_LIBRARY_EVENT_ECC_DOUBLE == nvmlEventTypeDoubleBitEccError, "ECC");
_Static_assert(NVML_LIBRARY_EVENT_XID == nvmlEventTypeXidCriticalError, "Xid");
_Static_assert(NVML_LIBRARY_MEMORY_VERSION == (unsigned)nvmlMemory_v2, "version");
_Static_assert(GPU_TEXT >= NVML_DEVICE_UUID_V2_BUFFER_SIZE, "UUID");
_Static_assert(GPU_TEXT >= NVML_DEVICE_NAME_V2_BUFFER_SIZE, "name");

#define SAME_SIZE(ours, theirs) _Static_assert(sizeof(ours) == sizeof(theirs), #theirs)
SAME_SIZE(nvml_library_result, nvmlReturn_t);
SAME_SIZE(struct nvml_library_process, nvmlProcessInfo_t);
SAME_SIZE(struct nvml_library_memory, nvmlMemory_v2_t);
SAME_SIZE(struct nvml_library_event, nvmlEventData_t);

#define SAME_PLACE(ours, our_member, theirs, their_member)                                       \
    _Static_assert(offsetof(ours, our_member) == offsetof(theirs, their_member), #their_member); \
    _Static_assert(sizeof((ours){0}.our_member) == sizeof((theirs){0}.their_member), #their_member)
SAME_PLACE(struct nvml_library_process, pid, nvmlProcessInfo_t, pid);
SAME_PLACE(struct nvml_library_process, memory, nvmlProcessInfo_t, usedGpuMemory);
SAME_PLACE(struct nvml_library_process, gpu_instance, nvmlProcessInfo_t, gpuInstanceId);
SAME_PLACE(struct nvml_library_process, compute_instance, nvmlProcessInfo_t, computeInstanceId);
SAME_PLACE(struct nvml_library_memory, version, nvmlMemory_v2_t, version);
SAME_PLACE(struct nvml_library_memory, total, nvmlMemory_v2_t, total);
SAME_PLACE(struct nvml_library_memory, reserved, nvmlMemory_v2_t, reserved);
SAME_PLACE(struct nvml_library_memory, free, nvmlMemory_v2_t, free);
SAME_PLACE(struct nvml_library_memory, used, nvmlMemory_v2_t, used);
SAME_PLACE(struct nvml_library_event, device, nvmlEventData_t, device);
SAME_PLACE(struct nvml_library_event, type, nvmlEventData_t, eventType);
SAME_PLACE(struct nvml_library_event, data, nvmlEventData_t, eventData);

/* From here on our names stand for the library's types, so that parameters can be compared. */
#define nvml_library_result    nvmlReturn_t
#define nvml_library_device    nvmlDevice_t
#define nvml_library_event_set nvmlEventSet_t
#define nvml_library_process   nvmlProcessInfo_v2_st
#define nvml_library_memory    nvmlMemory_v2_st
#define nvml_library_event     nvmlEventData_st

#define SAME_FUNCTION(member, name, needed, parameters)                                         \
    _Static_assert(__builtin_types_compatible_p(__typeof__(&name), nvmlReturn_t(*) parameters), \
                   #name);
NVML_LIBRARY_FUNCTION_MAP(SAME_FUNCTION)

enum { HAS_HEADER = 1 };
#else
enum { HAS_HEADER = 0 };
#endif

START_TEST(declarations_were_compared)
{
    ck_assert_msg(HAS_HEADER, "no nvml.h was found");
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("nvml_abi");
    TCase *tcase = tcase_create("abi");
    if (HAS_HEADER)
        tcase_add_test(tcase, declarations_were_compared);
    suite_add_tcase(suite, tcase);
    return suite;
}
