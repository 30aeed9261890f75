/* Sigmoids of scores about the positives of their row and of their column: their sums, and what each score weighs. */
#include "kernel.h"

#define RUN 64 /* rows whose float32 sums of the columns are added up before float64 takes over */
#define SMALLEST 100.0f /* binary exponent, well below all that is not left out */
#define MOST 64  /* positives of a query */

typedef struct { /* the queries of one direction; whole arrays, (levels, step), or (step,) */
    const float *level;            /* scores of the positives; +infinity where there is none */
    const float *floor;            /* (step,) scores that are not above it are left out */
    const float *factor, *inverse; /* weights of a slope in a share, and in a term of Eq. 7 */
    const float *low, *high;       /* (step,) a share, or a term, that is not above low does not count, above high it does */
    const float *some, *many;      /* (step,) the same about eps of the push */
    const double *rank;            /* smooth rank among the positives */
    float *bar;                    /* no factor can become larger, by the sums so far */
    double *above, *slope;         /* (levels, line): sums of sigmoids and slopes; */
    double *sums, *most;           /* (4, line), (line,): of shares, those above eps, their squares, share ln share; the largest */
    int64_t *counts;               /* (6, line): shares above low and high, terms likewise, shares above some and many */
    int64_t step, line;
    int32_t levels;
} asking;

/* s = 1 / (1 + 2^(scale (level - x))), and s (1 - s), at least 2^-SMALLEST: denormal numbers are slow. */
INLINE vf sigmoid(vf level, vf x, float scale, vf *slope) {
    vf e = power(larger(smaller((level - x) * all(scale), all(SMALLEST)), all(-SMALLEST)));
    vf s = all(1.0f) / (all(1.0f) + e);
    *slope = e * s * s;
    return s;
}

/* The values of one query, (levels, step), each filling a vector. */
INLINE void spread_out(const float *from, int64_t step, int number, float *to) {
    for (int k = 0; k < number; k++) store(to + k * WIDE, all(from[k * step]));
}

/* Positives that a query has. */
INLINE int had(const asking *of, int64_t place) {
    int k = of->levels;
    while (k && of->level[(k - 1) * of->step + place] == INFINITY) k--;
    return k;
}

typedef struct {
    int64_t size;
    asking sides[2]; /* the second without levels: candidates do not ask */
    float *work;     /* (2 levels of the columns, WIDTH) */
    places list;     /* what may count, where `listing` */
    double give;     /* sigmoids may be too large by this factor */
    float scale, least; /* what is listed weighs more than this */
    int32_t listing;
} sigmoids;

/* Add the sigmoids and slopes of a vector of scores, each about the positives of its own query. */
INLINE void added(vf x, int levels, const float *level, int64_t step, float scale, float *above, float *slope, int64_t line) {
    vf steep;
    for (int k = 0; k < levels; k++) {
        vf s = sigmoid(load(level + k * step), x, scale, &steep);
        store(above + k * line, load(above + k * line) + s);
        store(slope + k * line, load(slope + k * line) + steep);
    }
}

/* Factors as they are if no more sigmoids come: those of the end are not larger. Scores outside of low and high, where every slope
   is below 2^-|z|, weigh less than `least`; one more power of two is for rounding. */
static void bands(const sigmoids *of, int side, int64_t from, int number, float *low, float *high) {
    const asking *a = of->sides + side;
    for (int64_t j = from; j < from + number; j++) {
        float lowest = INFINITY, highest = -INFINITY;
        double most = 0;
        for (int k = 0; k < a->levels; k++) {
            double rank = a->rank[k * a->step + j], whole = rank + a->above[k * a->line + j] / of->give;
            float level = a->level[k * a->step + j];
            most += a->bar[k * a->step + j] = rank > 0 ? (float)(rank / (whole * whole)) : 0;
            if (rank > 0) lowest = less(level, lowest), highest = more(level, highest);
        }
        float room = (log2f((float)(most / of->least)) + 1) / of->scale;
        low[j - from] = most > 4 * of->least ? lowest - room : INFINITY;
        high[j - from] = highest + room;
    }
}

/* Note those of a vector of scores that may count. */
INLINE void sifted(sigmoids *of, const tile *t, vf x, unsigned some, const asking *a, int64_t at, int i, int j, int side) {
    vf weight = all(0), steep;
    for (int k = 0; some && k < a->levels; k++) {
        const float *level = a->level + k * a->step + at, *bar = a->bar + k * a->step + at;
        sigmoid(side ? load(level) : all(*level), x, of->scale, &steep);
        weight += (side ? load(bar) : all(*bar)) * steep;
    }
    for (some &= over(weight, all(of->least)); some; some &= some - 1) {
        int lane = j + __builtin_ctz(some);
        note(&of->list, t->row + i, t->column + lane, t->score[(int64_t)i * WIDTH + lane], 0, side);
    }
}

/* Note what may count by the sums as they are now, with those of the tile. */
static void sift(sigmoids *of, const tile *t) {
    const asking *rows = of->sides, *columns = of->sides + 1;
    float row_low[STRIP], row_high[STRIP], low[WIDTH], high[WIDTH];
    int where[WIDTH / STRETCH + 1], two = columns->levels > 0;
    for (int j = t->there; j < t->n; j++) low[j] = INFINITY, high[j] = INFINITY;
    bands(of, 0, t->row, t->m, row_low, row_high);
    if (two) bands(of, 1, t->column, t->there, low, high);
    for (int i = 0; i < t->m; i++) {
        const float *row = t->score + (int64_t)i * WIDTH;
        int number = reached(row, two ? low : 0, row_low[i], t->n, where);
        for (int f = 0; f < number; f++)
            for (int j = where[f]; j < where[f] + STRETCH && j < t->n; j += WIDE) {
                vf x = load(row + j);
                unsigned mine = over(x, all(row_low[i])) & ~over(x, all(row_high[i]));
                sifted(of, t, x, mine, rows, t->row + i, i, j, 0);
                if (two) sifted(of, t, x, over(x, load(low + j)) & ~over(x, load(high + j)), columns, t->column + j, i, j, 1);
            }
    }
}

/* The sums of some columns go into float64. */
static void settled(sigmoids *of, const tile *t) {
    const asking *a = of->sides + 1;
    for (int k = 0; k < a->levels; k++)
        for (int j = 0; j < t->there; j++) {
            a->above[k * a->line + t->column + j] += of->work[k * WIDTH + j];
            a->slope[k * a->line + t->column + j] += of->work[(a->levels + k) * WIDTH + j];
        }
    memset(of->work, 0, sizeof(float) * 2 * a->levels * WIDTH);
}

static int sigmoids_ready(const void *arguments, const tile *t) {
    const sigmoids *of = arguments;
    return !of->listing || roomy(&of->list, 2 * (int64_t)t->m * t->n);
}

static void sigmoids_see(void *arguments, const view *v, const tile *t) {
    sigmoids *of = arguments;
    const asking *rows = of->sides, *columns = of->sides + 1;
    const float *floor = columns->levels ? columns->floor + t->column : 0;
    int where[WIDTH / STRETCH + 1];
    float level[MOST * WIDE], sum[2 * MOST * WIDE];
    (void)v;
    for (int i = 0; i < t->m; i++) {
        const int64_t place = t->row + i;
        const float *row = t->score + (int64_t)i * WIDTH;
        const int levels = had(rows, place);
        int number = reached(row, floor, rows->floor[place], t->n, where);
        spread_out(rows->level + place, rows->step, levels, level);
        memset(sum, 0, sizeof(float) * 2 * WIDE * levels);
        for (int f = 0; f < number; f++)
            for (int j = where[f]; j < where[f] + STRETCH && j < t->n; j += WIDE) {
                vf x = load(row + j);
                if (over(x, all(rows->floor[place])))
                    added(x, levels, level, WIDE, of->scale, sum, sum + levels * WIDE, WIDE);
                if (floor && over(x, load(floor + j)))
                    added(x, columns->levels, columns->level + t->column + j, columns->step, of->scale, of->work + j,
                          of->work + columns->levels * WIDTH + j, WIDTH);
            }
        for (int k = 0; number && k < levels; k++) {
            rows->above[k * rows->line + place] += total(load(sum + k * WIDE));
            rows->slope[k * rows->line + place] += total(load(sum + (levels + k) * WIDE));
        }
        if (floor && (i % RUN == RUN - 1 || i == t->m - 1)) settled(of, t);
    }
    if (of->listing) sift(of, t);
}

PRIMITIVE(sigmoids, NULL, sigmoids_ready, sigmoids_see, NULL, NULL)

typedef struct {
    int64_t size;
    asking sides[2];
    float *sums;    /* (5, WIDTH) of the columns of a tile */
    int32_t *count; /* (6, WIDTH) */
    float scale, eps;
} weighing;

/* Where the shares of a vector of scores are added up. */
typedef struct {
    const float *level, *factor, *inverse, *low, *high, *some, *many;
    float *sums;
    int32_t *count;
    int64_t step, line;
    int levels;
} queries;

/* log2 of numbers from 2^-126 on, within 2e-7 of itself and of one (minimax polynomial of (log2 x) / (x - 1) on [sqrt(1/2), sqrt(2)]). */
INLINE vf log2_of(vf x) {
    vi whole = (((vi)x - (vi)all(0.70710678f)) >> 23);
    vf f = (vf)((vi)x - (whole << 23)) - all(1.0f), p = all(0.0f);
    static const float terms[] = {1.261484659e-01f,  -2.074210351e-01f, 2.156698591e-01f,  -2.389203398e-01f, 2.879183245e-01f,
                                  -3.607048281e-01f, 4.809106099e-01f,  -7.213473334e-01f, 1.442695004e+00f};
    for (int k = 0; k < (int)(sizeof terms / sizeof *terms); k++) p = p * f + all(terms[k]);
    return __builtin_convertvector(whole, vf) + p * f;
}

/* Weigh a vector of scores, each about the positives of its own query. */
INLINE void weighed(const queries *of, vf x, float scale, float eps) {
    vf share = all(0), steep[MOST];
    for (int k = 0; k < of->levels; k++) {
        sigmoid(load(of->level + k * of->step), x, scale, steep + k);
        share += load(of->factor + k * of->step) * steep[k];
    }
    const int64_t line = of->line;
    store(of->sums, load(of->sums) + share);
    vf least = larger(share, all(0x1p-62f)); /* its square is no denormal number */
    store(of->sums + 2 * line, load(of->sums + 2 * line) + least * least);
    store(of->sums + 3 * line, load(of->sums + 3 * line) + share * all(0.69314718f) * log2_of(share));
    store(of->sums + 4 * line, larger(share, load(of->sums + 4 * line)));
    vf low = load(of->low), high = load(of->high), some = load(of->some);
    if (!over(share, smaller(low, some))) return;
    store(of->sums + line, load(of->sums + line) + pick(share > all(eps), share, all(0)));
#define COUNT(row, holds) *(vi *)(of->count + (row)*line) -= (holds)
    COUNT(0, share > low), COUNT(1, share > high), COUNT(4, share > some), COUNT(5, share > load(of->many));
    for (int k = 0; k < of->levels; k++) {
        vf term = load(of->inverse + k * of->step) * steep[k];
        COUNT(2, term > low), COUNT(3, term > high);
    }
#undef COUNT
}

/* What some lanes have come to is added to the sums of one query. */
INLINE void gathered(const asking *a, int64_t place, const float *sums, const int32_t *count, int64_t line, int lanes) {
    for (int k = 0; k < 4; k++) {
        double sum = 0;
        for (int lane = 0; lane < lanes; lane++) sum += sums[k * line + lane];
        a->sums[k * a->line + place] += sum;
    }
    for (int lane = 0; lane < lanes; lane++)
        if (sums[4 * line + lane] > a->most[place]) a->most[place] = sums[4 * line + lane];
    for (int k = 0; k < 6; k++) {
        int32_t number = 0;
        for (int lane = 0; lane < lanes; lane++) number += count[k * line + lane];
        a->counts[k * a->line + place] += number;
    }
}

/* The numbers of one query, each filling a vector. */
INLINE queries alone(const asking *a, int64_t place, float *room, float *sums, int32_t *count) {
    const int n = had(a, place);
    spread_out(a->level + place, a->step, n, room);
    spread_out(a->factor + place, a->step, n, room + n * WIDE);
    spread_out(a->inverse + place, a->step, n, room + 2 * n * WIDE);
    float *ends = room + 3 * n * WIDE;
    store(ends, all(a->low[place])), store(ends + WIDE, all(a->high[place]));
    store(ends + 2 * WIDE, all(a->some[place])), store(ends + 3 * WIDE, all(a->many[place]));
    queries made = {room, room + n * WIDE, room + 2 * n * WIDE, ends, ends + WIDE, ends + 2 * WIDE, ends + 3 * WIDE,
                     sums, count, WIDE, WIDE, n};
    return made;
}

/* The numbers of the queries of a vector of columns: `at` from the first, `j` from that of the tile. */
INLINE queries abreast(const asking *a, int64_t at, float *sums, int32_t *count, int j) {
    queries made = {a->level + at, a->factor + at, a->inverse + at, a->low + at, a->high + at, a->some + at, a->many + at,
                     sums + j, count + j, a->step, WIDTH, a->levels};
    return made;
}

static void weighing_see(void *arguments, const view *v, const tile *t) {
    weighing *of = arguments;
    const asking *rows = of->sides, *columns = of->sides + 1;
    const float *floor = columns->levels ? columns->floor + t->column : 0;
    int where[WIDTH / STRETCH + 1], any = 0;
    float room[(3 * MOST + 4) * WIDE], sums[5 * WIDE];
    int32_t count[6 * WIDE];
    (void)v;
    memset(of->sums, 0, sizeof(float) * 5 * WIDTH), memset(of->count, 0, sizeof(int32_t) * 6 * WIDTH);
    for (int i = 0; i < t->m; i++) {
        const int64_t place = t->row + i;
        const float *row = t->score + (int64_t)i * WIDTH;
        int number = reached(row, floor, rows->floor[place], t->n, where);
        if (!number) continue;
        memset(sums, 0, sizeof sums), memset(count, 0, sizeof count);
        queries mine = alone(rows, place, room, sums, count);
        for (int f = 0; f < number; f++)
            for (int j = where[f]; j < where[f] + STRETCH && j < t->n; j += WIDE) {
                vf x = load(row + j);
                if (over(x, all(rows->floor[place]))) weighed(&mine, x, of->scale, of->eps);
                if (!floor || !over(x, load(floor + j))) continue;
                queries its = abreast(columns, t->column + j, of->sums, of->count, j);
                weighed(&its, x, of->scale, of->eps), any = 1;
            }
        gathered(rows, place, sums, count, WIDE, WIDE);
    }
    for (int j = 0; any && j < t->there; j++) gathered(columns, t->column + j, of->sums + j, of->count + j, WIDTH, 1);
}

PRIMITIVE(weighing, NULL, NULL, weighing_see, NULL, NULL)
