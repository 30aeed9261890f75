/* Sums of the exponentials of each row and column, their moments, and the few negatives whose share can exceed eps: those
   above a limit that follows from the partial sums and therefore only rises. */
#include "kernel.h"

#define CHUNK 64    /* rows after which the float32 column sums are added to float64 sums */
#define LOW -126.0f /* smaller exponents count as -126: 2^-126 is the smallest normal number */
#define KEPT 65536  /* a list is compacted after a chunk if it exceeds twice its last length and this, in entries */
#define REACH -100.0f /* smaller exponents relative to a reference count as -100, so that no product with a score is denormal */

typedef struct { /* rows or columns in the role of queries; arrays are indexed by place */
    double *total;              /* (3, step): sums of 2^z, score 2^z, 4^z, with z = scale score - reference; with a floor (4,
                                   step): also the count above it */
    float *top;                 /* largest score above the floor */
    float *reference;           /* integer exponents that only grow; NULL: 0, and there is no floor */
    const float *floor;         /* scores at or below it are left out; NULL: none */
    float *limit;               /* negatives above it may count in the end; NULL: nothing is noted */
    const double *base, *offset; /* log2 of the denominator's other terms; log2 of the share that counts */
    places list;
    int64_t step, number, kept; /* stride of `total`; number of places; entries after the last compaction, plus KEPT */
    int32_t full;               /* too many negatives may count: nothing is noted any more */
} asker;

typedef struct {
    int64_t size;
    asker asking[2];
    double room, square, root; /* limits are lowered by room, and by square / |score| but at most root */
    float scale;
    int32_t sides, moments, grows; /* 1: rows are queries, 2: columns too; compute the moments; references grow */
} logsumexp;

typedef struct { /* sums of the columns of a tile */
    float first[WIDTH], second[WIDTH], third[WIDTH], number[WIDTH], top[WIDTH];
} beneath;

/* 2^z for a vector of scores; z = scale x, minus a reference if `apart`. */
INLINE vf raised(vf x, vf scale, int apart, vf reference) {
    if (apart) return power(larger(x * scale - reference, all(REACH)));
    vf whole = (x * scale + MAGIC) - MAGIC;
    return risen(whole, x * scale - whole);
}

typedef struct { /* sums of one row, lane by lane */
    vf first, second, third, number, top;
} sums;

/* Add scores and their powers; with `apart`, only the kept lanes. */
INLINE void add(sums *to, vf e, vf x, vf lowest, int apart, int moments, vi kept) {
    if (apart) {
        e = (vf)((vi)e & kept);
        to->number -= __builtin_convertvector(kept, vf);
    }
    to->top = larger(x, to->top);
    to->first += e;
    if (!moments) return;
    vf least = apart ? larger(e, all(0x1p-63f)) : e; /* its square is not denormal */
    to->second += e * larger(x, lowest), to->third += least * least;
}

/* Sums of `count` rows from `i`, and of the columns. */
INLINE void some_sums(const logsumexp *of, const tile *t, int i, int count, int apart, int moments, int two, float *row_top,
                      beneath *under) {
    const asker *rows = of->asking, *columns = of->asking + 1;
    const vf scale = all(of->scale), none = all(0), lowest = all(apart ? -1e30f : LOW / of->scale);
    sums row[8], column = {none, none, none, none, none};
    for (int r = 0; r < count; r++) row[r] = (sums){none, none, none, none, all(-INFINITY)};
    for (int j = 0; j < t->n; j += WIDE) {
        vf shift = none, floor = none;
        if (two) {
            column = (sums){load(under->first + j), none, none, none, load(under->top + j)};
            if (moments) column.second = load(under->second + j), column.third = load(under->third + j);
            if (apart) column.number = load(under->number + j);
            if (apart) shift = load(columns->reference + t->column + j), floor = load(columns->floor + t->column + j);
        }
        UNROLL(8)
        for (int r = 0; r < count; r++) {
            const int64_t place = t->row + i + r;
            vf x = load(t->score + (int64_t)(i + r) * WIDTH + j), least = larger(x, lowest);
            vf e = raised(least, scale, apart, all(apart ? rows->reference[place] : 0));
            add(row + r, e, x, lowest, apart, moments, x > all(apart ? rows->floor[place] : 0));
            if (!two) continue;
            if (apart) e = raised(least, scale, 1, shift);
            add(&column, e, x, lowest, apart, moments, x > floor);
        }
        if (!two) continue;
        store(under->first + j, column.first), store(under->top + j, column.top);
        if (moments) store(under->second + j, column.second), store(under->third + j, column.third);
        if (apart) store(under->number + j, column.number);
    }
    for (int r = 0; r < count; r++) {
        double *to = rows->total + t->row + i + r;
        to[0] += total(row[r].first);
        if (moments) to[rows->step] += total(row[r].second), to[2 * rows->step] += total(row[r].third);
        if (apart) to[3 * rows->step] += total(row[r].number);
        row_top[i + r] = largest(row[r].top);
    }
}

/* Sums of all rows and columns of a tile. */
INLINE void tile_sums(const logsumexp *of, const tile *t, int apart, int moments, int two, float *row_top, beneath *under) {
    const asker *columns = of->asking + 1;
    const int together = apart || moments ? 4 : 8; /* rows per load of the columns: as many as fit in registers */
    for (int j = 0; two && j < t->n; j++) under->top[j] = -INFINITY;
    for (int from = 0; from < t->m; from += CHUNK) {
        int to = from + CHUNK < t->m ? from + CHUNK : t->m, i = from;
        if (two) memset(under, 0, offsetof(beneath, top));
        for (; i + together <= to; i += together) some_sums(of, t, i, together, apart, moments, two, row_top, under);
        for (; i < to; i++) some_sums(of, t, i, 1, apart, moments, two, row_top, under);
        double *total = two ? columns->total + t->column : 0;
        for (int j = 0; two && j < t->there; j++) total[j] += under->first[j];
        for (int j = 0; two && moments && j < t->there; j++)
            total[columns->step + j] += under->second[j], total[2 * columns->step + j] += under->third[j];
        for (int j = 0; two && apart && j < t->there; j++) total[3 * columns->step + j] += under->number[j];
    }
}

static __attribute__((noinline)) void all_sums(const logsumexp *of, const tile *t, float *row_top, beneath *under) {
    switch ((of->asking->reference ? 4 : 0) + (of->moments ? 2 : 0) + (of->sides > 1)) {
    case 0: tile_sums(of, t, 0, 0, 0, row_top, under); break;
    case 1: tile_sums(of, t, 0, 0, 1, row_top, under); break;
    case 2: tile_sums(of, t, 0, 1, 0, row_top, under); break;
    case 3: tile_sums(of, t, 0, 1, 1, row_top, under); break;
    case 4: tile_sums(of, t, 1, 0, 0, row_top, under); break;
    case 5: tile_sums(of, t, 1, 0, 1, row_top, under); break;
    case 6: tile_sums(of, t, 1, 1, 0, row_top, under); break;
    case 7: tile_sums(of, t, 1, 1, 1, row_top, under); break;
    }
}

/* Raise references to the largest exponent of each row or column, and re-express its sums. */
static void raise(const logsumexp *of, asker *who, int64_t from, int number, const float *top) {
    for (int k = 0; k < number; k++) {
        float *reference = who->reference + from + k, now = ceilf(top[k] * of->scale);
        if (!(now > *reference)) continue;
        double part = exp2((double)*reference - now), *total = who->total + from + k;
        total[0] *= part, total[who->step] *= part, total[2 * who->step] *= part * part;
        *reference = now;
    }
}

static void raise_all(const logsumexp *of, const tile *t) {
    asker *rows = (asker *)of->asking, *columns = rows + 1;
    float row_top[STRIP], column_top[WIDTH];
    for (int j = 0; j < t->n; j++) column_top[j] = -INFINITY;
    for (int i = 0; i < t->m; i++) {
        vf top = all(-INFINITY);
        for (int j = 0; j < t->n; j += WIDE) {
            vf x = load(t->score + (int64_t)i * WIDTH + j);
            top = larger(x, top), store(column_top + j, larger(x, load(column_top + j)));
        }
        row_top[i] = largest(top);
    }
    raise(of, rows, t->row, t->m, row_top);
    if (of->sides > 1) raise(of, columns, t->column, t->there, column_top);
}

/* log2 for positive numbers, at most 3e-4 too small and 2e-8 too large, which `bounds.room` covers. */
INLINE double binary(double x) {
    int64_t whole;
    memcpy(&whole, &x, 8);
    int64_t one = (whole & 0xfffffffffffff) | 0x3ff0000000000000;
    double f;
    memcpy(&f, &one, 8);
    f -= 1;
    return (double)((whole >> 52) - 1023) + f * (1.4377044 + f * (-0.6749427 + f * (0.3186788 + f * -0.0816157)));
}

/* Update the limits of some rows or columns from the partial sums; limits only rise. */
static void renew(const logsumexp *of, asker *who, int64_t from, int number) {
    if (!who->limit || who->full) return;
    for (int64_t k = from; k < from + number; k++) {
        double known = binary(who->total[k]) + (who->reference ? who->reference[k] : 0), other = who->base[k];
        double high = known > other ? known : other, low = known > other ? other : known;
        double apart = low - high > -20 ? binary(1 + exp2(low - high)) : 0;
        double score = (high + apart + who->offset[k]) / of->scale, size = fabs(score);
        double off = of->square > 0 ? fmin(of->root, of->square / fmax(size, 1e-30)) : 0;
        who->limit[k] = more(who->limit[k], (float)(score - off - of->room));
    }
}

/* Compact a list: drop the entries that are not above the current limits. */
static void compact(asker *who, int side) {
    places *list = &who->list;
    const int32_t *query = side ? list->column : list->row;
    int64_t kept = 0;
    for (int64_t k = 0; k < list->found; k++) {
        list->row[kept] = list->row[k], list->column[kept] = list->column[k], list->score[kept] = list->score[k];
        kept += list->score[k] > who->limit[query[k]];
    }
    list->found = kept, who->kept = kept + KEPT;
}

static void top(asker *who, int64_t from, int number, const float *score) {
    for (int k = 0; k < number; k++)
        if (!who->floor || score[k] > who->floor[from + k]) who->top[from + k] = more(who->top[from + k], score[k]);
}

/* Make room for all that one tile may add; give up if half of the list may count by the current limits. */
static void spare(asker *who, int side, int64_t number) {
    if (!who->limit || roomy(&who->list, number)) return;
    compact(who, side);
    if (who->list.found <= who->list.room / 2 && roomy(&who->list, number)) return;
    who->full = 1, who->list.found = 0;
    for (int64_t k = 0; k < who->number; k++) who->limit[k] = INFINITY;
}

INLINE void entered(places *to, unsigned lanes, int64_t row, int64_t column, vf score) {
    static const int32_t lane[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    pressed((float *)(to->row + to->found), (vf)((vi){0} + (int32_t)row), lanes);
    pressed((float *)(to->column + to->found), (vf)(*(const vi *)lane + (int32_t)column), lanes);
    pressed(to->score + to->found, score, lanes);
    to->found += __builtin_popcount(lanes);
}

/* Note the scores of a tile above the limit of their row, and those above the limit of their column. */
static void noted(logsumexp *of, const tile *t, const float *row_top, const float *column_top) {
    asker *rows = of->asking, *columns = rows + 1;
    const float *limit = of->sides > 1 && columns->limit ? columns->limit + t->column : 0;
    int flagged[WIDTH / WIDE], number = 0;
    float least = INFINITY;
    for (int j = 0; limit && j < t->n; j += WIDE) {
        unsigned reached = over(load(column_top + j), load(limit + j));
        if (reached) flagged[number++] = j;
        for (; reached; reached &= reached - 1) least = less(least, limit[j + __builtin_ctz(reached)]);
    }
    for (int i = 0; i < t->m; i++) {
        const float *row = t->score + (int64_t)i * WIDTH, own = rows->limit[t->row + i];
        int whole = row_top[i] > own;
        if (!whole && !(row_top[i] > least)) continue;
        for (int k = 0; k < (whole ? t->n / WIDE : number); k++) {
            int j = whole ? k * WIDE : flagged[k];
            vf x = load(row + j);
            unsigned mine = over(x, all(own)), its = limit ? over(x, load(limit + j)) : 0;
            if (mine) entered(&rows->list, mine, t->row + i, t->column + j, x);
            if (its) entered(&columns->list, its, t->row + i, t->column + j, x);
        }
    }
}

/* Update top scores and limits after the sums of a tile, and note the scores above the limits. */
static void limited(logsumexp *of, const tile *t, const float *row_top, const beneath *under) {
    asker *rows = of->asking, *columns = rows + 1;
    top(rows, t->row, t->m, row_top);
    renew(of, rows, t->row, t->m);
    if (of->sides > 1) {
        top(columns, t->column, t->there, under->top);
        renew(of, columns, t->column, t->there);
    }
    if (!rows->limit) return;
    for (int k = 0; k < of->sides; k++) spare(of->asking + k, k, (int64_t)t->m * t->n + WIDE);
    noted(of, t, row_top, under->top);
}

static void logsumexp_see(void *arguments, const view *v, const tile *t) {
    logsumexp *of = arguments;
    float row_top[STRIP];
    beneath under;
    (void)v;
    if (of->grows) raise_all(of, t);
    all_sums(of, t, row_top, &under);
    limited(of, t, row_top, &under);
}

static void logsumexp_end(void *arguments, const view *v, const area *here) {
    logsumexp *of = arguments;
    (void)v, (void)here;
    for (int k = 0; k < of->sides; k++)
        if (of->asking[k].limit && of->asking[k].list.found > 2 * of->asking[k].kept) compact(of->asking + k, k);
}

PRIMITIVE(logsumexp, NULL, logsumexp_see, logsumexp_end)
