/*
 * gpu_fault.c - the table of Xids. Owns nothing.
 */
#include "gpu_fault.h"

#include <inttypes.h>
#include <stdio.h>

#define ASK_DEBUGGER "run it below compute-sanitizer, or with CUDA_LAUNCH_BLOCKING=1, to see where"
#define CHECK_GPU \
    "take the node out of use, reset the GPU, and run its diagnostics (dcgmi diag -r 3)"
#define REPLACE_GPU "take the node out of use; if it recurs after a reboot the GPU must be replaced"
#define RESET_GPU   "reset the GPU (nvidia-smi --gpu-reset) before it is used again"
#define SEE_OTHER   "look for an earlier error, here and in the kernel's log (dmesg | grep Xid)"
#define NO_NEED     "no action is needed for this alone"
#define UPDATE      "update driver and firmware if it recurs, and reboot the node"

static const struct {
    uint32_t xid;
    struct gpu_fault_meaning meaning;
} xids[] = {
    {8,
     {GPU_FAULT_OF_PROGRAM, "a kernel ran longer than the display's watchdog allows",
      "use a GPU without a display, or shorter kernels"}},
    {13,
     {GPU_FAULT_OF_PROGRAM, "a kernel did something illegal, such as a bad instruction or index",
      ASK_DEBUGGER}},
    {31, {GPU_FAULT_OF_PROGRAM, "a kernel used an address without memory", ASK_DEBUGGER}},
    {32,
     {GPU_FAULT_OF_HARDWARE, "the GPU received damaged commands",
      "check the PCIe link of this GPU; a broken program can cause it too"}},
    {38, {GPU_FAULT_OF_DRIVER, "the GPU's firmware failed", UPDATE}},
    {43,
     {GPU_FAULT_OF_PROGRAM, "the driver stopped a program whose kernel had failed or hung",
      ASK_DEBUGGER}},
    {45, {GPU_FAULT_AFTERMATH, "the work of a program that has ended was cleaned up", SEE_OTHER}},
    {48, {GPU_FAULT_OF_HARDWARE, "double-bit memory error, which cannot be corrected", RESET_GPU}},
    {56, {GPU_FAULT_OF_HARDWARE, "display engine error", CHECK_GPU}},
    {57, {GPU_FAULT_OF_HARDWARE, "a link to the GPU's memory could not be set up", REPLACE_GPU}},
    {58, {GPU_FAULT_OF_HARDWARE, "memory interface error", REPLACE_GPU}},
    {61, {GPU_FAULT_OF_DRIVER, "an internal check of the GPU's microcontroller failed", UPDATE}},
    {62, {GPU_FAULT_OF_DRIVER, "the GPU's own microcontroller has halted", UPDATE}},
    {63,
     {GPU_FAULT_NOTICE, "a row of bad memory was recorded, to be remapped to a spare one",
      "reset the GPU when the job is over, so that the remapping takes effect"}},
    {64,
     {GPU_FAULT_OF_HARDWARE, "a row of bad memory could not be remapped to a spare one",
      REPLACE_GPU}},
    {68, {GPU_FAULT_OF_HARDWARE, "video processor error", CHECK_GPU}},
    {69,
     {GPU_FAULT_OF_PROGRAM, "a kernel used the graphics engine in an illegal way", ASK_DEBUGGER}},
    {74,
     {GPU_FAULT_OF_HARDWARE, "NVLink error",
      "see 'nvidia-smi nvlink -e'; reset the GPU, and have its links checked if it recurs"}},
    {79,
     {GPU_FAULT_OF_HARDWARE, "the GPU has fallen off the bus",
      "reboot the node and check power, heat and seating of this GPU; it cannot be used until "
      "then"}},
    {92,
     {GPU_FAULT_NOTICE, "many single-bit memory errors, which were corrected",
      "run the GPU's diagnostics when the job is over"}},
    {94,
     {GPU_FAULT_OF_HARDWARE, "memory error that ended only the program which used that memory",
      "start again; reset the GPU when the job is over, so that the bad memory is remapped"}},
    {95, {GPU_FAULT_OF_HARDWARE, "memory error that affects all programs of the GPU", RESET_GPU}},
    {109, {GPU_FAULT_OF_DRIVER, "switching between programs took too long", UPDATE}},
    {110, {GPU_FAULT_OF_HARDWARE, "security fault of the GPU", CHECK_GPU}},
    {119, {GPU_FAULT_OF_DRIVER, "the GPU's system processor does not answer", UPDATE}},
    {120, {GPU_FAULT_OF_DRIVER, "the GPU's system processor has failed", UPDATE}},
    {121,
     {GPU_FAULT_NOTICE, "the link between CPU and GPU had an error, which was corrected",
      "reset the GPU when the job is over"}},
    {122, {GPU_FAULT_OF_DRIVER, "the GPU's settings memory could not be accessed", UPDATE}},
    {123, {GPU_FAULT_OF_DRIVER, "the GPU's power controller does not answer", UPDATE}},
    {137,
     {GPU_FAULT_OF_PROGRAM, "a kernel used an address of another GPU without permission",
      ASK_DEBUGGER}},
    {140, {GPU_FAULT_OF_HARDWARE, "memory error that could not be contained", RESET_GPU}},
    {143, {GPU_FAULT_OF_HARDWARE, "the GPU could not be initialised", CHECK_GPU}},
    {144, {GPU_FAULT_OF_HARDWARE, "NVLink error in the link's logic", RESET_GPU}},
    {145, {GPU_FAULT_OF_HARDWARE, "NVLink error in a remote access", RESET_GPU}},
    {146, {GPU_FAULT_OF_HARDWARE, "NVLink error in the link's control", RESET_GPU}},
    {147, {GPU_FAULT_OF_HARDWARE, "NVLink error in the transport", RESET_GPU}},
    {148, {GPU_FAULT_OF_HARDWARE, "NVLink error in the memory system", RESET_GPU}},
    {149, {GPU_FAULT_OF_HARDWARE, "NVLink error of the link itself", RESET_GPU}},
    {150, {GPU_FAULT_OF_HARDWARE, "NVLink error in a switch", RESET_GPU}},
    {154, {GPU_FAULT_AFTERMATH, "the driver says that the GPU has to be recovered", RESET_GPU}},
};

struct gpu_fault_meaning gpu_fault_meaning(const struct gpu_fault *fault)
{
    if (fault->kind == GPU_FAULT_ECC_DOUBLE)
        return (struct gpu_fault_meaning){
            GPU_FAULT_OF_HARDWARE, "double-bit memory error, which cannot be corrected", RESET_GPU};
    if (fault->kind == GPU_FAULT_ECC_SINGLE)
        return (struct gpu_fault_meaning){GPU_FAULT_NOTICE,
                                          "single-bit memory error, which was corrected", NO_NEED};
    for (size_t i = 0; i < sizeof xids / sizeof *xids; i++)
        if (xids[i].xid == fault->xid)
            return xids[i].meaning;
    return (struct gpu_fault_meaning){GPU_FAULT_OF_DRIVER, "not known to ddprun",
                                      "look it up in NVIDIA's list of Xids"};
}

void gpu_fault_name(const struct gpu_fault *fault, char *text, size_t size)
{
    const char *what = gpu_fault_meaning(fault).what;
    char times[24] = "";
    if (fault->times > 1)
        snprintf(times, sizeof times, ", %" PRIu32 " times", fault->times);
    if (fault->kind == GPU_FAULT_XID)
        snprintf(text, size, "Xid %" PRIu32 " (%s)%s", fault->xid, what, times);
    else
        snprintf(text, size, "ECC: %s%s", what, times);
}

bool gpu_fault_explains(const struct gpu_fault *fault)
{
    enum gpu_fault_blame blame = gpu_fault_meaning(fault).blame;
    return blame != GPU_FAULT_AFTERMATH && blame != GPU_FAULT_NOTICE;
}

const char *gpu_fault_blames(enum gpu_fault_blame blame)
{
    switch (blame) {
    case GPU_FAULT_OF_PROGRAM:
        return "most likely the program's own fault, not the GPU's";
    case GPU_FAULT_OF_HARDWARE:
        return "the hardware's fault, not the program's";
    case GPU_FAULT_OF_DRIVER:
        return "a fault of the driver or of the GPU, not of the program";
    case GPU_FAULT_AFTERMATH:
        return "it follows from something else";
    default:
        return "it ends no program by itself";
    }
}
