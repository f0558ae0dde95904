//go:build linux && !nocuda && !purecuda_syscalln

#include "go_asm.h"
#include "textflag.h"

// trampoline runs on the system stack with the frame's address in DI, as a C
// function of one argument. It puts the frame's arguments where the System V
// ABI wants the first six integers and jumps: the C function returns straight
// to the runtime, its int in AX being the trampoline's own result. AX says how
// many vector registers a variadic callee should save.
TEXT trampoline<>(SB), NOSPLIT|NOFRAME, $0-0
	MOVQ DI, R11
	MOVQ (Frame_Arg+0)(R11), DI
	MOVQ (Frame_Arg+8)(R11), SI
	MOVQ (Frame_Arg+16)(R11), DX
	MOVQ (Frame_Arg+24)(R11), CX
	MOVQ (Frame_Arg+32)(R11), R8
	MOVQ (Frame_Arg+40)(R11), R9
	MOVQ Frame_Fn(R11), R11
	XORL AX, AX
	JMP  R11

DATA ·trampolineAddr(SB)/8, $trampoline<>(SB)
GLOBL ·trampolineAddr(SB), NOPTR|RODATA, $8
