/* Pickles of plain data whose records repeat, straight into columns.
 *
 * It does for well-formed files what decoder.py and repeats.py do for all files, some thirty times as fast.
 * Whatever is unusual (an opcode that plain data does not need, a file that ends early, a limit) makes decode()
 * return None: the decoder in Python then reads the file and says what is wrong with it. So the two can only differ
 * in what both accept.
 *
 * No opcode runs anything. Values are nodes in an array, never Python objects, until the few that are wanted are
 * made at the end. Every read is checked against the end of the data, every array against its limit, and the only
 * recursion (object_of) against MAX_DEPTH. The parse needs no Python and runs without the GIL.
 *
 * A record is a dict that has the key `marker`. Once one was parsed opcode by opcode it becomes a template: its bytes
 * without the numbers of chosen keys and without memo numbers. Records that follow are first compared with templates.
 */
#define PY_SSIZE_T_CLEAN
#ifndef Py_LIMITED_API
#define Py_LIMITED_API 0x030A0000
#endif
#include <Python.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define VERSION 1 /* native.py refuses a library of another version */

/* As in machine.py and repeats.py. */
#define MAX_STEPS 4000000u
#define MAX_MEMO 500000u
#define MAX_MARKS 128u
#define MAX_TEXT (48u << 20)
#define MAX_DATA (128u << 20)
#define MAX_RECORD 4096u
#define MAX_TEMPLATES 1024u
#define MAX_TRIES 64u   /* templates compared with one record */
#define MAX_SLOTS 64u   /* of one template */
#define MAX_COLUMNS 16u
#define MAX_DEPTH 64    /* of a value that becomes a Python object */
#define MAX_KEY (1u << 16) /* bytes that tell what an example says */
#define COMPARED 64u    /* bytes compared without a match, per byte of the file */
#define ROW_STEPS 8u
#define MAX_SPARE 4u /* parses whose arrays are kept for later ones */
#define SPARE_BYTES (2u << 20) /* of the arrays of one */

enum kind { NONE, FALSE_, TRUE_, INT, REAL, TEXT, LIST, TUPLE, DICT, ROW };

/* Tags of a text: 0, a column + 1, or one of these. */
enum { TAG_MARKER = 0x40, TAG_SKIPPED = 0x41, TAG_PART = 0x42, TAG_ENTRIES = 0x43 };
/* Tag of a dict that was listed as an entry already. */
enum { TAG_LISTED = 1 };

typedef struct {
    uint8_t kind, tag;
    uint32_t count; /* bytes of a text, items of a container */
    union {
        int64_t i;
        double f;
        uint64_t at; /* a text's place in the data, a container's first item; a row's number */
    } u;
} Node;

typedef struct {
    uint32_t node, pos; /* pos: the opcode that pushed it */
} Slot;

typedef struct {
    uint32_t at, pos;
} Mark;

typedef union {
    int64_t i;
    double f;
} Value;

/* A place in a template that differs between records, and the bytes before it. */
enum { HOLE_UNUSED = 0x80, HOLE_PUT, HOLE_END };
typedef struct {
    uint32_t from, size;
    uint32_t what; /* a column or one of HOLE_* */
} Hole;

typedef struct {
    uint32_t first; /* of its holes */
    uint32_t dict;  /* the node of the record it was learnt from */
    int32_t next;   /* what followed last time: training loops repeat */
    int32_t example;
    Value base[MAX_COLUMNS];
} Template;

typedef struct {
    const char *text;
    size_t size;
    uint8_t tag;
} Key;

/* memo: node + 1, 0 for nothing; SKIPPED inside records that were taken by comparison. puts: where in the data.
 * values: the columns of row after row. key: what an example says, as bytes. */
#define ARRAYS(EACH)          \
    EACH(Node, nodes)         \
    EACH(uint32_t, items)     \
    EACH(Slot, stack)         \
    EACH(uint32_t, memo)      \
    EACH(uint32_t, puts)      \
    EACH(Hole, holes)         \
    EACH(Template, templates) \
    EACH(Value, values)       \
    EACH(uint32_t, row_template) \
    EACH(uint8_t, key)

typedef struct {
    const uint8_t *data;
    uint32_t size, pos;
    Key keys[2 * MAX_COLUMNS];
    uint32_t n_keys, n_ints, n_columns; /* columns: ints first, then reals */
    Mark marks[MAX_MARKS];
    uint32_t n_marks;

#define DECLARED(type, name) \
    type *name;              \
    uint32_t cap_##name;
    ARRAYS(DECLARED)
    uint32_t n_nodes, n_items, n_stack, n_memo, memoized, n_puts, n_holes, n_templates, n_rows, n_key;
    int32_t last; /* template of the newest record, -1 */
    int unnumbered; /* a record lacks the first column */
    uint32_t matched; /* what `memoized` becomes if the record that matched last is taken */
    uint64_t steps, text, compared;
} Parse;

#define SKIPPED 0xFFFFFFFFu

/* Every function that returns int: 1 to go on, 0 to leave the file to the other decoder. */

static int grow(void **array, uint32_t *cap, uint32_t wanted, size_t each)
{
    if (wanted <= *cap)
        return 1;
    uint64_t more = *cap ? (uint64_t)*cap * 2 : 256;
    if (more < wanted)
        more = wanted;
    if (more > (64u << 20))
        return 0;
    void *moved = realloc(*array, (size_t)more * each);
    if (moved == NULL)
        return 0;
    *array = moved;
    *cap = (uint32_t)more;
    return 1;
}

static uint32_t u16_at(const uint8_t *p) { return p[0] | (uint32_t)p[1] << 8; }
static uint32_t u32_at(const uint8_t *p) { return u16_at(p) | u16_at(p + 2) << 16; }
static uint64_t u64_at(const uint8_t *p) { return u32_at(p) | (uint64_t)u32_at(p + 4) << 32; }

static int64_t signed_of(uint64_t bits)
{
    int64_t value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static int64_t i32_at(const uint8_t *p) { return (int64_t)u32_at(p) - ((int64_t)(p[3] >> 7) << 32); }

static double real_at(const uint8_t *p)
{
    uint64_t bits = 0;
    double value;
    for (int i = 0; i < 8; i++)
        bits = bits << 8 | p[i];
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Whether `size` bytes are the same. Most are few: a call of memcmp would cost more than the comparison. */
static inline int same_bytes(const uint8_t *one, const uint8_t *other, uint32_t size)
{
    uint64_t a, b;
    if (size < sizeof a) {
        for (; size; size--)
            if (*one++ != *other++)
                return 0;
        return 1;
    }
    for (; size > sizeof a; size -= (uint32_t)sizeof a, one += sizeof a, other += sizeof a) {
        memcpy(&a, one, sizeof a);
        memcpy(&b, other, sizeof b);
        if (a != b)
            return 0;
    }
    memcpy(&a, one + size - sizeof a, sizeof a); /* the last ones, some of them for the second time */
    memcpy(&b, other + size - sizeof b, sizeof b);
    return a == b;
}

/* The bytes of a number at `pos`, opcode included; 0 if there is none that a record's number may be. */
static inline uint32_t number_at(const Parse *p, uint32_t pos, Value *value, int *is_real)
{
    uint32_t left = p->size - pos;
    const uint8_t *at = p->data + pos;
    *is_real = 0;
    if (left < 2)
        return 0;
    switch (at[0]) {
    case 0x4B: /* BININT1 */
        value->i = at[1];
        return 2;
    case 0x4D: /* BININT2 */
        if (left < 3)
            return 0;
        value->i = u16_at(at + 1);
        return 3;
    case 0x4A: /* BININT */
        if (left < 5)
            return 0;
        value->i = i32_at(at + 1);
        return 5;
    case 0x8A: /* LONG1 */
        if (left < 10 || at[1] != 8)
            return 0;
        value->i = signed_of(u64_at(at + 2));
        return value->i == INT64_MIN ? 0 : 10;
    case 0x47: /* BINFLOAT */
        if (left < 9)
            return 0;
        value->f = real_at(at + 1);
        *is_real = 1;
        return 9;
    default:
        return 0;
    }
}

static int new_node(Parse *p, enum kind kind, uint32_t *made)
{
    if (!grow((void **)&p->nodes, &p->cap_nodes, p->n_nodes + 1, sizeof(Node)))
        return 0;
    Node *node = &p->nodes[p->n_nodes];
    memset(node, 0, sizeof *node);
    node->kind = (uint8_t)kind;
    *made = p->n_nodes++;
    return 1;
}

static int push(Parse *p, uint32_t node, uint32_t pos)
{
    if (!grow((void **)&p->stack, &p->cap_stack, p->n_stack + 1, sizeof(Slot)))
        return 0;
    p->stack[p->n_stack].node = node;
    p->stack[p->n_stack++].pos = pos;
    return 1;
}

static int push_new(Parse *p, enum kind kind, uint32_t pos)
{
    uint32_t node;
    return new_node(p, kind, &node) && push(p, node, pos);
}

static int push_int(Parse *p, int64_t value, uint32_t pos)
{
    if (!push_new(p, INT, pos))
        return 0;
    p->nodes[p->n_nodes - 1].u.i = value;
    return 1;
}

/* Items of the stack above the last mark; what lies below belongs to others. */
static uint32_t available(const Parse *p)
{
    return p->n_stack - (p->n_marks ? p->marks[p->n_marks - 1].at : 0);
}

static int push_text(Parse *p, uint32_t operand, uint32_t width, uint64_t length, uint32_t pos)
{
    uint32_t begin = operand + width;
    if (begin > p->size || length > p->size - begin)
        return 0;
    uint32_t node;
    if (!new_node(p, TEXT, &node) || !push(p, node, pos))
        return 0;
    const uint8_t *text = p->data + begin;
    uint8_t high = 0;
    for (uint64_t i = 0; i < length; i++)
        high |= text[i];
    p->text += high < 0x80 ? length : 4 * length;
    if (p->text > MAX_TEXT)
        return 0;
    p->nodes[node].count = (uint32_t)length;
    p->nodes[node].u.at = begin;
    for (uint32_t i = 0; i < p->n_keys; i++)
        if (p->keys[i].size == length && memcmp(p->keys[i].text, text, (size_t)length) == 0)
            p->nodes[node].tag = p->keys[i].tag;
    p->pos = begin + (uint32_t)length;
    return 1;
}

/* Append what lies on the stack from `from` on to a container. */
static int extend(Parse *p, uint32_t container, uint32_t from)
{
    uint32_t more = p->n_stack - from, had = p->nodes[container].count;
    uint64_t begin = p->nodes[container].u.at;
    int last = had == 0 || begin + had == p->n_items;
    uint64_t wanted = (uint64_t)p->n_items + more + (last ? 0 : had);
    if (wanted > MAX_DATA || !grow((void **)&p->items, &p->cap_items, (uint32_t)wanted, sizeof(uint32_t)))
        return 0;
    if (had == 0)
        begin = p->n_items;
    if (!last) { /* it is moved behind the others; who makes that happen often pays for it */
        memcpy(p->items + p->n_items, p->items + begin, had * sizeof(uint32_t));
        begin = p->n_items;
        p->n_items += had;
        p->steps += had;
    }
    for (uint32_t i = 0; i < more; i++)
        p->items[p->n_items++] = p->stack[from + i].node;
    p->nodes[container].u.at = begin;
    p->nodes[container].count = had + more;
    p->n_stack = from;
    return 1;
}

static int new_tuple(Parse *p, uint32_t count, uint32_t pos)
{
    if (available(p) < count)
        return 0;
    uint32_t node;
    return new_node(p, TUPLE, &node) && extend(p, node, p->n_stack - count) && push(p, node, pos);
}

static int put(Parse *p, uint32_t index, uint32_t pos)
{
    if (!available(p) || index > MAX_MEMO || p->nodes[p->stack[p->n_stack - 1].node].kind == ROW)
        return 0;
    if (index >= p->n_memo) {
        if (!grow((void **)&p->memo, &p->cap_memo, index + 1, sizeof(uint32_t)))
            return 0;
        memset(p->memo + p->n_memo, 0, (index + 1 - p->n_memo) * sizeof(uint32_t));
        p->n_memo = index + 1;
    }
    if (p->memo[index]) /* what templates refer to must not change */
        return 0;
    p->memo[index] = p->stack[p->n_stack - 1].node + 1;
    if (!grow((void **)&p->puts, &p->cap_puts, p->n_puts + 1, sizeof(uint32_t)))
        return 0;
    p->puts[p->n_puts++] = pos;
    return 1;
}

static int get(Parse *p, uint32_t index, uint32_t pos)
{
    if (index >= p->n_memo || p->memo[index] == 0 || p->memo[index] == SKIPPED)
        return 0;
    return push(p, p->memo[index] - 1, pos);
}

/* The number of a column as calls.integer() and columns.py have it; texts are left to them. */
static int value_of(const Parse *p, uint32_t node, uint32_t column, Value *value)
{
    const Node *n = &p->nodes[node];
    int real = column >= p->n_ints;
    if (n->kind == TEXT && !real)
        return 0;
    if (real)
        value->f = NAN;
    else
        value->i = 0;
    if (n->kind == INT) {
        int64_t whole = n->u.i == INT64_MIN ? 0 : n->u.i;
        if (real)
            value->f = (double)whole;
        else
            value->i = whole;
    } else if (n->kind == REAL && real) {
        value->f = n->u.f;
    } else if (!real && n->kind == TRUE_) {
        value->i = 1;
    }
    return 1;
}

static int is_record(const Parse *p, const Node *dict)
{
    for (uint32_t i = 0; i < dict->count; i += 2) {
        const Node *key = &p->nodes[p->items[dict->u.at + i]];
        if (key->kind == TEXT && key->tag == TAG_MARKER)
            return 1;
    }
    return 0;
}

/* All columns of a record; of a key that stands twice the last value counts. */
static int values_of(const Parse *p, uint32_t dict, Value *values)
{
    for (uint32_t c = 0; c < p->n_columns; c++) {
        if (c >= p->n_ints)
            values[c].f = NAN;
        else
            values[c].i = 0;
    }
    const Node *node = &p->nodes[dict];
    for (uint32_t i = 0; i + 1 < node->count; i += 2) {
        const Node *key = &p->nodes[p->items[node->u.at + i]];
        if (key->kind != TEXT || key->tag == 0 || key->tag > p->n_columns)
            continue;
        uint32_t column = key->tag - 1u;
        if (!value_of(p, p->items[node->u.at + i + 1], column, &values[column]))
            return 0;
    }
    return 1;
}

static int add_hole(Parse *p, uint32_t *begin, uint32_t at, uint32_t width, uint32_t what)
{
    if (!grow((void **)&p->holes, &p->cap_holes, p->n_holes + 1, sizeof(Hole)))
        return 0;
    Hole *hole = &p->holes[p->n_holes++];
    hole->from = *begin;
    hole->size = at - *begin;
    hole->what = what;
    *begin = at + width;
    return 1;
}

static uint32_t put_width(const Parse *p, uint32_t pos)
{
    uint8_t op = p->data[pos];
    return op == 0x71 ? 2 : op == 0x72 ? 5 : 1;
}

/* Make a template of the record that SETITEMS at `pos` has just completed; `first` is its first key on the stack. */
static int learn(Parse *p, uint32_t dict, uint32_t start, uint32_t pos, Mark mark, uint32_t first, uint32_t behind)
{
    uint32_t end = pos + 1, seen = 0, slots = 0, begin = start, q = start + 1;
    uint32_t n_puts = p->n_puts;
    while (n_puts && p->puts[n_puts - 1] > start)
        n_puts--;
    int plain = p->data[q] == 0x28;
    if (!plain && (n_puts == p->n_puts || p->puts[n_puts] != q))
        return 1;
    if (!plain)
        q += put_width(p, q);
    /* Torch memoises no record, only what a record is the first to use: such a one is unique. */
    if (mark.pos != q || (plain && n_puts != p->n_puts) || end - start > MAX_RECORD)
        return 1;
    if (p->n_templates >= MAX_TEMPLATES || p->n_puts - n_puts + (behind - first) / 2 >= MAX_SLOTS)
        return 1;
    Template made;
    made.first = p->n_holes;
    made.dict = dict;
    made.next = -1;
    made.example = -1;
    if (!values_of(p, dict, made.base))
        return 0;
    uint32_t next_put = n_puts;
    for (uint32_t i = first; i + 1 < behind; i += 2) {
        const Node *key = &p->nodes[p->stack[i].node];
        uint32_t at = p->stack[i + 1].pos, width, what = key->tag - 1u;
        Value value;
        int is_real;
        if (key->kind != TEXT || key->tag == 0 || (key->tag > p->n_columns && key->tag != TAG_SKIPPED))
            continue;
        if (key->tag == TAG_SKIPPED)
            what = HOLE_UNUSED;
        else if (seen & 1u << what) { /* twice the same key: not worth the trouble */
            p->n_holes = made.first;
            return 1;
        } else
            seen |= 1u << what;
        width = number_at(p, at, &value, &is_real);
        if (width == 0)
            continue;
        for (; next_put < p->n_puts && p->puts[next_put] < at; next_put++, slots++)
            if (!add_hole(p, &begin, p->puts[next_put], put_width(p, p->puts[next_put]), HOLE_PUT))
                return 0;
        if (!add_hole(p, &begin, at, width, what))
            return 0;
        slots++;
    }
    for (; next_put < p->n_puts; next_put++, slots++)
        if (!add_hole(p, &begin, p->puts[next_put], put_width(p, p->puts[next_put]), HOLE_PUT))
            return 0;
    if (!add_hole(p, &begin, end, 0, HOLE_END))
        return 0;
    if (!grow((void **)&p->templates, &p->cap_templates, p->n_templates + 1, sizeof(Template)))
        return 0;
    p->templates[p->n_templates] = made;
    if (p->last >= 0)
        p->templates[p->last].next = (int32_t)p->n_templates;
    p->last = (int32_t)p->n_templates++;
    return 1;
}

/* Where the record at `pos` ends if it equals the template, else 0; fills in its values and memo numbers. */
static uint32_t matches(Parse *p, const Template *t, uint32_t pos, Value *values, uint32_t *puts, uint32_t *n_puts)
{
    uint32_t memoized = p->memoized;
    *n_puts = 0;
    memcpy(values, t->base, sizeof(Value) * p->n_columns);
    for (const Hole *hole = p->holes + t->first;; hole++) {
        if (hole->size > p->size - pos || !same_bytes(p->data + hole->from, p->data + pos, hole->size)) {
            p->compared += hole->size + 1u;
            return 0;
        }
        pos += hole->size;
        if (hole->what == HOLE_END) {
            p->matched = memoized;
            return pos;
        }
        uint32_t left = p->size - pos;
        if (hole->what == HOLE_PUT) {
            uint8_t op = left ? p->data[pos] : 0;
            if (op == 0x71 && left >= 2) {
                puts[(*n_puts)++] = p->data[pos + 1];
                pos += 2;
            } else if (op == 0x72 && left >= 5) {
                puts[(*n_puts)++] = u32_at(p->data + pos + 1);
                pos += 5;
            } else if (op == 0x94) {
                puts[(*n_puts)++] = memoized++;
                pos += 1;
            } else {
                return 0;
            }
            continue;
        }
        Value value;
        int is_real;
        uint32_t width = number_at(p, pos, &value, &is_real);
        if (width == 0)
            return 0;
        pos += width;
        if (hole->what == HOLE_UNUSED)
            continue;
        int wants_real = hole->what >= p->n_ints;
        if (wants_real)
            values[hole->what].f = is_real ? value.f : (double)value.i;
        else
            values[hole->what].i = is_real ? 0 : value.i;
    }
}

/* Note a record that was taken by comparison (its values are in place), and that it is on the stack. */
static int take(Parse *p, int32_t number, uint32_t end, const uint32_t *puts, uint32_t n_puts)
{
    uint32_t start = p->pos;
    for (uint32_t i = 0; i < n_puts; i++) {
        if (puts[i] > MAX_MEMO)
            return 0;
        if (puts[i] >= p->n_memo) {
            if (!grow((void **)&p->memo, &p->cap_memo, puts[i] + 1, sizeof(uint32_t)))
                return 0;
            memset(p->memo + p->n_memo, 0, (puts[i] + 1 - p->n_memo) * sizeof(uint32_t));
            p->n_memo = puts[i] + 1;
        }
        if (p->memo[puts[i]])
            return 0;
        p->memo[puts[i]] = SKIPPED;
    }
    p->memoized = p->matched;
    if (!grow((void **)&p->row_template, &p->cap_row_template, p->n_rows + 1, sizeof(uint32_t)))
        return 0;
    p->row_template[p->n_rows] = (uint32_t)number;
    if (!push_new(p, ROW, start))
        return 0;
    p->nodes[p->n_nodes - 1].u.at = p->n_rows++;
    p->steps += ROW_STEPS;
    p->last = number;
    p->pos = end;
    return 1;
}

/* Compare the bytes at the current position with known records; *taken says whether one was found. */
static int try_templates(Parse *p, int *taken)
{
    uint32_t puts[MAX_SLOTS], n_puts, end;
    *taken = 0;
    if (p->last < 0)
        return 1;
    if (!grow((void **)&p->values, &p->cap_values, (p->n_rows + 1) * p->n_columns, sizeof(Value)))
        return 0;
    Value *values = p->values + (size_t)p->n_rows * p->n_columns;
    int32_t expected = p->templates[p->last].next;
    if (expected >= 0 && (end = matches(p, &p->templates[expected], p->pos, values, puts, &n_puts)) != 0) {
        *taken = 1;
        return take(p, expected, end, puts, n_puts);
    }
    for (uint32_t tries = 0; tries < p->n_templates && tries < MAX_TRIES; tries++) {
        int32_t number = (int32_t)(p->n_templates - 1 - tries);
        if (number == expected)
            continue;
        if ((end = matches(p, &p->templates[number], p->pos, values, puts, &n_puts)) != 0) {
            p->templates[p->last].next = number;
            *taken = 1;
            return take(p, number, end, puts, n_puts);
        }
    }
    return p->compared <= (uint64_t)COMPARED * p->size + (1u << 16);
}

static int appends(Parse *p, uint32_t from)
{
    if (from == 0)
        return 0;
    Slot target = p->stack[from - 1];
    /* A list that was fetched from the memo is changed by nobody who writes plain data. */
    if (p->nodes[target.node].kind != LIST || p->data[target.pos] != 0x5D)
        return 0;
    return extend(p, target.node, from);
}

static int setitems(Parse *p, uint32_t from, const Mark *mark)
{
    if (from == 0 || (p->n_stack - from) % 2)
        return 0;
    Slot target = p->stack[from - 1];
    if (p->nodes[target.node].kind != DICT || p->data[target.pos] != 0x7D)
        return 0;
    for (uint32_t i = from; i < p->n_stack; i += 2) {
        const Node *key = &p->nodes[p->stack[i].node];
        int small = key->kind == INT && key->u.i < ((int64_t)1 << 60) && key->u.i > -((int64_t)1 << 60);
        if (key->kind != TEXT && !small)
            return 0;
    }
    int first = p->nodes[target.node].count == 0;
    uint32_t behind = p->n_stack;
    if (!extend(p, target.node, from)) /* the slots above are still there to be looked at */
        return 0;
    if (!first || mark == NULL || !is_record(p, &p->nodes[target.node]))
        return 1;
    return learn(p, target.node, target.pos, p->pos, *mark, from, behind);
}

/* One opcode; *stop after STOP. */
static int step(Parse *p, int *stop)
{
    uint32_t pos = p->pos, left = p->size - pos;
    if (left == 0)
        return 0;
    const uint8_t *at = p->data + pos;
    switch (at[0]) {
    case 0x68: /* BINGET */
        p->pos += 2;
        return left >= 2 && get(p, at[1], pos);
    case 0x6A: /* LONG_BINGET */
        p->pos += 5;
        return left >= 5 && get(p, u32_at(at + 1), pos);
    case 0x71: /* BINPUT */
        p->pos += 2;
        return left >= 2 && put(p, at[1], pos);
    case 0x72: /* LONG_BINPUT */
        p->pos += 5;
        return left >= 5 && put(p, u32_at(at + 1), pos);
    case 0x94: /* MEMOIZE */
        p->pos += 1;
        return put(p, p->memoized++, pos);
    case 0x4B: /* BININT1 */
        p->pos += 2;
        return left >= 2 && push_int(p, at[1], pos);
    case 0x4D: /* BININT2 */
        p->pos += 3;
        return left >= 3 && push_int(p, u16_at(at + 1), pos);
    case 0x4A: /* BININT */
        p->pos += 5;
        return left >= 5 && push_int(p, i32_at(at + 1), pos);
    case 0x8A: { /* LONG1 */
        if (left < 2 || at[1] > 8 || left < 2u + at[1])
            return 0;
        uint64_t bits = at[1] && at[1 + at[1]] & 0x80 ? ~(uint64_t)0 : 0;
        for (uint32_t i = at[1]; i > 0; i--)
            bits = bits << 8 | at[1 + i];
        p->pos += 2u + at[1];
        return push_int(p, signed_of(bits), pos);
    }
    case 0x47: /* BINFLOAT */
        if (left < 9 || !push_new(p, REAL, pos))
            return 0;
        p->nodes[p->n_nodes - 1].u.f = real_at(at + 1);
        p->pos += 9;
        return 1;
    case 0x4E: /* NONE */
        p->pos += 1;
        return push(p, NONE, pos);
    case 0x88: /* NEWTRUE */
        p->pos += 1;
        return push(p, TRUE_, pos);
    case 0x89: /* NEWFALSE */
        p->pos += 1;
        return push(p, FALSE_, pos);
    case 0x58: /* BINUNICODE */
        return left >= 5 && push_text(p, pos + 1, 4, u32_at(at + 1), pos);
    case 0x8C: /* SHORT_BINUNICODE */
        return left >= 2 && push_text(p, pos + 1, 1, at[1], pos);
    case 0x8D: /* BINUNICODE8 */
        return left >= 9 && push_text(p, pos + 1, 8, u64_at(at + 1), pos);
    case 0x28: /* MARK */
        if (p->n_marks >= MAX_MARKS)
            return 0;
        p->marks[p->n_marks].at = p->n_stack;
        p->marks[p->n_marks++].pos = pos;
        p->pos += 1;
        return 1;
    case 0x5D: /* EMPTY_LIST */
        p->pos += 1;
        return push_new(p, LIST, pos);
    case 0x7D: { /* EMPTY_DICT */
        int taken;
        if (!try_templates(p, &taken))
            return 0;
        if (taken)
            return 1;
        p->pos += 1;
        return push_new(p, DICT, pos);
    }
    case 0x29: /* EMPTY_TUPLE */
        p->pos += 1;
        return push_new(p, TUPLE, pos);
    case 0x85: /* TUPLE1, TUPLE2, TUPLE3 */
    case 0x86:
    case 0x87:
        p->pos += 1;
        return new_tuple(p, at[0] - 0x84u, pos);
    case 0x74: /* TUPLE */
        p->pos += 1;
        if (p->n_marks == 0)
            return 0;
        {
            uint32_t count = available(p);
            int made = new_tuple(p, count, pos);
            p->n_marks--;
            return made;
        }
    case 0x65: { /* APPENDS */
        if (p->n_marks == 0)
            return 0;
        uint32_t from = p->marks[--p->n_marks].at;
        p->pos += 1;
        return (from > (p->n_marks ? p->marks[p->n_marks - 1].at : 0)) && appends(p, from);
    }
    case 0x61: /* APPEND */
        p->pos += 1;
        return available(p) >= 2 && appends(p, p->n_stack - 1);
    case 0x75: { /* SETITEMS */
        if (p->n_marks == 0)
            return 0;
        Mark mark = p->marks[--p->n_marks];
        if (mark.at <= (p->n_marks ? p->marks[p->n_marks - 1].at : 0) || !setitems(p, mark.at, &mark))
            return 0;
        p->pos += 1;
        return 1;
    }
    case 0x73: /* SETITEM */
        if (available(p) < 3 || !setitems(p, p->n_stack - 2, NULL))
            return 0;
        p->pos += 1;
        return 1;
    case 0x80: /* PROTO */
        p->pos += 2;
        return left >= 2;
    case 0x95: /* FRAME */
        p->pos += 9;
        return left >= 9;
    case 0x2E: /* STOP */
        *stop = 1;
        return p->n_marks == 0 && p->n_stack == 1;
    default:
        return 0;
    }
}

static int parse(Parse *p)
{
    uint32_t node;
    for (enum kind kind = NONE; kind <= TRUE_; kind++) /* the nodes 0, 1 and 2 */
        if (!new_node(p, kind, &node))
            return 0;
    int stop = 0;
    while (!stop) {
        if (!step(p, &stop) || ++p->steps > MAX_STEPS)
            return 0;
    }
    return 1;
}

/* Arrays of parses that have ended: the dumps of a job are alike, and memory that is fetched anew for every one of
 * them costs a fifth of the time. Only looked at with the GIL held. */
static Parse spare[MAX_SPARE];
static uint32_t n_spare;

static void begin(Parse *p, const char *data, uint32_t size)
{
    memset(p, 0, sizeof *p);
    if (n_spare) {
        const Parse *from = &spare[--n_spare];
#define TAKEN(type, name)  \
    p->name = from->name;  \
    p->cap_##name = from->cap_##name;
        ARRAYS(TAKEN)
    }
    p->data = (const uint8_t *)data;
    p->size = size;
    p->last = -1;
}

static void end(Parse *p)
{
#define BYTES(type, name) + p->cap_##name * sizeof(type)
    if (n_spare < MAX_SPARE && 0 ARRAYS(BYTES) <= SPARE_BYTES) {
        spare[n_spare++] = *p;
        return;
    }
#define FREED(type, name) free(p->name);
    ARRAYS(FREED)
}

/* A new reference to a node as a Python object, or NULL: with an exception, or without one for what is too deep. */
static PyObject *object_of(const Parse *p, uint32_t number, PyObject **made, int depth)
{
    const Node *node = &p->nodes[number];
    if (made[number] != NULL) {
        Py_INCREF(made[number]);
        return made[number];
    }
    if (depth > MAX_DEPTH)
        return NULL;
    PyObject *object = NULL;
    switch (node->kind) {
    case NONE:
        object = Py_None;
        Py_INCREF(object);
        break;
    case FALSE_:
    case TRUE_:
        object = PyBool_FromLong(node->kind == TRUE_);
        break;
    case INT:
        object = PyLong_FromLongLong(node->u.i);
        break;
    case REAL:
        object = PyFloat_FromDouble(node->u.f);
        break;
    case TEXT:
        object = PyUnicode_DecodeUTF8((const char *)p->data + node->u.at, node->count, "replace");
        break;
    case LIST:
    case TUPLE:
        object = node->kind == LIST ? PyList_New(node->count) : PyTuple_New(node->count);
        for (uint32_t i = 0; object != NULL && i < node->count; i++) {
            PyObject *item = object_of(p, p->items[node->u.at + i], made, depth + 1);
            if (item == NULL || (node->kind == LIST ? PyList_SetItem(object, i, item) : PyTuple_SetItem(object, i, item)))
                Py_CLEAR(object);
        }
        break;
    case DICT:
        object = PyDict_New();
        for (uint32_t i = 0; object != NULL && i + 1 < node->count; i += 2) {
            PyObject *key = object_of(p, p->items[node->u.at + i], made, depth + 1);
            PyObject *value = key ? object_of(p, p->items[node->u.at + i + 1], made, depth + 1) : NULL;
            if (value == NULL || PyDict_SetItem(object, key, value) < 0)
                Py_CLEAR(object);
            Py_XDECREF(key);
            Py_XDECREF(value);
        }
        break;
    default: /* ROW: a record where nobody looks for records */
        return NULL;
    }
    if (object != NULL) {
        Py_INCREF(object);
        made[number] = object;
    }
    return object;
}

/* The list of records: the whole file, or the value of the key `entries`, whose place in the dict goes to *at. */
static const Node *entries_of(const Parse *p, uint32_t *at)
{
    const Node *top = &p->nodes[p->stack[0].node], *found = NULL;
    *at = UINT32_MAX;
    if (top->kind == LIST)
        return top;
    if (top->kind != DICT)
        return NULL;
    for (uint32_t i = 0; i + 1 < top->count; i += 2) {
        const Node *key = &p->nodes[p->items[top->u.at + i]];
        if (key->kind != TEXT || key->tag != TAG_ENTRIES)
            continue;
        if (found != NULL)
            return NULL;
        found = &p->nodes[p->items[top->u.at + i + 1]];
        *at = i;
    }
    return found != NULL && found->kind == LIST ? found : NULL;
}

static int key_bytes(Parse *p, const void *bytes, uint32_t size)
{
    if (size > MAX_KEY || !grow((void **)&p->key, &p->cap_key, p->n_key + size, 1))
        return 0;
    memcpy(p->key + p->n_key, bytes, size);
    p->n_key += size;
    return p->n_key <= MAX_KEY;
}

/* Append a value to the key: equal bytes mean equal values. */
static int key_of(Parse *p, uint32_t number, int depth)
{
    const Node *node = &p->nodes[number];
    if (depth > MAX_DEPTH || node->kind == ROW || !key_bytes(p, &node->kind, 1))
        return 0;
    if (node->kind == INT || node->kind == REAL)
        return key_bytes(p, &node->u, sizeof node->u);
    if (node->kind < TEXT)
        return 1;
    if (!key_bytes(p, &node->count, sizeof node->count))
        return 0;
    if (node->kind == TEXT)
        return key_bytes(p, p->data + node->u.at, node->count);
    for (uint32_t i = 0; i < node->count; i++)
        if (!key_of(p, p->items[node->u.at + i], depth + 1))
            return 0;
    return 1;
}

/* What a record says apart from its numbers, from what is skipped and from its parts; 0 if that is too much. */
static int key_of_record(Parse *p, uint32_t dict)
{
    const Node *node = &p->nodes[dict];
    p->n_key = 0;
    for (uint32_t i = 0; i + 1 < node->count; i += 2) {
        const Node *key = &p->nodes[p->items[node->u.at + i]];
        uint8_t tag = key->kind == TEXT ? key->tag : 0;
        if ((tag > 0 && tag <= p->n_columns) || tag == TAG_SKIPPED || tag == TAG_PART)
            continue;
        if (!key_of(p, p->items[node->u.at + i], 0) || !key_of(p, p->items[node->u.at + i + 1], 0))
            return 0;
    }
    return 1;
}

/* A record as a dict: all of it, or its parts only. */
static PyObject *dict_of(const Parse *p, uint32_t dict, int parts_only, PyObject **made)
{
    const Node *node = &p->nodes[dict];
    PyObject *object = PyDict_New();
    for (uint32_t i = 0; object != NULL && i + 1 < node->count; i += 2) {
        const Node *tagged = &p->nodes[p->items[node->u.at + i]];
        if (parts_only && (tagged->kind != TEXT || tagged->tag != TAG_PART))
            continue;
        PyObject *key = object_of(p, p->items[node->u.at + i], made, 1);
        PyObject *value = key ? object_of(p, p->items[node->u.at + i + 1], made, 1) : NULL;
        if (value == NULL || PyDict_SetItem(object, key, value) < 0)
            Py_CLEAR(object);
        Py_XDECREF(key);
        Py_XDECREF(value);
    }
    return object;
}

/* Append (what `known` has for the record, its parts), or (its key or None, the whole record). */
static int add_example(Parse *p, PyObject *examples, PyObject *known, uint32_t dict, PyObject **made)
{
    PyObject *key = NULL, *said = NULL, *record = NULL, *pair = NULL;
    if (key_of_record(p, dict))
        key = PyBytes_FromStringAndSize((const char *)p->key, p->n_key);
    else {
        key = Py_None;
        Py_INCREF(key);
    }
    if (key != NULL)
        said = PyDict_GetItemWithError(known, key);
    Py_XINCREF(said); /* it was borrowed, and another thread may clear the dict */
    if (key != NULL && !(said == NULL && PyErr_Occurred()))
        record = dict_of(p, dict, said != NULL, made);
    if (record != NULL)
        pair = PyTuple_Pack(2, said != NULL ? said : key, record);
    int fine = pair != NULL && PyList_Append(examples, pair) == 0;
    Py_XDECREF(said);
    Py_XDECREF(key);
    Py_XDECREF(record);
    Py_XDECREF(pair);
    return fine;
}

static int32_t template_of(const Parse *p, uint32_t dict)
{
    uint32_t low = 0, high = p->n_templates; /* they were learnt in the order of their dicts' ends, nearly sorted */
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (p->templates[middle].dict < dict)
            low = middle + 1;
        else
            high = middle;
    }
    return low < p->n_templates && p->templates[low].dict == dict ? (int32_t)low : -1;
}

static int has_first(const Parse *p, uint32_t dict)
{
    const Node *node = &p->nodes[dict];
    for (uint32_t i = 0; i < node->count; i += 2) {
        const Node *key = &p->nodes[p->items[node->u.at + i]];
        if (key->kind == TEXT && key->tag == 1)
            return 1;
    }
    return 0;
}

/* Fill the columns and collect one example of each kind of record. */
static int fill(Parse *p, const Node *entries, PyObject *examples, PyObject *known, int32_t *lines, Value *columns,
                PyObject **made)
{
    uint32_t n = entries->count;
    int32_t n_examples = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t number = p->items[entries->u.at + i];
        Node *node = &p->nodes[number];
        Value own[MAX_COLUMNS];
        const Value *values = NULL;
        int32_t which = -1;
        lines[i] = -1;
        if (node->kind == ROW) {
            which = (int32_t)p->row_template[node->u.at];
            values = p->values + (size_t)node->u.at * p->n_columns;
        } else if (node->kind == DICT && node->tag != TAG_LISTED) {
            node->tag = TAG_LISTED; /* one entry listed twice is none of torch's doing */
            if (is_record(p, node)) {
                which = template_of(p, number);
                if (!values_of(p, number, own))
                    return 0;
                values = own;
            }
        }
        if (values != NULL) {
            int32_t line = which >= 0 ? p->templates[which].example : -1;
            if (line < 0) {
                if (!add_example(p, examples, known, which >= 0 ? p->templates[which].dict : number, made))
                    return 0;
                line = n_examples++;
                p->unnumbered |= !has_first(p, which >= 0 ? p->templates[which].dict : number);
                if (which >= 0)
                    p->templates[which].example = line;
            }
            lines[i] = line;
        }
        for (uint32_t c = 0; c < p->n_columns; c++) {
            if (values != NULL)
                columns[(size_t)c * n + i] = values[c];
            else
                columns[(size_t)c * n + i].i = 0;
        }
    }
    return 1;
}

/* (dict without the entries, examples, line of each entry, columns, unnumbered); NULL with or without an exception. */
static PyObject *result_of(Parse *p, PyObject *known)
{
    uint32_t at;
    const Node *entries = entries_of(p, &at);
    if (entries == NULL)
        return NULL;
    Node top = p->nodes[p->stack[0].node];
    PyObject **made = calloc(p->n_nodes, sizeof(PyObject *));
    if (made == NULL)
        return PyErr_NoMemory();
    PyObject *result = NULL, *rest = PyDict_New(), *examples = PyList_New(0);
    PyObject *lines = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)entries->count * 4);
    PyObject *columns = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)entries->count * 8 * p->n_columns);
    int fine = rest != NULL && examples != NULL && lines != NULL && columns != NULL;
    fine = fine && fill(p, entries, examples, known, (int32_t *)(void *)PyBytes_AsString(lines),
                        (Value *)(void *)PyBytes_AsString(columns), made);
    for (uint32_t i = 0; fine && top.kind == DICT && i + 1 < top.count; i += 2) {
        if (i == at)
            continue;
        PyObject *key = object_of(p, p->items[top.u.at + i], made, 0);
        PyObject *value = key ? object_of(p, p->items[top.u.at + i + 1], made, 0) : NULL;
        fine = value != NULL && PyDict_SetItem(rest, key, value) == 0;
        Py_XDECREF(key);
        Py_XDECREF(value);
    }
    if (fine)
        result = PyTuple_Pack(5, rest, examples, lines, columns, p->unnumbered ? Py_True : Py_False);
    Py_XDECREF(rest);
    Py_XDECREF(examples);
    Py_XDECREF(lines);
    Py_XDECREF(columns);
    for (uint32_t i = 0; i < p->n_nodes; i++)
        Py_XDECREF(made[i]);
    free(made);
    return result;
}

static int add_key(Parse *p, PyObject *text, uint8_t tag)
{
    Py_ssize_t size;
    const char *utf8 = PyUnicode_AsUTF8AndSize(text, &size);
    if (utf8 == NULL)
        return 0;
    if (p->n_keys >= sizeof p->keys / sizeof p->keys[0]) {
        PyErr_SetString(PyExc_ValueError, "too many keys");
        return 0;
    }
    p->keys[p->n_keys].text = utf8;
    p->keys[p->n_keys].size = (size_t)size;
    p->keys[p->n_keys++].tag = tag;
    return 1;
}

/* Tag the keys of a tuple; those of columns are numbered. */
static int add_keys(Parse *p, PyObject *names, uint8_t tag)
{
    for (Py_ssize_t i = 0; i < PyTuple_Size(names); i++) {
        if (!tag && p->n_columns >= MAX_COLUMNS) {
            PyErr_SetString(PyExc_ValueError, "too many columns");
            return 0;
        }
        if (!add_key(p, PyTuple_GetItem(names, i), tag ? tag : (uint8_t)++p->n_columns))
            return 0;
    }
    return 1;
}

static int add_all_keys(Parse *p, PyObject *marker, PyObject *ints, PyObject *reals, PyObject *skipped, PyObject *parts)
{
    if (!add_keys(p, ints, 0))
        return 0;
    p->n_ints = p->n_columns;
    if (!add_keys(p, reals, 0) || !add_key(p, marker, TAG_MARKER) || !add_keys(p, skipped, TAG_SKIPPED) ||
        !add_keys(p, parts, TAG_PART))
        return 0;
    if (p->n_keys >= sizeof p->keys / sizeof p->keys[0]) {
        PyErr_SetString(PyExc_ValueError, "too many keys");
        return 0;
    }
    p->keys[p->n_keys].text = "entries";
    p->keys[p->n_keys].size = 7;
    p->keys[p->n_keys++].tag = TAG_ENTRIES;
    return 1;
}

PyDoc_STRVAR(decode_doc, "decode(data, marker, ints, reals, skipped, parts, known)\n--\n\n"
                         "The records of a pickle as columns; None where the decoder in Python has to look.");

static PyObject *decode(PyObject *module, PyObject *arguments)
{
    (void)module;
    PyObject *data, *marker, *ints, *reals, *skipped, *parts, *known;
    PyTypeObject *tuple = &PyTuple_Type;
    char *bytes;
    Py_ssize_t size;
    if (!PyArg_ParseTuple(arguments, "SUO!O!O!O!O!", &data, &marker, tuple, &ints, tuple, &reals, tuple, &skipped,
                          tuple, &parts, &PyDict_Type, &known))
        return NULL;
    if (PyBytes_AsStringAndSize(data, &bytes, &size) < 0)
        return NULL;
    if (size > (Py_ssize_t)MAX_DATA)
        Py_RETURN_NONE;
    Parse p;
    begin(&p, bytes, (uint32_t)size);
    PyObject *result = NULL;
    if (add_all_keys(&p, marker, ints, reals, skipped, parts)) {
        int fine;
        Py_BEGIN_ALLOW_THREADS
        fine = parse(&p);
        Py_END_ALLOW_THREADS
        result = fine ? result_of(&p, known) : NULL;
    }
    end(&p);
    if (result == NULL && !PyErr_Occurred())
        Py_RETURN_NONE;
    return result;
}

static PyMethodDef methods[] = {{"decode", decode, METH_VARARGS, decode_doc}, {NULL, NULL, 0, NULL}};

static int ready(PyObject *module) { return PyModule_AddIntConstant(module, "VERSION", VERSION); }

static PyModuleDef_Slot slots[] = {{Py_mod_exec, (void *)ready}, {0, NULL}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_native", "Pickles of plain data into columns.", 0, methods, slots, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__native(void);
PyMODINIT_FUNC PyInit__native(void) { return PyModuleDef_Init(&definition); }
