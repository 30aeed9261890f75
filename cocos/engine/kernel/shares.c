/* Negatives that have a share above eps, of those that a pass has listed or held. */
#include "kernel.h"

typedef struct { /* which negatives have a share above eps, of those in a list, or of all that are held */
    int64_t size;
    const int32_t *row, *column;
    const float *score;
    float *held;           /* as in logsumexp; or NULL: there is a list */
    const int64_t *chunks;
    int64_t number, queries;     /* of entries, or of chunks; of those that ask */
    const double *base, *known;  /* (queries,) exponent of share / eps at a score of 0; how far it may be off */
    float *low, *high;           /* (queries + PAD,) a score not above low does not count, one above high does; made where `fresh` */
    int64_t *above, *uncertain;  /* (queries,), added to: above eps; so near to it that rounding decides */
    double *mass;                /* (queries,), added to: the shares of those above; or NULL */
    const float *floor;          /* (queries,) scores at or below it are left out; or NULL */
    int32_t *count;              /* (queries + PAD,) zeros, where columns ask and scores are held */
    double eps, scale, off, square, root; /* how far a score may be off: off, and square / |score|, at most root */
    int32_t side, fresh;         /* 0: rows ask, 1: columns do */
} shares;

#define BATCH 1024 /* entries that are looked at before some of them are looked at again */

/* The next float32 number up, or down; infinity stays. */
INLINE float stepped(float x, int up) {
    int32_t place;
    if (x == 0) return up ? 0x1p-149f : -0x1p-149f;
    if (isinf(x)) return x;
    memcpy(&place, &x, 4);
    place += (x > 0) == up ? 1 : -1;
    memcpy(&x, &place, 4);
    return x;
}

static void shares_open(const shares *s) {
    for (int64_t k = 0; k < s->queries; k++) {
        double level = -s->base[k] / s->scale, off = s->square > 0 ? fmin(s->root, s->square / fmax(fabs(level), 1e-30)) : 0;
        double width = s->known[k] / s->scale + s->off + off;
        s->low[k] = isfinite(level) ? stepped((float)(level - width), 0) : (float)level;
        s->high[k] = isfinite(level) ? stepped((float)(level + width), 1) : (float)level;
        if (s->floor) s->low[k] = more(s->low[k], s->floor[k]), s->high[k] = more(s->high[k], s->floor[k]);
    }
}

/* Those that count for certain: the mass of all of them, each share to 3e-7 of itself. */
static void shares_mass(const shares *s, const int32_t *query, const int32_t *above, int number) {
    float rest[BATCH];
    int64_t whole[BATCH];
    for (int k = 0; k < number; k++) {
        double z = s->base[query[above[k]]] + s->scale * s->score[above[k]], near = (z + 0x1.8p52) - 0x1.8p52;
        rest[k] = (float)(z - near), whole[k] = ((int64_t)near + 1023) << 52;
    }
    for (int k = number; k % WIDE; k++) rest[k] = 0;
    for (int k = 0; k < number; k += WIDE) store(rest + k, risen(all(0), load(rest + k)));
    for (int k = 0; k < number; k++) {
        double power;
        memcpy(&power, whole + k, 8);
        s->mass[query[above[k]]] += s->eps * power * rest[k];
    }
}

static void shares_decide(const view *v, const shares *s, int64_t row, int64_t column) {
    int64_t who = s->side ? column : row;
    double excess = s->base[who] + s->scale * exact(v, row, column);
    s->uncertain[who] += fabs(excess) <= s->known[who];
    s->above[who] += excess > 0;
    if (s->mass) s->mass[who] += excess > 0 ? s->eps * exp2(excess) : 0;
}

/* Which of some entries count for certain, and which may: their numbers; `found` says how many of both there are. */
static void shares_sort(const shares *s, const int32_t *query, int number, int32_t *above, int32_t *open, int *found) {
    const float *score = s->score, *low = s->low, *high = s->high;
    int count = 0, doubts = 0, of_last = 0; /* entries of one row follow each other */
    int32_t last = query[0];
    for (int k = 0; k < number; k++) {
        int32_t who = query[k];
        int over = score[k] > high[who], near = !over & (score[k] > low[who]);
        if (who != last) s->above[last] += of_last, of_last = 0, last = who;
        above[count] = k, open[doubts] = k;
        count += over, of_last += over, doubts += near;
    }
    s->above[last] += of_last;
    found[0] = count, found[1] = doubts;
}

static void shares_listed(const view *v, const shares *asked) {
    shares of = *asked, *s = &of;
    for (; s->number > 0; s->number -= BATCH, s->row += BATCH, s->column += BATCH, s->score += BATCH) {
        const int32_t *query = s->side ? s->column : s->row;
        int32_t above[BATCH], open[BATCH];
        int found[2];
        shares_sort(s, query, s->number < BATCH ? (int)s->number : BATCH, above, open, found);
        for (int k = 0; k < found[1]; k++) shares_decide(v, s, s->row[open[k]], s->column[open[k]]);
        if (s->mass) shares_mass(s, query, above, found[0]);
    }
}

/* One vector of scores that are held: the shares of those that count, and those that may. */
static __attribute__((noinline)) void shares_some(const view *v, const shares *s, int64_t row, int64_t column, const float *score,
                                                  unsigned above, unsigned open) {
    for (; above; above &= above - 1) {
        int lane = __builtin_ctz(above);
        int64_t who = s->side ? column + lane : row;
        s->mass[who] += s->eps * exp2(s->base[who] + s->scale * score[lane]);
    }
    for (; open; open &= open - 1) shares_decide(v, s, row, column + __builtin_ctz(open));
}

/* A line of them: its row asks. */
static void shares_row(const view *v, const shares *s, const piece *of, int64_t row, const float *score) {
    const vf low = all(s->low[row]), high = all(s->high[row]);
    int64_t count = 0;
    for (int64_t j = 0; j < of->line; j += WIDE) {
        vf x = load(score + j);
        unsigned above = over(x, high), open = over(x, low) & ~above, counted = s->mass ? above : 0;
        count += __builtin_popcount(above);
        if (open | counted) shares_some(v, s, row, of->here.column + j, score + j, counted, open);
    }
    s->above[row] += count;
}

/* A line of them: its columns ask. */
static void shares_columns(const view *v, const shares *s, const piece *of, int64_t row, const float *score) {
    const float *low = s->low + of->here.column, *high = s->high + of->here.column;
    int32_t *count = s->count;
    for (int64_t j = 0; j < of->line; j += WIDE) {
        vf x = load(score + j), most = load(high + j);
        unsigned above = over(x, most), open = over(x, load(low + j)) & ~above, counted = s->mass ? above : 0;
        *(vi *)(count + j) -= x > most;
        if (open | counted) shares_some(v, s, row, of->here.column + j, score + j, counted, open);
    }
}

#define LINES 64 /* that stay in the second-level cache for all questions */

/* All scores of a chunk, for each question. */
static void shares_held(const view *v, const shares *const *asked, int64_t questions, const piece *of) {
    for (int64_t from = 0; from < of->here.rows; from += LINES)
        for (int64_t q = 0; q < questions; q++)
            for (int64_t i = from; i < from + LINES && i < of->here.rows; i++)
                (asked[q]->side ? shares_columns : shares_row)(v, asked[q], of, of->here.row + i, of->score + i * of->line);
    for (int64_t q = 0; q < questions; q++)
        for (int64_t j = 0; asked[q]->side && j < of->here.columns; j++)
            asked[q]->above[of->here.column + j] += asked[q]->count[j], asked[q]->count[j] = 0;
}

/* Count, for some questions to the same list, or to the same scores; float64 decides where float32 cannot. */
void cocos_shares(const view *v, const shares *const *asked, int64_t questions) {
    for (int64_t q = 0; q < questions; q++) {
        if (asked[q]->fresh) shares_open(asked[q]);
        if (!asked[q]->held) shares_listed(v, asked[q]);
    }
    for (int64_t k = 0; questions && asked[0]->held && k < asked[0]->number; k++) {
        piece of = piece_of(asked[0]->chunks + CHUNKED * k, asked[0]->held);
        shares_held(v, asked, questions, &of);
    }
}

EXPORT(shares)
