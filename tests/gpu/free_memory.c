/*
 * free_memory.c - prints how many bytes of the first device's memory are free while this program
 * has a context there. In a process of its own, as whoever asks must not keep a context meanwhile.
 */
#include "device.h"

#include <stdio.h>
#include <stdlib.h>

int main(void)
{
    struct device device;
    size_t free_bytes, total;
    device_open(&device);
    if (device.cuda.mem_get_info(&free_bytes, &total) != DDPI_CU_SUCCESS)
        return EXIT_FAILURE;
    printf("%zu\n", free_bytes);
    device_close(&device);
    return EXIT_SUCCESS;
}
