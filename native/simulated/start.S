/*
 * Where programs begin: as in libc's own start file, but on the __libc_start_main that every glibc has. Otherwise
 * programs that are built with glibc 2.34 or newer would need one as new in the container.
 */
.symver __libc_start_main, __libc_start_main@GLIBC_2.2.5
.text
.globl _start
.type _start, @function
_start:
    xor %ebp, %ebp
    mov %rdx, %r9                       /* what the loader wants to be called at the end */
    pop %rsi                            /* argc */
    mov %rsp, %rdx                      /* argv */
    and $-16, %rsp
    push %rax
    push %rsp                           /* the end of the stack */
    xor %r8d, %r8d                      /* no functions of libc's old start files */
    xor %ecx, %ecx
    mov main@GOTPCREL(%rip), %rdi
    call *__libc_start_main@GOTPCREL(%rip)
    hlt
.size _start, . - _start
.section .note.GNU-stack, "", @progbits
