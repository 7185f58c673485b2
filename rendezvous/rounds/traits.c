/*
 * traits.c - what counts about each member, and how many members have each trait, so that no step
 * has to look at all members. Owns the counts.
 */
#include "rounds_impl.h"

/* A seated member that has not read its seat may still start workers: only what it says about that
 * generation counts. */
static bool member_is_idle(const struct ddpi_rounds *rounds, const struct round_member *member)
{
    return (member->says.phase == DDP_ROUND_IDLE || member->says.phase == DDP_ROUND_DONE) &&
           (!member->seated || member->says.generation == rounds->generation);
}

static uint32_t traits_of(const struct ddpi_rounds *rounds, const struct round_member *member)
{
    bool live = member->seat.order != DDP_ROUND_END && !member->refused;
    bool stays = live && !member->says.leaving && !member->drained;
    bool left_out = member->quarantined || member->says.sick[0] != '\0';
    bool willing = stays && !left_out;
    bool checking = willing && member->says.checking;
    bool busy = !member_is_idle(rounds, member);
    bool current = member->seated && member->says.generation == rounds->generation;
    bool done = current && member->says.phase == DDP_ROUND_DONE;
    bool has[] = {
        [ROUND_LIVE] = live,
        [ROUND_WILLING] = willing,
        [ROUND_BUSY] = busy,
        [ROUND_SPARE] = willing && !busy && !checking && !member->seated,
        [ROUND_SEATED] = member->seated,
        [ROUND_ACTIVE] = member->seated && busy,
        [ROUND_UP] = done || (current && member->says.phase == DDP_ROUND_RUNNING),
        [ROUND_DONE] = done,
        [ROUND_DRAINED] = member->seated && member->drained && !done,
        [ROUND_LATE] = live && member->late,
        [ROUND_CHECKING] = checking,
        [ROUND_LEFT_OUT] = stays && left_out && !member->late,
    };
    uint32_t traits = 0;
    for (unsigned trait = 0; trait < ROUND_TRAITS; trait++)
        traits |= (uint32_t)has[trait] << trait;
    return traits;
}

void ddpi_rounds_recount(struct ddpi_rounds *rounds, struct round_member *member)
{
    uint32_t traits = traits_of(rounds, member);
    for (unsigned trait = 0; trait < ROUND_TRAITS; trait++)
        rounds->count[trait] += (traits >> trait & 1) - (member->traits >> trait & 1);
    bool finishing = rounds->finishing || (traits >> ROUND_DONE & 1) != 0;
    bool shown = ddpi_rounds_state(rounds) == ROUNDS_FORMING ? traits != member->traits
                                                             : finishing != rounds->finishing;
    rounds->stale |= shown;
    rounds->finishing = finishing;
    member->traits = traits;
}

void ddpi_rounds_look_at(struct ddpi_rounds *rounds, struct round_member *member)
{
    ddpi_list_remove(&member->of_news);
    ddpi_list_append(&rounds->news, &member->of_news);
}
