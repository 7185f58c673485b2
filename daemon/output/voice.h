/*
 * voice.h - how much ddprun itself says beside what the workers write.
 */
#ifndef DAEMON_VOICE_H
#define DAEMON_VOICE_H

enum voice {
    VOICE_NORMAL,  /* also what it does that a person may not expect, and what it waits for */
    VOICE_QUIET,   /* only errors and the report of a failure */
    VOICE_VERBOSE, /* also each step that goes well */
};

#endif
