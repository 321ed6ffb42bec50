/* SPDX-License-Identifier: GPL-2.0-only */
/* What the code of kernel/sched that is tested here takes from the kernel, in user space. */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef uint8_t u8;
typedef uint16_t u16;
typedef int16_t s16;
typedef int32_t s32;
typedef uint32_t u32;
typedef uint64_t u64;
typedef int64_t s64;

#define BIT(n)			(1UL << (n))
#define NSEC_PER_MSEC		1000000L
#define DIV_ROUND_UP(a, b)	(((a) + (b) - 1) / (b))
#define S32_MIN			INT32_MIN
#define U32_MAX			UINT32_MAX
#define U64_MAX			UINT64_MAX
#define min(a, b)		({ __auto_type _a = (a); __auto_type _b = (b); _a < _b ? _a : _b; })
#define max(a, b)		({ __auto_type _c = (a); __auto_type _d = (b); _c > _d ? _c : _d; })
#define min_t(type, a, b)	min((type)(a), (type)(b))
#define check_mul_overflow	__builtin_mul_overflow
#define div_u64(a, b)		((u64)(a) / (u32)(b))
#define div64_u64(a, b)		((u64)(a) / (u64)(b))
#define div_s64(a, b)		((s64)(a) / (int)(b))
#define mul_u64_u32_div(a, b, c) ((u64)((unsigned __int128)(u64)(a) * (u32)(b) / (u32)(c)))
#define mul_u64_u64_div_u64(a, b, c) ((u64)((unsigned __int128)(u64)(a) * (u64)(b) / (u64)(c)))
#define int_sqrt		int_sqrt64
#define READ_ONCE(x)		(x)
#define WRITE_ONCE(x, value)	((x) = (value))

static inline u64 int_sqrt64(u64 x)
{
	u64 root = 0;

	for (u64 bit = 1ULL << 31; bit; bit >>= 1) {
		if ((root | bit) * (root | bit) <= x)
			root |= bit;
	}

	return root;
}

#include "cache_math.h"

/* What decisions take from the kernel: nothing runs at the same time. */
typedef struct { u64 counter; } atomic64_t;
typedef struct { int counter; } atomic_t, refcount_t;
struct callback_head { void *next; };
struct rcu_head { void *next; };
struct cache_sample;
struct sched_cache_group;
#define ____cacheline_aligned
#define scoped_guard(what)
#define atomic64_read(v)	((v)->counter)
#define atomic_read(v)		((v)->counter)
#define atomic_inc_return_release(v) ((v)->counter++)
#define test_bit(nr, set)	(*(set) >> (nr) & 1)
#define assign_bit(nr, set, value) (*(set) = (*(set) & ~BIT(nr)) | (u64)(value) << (nr))
#define xchg(at, new)		({ typeof(*(at)) was_ = *(at); *(at) = (new); was_; })
#define cache_lock_choosing()	true
#define spin_unlock(lock)

/* And from the rest of cache.c: no group is of several processes, and no memory is sampled. */
#define cache_threads(group)	((u32)(group)->refs.counter)
#define sched_cache_sample(...)	SAMPLE_UNDECIDED
#define sched_cache_sample_free(sample) (void)(sample)
#define trace_sched_cache_gate(...)
#define trace_sched_cache_prefer(p, was, llc, nr, why, running) (void)((llc) + (nr))
