// SPDX-License-Identifier: GPL-2.0-only
/* A module that DKMS builds in `make deb-test`. */
#include <linux/module.h>
#include <linux/sched.h>

static int __init hello_init(void)
{
	pr_info("hello, %s\n", current->comm);
	return 0;
}
module_init(hello_init);

static void __exit hello_exit(void)
{
}
module_exit(hello_exit);

MODULE_DESCRIPTION("Test of the headers package");
MODULE_LICENSE("GPL");
