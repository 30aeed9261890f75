/* Count scores above thresholds of their row and column; float64 decides immediately where float32 cannot. */
#include "kernel.h"

typedef struct {
    int64_t size;
    const float *low[2], *high[2]; /* (levels, step), ascending: scores up to low are not above the level, scores above high
                                      are */
    const double *level[2];        /* (n, levels) */
    int64_t *above[2], *ties[2];   /* (n, levels), added to: scores above the level; scores tied with it */
    int32_t *count;                /* (levels of the columns, line), counts of this chunk */
    int64_t step[2], line, at;     /* `at`: first column of the chunk */
    int32_t levels[2];
} threshold;

#define STRETCH (4 * WIDE)

/* Find the stretches of STRETCH columns (the last may be shorter) in which a score of a row exceeds `first` or, if there are
   any, the level of its column; returns their number, and their starts in `where`. */
static __attribute__((noinline)) int reached(const float *row, const float *low, float first, int n, int *where) {
    vf bound = all(first);
    int number = 0, j = 0;
#define HIGHER(k) over(load(row + j + (k)*WIDE), low ? smaller(load(low + j + (k)*WIDE), bound) : bound)
    for (; j + STRETCH <= n; j += STRETCH) {
        where[number] = j;
        number += (HIGHER(0) | HIGHER(1) | HIGHER(2) | HIGHER(3)) != 0;
    }
    unsigned any = 0;
    where[number] = j;
    for (; j < n; j += WIDE) any |= HIGHER(0);
    return number + (any != 0);
#undef HIGHER
}

static void threshold_open(void *arguments, const view *v, const area *here) {
    threshold *of = arguments;
    (void)v;
    of->at = here->column;
    for (int k = 0; k < of->levels[1]; k++) memset(of->count + k * of->line, 0, sizeof(int32_t) * (here->columns + PAD));
}

/* Decide the scores of a row that float32 leaves undecided, for levels of the row (side 0) and of the columns (1). */
static __attribute__((noinline)) void threshold_decide(threshold *of, const view *v, const tile *t, int i,
                                                       const int64_t *column, int number) {
    double scores[WIDTH];
    exact_of_row(v, t->row + i, column, number, scores);
    for (int f = 0; f < number; f++) {
        const float x = t->score[(int64_t)i * WIDTH + column[f] - t->column];
        for (int side = 0; side < 2; side++) {
            const int64_t owner = side ? column[f] : t->row + i, own = owner * of->levels[side];
            for (int k = 0; k < of->levels[side] && x > of->low[side][k * of->step[side] + owner]; k++) {
                if (x > of->high[side][k * of->step[side] + owner]) continue;
                double excess = scores[f] - of->level[side][own + k];
                of->above[side][own + k] += excess > v->tie;
                of->ties[side][own + k] += fabs(excess) <= v->tie;
            }
        }
    }
}

/* Count a vector of scores above the upper ends; return the lanes between the ends of a level. */
INLINE unsigned threshold_count(threshold *of, const tile *t, int i, int j, vf x) {
    const int rows = of->levels[0], columns = of->levels[1];
    const int64_t row = t->row + i, column = t->column + j;
    unsigned reach, open = 0;
    for (int k = 0; k < rows && (reach = over(x, all(of->low[0][k * of->step[0] + row]))); k++) {
        unsigned above = over(x, all(of->high[0][k * of->step[0] + row]));
        of->above[0][row * rows + k] += __builtin_popcount(above);
        open |= reach & ~above;
    }
    for (int k = 0; k < columns && (reach = over(x, load(of->low[1] + k * of->step[1] + column))); k++) {
        vi above = x > load(of->high[1] + k * of->step[1] + column);
        *(vi *)(of->count + k * of->line + column - of->at) -= above;
        open |= reach & ~bits(above);
    }
    return open;
}

static void threshold_see(void *arguments, const view *v, const tile *t) {
    threshold *of = arguments;
    int where[WIDTH / STRETCH + 1];
    int64_t column[WIDTH];
    for (int i = 0; i < t->m; i++) {
        const float *row = t->score + (int64_t)i * WIDTH;
        float first = of->levels[0] ? of->low[0][t->row + i] : INFINITY;
        int number = reached(row, of->levels[1] ? of->low[1] + t->column : 0, first, t->n, where), waiting = 0;
        for (int f = 0; f < number; f++)
            for (int j = where[f]; j < where[f] + STRETCH && j < t->n; j += WIDE)
                for (unsigned open = threshold_count(of, t, i, j, load(row + j)); open; open &= open - 1)
                    column[waiting++] = t->column + j + __builtin_ctz(open);
        if (waiting) threshold_decide(of, v, t, i, column, waiting);
    }
}

static void threshold_close(void *arguments, const view *v, const area *here) {
    const threshold *of = arguments;
    (void)v;
    for (int k = 0; k < of->levels[1]; k++)
        for (int64_t j = 0; j < here->columns; j++)
            of->above[1][(here->column + j) * of->levels[1] + k] += of->count[k * of->line + j];
}

PRIMITIVE(threshold, threshold_open, threshold_see, threshold_close)
