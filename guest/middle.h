/* SPDX-License-Identifier: GPL-2.0-only */
/* For the programs that measure: what they make of many figures. */
#include <stdio.h>
#include <stdlib.h>

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/*
 * Print the mean of the middle half, which knows nothing of the few that a timer tick fell into, and
 * the mean of all of them. They are sorted.
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
	printf("%.1f %.1f", middle / (count - 2 * low), sum / count);
}
