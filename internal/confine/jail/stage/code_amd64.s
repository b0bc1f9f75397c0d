#include "textflag.h"

// What begins here is copied into executables, and never called. It uses no address of this program,
// and no stack. BX is the call that is to be made, R12 what was kept. The constants are those of
// script.go and image.go: TestTheCodeKnowsItsPlaces compares them.
#define callsAt 0x700000
#define errors  0x600000

TEXT ·run(SB), NOSPLIT|NOFRAME, $0-0
	MOVQ $callsAt, BX
	XORQ R12, R12

make:
	MOVL  0(BX), AX
	MOVQ  16(BX), DI
	MOVQ  24(BX), SI
	MOVQ  32(BX), DX
	MOVQ  40(BX), R10
	MOVQ  48(BX), R8
	MOVQ  56(BX), R9
	TESTB $2, 4(BX)   // the first argument is what was kept
	JEQ   call
	MOVQ  R12, DI

call:
	SYSCALL
	CMPQ  AX, $-4095  // unsigned: from there on it is an error
	JCC   failed
	TESTB $1, 4(BX)
	JEQ   done
	MOVQ  AX, R12

done:
	MOVBLZX 5(BX), CX
	JMP     next

failed:
	NEGQ    AX
	MOVWLZX 6(BX), DX
	CMPL    AX, DX
	JEQ     fine
	CMPL    AX, $255
	JLS     tell
	MOVL    $255, AX

tell:
	MOVBLZX 9(BX), DX
	MOVQ    $errors, R13
	MOVB    AX, (R13)(DX*1)
	MOVL    12(BX), CX
	JMP     next

fine:
	MOVBLZX 8(BX), CX

next:
	INCQ CX
	SHLQ $6, CX // a call has 64 bytes
	ADDQ CX, BX
	JMP  make

TEXT ·runEnd(SB), NOSPLIT|NOFRAME, $0-0
	UNDEF

// func bounds() (begin, end uintptr)
TEXT ·bounds(SB), NOSPLIT, $0-16
	LEAQ ·run(SB), AX
	MOVQ AX, begin+0(FP)
	LEAQ ·runEnd(SB), AX
	MOVQ AX, end+8(FP)
	RET
