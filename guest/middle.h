/* SPDX-License-Identifier: GPL-2.0-only */
/* For the measuring programs: reduce many figures to two. */
#include <stdio.h>
#include <stdlib.h>

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/*
 * Print the mean of the middle half of the figures, which excludes those that include a timer tick,
 * and the mean of all. Sorts them.
 */
static void print_middle(double *each, int count)
{
	double sum = 0, middle = 0;
	int low = count / 4, i;

	qsort(each, count, sizeof(*each), compare);
	for (i = 0; i < count; i++) {
		sum += each[i];
		if (i >= low && i < count - low)
			middle += each[i];
	}
	printf("middle=%.1f mean=%.1f", middle / (count - 2 * low), sum / count);
}

/* How far the third quartile is above the first, as a share of it. Sorts them. */
static inline double spread(double *each, int count)
{
	qsort(each, count, sizeof(*each), compare);
	return each[3 * count / 4] / each[count / 4] - 1;
}
