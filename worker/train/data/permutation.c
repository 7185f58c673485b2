/*
 * permutation.c - the Mersenne twister MT19937 (Matsumoto and Nishimura, 1998), seeded as PyTorch
 * does, and the two shuffles of its randperm() (aten/src/ATen/native/TensorFactories.cpp). Owns
 * nothing, and must not allocate or draw a number more or less than PyTorch would.
 */
#include "permutation.h"

enum { TWISTER_WORDS = 624, TWISTER_SHIFT = 397 };

struct twister {
    uint32_t words[TWISTER_WORDS];
    unsigned next; /* word to give out; TWISTER_WORDS: make new ones first */
};

static void twister_seed(struct twister *twister, uint32_t seed)
{
    twister->words[0] = seed;
    for (uint32_t i = 1; i < TWISTER_WORDS; i++) {
        uint32_t before = twister->words[i - 1];
        twister->words[i] = 1812433253U * (before ^ (before >> 30)) + i;
    }
    twister->next = TWISTER_WORDS;
}

static void twister_renew(struct twister *twister)
{
    uint32_t *words = twister->words;
    for (unsigned i = 0; i < TWISTER_WORDS; i++) {
        uint32_t mixed = (words[i] & 0x80000000U) | (words[(i + 1) % TWISTER_WORDS] & 0x7fffffffU);
        words[i] = words[(i + TWISTER_SHIFT) % TWISTER_WORDS] ^ (mixed >> 1) ^
                   ((mixed & 1) != 0 ? 0x9908b0dfU : 0);
    }
    twister->next = 0;
}

static uint32_t twister_draw(struct twister *twister)
{
    if (twister->next == TWISTER_WORDS)
        twister_renew(twister);
    uint32_t word = twister->words[twister->next++];
    word ^= word >> 11;
    word ^= (word << 7) & 0x9d2c5680U;
    word ^= (word << 15) & 0xefc60000U;
    return word ^ (word >> 18);
}

/* Each position is exchanged with one from there to the end. */
static void shuffle_small(uint64_t *order, uint64_t count, struct twister *twister)
{
    for (uint64_t i = 0; i < count; i++)
        order[i] = i;
    for (uint64_t i = 0; i + 1 < count; i++) {
        uint64_t other = i + twister_draw(twister) % (count - i);
        uint64_t kept = order[i];
        order[i] = order[other];
        order[other] = kept;
    }
}

/* "Inside out": 32 bits would prefer some positions. The first word drawn is the upper half. */
static void shuffle_large(uint64_t *order, uint64_t count, struct twister *twister)
{
    for (uint64_t i = 0; i < count; i++) {
        uint64_t upper = twister_draw(twister);
        uint64_t other = (upper << 32 | twister_draw(twister)) % (i + 1);
        order[i] = i;
        order[i] = order[other];
        order[other] = i;
    }
}

void ddpi_permutation_fill(uint64_t *order, uint64_t count, uint64_t seed)
{
    struct twister twister;
    twister_seed(&twister, (uint32_t)seed);
    if (count < DDPI_PERMUTATION_LARGE)
        shuffle_small(order, count, &twister);
    else
        shuffle_large(order, count, &twister);
}
