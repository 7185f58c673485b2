/*
 * grid.c - the arithmetic of rank grids (<ddprun/comm_groups.h>). Pure; owns nothing.
 *
 * A rank is a number in mixed radix whose digits are its coordinates. Its digits on the axes of a
 * group, read as a number of their own, are its rank in the group; the other digits are the number
 * of the group. Both keep the order of the axes in the grid, so members ascend.
 */
#include "config.h"
#include "error.h"

#include <ddprun/comm_groups.h>

/* 0: not a grid. */
uint32_t ddp_grid_size(const struct ddp_grid *grid)
{
    uint64_t size = 1;
    if (grid->naxes == 0 || grid->naxes > DDP_GRID_AXES)
        return 0;
    for (uint32_t axis = 0; axis < grid->naxes; axis++) {
        size *= grid->dims[axis];
        if (size == 0 || size > DDPI_WORLD_MAX)
            return 0;
    }
    return (uint32_t)size;
}

static ddp_status grid_check(const struct ddp_grid *grid, struct ddp_error *err)
{
    if (ddp_grid_size(grid) > 0)
        return DDP_OK;
    if (grid->naxes == 0 || grid->naxes > DDP_GRID_AXES)
        return ddpi_error_set(err, DDP_E_INVALID, "a grid has 1 to %d axes, not %u", DDP_GRID_AXES,
                              grid->naxes);
    for (uint32_t axis = 0; axis < grid->naxes; axis++)
        if (grid->dims[axis] == 0)
            return ddpi_error_set(err, DDP_E_INVALID, "axis %u of the grid has no ranks", axis);
    return ddpi_error_set(err, DDP_E_INVALID, "the grid has more than %d ranks", DDPI_WORLD_MAX);
}

static ddp_status grid_check_rank(const struct ddp_grid *grid, uint32_t rank, struct ddp_error *err)
{
    ddp_status status = grid_check(grid, err);
    if (status == DDP_OK && rank >= ddp_grid_size(grid))
        status = ddpi_error_set(err, DDP_E_INVALID, "rank %u is not in a grid of %u ranks", rank,
                                ddp_grid_size(grid));
    return status;
}

ddp_status ddp_grid_init(struct ddp_grid *ret_grid, const uint32_t *dims, uint32_t naxes,
                         struct ddp_error *err)
{
    struct ddp_grid grid = {.naxes = naxes};
    for (uint32_t axis = 0; axis < naxes && axis < DDP_GRID_AXES; axis++)
        grid.dims[axis] = dims[axis];
    ddp_status status = grid_check(&grid, err);
    if (status == DDP_OK)
        *ret_grid = grid;
    return status;
}

ddp_status ddp_grid_coords(const struct ddp_grid *grid, uint32_t rank, uint32_t *ret_coords,
                           struct ddp_error *err)
{
    ddp_status status = grid_check_rank(grid, rank, err);
    for (uint32_t axis = grid->naxes; status == DDP_OK && axis-- > 0;) {
        ret_coords[axis] = rank % grid->dims[axis];
        rank /= grid->dims[axis];
    }
    return status;
}

ddp_status ddp_grid_rank(const struct ddp_grid *grid, const uint32_t *coords, uint32_t *ret_rank,
                         struct ddp_error *err)
{
    uint32_t rank = 0;
    ddp_status status = grid_check(grid, err);
    for (uint32_t axis = 0; status == DDP_OK && axis < grid->naxes; axis++) {
        if (coords[axis] >= grid->dims[axis])
            return ddpi_error_set(err, DDP_E_INVALID,
                                  "coordinate %u is outside of axis %u, which has %u ranks",
                                  coords[axis], axis, grid->dims[axis]);
        rank = rank * grid->dims[axis] + coords[axis];
    }
    if (status == DDP_OK)
        *ret_rank = rank;
    return status;
}

/* Set *@ret_along to the set of @axes. */
static ddp_status grid_read_axes(const struct ddp_grid *grid, const uint32_t *axes, uint32_t naxes,
                                 uint32_t *ret_along, struct ddp_error *err)
{
    uint32_t along = 0;
    ddp_status status = grid_check(grid, err);
    for (uint32_t i = 0; status == DDP_OK && i < naxes; i++) {
        if (axes[i] >= grid->naxes)
            return ddpi_error_set(err, DDP_E_INVALID, "axis %u does not exist in a grid of %u axes",
                                  axes[i], grid->naxes);
        if ((along >> axes[i] & 1) != 0)
            return ddpi_error_set(err, DDP_E_INVALID, "axis %u is named twice", axes[i]);
        along |= 1U << axes[i];
    }
    *ret_along = along;
    return status;
}

ddp_status ddp_grid_find_group(const struct ddp_grid *grid, uint32_t rank, const uint32_t *axes,
                               uint32_t naxes, struct ddp_grid_group *ret_group,
                               struct ddp_error *err)
{
    struct ddp_grid_group group = {.groups = 1, .size = 1};
    uint32_t coords[DDP_GRID_AXES], along;
    ddp_status status = grid_read_axes(grid, axes, naxes, &along, err);
    if (status == DDP_OK)
        status = ddp_grid_coords(grid, rank, coords, err);
    if (status != DDP_OK)
        return status;
    for (uint32_t axis = 0; axis < grid->naxes; axis++) {
        bool inside = (along >> axis & 1) != 0;
        uint32_t *number = inside ? &group.rank : &group.index;
        *number = *number * grid->dims[axis] + coords[axis];
        *(inside ? &group.size : &group.groups) *= grid->dims[axis];
    }
    *ret_group = group;
    return DDP_OK;
}

ddp_status ddp_grid_member(const struct ddp_grid *grid, const uint32_t *axes, uint32_t naxes,
                           uint32_t index, uint32_t member, uint32_t *ret_rank,
                           struct ddp_error *err)
{
    uint32_t coords[DDP_GRID_AXES], along, left = index, left_member = member;
    ddp_status status = grid_read_axes(grid, axes, naxes, &along, err);
    if (status != DDP_OK)
        return status;
    for (uint32_t axis = grid->naxes; axis-- > 0;) {
        uint32_t *number = (along >> axis & 1) != 0 ? &left_member : &left;
        coords[axis] = *number % grid->dims[axis];
        *number /= grid->dims[axis];
    }
    if (left > 0)
        return ddpi_error_set(err, DDP_E_INVALID, "group %u does not exist along these axes",
                              index);
    if (left_member > 0)
        return ddpi_error_set(err, DDP_E_INVALID, "a group along these axes has no member %u",
                              member);
    return ddp_grid_rank(grid, coords, ret_rank, err);
}
