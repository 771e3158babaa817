// Made from device/kernels.cu by `make ptx`; do not edit.
#include "device/kernels_ptx.h"

namespace hvdtune {

const char* const kKernelsPtx = R"ptx(.version 6.0
.target sm_70
.address_size 64
.visible .entry hvdtune_gather_bytes(
 .param .align 8 .b8 hvdtune_gather_bytes_param_0[3080],
 .param .u64 hvdtune_gather_bytes_param_1
)
{
 .reg .pred  %p<14>;
 .reg .b16  %rs<3>;
 .reg .b32  %r<7>;
 .reg .b64  %rd<59>;
 mov.b64  %rd30, hvdtune_gather_bytes_param_0;
 mov.u64  %rd31, %rd30;
 ld.param.u64  %rd32, [hvdtune_gather_bytes_param_1];
 mov.u32  %r1, %ctaid.y;
 mul.wide.s32  %rd33, %r1, 24;
 add.s64  %rd34, %rd31, %rd33;
 ld.param.u64  %rd35, [%rd34+16];
 add.s64  %rd1, %rd35, %rd32;
 ld.param.u64  %rd2, [%rd34+8];
 ld.param.u64  %rd3, [%rd34+24];
 mov.u32  %r2, %ntid.x;
 mov.u32  %r3, %ctaid.x;
 mul.wide.s32  %rd36, %r3, %r2;
 mov.u32  %r4, %tid.x;
 cvt.s64.s32  %rd37, %r4;
 add.s64  %rd4, %rd36, %rd37;
 mov.u32  %r5, %nctaid.x;
 mul.wide.s32  %rd5, %r5, %r2;
 or.b64   %rd38, %rd2, %rd1;
 or.b64   %rd6, %rd38, %rd3;
 and.b64   %rd39, %rd6, 15;
 setp.ne.s64  %p1, %rd39, 0;
 @%p1 bra  LBB0_4;
 bra.uni  LBB0_1;
LBB0_4:
 and.b64   %rd40, %rd6, 3;
 setp.ne.s64  %p2, %rd40, 0;
 @%p2 bra  LBB0_8;
 bra.uni  LBB0_5;
LBB0_8:
 and.b64   %rd41, %rd6, 1;
 setp.eq.b64  %p3, %rd41, 1;
 mov.pred  %p4, 0;
 xor.pred   %p5, %p3, %p4;
 @%p5 bra  LBB0_12;
 shr.u64  %rd21, %rd3, 1;
 setp.ge.u64  %p8, %rd4, %rd21;
 @%p8 bra  LBB0_14;
 shl.b64  %rd56, %rd4, 1;
 shl.b64  %rd23, %rd5, 1;
LBB0_11:
 .pragma "nounroll";
 add.s64  %rd44, %rd2, %rd56;
 ld.u16  %rs2, [%rd44];
 add.s64  %rd45, %rd1, %rd56;
 st.u16  [%rd45], %rs2;
 add.s64  %rd4, %rd4, %rd5;
 add.s64  %rd56, %rd56, %rd23;
 setp.lt.u64  %p9, %rd4, %rd21;
 @%p9 bra  LBB0_11;
 bra.uni  LBB0_14;
LBB0_1:
 shr.u64  %rd7, %rd3, 4;
 setp.ge.u64  %p12, %rd4, %rd7;
 @%p12 bra  LBB0_14;
 shl.b64  %rd52, %rd4, 4;
 shl.b64  %rd9, %rd5, 4;
LBB0_3:
 .pragma "nounroll";
 add.s64  %rd48, %rd1, %rd52;
 add.s64  %rd49, %rd2, %rd52;
 ld.u64  %rd50, [%rd49+8];
 st.u64  [%rd48+8], %rd50;
 ld.u64  %rd51, [%rd49];
 st.u64  [%rd48], %rd51;
 add.s64  %rd4, %rd4, %rd5;
 add.s64  %rd52, %rd52, %rd9;
 setp.lt.u64  %p13, %rd4, %rd7;
 @%p13 bra  LBB0_3;
 bra.uni  LBB0_14;
LBB0_5:
 shr.u64  %rd14, %rd3, 2;
 setp.ge.u64  %p10, %rd4, %rd14;
 @%p10 bra  LBB0_14;
 shl.b64  %rd54, %rd4, 2;
 shl.b64  %rd16, %rd5, 2;
LBB0_7:
 .pragma "nounroll";
 add.s64  %rd46, %rd2, %rd54;
 ld.u32  %r6, [%rd46];
 add.s64  %rd47, %rd1, %rd54;
 st.u32  [%rd47], %r6;
 add.s64  %rd4, %rd4, %rd5;
 add.s64  %rd54, %rd54, %rd16;
 setp.lt.u64  %p11, %rd4, %rd14;
 @%p11 bra  LBB0_7;
 bra.uni  LBB0_14;
LBB0_12:
 setp.ge.u64  %p6, %rd4, %rd3;
 @%p6 bra  LBB0_14;
LBB0_13:
 .pragma "nounroll";
 add.s64  %rd42, %rd2, %rd4;
 ld.u8  %rs1, [%rd42];
 add.s64  %rd43, %rd1, %rd4;
 st.u8  [%rd43], %rs1;
 add.s64  %rd4, %rd4, %rd5;
 setp.lt.u64  %p7, %rd4, %rd3;
 @%p7 bra  LBB0_13;
LBB0_14:
 ret;
}
.visible .entry hvdtune_scatter_bytes(
 .param .align 8 .b8 hvdtune_scatter_bytes_param_0[3080],
 .param .u64 hvdtune_scatter_bytes_param_1
)
{
 .reg .pred  %p<14>;
 .reg .b16  %rs<3>;
 .reg .b32  %r<7>;
 .reg .b64  %rd<59>;
 mov.b64  %rd30, hvdtune_scatter_bytes_param_0;
 mov.u64  %rd31, %rd30;
 ld.param.u64  %rd32, [hvdtune_scatter_bytes_param_1];
 mov.u32  %r1, %ctaid.y;
 mul.wide.s32  %rd33, %r1, 24;
 add.s64  %rd34, %rd31, %rd33;
 ld.param.u64  %rd1, [%rd34+8];
 ld.param.u64  %rd35, [%rd34+16];
 add.s64  %rd2, %rd35, %rd32;
 ld.param.u64  %rd3, [%rd34+24];
 mov.u32  %r2, %ntid.x;
 mov.u32  %r3, %ctaid.x;
 mul.wide.s32  %rd36, %r3, %r2;
 mov.u32  %r4, %tid.x;
 cvt.s64.s32  %rd37, %r4;
 add.s64  %rd4, %rd36, %rd37;
 mov.u32  %r5, %nctaid.x;
 mul.wide.s32  %rd5, %r5, %r2;
 or.b64   %rd38, %rd2, %rd1;
 or.b64   %rd6, %rd38, %rd3;
 and.b64   %rd39, %rd6, 15;
 setp.ne.s64  %p1, %rd39, 0;
 @%p1 bra  LBB1_4;
 bra.uni  LBB1_1;
LBB1_4:
 and.b64   %rd40, %rd6, 3;
 setp.ne.s64  %p2, %rd40, 0;
 @%p2 bra  LBB1_8;
 bra.uni  LBB1_5;
LBB1_8:
 and.b64   %rd41, %rd6, 1;
 setp.eq.b64  %p3, %rd41, 1;
 mov.pred  %p4, 0;
 xor.pred   %p5, %p3, %p4;
 @%p5 bra  LBB1_12;
 shr.u64  %rd21, %rd3, 1;
 setp.ge.u64  %p8, %rd4, %rd21;
 @%p8 bra  LBB1_14;
 shl.b64  %rd56, %rd4, 1;
 shl.b64  %rd23, %rd5, 1;
LBB1_11:
 .pragma "nounroll";
 add.s64  %rd44, %rd2, %rd56;
 ld.u16  %rs2, [%rd44];
 add.s64  %rd45, %rd1, %rd56;
 st.u16  [%rd45], %rs2;
 add.s64  %rd4, %rd4, %rd5;
 add.s64  %rd56, %rd56, %rd23;
 setp.lt.u64  %p9, %rd4, %rd21;
 @%p9 bra  LBB1_11;
 bra.uni  LBB1_14;
LBB1_1:
 shr.u64  %rd7, %rd3, 4;
 setp.ge.u64  %p12, %rd4, %rd7;
 @%p12 bra  LBB1_14;
 shl.b64  %rd52, %rd4, 4;
 shl.b64  %rd9, %rd5, 4;
LBB1_3:
 .pragma "nounroll";
 add.s64  %rd48, %rd1, %rd52;
 add.s64  %rd49, %rd2, %rd52;
 ld.u64  %rd50, [%rd49+8];
 st.u64  [%rd48+8], %rd50;
 ld.u64  %rd51, [%rd49];
 st.u64  [%rd48], %rd51;
 add.s64  %rd4, %rd4, %rd5;
 add.s64  %rd52, %rd52, %rd9;
 setp.lt.u64  %p13, %rd4, %rd7;
 @%p13 bra  LBB1_3;
 bra.uni  LBB1_14;
LBB1_5:
 shr.u64  %rd14, %rd3, 2;
 setp.ge.u64  %p10, %rd4, %rd14;
 @%p10 bra  LBB1_14;
 shl.b64  %rd54, %rd4, 2;
 shl.b64  %rd16, %rd5, 2;
LBB1_7:
 .pragma "nounroll";
 add.s64  %rd46, %rd2, %rd54;
 ld.u32  %r6, [%rd46];
 add.s64  %rd47, %rd1, %rd54;
 st.u32  [%rd47], %r6;
 add.s64  %rd4, %rd4, %rd5;
 add.s64  %rd54, %rd54, %rd16;
 setp.lt.u64  %p11, %rd4, %rd14;
 @%p11 bra  LBB1_7;
 bra.uni  LBB1_14;
LBB1_12:
 setp.ge.u64  %p6, %rd4, %rd3;
 @%p6 bra  LBB1_14;
LBB1_13:
 .pragma "nounroll";
 add.s64  %rd42, %rd2, %rd4;
 ld.u8  %rs1, [%rd42];
 add.s64  %rd43, %rd1, %rd4;
 st.u8  [%rd43], %rs1;
 add.s64  %rd4, %rd4, %rd5;
 setp.lt.u64  %p7, %rd4, %rd3;
 @%p7 bra  LBB1_13;
LBB1_14:
 ret;
}
.visible .entry hvdtune_fill(
 .param .u64 hvdtune_fill_param_0,
 .param .u64 hvdtune_fill_param_1,
 .param .u32 hvdtune_fill_param_2,
 .param .u64 hvdtune_fill_param_3
)
{
 .reg .pred  %p<12>;
 .reg .b16  %rs<3>;
 .reg .b32  %r<7>;
 .reg .b64  %rd<40>;
 ld.param.u64  %rd25, [hvdtune_fill_param_3];
 ld.param.u32  %r2, [hvdtune_fill_param_2];
 ld.param.u64  %rd24, [hvdtune_fill_param_1];
 ld.param.u64  %rd26, [hvdtune_fill_param_0];
 cvta.to.global.u64  %rd1, %rd26;
 mov.u32  %r3, %ntid.x;
 mov.u32  %r4, %ctaid.x;
 mul.wide.s32  %rd27, %r4, %r3;
 mov.u32  %r5, %tid.x;
 cvt.s64.s32  %rd28, %r5;
 add.s64  %rd2, %rd27, %rd28;
 mov.u32  %r6, %nctaid.x;
 mul.wide.s32  %rd3, %r6, %r3;
 setp.eq.s32  %p1, %r2, 4;
 @%p1 bra  LBB2_9;
 setp.eq.s32  %p2, %r2, 2;
 @%p2 bra  LBB2_6;
 setp.ne.s32  %p3, %r2, 1;
 @%p3 bra  LBB2_12;
 setp.ge.u64  %p8, %rd2, %rd24;
 @%p8 bra  LBB2_15;
 cvt.u16.u64  %rs1, %rd25;
LBB2_5:
 .pragma "nounroll";
 add.s64  %rd31, %rd1, %rd2;
 st.global.u8  [%rd31], %rs1;
 add.s64  %rd2, %rd2, %rd3;
 setp.lt.u64  %p9, %rd2, %rd24;
 @%p9 bra  LBB2_5;
 bra.uni  LBB2_15;
LBB2_9:
 setp.ge.u64  %p4, %rd2, %rd24;
 @%p4 bra  LBB2_15;
 cvt.u32.u64  %r1, %rd25;
 shl.b64  %rd29, %rd2, 2;
 add.s64  %rd36, %rd1, %rd29;
 shl.b64  %rd13, %rd3, 2;
LBB2_11:
 .pragma "nounroll";
 st.global.u32  [%rd36], %r1;
 add.s64  %rd2, %rd2, %rd3;
 add.s64  %rd36, %rd36, %rd13;
 setp.lt.u64  %p5, %rd2, %rd24;
 @%p5 bra  LBB2_11;
 bra.uni  LBB2_15;
LBB2_6:
 setp.ge.u64  %p6, %rd2, %rd24;
 @%p6 bra  LBB2_15;
 cvt.u16.u64  %rs2, %rd25;
 shl.b64  %rd30, %rd2, 1;
 add.s64  %rd34, %rd1, %rd30;
 shl.b64  %rd7, %rd3, 1;
LBB2_8:
 .pragma "nounroll";
 st.global.u16  [%rd34], %rs2;
 add.s64  %rd2, %rd2, %rd3;
 add.s64  %rd34, %rd34, %rd7;
 setp.lt.u64  %p7, %rd2, %rd24;
 @%p7 bra  LBB2_8;
 bra.uni  LBB2_15;
LBB2_12:
 setp.ge.u64  %p10, %rd2, %rd24;
 @%p10 bra  LBB2_15;
 shl.b64  %rd32, %rd2, 3;
 add.s64  %rd38, %rd1, %rd32;
 shl.b64  %rd19, %rd3, 3;
LBB2_14:
 .pragma "nounroll";
 st.global.u64  [%rd38], %rd25;
 add.s64  %rd2, %rd2, %rd3;
 add.s64  %rd38, %rd38, %rd19;
 setp.lt.u64  %p11, %rd2, %rd24;
 @%p11 bra  LBB2_14;
LBB2_15:
 ret;
}
.visible .entry hvdtune_pack_uint8(
 .param .align 8 .b8 hvdtune_pack_uint8_param_0[3080],
 .param .u64 hvdtune_pack_uint8_param_1,
 .param .f64 hvdtune_pack_uint8_param_2
)
{
 .reg .pred  %p<6>;
 .reg .b16  %rs<3>;
 .reg .b32  %r<12>;
 .reg .b64  %rd<26>;
 .reg .f64  %fd<5>;
 mov.b64  %rd13, hvdtune_pack_uint8_param_0;
 mov.u64  %rd15, %rd13;
 mov.u32  %r5, %ctaid.y;
 mov.u32  %r6, %ntid.x;
 mov.u32  %r7, %ctaid.x;
 mul.wide.s32  %rd16, %r7, %r6;
 mov.u32  %r8, %tid.x;
 cvt.s64.s32  %rd17, %r8;
 add.s64  %rd25, %rd16, %rd17;
 mul.wide.s32  %rd18, %r5, 24;
 add.s64  %rd19, %rd15, %rd18;
 ld.param.u64  %rd6, [%rd19+24];
 setp.ge.u64  %p1, %rd25, %rd6;
 @%p1 bra  LBB3_7;
 ld.param.f64  %fd2, [hvdtune_pack_uint8_param_2];
 ld.param.u64  %rd14, [hvdtune_pack_uint8_param_1];
 cvta.to.global.u64  %rd1, %rd14;
 mov.u32  %r9, %nctaid.x;
 mul.wide.s32  %rd3, %r9, %r6;
 ld.param.u64  %rd4, [%rd19+8];
 ld.param.u64  %rd5, [%rd19+16];
 shl.b64  %rd20, %rd5, 2;
 shl.b64  %rd21, %rd25, 2;
 add.s64  %rd22, %rd20, %rd21;
 add.s64  %rd24, %rd1, %rd22;
 shl.b64  %rd8, %rd3, 2;
 setp.eq.f64  %p2, %fd2, 0d3FF0000000000000;
 bra.uni  LBB3_2;
LBB3_5:
 max.f64  %fd4, %fd1, 0dC1E0000000000000;
 cvt.rzi.s32.f64  %r11, %fd4;
LBB3_6:
 st.global.u32  [%rd24], %r11;
 add.s64  %rd25, %rd25, %rd3;
 add.s64  %rd24, %rd24, %rd8;
 setp.lt.u64  %p5, %rd25, %rd6;
 @%p5 bra  LBB3_2;
 bra.uni  LBB3_7;
LBB3_2:
 .pragma "nounroll";
 add.s64  %rd23, %rd4, %rd25;
 ld.u8  %rs1, [%rd23];
 cvt.u32.u16  %r10, %rs1;
 and.b32   %r11, %r10, 255;
 @%p2 bra  LBB3_6;
 and.b16   %rs2, %rs1, 255;
 cvt.rn.f64.u16  %fd3, %rs2;
 mul.rn.f64  %fd1, %fd3, %fd2;
 setp.lt.f64  %p3, %fd1, 0d41E0000000000000;
 @%p3 bra  LBB3_5;
 setp.ge.f64  %p4, %fd1, 0d41E0000000000000;
 selp.b32  %r11, 2147483647, 0, %p4;
 bra.uni  LBB3_6;
LBB3_7:
 ret;
}
.visible .entry hvdtune_unpack_uint8(
 .param .align 8 .b8 hvdtune_unpack_uint8_param_0[3080],
 .param .u64 hvdtune_unpack_uint8_param_1,
 .param .u32 hvdtune_unpack_uint8_param_2,
 .param .f64 hvdtune_unpack_uint8_param_3
)
{
 .reg .pred  %p<7>;
 .reg .b32  %r<15>;
 .reg .b64  %rd<26>;
 .reg .f64  %fd<5>;
 mov.b64  %rd14, hvdtune_unpack_uint8_param_0;
 mov.u64  %rd16, %rd14;
 mov.u32  %r8, %ctaid.y;
 mov.u32  %r9, %ntid.x;
 mov.u32  %r10, %ctaid.x;
 mul.wide.s32  %rd17, %r10, %r9;
 mov.u32  %r11, %tid.x;
 cvt.s64.s32  %rd18, %r11;
 add.s64  %rd25, %rd17, %rd18;
 mul.wide.s32  %rd19, %r8, 24;
 add.s64  %rd20, %rd16, %rd19;
 ld.param.u64  %rd6, [%rd20+24];
 setp.ge.u64  %p1, %rd25, %rd6;
 @%p1 bra  LBB4_9;
 ld.param.f64  %fd2, [hvdtune_unpack_uint8_param_3];
 ld.param.u32  %r7, [hvdtune_unpack_uint8_param_2];
 ld.param.u64  %rd15, [hvdtune_unpack_uint8_param_1];
 cvta.to.global.u64  %rd1, %rd15;
 mov.u32  %r12, %nctaid.x;
 mul.wide.s32  %rd3, %r12, %r9;
 ld.param.u64  %rd4, [%rd20+8];
 ld.param.u64  %rd5, [%rd20+16];
 shl.b64  %rd21, %rd5, 2;
 shl.b64  %rd22, %rd25, 2;
 add.s64  %rd23, %rd21, %rd22;
 add.s64  %rd24, %rd1, %rd23;
 shl.b64  %rd8, %rd3, 2;
 setp.eq.s32  %p2, %r7, 1;
 setp.eq.f64  %p3, %fd2, 0d3FF0000000000000;
 bra.uni  LBB4_2;
LBB4_7:
 max.f64  %fd4, %fd1, 0dC1E0000000000000;
 cvt.rzi.s32.f64  %r14, %fd4;
LBB4_8:
 add.s64  %rd11, %rd4, %rd25;
 st.u8  [%rd11], %r14;
 add.s64  %rd25, %rd25, %rd3;
 add.s64  %rd24, %rd24, %rd8;
 setp.lt.u64  %p6, %rd25, %rd6;
 @%p6 bra  LBB4_2;
 bra.uni  LBB4_9;
LBB4_2:
 .pragma "nounroll";
 ld.global.u32  %r14, [%rd24];
 @%p2 bra  LBB4_4;
 div.s32  %r14, %r14, %r7;
LBB4_4:
 @%p3 bra  LBB4_8;
 cvt.rn.f64.s32  %fd3, %r14;
 mul.rn.f64  %fd1, %fd3, %fd2;
 setp.lt.f64  %p4, %fd1, 0d41E0000000000000;
 @%p4 bra  LBB4_7;
 setp.ge.f64  %p5, %fd1, 0d41E0000000000000;
 selp.b32  %r14, 2147483647, 0, %p5;
 bra.uni  LBB4_8;
LBB4_9:
 ret;
}
.visible .entry hvdtune_reduce_uint8(
 .param .u64 hvdtune_reduce_uint8_param_0,
 .param .u64 hvdtune_reduce_uint8_param_1,
 .param .u64 hvdtune_reduce_uint8_param_2,
 .param .u64 hvdtune_reduce_uint8_param_3,
 .param .u32 hvdtune_reduce_uint8_param_4,
 .param .u32 hvdtune_reduce_uint8_param_5,
 .param .f64 hvdtune_reduce_uint8_param_6,
 .param .u32 hvdtune_reduce_uint8_param_7,
 .param .f64 hvdtune_reduce_uint8_param_8,
 .param .u64 hvdtune_reduce_uint8_param_9
)
{
 .reg .pred  %p<27>;
 .reg .b16  %rs<5>;
 .reg .b32  %r<57>;
 .reg .b64  %rd<40>;
 .reg .f64  %fd<12>;
 ld.param.u64  %rd21, [hvdtune_reduce_uint8_param_2];
 mov.u32  %r37, %ntid.x;
 mov.u32  %r38, %ctaid.x;
 mul.wide.s32  %rd25, %r38, %r37;
 mov.u32  %r39, %tid.x;
 cvt.s64.s32  %rd26, %r39;
 add.s64  %rd35, %rd25, %rd26;
 setp.ge.u64  %p1, %rd35, %rd21;
 @%p1 bra  LBB5_14;
 ld.param.f64  %fd5, [hvdtune_reduce_uint8_param_8];
 ld.param.u32  %r36, [hvdtune_reduce_uint8_param_7];
 ld.param.f64  %fd4, [hvdtune_reduce_uint8_param_6];
 ld.param.u32  %r35, [hvdtune_reduce_uint8_param_5];
 ld.param.u32  %r34, [hvdtune_reduce_uint8_param_4];
 ld.param.u64  %rd20, [hvdtune_reduce_uint8_param_1];
 ld.param.u64  %rd22, [hvdtune_reduce_uint8_param_0];
 ld.param.u64  %rd23, [hvdtune_reduce_uint8_param_9];
 cvta.to.global.u64  %rd1, %rd23;
 ld.param.u64  %rd24, [hvdtune_reduce_uint8_param_3];
 cvta.to.global.u64  %rd2, %rd24;
 cvta.to.global.u64  %rd3, %rd22;
 mov.u32  %r40, %nctaid.x;
 mul.wide.s32  %rd5, %r40, %r37;
 add.s64  %rd34, %rd3, %rd35;
 setp.eq.s32  %p2, %r34, 0;
 mov.u32  %r41, 0;
 setp.eq.s32  %p19, %r36, 1;
 setp.eq.f64  %p20, %fd5, 0d3FF0000000000000;
 setp.eq.f64  %p3, %fd4, 0d3FF0000000000000;
 bra.uni  LBB5_2;
LBB5_12:
 max.f64  %fd11, %fd1, 0dC1E0000000000000;
 cvt.rzi.s32.f64  %r55, %fd11;
LBB5_13:
 add.s64  %rd9, %rd1, %rd35;
 st.global.u8  [%rd9], %r55;
 add.s64  %rd35, %rd35, %rd5;
 add.s64  %rd34, %rd34, %rd5;
 setp.lt.u64  %p23, %rd35, %rd21;
 @%p23 bra  LBB5_2;
 bra.uni  LBB5_14;
LBB5_2:
 .pragma "nounroll";
 mov.u32  %r55, %r41;
 @%p2 bra  LBB5_7;
 mov.u64  %rd36, 0;
 mov.u32  %r48, 0;
 mov.u32  %r55, %r48;
 bra.uni  LBB5_4;
LBB5_35:
 max.s32  %r55, %r8, %r55;
LBB5_38:
 add.s32  %r48, %r48, 1;
 setp.eq.s32  %p18, %r48, %r34;
 @%p18 bra  LBB5_7;
LBB5_4:
 .pragma "nounroll";
 mov.u32  %r8, %r55;
 mul.lo.s64  %rd28, %rd36, %rd20;
 add.s64  %rd29, %rd28, %rd35;
 add.s64  %rd30, %rd3, %rd29;
 ld.global.u8  %rs1, [%rd30];
 cvt.u32.u16  %r43, %rs1;
 and.b32   %r55, %r43, 255;
 @%p3 bra  LBB5_16;
 and.b16   %rs3, %rs1, 255;
 cvt.rn.f64.u16  %fd6, %rs3;
 mul.rn.f64  %fd2, %fd6, %fd4;
 setp.lt.f64  %p4, %fd2, 0d41E0000000000000;
 @%p4 bra  LBB5_15;
 bra.uni  LBB5_6;
LBB5_15:
 max.f64  %fd7, %fd2, 0dC1E0000000000000;
 cvt.rzi.s32.f64  %r55, %fd7;
 bra.uni  LBB5_16;
LBB5_6:
 setp.ge.f64  %p5, %fd2, 0d41E0000000000000;
 selp.b32  %r55, 2147483647, 0, %p5;
LBB5_16:
 mul.wide.u32  %rd31, %r48, 4;
 add.s64  %rd32, %rd2, %rd31;
 ld.global.u32  %r13, [%rd32];
 add.s64  %rd36, %rd36, 1;
 setp.lt.u32  %p6, %r13, 2;
 setp.eq.s32  %p24, %r35, 4;
 setp.eq.s32  %p25, %r35, 3;
 setp.ne.s32  %p26, %r35, 2;
 @%p6 bra  LBB5_30;
 add.s32  %r52, %r13, -1;
 mul.lo.s64  %rd33, %rd20, %rd36;
 add.s64  %rd38, %rd34, %rd33;
 bra.uni  LBB5_18;
LBB5_26:
 max.s32  %r55, %r55, %r21;
LBB5_29:
 add.s64  %rd36, %rd36, 1;
 add.s32  %r52, %r52, -1;
 add.s64  %rd38, %rd38, %rd20;
 setp.eq.s32  %p13, %r52, 0;
 @%p13 bra  LBB5_30;
LBB5_18:
 .pragma "nounroll";
 ld.global.u8  %rs2, [%rd38];
 cvt.u32.u16  %r44, %rs2;
 and.b32   %r21, %r44, 255;
 @%p3 bra  LBB5_22;
 and.b16   %rs4, %rs2, 255;
 cvt.rn.f64.u16  %fd8, %rs4;
 mul.rn.f64  %fd3, %fd8, %fd4;
 setp.lt.f64  %p8, %fd3, 0d41E0000000000000;
 @%p8 bra  LBB5_21;
 bra.uni  LBB5_20;
LBB5_21:
 max.f64  %fd9, %fd3, 0dC1E0000000000000;
 cvt.rzi.s32.f64  %r21, %fd9;
 bra.uni  LBB5_22;
LBB5_20:
 setp.ge.f64  %p9, %fd3, 0d41E0000000000000;
 selp.b32  %r21, 2147483647, 0, %p9;
LBB5_22:
 @%p24 bra  LBB5_27;
 @%p25 bra  LBB5_26;
 @%p26 bra  LBB5_28;
 min.s32  %r55, %r21, %r55;
 bra.uni  LBB5_29;
LBB5_27:
 mul.lo.s32  %r55, %r21, %r55;
 bra.uni  LBB5_29;
LBB5_28:
 add.s32  %r55, %r21, %r55;
 bra.uni  LBB5_29;
LBB5_30:
 setp.eq.s32  %p14, %r48, 0;
 @%p14 bra  LBB5_38;
 @%p24 bra  LBB5_36;
 @%p25 bra  LBB5_35;
 @%p26 bra  LBB5_37;
 min.s32  %r55, %r55, %r8;
 bra.uni  LBB5_38;
LBB5_36:
 mul.lo.s32  %r55, %r55, %r8;
 bra.uni  LBB5_38;
LBB5_37:
 add.s32  %r55, %r55, %r8;
 bra.uni  LBB5_38;
LBB5_7:
 @%p19 bra  LBB5_9;
 div.s32  %r55, %r55, %r36;
LBB5_9:
 @%p20 bra  LBB5_13;
 cvt.rn.f64.s32  %fd10, %r55;
 mul.rn.f64  %fd1, %fd10, %fd5;
 setp.lt.f64  %p21, %fd1, 0d41E0000000000000;
 @%p21 bra  LBB5_12;
 setp.ge.f64  %p22, %fd1, 0d41E0000000000000;
 selp.b32  %r55, 2147483647, 0, %p22;
 bra.uni  LBB5_13;
LBB5_14:
 ret;
}
.visible .entry hvdtune_pack_int8(
 .param .align 8 .b8 hvdtune_pack_int8_param_0[3080],
 .param .u64 hvdtune_pack_int8_param_1,
 .param .f64 hvdtune_pack_int8_param_2
)
{
 .reg .pred  %p<6>;
 .reg .b16  %rs<3>;
 .reg .b32  %r<12>;
 .reg .b64  %rd<26>;
 .reg .f64  %fd<5>;
 mov.b64  %rd13, hvdtune_pack_int8_param_0;
 mov.u64  %rd15, %rd13;
 mov.u32  %r5, %ctaid.y;
 mov.u32  %r6, %ntid.x;
 mov.u32  %r7, %ctaid.x;
 mul.wide.s32  %rd16, %r7, %r6;
 mov.u32  %r8, %tid.x;
 cvt.s64.s32  %rd17, %r8;
 add.s64  %rd25, %rd16, %rd17;
 mul.wide.s32  %rd18, %r5, 24;
 add.s64  %rd19, %rd15, %rd18;
 ld.param.u64  %rd6, [%rd19+24];
 setp.ge.u64  %p1, %rd25, %rd6;
 @%p1 bra  LBB6_7;
 ld.param.f64  %fd2, [hvdtune_pack_int8_param_2];
 ld.param.u64  %rd14, [hvdtune_pack_int8_param_1];
 cvta.to.global.u64  %rd1, %rd14;
 mov.u32  %r9, %nctaid.x;
 mul.wide.s32  %rd3, %r9, %r6;
 ld.param.u64  %rd4, [%rd19+8];
 ld.param.u64  %rd5, [%rd19+16];
 shl.b64  %rd20, %rd5, 2;
 shl.b64  %rd21, %rd25, 2;
 add.s64  %rd22, %rd20, %rd21;
 add.s64  %rd24, %rd1, %rd22;
 shl.b64  %rd8, %rd3, 2;
 setp.eq.f64  %p2, %fd2, 0d3FF0000000000000;
 bra.uni  LBB6_2;
LBB6_5:
 max.f64  %fd4, %fd1, 0dC1E0000000000000;
 cvt.rzi.s32.f64  %r11, %fd4;
LBB6_6:
 st.global.u32  [%rd24], %r11;
 add.s64  %rd25, %rd25, %rd3;
 add.s64  %rd24, %rd24, %rd8;
 setp.lt.u64  %p5, %rd25, %rd6;
 @%p5 bra  LBB6_2;
 bra.uni  LBB6_7;
LBB6_2:
 .pragma "nounroll";
 add.s64  %rd23, %rd4, %rd25;
 ld.u8  %rs1, [%rd23];
 cvt.u32.u16  %r10, %rs1;
 cvt.s32.s8  %r11, %r10;
 @%p2 bra  LBB6_6;
 cvt.s16.s8  %rs2, %rs1;
 cvt.rn.f64.s16  %fd3, %rs2;
 mul.rn.f64  %fd1, %fd3, %fd2;
 setp.lt.f64  %p3, %fd1, 0d41E0000000000000;
 @%p3 bra  LBB6_5;
 setp.ge.f64  %p4, %fd1, 0d41E0000000000000;
 selp.b32  %r11, 2147483647, 0, %p4;
 bra.uni  LBB6_6;
LBB6_7:
 ret;
}
.visible .entry hvdtune_unpack_int8(
 .param .align 8 .b8 hvdtune_unpack_int8_param_0[3080],
 .param .u64 hvdtune_unpack_int8_param_1,
 .param .u32 hvdtune_unpack_int8_param_2,
 .param .f64 hvdtune_unpack_int8_param_3
)
{
 .reg .pred  %p<7>;
 .reg .b32  %r<15>;
 .reg .b64  %rd<26>;
 .reg .f64  %fd<5>;
 mov.b64  %rd14, hvdtune_unpack_int8_param_0;
 mov.u64  %rd16, %rd14;
 mov.u32  %r8, %ctaid.y;
 mov.u32  %r9, %ntid.x;
 mov.u32  %r10, %ctaid.x;
 mul.wide.s32  %rd17, %r10, %r9;
 mov.u32  %r11, %tid.x;
 cvt.s64.s32  %rd18, %r11;
 add.s64  %rd25, %rd17, %rd18;
 mul.wide.s32  %rd19, %r8, 24;
 add.s64  %rd20, %rd16, %rd19;
 ld.param.u64  %rd6, [%rd20+24];
 setp.ge.u64  %p1, %rd25, %rd6;
 @%p1 bra  LBB7_9;
 ld.param.f64  %fd2, [hvdtune_unpack_int8_param_3];
 ld.param.u32  %r7, [hvdtune_unpack_int8_param_2];
 ld.param.u64  %rd15, [hvdtune_unpack_int8_param_1];
 cvta.to.global.u64  %rd1, %rd15;
 mov.u32  %r12, %nctaid.x;
 mul.wide.s32  %rd3, %r12, %r9;
 ld.param.u64  %rd4, [%rd20+8];
 ld.param.u64  %rd5, [%rd20+16];
 shl.b64  %rd21, %rd5, 2;
 shl.b64  %rd22, %rd25, 2;
 add.s64  %rd23, %rd21, %rd22;
 add.s64  %rd24, %rd1, %rd23;
 shl.b64  %rd8, %rd3, 2;
 setp.eq.s32  %p2, %r7, 1;
 setp.eq.f64  %p3, %fd2, 0d3FF0000000000000;
 bra.uni  LBB7_2;
LBB7_7:
 max.f64  %fd4, %fd1, 0dC1E0000000000000;
 cvt.rzi.s32.f64  %r14, %fd4;
LBB7_8:
 add.s64  %rd11, %rd4, %rd25;
 st.u8  [%rd11], %r14;
 add.s64  %rd25, %rd25, %rd3;
 add.s64  %rd24, %rd24, %rd8;
 setp.lt.u64  %p6, %rd25, %rd6;
 @%p6 bra  LBB7_2;
 bra.uni  LBB7_9;
LBB7_2:
 .pragma "nounroll";
 ld.global.u32  %r14, [%rd24];
 @%p2 bra  LBB7_4;
 div.s32  %r14, %r14, %r7;
LBB7_4:
 @%p3 bra  LBB7_8;
 cvt.rn.f64.s32  %fd3, %r14;
 mul.rn.f64  %fd1, %fd3, %fd2;
 setp.lt.f64  %p4, %fd1, 0d41E0000000000000;
 @%p4 bra  LBB7_7;
 setp.ge.f64  %p5, %fd1, 0d41E0000000000000;
 selp.b32  %r14, 2147483647, 0, %p5;
 bra.uni  LBB7_8;
LBB7_9:
 ret;
}
.visible .entry hvdtune_reduce_int8(
 .param .u64 hvdtune_reduce_int8_param_0,
 .param .u64 hvdtune_reduce_int8_param_1,
 .param .u64 hvdtune_reduce_int8_param_2,
 .param .u64 hvdtune_reduce_int8_param_3,
 .param .u32 hvdtune_reduce_int8_param_4,
 .param .u32 hvdtune_reduce_int8_param_5,
 .param .f64 hvdtune_reduce_int8_param_6,
 .param .u32 hvdtune_reduce_int8_param_7,
 .param .f64 hvdtune_reduce_int8_param_8,
 .param .u64 hvdtune_reduce_int8_param_9
)
{
 .reg .pred  %p<27>;
 .reg .b16  %rs<5>;
 .reg .b32  %r<57>;
 .reg .b64  %rd<40>;
 .reg .f64  %fd<12>;
 ld.param.u64  %rd21, [hvdtune_reduce_int8_param_2];
 mov.u32  %r37, %ntid.x;
 mov.u32  %r38, %ctaid.x;
 mul.wide.s32  %rd25, %r38, %r37;
 mov.u32  %r39, %tid.x;
 cvt.s64.s32  %rd26, %r39;
 add.s64  %rd35, %rd25, %rd26;
 setp.ge.u64  %p1, %rd35, %rd21;
 @%p1 bra  LBB8_14;
 ld.param.f64  %fd5, [hvdtune_reduce_int8_param_8];
 ld.param.u32  %r36, [hvdtune_reduce_int8_param_7];
 ld.param.f64  %fd4, [hvdtune_reduce_int8_param_6];
 ld.param.u32  %r35, [hvdtune_reduce_int8_param_5];
 ld.param.u32  %r34, [hvdtune_reduce_int8_param_4];
 ld.param.u64  %rd20, [hvdtune_reduce_int8_param_1];
 ld.param.u64  %rd22, [hvdtune_reduce_int8_param_0];
 ld.param.u64  %rd23, [hvdtune_reduce_int8_param_9];
 cvta.to.global.u64  %rd1, %rd23;
 ld.param.u64  %rd24, [hvdtune_reduce_int8_param_3];
 cvta.to.global.u64  %rd2, %rd24;
 cvta.to.global.u64  %rd3, %rd22;
 mov.u32  %r40, %nctaid.x;
 mul.wide.s32  %rd5, %r40, %r37;
 add.s64  %rd34, %rd3, %rd35;
 setp.eq.s32  %p2, %r34, 0;
 mov.u32  %r41, 0;
 setp.eq.s32  %p19, %r36, 1;
 setp.eq.f64  %p20, %fd5, 0d3FF0000000000000;
 setp.eq.f64  %p3, %fd4, 0d3FF0000000000000;
 bra.uni  LBB8_2;
LBB8_12:
 max.f64  %fd11, %fd1, 0dC1E0000000000000;
 cvt.rzi.s32.f64  %r55, %fd11;
LBB8_13:
 add.s64  %rd9, %rd1, %rd35;
 st.global.u8  [%rd9], %r55;
 add.s64  %rd35, %rd35, %rd5;
 add.s64  %rd34, %rd34, %rd5;
 setp.lt.u64  %p23, %rd35, %rd21;
 @%p23 bra  LBB8_2;
 bra.uni  LBB8_14;
LBB8_2:
 .pragma "nounroll";
 mov.u32  %r55, %r41;
 @%p2 bra  LBB8_7;
 mov.u64  %rd36, 0;
 mov.u32  %r48, 0;
 mov.u32  %r55, %r48;
 bra.uni  LBB8_4;
LBB8_35:
 max.s32  %r55, %r8, %r55;
LBB8_38:
 add.s32  %r48, %r48, 1;
 setp.eq.s32  %p18, %r48, %r34;
 @%p18 bra  LBB8_7;
LBB8_4:
 .pragma "nounroll";
 mov.u32  %r8, %r55;
 mul.lo.s64  %rd28, %rd36, %rd20;
 add.s64  %rd29, %rd28, %rd35;
 add.s64  %rd30, %rd3, %rd29;
 ld.global.u8  %rs1, [%rd30];
 cvt.u32.u16  %r43, %rs1;
 cvt.s32.s8  %r55, %r43;
 @%p3 bra  LBB8_16;
 cvt.s16.s8  %rs3, %rs1;
 cvt.rn.f64.s16  %fd6, %rs3;
 mul.rn.f64  %fd2, %fd6, %fd4;
 setp.lt.f64  %p4, %fd2, 0d41E0000000000000;
 @%p4 bra  LBB8_15;
 bra.uni  LBB8_6;
LBB8_15:
 max.f64  %fd7, %fd2, 0dC1E0000000000000;
 cvt.rzi.s32.f64  %r55, %fd7;
 bra.uni  LBB8_16;
LBB8_6:
 setp.ge.f64  %p5, %fd2, 0d41E0000000000000;
 selp.b32  %r55, 2147483647, 0, %p5;
LBB8_16:
 mul.wide.u32  %rd31, %r48, 4;
 add.s64  %rd32, %rd2, %rd31;
 ld.global.u32  %r13, [%rd32];
 add.s64  %rd36, %rd36, 1;
 setp.lt.u32  %p6, %r13, 2;
 setp.eq.s32  %p24, %r35, 4;
 setp.eq.s32  %p25, %r35, 3;
 setp.ne.s32  %p26, %r35, 2;
 @%p6 bra  LBB8_30;
 add.s32  %r52, %r13, -1;
 mul.lo.s64  %rd33, %rd20, %rd36;
 add.s64  %rd38, %rd34, %rd33;
 bra.uni  LBB8_18;
LBB8_26:
 max.s32  %r55, %r55, %r21;
LBB8_29:
 add.s64  %rd36, %rd36, 1;
 add.s32  %r52, %r52, -1;
 add.s64  %rd38, %rd38, %rd20;
 setp.eq.s32  %p13, %r52, 0;
 @%p13 bra  LBB8_30;
LBB8_18:
 .pragma "nounroll";
 ld.global.u8  %rs2, [%rd38];
 cvt.u32.u16  %r44, %rs2;
 cvt.s32.s8  %r21, %r44;
 @%p3 bra  LBB8_22;
 cvt.s16.s8  %rs4, %rs2;
 cvt.rn.f64.s16  %fd8, %rs4;
 mul.rn.f64  %fd3, %fd8, %fd4;
 setp.lt.f64  %p8, %fd3, 0d41E0000000000000;
 @%p8 bra  LBB8_21;
 bra.uni  LBB8_20;
LBB8_21:
 max.f64  %fd9, %fd3, 0dC1E0000000000000;
 cvt.rzi.s32.f64  %r21, %fd9;
 bra.uni  LBB8_22;
LBB8_20:
 setp.ge.f64  %p9, %fd3, 0d41E0000000000000;
 selp.b32  %r21, 2147483647, 0, %p9;
LBB8_22:
 @%p24 bra  LBB8_27;
 @%p25 bra  LBB8_26;
 @%p26 bra  LBB8_28;
 min.s32  %r55, %r21, %r55;
 bra.uni  LBB8_29;
LBB8_27:
 mul.lo.s32  %r55, %r21, %r55;
 bra.uni  LBB8_29;
LBB8_28:
 add.s32  %r55, %r21, %r55;
 bra.uni  LBB8_29;
LBB8_30:
 setp.eq.s32  %p14, %r48, 0;
 @%p14 bra  LBB8_38;
 @%p24 bra  LBB8_36;
 @%p25 bra  LBB8_35;
 @%p26 bra  LBB8_37;
 min.s32  %r55, %r55, %r8;
 bra.uni  LBB8_38;
LBB8_36:
 mul.lo.s32  %r55, %r55, %r8;
 bra.uni  LBB8_38;
LBB8_37:
 add.s32  %r55, %r55, %r8;
 bra.uni  LBB8_38;
LBB8_7:
 @%p19 bra  LBB8_9;
 div.s32  %r55, %r55, %r36;
LBB8_9:
 @%p20 bra  LBB8_13;
 cvt.rn.f64.s32  %fd10, %r55;
 mul.rn.f64  %fd1, %fd10, %fd5;
 setp.lt.f64  %p21, %fd1, 0d41E0000000000000;
 @%p21 bra  LBB8_12;
 setp.ge.f64  %p22, %fd1, 0d41E0000000000000;
 selp.b32  %r55, 2147483647, 0, %p22;
 bra.uni  LBB8_13;
LBB8_14:
 ret;
}
.visible .entry hvdtune_pack_int16(
 .param .align 8 .b8 hvdtune_pack_int16_param_0[3080],
 .param .u64 hvdtune_pack_int16_param_1,
 .param .f64 hvdtune_pack_int16_param_2
)
{
 .reg .pred  %p<6>;
 .reg .b16  %rs<2>;
 .reg .b32  %r<11>;
 .reg .b64  %rd<31>;
 .reg .f64  %fd<5>;
 mov.b64  %rd17, hvdtune_pack_int16_param_0;
 mov.u64  %rd19, %rd17;
 mov.u32  %r5, %ctaid.y;
 mov.u32  %r6, %ntid.x;
 mov.u32  %r7, %ctaid.x;
 mul.wide.s32  %rd20, %r7, %r6;
 mov.u32  %r8, %tid.x;
 cvt.s64.s32  %rd21, %r8;
 add.s64  %rd30, %rd20, %rd21;
 mul.wide.s32  %rd22, %r5, 24;
 add.s64  %rd23, %rd19, %rd22;
 ld.param.u64  %rd6, [%rd23+24];
 setp.ge.u64  %p1, %rd30, %rd6;
 @%p1 bra  LBB9_7;
 ld.param.f64  %fd2, [hvdtune_pack_int16_param_2];
 ld.param.u64  %rd18, [hvdtune_pack_int16_param_1];
 cvta.to.global.u64  %rd1, %rd18;
 mov.u32  %r9, %nctaid.x;
 mul.wide.s32  %rd3, %r9, %r6;
 ld.param.u64  %rd4, [%rd23+8];
 ld.param.u64  %rd5, [%rd23+16];
 shl.b64  %rd24, %rd5, 2;
 shl.b64  %rd25, %rd30, 2;
 add.s64  %rd26, %rd24, %rd25;
 add.s64  %rd29, %rd1, %rd26;
 shl.b64  %rd8, %rd3, 2;
 shl.b64  %rd27, %rd30, 1;
 add.s64  %rd28, %rd4, %rd27;
 shl.b64  %rd10, %rd3, 1;
 setp.eq.f64  %p2, %fd2, 0d3FF0000000000000;
 bra.uni  LBB9_2;
LBB9_5:
 max.f64  %fd4, %fd1, 0dC1E0000000000000;
 cvt.rzi.s32.f64  %r10, %fd4;
LBB9_6:
 st.global.u32  [%rd29], %r10;
 add.s64  %rd30, %rd30, %rd3;
 add.s64  %rd29, %rd29, %rd8;
 add.s64  %rd28, %rd28, %rd10;
 setp.lt.u64  %p5, %rd30, %rd6;
 @%p5 bra  LBB9_2;
 bra.uni  LBB9_7;
LBB9_2:
 .pragma "nounroll";
 ld.u16  %rs1, [%rd28];
 cvt.s32.s16  %r10, %rs1;
 @%p2 bra  LBB9_6;
 cvt.rn.f64.s16  %fd3, %rs1;
 mul.rn.f64  %fd1, %fd3, %fd2;
 setp.lt.f64  %p3, %fd1, 0d41E0000000000000;
 @%p3 bra  LBB9_5;
 setp.ge.f64  %p4, %fd1, 0d41E0000000000000;
 selp.b32  %r10, 2147483647, 0, %p4;
 bra.uni  LBB9_6;
LBB9_7:
 ret;
}
.visible .entry hvdtune_unpack_int16(
 .param .align 8 .b8 hvdtune_unpack_int16_param_0[3080],
 .param .u64 hvdtune_unpack_int16_param_1,
 .param .u32 hvdtune_unpack_int16_param_2,
 .param .f64 hvdtune_unpack_int16_param_3
)
{
 .reg .pred  %p<7>;
 .reg .b32  %r<15>;
 .reg .b64  %rd<31>;
 .reg .f64  %fd<5>;
 mov.b64  %rd17, hvdtune_unpack_int16_param_0;
 mov.u64  %rd19, %rd17;
 mov.u32  %r8, %ctaid.y;
 mov.u32  %r9, %ntid.x;
 mov.u32  %r10, %ctaid.x;
 mul.wide.s32  %rd20, %r10, %r9;
 mov.u32  %r11, %tid.x;
 cvt.s64.s32  %rd21, %r11;
 add.s64  %rd30, %rd20, %rd21;
 mul.wide.s32  %rd22, %r8, 24;
 add.s64  %rd23, %rd19, %rd22;
 ld.param.u64  %rd6, [%rd23+24];
 setp.ge.u64  %p1, %rd30, %rd6;
 @%p1 bra  LBB10_9;
 ld.param.f64  %fd2, [hvdtune_unpack_int16_param_3];
 ld.param.u32  %r7, [hvdtune_unpack_int16_param_2];
 ld.param.u64  %rd18, [hvdtune_unpack_int16_param_1];
 cvta.to.global.u64  %rd1, %rd18;
 mov.u32  %r12, %nctaid.x;
 mul.wide.s32  %rd3, %r12, %r9;
 ld.param.u64  %rd4, [%rd23+8];
 ld.param.u64  %rd5, [%rd23+16];
 shl.b64  %rd24, %rd5, 2;
 shl.b64  %rd25, %rd30, 2;
 add.s64  %rd26, %rd24, %rd25;
 add.s64  %rd29, %rd1, %rd26;
 shl.b64  %rd8, %rd3, 2;
 shl.b64  %rd27, %rd30, 1;
 add.s64  %rd28, %rd4, %rd27;
 shl.b64  %rd10, %rd3, 1;
 setp.eq.s32  %p2, %r7, 1;
 setp.eq.f64  %p3, %fd2, 0d3FF0000000000000;
 bra.uni  LBB10_2;
LBB10_7:
 max.f64  %fd4, %fd1, 0dC1E0000000000000;
 cvt.rzi.s32.f64  %r14, %fd4;
LBB10_8:
 st.u16  [%rd28], %r14;
 add.s64  %rd30, %rd30, %rd3;
 add.s64  %rd29, %rd29, %rd8;
 add.s64  %rd28, %rd28, %rd10;
 setp.lt.u64  %p6, %rd30, %rd6;
 @%p6 bra  LBB10_2;
 bra.uni  LBB10_9;
LBB10_2:
 .pragma "nounroll";
 ld.global.u32  %r14, [%rd29];
 @%p2 bra  LBB10_4;
 div.s32  %r14, %r14, %r7;
LBB10_4:
 @%p3 bra  LBB10_8;
 cvt.rn.f64.s32  %fd3, %r14;
 mul.rn.f64  %fd1, %fd3, %fd2;
 setp.lt.f64  %p4, %fd1, 0d41E0000000000000;
 @%p4 bra  LBB10_7;
 setp.ge.f64  %p5, %fd1, 0d41E0000000000000;
 selp.b32  %r14, 2147483647, 0, %p5;
 bra.uni  LBB10_8;
LBB10_9:
 ret;
}
.visible .entry hvdtune_reduce_int16(
 .param .u64 hvdtune_reduce_int16_param_0,
 .param .u64 hvdtune_reduce_int16_param_1,
 .param .u64 hvdtune_reduce_int16_param_2,
 .param .u64 hvdtune_reduce_int16_param_3,
 .param .u32 hvdtune_reduce_int16_param_4,
 .param .u32 hvdtune_reduce_int16_param_5,
 .param .f64 hvdtune_reduce_int16_param_6,
 .param .u32 hvdtune_reduce_int16_param_7,
 .param .f64 hvdtune_reduce_int16_param_8,
 .param .u64 hvdtune_reduce_int16_param_9
)
{
 .reg .pred  %p<27>;
 .reg .b16  %rs<3>;
 .reg .b32  %r<55>;
 .reg .b64  %rd<45>;
 .reg .f64  %fd<12>;
 ld.param.u64  %rd23, [hvdtune_reduce_int16_param_2];
 mov.u32  %r37, %ntid.x;
 mov.u32  %r38, %ctaid.x;
 mul.wide.s32  %rd27, %r38, %r37;
 mov.u32  %r39, %tid.x;
 cvt.s64.s32  %rd28, %r39;
 add.s64  %rd40, %rd27, %rd28;
 setp.ge.u64  %p1, %rd40, %rd23;
 @%p1 bra  LBB11_14;
 ld.param.f64  %fd5, [hvdtune_reduce_int16_param_8];
 ld.param.u32  %r36, [hvdtune_reduce_int16_param_7];
 ld.param.f64  %fd4, [hvdtune_reduce_int16_param_6];
 ld.param.u32  %r35, [hvdtune_reduce_int16_param_5];
 ld.param.u32  %r34, [hvdtune_reduce_int16_param_4];
 ld.param.u64  %rd22, [hvdtune_reduce_int16_param_1];
 ld.param.u64  %rd24, [hvdtune_reduce_int16_param_0];
 ld.param.u64  %rd25, [hvdtune_reduce_int16_param_9];
 cvta.to.global.u64  %rd1, %rd25;
 ld.param.u64  %rd26, [hvdtune_reduce_int16_param_3];
 cvta.to.global.u64  %rd2, %rd26;
 cvta.to.global.u64  %rd3, %rd24;
 mov.u32  %r40, %nctaid.x;
 mul.wide.s32  %rd5, %r40, %r37;
 shl.b64  %rd29, %rd40, 1;
 add.s64  %rd39, %rd3, %rd29;
 shl.b64  %rd7, %rd5, 1;
 shl.b64  %rd8, %rd22, 1;
 setp.eq.s32  %p2, %r34, 0;
 mov.u32  %r41, 0;
 setp.eq.s32  %p19, %r36, 1;
 setp.eq.f64  %p20, %fd5, 0d3FF0000000000000;
 setp.eq.f64  %p3, %fd4, 0d3FF0000000000000;
 bra.uni  LBB11_2;
LBB11_12:
 max.f64  %fd11, %fd1, 0dC1E0000000000000;
 cvt.rzi.s32.f64  %r53, %fd11;
LBB11_13:
 st.global.u16  [%rd11], %r53;
 add.s64  %rd40, %rd40, %rd5;
 add.s64  %rd39, %rd39, %rd7;
 setp.lt.u64  %p23, %rd40, %rd23;
 @%p23 bra  LBB11_2;
 bra.uni  LBB11_14;
LBB11_2:
 .pragma "nounroll";
 mov.u32  %r53, %r41;
 @%p2 bra  LBB11_7;
 mov.u64  %rd41, 0;
 mov.u32  %r46, 0;
 mov.u32  %r53, %r46;
 bra.uni  LBB11_4;
LBB11_35:
 max.s32  %r53, %r8, %r53;
LBB11_38:
 add.s32  %r46, %r46, 1;
 setp.eq.s32  %p18, %r46, %r34;
 @%p18 bra  LBB11_7;
LBB11_4:
 .pragma "nounroll";
 mov.u32  %r8, %r53;
 mul.lo.s64  %rd31, %rd41, %rd22;
 add.s64  %rd32, %rd31, %rd40;
 shl.b64  %rd33, %rd32, 1;
 add.s64  %rd34, %rd3, %rd33;
 ld.global.u16  %rs1, [%rd34];
 cvt.s32.s16  %r53, %rs1;
 @%p3 bra  LBB11_16;
 cvt.rn.f64.s16  %fd6, %rs1;
 mul.rn.f64  %fd2, %fd6, %fd4;
 setp.lt.f64  %p4, %fd2, 0d41E0000000000000;
 @%p4 bra  LBB11_15;
 bra.uni  LBB11_6;
LBB11_15:
 max.f64  %fd7, %fd2, 0dC1E0000000000000;
 cvt.rzi.s32.f64  %r53, %fd7;
 bra.uni  LBB11_16;
LBB11_6:
 setp.ge.f64  %p5, %fd2, 0d41E0000000000000;
 selp.b32  %r53, 2147483647, 0, %p5;
LBB11_16:
 mul.wide.u32  %rd35, %r46, 4;
 add.s64  %rd36, %rd2, %rd35;
 ld.global.u32  %r13, [%rd36];
 add.s64  %rd41, %rd41, 1;
 setp.lt.u32  %p6, %r13, 2;
 setp.eq.s32  %p24, %r35, 4;
 setp.eq.s32  %p25, %r35, 3;
 setp.ne.s32  %p26, %r35, 2;
 @%p6 bra  LBB11_30;
 add.s32  %r50, %r13, -1;
 mul.lo.s64  %rd37, %rd8, %rd41;
 add.s64  %rd43, %rd39, %rd37;
 bra.uni  LBB11_18;
LBB11_26:
 max.s32  %r53, %r53, %r21;
LBB11_29:
 add.s64  %rd41, %rd41, 1;
 add.s32  %r50, %r50, -1;
 add.s64  %rd43, %rd43, %rd8;
 setp.eq.s32  %p13, %r50, 0;
 @%p13 bra  LBB11_30;
LBB11_18:
 .pragma "nounroll";
 ld.global.u16  %rs2, [%rd43];
 cvt.s32.s16  %r21, %rs2;
 @%p3 bra  LBB11_22;
 cvt.rn.f64.s16  %fd8, %rs2;
 mul.rn.f64  %fd3, %fd8, %fd4;
 setp.lt.f64  %p8, %fd3, 0d41E0000000000000;
 @%p8 bra  LBB11_21;
 bra.uni  LBB11_20;
LBB11_21:
 max.f64  %fd9, %fd3, 0dC1E0000000000000;
 cvt.rzi.s32.f64  %r21, %fd9;
 bra.uni  LBB11_22;
LBB11_20:
 setp.ge.f64  %p9, %fd3, 0d41E0000000000000;
 selp.b32  %r21, 2147483647, 0, %p9;
LBB11_22:
 @%p24 bra  LBB11_27;
 @%p25 bra  LBB11_26;
 @%p26 bra  LBB11_28;
 min.s32  %r53, %r21, %r53;
 bra.uni  LBB11_29;
LBB11_27:
 mul.lo.s32  %r53, %r21, %r53;
 bra.uni  LBB11_29;
LBB11_28:
 add.s32  %r53, %r21, %r53;
 bra.uni  LBB11_29;
LBB11_30:
 setp.eq.s32  %p14, %r46, 0;
 @%p14 bra  LBB11_38;
 @%p24 bra  LBB11_36;
 @%p25 bra  LBB11_35;
 @%p26 bra  LBB11_37;
 min.s32  %r53, %r53, %r8;
 bra.uni  LBB11_38;
LBB11_36:
 mul.lo.s32  %r53, %r53, %r8;
 bra.uni  LBB11_38;
LBB11_37:
 add.s32  %r53, %r53, %r8;
 bra.uni  LBB11_38;
LBB11_7:
 @%p19 bra  LBB11_9;
 div.s32  %r53, %r53, %r36;
LBB11_9:
 shl.b64  %rd38, %rd40, 1;
 add.s64  %rd11, %rd1, %rd38;
 @%p20 bra  LBB11_13;
 cvt.rn.f64.s32  %fd10, %r53;
 mul.rn.f64  %fd1, %fd10, %fd5;
 setp.lt.f64  %p21, %fd1, 0d41E0000000000000;
 @%p21 bra  LBB11_12;
 setp.ge.f64  %p22, %fd1, 0d41E0000000000000;
 selp.b32  %r53, 2147483647, 0, %p22;
 bra.uni  LBB11_13;
LBB11_14:
 ret;
}
.visible .entry hvdtune_pack_uint16(
 .param .align 8 .b8 hvdtune_pack_uint16_param_0[3080],
 .param .u64 hvdtune_pack_uint16_param_1,
 .param .f64 hvdtune_pack_uint16_param_2
)
{
 .reg .pred  %p<6>;
 .reg .b16  %rs<2>;
 .reg .b32  %r<11>;
 .reg .b64  %rd<31>;
 .reg .f64  %fd<5>;
 mov.b64  %rd17, hvdtune_pack_uint16_param_0;
 mov.u64  %rd19, %rd17;
 mov.u32  %r5, %ctaid.y;
 mov.u32  %r6, %ntid.x;
 mov.u32  %r7, %ctaid.x;
 mul.wide.s32  %rd20, %r7, %r6;
 mov.u32  %r8, %tid.x;
 cvt.s64.s32  %rd21, %r8;
 add.s64  %rd30, %rd20, %rd21;
 mul.wide.s32  %rd22, %r5, 24;
 add.s64  %rd23, %rd19, %rd22;
 ld.param.u64  %rd6, [%rd23+24];
 setp.ge.u64  %p1, %rd30, %rd6;
 @%p1 bra  LBB12_7;
 ld.param.f64  %fd2, [hvdtune_pack_uint16_param_2];
 ld.param.u64  %rd18, [hvdtune_pack_uint16_param_1];
 cvta.to.global.u64  %rd1, %rd18;
 mov.u32  %r9, %nctaid.x;
 mul.wide.s32  %rd3, %r9, %r6;
 ld.param.u64  %rd4, [%rd23+8];
 ld.param.u64  %rd5, [%rd23+16];
 shl.b64  %rd24, %rd5, 2;
 shl.b64  %rd25, %rd30, 2;
 add.s64  %rd26, %rd24, %rd25;
 add.s64  %rd29, %rd1, %rd26;
 shl.b64  %rd8, %rd3, 2;
 shl.b64  %rd27, %rd30, 1;
 add.s64  %rd28, %rd4, %rd27;
 shl.b64  %rd10, %rd3, 1;
 setp.eq.f64  %p2, %fd2, 0d3FF0000000000000;
 bra.uni  LBB12_2;
LBB12_5:
 max.f64  %fd4, %fd1, 0dC1E0000000000000;
 cvt.rzi.s32.f64  %r10, %fd4;
LBB12_6:
 st.global.u32  [%rd29], %r10;
 add.s64  %rd30, %rd30, %rd3;
 add.s64  %rd29, %rd29, %rd8;
 add.s64  %rd28, %rd28, %rd10;
 setp.lt.u64  %p5, %rd30, %rd6;
 @%p5 bra  LBB12_2;
 bra.uni  LBB12_7;
LBB12_2:
 .pragma "nounroll";
 ld.u16  %rs1, [%rd28];
 cvt.u32.u16  %r10, %rs1;
 @%p2 bra  LBB12_6;
 cvt.rn.f64.u16  %fd3, %rs1;
 mul.rn.f64  %fd1, %fd3, %fd2;
 setp.lt.f64  %p3, %fd1, 0d41E0000000000000;
 @%p3 bra  LBB12_5;
 setp.ge.f64  %p4, %fd1, 0d41E0000000000000;
 selp.b32  %r10, 2147483647, 0, %p4;
 bra.uni  LBB12_6;
LBB12_7:
 ret;
}
.visible .entry hvdtune_unpack_uint16(
 .param .align 8 .b8 hvdtune_unpack_uint16_param_0[3080],
 .param .u64 hvdtune_unpack_uint16_param_1,
 .param .u32 hvdtune_unpack_uint16_param_2,
 .param .f64 hvdtune_unpack_uint16_param_3
)
{
 .reg .pred  %p<7>;
 .reg .b32  %r<15>;
 .reg .b64  %rd<31>;
 .reg .f64  %fd<5>;
 mov.b64  %rd17, hvdtune_unpack_uint16_param_0;
 mov.u64  %rd19, %rd17;
 mov.u32  %r8, %ctaid.y;
 mov.u32  %r9, %ntid.x;
 mov.u32  %r10, %ctaid.x;
 mul.wide.s32  %rd20, %r10, %r9;
 mov.u32  %r11, %tid.x;
 cvt.s64.s32  %rd21, %r11;
 add.s64  %rd30, %rd20, %rd21;
 mul.wide.s32  %rd22, %r8, 24;
 add.s64  %rd23, %rd19, %rd22;
 ld.param.u64  %rd6, [%rd23+24];
 setp.ge.u64  %p1, %rd30, %rd6;
 @%p1 bra  LBB13_9;
 ld.param.f64  %fd2, [hvdtune_unpack_uint16_param_3];
 ld.param.u32  %r7, [hvdtune_unpack_uint16_param_2];
 ld.param.u64  %rd18, [hvdtune_unpack_uint16_param_1];
 cvta.to.global.u64  %rd1, %rd18;
 mov.u32  %r12, %nctaid.x;
 mul.wide.s32  %rd3, %r12, %r9;
 ld.param.u64  %rd4, [%rd23+8];
 ld.param.u64  %rd5, [%rd23+16];
 shl.b64  %rd24, %rd5, 2;
 shl.b64  %rd25, %rd30, 2;
 add.s64  %rd26, %rd24, %rd25;
 add.s64  %rd29, %rd1, %rd26;
 shl.b64  %rd8, %rd3, 2;
 shl.b64  %rd27, %rd30, 1;
 add.s64  %rd28, %rd4, %rd27;
 shl.b64  %rd10, %rd3, 1;
 setp.eq.s32  %p2, %r7, 1;
 setp.eq.f64  %p3, %fd2, 0d3FF0000000000000;
 bra.uni  LBB13_2;
LBB13_7:
 max.f64  %fd4, %fd1, 0dC1E0000000000000;
 cvt.rzi.s32.f64  %r14, %fd4;
LBB13_8:
 st.u16  [%rd28], %r14;
 add.s64  %rd30, %rd30, %rd3;
 add.s64  %rd29, %rd29, %rd8;
 add.s64  %rd28, %rd28, %rd10;
 setp.lt.u64  %p6, %rd30, %rd6;
 @%p6 bra  LBB13_2;
 bra.uni  LBB13_9;
LBB13_2:
 .pragma "nounroll";
 ld.global.u32  %r14, [%rd29];
 @%p2 bra  LBB13_4;
 div.s32  %r14, %r14, %r7;
LBB13_4:
 @%p3 bra  LBB13_8;
 cvt.rn.f64.s32  %fd3, %r14;
 mul.rn.f64  %fd1, %fd3, %fd2;
 setp.lt.f64  %p4, %fd1, 0d41E0000000000000;
 @%p4 bra  LBB13_7;
 setp.ge.f64  %p5, %fd1, 0d41E0000000000000;
 selp.b32  %r14, 2147483647, 0, %p5;
 bra.uni  LBB13_8;
LBB13_9:
 ret;
}
.visible .entry hvdtune_reduce_uint16(
 .param .u64 hvdtune_reduce_uint16_param_0,
 .param .u64 hvdtune_reduce_uint16_param_1,
 .param .u64 hvdtune_reduce_uint16_param_2,
 .param .u64 hvdtune_reduce_uint16_param_3,
 .param .u32 hvdtune_reduce_uint16_param_4,
 .param .u32 hvdtune_reduce_uint16_param_5,
 .param .f64 hvdtune_reduce_uint16_param_6,
 .param .u32 hvdtune_reduce_uint16_param_7,
 .param .f64 hvdtune_reduce_uint16_param_8,
 .param .u64 hvdtune_reduce_uint16_param_9
)
{
 .reg .pred  %p<27>;
 .reg .b16  %rs<3>;
 .reg .b32  %r<55>;
 .reg .b64  %rd<45>;
 .reg .f64  %fd<12>;
 ld.param.u64  %rd23, [hvdtune_reduce_uint16_param_2];
 mov.u32  %r37, %ntid.x;
 mov.u32  %r38, %ctaid.x;
 mul.wide.s32  %rd27, %r38, %r37;
 mov.u32  %r39, %tid.x;
 cvt.s64.s32  %rd28, %r39;
 add.s64  %rd40, %rd27, %rd28;
 setp.ge.u64  %p1, %rd40, %rd23;
 @%p1 bra  LBB14_14;
 ld.param.f64  %fd5, [hvdtune_reduce_uint16_param_8];
 ld.param.u32  %r36, [hvdtune_reduce_uint16_param_7];
 ld.param.f64  %fd4, [hvdtune_reduce_uint16_param_6];
 ld.param.u32  %r35, [hvdtune_reduce_uint16_param_5];
 ld.param.u32  %r34, [hvdtune_reduce_uint16_param_4];
 ld.param.u64  %rd22, [hvdtune_reduce_uint16_param_1];
 ld.param.u64  %rd24, [hvdtune_reduce_uint16_param_0];
 ld.param.u64  %rd25, [hvdtune_reduce_uint16_param_9];
 cvta.to.global.u64  %rd1, %rd25;
 ld.param.u64  %rd26, [hvdtune_reduce_uint16_param_3];
 cvta.to.global.u64  %rd2, %rd26;
 cvta.to.global.u64  %rd3, %rd24;
 mov.u32  %r40, %nctaid.x;
 mul.wide.s32  %rd5, %r40, %r37;
 shl.b64  %rd29, %rd40, 1;
 add.s64  %rd39, %rd3, %rd29;
 shl.b64  %rd7, %rd5, 1;
 shl.b64  %rd8, %rd22, 1;
 setp.eq.s32  %p2, %r34, 0;
 mov.u32  %r41, 0;
 setp.eq.s32  %p19, %r36, 1;
 setp.eq.f64  %p20, %fd5, 0d3FF0000000000000;
 setp.eq.f64  %p3, %fd4, 0d3FF0000000000000;
 bra.uni  LBB14_2;
LBB14_12:
 max.f64  %fd11, %fd1, 0dC1E0000000000000;
 cvt.rzi.s32.f64  %r53, %fd11;
LBB14_13:
 st.global.u16  [%rd11], %r53;
 add.s64  %rd40, %rd40, %rd5;
 add.s64  %rd39, %rd39, %rd7;
 setp.lt.u64  %p23, %rd40, %rd23;
 @%p23 bra  LBB14_2;
 bra.uni  LBB14_14;
LBB14_2:
 .pragma "nounroll";
 mov.u32  %r53, %r41;
 @%p2 bra  LBB14_7;
 mov.u64  %rd41, 0;
 mov.u32  %r46, 0;
 mov.u32  %r53, %r46;
 bra.uni  LBB14_4;
LBB14_35:
 max.s32  %r53, %r8, %r53;
LBB14_38:
 add.s32  %r46, %r46, 1;
 setp.eq.s32  %p18, %r46, %r34;
 @%p18 bra  LBB14_7;
LBB14_4:
 .pragma "nounroll";
 mov.u32  %r8, %r53;
 mul.lo.s64  %rd31, %rd41, %rd22;
 add.s64  %rd32, %rd31, %rd40;
 shl.b64  %rd33, %rd32, 1;
 add.s64  %rd34, %rd3, %rd33;
 ld.global.u16  %rs1, [%rd34];
 cvt.u32.u16  %r53, %rs1;
 @%p3 bra  LBB14_16;
 cvt.rn.f64.u16  %fd6, %rs1;
 mul.rn.f64  %fd2, %fd6, %fd4;
 setp.lt.f64  %p4, %fd2, 0d41E0000000000000;
 @%p4 bra  LBB14_15;
 bra.uni  LBB14_6;
LBB14_15:
 max.f64  %fd7, %fd2, 0dC1E0000000000000;
 cvt.rzi.s32.f64  %r53, %fd7;
 bra.uni  LBB14_16;
LBB14_6:
 setp.ge.f64  %p5, %fd2, 0d41E0000000000000;
 selp.b32  %r53, 2147483647, 0, %p5;
LBB14_16:
 mul.wide.u32  %rd35, %r46, 4;
 add.s64  %rd36, %rd2, %rd35;
 ld.global.u32  %r13, [%rd36];
 add.s64  %rd41, %rd41, 1;
 setp.lt.u32  %p6, %r13, 2;
 setp.eq.s32  %p24, %r35, 4;
 setp.eq.s32  %p25, %r35, 3;
 setp.ne.s32  %p26, %r35, 2;
 @%p6 bra  LBB14_30;
 add.s32  %r50, %r13, -1;
 mul.lo.s64  %rd37, %rd8, %rd41;
 add.s64  %rd43, %rd39, %rd37;
 bra.uni  LBB14_18;
LBB14_26:
 max.s32  %r53, %r53, %r21;
LBB14_29:
 add.s64  %rd41, %rd41, 1;
 add.s32  %r50, %r50, -1;
 add.s64  %rd43, %rd43, %rd8;
 setp.eq.s32  %p13, %r50, 0;
 @%p13 bra  LBB14_30;
LBB14_18:
 .pragma "nounroll";
 ld.global.u16  %rs2, [%rd43];
 cvt.u32.u16  %r21, %rs2;
 @%p3 bra  LBB14_22;
 cvt.rn.f64.u16  %fd8, %rs2;
 mul.rn.f64  %fd3, %fd8, %fd4;
 setp.lt.f64  %p8, %fd3, 0d41E0000000000000;
 @%p8 bra  LBB14_21;
 bra.uni  LBB14_20;
LBB14_21:
 max.f64  %fd9, %fd3, 0dC1E0000000000000;
 cvt.rzi.s32.f64  %r21, %fd9;
 bra.uni  LBB14_22;
LBB14_20:
 setp.ge.f64  %p9, %fd3, 0d41E0000000000000;
 selp.b32  %r21, 2147483647, 0, %p9;
LBB14_22:
 @%p24 bra  LBB14_27;
 @%p25 bra  LBB14_26;
 @%p26 bra  LBB14_28;
 min.s32  %r53, %r21, %r53;
 bra.uni  LBB14_29;
LBB14_27:
 mul.lo.s32  %r53, %r21, %r53;
 bra.uni  LBB14_29;
LBB14_28:
 add.s32  %r53, %r21, %r53;
 bra.uni  LBB14_29;
LBB14_30:
 setp.eq.s32  %p14, %r46, 0;
 @%p14 bra  LBB14_38;
 @%p24 bra  LBB14_36;
 @%p25 bra  LBB14_35;
 @%p26 bra  LBB14_37;
 min.s32  %r53, %r53, %r8;
 bra.uni  LBB14_38;
LBB14_36:
 mul.lo.s32  %r53, %r53, %r8;
 bra.uni  LBB14_38;
LBB14_37:
 add.s32  %r53, %r53, %r8;
 bra.uni  LBB14_38;
LBB14_7:
 @%p19 bra  LBB14_9;
 div.s32  %r53, %r53, %r36;
LBB14_9:
 shl.b64  %rd38, %rd40, 1;
 add.s64  %rd11, %rd1, %rd38;
 @%p20 bra  LBB14_13;
 cvt.rn.f64.s32  %fd10, %r53;
 mul.rn.f64  %fd1, %fd10, %fd5;
 setp.lt.f64  %p21, %fd1, 0d41E0000000000000;
 @%p21 bra  LBB14_12;
 setp.ge.f64  %p22, %fd1, 0d41E0000000000000;
 selp.b32  %r53, 2147483647, 0, %p22;
 bra.uni  LBB14_13;
LBB14_14:
 ret;
}
.visible .entry hvdtune_pack_int32(
 .param .align 8 .b8 hvdtune_pack_int32_param_0[3080],
 .param .u64 hvdtune_pack_int32_param_1,
 .param .f64 hvdtune_pack_int32_param_2
)
{
 .reg .pred  %p<6>;
 .reg .b32  %r<11>;
 .reg .b64  %rd<26>;
 .reg .f64  %fd<5>;
 mov.b64  %rd14, hvdtune_pack_int32_param_0;
 mov.u64  %rd16, %rd14;
 mov.u32  %r5, %ctaid.y;
 mov.u32  %r6, %ntid.x;
 mov.u32  %r7, %ctaid.x;
 mul.wide.s32  %rd17, %r7, %r6;
 mov.u32  %r8, %tid.x;
 cvt.s64.s32  %rd18, %r8;
 add.s64  %rd25, %rd17, %rd18;
 mul.wide.s32  %rd19, %r5, 24;
 add.s64  %rd20, %rd16, %rd19;
 ld.param.u64  %rd6, [%rd20+24];
 setp.ge.u64  %p1, %rd25, %rd6;
 @%p1 bra  LBB15_7;
 ld.param.f64  %fd2, [hvdtune_pack_int32_param_2];
 ld.param.u64  %rd15, [hvdtune_pack_int32_param_1];
 cvta.to.global.u64  %rd1, %rd15;
 mov.u32  %r9, %nctaid.x;
 mul.wide.s32  %rd3, %r9, %r6;
 ld.param.u64  %rd4, [%rd20+8];
 ld.param.u64  %rd5, [%rd20+16];
 shl.b64  %rd21, %rd5, 2;
 add.s64  %rd7, %rd1, %rd21;
 shl.b64  %rd24, %rd25, 2;
 shl.b64  %rd9, %rd3, 2;
 setp.eq.f64  %p2, %fd2, 0d3FF0000000000000;
 bra.uni  LBB15_2;
LBB15_5:
 max.f64  %fd4, %fd1, 0dC1E0000000000000;
 cvt.rzi.s32.f64  %r10, %fd4;
LBB15_6:
 add.s64  %rd23, %rd7, %rd24;
 st.global.u32  [%rd23], %r10;
 add.s64  %rd25, %rd25, %rd3;
 add.s64  %rd24, %rd24, %rd9;
 setp.lt.u64  %p5, %rd25, %rd6;
 @%p5 bra  LBB15_2;
 bra.uni  LBB15_7;
LBB15_2:
 .pragma "nounroll";
 add.s64  %rd22, %rd4, %rd24;
 ld.u32  %r10, [%rd22];
 @%p2 bra  LBB15_6;
 cvt.rn.f64.s32  %fd3, %r10;
 mul.rn.f64  %fd1, %fd3, %fd2;
 setp.lt.f64  %p3, %fd1, 0d41E0000000000000;
 @%p3 bra  LBB15_5;
 setp.ge.f64  %p4, %fd1, 0d41E0000000000000;
 selp.b32  %r10, 2147483647, 0, %p4;
 bra.uni  LBB15_6;
LBB15_7:
 ret;
}
.visible .entry hvdtune_unpack_int32(
 .param .align 8 .b8 hvdtune_unpack_int32_param_0[3080],
 .param .u64 hvdtune_unpack_int32_param_1,
 .param .u32 hvdtune_unpack_int32_param_2,
 .param .f64 hvdtune_unpack_int32_param_3
)
{
 .reg .pred  %p<7>;
 .reg .b32  %r<15>;
 .reg .b64  %rd<26>;
 .reg .f64  %fd<5>;
 mov.b64  %rd15, hvdtune_unpack_int32_param_0;
 mov.u64  %rd17, %rd15;
 mov.u32  %r8, %ctaid.y;
 mov.u32  %r9, %ntid.x;
 mov.u32  %r10, %ctaid.x;
 mul.wide.s32  %rd18, %r10, %r9;
 mov.u32  %r11, %tid.x;
 cvt.s64.s32  %rd19, %r11;
 add.s64  %rd25, %rd18, %rd19;
 mul.wide.s32  %rd20, %r8, 24;
 add.s64  %rd21, %rd17, %rd20;
 ld.param.u64  %rd6, [%rd21+24];
 setp.ge.u64  %p1, %rd25, %rd6;
 @%p1 bra  LBB16_9;
 ld.param.f64  %fd2, [hvdtune_unpack_int32_param_3];
 ld.param.u32  %r7, [hvdtune_unpack_int32_param_2];
 ld.param.u64  %rd16, [hvdtune_unpack_int32_param_1];
 cvta.to.global.u64  %rd1, %rd16;
 mov.u32  %r12, %nctaid.x;
 mul.wide.s32  %rd3, %r12, %r9;
 ld.param.u64  %rd4, [%rd21+8];
 ld.param.u64  %rd5, [%rd21+16];
 shl.b64  %rd22, %rd5, 2;
 add.s64  %rd7, %rd1, %rd22;
 shl.b64  %rd24, %rd25, 2;
 shl.b64  %rd9, %rd3, 2;
 setp.eq.s32  %p2, %r7, 1;
 setp.eq.f64  %p3, %fd2, 0d3FF0000000000000;
 bra.uni  LBB16_2;
LBB16_7:
 max.f64  %fd4, %fd1, 0dC1E0000000000000;
 cvt.rzi.s32.f64  %r14, %fd4;
LBB16_8:
 add.s64  %rd12, %rd4, %rd24;
 st.u32  [%rd12], %r14;
 add.s64  %rd25, %rd25, %rd3;
 add.s64  %rd24, %rd24, %rd9;
 setp.lt.u64  %p6, %rd25, %rd6;
 @%p6 bra  LBB16_2;
 bra.uni  LBB16_9;
LBB16_2:
 .pragma "nounroll";
 add.s64  %rd23, %rd7, %rd24;
 ld.global.u32  %r14, [%rd23];
 @%p2 bra  LBB16_4;
 div.s32  %r14, %r14, %r7;
LBB16_4:
 @%p3 bra  LBB16_8;
 cvt.rn.f64.s32  %fd3, %r14;
 mul.rn.f64  %fd1, %fd3, %fd2;
 setp.lt.f64  %p4, %fd1, 0d41E0000000000000;
 @%p4 bra  LBB16_7;
 setp.ge.f64  %p5, %fd1, 0d41E0000000000000;
 selp.b32  %r14, 2147483647, 0, %p5;
 bra.uni  LBB16_8;
LBB16_9:
 ret;
}
.visible .entry hvdtune_reduce_int32(
 .param .u64 hvdtune_reduce_int32_param_0,
 .param .u64 hvdtune_reduce_int32_param_1,
 .param .u64 hvdtune_reduce_int32_param_2,
 .param .u64 hvdtune_reduce_int32_param_3,
 .param .u32 hvdtune_reduce_int32_param_4,
 .param .u32 hvdtune_reduce_int32_param_5,
 .param .f64 hvdtune_reduce_int32_param_6,
 .param .u32 hvdtune_reduce_int32_param_7,
 .param .f64 hvdtune_reduce_int32_param_8,
 .param .u64 hvdtune_reduce_int32_param_9
)
{
 .reg .pred  %p<27>;
 .reg .b32  %r<55>;
 .reg .b64  %rd<45>;
 .reg .f64  %fd<12>;
 ld.param.u64  %rd23, [hvdtune_reduce_int32_param_2];
 mov.u32  %r37, %ntid.x;
 mov.u32  %r38, %ctaid.x;
 mul.wide.s32  %rd27, %r38, %r37;
 mov.u32  %r39, %tid.x;
 cvt.s64.s32  %rd28, %r39;
 add.s64  %rd40, %rd27, %rd28;
 setp.ge.u64  %p1, %rd40, %rd23;
 @%p1 bra  LBB17_14;
 ld.param.f64  %fd5, [hvdtune_reduce_int32_param_8];
 ld.param.u32  %r36, [hvdtune_reduce_int32_param_7];
 ld.param.f64  %fd4, [hvdtune_reduce_int32_param_6];
 ld.param.u32  %r35, [hvdtune_reduce_int32_param_5];
 ld.param.u32  %r34, [hvdtune_reduce_int32_param_4];
 ld.param.u64  %rd22, [hvdtune_reduce_int32_param_1];
 ld.param.u64  %rd24, [hvdtune_reduce_int32_param_0];
 ld.param.u64  %rd25, [hvdtune_reduce_int32_param_9];
 cvta.to.global.u64  %rd1, %rd25;
 ld.param.u64  %rd26, [hvdtune_reduce_int32_param_3];
 cvta.to.global.u64  %rd2, %rd26;
 cvta.to.global.u64  %rd3, %rd24;
 mov.u32  %r40, %nctaid.x;
 mul.wide.s32  %rd5, %r40, %r37;
 shl.b64  %rd29, %rd40, 2;
 add.s64  %rd39, %rd3, %rd29;
 shl.b64  %rd7, %rd5, 2;
 shl.b64  %rd8, %rd22, 2;
 setp.eq.s32  %p2, %r34, 0;
 mov.u32  %r41, 0;
 setp.eq.s32  %p19, %r36, 1;
 setp.eq.f64  %p20, %fd5, 0d3FF0000000000000;
 setp.eq.f64  %p3, %fd4, 0d3FF0000000000000;
 bra.uni  LBB17_2;
LBB17_12:
 max.f64  %fd11, %fd1, 0dC1E0000000000000;
 cvt.rzi.s32.f64  %r53, %fd11;
LBB17_13:
 st.global.u32  [%rd11], %r53;
 add.s64  %rd40, %rd40, %rd5;
 add.s64  %rd39, %rd39, %rd7;
 setp.lt.u64  %p23, %rd40, %rd23;
 @%p23 bra  LBB17_2;
 bra.uni  LBB17_14;
LBB17_2:
 .pragma "nounroll";
 mov.u32  %r53, %r41;
 @%p2 bra  LBB17_7;
 mov.u64  %rd41, 0;
 mov.u32  %r46, 0;
 mov.u32  %r53, %r46;
 bra.uni  LBB17_4;
LBB17_35:
 max.s32  %r53, %r8, %r53;
LBB17_38:
 add.s32  %r46, %r46, 1;
 setp.eq.s32  %p18, %r46, %r34;
 @%p18 bra  LBB17_7;
LBB17_4:
 .pragma "nounroll";
 mov.u32  %r8, %r53;
 mul.lo.s64  %rd31, %rd41, %rd22;
 add.s64  %rd32, %rd31, %rd40;
 shl.b64  %rd33, %rd32, 2;
 add.s64  %rd34, %rd3, %rd33;
 ld.global.u32  %r53, [%rd34];
 @%p3 bra  LBB17_16;
 cvt.rn.f64.s32  %fd6, %r53;
 mul.rn.f64  %fd2, %fd6, %fd4;
 setp.lt.f64  %p4, %fd2, 0d41E0000000000000;
 @%p4 bra  LBB17_15;
 bra.uni  LBB17_6;
LBB17_15:
 max.f64  %fd7, %fd2, 0dC1E0000000000000;
 cvt.rzi.s32.f64  %r53, %fd7;
 bra.uni  LBB17_16;
LBB17_6:
 setp.ge.f64  %p5, %fd2, 0d41E0000000000000;
 selp.b32  %r53, 2147483647, 0, %p5;
LBB17_16:
 mul.wide.u32  %rd35, %r46, 4;
 add.s64  %rd36, %rd2, %rd35;
 ld.global.u32  %r13, [%rd36];
 add.s64  %rd41, %rd41, 1;
 setp.lt.u32  %p6, %r13, 2;
 setp.eq.s32  %p24, %r35, 4;
 setp.eq.s32  %p25, %r35, 3;
 setp.ne.s32  %p26, %r35, 2;
 @%p6 bra  LBB17_30;
 add.s32  %r50, %r13, -1;
 mul.lo.s64  %rd37, %rd8, %rd41;
 add.s64  %rd43, %rd39, %rd37;
 bra.uni  LBB17_18;
LBB17_26:
 max.s32  %r53, %r53, %r21;
LBB17_29:
 add.s64  %rd41, %rd41, 1;
 add.s32  %r50, %r50, -1;
 add.s64  %rd43, %rd43, %rd8;
 setp.eq.s32  %p13, %r50, 0;
 @%p13 bra  LBB17_30;
LBB17_18:
 .pragma "nounroll";
 ld.global.u32  %r21, [%rd43];
 @%p3 bra  LBB17_22;
 cvt.rn.f64.s32  %fd8, %r21;
 mul.rn.f64  %fd3, %fd8, %fd4;
 setp.lt.f64  %p8, %fd3, 0d41E0000000000000;
 @%p8 bra  LBB17_21;
 bra.uni  LBB17_20;
LBB17_21:
 max.f64  %fd9, %fd3, 0dC1E0000000000000;
 cvt.rzi.s32.f64  %r21, %fd9;
 bra.uni  LBB17_22;
LBB17_20:
 setp.ge.f64  %p9, %fd3, 0d41E0000000000000;
 selp.b32  %r21, 2147483647, 0, %p9;
LBB17_22:
 @%p24 bra  LBB17_27;
 @%p25 bra  LBB17_26;
 @%p26 bra  LBB17_28;
 min.s32  %r53, %r21, %r53;
 bra.uni  LBB17_29;
LBB17_27:
 mul.lo.s32  %r53, %r21, %r53;
 bra.uni  LBB17_29;
LBB17_28:
 add.s32  %r53, %r21, %r53;
 bra.uni  LBB17_29;
LBB17_30:
 setp.eq.s32  %p14, %r46, 0;
 @%p14 bra  LBB17_38;
 @%p24 bra  LBB17_36;
 @%p25 bra  LBB17_35;
 @%p26 bra  LBB17_37;
 min.s32  %r53, %r53, %r8;
 bra.uni  LBB17_38;
LBB17_36:
 mul.lo.s32  %r53, %r53, %r8;
 bra.uni  LBB17_38;
LBB17_37:
 add.s32  %r53, %r53, %r8;
 bra.uni  LBB17_38;
LBB17_7:
 @%p19 bra  LBB17_9;
 div.s32  %r53, %r53, %r36;
LBB17_9:
 shl.b64  %rd38, %rd40, 2;
 add.s64  %rd11, %rd1, %rd38;
 @%p20 bra  LBB17_13;
 cvt.rn.f64.s32  %fd10, %r53;
 mul.rn.f64  %fd1, %fd10, %fd5;
 setp.lt.f64  %p21, %fd1, 0d41E0000000000000;
 @%p21 bra  LBB17_12;
 setp.ge.f64  %p22, %fd1, 0d41E0000000000000;
 selp.b32  %r53, 2147483647, 0, %p22;
 bra.uni  LBB17_13;
LBB17_14:
 ret;
}
.visible .entry hvdtune_pack_int64(
 .param .align 8 .b8 hvdtune_pack_int64_param_0[3080],
 .param .u64 hvdtune_pack_int64_param_1,
 .param .f64 hvdtune_pack_int64_param_2
)
{
 .reg .pred  %p<6>;
 .reg .b32  %r<6>;
 .reg .b64  %rd<31>;
 .reg .f64  %fd<5>;
 mov.b64  %rd18, hvdtune_pack_int64_param_0;
 mov.u64  %rd20, %rd18;
 mov.u32  %r1, %ctaid.y;
 mov.u32  %r2, %ntid.x;
 mov.u32  %r3, %ctaid.x;
 mul.wide.s32  %rd21, %r3, %r2;
 mov.u32  %r4, %tid.x;
 cvt.s64.s32  %rd22, %r4;
 add.s64  %rd29, %rd21, %rd22;
 mul.wide.s32  %rd23, %r1, 24;
 add.s64  %rd24, %rd20, %rd23;
 ld.param.u64  %rd6, [%rd24+24];
 setp.ge.u64  %p1, %rd29, %rd6;
 @%p1 bra  LBB18_7;
 ld.param.f64  %fd2, [hvdtune_pack_int64_param_2];
 ld.param.u64  %rd19, [hvdtune_pack_int64_param_1];
 cvta.to.global.u64  %rd1, %rd19;
 mov.u32  %r5, %nctaid.x;
 mul.wide.s32  %rd3, %r5, %r2;
 ld.param.u64  %rd4, [%rd24+8];
 ld.param.u64  %rd5, [%rd24+16];
 shl.b64  %rd25, %rd5, 3;
 add.s64  %rd7, %rd1, %rd25;
 shl.b64  %rd28, %rd29, 3;
 shl.b64  %rd9, %rd3, 3;
 setp.eq.f64  %p2, %fd2, 0d3FF0000000000000;
 bra.uni  LBB18_2;
LBB18_5:
 max.f64  %fd4, %fd1, 0dC3E0000000000000;
 cvt.rzi.s64.f64  %rd30, %fd4;
LBB18_6:
 add.s64  %rd27, %rd7, %rd28;
 st.global.u64  [%rd27], %rd30;
 add.s64  %rd29, %rd29, %rd3;
 add.s64  %rd28, %rd28, %rd9;
 setp.lt.u64  %p5, %rd29, %rd6;
 @%p5 bra  LBB18_2;
 bra.uni  LBB18_7;
LBB18_2:
 .pragma "nounroll";
 add.s64  %rd26, %rd4, %rd28;
 ld.u64  %rd30, [%rd26];
 @%p2 bra  LBB18_6;
 cvt.rn.f64.s64  %fd3, %rd30;
 mul.rn.f64  %fd1, %fd3, %fd2;
 setp.lt.f64  %p3, %fd1, 0d43E0000000000000;
 @%p3 bra  LBB18_5;
 setp.ge.f64  %p4, %fd1, 0d43E0000000000000;
 selp.b64  %rd30, 9223372036854775807, 0, %p4;
 bra.uni  LBB18_6;
LBB18_7:
 ret;
}
.visible .entry hvdtune_unpack_int64(
 .param .align 8 .b8 hvdtune_unpack_int64_param_0[3080],
 .param .u64 hvdtune_unpack_int64_param_1,
 .param .u32 hvdtune_unpack_int64_param_2,
 .param .f64 hvdtune_unpack_int64_param_3
)
{
 .reg .pred  %p<8>;
 .reg .b32  %r<10>;
 .reg .b64  %rd<38>;
 .reg .f64  %fd<5>;
 mov.b64  %rd23, hvdtune_unpack_int64_param_0;
 mov.u64  %rd25, %rd23;
 mov.u32  %r2, %ctaid.y;
 mov.u32  %r3, %ntid.x;
 mov.u32  %r4, %ctaid.x;
 mul.wide.s32  %rd26, %r4, %r3;
 mov.u32  %r5, %tid.x;
 cvt.s64.s32  %rd27, %r5;
 add.s64  %rd35, %rd26, %rd27;
 mul.wide.s32  %rd28, %r2, 24;
 add.s64  %rd29, %rd25, %rd28;
 ld.param.u64  %rd6, [%rd29+24];
 setp.ge.u64  %p1, %rd35, %rd6;
 @%p1 bra  LBB19_11;
 ld.param.f64  %fd2, [hvdtune_unpack_int64_param_3];
 ld.param.u32  %r1, [hvdtune_unpack_int64_param_2];
 ld.param.u64  %rd24, [hvdtune_unpack_int64_param_1];
 cvta.to.global.u64  %rd1, %rd24;
 mov.u32  %r6, %nctaid.x;
 mul.wide.s32  %rd3, %r6, %r3;
 ld.param.u64  %rd4, [%rd29+8];
 ld.param.u64  %rd5, [%rd29+16];
 cvt.s64.s32  %rd7, %r1;
 shl.b64  %rd30, %rd5, 3;
 add.s64  %rd8, %rd1, %rd30;
 shl.b64  %rd34, %rd35, 3;
 shl.b64  %rd10, %rd3, 3;
 setp.eq.s32  %p2, %r1, 1;
 setp.eq.f64  %p4, %fd2, 0d3FF0000000000000;
 cvt.u32.u64  %r7, %rd7;
 bra.uni  LBB19_2;
LBB19_9:
 max.f64  %fd4, %fd1, 0dC3E0000000000000;
 cvt.rzi.s64.f64  %rd37, %fd4;
LBB19_10:
 add.s64  %rd14, %rd4, %rd34;
 st.u64  [%rd14], %rd37;
 add.s64  %rd35, %rd35, %rd3;
 add.s64  %rd34, %rd34, %rd10;
 setp.lt.u64  %p7, %rd35, %rd6;
 @%p7 bra  LBB19_2;
 bra.uni  LBB19_11;
LBB19_2:
 .pragma "nounroll";
 add.s64  %rd31, %rd8, %rd34;
 ld.global.u64  %rd37, [%rd31];
 @%p2 bra  LBB19_6;
 or.b64   %rd32, %rd37, %rd7;
 and.b64   %rd33, %rd32, -4294967296;
 setp.ne.s64  %p3, %rd33, 0;
 @%p3 bra  LBB19_5;
 bra.uni  LBB19_4;
LBB19_5:
 div.s64  %rd37, %rd37, %rd7;
 bra.uni  LBB19_6;
LBB19_4:
 cvt.u32.u64  %r8, %rd37;
 div.u32  %r9, %r8, %r7;
 cvt.u64.u32  %rd37, %r9;
LBB19_6:
 @%p4 bra  LBB19_10;
 cvt.rn.f64.s64  %fd3, %rd37;
 mul.rn.f64  %fd1, %fd3, %fd2;
 setp.lt.f64  %p5, %fd1, 0d43E0000000000000;
 @%p5 bra  LBB19_9;
 setp.ge.f64  %p6, %fd1, 0d43E0000000000000;
 selp.b64  %rd37, 9223372036854775807, 0, %p6;
 bra.uni  LBB19_10;
LBB19_11:
 ret;
}
.visible .entry hvdtune_reduce_int64(
 .param .u64 hvdtune_reduce_int64_param_0,
 .param .u64 hvdtune_reduce_int64_param_1,
 .param .u64 hvdtune_reduce_int64_param_2,
 .param .u64 hvdtune_reduce_int64_param_3,
 .param .u32 hvdtune_reduce_int64_param_4,
 .param .u32 hvdtune_reduce_int64_param_5,
 .param .f64 hvdtune_reduce_int64_param_6,
 .param .u32 hvdtune_reduce_int64_param_7,
 .param .f64 hvdtune_reduce_int64_param_8,
 .param .u64 hvdtune_reduce_int64_param_9
)
{
 .reg .pred  %p<28>;
 .reg .b32  %r<20>;
 .reg .b64  %rd<87>;
 .reg .f64  %fd<12>;
 ld.param.u64  %rd52, [hvdtune_reduce_int64_param_2];
 mov.u32  %r10, %ntid.x;
 mov.u32  %r11, %ctaid.x;
 mul.wide.s32  %rd56, %r11, %r10;
 mov.u32  %r12, %tid.x;
 cvt.s64.s32  %rd57, %r12;
 add.s64  %rd72, %rd56, %rd57;
 setp.ge.u64  %p1, %rd72, %rd52;
 @%p1 bra  LBB20_16;
 ld.param.f64  %fd5, [hvdtune_reduce_int64_param_8];
 ld.param.u32  %r9, [hvdtune_reduce_int64_param_7];
 ld.param.f64  %fd4, [hvdtune_reduce_int64_param_6];
 ld.param.u32  %r8, [hvdtune_reduce_int64_param_5];
 ld.param.u32  %r7, [hvdtune_reduce_int64_param_4];
 ld.param.u64  %rd51, [hvdtune_reduce_int64_param_1];
 ld.param.u64  %rd53, [hvdtune_reduce_int64_param_0];
 ld.param.u64  %rd54, [hvdtune_reduce_int64_param_9];
 cvta.to.global.u64  %rd1, %rd54;
 ld.param.u64  %rd55, [hvdtune_reduce_int64_param_3];
 cvta.to.global.u64  %rd2, %rd55;
 cvta.to.global.u64  %rd3, %rd53;
 mov.u32  %r13, %nctaid.x;
 mul.wide.s32  %rd5, %r13, %r10;
 cvt.s64.s32  %rd6, %r9;
 shl.b64  %rd58, %rd72, 3;
 add.s64  %rd71, %rd3, %rd58;
 shl.b64  %rd8, %rd5, 3;
 shl.b64  %rd9, %rd51, 3;
 setp.eq.s32  %p2, %r7, 0;
 setp.eq.s32  %p19, %r9, 1;
 setp.eq.f64  %p21, %fd5, 0d3FF0000000000000;
 cvt.u32.u64  %r15, %rd6;
 mov.u32  %r14, 0;
 setp.eq.f64  %p3, %fd4, 0d3FF0000000000000;
 bra.uni  LBB20_2;
LBB20_14:
 max.f64  %fd11, %fd1, 0dC3E0000000000000;
 cvt.rzi.s64.f64  %rd85, %fd11;
LBB20_15:
 st.global.u64  [%rd13], %rd85;
 add.s64  %rd72, %rd72, %rd5;
 add.s64  %rd71, %rd71, %rd8;
 setp.lt.u64  %p24, %rd72, %rd52;
 @%p24 bra  LBB20_2;
 bra.uni  LBB20_16;
LBB20_2:
 .pragma "nounroll";
 mov.u64  %rd85, 0;
 @%p2 bra  LBB20_7;
 mov.u64  %rd76, 0;
 mov.u32  %r18, %r14;
 mov.u64  %rd85, %rd76;
 bra.uni  LBB20_4;
LBB20_37:
 max.s64  %rd85, %rd23, %rd85;
LBB20_40:
 add.s32  %r18, %r18, 1;
 setp.eq.s32  %p18, %r18, %r7;
 @%p18 bra  LBB20_7;
LBB20_4:
 .pragma "nounroll";
 mov.u64  %rd23, %rd85;
 mul.lo.s64  %rd61, %rd76, %rd51;
 add.s64  %rd62, %rd61, %rd72;
 shl.b64  %rd63, %rd62, 3;
 add.s64  %rd64, %rd3, %rd63;
 ld.global.u64  %rd85, [%rd64];
 @%p3 bra  LBB20_18;
 cvt.rn.f64.s64  %fd6, %rd85;
 mul.rn.f64  %fd2, %fd6, %fd4;
 setp.lt.f64  %p4, %fd2, 0d43E0000000000000;
 @%p4 bra  LBB20_17;
 bra.uni  LBB20_6;
LBB20_17:
 max.f64  %fd7, %fd2, 0dC3E0000000000000;
 cvt.rzi.s64.f64  %rd85, %fd7;
 bra.uni  LBB20_18;
LBB20_6:
 setp.ge.f64  %p5, %fd2, 0d43E0000000000000;
 selp.b64  %rd85, 9223372036854775807, 0, %p5;
LBB20_18:
 mul.wide.u32  %rd65, %r18, 4;
 add.s64  %rd66, %rd2, %rd65;
 ld.global.u32  %r2, [%rd66];
 add.s64  %rd76, %rd76, 1;
 setp.lt.u32  %p6, %r2, 2;
 setp.eq.s32  %p25, %r8, 4;
 setp.eq.s32  %p26, %r8, 3;
 setp.ne.s32  %p27, %r8, 2;
 @%p6 bra  LBB20_32;
 add.s32  %r19, %r2, -1;
 mul.lo.s64  %rd67, %rd9, %rd76;
 add.s64  %rd81, %rd71, %rd67;
 bra.uni  LBB20_20;
LBB20_28:
 max.s64  %rd85, %rd85, %rd38;
LBB20_31:
 add.s64  %rd76, %rd76, 1;
 add.s32  %r19, %r19, -1;
 add.s64  %rd81, %rd81, %rd9;
 setp.eq.s32  %p13, %r19, 0;
 @%p13 bra  LBB20_32;
LBB20_20:
 .pragma "nounroll";
 ld.global.u64  %rd38, [%rd81];
 @%p3 bra  LBB20_24;
 cvt.rn.f64.s64  %fd8, %rd38;
 mul.rn.f64  %fd3, %fd8, %fd4;
 setp.lt.f64  %p8, %fd3, 0d43E0000000000000;
 @%p8 bra  LBB20_23;
 bra.uni  LBB20_22;
LBB20_23:
 max.f64  %fd9, %fd3, 0dC3E0000000000000;
 cvt.rzi.s64.f64  %rd38, %fd9;
 bra.uni  LBB20_24;
LBB20_22:
 setp.ge.f64  %p9, %fd3, 0d43E0000000000000;
 selp.b64  %rd38, 9223372036854775807, 0, %p9;
LBB20_24:
 @%p25 bra  LBB20_29;
 @%p26 bra  LBB20_28;
 @%p27 bra  LBB20_30;
 min.s64  %rd85, %rd38, %rd85;
 bra.uni  LBB20_31;
LBB20_29:
 mul.lo.s64  %rd85, %rd38, %rd85;
 bra.uni  LBB20_31;
LBB20_30:
 add.s64  %rd85, %rd38, %rd85;
 bra.uni  LBB20_31;
LBB20_32:
 setp.eq.s32  %p14, %r18, 0;
 @%p14 bra  LBB20_40;
 @%p25 bra  LBB20_38;
 @%p26 bra  LBB20_37;
 @%p27 bra  LBB20_39;
 min.s64  %rd85, %rd85, %rd23;
 bra.uni  LBB20_40;
LBB20_38:
 mul.lo.s64  %rd85, %rd85, %rd23;
 bra.uni  LBB20_40;
LBB20_39:
 add.s64  %rd85, %rd85, %rd23;
 bra.uni  LBB20_40;
LBB20_7:
 @%p19 bra  LBB20_11;
 or.b64   %rd69, %rd85, %rd6;
 and.b64   %rd70, %rd69, -4294967296;
 setp.ne.s64  %p20, %rd70, 0;
 @%p20 bra  LBB20_10;
 bra.uni  LBB20_9;
LBB20_10:
 div.s64  %rd85, %rd85, %rd6;
 bra.uni  LBB20_11;
LBB20_9:
 cvt.u32.u64  %r16, %rd85;
 div.u32  %r17, %r16, %r15;
 cvt.u64.u32  %rd85, %r17;
LBB20_11:
 shl.b64  %rd68, %rd72, 3;
 add.s64  %rd13, %rd1, %rd68;
 @%p21 bra  LBB20_15;
 cvt.rn.f64.s64  %fd10, %rd85;
 mul.rn.f64  %fd1, %fd10, %fd5;
 setp.lt.f64  %p22, %fd1, 0d43E0000000000000;
 @%p22 bra  LBB20_14;
 setp.ge.f64  %p23, %fd1, 0d43E0000000000000;
 selp.b64  %rd85, 9223372036854775807, 0, %p23;
 bra.uni  LBB20_15;
LBB20_16:
 ret;
}
.visible .entry hvdtune_pack_float16(
 .param .align 8 .b8 hvdtune_pack_float16_param_0[3080],
 .param .u64 hvdtune_pack_float16_param_1,
 .param .f64 hvdtune_pack_float16_param_2
)
{
 .reg .pred  %p<8>;
 .reg .b16  %rs<3>;
 .reg .b32  %r<26>;
 .reg .f32  %f<9>;
 .reg .b64  %rd<26>;
 .reg .f64  %fd<2>;
 mov.b64  %rd14, hvdtune_pack_float16_param_0;
 mov.u64  %rd16, %rd14;
 mov.u32  %r1, %ctaid.y;
 mov.u32  %r2, %ntid.x;
 mov.u32  %r3, %ctaid.x;
 mul.wide.s32  %rd17, %r3, %r2;
 mov.u32  %r4, %tid.x;
 cvt.s64.s32  %rd18, %r4;
 add.s64  %rd25, %rd17, %rd18;
 mul.wide.s32  %rd19, %r1, 24;
 add.s64  %rd20, %rd16, %rd19;
 ld.param.u64  %rd6, [%rd20+24];
 setp.ge.u64  %p1, %rd25, %rd6;
 @%p1 bra  LBB21_3;
 ld.param.f64  %fd1, [hvdtune_pack_float16_param_2];
 ld.param.u64  %rd15, [hvdtune_pack_float16_param_1];
 cvta.to.global.u64  %rd1, %rd15;
 mov.u32  %r5, %nctaid.x;
 mul.wide.s32  %rd3, %r5, %r2;
 ld.param.u64  %rd4, [%rd20+8];
 ld.param.u64  %rd5, [%rd20+16];
 setp.neu.f64  %p2, %fd1, 0d3FF0000000000000;
 cvt.rn.f32.f64  %f2, %fd1;
 selp.f32  %f1, %f2, 0f3F800000, %p2;
 shl.b64  %rd21, %rd5, 1;
 add.s64  %rd7, %rd1, %rd21;
 shl.b64  %rd24, %rd25, 1;
 shl.b64  %rd9, %rd3, 1;
LBB21_2:
 .pragma "nounroll";
 add.s64  %rd22, %rd4, %rd24;
 ld.u16  %rs1, [%rd22];
 cvt.s32.s16  %r6, %rs1;
 and.b32   %r7, %r6, -2147483648;
 and.b16   %rs2, %rs1, 32767;
 mul.wide.u16  %r8, %rs2, 8192;
 mov.b32  %f3, %r8;
 mul.rn.f32  %f4, %f3, 0f77800000;
 setp.gt.u16  %p3, %rs2, 31743;
 selp.b32  %r9, 2139095040, 0, %p3;
 mov.b32  %r10, %f4;
 or.b32   %r11, %r9, %r7;
 or.b32   %r12, %r11, %r10;
 mov.b32  %f5, %r12;
 mul.rn.f32  %f6, %f1, %f5;
 mov.b32  %r13, %f6;
 shr.u32  %r14, %r13, 16;
 and.b32   %r15, %r14, 32768;
 and.b32   %r16, %r13, 2147483647;
 bfe.u32  %r17, %r13, 13, 1;
 add.s32  %r18, %r16, %r17;
 add.s32  %r19, %r18, -939520001;
 shr.u32  %r20, %r19, 13;
 mov.b32  %f7, %r16;
 add.rn.f32  %f8, %f7, 0f3F000000;
 mov.b32  %r21, %f8;
 setp.lt.u32  %p4, %r16, 947912704;
 selp.b32  %r22, %r21, %r20, %p4;
 setp.gt.u32  %p5, %r16, 1199570943;
 selp.b32  %r23, 31744, %r22, %p5;
 setp.gt.u32  %p6, %r16, 2139095040;
 selp.b32  %r24, 32256, %r23, %p6;
 or.b32   %r25, %r24, %r15;
 add.s64  %rd23, %rd7, %rd24;
 st.global.u16  [%rd23], %r25;
 add.s64  %rd25, %rd25, %rd3;
 add.s64  %rd24, %rd24, %rd9;
 setp.lt.u64  %p7, %rd25, %rd6;
 @%p7 bra  LBB21_2;
LBB21_3:
 ret;
}
.visible .entry hvdtune_unpack_float16(
 .param .align 8 .b8 hvdtune_unpack_float16_param_0[3080],
 .param .u64 hvdtune_unpack_float16_param_1,
 .param .u32 hvdtune_unpack_float16_param_2,
 .param .f64 hvdtune_unpack_float16_param_3
)
{
 .reg .pred  %p<8>;
 .reg .b16  %rs<3>;
 .reg .b32  %r<27>;
 .reg .f32  %f<11>;
 .reg .b64  %rd<26>;
 .reg .f64  %fd<2>;
 mov.b64  %rd14, hvdtune_unpack_float16_param_0;
 mov.u64  %rd16, %rd14;
 mov.u32  %r2, %ctaid.y;
 mov.u32  %r3, %ntid.x;
 mov.u32  %r4, %ctaid.x;
 mul.wide.s32  %rd17, %r4, %r3;
 mov.u32  %r5, %tid.x;
 cvt.s64.s32  %rd18, %r5;
 add.s64  %rd25, %rd17, %rd18;
 mul.wide.s32  %rd19, %r2, 24;
 add.s64  %rd20, %rd16, %rd19;
 ld.param.u64  %rd6, [%rd20+24];
 setp.ge.u64  %p1, %rd25, %rd6;
 @%p1 bra  LBB22_3;
 ld.param.f64  %fd1, [hvdtune_unpack_float16_param_3];
 ld.param.u32  %r1, [hvdtune_unpack_float16_param_2];
 ld.param.u64  %rd15, [hvdtune_unpack_float16_param_1];
 cvta.to.global.u64  %rd1, %rd15;
 mov.u32  %r6, %nctaid.x;
 mul.wide.s32  %rd3, %r6, %r3;
 ld.param.u64  %rd4, [%rd20+8];
 ld.param.u64  %rd5, [%rd20+16];
 cvt.rn.f32.s32  %f1, %r1;
 setp.neu.f64  %p2, %fd1, 0d3FF0000000000000;
 cvt.rn.f32.f64  %f3, %fd1;
 selp.f32  %f2, %f3, 0f3F800000, %p2;
 shl.b64  %rd21, %rd5, 1;
 add.s64  %rd7, %rd1, %rd21;
 shl.b64  %rd24, %rd25, 1;
 shl.b64  %rd9, %rd3, 1;
LBB22_2:
 .pragma "nounroll";
 add.s64  %rd22, %rd7, %rd24;
 ld.global.u16  %rs1, [%rd22];
 cvt.s32.s16  %r7, %rs1;
 and.b32   %r8, %r7, -2147483648;
 and.b16   %rs2, %rs1, 32767;
 mul.wide.u16  %r9, %rs2, 8192;
 mov.b32  %f4, %r9;
 mul.rn.f32  %f5, %f4, 0f77800000;
 setp.gt.u16  %p3, %rs2, 31743;
 selp.b32  %r10, 2139095040, 0, %p3;
 mov.b32  %r11, %f5;
 or.b32   %r12, %r10, %r8;
 or.b32   %r13, %r12, %r11;
 mov.b32  %f6, %r13;
 div.rn.f32  %f7, %f6, %f1;
 mul.rn.f32  %f8, %f2, %f7;
 mov.b32  %r14, %f8;
 shr.u32  %r15, %r14, 16;
 and.b32   %r16, %r15, 32768;
 and.b32   %r17, %r14, 2147483647;
 bfe.u32  %r18, %r14, 13, 1;
 add.s32  %r19, %r17, %r18;
 add.s32  %r20, %r19, -939520001;
 shr.u32  %r21, %r20, 13;
 mov.b32  %f9, %r17;
 add.rn.f32  %f10, %f9, 0f3F000000;
 mov.b32  %r22, %f10;
 setp.lt.u32  %p4, %r17, 947912704;
 selp.b32  %r23, %r22, %r21, %p4;
 setp.gt.u32  %p5, %r17, 1199570943;
 selp.b32  %r24, 31744, %r23, %p5;
 setp.gt.u32  %p6, %r17, 2139095040;
 selp.b32  %r25, 32256, %r24, %p6;
 or.b32   %r26, %r25, %r16;
 add.s64  %rd23, %rd4, %rd24;
 st.u16  [%rd23], %r26;
 add.s64  %rd25, %rd25, %rd3;
 add.s64  %rd24, %rd24, %rd9;
 setp.lt.u64  %p7, %rd25, %rd6;
 @%p7 bra  LBB22_2;
LBB22_3:
 ret;
}
.visible .entry hvdtune_reduce_float16(
 .param .u64 hvdtune_reduce_float16_param_0,
 .param .u64 hvdtune_reduce_float16_param_1,
 .param .u64 hvdtune_reduce_float16_param_2,
 .param .u64 hvdtune_reduce_float16_param_3,
 .param .u32 hvdtune_reduce_float16_param_4,
 .param .u32 hvdtune_reduce_float16_param_5,
 .param .f64 hvdtune_reduce_float16_param_6,
 .param .u32 hvdtune_reduce_float16_param_7,
 .param .f64 hvdtune_reduce_float16_param_8,
 .param .u64 hvdtune_reduce_float16_param_9
)
{
 .reg .pred  %p<29>;
 .reg .b16  %rs<5>;
 .reg .b32  %r<44>;
 .reg .f32  %f<44>;
 .reg .b64  %rd<45>;
 .reg .f64  %fd<3>;
 ld.param.u64  %rd22, [hvdtune_reduce_float16_param_2];
 mov.u32  %r10, %ntid.x;
 mov.u32  %r11, %ctaid.x;
 mul.wide.s32  %rd26, %r11, %r10;
 mov.u32  %r12, %tid.x;
 cvt.s64.s32  %rd27, %r12;
 add.s64  %rd40, %rd26, %rd27;
 setp.ge.u64  %p1, %rd40, %rd22;
 @%p1 bra  LBB23_24;
 ld.param.f64  %fd2, [hvdtune_reduce_float16_param_8];
 ld.param.u32  %r9, [hvdtune_reduce_float16_param_7];
 ld.param.f64  %fd1, [hvdtune_reduce_float16_param_6];
 ld.param.u32  %r8, [hvdtune_reduce_float16_param_5];
 ld.param.u32  %r7, [hvdtune_reduce_float16_param_4];
 ld.param.u64  %rd21, [hvdtune_reduce_float16_param_1];
 ld.param.u64  %rd23, [hvdtune_reduce_float16_param_0];
 ld.param.u64  %rd24, [hvdtune_reduce_float16_param_9];
 cvta.to.global.u64  %rd1, %rd24;
 ld.param.u64  %rd25, [hvdtune_reduce_float16_param_3];
 cvta.to.global.u64  %rd2, %rd25;
 cvta.to.global.u64  %rd3, %rd23;
 mov.u32  %r13, %nctaid.x;
 mul.wide.s32  %rd5, %r13, %r10;
 cvt.rn.f32.s32  %f1, %r9;
 setp.neu.f64  %p2, %fd2, 0d3FF0000000000000;
 cvt.rn.f32.f64  %f20, %fd2;
 selp.f32  %f2, %f20, 0f3F800000, %p2;
 setp.neu.f64  %p3, %fd1, 0d3FF0000000000000;
 cvt.rn.f32.f64  %f21, %fd1;
 selp.f32  %f3, %f21, 0f3F800000, %p3;
 shl.b64  %rd28, %rd40, 1;
 add.s64  %rd39, %rd3, %rd28;
 shl.b64  %rd7, %rd5, 1;
 shl.b64  %rd8, %rd21, 1;
 setp.eq.s32  %p4, %r7, 0;
 mov.f32  %f22, 0f00000000;
 mov.u32  %r14, 0;
 setp.eq.s32  %p8, %r8, 4;
 setp.eq.s32  %p9, %r8, 3;
 setp.ne.s32  %p10, %r8, 2;
 bra.uni  LBB23_2;
LBB23_23:
 div.rn.f32  %f34, %f42, %f1;
 mul.rn.f32  %f35, %f2, %f34;
 mov.b32  %r29, %f35;
 shr.u32  %r30, %r29, 16;
 and.b32   %r31, %r30, 32768;
 and.b32   %r32, %r29, 2147483647;
 bfe.u32  %r33, %r29, 13, 1;
 add.s32  %r34, %r32, %r33;
 add.s32  %r35, %r34, -939520001;
 shr.u32  %r36, %r35, 13;
 mov.b32  %f36, %r32;
 add.rn.f32  %f37, %f36, 0f3F000000;
 mov.b32  %r37, %f37;
 setp.lt.u32  %p25, %r32, 947912704;
 selp.b32  %r38, %r37, %r36, %p25;
 setp.gt.u32  %p26, %r32, 1199570943;
 selp.b32  %r39, 31744, %r38, %p26;
 setp.gt.u32  %p27, %r32, 2139095040;
 selp.b32  %r40, 32256, %r39, %p27;
 or.b32   %r41, %r40, %r31;
 shl.b64  %rd37, %rd40, 1;
 add.s64  %rd38, %rd1, %rd37;
 st.global.u16  [%rd38], %r41;
 add.s64  %rd40, %rd40, %rd5;
 add.s64  %rd39, %rd39, %rd7;
 setp.lt.u64  %p28, %rd40, %rd22;
 @%p28 bra  LBB23_2;
 bra.uni  LBB23_24;
LBB23_2:
 .pragma "nounroll";
 mov.f32  %f42, %f22;
 @%p4 bra  LBB23_23;
 mov.f32  %f42, 0f00000000;
 mov.u64  %rd41, 0;
 mov.u32  %r42, %r14;
 bra.uni  LBB23_4;
LBB23_19:
 setp.lt.f32  %p20, %f5, %f42;
 setp.nan.f32  %p21, %f42, %f42;
 selp.f32  %f32, %f42, %f5, %p21;
 selp.f32  %f42, %f42, %f32, %p20;
LBB23_22:
 add.s32  %r42, %r42, 1;
 setp.eq.s32  %p24, %r42, %r7;
 @%p24 bra  LBB23_23;
LBB23_4:
 .pragma "nounroll";
 mov.f32  %f5, %f42;
 mul.lo.s64  %rd30, %rd41, %rd21;
 add.s64  %rd31, %rd30, %rd40;
 shl.b64  %rd32, %rd31, 1;
 add.s64  %rd33, %rd3, %rd32;
 ld.global.u16  %rs1, [%rd33];
 cvt.s32.s16  %r15, %rs1;
 and.b32   %r16, %r15, -2147483648;
 and.b16   %rs2, %rs1, 32767;
 mul.wide.u16  %r17, %rs2, 8192;
 mov.b32  %f24, %r17;
 mul.rn.f32  %f25, %f24, 0f77800000;
 setp.gt.u16  %p5, %rs2, 31743;
 selp.b32  %r18, 2139095040, 0, %p5;
 mov.b32  %r19, %f25;
 or.b32   %r20, %r18, %r16;
 or.b32   %r21, %r20, %r19;
 mov.b32  %f26, %r21;
 mul.rn.f32  %f42, %f3, %f26;
 mul.wide.u32  %rd34, %r42, 4;
 add.s64  %rd35, %rd2, %rd34;
 ld.global.u32  %r2, [%rd35];
 add.s64  %rd41, %rd41, 1;
 setp.lt.u32  %p6, %r2, 2;
 @%p6 bra  LBB23_14;
 add.s32  %r43, %r2, -1;
 mul.lo.s64  %rd36, %rd8, %rd41;
 add.s64  %rd43, %rd39, %rd36;
 bra.uni  LBB23_6;
LBB23_10:
 setp.lt.f32  %p11, %f42, %f9;
 setp.nan.f32  %p12, %f9, %f9;
 selp.f32  %f30, %f9, %f42, %p12;
 selp.f32  %f42, %f9, %f30, %p11;
LBB23_13:
 add.s64  %rd41, %rd41, 1;
 add.s32  %r43, %r43, -1;
 add.s64  %rd43, %rd43, %rd8;
 setp.eq.s32  %p15, %r43, 0;
 @%p15 bra  LBB23_14;
LBB23_6:
 .pragma "nounroll";
 ld.global.u16  %rs3, [%rd43];
 cvt.s32.s16  %r22, %rs3;
 and.b32   %r23, %r22, -2147483648;
 and.b16   %rs4, %rs3, 32767;
 mul.wide.u16  %r24, %rs4, 8192;
 mov.b32  %f27, %r24;
 mul.rn.f32  %f28, %f27, 0f77800000;
 setp.gt.u16  %p7, %rs4, 31743;
 selp.b32  %r25, 2139095040, 0, %p7;
 mov.b32  %r26, %f28;
 or.b32   %r27, %r25, %r23;
 or.b32   %r28, %r27, %r26;
 mov.b32  %f29, %r28;
 mul.rn.f32  %f9, %f3, %f29;
 @%p8 bra  LBB23_11;
 @%p9 bra  LBB23_10;
 @%p10 bra  LBB23_12;
 setp.lt.f32  %p13, %f9, %f42;
 setp.nan.f32  %p14, %f9, %f9;
 selp.f32  %f31, %f9, %f42, %p14;
 selp.f32  %f42, %f9, %f31, %p13;
 bra.uni  LBB23_13;
LBB23_11:
 mul.rn.f32  %f42, %f42, %f9;
 bra.uni  LBB23_13;
LBB23_12:
 add.rn.f32  %f42, %f42, %f9;
 bra.uni  LBB23_13;
LBB23_14:
 setp.eq.s32  %p16, %r42, 0;
 @%p16 bra  LBB23_22;
 @%p8 bra  LBB23_20;
 @%p9 bra  LBB23_19;
 @%p10 bra  LBB23_21;
 setp.lt.f32  %p22, %f42, %f5;
 setp.nan.f32  %p23, %f42, %f42;
 selp.f32  %f33, %f42, %f5, %p23;
 selp.f32  %f42, %f42, %f33, %p22;
 bra.uni  LBB23_22;
LBB23_20:
 mul.rn.f32  %f42, %f5, %f42;
 bra.uni  LBB23_22;
LBB23_21:
 add.rn.f32  %f42, %f5, %f42;
 bra.uni  LBB23_22;
LBB23_24:
 ret;
}
.visible .entry hvdtune_pack_bfloat16(
 .param .align 8 .b8 hvdtune_pack_bfloat16_param_0[3080],
 .param .u64 hvdtune_pack_bfloat16_param_1,
 .param .f64 hvdtune_pack_bfloat16_param_2
)
{
 .reg .pred  %p<5>;
 .reg .b32  %r<17>;
 .reg .f32  %f<5>;
 .reg .b64  %rd<26>;
 .reg .f64  %fd<2>;
 mov.b64  %rd14, hvdtune_pack_bfloat16_param_0;
 mov.u64  %rd16, %rd14;
 mov.u32  %r1, %ctaid.y;
 mov.u32  %r2, %ntid.x;
 mov.u32  %r3, %ctaid.x;
 mul.wide.s32  %rd17, %r3, %r2;
 mov.u32  %r4, %tid.x;
 cvt.s64.s32  %rd18, %r4;
 add.s64  %rd25, %rd17, %rd18;
 mul.wide.s32  %rd19, %r1, 24;
 add.s64  %rd20, %rd16, %rd19;
 ld.param.u64  %rd6, [%rd20+24];
 setp.ge.u64  %p1, %rd25, %rd6;
 @%p1 bra  LBB24_3;
 ld.param.f64  %fd1, [hvdtune_pack_bfloat16_param_2];
 ld.param.u64  %rd15, [hvdtune_pack_bfloat16_param_1];
 cvta.to.global.u64  %rd1, %rd15;
 mov.u32  %r5, %nctaid.x;
 mul.wide.s32  %rd3, %r5, %r2;
 ld.param.u64  %rd4, [%rd20+8];
 ld.param.u64  %rd5, [%rd20+16];
 setp.neu.f64  %p2, %fd1, 0d3FF0000000000000;
 cvt.rn.f32.f64  %f2, %fd1;
 selp.f32  %f1, %f2, 0f3F800000, %p2;
 shl.b64  %rd21, %rd5, 1;
 add.s64  %rd7, %rd1, %rd21;
 shl.b64  %rd24, %rd25, 1;
 shl.b64  %rd9, %rd3, 1;
LBB24_2:
 .pragma "nounroll";
 add.s64  %rd22, %rd4, %rd24;
 ld.u16  %r6, [%rd22];
 shl.b32  %r7, %r6, 16;
 mov.b32  %f3, %r7;
 mul.rn.f32  %f4, %f1, %f3;
 mov.b32  %r8, %f4;
 bfe.u32  %r9, %r8, 16, 1;
 add.s32  %r10, %r8, %r9;
 shr.u32  %r11, %r8, 16;
 add.s32  %r12, %r10, 32767;
 shr.u32  %r13, %r12, 16;
 or.b32   %r14, %r11, 64;
 and.b32   %r15, %r8, 2147483647;
 setp.gt.u32  %p3, %r15, 2139095040;
 selp.b32  %r16, %r14, %r13, %p3;
 add.s64  %rd23, %rd7, %rd24;
 st.global.u16  [%rd23], %r16;
 add.s64  %rd25, %rd25, %rd3;
 add.s64  %rd24, %rd24, %rd9;
 setp.lt.u64  %p4, %rd25, %rd6;
 @%p4 bra  LBB24_2;
LBB24_3:
 ret;
}
.visible .entry hvdtune_unpack_bfloat16(
 .param .align 8 .b8 hvdtune_unpack_bfloat16_param_0[3080],
 .param .u64 hvdtune_unpack_bfloat16_param_1,
 .param .u32 hvdtune_unpack_bfloat16_param_2,
 .param .f64 hvdtune_unpack_bfloat16_param_3
)
{
 .reg .pred  %p<5>;
 .reg .b32  %r<18>;
 .reg .f32  %f<7>;
 .reg .b64  %rd<26>;
 .reg .f64  %fd<2>;
 mov.b64  %rd14, hvdtune_unpack_bfloat16_param_0;
 mov.u64  %rd16, %rd14;
 mov.u32  %r2, %ctaid.y;
 mov.u32  %r3, %ntid.x;
 mov.u32  %r4, %ctaid.x;
 mul.wide.s32  %rd17, %r4, %r3;
 mov.u32  %r5, %tid.x;
 cvt.s64.s32  %rd18, %r5;
 add.s64  %rd25, %rd17, %rd18;
 mul.wide.s32  %rd19, %r2, 24;
 add.s64  %rd20, %rd16, %rd19;
 ld.param.u64  %rd6, [%rd20+24];
 setp.ge.u64  %p1, %rd25, %rd6;
 @%p1 bra  LBB25_3;
 ld.param.f64  %fd1, [hvdtune_unpack_bfloat16_param_3];
 ld.param.u32  %r1, [hvdtune_unpack_bfloat16_param_2];
 ld.param.u64  %rd15, [hvdtune_unpack_bfloat16_param_1];
 cvta.to.global.u64  %rd1, %rd15;
 mov.u32  %r6, %nctaid.x;
 mul.wide.s32  %rd3, %r6, %r3;
 ld.param.u64  %rd4, [%rd20+8];
 ld.param.u64  %rd5, [%rd20+16];
 cvt.rn.f32.s32  %f1, %r1;
 setp.neu.f64  %p2, %fd1, 0d3FF0000000000000;
 cvt.rn.f32.f64  %f3, %fd1;
 selp.f32  %f2, %f3, 0f3F800000, %p2;
 shl.b64  %rd21, %rd5, 1;
 add.s64  %rd7, %rd1, %rd21;
 shl.b64  %rd24, %rd25, 1;
 shl.b64  %rd9, %rd3, 1;
LBB25_2:
 .pragma "nounroll";
 add.s64  %rd22, %rd7, %rd24;
 ld.global.u16  %r7, [%rd22];
 shl.b32  %r8, %r7, 16;
 mov.b32  %f4, %r8;
 div.rn.f32  %f5, %f4, %f1;
 mul.rn.f32  %f6, %f2, %f5;
 mov.b32  %r9, %f6;
 bfe.u32  %r10, %r9, 16, 1;
 add.s32  %r11, %r9, %r10;
 shr.u32  %r12, %r9, 16;
 add.s32  %r13, %r11, 32767;
 shr.u32  %r14, %r13, 16;
 or.b32   %r15, %r12, 64;
 and.b32   %r16, %r9, 2147483647;
 setp.gt.u32  %p3, %r16, 2139095040;
 selp.b32  %r17, %r15, %r14, %p3;
 add.s64  %rd23, %rd4, %rd24;
 st.u16  [%rd23], %r17;
 add.s64  %rd25, %rd25, %rd3;
 add.s64  %rd24, %rd24, %rd9;
 setp.lt.u64  %p4, %rd25, %rd6;
 @%p4 bra  LBB25_2;
LBB25_3:
 ret;
}
.visible .entry hvdtune_reduce_bfloat16(
 .param .u64 hvdtune_reduce_bfloat16_param_0,
 .param .u64 hvdtune_reduce_bfloat16_param_1,
 .param .u64 hvdtune_reduce_bfloat16_param_2,
 .param .u64 hvdtune_reduce_bfloat16_param_3,
 .param .u32 hvdtune_reduce_bfloat16_param_4,
 .param .u32 hvdtune_reduce_bfloat16_param_5,
 .param .f64 hvdtune_reduce_bfloat16_param_6,
 .param .u32 hvdtune_reduce_bfloat16_param_7,
 .param .f64 hvdtune_reduce_bfloat16_param_8,
 .param .u64 hvdtune_reduce_bfloat16_param_9
)
{
 .reg .pred  %p<25>;
 .reg .b32  %r<30>;
 .reg .f32  %f<38>;
 .reg .b64  %rd<45>;
 .reg .f64  %fd<3>;
 ld.param.u64  %rd22, [hvdtune_reduce_bfloat16_param_2];
 mov.u32  %r10, %ntid.x;
 mov.u32  %r11, %ctaid.x;
 mul.wide.s32  %rd26, %r11, %r10;
 mov.u32  %r12, %tid.x;
 cvt.s64.s32  %rd27, %r12;
 add.s64  %rd40, %rd26, %rd27;
 setp.ge.u64  %p1, %rd40, %rd22;
 @%p1 bra  LBB26_24;
 ld.param.f64  %fd2, [hvdtune_reduce_bfloat16_param_8];
 ld.param.u32  %r9, [hvdtune_reduce_bfloat16_param_7];
 ld.param.f64  %fd1, [hvdtune_reduce_bfloat16_param_6];
 ld.param.u32  %r8, [hvdtune_reduce_bfloat16_param_5];
 ld.param.u32  %r7, [hvdtune_reduce_bfloat16_param_4];
 ld.param.u64  %rd21, [hvdtune_reduce_bfloat16_param_1];
 ld.param.u64  %rd23, [hvdtune_reduce_bfloat16_param_0];
 ld.param.u64  %rd24, [hvdtune_reduce_bfloat16_param_9];
 cvta.to.global.u64  %rd1, %rd24;
 ld.param.u64  %rd25, [hvdtune_reduce_bfloat16_param_3];
 cvta.to.global.u64  %rd2, %rd25;
 cvta.to.global.u64  %rd3, %rd23;
 mov.u32  %r13, %nctaid.x;
 mul.wide.s32  %rd5, %r13, %r10;
 cvt.rn.f32.s32  %f1, %r9;
 setp.neu.f64  %p2, %fd2, 0d3FF0000000000000;
 cvt.rn.f32.f64  %f20, %fd2;
 selp.f32  %f2, %f20, 0f3F800000, %p2;
 setp.neu.f64  %p3, %fd1, 0d3FF0000000000000;
 cvt.rn.f32.f64  %f21, %fd1;
 selp.f32  %f3, %f21, 0f3F800000, %p3;
 shl.b64  %rd28, %rd40, 1;
 add.s64  %rd39, %rd3, %rd28;
 shl.b64  %rd7, %rd5, 1;
 shl.b64  %rd8, %rd21, 1;
 setp.eq.s32  %p4, %r7, 0;
 mov.f32  %f22, 0f00000000;
 mov.u32  %r14, 0;
 setp.eq.s32  %p6, %r8, 4;
 setp.eq.s32  %p7, %r8, 3;
 setp.ne.s32  %p8, %r8, 2;
 bra.uni  LBB26_2;
LBB26_23:
 div.rn.f32  %f30, %f36, %f1;
 mul.rn.f32  %f31, %f2, %f30;
 mov.b32  %r19, %f31;
 bfe.u32  %r20, %r19, 16, 1;
 add.s32  %r21, %r19, %r20;
 shr.u32  %r22, %r19, 16;
 add.s32  %r23, %r21, 32767;
 shr.u32  %r24, %r23, 16;
 or.b32   %r25, %r22, 64;
 and.b32   %r26, %r19, 2147483647;
 setp.gt.u32  %p23, %r26, 2139095040;
 selp.b32  %r27, %r25, %r24, %p23;
 shl.b64  %rd37, %rd40, 1;
 add.s64  %rd38, %rd1, %rd37;
 st.global.u16  [%rd38], %r27;
 add.s64  %rd40, %rd40, %rd5;
 add.s64  %rd39, %rd39, %rd7;
 setp.lt.u64  %p24, %rd40, %rd22;
 @%p24 bra  LBB26_2;
 bra.uni  LBB26_24;
LBB26_2:
 .pragma "nounroll";
 mov.f32  %f36, %f22;
 @%p4 bra  LBB26_23;
 mov.f32  %f36, 0f00000000;
 mov.u64  %rd41, 0;
 mov.u32  %r28, %r14;
 bra.uni  LBB26_4;
LBB26_19:
 setp.lt.f32  %p18, %f5, %f36;
 setp.nan.f32  %p19, %f36, %f36;
 selp.f32  %f28, %f36, %f5, %p19;
 selp.f32  %f36, %f36, %f28, %p18;
LBB26_22:
 add.s32  %r28, %r28, 1;
 setp.eq.s32  %p22, %r28, %r7;
 @%p22 bra  LBB26_23;
LBB26_4:
 .pragma "nounroll";
 mov.f32  %f5, %f36;
 mul.lo.s64  %rd30, %rd41, %rd21;
 add.s64  %rd31, %rd30, %rd40;
 shl.b64  %rd32, %rd31, 1;
 add.s64  %rd33, %rd3, %rd32;
 ld.global.u16  %r15, [%rd33];
 shl.b32  %r16, %r15, 16;
 mov.b32  %f24, %r16;
 mul.rn.f32  %f36, %f3, %f24;
 mul.wide.u32  %rd34, %r28, 4;
 add.s64  %rd35, %rd2, %rd34;
 ld.global.u32  %r2, [%rd35];
 add.s64  %rd41, %rd41, 1;
 setp.lt.u32  %p5, %r2, 2;
 @%p5 bra  LBB26_14;
 add.s32  %r29, %r2, -1;
 mul.lo.s64  %rd36, %rd8, %rd41;
 add.s64  %rd43, %rd39, %rd36;
 bra.uni  LBB26_6;
LBB26_10:
 setp.lt.f32  %p9, %f36, %f9;
 setp.nan.f32  %p10, %f9, %f9;
 selp.f32  %f26, %f9, %f36, %p10;
 selp.f32  %f36, %f9, %f26, %p9;
LBB26_13:
 add.s64  %rd41, %rd41, 1;
 add.s32  %r29, %r29, -1;
 add.s64  %rd43, %rd43, %rd8;
 setp.eq.s32  %p13, %r29, 0;
 @%p13 bra  LBB26_14;
LBB26_6:
 .pragma "nounroll";
 ld.global.u16  %r17, [%rd43];
 shl.b32  %r18, %r17, 16;
 mov.b32  %f25, %r18;
 mul.rn.f32  %f9, %f3, %f25;
 @%p6 bra  LBB26_11;
 @%p7 bra  LBB26_10;
 @%p8 bra  LBB26_12;
 setp.lt.f32  %p11, %f9, %f36;
 setp.nan.f32  %p12, %f9, %f9;
 selp.f32  %f27, %f9, %f36, %p12;
 selp.f32  %f36, %f9, %f27, %p11;
 bra.uni  LBB26_13;
LBB26_11:
 mul.rn.f32  %f36, %f36, %f9;
 bra.uni  LBB26_13;
LBB26_12:
 add.rn.f32  %f36, %f36, %f9;
 bra.uni  LBB26_13;
LBB26_14:
 setp.eq.s32  %p14, %r28, 0;
 @%p14 bra  LBB26_22;
 @%p6 bra  LBB26_20;
 @%p7 bra  LBB26_19;
 @%p8 bra  LBB26_21;
 setp.lt.f32  %p20, %f36, %f5;
 setp.nan.f32  %p21, %f36, %f36;
 selp.f32  %f29, %f36, %f5, %p21;
 selp.f32  %f36, %f36, %f29, %p20;
 bra.uni  LBB26_22;
LBB26_20:
 mul.rn.f32  %f36, %f5, %f36;
 bra.uni  LBB26_22;
LBB26_21:
 add.rn.f32  %f36, %f5, %f36;
 bra.uni  LBB26_22;
LBB26_24:
 ret;
}
.visible .entry hvdtune_pack_float32(
 .param .align 8 .b8 hvdtune_pack_float32_param_0[3080],
 .param .u64 hvdtune_pack_float32_param_1,
 .param .f64 hvdtune_pack_float32_param_2
)
{
 .reg .pred  %p<4>;
 .reg .b32  %r<6>;
 .reg .f32  %f<5>;
 .reg .b64  %rd<26>;
 .reg .f64  %fd<2>;
 mov.b64  %rd14, hvdtune_pack_float32_param_0;
 mov.u64  %rd16, %rd14;
 mov.u32  %r1, %ctaid.y;
 mov.u32  %r2, %ntid.x;
 mov.u32  %r3, %ctaid.x;
 mul.wide.s32  %rd17, %r3, %r2;
 mov.u32  %r4, %tid.x;
 cvt.s64.s32  %rd18, %r4;
 add.s64  %rd25, %rd17, %rd18;
 mul.wide.s32  %rd19, %r1, 24;
 add.s64  %rd20, %rd16, %rd19;
 ld.param.u64  %rd6, [%rd20+24];
 setp.ge.u64  %p1, %rd25, %rd6;
 @%p1 bra  LBB27_3;
 ld.param.f64  %fd1, [hvdtune_pack_float32_param_2];
 ld.param.u64  %rd15, [hvdtune_pack_float32_param_1];
 cvta.to.global.u64  %rd1, %rd15;
 mov.u32  %r5, %nctaid.x;
 mul.wide.s32  %rd3, %r5, %r2;
 ld.param.u64  %rd4, [%rd20+8];
 ld.param.u64  %rd5, [%rd20+16];
 setp.neu.f64  %p2, %fd1, 0d3FF0000000000000;
 cvt.rn.f32.f64  %f2, %fd1;
 selp.f32  %f1, %f2, 0f3F800000, %p2;
 shl.b64  %rd21, %rd5, 2;
 add.s64  %rd7, %rd1, %rd21;
 shl.b64  %rd24, %rd25, 2;
 shl.b64  %rd9, %rd3, 2;
LBB27_2:
 .pragma "nounroll";
 add.s64  %rd22, %rd4, %rd24;
 ld.f32  %f3, [%rd22];
 mul.rn.f32  %f4, %f1, %f3;
 add.s64  %rd23, %rd7, %rd24;
 st.global.f32  [%rd23], %f4;
 add.s64  %rd25, %rd25, %rd3;
 add.s64  %rd24, %rd24, %rd9;
 setp.lt.u64  %p3, %rd25, %rd6;
 @%p3 bra  LBB27_2;
LBB27_3:
 ret;
}
.visible .entry hvdtune_unpack_float32(
 .param .align 8 .b8 hvdtune_unpack_float32_param_0[3080],
 .param .u64 hvdtune_unpack_float32_param_1,
 .param .u32 hvdtune_unpack_float32_param_2,
 .param .f64 hvdtune_unpack_float32_param_3
)
{
 .reg .pred  %p<4>;
 .reg .b32  %r<7>;
 .reg .f32  %f<7>;
 .reg .b64  %rd<26>;
 .reg .f64  %fd<2>;
 mov.b64  %rd14, hvdtune_unpack_float32_param_0;
 mov.u64  %rd16, %rd14;
 mov.u32  %r2, %ctaid.y;
 mov.u32  %r3, %ntid.x;
 mov.u32  %r4, %ctaid.x;
 mul.wide.s32  %rd17, %r4, %r3;
 mov.u32  %r5, %tid.x;
 cvt.s64.s32  %rd18, %r5;
 add.s64  %rd25, %rd17, %rd18;
 mul.wide.s32  %rd19, %r2, 24;
 add.s64  %rd20, %rd16, %rd19;
 ld.param.u64  %rd6, [%rd20+24];
 setp.ge.u64  %p1, %rd25, %rd6;
 @%p1 bra  LBB28_3;
 ld.param.f64  %fd1, [hvdtune_unpack_float32_param_3];
 ld.param.u32  %r1, [hvdtune_unpack_float32_param_2];
 ld.param.u64  %rd15, [hvdtune_unpack_float32_param_1];
 cvta.to.global.u64  %rd1, %rd15;
 mov.u32  %r6, %nctaid.x;
 mul.wide.s32  %rd3, %r6, %r3;
 ld.param.u64  %rd4, [%rd20+8];
 ld.param.u64  %rd5, [%rd20+16];
 cvt.rn.f32.s32  %f1, %r1;
 setp.neu.f64  %p2, %fd1, 0d3FF0000000000000;
 cvt.rn.f32.f64  %f3, %fd1;
 selp.f32  %f2, %f3, 0f3F800000, %p2;
 shl.b64  %rd21, %rd5, 2;
 add.s64  %rd7, %rd1, %rd21;
 shl.b64  %rd24, %rd25, 2;
 shl.b64  %rd9, %rd3, 2;
LBB28_2:
 .pragma "nounroll";
 add.s64  %rd22, %rd7, %rd24;
 ld.global.f32  %f4, [%rd22];
 add.s64  %rd23, %rd4, %rd24;
 div.rn.f32  %f5, %f4, %f1;
 mul.rn.f32  %f6, %f2, %f5;
 st.f32  [%rd23], %f6;
 add.s64  %rd25, %rd25, %rd3;
 add.s64  %rd24, %rd24, %rd9;
 setp.lt.u64  %p3, %rd25, %rd6;
 @%p3 bra  LBB28_2;
LBB28_3:
 ret;
}
.visible .entry hvdtune_reduce_float32(
 .param .u64 hvdtune_reduce_float32_param_0,
 .param .u64 hvdtune_reduce_float32_param_1,
 .param .u64 hvdtune_reduce_float32_param_2,
 .param .u64 hvdtune_reduce_float32_param_3,
 .param .u32 hvdtune_reduce_float32_param_4,
 .param .u32 hvdtune_reduce_float32_param_5,
 .param .f64 hvdtune_reduce_float32_param_6,
 .param .u32 hvdtune_reduce_float32_param_7,
 .param .f64 hvdtune_reduce_float32_param_8,
 .param .u64 hvdtune_reduce_float32_param_9
)
{
 .reg .pred  %p<24>;
 .reg .b32  %r<17>;
 .reg .f32  %f<38>;
 .reg .b64  %rd<45>;
 .reg .f64  %fd<3>;
 ld.param.u64  %rd22, [hvdtune_reduce_float32_param_2];
 mov.u32  %r10, %ntid.x;
 mov.u32  %r11, %ctaid.x;
 mul.wide.s32  %rd26, %r11, %r10;
 mov.u32  %r12, %tid.x;
 cvt.s64.s32  %rd27, %r12;
 add.s64  %rd40, %rd26, %rd27;
 setp.ge.u64  %p1, %rd40, %rd22;
 @%p1 bra  LBB29_24;
 ld.param.f64  %fd2, [hvdtune_reduce_float32_param_8];
 ld.param.u32  %r9, [hvdtune_reduce_float32_param_7];
 ld.param.f64  %fd1, [hvdtune_reduce_float32_param_6];
 ld.param.u32  %r8, [hvdtune_reduce_float32_param_5];
 ld.param.u32  %r7, [hvdtune_reduce_float32_param_4];
 ld.param.u64  %rd21, [hvdtune_reduce_float32_param_1];
 ld.param.u64  %rd23, [hvdtune_reduce_float32_param_0];
 ld.param.u64  %rd24, [hvdtune_reduce_float32_param_9];
 cvta.to.global.u64  %rd1, %rd24;
 ld.param.u64  %rd25, [hvdtune_reduce_float32_param_3];
 cvta.to.global.u64  %rd2, %rd25;
 cvta.to.global.u64  %rd3, %rd23;
 mov.u32  %r13, %nctaid.x;
 mul.wide.s32  %rd5, %r13, %r10;
 setp.neu.f64  %p2, %fd1, 0d3FF0000000000000;
 cvt.rn.f32.f64  %f20, %fd1;
 selp.f32  %f1, %f20, 0f3F800000, %p2;
 cvt.rn.f32.s32  %f2, %r9;
 setp.neu.f64  %p3, %fd2, 0d3FF0000000000000;
 cvt.rn.f32.f64  %f21, %fd2;
 selp.f32  %f3, %f21, 0f3F800000, %p3;
 shl.b64  %rd28, %rd40, 2;
 add.s64  %rd39, %rd3, %rd28;
 shl.b64  %rd7, %rd5, 2;
 shl.b64  %rd8, %rd21, 2;
 setp.eq.s32  %p4, %r7, 0;
 mov.f32  %f22, 0f00000000;
 mov.u32  %r14, 0;
 setp.eq.s32  %p6, %r8, 4;
 setp.eq.s32  %p7, %r8, 3;
 setp.ne.s32  %p8, %r8, 2;
 bra.uni  LBB29_2;
LBB29_23:
 shl.b64  %rd37, %rd40, 2;
 add.s64  %rd38, %rd1, %rd37;
 div.rn.f32  %f30, %f36, %f2;
 mul.rn.f32  %f31, %f3, %f30;
 st.global.f32  [%rd38], %f31;
 add.s64  %rd40, %rd40, %rd5;
 add.s64  %rd39, %rd39, %rd7;
 setp.lt.u64  %p23, %rd40, %rd22;
 @%p23 bra  LBB29_2;
 bra.uni  LBB29_24;
LBB29_2:
 .pragma "nounroll";
 mov.f32  %f36, %f22;
 @%p4 bra  LBB29_23;
 mov.f32  %f36, 0f00000000;
 mov.u64  %rd41, 0;
 mov.u32  %r15, %r14;
 bra.uni  LBB29_4;
LBB29_19:
 setp.lt.f32  %p18, %f5, %f36;
 setp.nan.f32  %p19, %f36, %f36;
 selp.f32  %f28, %f36, %f5, %p19;
 selp.f32  %f36, %f36, %f28, %p18;
LBB29_22:
 add.s32  %r15, %r15, 1;
 setp.eq.s32  %p22, %r15, %r7;
 @%p22 bra  LBB29_23;
LBB29_4:
 .pragma "nounroll";
 mov.f32  %f5, %f36;
 mul.lo.s64  %rd30, %rd41, %rd21;
 add.s64  %rd31, %rd30, %rd40;
 shl.b64  %rd32, %rd31, 2;
 add.s64  %rd33, %rd3, %rd32;
 ld.global.f32  %f24, [%rd33];
 mul.rn.f32  %f36, %f1, %f24;
 mul.wide.u32  %rd34, %r15, 4;
 add.s64  %rd35, %rd2, %rd34;
 ld.global.u32  %r2, [%rd35];
 add.s64  %rd41, %rd41, 1;
 setp.lt.u32  %p5, %r2, 2;
 @%p5 bra  LBB29_14;
 add.s32  %r16, %r2, -1;
 mul.lo.s64  %rd36, %rd8, %rd41;
 add.s64  %rd43, %rd39, %rd36;
 bra.uni  LBB29_6;
LBB29_10:
 setp.lt.f32  %p9, %f36, %f9;
 setp.nan.f32  %p10, %f9, %f9;
 selp.f32  %f26, %f9, %f36, %p10;
 selp.f32  %f36, %f9, %f26, %p9;
LBB29_13:
 add.s64  %rd41, %rd41, 1;
 add.s32  %r16, %r16, -1;
 add.s64  %rd43, %rd43, %rd8;
 setp.eq.s32  %p13, %r16, 0;
 @%p13 bra  LBB29_14;
LBB29_6:
 .pragma "nounroll";
 ld.global.f32  %f25, [%rd43];
 mul.rn.f32  %f9, %f1, %f25;
 @%p6 bra  LBB29_11;
 @%p7 bra  LBB29_10;
 @%p8 bra  LBB29_12;
 setp.lt.f32  %p11, %f9, %f36;
 setp.nan.f32  %p12, %f9, %f9;
 selp.f32  %f27, %f9, %f36, %p12;
 selp.f32  %f36, %f9, %f27, %p11;
 bra.uni  LBB29_13;
LBB29_11:
 mul.rn.f32  %f36, %f36, %f9;
 bra.uni  LBB29_13;
LBB29_12:
 add.rn.f32  %f36, %f36, %f9;
 bra.uni  LBB29_13;
LBB29_14:
 setp.eq.s32  %p14, %r15, 0;
 @%p14 bra  LBB29_22;
 @%p6 bra  LBB29_20;
 @%p7 bra  LBB29_19;
 @%p8 bra  LBB29_21;
 setp.lt.f32  %p20, %f36, %f5;
 setp.nan.f32  %p21, %f36, %f36;
 selp.f32  %f29, %f36, %f5, %p21;
 selp.f32  %f36, %f36, %f29, %p20;
 bra.uni  LBB29_22;
LBB29_20:
 mul.rn.f32  %f36, %f5, %f36;
 bra.uni  LBB29_22;
LBB29_21:
 add.rn.f32  %f36, %f5, %f36;
 bra.uni  LBB29_22;
LBB29_24:
 ret;
}
.visible .entry hvdtune_pack_float64(
 .param .align 8 .b8 hvdtune_pack_float64_param_0[3080],
 .param .u64 hvdtune_pack_float64_param_1,
 .param .f64 hvdtune_pack_float64_param_2
)
{
 .reg .pred  %p<3>;
 .reg .b32  %r<6>;
 .reg .b64  %rd<26>;
 .reg .f64  %fd<4>;
 mov.b64  %rd14, hvdtune_pack_float64_param_0;
 mov.u64  %rd16, %rd14;
 mov.u32  %r1, %ctaid.y;
 mov.u32  %r2, %ntid.x;
 mov.u32  %r3, %ctaid.x;
 mul.wide.s32  %rd17, %r3, %r2;
 mov.u32  %r4, %tid.x;
 cvt.s64.s32  %rd18, %r4;
 add.s64  %rd25, %rd17, %rd18;
 mul.wide.s32  %rd19, %r1, 24;
 add.s64  %rd20, %rd16, %rd19;
 ld.param.u64  %rd6, [%rd20+24];
 setp.ge.u64  %p1, %rd25, %rd6;
 @%p1 bra  LBB30_3;
 ld.param.f64  %fd1, [hvdtune_pack_float64_param_2];
 ld.param.u64  %rd15, [hvdtune_pack_float64_param_1];
 cvta.to.global.u64  %rd1, %rd15;
 mov.u32  %r5, %nctaid.x;
 mul.wide.s32  %rd3, %r5, %r2;
 ld.param.u64  %rd4, [%rd20+8];
 ld.param.u64  %rd5, [%rd20+16];
 shl.b64  %rd21, %rd5, 3;
 add.s64  %rd7, %rd1, %rd21;
 shl.b64  %rd24, %rd25, 3;
 shl.b64  %rd9, %rd3, 3;
LBB30_2:
 .pragma "nounroll";
 add.s64  %rd22, %rd4, %rd24;
 ld.f64  %fd2, [%rd22];
 mul.rn.f64  %fd3, %fd2, %fd1;
 add.s64  %rd23, %rd7, %rd24;
 st.global.f64  [%rd23], %fd3;
 add.s64  %rd25, %rd25, %rd3;
 add.s64  %rd24, %rd24, %rd9;
 setp.lt.u64  %p2, %rd25, %rd6;
 @%p2 bra  LBB30_2;
LBB30_3:
 ret;
}
.visible .entry hvdtune_unpack_float64(
 .param .align 8 .b8 hvdtune_unpack_float64_param_0[3080],
 .param .u64 hvdtune_unpack_float64_param_1,
 .param .u32 hvdtune_unpack_float64_param_2,
 .param .f64 hvdtune_unpack_float64_param_3
)
{
 .reg .pred  %p<3>;
 .reg .b32  %r<7>;
 .reg .b64  %rd<26>;
 .reg .f64  %fd<6>;
 mov.b64  %rd14, hvdtune_unpack_float64_param_0;
 mov.u64  %rd16, %rd14;
 mov.u32  %r2, %ctaid.y;
 mov.u32  %r3, %ntid.x;
 mov.u32  %r4, %ctaid.x;
 mul.wide.s32  %rd17, %r4, %r3;
 mov.u32  %r5, %tid.x;
 cvt.s64.s32  %rd18, %r5;
 add.s64  %rd25, %rd17, %rd18;
 mul.wide.s32  %rd19, %r2, 24;
 add.s64  %rd20, %rd16, %rd19;
 ld.param.u64  %rd6, [%rd20+24];
 setp.ge.u64  %p1, %rd25, %rd6;
 @%p1 bra  LBB31_3;
 ld.param.f64  %fd2, [hvdtune_unpack_float64_param_3];
 ld.param.u32  %r1, [hvdtune_unpack_float64_param_2];
 ld.param.u64  %rd15, [hvdtune_unpack_float64_param_1];
 cvta.to.global.u64  %rd1, %rd15;
 mov.u32  %r6, %nctaid.x;
 mul.wide.s32  %rd3, %r6, %r3;
 ld.param.u64  %rd4, [%rd20+8];
 ld.param.u64  %rd5, [%rd20+16];
 cvt.rn.f64.s32  %fd1, %r1;
 shl.b64  %rd21, %rd5, 3;
 add.s64  %rd7, %rd1, %rd21;
 shl.b64  %rd24, %rd25, 3;
 shl.b64  %rd9, %rd3, 3;
LBB31_2:
 .pragma "nounroll";
 add.s64  %rd22, %rd7, %rd24;
 ld.global.f64  %fd3, [%rd22];
 add.s64  %rd23, %rd4, %rd24;
 div.rn.f64  %fd4, %fd3, %fd1;
 mul.rn.f64  %fd5, %fd4, %fd2;
 st.f64  [%rd23], %fd5;
 add.s64  %rd25, %rd25, %rd3;
 add.s64  %rd24, %rd24, %rd9;
 setp.lt.u64  %p2, %rd25, %rd6;
 @%p2 bra  LBB31_2;
LBB31_3:
 ret;
}
.visible .entry hvdtune_reduce_float64(
 .param .u64 hvdtune_reduce_float64_param_0,
 .param .u64 hvdtune_reduce_float64_param_1,
 .param .u64 hvdtune_reduce_float64_param_2,
 .param .u64 hvdtune_reduce_float64_param_3,
 .param .u32 hvdtune_reduce_float64_param_4,
 .param .u32 hvdtune_reduce_float64_param_5,
 .param .f64 hvdtune_reduce_float64_param_6,
 .param .u32 hvdtune_reduce_float64_param_7,
 .param .f64 hvdtune_reduce_float64_param_8,
 .param .u64 hvdtune_reduce_float64_param_9
)
{
 .reg .pred  %p<22>;
 .reg .b32  %r<17>;
 .reg .b64  %rd<45>;
 .reg .f64  %fd<36>;
 ld.param.u64  %rd22, [hvdtune_reduce_float64_param_2];
 mov.u32  %r10, %ntid.x;
 mov.u32  %r11, %ctaid.x;
 mul.wide.s32  %rd26, %r11, %r10;
 mov.u32  %r12, %tid.x;
 cvt.s64.s32  %rd27, %r12;
 add.s64  %rd40, %rd26, %rd27;
 setp.ge.u64  %p1, %rd40, %rd22;
 @%p1 bra  LBB32_24;
 ld.param.f64  %fd19, [hvdtune_reduce_float64_param_8];
 ld.param.u32  %r9, [hvdtune_reduce_float64_param_7];
 ld.param.f64  %fd18, [hvdtune_reduce_float64_param_6];
 ld.param.u32  %r8, [hvdtune_reduce_float64_param_5];
 ld.param.u32  %r7, [hvdtune_reduce_float64_param_4];
 ld.param.u64  %rd21, [hvdtune_reduce_float64_param_1];
 ld.param.u64  %rd23, [hvdtune_reduce_float64_param_0];
 ld.param.u64  %rd24, [hvdtune_reduce_float64_param_9];
 cvta.to.global.u64  %rd1, %rd24;
 ld.param.u64  %rd25, [hvdtune_reduce_float64_param_3];
 cvta.to.global.u64  %rd2, %rd25;
 cvta.to.global.u64  %rd3, %rd23;
 mov.u32  %r13, %nctaid.x;
 mul.wide.s32  %rd5, %r13, %r10;
 cvt.rn.f64.s32  %fd1, %r9;
 shl.b64  %rd28, %rd40, 3;
 add.s64  %rd39, %rd3, %rd28;
 shl.b64  %rd7, %rd5, 3;
 shl.b64  %rd8, %rd21, 3;
 setp.eq.s32  %p2, %r7, 0;
 mov.f64  %fd20, 0d0000000000000000;
 mov.u32  %r14, 0;
 setp.eq.s32  %p4, %r8, 4;
 setp.eq.s32  %p5, %r8, 3;
 setp.ne.s32  %p6, %r8, 2;
 bra.uni  LBB32_2;
LBB32_23:
 shl.b64  %rd37, %rd40, 3;
 add.s64  %rd38, %rd1, %rd37;
 div.rn.f64  %fd28, %fd34, %fd1;
 mul.rn.f64  %fd29, %fd28, %fd19;
 st.global.f64  [%rd38], %fd29;
 add.s64  %rd40, %rd40, %rd5;
 add.s64  %rd39, %rd39, %rd7;
 setp.lt.u64  %p21, %rd40, %rd22;
 @%p21 bra  LBB32_2;
 bra.uni  LBB32_24;
LBB32_2:
 .pragma "nounroll";
 mov.f64  %fd34, %fd20;
 @%p2 bra  LBB32_23;
 mov.f64  %fd34, 0d0000000000000000;
 mov.u64  %rd41, 0;
 mov.u32  %r15, %r14;
 bra.uni  LBB32_4;
LBB32_19:
 setp.lt.f64  %p16, %fd3, %fd34;
 setp.nan.f64  %p17, %fd34, %fd34;
 selp.f64  %fd26, %fd34, %fd3, %p17;
 selp.f64  %fd34, %fd34, %fd26, %p16;
LBB32_22:
 add.s32  %r15, %r15, 1;
 setp.eq.s32  %p20, %r15, %r7;
 @%p20 bra  LBB32_23;
LBB32_4:
 .pragma "nounroll";
 mov.f64  %fd3, %fd34;
 mul.lo.s64  %rd30, %rd41, %rd21;
 add.s64  %rd31, %rd30, %rd40;
 shl.b64  %rd32, %rd31, 3;
 add.s64  %rd33, %rd3, %rd32;
 ld.global.f64  %fd22, [%rd33];
 mul.rn.f64  %fd34, %fd22, %fd18;
 mul.wide.u32  %rd34, %r15, 4;
 add.s64  %rd35, %rd2, %rd34;
 ld.global.u32  %r2, [%rd35];
 add.s64  %rd41, %rd41, 1;
 setp.lt.u32  %p3, %r2, 2;
 @%p3 bra  LBB32_14;
 add.s32  %r16, %r2, -1;
 mul.lo.s64  %rd36, %rd8, %rd41;
 add.s64  %rd43, %rd39, %rd36;
 bra.uni  LBB32_6;
LBB32_10:
 setp.lt.f64  %p7, %fd34, %fd7;
 setp.nan.f64  %p8, %fd7, %fd7;
 selp.f64  %fd24, %fd7, %fd34, %p8;
 selp.f64  %fd34, %fd7, %fd24, %p7;
LBB32_13:
 add.s64  %rd41, %rd41, 1;
 add.s32  %r16, %r16, -1;
 add.s64  %rd43, %rd43, %rd8;
 setp.eq.s32  %p11, %r16, 0;
 @%p11 bra  LBB32_14;
LBB32_6:
 .pragma "nounroll";
 ld.global.f64  %fd23, [%rd43];
 mul.rn.f64  %fd7, %fd23, %fd18;
 @%p4 bra  LBB32_11;
 @%p5 bra  LBB32_10;
 @%p6 bra  LBB32_12;
 setp.lt.f64  %p9, %fd7, %fd34;
 setp.nan.f64  %p10, %fd7, %fd7;
 selp.f64  %fd25, %fd7, %fd34, %p10;
 selp.f64  %fd34, %fd7, %fd25, %p9;
 bra.uni  LBB32_13;
LBB32_11:
 mul.rn.f64  %fd34, %fd34, %fd7;
 bra.uni  LBB32_13;
LBB32_12:
 add.rn.f64  %fd34, %fd34, %fd7;
 bra.uni  LBB32_13;
LBB32_14:
 setp.eq.s32  %p12, %r15, 0;
 @%p12 bra  LBB32_22;
 @%p4 bra  LBB32_20;
 @%p5 bra  LBB32_19;
 @%p6 bra  LBB32_21;
 setp.lt.f64  %p18, %fd34, %fd3;
 setp.nan.f64  %p19, %fd34, %fd34;
 selp.f64  %fd27, %fd34, %fd3, %p19;
 selp.f64  %fd34, %fd34, %fd27, %p18;
 bra.uni  LBB32_22;
LBB32_20:
 mul.rn.f64  %fd34, %fd3, %fd34;
 bra.uni  LBB32_22;
LBB32_21:
 add.rn.f64  %fd34, %fd3, %fd34;
 bra.uni  LBB32_22;
LBB32_24:
 ret;
}
)ptx";

}  // namespace hvdtune
