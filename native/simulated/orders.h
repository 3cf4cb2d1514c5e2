/*
 * What tests may order, and the places where they look on. The driver itself obeys nobody: here nothing is ordered.
 *
 * native/tests/mock/orders.h has the other half. The Makefile lets the compiler read it before this file when it makes
 * the tests' driver, and this file is then empty.
 */
#ifndef ORDERS_H
#define ORDERS_H

#define ORDERED(order) 0ull    /* how much of it is ordered */
#define ORDER_DUE(order) false /* one of so many that are ordered */
#define COUNT(order) ((void)0)
#define MEANWHILE() ((void)0)  /* a call has done its work and not yet returned */
#define STOP_IF_ORDERED() ((void)0)
#define INTERRUPT_IF_ORDERED() ((void)0)
#define FOR_TESTS              /* what they keep in the machine */

#endif
