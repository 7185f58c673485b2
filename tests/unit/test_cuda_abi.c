/*
 * test_cuda_abi.c - our declarations of the CUDA driver are those of cuda.h, where there is one.
 * Everything is decided when this file is compiled; without the toolkit there is nothing to see.
 */
#include "check_main.h"
#include "driver.h"

#if __has_include(<cudaTypedefs.h>)

#include <cuda.h>
#include <cudaTypedefs.h>

#define SAME_RESULT(name, value) _Static_assert((int)DDPI_CU_##name == (int)CUDA_##name, #name);
DDPI_CU_RESULT_MAP(SAME_RESULT)

/* Flags are macros in cuda.h, so the name is put together before they are replaced. */
#define SAME_CONSTANT(name, value) _Static_assert((int)DDPI_CU_##name == (int)CU_##name, #name);
DDPI_CU_CONSTANT_MAP(SAME_CONSTANT)

#define SAME_SIZE(ours, theirs) _Static_assert(sizeof(ours) == sizeof(theirs), #theirs)
SAME_SIZE(ddpi_cu_result, CUresult);
SAME_SIZE(ddpi_cu_deviceptr, CUdeviceptr);
SAME_SIZE(ddpi_cu_device, CUdevice);
SAME_SIZE(ddpi_cu_mem_handle, CUmemGenericAllocationHandle);
SAME_SIZE(struct ddpi_cu_uuid, CUuuid);
SAME_SIZE(struct ddpi_cu_ipc_handle, CUipcMemHandle);
SAME_SIZE(struct ddpi_cu_mem_location, CUmemLocation);
SAME_SIZE(struct ddpi_cu_mem_prop, CUmemAllocationProp);
SAME_SIZE(struct ddpi_cu_mem_access, CUmemAccessDesc);

#define SAME_PLACE(ours, our_member, theirs, their_member)                                       \
    _Static_assert(offsetof(ours, our_member) == offsetof(theirs, their_member), #their_member); \
    _Static_assert(sizeof((ours){0}.our_member) == sizeof((theirs){0}.their_member), #their_member)
SAME_PLACE(struct ddpi_cu_mem_location, type, CUmemLocation, type);
SAME_PLACE(struct ddpi_cu_mem_location, id, CUmemLocation, id);
SAME_PLACE(struct ddpi_cu_mem_prop, type, CUmemAllocationProp, type);
SAME_PLACE(struct ddpi_cu_mem_prop, requested_handle_types, CUmemAllocationProp,
           requestedHandleTypes);
SAME_PLACE(struct ddpi_cu_mem_prop, location, CUmemAllocationProp, location);
SAME_PLACE(struct ddpi_cu_mem_prop, win32_handle_metadata, CUmemAllocationProp,
           win32HandleMetaData);
SAME_PLACE(struct ddpi_cu_mem_prop, alloc_flags, CUmemAllocationProp, allocFlags);
SAME_PLACE(struct ddpi_cu_mem_prop, alloc_flags.compression_type, CUmemAllocationProp,
           allocFlags.compressionType);
SAME_PLACE(struct ddpi_cu_mem_prop, alloc_flags.gpu_direct_rdma_capable, CUmemAllocationProp,
           allocFlags.gpuDirectRDMACapable);
SAME_PLACE(struct ddpi_cu_mem_prop, alloc_flags.usage, CUmemAllocationProp, allocFlags.usage);
SAME_PLACE(struct ddpi_cu_mem_prop, alloc_flags.reserved, CUmemAllocationProp, allocFlags.reserved);
SAME_PLACE(struct ddpi_cu_mem_access, location, CUmemAccessDesc, location);
SAME_PLACE(struct ddpi_cu_mem_access, flags, CUmemAccessDesc, flags);

/* From here on our names stand for the toolkit's types, so that the parameters of the list can be
 * compared with those of the variant that the toolkit lists under the same version. */
#define ddpi_cu_result     CUresult
#define ddpi_cu_deviceptr  CUdeviceptr
#define ddpi_cu_context    CUcontext
#define ddpi_cu_stream     CUstream
#define ddpi_cu_module     CUmodule
#define ddpi_cu_function   CUfunction
#define ddpi_cu_mem_handle CUmemGenericAllocationHandle
#define ddpi_cu_uuid       CUuuid_st
#define ddpi_cu_ipc_handle CUipcMemHandle_st
#define ddpi_cu_mem_prop   CUmemAllocationProp_st
#define ddpi_cu_mem_access CUmemAccessDesc_st

#define SAME_FUNCTION(member, name, version, parameters)                                          \
    _Static_assert(__builtin_types_compatible_p(PFN_##name##_v##version, CUresult(*) parameters), \
                   #name);
DDPI_CUDA_FUNCTION_MAP(SAME_FUNCTION)

enum { HAS_TOOLKIT = 1 };
#else
enum { HAS_TOOLKIT = 0 };
#endif

START_TEST(declarations_were_compared)
{
    ck_assert_msg(HAS_TOOLKIT, "no cudaTypedefs.h was found");
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("cuda_abi");
    TCase *tcase = tcase_create("abi");
    if (HAS_TOOLKIT)
        tcase_add_test(tcase, declarations_were_compared);
    suite_add_tcase(suite, tcase);
    return suite;
}
