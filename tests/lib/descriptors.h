/*
 * descriptors.h - how many descriptors this process has open, to see that none was left.
 */
#ifndef TESTS_DESCRIPTORS_H
#define TESTS_DESCRIPTORS_H

unsigned open_descriptors(void);

#endif
