/* Counts of scores above thresholds of their row and of their column; float64 decides at once where float32 cannot. */
#include "kernel.h"

typedef struct {
    int64_t size;
    const float *low[2], *high[2]; /* (levels, step): a score not above low is below the level, one above high is above it; ascending */
    const double *level[2];        /* (n, levels) */
    int64_t *above[2], *ties[2];   /* (n, levels), added to: scores above the level; scores at it, as near as float64 can tell */
    int32_t *count;                /* (levels of the columns, line), of this chunk */
    int64_t step[2], line, at;     /* `at`: first column of the chunk */
    places list;                   /* where `listed`: the scores above low and not above high, which are not decided */
    int32_t levels[2], listed;
} threshold;

typedef struct { /* scores in float64 of some columns of a row */
    double score[WIDE];
    unsigned known;
} decided;

#define STRETCH (4 * WIDE)

/* Where a score of a row may be above `first` or, if there are any, above the level of its column: the starts of stretches of
   STRETCH columns, of which the last may be shorter. */
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

static int threshold_ready(const void *arguments, const tile *t) {
    const threshold *of = arguments;
    return !of->listed || roomy(&of->list, (int64_t)t->m * t->n * ((of->levels[0] > 0) + (of->levels[1] > 0)));
}

/* Scores that float32 leaves open about a level of their row (side 0) or of their column (1). */
static __attribute__((noinline)) void threshold_decide(threshold *of, const view *v, const tile *t, int i, int j, unsigned open,
                                                       int k, int side, decided *known) {
    for (; open; open &= open - 1) {
        int lane = __builtin_ctz(open);
        int64_t row = t->row + i, column = t->column + j + lane, place = (side ? column : row) * of->levels[side] + k;
        if (of->listed) {
            note(&of->list, row, column, t->score[(int64_t)i * WIDTH + j + lane], k, side);
            continue;
        }
        if (!(known->known >> lane & 1)) known->score[lane] = exact(v, row, column), known->known |= 1u << lane;
        double excess = known->score[lane] - of->level[side][place];
        of->above[side][place] += excess > v->tie;
        of->ties[side][place] += fabs(excess) <= v->tie;
    }
}

static void threshold_see(void *arguments, const view *v, const tile *t) {
    threshold *of = arguments;
    const int rows = of->levels[0], columns = of->levels[1];
    const int64_t at = t->column, chunk = of->at;
    int where[WIDTH / STRETCH + 1];
    for (int i = 0; i < t->m; i++) {
        const float *row = t->score + (int64_t)i * WIDTH, *low = of->low[0] + t->row + i, *high = of->high[0] + t->row + i;
        int number = reached(row, columns ? of->low[1] + at : 0, rows ? low[0] : INFINITY, t->n, where);
        for (int f = 0; f < number; f++)
            for (int j = where[f]; j < where[f] + STRETCH && j < t->n; j += WIDE) {
                vf x = load(row + j);
                decided known = {.known = 0};
                unsigned reach;
                for (int k = 0; k < rows && (reach = over(x, all(low[k * of->step[0]]))); k++) {
                    unsigned above = over(x, all(high[k * of->step[0]]));
                    of->above[0][(t->row + i) * rows + k] += __builtin_popcount(above);
                    if (reach & ~above) threshold_decide(of, v, t, i, j, reach & ~above, k, 0, &known);
                }
                for (int k = 0; k < columns; k++) {
                    if (!(reach = over(x, load(of->low[1] + k * of->step[1] + at + j)))) break;
                    vi above = x > load(of->high[1] + k * of->step[1] + at + j);
                    *(vi *)(of->count + k * of->line + at - chunk + j) -= above;
                    if (reach & ~bits(above)) threshold_decide(of, v, t, i, j, reach & ~bits(above), k, 1, &known);
                }
            }
    }
}

static void threshold_close(void *arguments, const view *v, const area *here) {
    const threshold *of = arguments;
    (void)v;
    for (int k = 0; k < of->levels[1]; k++)
        for (int64_t j = 0; j < here->columns; j++)
            of->above[1][(here->column + j) * of->levels[1] + k] += of->count[k * of->line + j];
}

PRIMITIVE(threshold, threshold_open, threshold_ready, threshold_see, NULL, threshold_close)
