/* Sigmoids of scores around the positives of their row and column: their sums, or the share of each score. */
#include "kernel.h"

#define SMALLEST 100.0f /* largest binary exponent of a sigmoid, well beyond all that matters */
#define MOST 64         /* maximum number of positives of a query */
#define COUNTS 4        /* index of the first count among the sums of the second pass */
#define FOUND 10        /* number of sums of the second pass */

typedef struct { /* the queries of one direction; arrays of lines, one number per query */
    const float *floor;  /* (step,) scores up to the floor are left out */
    const float *number; /* (.., step): scores of the positives, +infinity where there is none; in the second pass also the
                            factors of a slope in a share, and in a term of Eq. 7, for each; and the ends around eps, in the
                            order that `weighed` uses */
    double *sums;        /* (.., line), added to: sums of sigmoids and of slopes around each positive, and an unused line; or
                            FOUND sums of shares, and the largest share */
    int64_t step, line;
    int32_t levels, lines; /* maximum number of positives of a query; number of sums */
} asking;

typedef struct {
    int64_t size;
    asking sides[2]; /* the second has no levels if candidates are not queries */
    float *work;     /* (lines of the columns + 1, WIDTH) */
    float scale;
    int32_t weigh;
} sigmoids;

typedef struct { /* a vector of queries: lines of inputs, and lines of results, the last of which are maxima */
    const float *number;
    float *sums;
    int64_t step, line;
    int every, levels; /* capacity and actual number of positives */
} queries;

/* s = 1 / (1 + 2^(scale (level - x))), and the slope s (1 - s), at least 2^-SMALLEST: denormal numbers are slow. */
INLINE vf sigmoid(vf level, vf x, float scale, vf *slope) {
    vf e = power(larger(smaller((level - x) * all(scale), all(SMALLEST)), all(-SMALLEST)));
    vf s = all(1.0f) / (all(1.0f) + e);
    *slope = e * s * s;
    return s;
}

/* log2 for x >= 2^-126, within 2e-7 relative or absolute (minimax polynomial of (log2 x) / (x - 1) on [sqrt(1/2), sqrt(2)]). */
INLINE vf log2_of(vf x) {
    vi whole = (((vi)x - (vi)all(0.70710678f)) >> 23);
    vf f = (vf)((vi)x - (whole << 23)) - all(1.0f), p = all(0.0f);
    static const float terms[] = {1.261484659e-01f,  -2.074210351e-01f, 2.156698591e-01f,  -2.389203398e-01f, 2.879183245e-01f,
                                  -3.607048281e-01f, 4.809106099e-01f,  -7.213473334e-01f, 1.442695004e+00f};
    for (int k = 0; k < (int)(sizeof terms / sizeof *terms); k++) p = p * f + all(terms[k]);
    return __builtin_convertvector(whole, vf) + p * f;
}

INLINE void plus(const queries *of, int line, vf x) { store(of->sums + line * of->line, load(of->sums + line * of->line) + x); }

INLINE vf known(const queries *of, int line) { return load(of->number + line * of->step); }

/* Add the sigmoids and slopes of a vector of scores. */
INLINE void summed_up(const queries *of, vf x, float scale) {
    vf steep;
    for (int k = 0; k < of->levels; k++) {
        plus(of, k, sigmoid(known(of, k), x, scale, &steep));
        plus(of, of->every + k, steep);
    }
}

/* Add the shares of a vector of scores, those above eps, their squares, share ln share; and count the shares above both ends
   around eps and both around eps of the push, and the terms above both ends around eps. */
INLINE void weighed(const queries *of, vf x, float scale) {
    const int every = of->every, ends = 3 * every;
    vf share = all(0), steep[MOST];
    for (int k = 0; k < of->levels; k++) {
        sigmoid(known(of, k), x, scale, steep + k);
        share += known(of, every + k) * steep[k];
    }
    vf least = larger(share, all(0x1p-62f)), low = known(of, ends), high = known(of, ends + 1); /* its square is not denormal */
    plus(of, 0, share), plus(of, 2, least * least), plus(of, 3, share * all(0.69314718f) * log2_of(share));
    float *most = of->sums + FOUND * of->line;
    store(most, larger(share, load(most)));
    if (!over(share, smaller(low, known(of, ends + 2)))) return;
    plus(of, 1, pick(share > high, share, all(0)));
    for (int k = 0; k < 4; k++) plus(of, COUNTS + k, pick(share > known(of, ends + k), all(1), all(0)));
    for (int k = 0; k < of->levels; k++) {
        vf term = known(of, 2 * every + k) * steep[k];
        plus(of, COUNTS + 4, pick(term > low, all(1), all(0))), plus(of, COUNTS + 5, pick(term > high, all(1), all(0)));
    }
}

INLINE void met(const queries *of, vf x, float scale, int weigh) {
    if (weigh) weighed(of, x, scale);
    else summed_up(of, x, scale);
}

/* Add the results of some lanes to the sums of one query. */
INLINE void gathered(const asking *a, int64_t place, const float *sums, int64_t line, int lanes) {
    for (int k = 0; k < a->lines; k++) {
        double sum = 0;
        for (int lane = 0; lane < lanes; lane++) sum += sums[k * line + lane];
        a->sums[k * a->line + place] += sum;
    }
    double *most = a->sums + a->lines * a->line + place;
    for (int lane = 0; lane < lanes; lane++) *most = fmax(*most, sums[a->lines * line + lane]);
}

/* Broadcast the inputs of one query. */
INLINE queries alone(const asking *a, int64_t place, int lines, float *number, float *sums) {
    int levels = a->levels;
    while (levels && a->number[(levels - 1) * a->step + place] == INFINITY) levels--;
    for (int k = 0; k < lines; k++) store(number + k * WIDE, all(a->number[k * a->step + place]));
    memset(sums, 0, sizeof(float) * WIDE * (a->lines + 1));
    return (queries){number, sums, WIDE, WIDE, a->levels, levels};
}

/* Add one tile, for rows and columns. */
INLINE void seen(const sigmoids *of, const tile *t, int weigh) {
    const asking *rows = of->sides, *columns = of->sides + 1;
    const float *floor = columns->levels ? columns->floor + t->column : 0;
    int where[WIDTH / STRETCH + 1], any = 0;
    float number[(3 * MOST + 4) * WIDE], sums[(2 * MOST + FOUND) * WIDE];
    if (floor) memset(of->work, 0, sizeof(float) * (columns->lines + 1) * WIDTH);
    for (int i = 0; i < t->m; i++) {
        const int64_t place = t->row + i;
        const float *row = t->score + (int64_t)i * WIDTH;
        int stretches = reached(row, floor, rows->floor[place], t->n, where);
        if (!stretches) continue;
        queries mine = alone(rows, place, weigh ? 3 * rows->levels + 4 : rows->levels, number, sums);
        for (int f = 0; f < stretches; f++)
            for (int j = where[f]; j < where[f] + STRETCH && j < t->n; j += WIDE) {
                vf x = load(row + j);
                if (over(x, all(rows->floor[place]))) met(&mine, x, of->scale, weigh);
                if (!floor || !over(x, load(floor + j))) continue;
                queries its = {columns->number + t->column + j, of->work + j, columns->step, WIDTH, columns->levels, columns->levels};
                met(&its, x, of->scale, weigh), any = 1;
            }
        gathered(rows, place, sums, WIDE, WIDE);
    }
    for (int j = 0; any && j < t->there; j++) gathered(columns, t->column + j, of->work + j, WIDTH, 1);
}

static void sigmoids_see(void *arguments, const view *v, const tile *t) {
    const sigmoids *of = arguments;
    (void)v;
    if (of->weigh) seen(of, t, 1);
    else seen(of, t, 0);
}

PRIMITIVE(sigmoids, NULL, sigmoids_see, NULL)
