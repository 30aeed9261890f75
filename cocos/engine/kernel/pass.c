/* A part of the score matrix, tile by tile: packed, multiplied, masked, and shown to all primitives. */
#include "kernel.h"

typedef struct {
    int64_t size;
    const view *view;
    area part;                     /* in a stack: whole batches, from `block` on and below `last` */
    const float *left, *right;     /* a side that is packed already, of one batch; or NULL */
    float *strip, *packed, *score; /* room for (STRIP, factors), (chunk, factors) and (STRIP, WIDTH) numbers */
    const life *const *life;       /* of each primitive */
    void *const *of;               /* their arguments */
    int64_t number, chunk;         /* of primitives; columns that are packed at once, whole panels */
    int64_t block, last;           /* the batch that is visited, and one after the last */
    int64_t begin, row, column;    /* its chunk, strip and tile that are next, counted from its corner and that of the chunk */
    int64_t strips, patience;      /* strips seen so far; how many Python waits for at once */
    int32_t opened, filled;        /* the chunk is packed; the strip is */
} pass;

enum { DONE = 0, AGAIN = -1 }; /* or the number of the primitive that has no room, from 1 on */

/* Minus squared distances, of which rounding may leave some above 0, become minus distances. */
static void rooted(const tile *t) {
    for (int i = 0; i < t->m; i++) {
        float *row = t->score + (int64_t)i * WIDTH;
        for (int j = 0; j < t->n; j++) row[j] = -sqrtf(row[j] < 0 ? -row[j] : 0);
    }
}

/* -infinity where a pair is no negative, and in the padding. */
static void masked(const side *rows, const tile *t) {
    for (int i = 0; i < t->m; i++) {
        float *score = t->score + (int64_t)i * WIDTH;
        int64_t low = rows->first[t->row + i] - t->column, high = rows->last[t->row + i] - t->column;
        for (int64_t k = low < 0 ? 0 : low; k < high && k < t->there; k++) score[k] = -INFINITY;
        for (int k = t->there; k < t->n; k++) score[k] = -INFINITY;
    }
}

/* A strip of the chunk, tile by tile; DONE or the primitive that has no room. */
static int64_t across(pass *p, const area *chunk, const area *strip, const float *right) {
    const view *v = p->view;
    const int64_t size = depth(v);
    const float *left = p->left ? p->left + strip->row * size : p->strip;
    if (!p->filled && !p->left) pack(v, 0, strip->row, strip->rows, p->strip);
    for (p->filled = 1; p->column < chunk->columns; p->column += WIDTH) {
        int there = (int)(chunk->columns - p->column < WIDTH ? chunk->columns - p->column : WIDTH);
        tile t = {p->score, strip->row, chunk->column + p->column, (int32_t)strip->rows, (there + PAD - 1) / PAD * PAD, there};
        for (int64_t k = 0; k < p->number; k++) {
            if (p->life[k]->ready && !p->life[k]->ready(p->of[k], &t)) return k + 1;
        }
        multiply(left, right + p->column * size, t.m, there, size, t.score);
        if (v->metric == ROOT) rooted(&t);
        masked(v->sides, &t);
        for (int64_t k = 0; k < p->number; k++) p->life[k]->see(p->of[k], v, &t);
    }
    for (int64_t k = 0; k < p->number; k++)
        if (p->life[k]->strip) p->life[k]->strip(p->of[k], v, strip);
    p->column = 0, p->filled = 0, p->strips++;
    return DONE;
}

/* All strips against a chunk of columns; DONE or the primitive that has no room. */
static int64_t down(pass *p, const area *chunk) {
    const view *v = p->view;
    const float *right = p->right ? p->right + chunk->column * depth(v) : p->packed;
    if (!p->opened) {
        if (!p->right) pack(v, 1, chunk->column, chunk->columns, p->packed);
        for (int64_t k = 0; k < p->number; k++)
            if (p->life[k]->open) p->life[k]->open(p->of[k], v, chunk);
        p->opened = 1, p->row = 0;
    }
    for (; p->row < chunk->rows; p->row += STRIP) {
        int64_t rows = chunk->rows - p->row < STRIP ? chunk->rows - p->row : STRIP;
        area strip = {chunk->row + p->row, rows, chunk->column, chunk->columns};
        int64_t wanting = across(p, chunk, &strip, right);
        if (wanting) return wanting;
    }
    for (int64_t k = 0; k < p->number; k++)
        if (p->life[k]->close) p->life[k]->close(p->of[k], v, chunk);
    p->opened = 0;
    return DONE;
}

/* The part, or that batch of a stack which is next. */
static area next_of(const pass *p) {
    if (p->last - p->block == 1 && p->view->blocks == 1) return p->part;
    const int64_t *rows = p->view->sides[0].block + p->block, *columns = p->view->sides[1].block + p->block;
    area batch = {rows[0], rows[1] - rows[0], columns[0], columns[1] - columns[0]};
    return batch;
}

/* Visit a part, or go on where the last call stopped: DONE, AGAIN when Python may look up, or the primitive that has no room. */
int64_t cocos_pass(pass *p) {
    int64_t until = p->strips + p->patience;
    for (; p->block < p->last; p->block++, p->begin = 0) {
        area batch = next_of(p);
        for (; p->begin < batch.columns; p->begin += p->chunk) {
            if (p->strips >= until && !p->opened) return AGAIN;
            int64_t columns = batch.columns - p->begin < p->chunk ? batch.columns - p->begin : p->chunk;
            area chunk = {batch.row, batch.rows, batch.column + p->begin, columns};
            int64_t wanting = down(p, &chunk);
            if (wanting) return wanting;
        }
    }
    return DONE;
}

/* Pack places of a side before the pass. */
void cocos_pack(const view *v, int64_t which, int64_t from, int64_t number, float *packed) {
    pack(v, (int)which, from, number, packed);
}

EXPORT(view)
EXPORT(pass)
