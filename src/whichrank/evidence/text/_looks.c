/* How lines look, as numbers: two lines have the same one if they differ in digits only (also hexadecimal ones), begin
 * with the same word and have the same telling numbers. What counts as such repeated_lines.py says, with the patterns
 * that are written out here; the two are tested against each other. And where literals stand, one or hundreds of them,
 * for words.py.
 *
 * Nothing recurses, and every loop is bounded by the text.
 */
#define PY_SSIZE_T_CLEAN
#ifndef Py_LIMITED_API
#define Py_LIMITED_API 0x030A0000
#endif
#include <Python.h>
#include <stdint.h>
#include <string.h>

#define VERSION 4 /* native.py refuses a library of another version */

#define HEAD 512       /* bytes of a line in which telling numbers are looked for */
#define MOST_TELLING 16
#define LONGEST_WORD 80
#define BLOCK 4096
#define PRIME 0x9E3779B97F4A7C15u

typedef const uint8_t *At;
typedef uint8_t Sixteen __attribute__((vector_size(16)));

static uint8_t steady[256], space[256];
static uint64_t letters[256]; /* bits for each name of a telling number: whether this is its first, second, third letter */
#define FIRST_LETTERS 0xffffu
#define THIRD_LETTERS (0xffffull << 32)

static int digit(uint8_t c) { return c >= '0' && c <= '9'; }

static uint64_t mixed(uint64_t hash, uint64_t value)
{
    hash = (hash ^ value) * PRIME;
    return hash ^ (hash >> 29);
}

static uint64_t bytes_of(uint64_t hash, At at, At end)
{
    uint64_t eight;
    for (; end - at >= 8; at += 8) {
        memcpy(&eight, at, 8);
        hash = mixed(hash, eight);
    }
    for (; at < end; at++)
        hash = mixed(hash, *at);
    return mixed(hash, 0x100);
}

/* Behind at most `most` digits; NULL where not one stands there. */
static At digits(At at, At end, int most)
{
    At from = at;
    while (at < end && at - from < most && digit(*at))
        at++;
    return at > from ? at : NULL;
}

/* Behind the number that follows a word within `gap` other bytes; NULL where none does. */
static At number(At at, At end, int gap, int most)
{
    for (; at < end && gap > 0 && !digit(*at); gap--)
        at++;
    return digits(at, end, most);
}

/* The same for the code of an error, which stands in the same line. */
static At code(At at, At end)
{
    for (int gap = 20; at < end && gap > 0 && !digit(*at) && *at != '\n'; gap--)
        at++;
    return digits(at, end, 6);
}

static int begins(At at, At end, const char *word, size_t size)
{
    return (size_t)(end - at) >= size && memcmp(at, word, size) == 0;
}
#define BEGINS(word) begins(at, end, word, sizeof(word) - 1)
#define BEHIND(word) (at + sizeof(word) - 1)

/* Behind a telling number that begins here with its name; NULL where none does. */
static At telling(At at, At end)
{
    switch (*at) {
    case 'r':
        if (BEGINS("rank"))
            return number(BEHIND("rank"), end, 3, 7);
        return BEGINS("rror") ? code(BEHIND("rror"), end) : NULL;
    case 'R':
        return BEGINS("Rank") ? number(BEHIND("Rank"), end, 3, 7) : NULL;
    case 'p':
        return BEGINS("pid") ? number(BEHIND("pid"), end, 3, 10) : NULL;
    case 'G':
        return BEGINS("GPU ") ? digits(BEHIND("GPU "), end, 4) : NULL;
    case 'm':
        return BEGINS("mlx5_") ? digits(BEHIND("mlx5_"), end, 4) : NULL;
    case 'X':
        if (BEGINS("Xid (")) {
            At from = BEHIND("Xid ("), to = from;
            while (to < end && to - from < 40 && *to != ')' && *to != '\n')
                to++;
            if (begins(to, end, "): ", 3))
                return digits(to + 3, end, 4);
        }
        return NULL;
    case 's':
        if (BEGINS("status"))
            return code(BEHIND("status"), end);
        return BEGINS("signal") ? code(BEHIND("signal"), end) : NULL;
    case 'e':
        return BEGINS("errno") ? code(BEHIND("errno"), end) : NULL;
    case 'c':
        return BEGINS("code") ? code(BEHIND("code"), end) : NULL;
    }
    return NULL;
}

static int has(At at, At end, const char *form)
{
    for (; *form; form++, at++) {
        if (at >= end)
            return 0;
        switch (*form) {
        case '9': if (!digit(*at)) return 0; break;
        case '_': if (*at != ' ' && !digit(*at)) return 0; break;
        case 'T': if (*at != 'T' && *at != ' ') return 0; break;
        case ';': if (*at != ':' && !digit(*at)) return 0; break;
        case 'A': if (*at < 'A' || *at > 'Z') return 0; break;
        case 'a': if (*at < 'a' || *at > 'z') return 0; break;
        default: if (*at != (uint8_t)*form) return 0;
        }
    }
    return 1;
}

/* Behind the date and the time of day at the beginning of a line, where they stand there. */
static At behind_date(At at, At end)
{
    At day = at < end && *at == '[' ? at + 1 : at;
    if (has(day, end, "9999-99-99T")) {
        At from = day + 11, to = from;
        while (to < end && to - from < 16 && (digit(*to) || *to == ':' || *to == '.' || *to == ','))
            to++;
        if (to - from >= 8) {
            for (from = to; to < end && to - from < 6 && !space[*to];)
                to++;
            for (from = to; to < end && to - from < 2 && space[*to];)
                to++;
            return to;
        }
    }
    return has(at, end, "Aaa _9 ;;;;;;;; ") ? at + 16 : at;
}

static uint64_t first_word(uint64_t hash, At at, At end)
{
    At from = at = behind_date(at, end);
    while (at < end && at - from < 8 && space[*at])
        at++;
    At to = at;
    while (to < end && to - at < LONGEST_WORD && !space[*to])
        to++;
    for (At py = at; py + 4 <= to; py++)
        if (memcmp(py, ".py:", 4) == 0)
            return mixed(hash, 0x100);
    return bytes_of(hash, at, to);
}

/* host:pid:tid [device], as NCCL begins its lines: the numbers. */
static uint64_t process(uint64_t hash, At at, At end)
{
    while (at < end && (at = memchr(at, ':', (size_t)(end - at))) != NULL) {
        At to = digits(at + 1, end, 10);
        if (to != NULL && to < end && *to == ':' && (to = digits(to + 1, end, 10)) != NULL && begins(to, end, " [", 2))
            return bytes_of(hash, at, to);
        at++;
    }
    return mixed(hash, 0x100);
}

/* The bytes that do not vary, a block at a time: without a branch for each, and eight to a step. */
static uint64_t shape(At at, At end)
{
    uint8_t block[BLOCK + 8];
    uint64_t hash = 1, eight;
    size_t filled = 0, from;
    for (;;) {
        At until = (size_t)(end - at) > BLOCK - filled ? at + (BLOCK - filled) : end;
        for (; at < until; at++) {
            block[filled] = *at;
            filled += steady[*at];
        }
        for (from = 0; from + 8 <= filled; from += 8) {
            memcpy(&eight, block + from, 8);
            hash = mixed(hash, eight);
        }
        filled -= from;
        memmove(block, block + from, filled);
        if (at == end)
            return bytes_of(hash, block, block + filled);
    }
}

/* The look of a message, which has its shape in common with others as far as `told`. */
static uint64_t look(At at, At told, At end)
{
    uint64_t hash = first_word(shape(at, told), at, end);
    At head = end - at > HEAD ? at + HEAD : end;
    hash = process(hash, at, head);
    uint64_t met = 0; /* names of which the letters before this one were met: their bits for the next letter */
    for (int found = 0; at < head && found < MOST_TELLING; at++) {
        met = (met << 16 | FIRST_LETTERS) & letters[*at];
        At behind = met & THIRD_LETTERS ? telling(at - 2, head) : NULL;
        if (behind != NULL) {
            hash = bytes_of(hash, at - 2, behind);
            at = behind - 1;
            met = 0;
            found++;
        }
    }
    return hash;
}

static PyObject *looks(PyObject *self, PyObject *args)
{
    (void)self;
    PyObject *buffer, *starts, *ends;
    char *from, *to;
    Py_ssize_t size, other;
    if (!PyArg_ParseTuple(args, "YSS", &buffer, &starts, &ends) || PyBytes_AsStringAndSize(starts, &from, &size) < 0 ||
        PyBytes_AsStringAndSize(ends, &to, &other) < 0)
        return NULL;
    Py_ssize_t count = size / 8, whole = PyByteArray_Size(buffer);
    At text = (At)PyByteArray_AsString(buffer);
    PyObject *answer = PyBytes_FromStringAndSize(NULL, count * 8);
    char *out = answer != NULL ? PyBytes_AsString(answer) : NULL;
    for (Py_ssize_t line = 0; out != NULL && line < count; line++) {
        int64_t begin, end;
        memcpy(&begin, from + line * 8, 8);
        memcpy(&end, to + line * 8, 8);
        if (other != size || begin < 0 || end < begin || end > whole) {
            Py_DECREF(answer);
            PyErr_SetString(PyExc_ValueError, "a line outside of the text");
            return NULL;
        }
        uint64_t hash = look(text + begin, text + end, text + end);
        memcpy(out + line * 8, &hash, 8);
    }
    return answer;
}

static PyObject *one_look(PyObject *self, PyObject *args)
{
    (void)self;
    PyObject *message;
    Py_ssize_t told, size;
    char *text;
    if (!PyArg_ParseTuple(args, "Sn", &message, &told) || PyBytes_AsStringAndSize(message, &text, &size) < 0)
        return NULL;
    if (told < 0 || told > size) {
        PyErr_SetString(PyExc_ValueError, "more than the text is told");
        return NULL;
    }
    return PyLong_FromLongLong((int64_t)look((At)text, (At)text + told, (At)text + size));
}

/* Hundreds of literals at once. A literal of seven bytes covers four aligned ones wherever it begins: for each of the ways
 * in which it may lie, four bytes that it would show stand for it, and only every fourth byte is looked at. For a literal
 * of four to six bytes four of them stand too; they are looked up where two neighbours among them are, in any case, of
 * which many places are asked at once. Shorter literals are found by their first byte.
 */
#define NAME "whichrank.evidence.text.literals"
#define HEAD_BITS 13
#define TAKEN_BITS 18
#define MOST_PAIRS 8 /* with more, every place is looked up */
#define MULTIPLIER 0x9E3779B1u

typedef struct {
    uint32_t code;
    int32_t shift, literal, next;
} Use;

typedef struct {
    int32_t count, heads[1 << HEAD_BITS];
    Use *uses;
    uint64_t taken[1 << (TAKEN_BITS - 6)]; /* a bit for each slot of a code */
} Uses;

typedef struct {
    uint8_t *text;
    Py_ssize_t *begins; /* of each literal in the text, and the end of the last */
    Uses fours, shorts, ones;
    int pairs;
    uint8_t pair[MOST_PAIRS][2];
} Literals;

typedef struct {
    int64_t *places;
    Py_ssize_t count, room;
} Found;

static uint32_t four_at(At at)
{
    uint32_t four;
    memcpy(&four, at, 4);
    return four;
}

/* Two bits of one word stand for a code: both are set by chance in one of some hundred other codes. */
static uint64_t bits_of(uint32_t hash) { return (uint64_t)1 << (hash & 63) | (uint64_t)1 << (hash >> 6 & 63); }

static int taken(const Uses *uses, uint32_t code)
{
    uint32_t hash = code * MULTIPLIER >> (32 - TAKEN_BITS - 6);
    uint64_t bits = bits_of(hash);
    return (uses->taken[hash >> 12] & bits) == bits;
}

static void forget(Literals *literals)
{
    if (literals != NULL) {
        PyMem_Free(literals->text);
        PyMem_Free(literals->begins);
        PyMem_Free(literals->fours.uses);
        PyMem_Free(literals->shorts.uses);
        PyMem_Free(literals->ones.uses);
        PyMem_Free(literals);
    }
}

static void forgotten(PyObject *capsule) { forget(PyCapsule_GetPointer(capsule, NAME)); }

static void add_use(Uses *uses, uint32_t code, int32_t number, int32_t shift)
{
    uint32_t hash = code * MULTIPLIER >> (32 - TAKEN_BITS - 6);
    int32_t *head = &uses->heads[code * MULTIPLIER >> (32 - HEAD_BITS)];
    uses->taken[hash >> 12] |= bits_of(hash);
    uses->uses[uses->count] = (Use){code, shift, number, *head};
    *head = uses->count++;
}

static void add_pair(Literals *literals, uint8_t first, uint8_t second)
{
    for (int known = 0; known < literals->pairs && known < MOST_PAIRS; known++)
        if (literals->pair[known][0] == first && literals->pair[known][1] == second)
            return;
    if (literals->pairs < MOST_PAIRS) {
        literals->pair[literals->pairs][0] = first;
        literals->pair[literals->pairs][1] = second;
    }
    literals->pairs++;
}

/* A literal, and where the four bytes begin that stand for it: of a long one for each way in which it may lie, of a short
 * one also where the two of them begin that are neighbours. */
static int add_literal(Literals *literals, int32_t number, PyObject *word, PyObject *shown)
{
    char *text, *chosen;
    Py_ssize_t length, count;
    if (PyBytes_AsStringAndSize(word, &text, &length) < 0 || PyBytes_AsStringAndSize(shown, &chosen, &count) < 0)
        return -1;
    uint8_t *at = literals->text + literals->begins[number];
    int ways = length >= 7 ? 4 : length >= 4 ? 1 : 0, right = length > 0 && count == (ways == 1 ? 2 : ways);
    memcpy(at, text, (size_t)length);
    literals->begins[number + 1] = literals->begins[number] + length;
    for (int way = 0; right && way < ways; way++) {
        int32_t shift = (uint8_t)chosen[way];
        right = shift + 4 <= length && (ways == 1 || shift % 4 == way);
        if (right)
            add_use(ways == 1 ? &literals->shorts : &literals->fours, four_at(at + shift), number, shift);
    }
    if (right && ways == 1) {
        int pair = (uint8_t)chosen[1];
        right = pair >= chosen[0] && pair <= chosen[0] + 2;
        if (right)
            add_pair(literals, at[pair] | 0x20, at[pair + 1] | 0x20);
    }
    if (!right) {
        PyErr_SetString(PyExc_ValueError, "an empty literal, or bytes that are not its own");
        return -1;
    }
    if (ways == 0)
        add_use(&literals->ones, *at, number, 0);
    return 0;
}

static PyObject *literals_of(PyObject *self, PyObject *args)
{
    (void)self;
    PyObject *words, *shifts, *capsule = NULL;
    if (!PyArg_ParseTuple(args, "O!O!", &PyList_Type, &words, &PyList_Type, &shifts))
        return NULL;
    Py_ssize_t count = PyList_Size(words), size = 0;
    if (count > 0xffff || PyList_Size(shifts) != count) {
        PyErr_SetString(PyExc_ValueError, "too many literals, or some that nothing stands for");
        return NULL;
    }
    for (Py_ssize_t number = 0; number < count; number++)
        size += PyObject_Size(PyList_GetItem(words, number));
    if (PyErr_Occurred())
        return NULL;
    Literals *literals = PyMem_Calloc(1, sizeof *literals);
    if (literals != NULL) {
        literals->text = PyMem_Malloc((size_t)size + 1);
        literals->begins = PyMem_Calloc((size_t)count + 1, sizeof(Py_ssize_t));
        literals->fours.uses = PyMem_Malloc(sizeof(Use) * 4 * ((size_t)count + 1));
        literals->shorts.uses = PyMem_Malloc(sizeof(Use) * ((size_t)count + 1));
        literals->ones.uses = PyMem_Malloc(sizeof(Use) * ((size_t)count + 1));
    }
    if (!literals || !literals->text || !literals->begins || !literals->fours.uses || !literals->shorts.uses ||
        !literals->ones.uses) {
        PyErr_NoMemory();
        forget(literals);
        return NULL;
    }
    memset(literals->fours.heads, 0xff, sizeof literals->fours.heads);
    memset(literals->shorts.heads, 0xff, sizeof literals->shorts.heads);
    memset(literals->ones.heads, 0xff, sizeof literals->ones.heads);
    Py_ssize_t number = 0;
    while (number < count &&
           add_literal(literals, (int32_t)number, PyList_GetItem(words, number), PyList_GetItem(shifts, number)) == 0)
        number++;
    if (number < count || (capsule = PyCapsule_New(literals, NAME, forgotten)) == NULL)
        forget(literals);
    return capsule;
}

static int keep(Found *found, int64_t value)
{
    if (found->count == found->room) {
        Py_ssize_t room = found->room ? 2 * found->room : 1024;
        int64_t *places = PyMem_Realloc(found->places, sizeof(int64_t) * (size_t)room);
        if (places == NULL) {
            PyErr_NoMemory();
            return -1;
        }
        found->places = places;
        found->room = room;
    }
    found->places[found->count++] = value;
    return 0;
}

static PyObject *answer_of(Found *found)
{
    PyObject *answer = PyErr_Occurred() ? NULL : PyBytes_FromStringAndSize((char *)found->places, found->count * 8);
    PyMem_Free(found->places);
    return answer;
}

/* Which literals lie so that they show these bytes here. */
static int at_place(const Literals *literals, const Uses *uses, At text, Py_ssize_t size, Py_ssize_t at, uint32_t code,
                    Found *found)
{
    for (int32_t number = uses->heads[code * MULTIPLIER >> (32 - HEAD_BITS)]; number >= 0;) {
        const Use *use = &uses->uses[number];
        number = use->next;
        if (use->code != code)
            continue;
        Py_ssize_t begin = at - use->shift, from = literals->begins[use->literal];
        Py_ssize_t length = literals->begins[use->literal + 1] - from;
        if (begin >= 0 && begin + length <= size && text[begin] == literals->text[from] &&
            memcmp(text + begin, literals->text + from, (size_t)length) == 0 &&
            keep(found, (int64_t)begin << 16 | use->literal) < 0)
            return -1;
    }
    return 0;
}

static int look_up(const Literals *literals, const Uses *uses, At text, Py_ssize_t size, Py_ssize_t at, Found *found)
{
    uint32_t code = four_at(text + at);
    return taken(uses, code) ? at_place(literals, uses, text, size, at, code, found) : 0;
}

static int find_long(const Literals *literals, At text, Py_ssize_t size, Found *found)
{
    const Uses *fours = &literals->fours;
    Py_ssize_t at = 0;
    for (; at + 16 <= size; at += 16) { /* seldom one of them is taken */
        At here = text + at;
        if (taken(fours, four_at(here)) | taken(fours, four_at(here + 4)) | taken(fours, four_at(here + 8)) |
            taken(fours, four_at(here + 12)))
            for (Py_ssize_t word = at; word < at + 16; word += 4)
                if (look_up(literals, fours, text, size, word, found) < 0)
                    return -1;
    }
    for (; at + 4 <= size; at += 4)
        if (look_up(literals, fours, text, size, at, found) < 0)
            return -1;
    return 0;
}

static Sixteen sixteen_at(At at)
{
    Sixteen bytes;
    memcpy(&bytes, at, 16);
    return bytes;
}

/* Whether two neighbours begin at one of these 16 places that a short literal has. */
static int has_pair(const Sixteen (*pairs)[2], int count, At at)
{
    Sixteen first = sixteen_at(at) | 0x20, second = sixteen_at(at + 1) | 0x20, any = first ^ first;
    for (int pair = 0; pair < count; pair++)
        any |= (Sixteen)((first == pairs[pair][0]) & (second == pairs[pair][1]));
    uint64_t halves[2];
    memcpy(halves, &any, 16);
    return (halves[0] | halves[1]) != 0;
}

static int find_short(const Literals *literals, At text, Py_ssize_t size, Found *found)
{
    const Uses *shorts = &literals->shorts;
    const int count = literals->pairs, few = count <= MOST_PAIRS;
    Sixteen pairs[MOST_PAIRS][2];
    for (int pair = 0; few && pair < count; pair++) {
        memset(&pairs[pair][0], literals->pair[pair][0], 16);
        memset(&pairs[pair][1], literals->pair[pair][1], 16);
    }
    Py_ssize_t done = 0; /* the places before it were looked up, or need not be */
    for (Py_ssize_t at = 0; shorts->count && at < size; at += 16) {
        if (few && at + 17 <= size && !has_pair((const Sixteen(*)[2])pairs, count, text + at))
            continue;
        /* The pair lies among the four bytes, at most two behind the first. */
        for (Py_ssize_t place = done > at - 2 ? done : at - 2; place < at + 16 && place + 4 <= size; place++)
            if (look_up(literals, shorts, text, size, place, found) < 0)
                return -1;
        done = at + 16;
    }
    return 0;
}

static int find_all(const Literals *literals, At text, Py_ssize_t size, Found *found)
{
    if (find_long(literals, text, size, found) < 0 || find_short(literals, text, size, found) < 0)
        return -1;
    for (Py_ssize_t at = 0; literals->ones.count && at < size; at++)
        if (taken(&literals->ones, text[at]) &&
            at_place(literals, &literals->ones, text, size, at, text[at], found) < 0)
            return -1;
    return 0;
}

/* Numbers of 8 bytes: a place, and in the last 16 bits which literal begins there; not in order. */
static PyObject *find(PyObject *self, PyObject *args)
{
    (void)self;
    PyObject *buffer, *capsule;
    Py_ssize_t size;
    if (!PyArg_ParseTuple(args, "OYn", &capsule, &buffer, &size))
        return NULL;
    const Literals *literals = PyCapsule_GetPointer(capsule, NAME);
    if (literals == NULL)
        return NULL;
    if (size < 0 || size > PyByteArray_Size(buffer)) {
        PyErr_SetString(PyExc_ValueError, "more than the text");
        return NULL;
    }
    At text = (At)PyByteArray_AsString(buffer);
    Found found = {NULL, 0, 0};
    (void)find_all(literals, text, size, &found);
    return answer_of(&found);
}

/* A byte for each span of a text: 1 where one of the literals stands in it. */
static PyObject *within(PyObject *self, PyObject *args)
{
    (void)self;
    PyObject *buffer, *capsule, *begins, *ends;
    char *from, *to;
    Py_ssize_t size, other;
    if (!PyArg_ParseTuple(args, "OYSS", &capsule, &buffer, &begins, &ends) ||
        PyBytes_AsStringAndSize(begins, &from, &size) < 0 || PyBytes_AsStringAndSize(ends, &to, &other) < 0)
        return NULL;
    const Literals *literals = PyCapsule_GetPointer(capsule, NAME);
    if (literals == NULL)
        return NULL;
    Py_ssize_t count = size / 8, whole = PyByteArray_Size(buffer);
    At text = (At)PyByteArray_AsString(buffer);
    PyObject *answer = PyBytes_FromStringAndSize(NULL, count);
    char *out = answer != NULL ? PyBytes_AsString(answer) : NULL;
    Found found = {NULL, 0, 0};
    for (Py_ssize_t span = 0; out != NULL && span < count; span++) {
        int64_t begin, end;
        memcpy(&begin, from + span * 8, 8);
        memcpy(&end, to + span * 8, 8);
        if (other != size || begin < 0 || end < begin || end > whole)
            PyErr_SetString(PyExc_ValueError, "a span outside of the text");
        found.count = 0;
        if (PyErr_Occurred() || find_all(literals, text + begin, (Py_ssize_t)(end - begin), &found) < 0) {
            Py_DECREF(answer);
            answer = NULL;
            break;
        }
        out[span] = found.count > 0;
    }
    PyMem_Free(found.places);
    return answer;
}

/* The places as numbers of 8 bytes. */
static PyObject *places(PyObject *self, PyObject *args)
{
    (void)self;
    PyObject *buffer, *literal;
    Py_ssize_t size, rare, length;
    char *word;
    if (!PyArg_ParseTuple(args, "YnSn", &buffer, &size, &literal, &rare) ||
        PyBytes_AsStringAndSize(literal, &word, &length) < 0)
        return NULL;
    if (size < 0 || size > PyByteArray_Size(buffer) || rare < 0 || rare >= length) {
        PyErr_SetString(PyExc_ValueError, "a place outside of the text");
        return NULL;
    }
    At text = (At)PyByteArray_AsString(buffer), end = size < length ? text : text + size - (length - 1 - rare);
    Found found = {NULL, 0, 0};
    for (At at = text + rare; at < end && (at = memchr(at, (uint8_t)word[rare], (size_t)(end - at))) != NULL; at++)
        if (memcmp(at - rare, word, (size_t)length) == 0 && keep(&found, at - rare - text) < 0)
            break;
    return answer_of(&found);
}

/* Where the lines of a text end, as numbers of 8 bytes. */
static PyObject *ends(PyObject *self, PyObject *args)
{
    (void)self;
    PyObject *buffer;
    Py_ssize_t size;
    if (!PyArg_ParseTuple(args, "Yn", &buffer, &size))
        return NULL;
    if (size < 0 || size > PyByteArray_Size(buffer)) {
        PyErr_SetString(PyExc_ValueError, "more than the text");
        return NULL;
    }
    At text = (At)PyByteArray_AsString(buffer), end = text + size;
    Found found = {NULL, 0, 0};
    for (At at = text; at < end && (at = memchr(at, '\n', (size_t)(end - at))) != NULL; at++)
        if (keep(&found, at - text) < 0)
            break;
    return answer_of(&found);
}

static PyMethodDef METHODS[] = {
    {"ends", ends, METH_VARARGS, "Where the lines in the first bytes of a text end."},
    {"looks", looks, METH_VARARGS, "A number for each line of a text: the same for those that look alike."},
    {"look", one_look, METH_VARARGS, "The same for one message, of which only the beginning is in common with others."},
    {"places", places, METH_VARARGS, "Where a literal begins in the first bytes of a text, found by a letter of it."},
    {"literals", literals_of, METH_VARARGS, "What finds many literals."},
    {"find", find, METH_VARARGS, "Where which of the literals begins in the first bytes of a text."},
    {"within", within, METH_VARARGS, "In which spans of a text one of the literals stands."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef MODULE = {PyModuleDef_HEAD_INIT, "_looks", NULL, -1, METHODS, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__looks(void)
{
    memset(steady, 1, sizeof steady);
    for (const char *c = "0123456789abcdef"; *c; c++)
        steady[(uint8_t)*c] = 0;
    const char *names = "ranrroRanpidGPUmlxXidstasigerrcod";
    for (int at = 0; names[at]; at++)
        letters[(uint8_t)names[at]] |= (uint64_t)1 << (16 * (at % 3) + at / 3);
    for (const char *c = " \t\n\r\f\v"; *c; c++)
        space[(uint8_t)*c] = 1;
    PyObject *module = PyModule_Create(&MODULE);
    if (module != NULL && PyModule_AddIntConstant(module, "VERSION", VERSION) < 0)
        Py_CLEAR(module);
    return module;
}
