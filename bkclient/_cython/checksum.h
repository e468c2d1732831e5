/* CRC-32C (Castagnoli) and CRC-32 (zlib's): eight bytes at a time by tables, CRC-32C by the processor's own instruction where it has
   one. That takes three steps until its result is there and begins another one in each, so three parts of a string are summed at
   once. Without it, and for CRC-32, long strings are left to google_crc32c and zlib, which are faster there. */
#ifndef BKCLIENT_CHECKSUM_H
#define BKCLIENT_CHECKSUM_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Bytes of each of three parts, of a string that has so many and one that has not. */
#define BK_LONG_PART 1024
#define BK_SHORT_PART 168

typedef uint32_t bk_crc_tables[8][256];
/* For each of the four bytes of a sum, what becomes of it by so many bytes of 0. */
typedef uint32_t bk_zeros_table[4][256];

static bk_crc_tables bk_crc32c_tables;
static bk_crc_tables bk_crc32_tables;
static bk_zeros_table bk_long_part;
static bk_zeros_table bk_short_part;
static int bk_has_crc32c_instruction = 0;

static void bk_fill_tables(bk_crc_tables tables, uint32_t polynomial)
{
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++)
            crc = crc & 1 ? crc >> 1 ^ polynomial : crc >> 1;
        tables[0][byte] = crc;
    }
    for (int row = 1; row < 8; row++)
        for (uint32_t byte = 0; byte < 256; byte++)
            tables[row][byte] = tables[row - 1][byte] >> 8 ^ tables[0][tables[row - 1][byte] & 0xff];
}

static uint32_t bk_by_tables(bk_crc_tables tables, uint32_t crc, const unsigned char *data, size_t size)
{
    crc = ~crc;
    while (size >= 8) {
        uint32_t low = crc ^ (data[0] | (uint32_t)data[1] << 8 | (uint32_t)data[2] << 16 | (uint32_t)data[3] << 24);
        crc = tables[7][low & 0xff] ^ tables[6][low >> 8 & 0xff] ^ tables[5][low >> 16 & 0xff] ^ tables[4][low >> 24]
            ^ tables[3][data[4]] ^ tables[2][data[5]] ^ tables[1][data[6]] ^ tables[0][data[7]];
        data += 8;
        size -= 8;
    }
    while (size--)
        crc = crc >> 8 ^ tables[0][(crc ^ *data++) & 0xff];
    return ~crc;
}

static void bk_fill_zeros(bk_zeros_table table, size_t zeros)
{
    uint32_t bits[32];
    for (int bit = 0; bit < 32; bit++) {
        uint32_t crc = (uint32_t)1 << bit;
        for (size_t count = 0; count < zeros; count++)
            crc = crc >> 8 ^ bk_crc32c_tables[0][crc & 0xff];
        bits[bit] = crc;
    }
    for (int place = 0; place < 4; place++)
        for (int byte = 0; byte < 256; byte++) {
            uint32_t crc = 0;
            for (int bit = 0; bit < 8; bit++)
                crc ^= byte >> bit & 1 ? bits[8 * place + bit] : 0;
            table[place][byte] = crc;
        }
}

static inline uint32_t bk_after_zeros(bk_zeros_table table, uint64_t crc)
{
    return table[0][crc & 0xff] ^ table[1][crc >> 8 & 0xff] ^ table[2][crc >> 16 & 0xff] ^ table[3][crc >> 24 & 0xff];
}

#if defined(__x86_64__) && defined(__GNUC__)
/* Of three parts of `part` bytes each, a multiple of eight; without the inversions at the beginning and the end. */
__attribute__((target("sse4.2"))) static inline uint64_t bk_three_parts(
    uint64_t value, const unsigned char *data, size_t part, bk_zeros_table table)
{
    uint64_t second = 0, third = 0, words[3];
    for (const unsigned char *end = data + part; data < end; data += 8) {
        memcpy(words, data, 8);
        memcpy(words + 1, data + part, 8);
        memcpy(words + 2, data + 2 * part, 8);
        value = __builtin_ia32_crc32di(value, words[0]);
        second = __builtin_ia32_crc32di(second, words[1]);
        third = __builtin_ia32_crc32di(third, words[2]);
    }
    value = bk_after_zeros(table, value) ^ second;
    return bk_after_zeros(table, value) ^ third;
}

__attribute__((target("sse4.2"))) static uint32_t bk_by_instruction(uint32_t crc, const unsigned char *data, size_t size)
{
    uint64_t value = (uint32_t)~crc, word;
    for (; size >= 3 * BK_LONG_PART; data += 3 * BK_LONG_PART, size -= 3 * BK_LONG_PART)
        value = bk_three_parts(value, data, BK_LONG_PART, bk_long_part);
    for (; size >= 3 * BK_SHORT_PART; data += 3 * BK_SHORT_PART, size -= 3 * BK_SHORT_PART)
        value = bk_three_parts(value, data, BK_SHORT_PART, bk_short_part);
    for (; size >= 8; data += 8, size -= 8) {
        memcpy(&word, data, 8);
        value = __builtin_ia32_crc32di(value, word);
    }
    while (size--)
        value = __builtin_ia32_crc32qi((uint32_t)value, *data++);
    return ~(uint32_t)value;
}
#define BK_HAS_INSTRUCTION() (__builtin_cpu_init(), __builtin_cpu_supports("sse4.2"))
#else
#define bk_by_instruction(crc, data, size) bk_by_tables(bk_crc32c_tables, crc, data, size)
#define BK_HAS_INSTRUCTION() 0
#endif

/* To be called once, before anything else. */
static inline void bk_prepare_checksums(void)
{
    bk_fill_tables(bk_crc32c_tables, 0x82f63b78u);
    bk_fill_tables(bk_crc32_tables, 0xedb88320u);
    bk_fill_zeros(bk_long_part, BK_LONG_PART);
    bk_fill_zeros(bk_short_part, BK_SHORT_PART);
    bk_has_crc32c_instruction = BK_HAS_INSTRUCTION();
}

/* Whether strings of so many bytes are summed here as fast as anywhere. */
static inline int bk_is_fast_crc32c(size_t size)
{
    return bk_has_crc32c_instruction || size < 4096;
}

static inline uint32_t bk_crc32c(uint32_t crc, const unsigned char *data, size_t size)
{
    return bk_has_crc32c_instruction ? bk_by_instruction(crc, data, size)
                                     : bk_by_tables(bk_crc32c_tables, crc, data, size);
}

static inline uint32_t bk_crc32(uint32_t crc, const unsigned char *data, size_t size)
{
    return bk_by_tables(bk_crc32_tables, crc, data, size);
}

/* Numbers as frames hold them. */

static inline void bk_put_be64(unsigned char *to, uint64_t value)
{
    for (int place = 7; place >= 0; place--, value >>= 8)
        to[place] = (unsigned char)value;
}

static inline void bk_put_be32(unsigned char *to, uint32_t value)
{
    for (int place = 3; place >= 0; place--, value >>= 8)
        to[place] = (unsigned char)value;
}

static inline uint64_t bk_be64(const unsigned char *from)
{
    uint64_t value = 0;
    for (int place = 0; place < 8; place++)
        value = value << 8 | from[place];
    return value;
}

static inline uint32_t bk_be32(const unsigned char *from)
{
    return (uint32_t)from[0] << 24 | (uint32_t)from[1] << 16 | (uint32_t)from[2] << 8 | from[3];
}

static inline int bk_varint_size(uint64_t value)
{
    int size = 1;
    while (value >>= 7)
        size++;
    return size;
}

/* Writes a varint, of ten bytes at most, and returns what follows it. */
static inline unsigned char *bk_put_varint(unsigned char *to, uint64_t value)
{
    while (value >= 0x80) {
        *to++ = (unsigned char)(value | 0x80);
        value >>= 7;
    }
    *to++ = (unsigned char)value;
    return to;
}

#endif
