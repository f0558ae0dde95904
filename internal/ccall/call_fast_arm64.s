//go:build linux && !nocuda && !purecuda_syscalln

#include "go_asm.h"
#include "textflag.h"

// trampoline runs on the system stack with the frame's address in R0, as a C
// function of one argument. It puts the frame's arguments where the AAPCS64
// wants the first six integers and jumps: the C function returns straight to
// the runtime, its int in R0 being the trampoline's own result. The jump goes
// through R16, as branch target identification wants an indirect tail call's.
TEXT trampoline<>(SB), NOSPLIT|NOFRAME, $0-0
	MOVD R0, R9
	MOVD Frame_Fn(R9), R16
	MOVD (Frame_Arg+0)(R9), R0
	MOVD (Frame_Arg+8)(R9), R1
	MOVD (Frame_Arg+16)(R9), R2
	MOVD (Frame_Arg+24)(R9), R3
	MOVD (Frame_Arg+32)(R9), R4
	MOVD (Frame_Arg+40)(R9), R5
	JMP  (R16)

DATA ·trampolineAddr(SB)/8, $trampoline<>(SB)
GLOBL ·trampolineAddr(SB), NOPTR|RODATA, $8
