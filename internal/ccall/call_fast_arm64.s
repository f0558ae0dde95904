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

// pairTrampoline runs trampoline for the first frame of a Pair and, if that returns
// 0, for the second.
TEXT pairTrampoline<>(SB), NOSPLIT|NOFRAME, $0-0
	SUB  $16, RSP
	MOVD R30, 0(RSP)
	MOVD R19, 8(RSP)
	MOVD R0, R19
	ADD  $Pair_First, R19, R0
	CALL trampoline<>(SB)
	CBNZW R0, done
	ADD  $Pair_Second, R19, R0
	CALL trampoline<>(SB)

done:
	MOVD 8(RSP), R19
	MOVD 0(RSP), R30
	ADD  $16, RSP
	RET

DATA ·pairTrampolineAddr(SB)/8, $pairTrampoline<>(SB)
GLOBL ·pairTrampolineAddr(SB), NOPTR|RODATA, $8

// scopedTrampoline enters a scope, runs a routine and leaves the scope. The routine may
// be scopedTrampoline itself, for another scope within this one. On the stack are R30,
// R19, the routine's result, and the word that both functions have.
TEXT scopedTrampoline<>(SB), NOSPLIT|NOFRAME, $0-0
	SUB  $32, RSP
	MOVD R30, 0(RSP)
	MOVD R19, 8(RSP)
	MOVD R0, R19
	MOVD scoped_scope(R19), R9
	MOVD Scope_Value(R9), R0
	MOVD R0, 24(RSP)
	MOVD Scope_ByAddress(R9), R10
	CBZ  R10, enter
	ADD  $24, RSP, R0

enter:
	MOVD Scope_Enter(R9), R9
	CALL (R9)
	CBNZW R0, failed
	MOVD scoped_frame(R19), R0
	MOVD scoped_routine(R19), R9
	CALL (R9)
	MOVW R0, 16(RSP)
	MOVD scoped_scope(R19), R9
	MOVD Scope_Leave(R9), R9
	ADD  $24, RSP, R0
	CALL (R9)
	MOVW 16(RSP), R9
	CBNZW R9, own
	MOVD scoped_scope(R19), R10
	MOVD Scope_Lenient(R10), R10
	CBZ  R10, done

own:
	MOVW R9, R0
	JMP  done

failed:
	MOVD scoped_scope(R19), R9
	MOVD Scope_Lenient(R9), R9
	CBZ  R9, done
	MOVD scoped_frame(R19), R0
	MOVD scoped_routine(R19), R9
	CALL (R9)

done:
	MOVD 8(RSP), R19
	MOVD 0(RSP), R30
	ADD  $32, RSP
	RET

DATA ·scopedTrampolineAddr(SB)/8, $scopedTrampoline<>(SB)
GLOBL ·scopedTrampolineAddr(SB), NOPTR|RODATA, $8
