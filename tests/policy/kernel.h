/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the decisions and loads of cache.c take from the kernel besides shim.h: a machine of at most
 * 64 CPUs, one CPU that runs kernel code at a time, 250 ticks a second.
 */
#include <stddef.h>

enum { CPUS = 64, LLCS = 16 };

struct cpumask { u64 bits; };
typedef struct { long counter; } atomic_long_t;
struct sched_cache_llc;

struct task_struct {
	struct cpumask cpus_mask, *cpus_ptr;
	struct sched_cache_group *cache_group;
	s16 preferred_llc;
	u64 start_time;
};

struct sched_domain_shared {
	atomic_t nr_busy_cpus;
	atomic_long_t llc_load;
	unsigned long llc_seen, llc_stray;
};

struct sched_group_capacity { unsigned long capacity; };
struct sched_group { struct sched_group_capacity *sgc; unsigned int cores, group_weight; };
struct sched_domain { struct sched_domain *parent; struct sched_group *groups; };
static struct rq { int rd; } rqs[CPUS + 1];

static struct cpumask active, siblings[CPUS];
static struct sched_domain_shared *sd_llc_shared[CPUS];
static struct sched_domain *sd_llc[CPUS];
static struct sched_cache_llc *sched_cache_llcs[LLCS];
static int llc_of[CPUS];
static unsigned long jiffies;
static struct task_struct *current;
static u64 clock_ns;

#define BITMASK(from, nr)	((~0UL >> (64 - (nr))) << (from))
#define first_bit(bits)		({ u64 b_ = (bits); b_ ? (unsigned int)__builtin_ctzl(b_) : CPUS; })
#define nr_cpu_ids		CPUS
#define cpu_active_mask		(&active)
#define cpu_active(cpu)		cpumask_test_cpu(cpu, &active)
#define to_cpumask(bits)	((struct cpumask *)(bits))
#define topology_sibling_cpumask(cpu) (&siblings[cpu])
#define cpumask_test_cpu(cpu, mask) ((mask)->bits >> (cpu) & 1)
#define cpumask_weight(mask)	((unsigned int)__builtin_popcountl((mask)->bits))
#define cpumask_weight_and(a, b) ((unsigned int)__builtin_popcountl((a)->bits & (b)->bits))
#define cpumask_first_and(a, b)	first_bit((a)->bits & (b)->bits)
#define cpumask_first_and_and(a, b, c) ((int)first_bit((a)->bits & (b)->bits & (c)->bits))
#define cpumask_subset(a, b)	(!((a)->bits & ~(b)->bits))
#define cpumask_intersects(a, b) (((a)->bits & (b)->bits) != 0)
#define for_each_cpu_and(cpu, a, b) for (cpu = 0; cpu < CPUS; cpu++) if ((a)->bits & (b)->bits & BIT(cpu))
#define cpu_rq(cpu)		(&rqs[cpu])
#define task_rq(p)		(&rqs[CPUS])
#define per_cpu(var, cpu)	(var)[cpu]
#define sched_cache_llc(cpu)	llc_of[cpu]
#define node_distance(a, b)	((a) == (b) ? 10 : 20)
#define LOCAL_DISTANCE		10

static inline void nothing(void) { }
#define guard(what)		nothing
#define rcu_dereference(p)	(p)
#define rcu_dereference_sched(p) (p)
#define data_race(x)		(x)
#define lockdep_assert_held(lock)
#define preempt_disable()
#define preempt_enable()

#define atomic_inc(v)		((v)->counter++)
#define atomic_long_read(v)	((v)->counter)
#define atomic_long_add(by, v)	((v)->counter += (by))
#define atomic_long_sub(by, v)	((v)->counter -= (by))
#define atomic_long_try_cmpxchg(v, old, new) try_cmpxchg(&(v)->counter, old, new)
#define try_cmpxchg(at, old, new) ({						\
	bool same_ = (u64)*(at) == (u64)*(old);					\
	*(same_ ? (at) : (typeof(at))(old)) = same_ ? (typeof(*(at)))(new) : *(at); same_; })
#define cmpxchg(at, old, new)	({ typeof(*(at)) was_ = *(at); if (was_ == (old)) *(at) = (new); was_; })

#define clamp(v, low, high)	min(max(v, low), high)
#define max_t(type, a, b)	max((type)(a), (type)(b))
#define U16_MAX			UINT16_MAX
#define S32_MAX			INT32_MAX
#define S64_MIN			INT64_MIN
#define container_of(p, type, member) ((type *)((char *)(p) - offsetof(type, member)))
#define TICK_NSEC		(4 * NSEC_PER_MSEC)
#define msecs_to_jiffies(ms)	(((ms) + 3UL) / 4)
#define time_before(a, b)	((long)((a) - (b)) < 0)
#define local_clock()		clock_ns
#define ktime_get_ns()		clock_ns

/*
 * What a decision asks of the rest of cache.c: processes have little memory, and do not communicate,
 * NUMA balancing is off, and no two choose at the same time.
 */
#define cache_waits(p)		false
#define cache_task_numa(p, llc)	((void)(llc), true)
#define cache_footprint(group, home) 4096UL
