/* SPDX-License-Identifier: GPL-2.0-only */
/* The end of a simulation that cannot go on. */
#ifndef SIM_FAIL_H
#define SIM_FAIL_H

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

/* Print a message and end QEMU with status 1. */
__attribute__((format(printf, 1, 2), noreturn)) static inline void fail(const char *format, ...)
{
	va_list list;

	fprintf(stderr, "sim: ");
	va_start(list, format);
	vfprintf(stderr, format, list);
	va_end(list);
	fprintf(stderr, "\n");
	_Exit(1);
}

#endif
