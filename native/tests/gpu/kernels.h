/* Kernels as PTX text, which the driver compiles: nothing of a CUDA toolkit is needed. */
#ifndef KERNELS_H
#define KERNELS_H

static const char kernels[] =
    ".version 7.0\n.target sm_70\n.address_size 64\n"
    /* Runs for so many cycles. */
    ".visible .entry spin(.param .u64 cycles) {\n"
    "  .reg .u64 %a<4>; .reg .pred %p<2>;\n"
    "  ld.param.u64 %a1, [cycles];\n"
    "  mov.u64 %a2, %clock64;\n"
    "again:\n"
    "  mov.u64 %a3, %clock64;\n"
    "  sub.u64 %a3, %a3, %a2;\n"
    "  setp.lt.u64 %p1, %a3, %a1;\n"
    "  @%p1 bra again;\n"
    "  ret;\n}\n"
    ".visible .entry empty() { ret; }\n"
    /* Tells the other side that it runs, and ends when the other side has told so too. */
    ".visible .entry meet(.param .u64 mine, .param .u64 other) {\n"
    "  .reg .u64 %a<3>; .reg .u32 %r<3>; .reg .pred %p<2>;\n"
    "  ld.param.u64 %a1, [mine];\n"
    "  ld.param.u64 %a2, [other];\n"
    "  mov.u32 %r1, 1;\n"
    "  st.volatile.global.u32 [%a1], %r1;\n"
    "  membar.sys;\n"
    "wait:\n"
    "  ld.volatile.global.u32 %r2, [%a2];\n"
    "  setp.eq.u32 %p1, %r2, 0;\n"
    "  @%p1 bra wait;\n"
    "  ret;\n}\n";

#endif
