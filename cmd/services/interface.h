/*
 * interface.h - the network interface of an address of this machine.
 */
#ifndef CMD_HOROVOD_INTERFACE_H
#define CMD_HOROVOD_INTERFACE_H

#include <net/if.h>

/* Write the name of the interface with the local address of @socket, or with an address in text;
 * "": none has it. */
void interface_of_socket(int socket, char name[IF_NAMESIZE]);
void interface_of_text(const char *address, char name[IF_NAMESIZE]);

/* The same for the address of the default route; "": there is none. Sends nothing. */
void interface_to_the_world(char name[IF_NAMESIZE]);

#endif
