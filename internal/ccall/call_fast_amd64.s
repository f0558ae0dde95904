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

// wideTrampoline is trampoline for a Wide frame: arguments 7 to 12 go on the
// stack, the seventh lowest. It is entered with SP 8 below a multiple of 16 and
// the ABI wants a multiple of 16 at the call: 56 = 6 * 8 + 8.
TEXT wideTrampoline<>(SB), NOSPLIT|NOFRAME, $0-0
	SUBQ $56, SP
	MOVQ DI, R11
	MOVQ (Wide_Arg+48)(R11), AX
	MOVQ AX, 0(SP)
	MOVQ (Wide_Arg+56)(R11), AX
	MOVQ AX, 8(SP)
	MOVQ (Wide_Arg+64)(R11), AX
	MOVQ AX, 16(SP)
	MOVQ (Wide_Arg+72)(R11), AX
	MOVQ AX, 24(SP)
	MOVQ (Wide_Arg+80)(R11), AX
	MOVQ AX, 32(SP)
	MOVQ (Wide_Arg+88)(R11), AX
	MOVQ AX, 40(SP)
	MOVQ (Wide_Arg+0)(R11), DI
	MOVQ (Wide_Arg+8)(R11), SI
	MOVQ (Wide_Arg+16)(R11), DX
	MOVQ (Wide_Arg+24)(R11), CX
	MOVQ (Wide_Arg+32)(R11), R8
	MOVQ (Wide_Arg+40)(R11), R9
	MOVQ Wide_Fn(R11), R11
	XORL AX, AX
	CALL R11
	ADDQ $56, SP
	RET

DATA ·wideTrampolineAddr(SB)/8, $wideTrampoline<>(SB)
GLOBL ·wideTrampolineAddr(SB), NOPTR|RODATA, $8

// pairTrampoline runs trampoline for the first frame of a Pair and, if that returns
// 0, for the second. BX is the caller's to keep; pushing it aligns the stack.
TEXT pairTrampoline<>(SB), NOSPLIT|NOFRAME, $0-0
	PUSHQ BX
	MOVQ  DI, BX
	LEAQ  Pair_First(BX), DI
	CALL  trampoline<>(SB)
	TESTL AX, AX
	JNZ   done
	LEAQ  Pair_Second(BX), DI
	CALL  trampoline<>(SB)

done:
	POPQ BX
	RET

DATA ·pairTrampolineAddr(SB)/8, $pairTrampoline<>(SB)
GLOBL ·pairTrampolineAddr(SB), NOPTR|RODATA, $8

// scopedTrampoline enters a scope, runs a routine and leaves the scope. The routine may
// be scopedTrampoline itself, for another scope within this one. On the stack are the
// word that both functions have, the routine's result, and BX.
TEXT scopedTrampoline<>(SB), NOSPLIT|NOFRAME, $0-0
	PUSHQ BX
	SUBQ  $16, SP
	MOVQ  DI, BX
	MOVQ  scoped_scope(BX), R11
	MOVQ  Scope_Value(R11), DI
	MOVQ  DI, 0(SP)
	CMPQ  Scope_ByAddress(R11), $0
	JEQ   enter
	LEAQ  0(SP), DI

enter:
	XORL  AX, AX
	CALL  Scope_Enter(R11)
	TESTL AX, AX
	JNZ   failed
	MOVQ  scoped_frame(BX), DI
	CALL  scoped_routine(BX)
	MOVL  AX, 8(SP)
	MOVQ  scoped_scope(BX), R11
	LEAQ  0(SP), DI
	XORL  AX, AX
	CALL  Scope_Leave(R11)
	MOVL  8(SP), CX
	TESTL CX, CX
	JNZ   own
	MOVQ  scoped_scope(BX), R11
	CMPQ  Scope_Lenient(R11), $0
	JEQ   done

own:
	MOVL CX, AX
	JMP  done

failed:
	MOVQ scoped_scope(BX), R11
	CMPQ Scope_Lenient(R11), $0
	JEQ  done
	MOVQ scoped_frame(BX), DI
	CALL scoped_routine(BX)

done:
	ADDQ $16, SP
	POPQ BX
	RET

DATA ·scopedTrampolineAddr(SB)/8, $scopedTrampoline<>(SB)
GLOBL ·scopedTrampolineAddr(SB), NOPTR|RODATA, $8
