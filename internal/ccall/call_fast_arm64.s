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

// wideTrampoline is trampoline for a Wide frame: arguments 9 to 12 go on the
// stack, the ninth lowest, below the return address that the call overwrites.
TEXT wideTrampoline<>(SB), NOSPLIT|NOFRAME, $0-0
	SUB  $48, RSP
	MOVD R30, 32(RSP)
	MOVD R0, R9
	MOVD Wide_Fn(R9), R16
	MOVD (Wide_Arg+64)(R9), R10
	MOVD R10, 0(RSP)
	MOVD (Wide_Arg+72)(R9), R10
	MOVD R10, 8(RSP)
	MOVD (Wide_Arg+80)(R9), R10
	MOVD R10, 16(RSP)
	MOVD (Wide_Arg+88)(R9), R10
	MOVD R10, 24(RSP)
	MOVD (Wide_Arg+0)(R9), R0
	MOVD (Wide_Arg+8)(R9), R1
	MOVD (Wide_Arg+16)(R9), R2
	MOVD (Wide_Arg+24)(R9), R3
	MOVD (Wide_Arg+32)(R9), R4
	MOVD (Wide_Arg+40)(R9), R5
	MOVD (Wide_Arg+48)(R9), R6
	MOVD (Wide_Arg+56)(R9), R7
	CALL (R16)
	MOVD 32(RSP), R30
	ADD  $48, RSP
	RET

DATA ·wideTrampolineAddr(SB)/8, $wideTrampoline<>(SB)
GLOBL ·wideTrampolineAddr(SB), NOPTR|RODATA, $8
