/*
 * rights.c - changes the capabilities of the calling thread.
 */
#include "rights.h"

#include <linux/capability.h>
#include <sys/syscall.h>
#include <unistd.h>

bool may_kill_others(bool on)
{
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[2];
    if (syscall(SYS_capget, &head, data) != 0)
        return false;
    if (on)
        data[0].effective |= 1u << CAP_KILL;
    else
        data[0].effective &= ~(1u << CAP_KILL);
    return syscall(SYS_capset, &head, data) == 0;
}
