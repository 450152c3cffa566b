/* Events of a trace in Chrome's format, straight into columns.
 *
 * It does for well-formed batches what events.py does for all of them, several times as fast. Whatever is unusual (JSON
 * that is not valid, a value of another type than Kineto writes, a span without a name, start or duration, a limit)
 * makes scan() return None: the decoder in Python then reads the batch and says what is wrong with it. So the two can
 * only differ in what both accept.
 *
 * The batch is the beginning of a bytes object, which ends with a NUL. No JSON contains one: every loop stops there at
 * the latest.
 * Nothing recurses. No Python runs during the parse; names are numbered by `number` once the whole batch was understood.
 */
#define PY_SSIZE_T_CLEAN
#ifndef Py_LIMITED_API
#define Py_LIMITED_API 0x030A0000
#endif
#include <Python.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define VERSION 1 /* scan.py refuses a library of another version */

#define MAX_BATCH (1u << 30)
#define MAX_DEPTH 64
#define MAX_ENTRIES (1u << 21)
#define MAX_ARENA (256u << 20)
#define MAX_PROBES 128u
#define MAX_NUMBER ((int64_t)1 << 62)
#define FARTHEST ((int64_t)1 << 52)     /* microseconds, as in events.py */
#define FLOAT_MICROS 100000000000LL     /* with decimals above this, a float would lose nanoseconds */
#define LONGEST 1000000000000LL
#define SHORT_US 20

/* What `number` is asked for. */
enum { NAME, USEFUL, CATEGORY, LANE };
/* Flags of its answer to NAME, above the number. */
#define TELLING (1LL << 32)

typedef struct {
    const uint8_t *at;
    uint32_t size;
} Text;

typedef struct {
    uint64_t hash;
    uint32_t from, size, split; /* in the arena; split: where the second part begins */
    int32_t number;             /* Python's, -1: not asked yet */
    int32_t other;              /* telling, or a title's newest text */
    int8_t useful;              /* -1: not asked yet */
} Entry;

typedef struct {
    Entry *entries;
    uint32_t *slots; /* entry + 1 */
    uint8_t *arena;
    uint32_t count, cap, mask, used, room;
    uint32_t last; /* entry found last, +1 */
} Table;

/* What stands between two values of an event, and what the value after it is. See "shapes" below. */
typedef struct {
    uint64_t head;              /* its first bytes, where it has eight */
    uint32_t from, size;        /* the text, in the arena */
    uint32_t child, sibling;    /* nodes; 0: none */
    int32_t opens, closes;      /* where in the text the arguments begin or end; -1: not here */
    uint8_t kind, shapes, ph;   /* ph: of the event, where it ends */
} Node;

typedef struct {
    Node *nodes; /* the first is the root */
    uint8_t *arena;
    uint32_t count, cap, used, room;
} Shapes;

typedef struct {
    Table names, categories, lanes, places, titles;
    Shapes shapes;
} Memory;

typedef struct {
    int64_t start, length, stream, link;
    uint32_t name, category, lane; /* entries */
    uint32_t args, args_size;      /* where in the batch; size 0: not wanted */
    uint8_t collective, shapes, lasting;
} Row;

typedef struct {
    uint32_t from, size, place, text;
} Title;

/* The newest events with `ph` M of a batch: some profilers write the same few before every span. */
#define RECENT 8u
typedef struct {
    const uint8_t *at;
    uint32_t size, title; /* title: which one it gave, +1; 0: none */
} Seen;

typedef struct {
    Memory *memory;
    const uint8_t *data, *end;
    Row *rows;
    uint32_t n_rows, cap_rows;
    Title *titles;
    uint32_t n_titles, cap_titles;
    Seen recent[RECENT];
    uint32_t n_recent, back; /* how many M events there were; how far back the one before was found again */
    uint32_t n_events;
    int exact; /* times with decimals may be as large as those since 1970 */
} Batch;

/* A time in microseconds, as it was written. */
typedef struct {
    int64_t above, below;   /* whole ones, and nanoseconds of the last one */
    uint8_t told, more, odd; /* odd: not plain digits, or too many; more: decimals below a nanosecond */
} Moment;

typedef struct {
    Text ph, category, name, pid, tid, args;
    Moment ts, dur;
    int64_t stream, link;
    int has_category, collective, shapes;
} Event;

static int grow(void **array, uint32_t *cap, uint32_t wanted, size_t each)
{
    if (wanted <= *cap)
        return 1;
    uint64_t more = *cap ? (uint64_t)*cap * 2 : 256;
    if (more < wanted)
        more = wanted;
    if (more > (512u << 20))
        return 0;
    void *moved = realloc(*array, (size_t)more * each);
    if (moved == NULL)
        return 0;
    *array = moved;
    *cap = (uint32_t)more;
    return 1;
}

/* ---- texts that repeat -------------------------------------------------------------------------------------------- */

static uint64_t mixed(uint64_t hash, const uint8_t *p, uint32_t size)
{
    uint64_t word;
    for (; size >= 8; size -= 8, p += 8) {
        memcpy(&word, p, 8);
        hash = (hash ^ word) * 0x9E3779B97F4A7C15ull;
        hash ^= hash >> 29;
    }
    if (size) {
        word = 0;
        memcpy(&word, p, size);
        hash = (hash ^ word) * 0x9E3779B97F4A7C15ull;
        hash ^= hash >> 29;
    }
    return hash;
}

static int is_entry(const Table *table, const Entry *entry, Text a, Text b)
{
    const uint8_t *own = table->arena + entry->from;
    return entry->size == a.size + b.size && entry->split == a.size && !memcmp(own, a.at, a.size) &&
           (!b.size || !memcmp(own + a.size, b.at, b.size));
}

static int rehash(Table *table)
{
    uint32_t wide = table->mask ? (table->mask + 1) * 2 : 1024;
    uint32_t *slots = calloc(wide, sizeof *slots);
    if (slots == NULL)
        return 0;
    for (uint32_t i = 0; i < table->count; i++) {
        uint32_t at = (uint32_t)table->entries[i].hash & (wide - 1);
        while (slots[at])
            at = (at + 1) & (wide - 1);
        slots[at] = i + 1;
    }
    free(table->slots);
    table->slots = slots;
    table->mask = wide - 1;
    return 1;
}

/* The entry of a text of two parts, a new one if need be; -1 for too many. */
static int64_t entry_of(Table *table, Text a, Text b)
{
    if (table->last && is_entry(table, &table->entries[table->last - 1], a, b))
        return table->last - 1;
    if ((table->count + 1) * 2 > table->mask && !rehash(table))
        return -1;
    uint64_t hash = mixed(mixed(a.size * 31u + 7u, a.at, a.size), b.at, b.size);
    uint32_t at = (uint32_t)hash & table->mask;
    for (uint32_t probes = 0; table->slots[at]; probes++, at = (at + 1) & table->mask) {
        Entry *entry = &table->entries[table->slots[at] - 1];
        if (entry->hash == hash && is_entry(table, entry, a, b)) {
            table->last = table->slots[at];
            return table->last - 1;
        }
        if (probes == MAX_PROBES)
            return -1;
    }
    if (table->count >= MAX_ENTRIES || (uint64_t)table->used + a.size + b.size > MAX_ARENA)
        return -1;
    if (!grow((void **)&table->entries, &table->cap, table->count + 1, sizeof(Entry)) ||
        !grow((void **)&table->arena, &table->room, table->used + a.size + b.size + 1, 1)) /* never empty */
        return -1;
    memcpy(table->arena + table->used, a.at, a.size);
    if (b.size)
        memcpy(table->arena + table->used + a.size, b.at, b.size);
    table->entries[table->count] =
        (Entry){.hash = hash, .from = table->used, .size = a.size + b.size, .split = a.size, .number = -1,
                .other = -1, .useful = -1};
    table->used += a.size + b.size;
    table->slots[at] = ++table->count;
    table->last = table->count;
    return table->count - 1;
}

static void forget(Table *table)
{
    free(table->entries);
    free(table->slots);
    free(table->arena);
}

/* ---- JSON: every function returns where the value ends, or NULL for what is not valid ------------------------------ */

static inline const uint8_t *space(const uint8_t *p)
{
    if (*p > ' ')
        return p;
    if (*p == ' ' && p[1] > ' ')
        return p + 1;
    while (*p == ' ' || *p == '\n' || *p == '\r' || *p == '\t')
        p++;
    return p;
}

static int hex(uint8_t c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }

/* Where the next quote, backslash or control character is; eight bytes at a time. */
static inline const uint8_t *plain(const uint8_t *p, const uint8_t *end)
{
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    const uint64_t ones = 0x0101010101010101ull, highs = 0x8080808080808080ull;
    while (end - p >= 8) {
        uint64_t word, quote, slash, hit;
        memcpy(&word, p, 8);
        quote = word ^ (ones * '"');
        slash = word ^ (ones * '\\');
        hit = ((quote - ones) & ~quote) | ((slash - ones) & ~slash) | ((word - ones * 0x20) & ~word);
        hit &= highs;
        if (hit)
            return p + (__builtin_ctzll(hit) >> 3); /* the lowest bit is always right */
        p += 8;
    }
#endif
    while (*p >= 0x20 && *p != '"' && *p != '\\')
        p++;
    return p;
}

/* The rest of a string with escapes, from the first of them. Halves of surrogates are left to the other decoder. */
static __attribute__((noinline)) const uint8_t *escapes(const uint8_t *p, const uint8_t *end)
{
    while (*p == '\\') {
        p++;
        if (*p == 'u') {
            if (!hex(p[1]) || !hex(p[2]) || !hex(p[3]) || !hex(p[4]))
                return NULL;
            if ((p[1] == 'd' || p[1] == 'D') && (p[2] | 0x20) >= '8')
                return NULL;
            p += 5;
        } else if (*p && strchr("\"\\/bfnrt", *p) != NULL) {
            p++;
        } else {
            return NULL;
        }
        p = plain(p, end);
    }
    return *p == '"' ? p : NULL;
}

/* After the opening quote; returns the closing one. */
static inline const uint8_t *string(const uint8_t *p, const uint8_t *end, int *escaped)
{
    p = plain(p, end);
    if (*p == '"')
        return p;
    *escaped = 1;
    return escapes(p, end);
}

static int digit(uint8_t c) { return c >= '0' && c <= '9'; }

static const uint8_t *number(const uint8_t *p)
{
    if (*p == '-')
        p++;
    if (*p == '0')
        p++;
    else if (digit(*p))
        while (digit(*p))
            p++;
    else
        return NULL;
    if (*p == '.') {
        if (!digit(*++p))
            return NULL;
        while (digit(*p))
            p++;
    }
    if (*p == 'e' || *p == 'E') {
        p++;
        if (*p == '+' || *p == '-')
            p++;
        if (!digit(*p))
            return NULL;
        while (digit(*p))
            p++;
    }
    return p;
}

static const uint8_t *word(const uint8_t *p, const uint8_t *end, const char *text, size_t size)
{
    return (size_t)(end - p) >= size && !memcmp(p, text, size) ? p + size : NULL;
}

static const uint8_t *value(const uint8_t *p, const uint8_t *end)
{
    uint64_t objects = 0; /* one bit per level */
    int depth = 0, escaped = 0;
    for (;;) {
        p = space(p);
        int opened = 0;
        switch (*p) {
        case '{':
        case '[':
            if (depth++ == MAX_DEPTH)
                return NULL;
            objects = objects << 1 | (*p == '{');
            p = space(p + 1);
            opened = 1;
            break;
        case '"':
            p = string(p + 1, end, &escaped);
            if (p == NULL)
                return NULL;
            p++;
            break;
        case 't':
            p = word(p, end, "true", 4);
            break;
        case 'f':
            p = word(p, end, "false", 5);
            break;
        case 'n':
            p = word(p, end, "null", 4);
            break;
        default:
            p = number(p);
        }
        if (p == NULL)
            return NULL;
        /* Close what ends here; go on with the next value of what does not. */
        for (;; opened = 0) {
            if (!depth)
                return p;
            p = space(p);
            if (*p == (objects & 1 ? '}' : ']')) {
                objects >>= 1;
                depth--;
                p++;
                continue;
            }
            if (!opened) {
                if (*p != ',')
                    return NULL;
                p = space(p + 1);
            }
            if (objects & 1) {
                if (*p != '"')
                    return NULL;
                p = string(p + 1, end, &escaped);
                if (p == NULL)
                    return NULL;
                p = space(p + 1);
                if (*p != ':')
                    return NULL;
                p++;
            }
            break;
        }
    }
}

static int is(Text text, const char *what, uint32_t size) { return text.size == size && !memcmp(text.at, what, size); }
#define IS(text, what) is(text, what, sizeof(what) - 1)

/* A key without escapes and its colon: returns where the value begins. */
static const uint8_t *key(const uint8_t *p, const uint8_t *end, Text *text)
{
    int escaped = 0;
    if (*p != '"')
        return NULL;
    const uint8_t *over = string(p + 1, end, &escaped);
    if (over == NULL || escaped)
        return NULL;
    *text = (Text){p + 1, (uint32_t)(over - p - 1)};
    p = space(over + 1);
    return *p == ':' ? space(p + 1) : NULL;
}

/* The value of a known key: a text in quotes. */
static const uint8_t *quoted(const uint8_t *p, const uint8_t *end, Text *text)
{
    int escaped = 0;
    if (*p != '"')
        return NULL;
    const uint8_t *over = string(p + 1, end, &escaped);
    if (over == NULL)
        return NULL;
    *text = (Text){p + 1, (uint32_t)(over - p - 1)};
    return over + 1;
}

/* A process or thread: a whole number, a text or null, as it stands there. */
static const uint8_t *place(const uint8_t *p, const uint8_t *end, Text *text)
{
    Text inner;
    const uint8_t *over = p;
    if (*p == '"')
        over = quoted(p, end, &inner);
    else if (*p == 'n')
        over = word(p, end, "null", 4);
    else {
        over = number(p);
        for (const uint8_t *each = p; over != NULL && each < over; each++)
            if (!digit(*each) && *each != '-')
                return NULL;
    }
    if (over == NULL || over - p > 4096)
        return NULL;
    *text = (Text){p, (uint32_t)(over - p)};
    return over;
}

static const uint8_t *whole(const uint8_t *p, int64_t *found)
{
    const uint8_t *over = number(p);
    if (over == NULL || over - p > 18)
        return NULL;
    int64_t total = 0, sign = 1;
    if (*p == '-') {
        sign = -1;
        p++;
    }
    for (; p < over; p++) {
        if (!digit(*p))
            return NULL;
        total = total * 10 + (*p - '0');
    }
    if (total >= MAX_NUMBER)
        return NULL;
    *found = sign * total;
    return over;
}

/* Eight digits at once; 0 where one of them is none. */
static inline int eight(const uint8_t *p, uint64_t *found)
{
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    const uint64_t high = 0xF0F0F0F0F0F0F0F0ull, zeros = 0x3030303030303030ull, six = 0x0606060606060606ull;
    uint64_t word;
    memcpy(&word, p, 8);
    if ((word & high) != zeros || ((word + six) & high) != zeros)
        return 0;
    word = (word & 0x0F0F0F0F0F0F0F0Full) * 2561 >> 8;
    word = (word & 0x00FF00FF00FF00FFull) * 6553601 >> 16;
    *found = (word & 0x0000FFFF0000FFFFull) * 42949672960001ull >> 32;
    return 1;
#else
    (void)p, (void)found;
    return 0;
#endif
}

/* A number of microseconds. What has a sign, an exponent or more than 18 digits is odd. */
static const uint8_t *moment(const uint8_t *p, const uint8_t *end, Moment *found)
{
    const uint8_t *begun = p;
    uint64_t above = 0, part;
    *found = (Moment){.told = 1};
    if (*p == '0') {
        p++;
    } else {
        while (end - p >= 8 && p - begun < 16 && eight(p, &part)) {
            above = above * 100000000 + part;
            p += 8;
        }
        for (; digit(*p) && p - begun < 18; p++)
            above = above * 10 + (uint64_t)(*p - '0');
    }
    if (p == begun || digit(*p))
        goto odd;
    if (*p == '.') {
        int64_t unit = 100;
        if (!digit(*++p))
            return NULL;
        for (; digit(*p); p++, unit /= 10) {
            found->below += unit * (*p - '0');
            found->more |= !unit && *p != '0';
        }
    }
    if (*p == 'e' || *p == 'E')
        goto odd;
    found->above = (int64_t)above;
    return p;
odd:
    found->odd = 1;
    return number(begun);
}

static int started(const Moment *told, int exact, int64_t *found)
{
    if (!told->told || told->odd || told->more || told->above >= FARTHEST ||
        (told->below && !exact && told->above >= FLOAT_MICROS))
        return 0;
    *found = told->above * 1000 + told->below;
    return 1;
}

static int lasted(const Moment *told, int64_t *found, uint8_t *lasting)
{
    if (!told->told || told->odd || told->more || told->above > LONGEST)
        return 0;
    *found = told->above * 1000 + told->below;
    *lasting = *found > SHORT_US * 1000;
    return 1;
}

/* ---- events -------------------------------------------------------------------------------------------------------- */

static const uint8_t *arguments(const uint8_t *p, const uint8_t *end, Event *event)
{
    const uint8_t *begun = p;
    event->stream = event->link = -1;
    event->collective = event->shapes = 0;
    if (*p == 'n')
        return word(p, end, "null", 4);
    if (*p != '{')
        return NULL;
    p = space(p + 1);
    if (*p == '}') {
        event->args = (Text){begun, (uint32_t)(p + 1 - begun)};
        return p + 1;
    }
    for (;;) {
        Text name, text;
        p = key(p, end, &name);
        if (p == NULL)
            return NULL;
        if (IS(name, "stream"))
            p = whole(p, &event->stream);
        else if (IS(name, "correlation"))
            p = whole(p, &event->link);
        else if (IS(name, "Collective name")) {
            event->collective = *p == '"';
            p = *p == 'n' ? word(p, end, "null", 4) : quoted(p, end, &text);
        } else {
            event->shapes |= IS(name, "Input Dims");
            p = value(p, end);
        }
        if (p == NULL)
            return NULL;
        p = space(p);
        if (*p == '}')
            break;
        if (*p != ',')
            return NULL;
        p = space(p + 1);
    }
    event->args = (Text){begun, (uint32_t)(p + 1 - begun)};
    return p + 1;
}

static const Event BLANK = {.pid = {(const uint8_t *)"null", 4},
                            .tid = {(const uint8_t *)"null", 4},
                            .name = {(const uint8_t *)"", 0},
                            .stream = -1,
                            .link = -1};

static const uint8_t *fields(const uint8_t *p, const uint8_t *end, Event *event)
{
    const uint8_t *begun = p;
    *event = BLANK;
    p = space(p + 1);
    if (*p == '}')
        return NULL;
    for (;;) {
        Text name;
        p = key(p, end, &name);
        if (p == NULL)
            return NULL;
        if (IS(name, "ph")) {
            if (event->ph.size)
                return NULL;
            p = quoted(p, end, &event->ph);
            if (p == NULL || event->ph.size != 1)
                return NULL;
            if (event->ph.at[0] != 'X' && event->ph.at[0] != 'M') {
                if (strchr("BEICitsfPNODSTpFRcvVabenG(),=x", event->ph.at[0]) == NULL)
                    return NULL;
                /* Twice is too often: the other decoder knows which counts. */
                return value(begun, end);
            }
        } else if (IS(name, "cat")) {
            event->has_category = 1;
            p = quoted(p, end, &event->category);
        } else if (IS(name, "name"))
            p = quoted(p, end, &event->name);
        else if (IS(name, "pid"))
            p = place(p, end, &event->pid);
        else if (IS(name, "tid"))
            p = place(p, end, &event->tid);
        else if (IS(name, "args"))
            p = arguments(p, end, event);
        else if (IS(name, "ts"))
            p = moment(p, end, &event->ts);
        else if (IS(name, "dur"))
            p = moment(p, end, &event->dur);
        else
            p = value(p, end);
        if (p == NULL)
            return NULL;
        p = space(p);
        if (*p == '}')
            return p + 1;
        if (*p != ',')
            return NULL;
        p = space(p + 1);
    }
}

/* ---- shapes: most events look like one before them --------------------------------------------------------------------
 *
 * A profiler writes the same keys in the same order with the same spaces, again and again. What stands between the values
 * of an event that the parser understood is kept as a path of a tree; an event that follows a path from the root to its
 * end has the same keys, and only its values are read. What leaves every path is parsed, and becomes a path itself.
 */

#define MAX_NODES 4096u
#define MAX_SIBLINGS 32u
#define MAX_VALUES 256u
#define MAX_SHAPES (1u << 20)

/* Kinds of values; OVER: the event ends here. */
enum { OVER, ANY, CATEGORY_TEXT, NAME_TEXT, PID, TID, TS, DUR, STREAM, LINK, N_KINDS };

typedef struct {
    const uint8_t *from, *to;
    uint8_t kind, shapes;
} Value;

static inline int same(const uint8_t *a, const uint8_t *b, uint32_t size)
{
    uint64_t x, y;
    if (size < 8) {
        while (size && *a == *b)
            a++, b++, size--;
        return !size;
    }
    for (; size > 8; size -= 8, a += 8, b += 8) {
        memcpy(&x, a, 8);
        memcpy(&y, b, 8);
        if (x != y)
            return 0;
    }
    memcpy(&x, a + size - 8, 8);
    memcpy(&y, b + size - 8, 8);
    return x == y;
}

/* The values of an object's keys; those of the arguments besides. 0 for what has no shape. */
static int values(const uint8_t *p, const uint8_t *end, int inside, Value *found, uint32_t *count, Text *args)
{
    static const struct {
        const char *name;
        uint8_t kind;
    } OUTER[] = {{"cat", CATEGORY_TEXT}, {"name", NAME_TEXT}, {"pid", PID}, {"tid", TID}, {"ts", TS}, {"dur", DUR}},
      INNER[] = {{"stream", STREAM}, {"correlation", LINK}};
    p = space(p + 1);
    if (*p == '}')
        return 1;
    for (;;) {
        Text name;
        p = key(p, end, &name);
        if (p == NULL || *count == MAX_VALUES)
            return 0;
        const uint8_t *over = value(p, end);
        if (over == NULL)
            return 0;
        uint8_t kind = ANY;
        for (uint32_t i = 0; i < (inside ? 2 : 6); i++) {
            const char *known = inside ? INNER[i].name : OUTER[i].name;
            if (name.size == strlen(known) && !memcmp(name.at, known, name.size))
                kind = inside ? INNER[i].kind : OUTER[i].kind;
        }
        if (inside && IS(name, "Collective name"))
            return 0; /* few, and all of their arguments are wanted */
        if (!inside && IS(name, "args")) {
            if (*p != '{' || args->size || !values(p, end, 1, found, count, args))
                return 0;
            *args = (Text){p, (uint32_t)(over - p)};
        } else if (inside || !IS(name, "ph")) { /* `ph` is a part of the shape */
            for (uint32_t i = 0; kind != ANY && i < *count; i++)
                if (found[i].kind == kind)
                    return 0; /* twice: the parser knows which counts */
            found[(*count)++] = (Value){p, over, kind, (uint8_t)(inside && IS(name, "Input Dims"))};
        }
        p = space(over);
        if (*p == '}')
            return 1;
        p = space(p + 1);
    }
}

/* The child with this text, a new one if need be; 0 for too many. */
static uint32_t child_of(Shapes *shapes, uint32_t parent, Node wanted, const uint8_t *text)
{
    uint32_t siblings = 0;
    for (uint32_t at = shapes->nodes[parent].child; at; at = shapes->nodes[at].sibling, siblings++) {
        Node *node = &shapes->nodes[at];
        if (node->size == wanted.size && node->kind == wanted.kind && same(shapes->arena + node->from, text, node->size))
            return at;
    }
    if (siblings >= MAX_SIBLINGS || shapes->count >= MAX_NODES || shapes->used + wanted.size > MAX_SHAPES ||
        !grow((void **)&shapes->nodes, &shapes->cap, shapes->count + 1, sizeof(Node)) ||
        !grow((void **)&shapes->arena, &shapes->room, shapes->used + wanted.size + 1, 1))
        return 0;
    memcpy(shapes->arena + shapes->used, text, wanted.size);
    if (wanted.size >= 8)
        memcpy(&wanted.head, text, 8);
    wanted.from = shapes->used;
    wanted.sibling = shapes->nodes[parent].child;
    shapes->used += wanted.size;
    shapes->nodes[shapes->count] = wanted;
    shapes->nodes[parent].child = shapes->count;
    return shapes->count++;
}

/* Keep the shape of an event that the parser has understood. */
static void learn(Shapes *shapes, const uint8_t *begun, const uint8_t *over, const uint8_t *end, uint8_t ph)
{
    Value found[MAX_VALUES];
    uint32_t count = 0, at = 0;
    Text args = {begun, 0};
    if (shapes->count >= MAX_NODES || !values(begun, end, 0, found, &count, &args))
        return;
    if (!shapes->count) {
        if (!grow((void **)&shapes->nodes, &shapes->cap, 1, sizeof(Node)))
            return;
        shapes->nodes[shapes->count++] = (Node){.opens = -1, .closes = -1};
    }
    for (uint32_t i = 0; i <= count; i++) {
        const uint8_t *from = i ? found[i - 1].to : begun, *to = i < count ? found[i].from : over;
        Node node = {.size = (uint32_t)(to - from), .opens = -1, .closes = -1, .ph = ph};
        if (args.size && args.at >= from && args.at < to)
            node.opens = (int32_t)(args.at - from);
        if (args.size && args.at + args.size > from && args.at + args.size <= to)
            node.closes = (int32_t)(args.at + args.size - from);
        if (i < count) {
            node.kind = found[i].kind;
            node.shapes = found[i].shapes;
        }
        at = child_of(shapes, at, node, from);
        if (!at)
            return;
    }
}

/* An event that follows a known shape, and its `ph`; NULL for one that does not. */
static const uint8_t *follow(Shapes *shapes, const uint8_t *p, const uint8_t *end, Event *event, uint8_t *ph)
{
    if (!shapes->count)
        return NULL;
    Node *nodes = shapes->nodes;
    for (uint32_t parent = 0;;) {
        uint32_t at = nodes[parent].child, before = 0;
        uint64_t head = 0;
        if (end - p >= 8)
            memcpy(&head, p, 8);
        for (; at; before = at, at = nodes[at].sibling) {
            const Node *tried = &nodes[at];
            if ((tried->size < 8 || tried->head == head) && end - p >= (ptrdiff_t)tried->size &&
                same(p, shapes->arena + tried->from, tried->size))
                break;
        }
        if (!at)
            return NULL;
        const Node *node = &nodes[at];
        if (before) { /* what comes often is looked at first */
            nodes[before].sibling = node->sibling;
            nodes[at].sibling = nodes[parent].child;
            nodes[parent].child = at;
        }
        if (node->opens >= 0)
            event->args.at = p + node->opens;
        if (node->closes >= 0)
            event->args.size = (uint32_t)(p + node->closes - event->args.at);
        const uint8_t *from = p + node->size;
        event->shapes |= node->shapes;
        switch (node->kind) {
        case OVER:
            *ph = node->ph;
            return from;
        case CATEGORY_TEXT:
            event->has_category = 1;
            p = quoted(from, end, &event->category);
            break;
        case NAME_TEXT:
            p = quoted(from, end, &event->name);
            break;
        case PID:
            p = place(from, end, &event->pid);
            break;
        case TID:
            p = place(from, end, &event->tid);
            break;
        case TS:
            p = moment(from, end, &event->ts);
            break;
        case DUR:
            p = moment(from, end, &event->dur);
            break;
        case STREAM:
            p = whole(from, &event->stream);
            break;
        case LINK:
            p = whole(from, &event->link);
            break;
        default:
            p = *from == '"' || *from == '[' || *from == '{' || *from > '9' ? value(from, end) : number(from);
        }
        if (p == NULL || p > end)
            return NULL;
        parent = at;
    }
}

static int title(Batch *batch, const Event *event, const uint8_t *begun, const uint8_t *over)
{
    if (!IS(event->name, "process_name") && !IS(event->name, "thread_name"))
        return 1;
    uint8_t both[8200];
    if (event->pid.size + event->tid.size + 2 > sizeof both)
        return 0;
    both[0] = event->name.at[0];
    memcpy(both + 1, event->pid.at, event->pid.size);
    both[1 + event->pid.size] = 0;
    memcpy(both + 2 + event->pid.size, event->tid.at, event->tid.size);
    Text place = {both, 2 + event->pid.size + event->tid.size}, none = {both, 0};
    int64_t where = entry_of(&batch->memory->places, place, none);
    int64_t text = entry_of(&batch->memory->titles, event->args.size ? event->args : none, none);
    if (where < 0 || text < 0 || !grow((void **)&batch->titles, &batch->cap_titles, batch->n_titles + 1, sizeof(Title)))
        return 0;
    batch->titles[batch->n_titles++] =
        (Title){(uint32_t)(begun - batch->data), (uint32_t)(over - begun), (uint32_t)where, (uint32_t)text};
    return 1;
}

static int is_again(const Seen *seen, const uint8_t *p, const uint8_t *end)
{
    return seen->size && (ptrdiff_t)seen->size <= end - p && same(p, seen->at, seen->size);
}

/* An event that is the same as a recent one to the byte, which is told again; NULL for any other. */
static const uint8_t *again(Batch *batch, const uint8_t *p)
{
    const Seen *seen = &batch->recent[(batch->n_recent - batch->back) % RECENT];
    if (!batch->back || !is_again(seen, p, batch->end))
        return NULL;
    Seen now = {p, seen->size, 0};
    if (seen->title) {
        if (!grow((void **)&batch->titles, &batch->cap_titles, batch->n_titles + 1, sizeof(Title)))
            return NULL;
        batch->titles[batch->n_titles++] = batch->titles[seen->title - 1];
        now.title = batch->n_titles;
    }
    batch->recent[batch->n_recent++ % RECENT] = now;
    return p + now.size;
}

/* Remember an M event, and how far back it stood before. */
static void remember(Batch *batch, const uint8_t *p, uint32_t size, uint32_t title)
{
    batch->back = 0;
    for (uint32_t back = 1; back < RECENT && !batch->back; back++) {
        const Seen *seen = &batch->recent[(batch->n_recent - back) % RECENT];
        if (seen->size == size && is_again(seen, p, batch->end))
            batch->back = back;
    }
    batch->recent[batch->n_recent++ % RECENT] = (Seen){p, size, title};
}

static int span(Batch *batch, const Event *event)
{
    Row row = {.stream = event->stream, .link = event->link};
    Text none = {batch->data, 0};
    if (!started(&event->ts, batch->exact, &row.start) || !lasted(&event->dur, &row.length, &row.lasting))
        return 0;
    /* The category "" and none at all are two. */
    Text absent = {(const uint8_t *)"-", 1};
    int64_t name = entry_of(&batch->memory->names, event->name, none);
    int64_t category = entry_of(&batch->memory->categories, event->has_category ? event->category : none,
                                event->has_category ? none : absent);
    int64_t lane = entry_of(&batch->memory->lanes, event->pid, event->tid);
    if (name < 0 || category < 0 || lane < 0)
        return 0;
    row.name = (uint32_t)name;
    row.category = (uint32_t)category;
    row.lane = (uint32_t)lane;
    if (event->collective || event->shapes) {
        row.args = (uint32_t)(event->args.at - batch->data);
        row.args_size = event->args.size;
        row.collective = (uint8_t)event->collective;
        row.shapes = (uint8_t)event->shapes;
    }
    if (!grow((void **)&batch->rows, &batch->cap_rows, batch->n_rows + 1, sizeof(Row)))
        return 0;
    batch->rows[batch->n_rows++] = row;
    return 1;
}

static int parse(Batch *batch)
{
    const uint8_t *p = space(batch->data), *over;
    for (;;) {
        Event event = BLANK;
        uint8_t ph = 0;
        over = again(batch, p);
        if (over == NULL)
            over = follow(&batch->memory->shapes, p, batch->end, &event, &ph);
        if (over == NULL) {
            if (*p != '{')
                return 0;
            over = fields(p, batch->end, &event);
            if (over == NULL || over > batch->end || !event.ph.size)
                return 0;
            ph = event.ph.at[0];
            learn(&batch->memory->shapes, p, over, batch->end, ph);
        }
        batch->n_events++;
        if (ph == 'X' && !span(batch, &event))
            return 0;
        if (ph == 'M') {
            uint32_t before = batch->n_titles;
            if (!title(batch, &event, p, over))
                return 0;
            remember(batch, p, (uint32_t)(over - p), batch->n_titles > before ? batch->n_titles : 0);
        }
        p = space(over);
        if (p >= batch->end)
            return 1;
        if (*p != ',')
            return 0;
        p = space(p + 1);
    }
}

/* ---- to Python ----------------------------------------------------------------------------------------------------- */

static int64_t asked(PyObject *number_of, int what, const Table *table, const Entry *entry)
{
    const char *text = (const char *)table->arena + entry->from;
    /* Not "y#": built with Python 3.13 or later that fails in an earlier one, whatever the limited API says. */
    PyObject *head = PyBytes_FromStringAndSize(text, (Py_ssize_t)entry->split);
    PyObject *tail = PyBytes_FromStringAndSize(text + entry->split, (Py_ssize_t)(entry->size - entry->split));
    PyObject *found = head && tail ? PyObject_CallFunction(number_of, "iOO", what, head, tail) : NULL;
    Py_XDECREF(head);
    Py_XDECREF(tail);
    if (found == NULL)
        return -1;
    int64_t answer = PyLong_AsLongLong(found);
    Py_DECREF(found);
    return answer;
}

/* Numbers that Python gave; 0 with an exception set where it can't. */
static int numbered(PyObject *number_of, int what, Table *table, Entry *entry)
{
    if (entry->number >= 0)
        return 1;
    int64_t answer = asked(number_of, what, table, entry);
    if (answer < 0)
        return 0;
    entry->number = (int32_t)(answer & 0x7FFFFFFF);
    entry->other = (answer & TELLING) != 0;
    return 1;
}

/* Drop what nobody uses, in place, and number the rest. */
static int kept(Batch *batch, PyObject *number_of)
{
    Memory *memory = batch->memory;
    uint32_t left = 0;
    for (uint32_t i = 0; i < batch->n_rows; i++) {
        Row *row = &batch->rows[i];
        Entry *name = &memory->names.entries[row->name], *category = &memory->categories.entries[row->category];
        Entry *lane = &memory->lanes.entries[row->lane];
        Text cat = {memory->categories.arena + category->from, category->size};
        if (!row->lasting && category->split && IS(cat, "cuda_runtime")) {
            if (name->useful < 0) {
                int64_t answer = asked(number_of, USEFUL, &memory->names, name);
                if (answer < 0)
                    return 0;
                name->useful = answer != 0;
            }
            if (!name->useful)
                continue;
        }
        if (!numbered(number_of, NAME, &memory->names, name) ||
            !numbered(number_of, CATEGORY, &memory->categories, category) ||
            !numbered(number_of, LANE, &memory->lanes, lane))
            return 0;
        if (!row->collective && !(row->shapes && name->other))
            row->args_size = 0;
        row->name = (uint32_t)name->number;
        row->category = (uint32_t)category->number;
        row->lane = (uint32_t)lane->number;
        batch->rows[left++] = *row;
    }
    batch->n_rows = left;
    return 1;
}

static PyObject *noted(const Batch *batch)
{
    PyObject *list = PyList_New(0);
    for (uint32_t i = 0; list != NULL && i < batch->n_rows; i++) {
        const Row *row = &batch->rows[i];
        if (!row->args_size)
            continue;
        PyObject *args = PyBytes_FromStringAndSize((const char *)batch->data + row->args, (Py_ssize_t)row->args_size);
        PyObject *pair = args == NULL ? NULL : Py_BuildValue("(IN)", i, args);
        if (pair == NULL || PyList_Append(list, pair) < 0)
            Py_CLEAR(list);
        Py_XDECREF(pair);
    }
    return list;
}

/* Titles that say something new of their process or thread. */
static PyObject *named(Batch *batch)
{
    PyObject *list = PyList_New(0);
    for (uint32_t i = 0; list != NULL && i < batch->n_titles; i++) {
        const Title *one = &batch->titles[i];
        Entry *place = &batch->memory->places.entries[one->place];
        if (place->other == (int32_t)one->text)
            continue;
        place->other = (int32_t)one->text;
        PyObject *text = PyBytes_FromStringAndSize((const char *)batch->data + one->from, one->size);
        if (text == NULL || PyList_Append(list, text) < 0)
            Py_CLEAR(list);
        Py_XDECREF(text);
    }
    return list;
}

#define COLUMN(type, expression)                                                                                       \
    do {                                                                                                               \
        PyObject *bytes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(batch->n_rows * sizeof(type)));                 \
        if (bytes == NULL) {                                                                                           \
            Py_DECREF(tuple);                                                                                          \
            return NULL;                                                                                               \
        }                                                                                                              \
        type *out = (type *)(void *)PyBytes_AsString(bytes);                                                           \
        for (uint32_t i = 0; i < batch->n_rows; i++) {                                                                 \
            const Row *row = &batch->rows[i];                                                                          \
            out[i] = (type)(expression);                                                                               \
        }                                                                                                              \
        PyTuple_SetItem(tuple, at++, bytes);                                                                           \
    } while (0)

static PyObject *columns(const Batch *batch)
{
    PyObject *tuple = PyTuple_New(7);
    Py_ssize_t at = 0;
    if (tuple == NULL)
        return NULL;
    COLUMN(int64_t, row->start);
    COLUMN(int64_t, row->start + row->length);
    COLUMN(int32_t, row->name);
    COLUMN(int32_t, row->lane);
    COLUMN(int32_t, row->category);
    COLUMN(int64_t, row->stream);
    COLUMN(int64_t, row->link);
    return tuple;
}

static const char *CAPSULE = "whichrank.kineto.memory";

static PyObject *scan(PyObject *self, PyObject *args)
{
    (void)self;
    PyObject *capsule, *data, *number_of, *answer = NULL;
    int exact;
    char *text;
    Py_ssize_t size, whole_size;
    if (!PyArg_ParseTuple(args, "OSnpO", &capsule, &data, &size, &exact, &number_of) ||
        PyBytes_AsStringAndSize(data, &text, &whole_size) < 0)
        return NULL;
    if (size < 0 || size > whole_size)
        size = whole_size;
    Batch batch = {.data = (const uint8_t *)text, .end = (const uint8_t *)text + size, .exact = exact};
    batch.memory = PyCapsule_GetPointer(capsule, CAPSULE);
    if (batch.memory == NULL)
        return NULL;
    int understood = 0;
    if (size < (Py_ssize_t)MAX_BATCH) {
        Py_BEGIN_ALLOW_THREADS;
        understood = parse(&batch);
        Py_END_ALLOW_THREADS;
    }
    if (!understood || !kept(&batch, number_of)) {
        /* What Python can't number (a name that is no text) is the other decoder's as well. */
        if (PyErr_Occurred() && !PyErr_ExceptionMatches(PyExc_ValueError))
            goto end;
        PyErr_Clear();
        answer = Py_None;
        Py_INCREF(answer);
        goto end;
    }
    PyObject *found = columns(&batch), *collectives = NULL, *titles = NULL;
    if (found != NULL && (collectives = noted(&batch)) != NULL && (titles = named(&batch)) != NULL)
        answer = Py_BuildValue("(IOOO)", batch.n_events, found, collectives, titles);
    Py_XDECREF(found);
    Py_XDECREF(collectives);
    Py_XDECREF(titles);
end:
    free(batch.rows);
    free(batch.titles);
    return answer;
}

static void release(PyObject *capsule)
{
    Memory *memory = PyCapsule_GetPointer(capsule, CAPSULE);
    if (memory == NULL)
        return;
    forget(&memory->names);
    forget(&memory->categories);
    forget(&memory->lanes);
    forget(&memory->places);
    forget(&memory->titles);
    free(memory->shapes.nodes);
    free(memory->shapes.arena);
    free(memory);
}

static PyObject *memory(PyObject *self, PyObject *args)
{
    (void)self;
    (void)args;
    Memory *made = calloc(1, sizeof *made);
    if (made == NULL)
        return PyErr_NoMemory();
    PyObject *capsule = PyCapsule_New(made, CAPSULE, release);
    if (capsule == NULL)
        free(made);
    return capsule;
}

static PyMethodDef METHODS[] = {
    {"memory", memory, METH_NOARGS, "What is remembered from batch to batch of one file."},
    {"scan", scan, METH_VARARGS, "The events of a batch as columns; None where only the decoder in Python can tell."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef MODULE = {PyModuleDef_HEAD_INIT, "_scan", NULL, -1, METHODS, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__scan(void)
{
    PyObject *module = PyModule_Create(&MODULE);
    if (module != NULL && PyModule_AddIntConstant(module, "VERSION", VERSION) < 0)
        Py_CLEAR(module);
    return module;
}
