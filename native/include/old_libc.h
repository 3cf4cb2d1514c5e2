/*
 * Included first in every source of what goes into containers, whose C library may be older than the one we build with.
 * From glibc 2.38 on, the headers have programs that ask for GNU functions call those of C23 under names of their own,
 * which older ones do not have. They differ in binary numbers (0b101) only, so we bind to those that every glibc has.
 * Where the headers do not do this, nobody uses these names, and this does nothing.
 */
__asm__(".symver __isoc23_strtol, strtol@GLIBC_2.2.5");
__asm__(".symver __isoc23_strtoul, strtoul@GLIBC_2.2.5");
__asm__(".symver __isoc23_strtoull, strtoull@GLIBC_2.2.5");
__asm__(".symver __isoc23_sscanf, __isoc99_sscanf@GLIBC_2.7");
