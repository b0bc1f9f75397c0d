//go:build linux

package compile

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"

	"golang.org/x/net/bpf"

	"github.com/forkd/forkd/internal/confine/seccomp"
)

// Offsets into struct seccomp_data. Words are in host order, so the lower half of an argument comes first.
const (
	offNumber = 0
	offArch   = 4
	offArgs   = 16
)

const (
	archX8664 = 0xc000003e // AUDIT_ARCH_X86_64
	x32       = 0x40000000 // bit in the numbers of x32's calls
)

// maxInstructions is the kernel's limit (BPF_MAXINSNS). maxJump is the limit of a conditional jump.
const (
	maxInstructions = 4096
	maxJump         = 255
)

// Program compiles a list to a filter's instructions in package seccomp's format.
func Program(text []byte) ([]byte, error) {
	code, err := instructions(text)
	if err != nil {
		return nil, err
	}
	raw, err := bpf.Assemble(code)
	if err != nil {
		return nil, err
	}
	var out []byte
	for _, i := range raw {
		out = binary.LittleEndian.AppendUint16(out, i.Op)
		out = append(out, i.Jt, i.Jf)
		out = binary.LittleEndian.AppendUint32(out, i.K)
	}
	return out, nil
}

func instructions(text []byte) ([]bpf.Instruction, error) {
	l, err := parse(text)
	if err != nil {
		return nil, err
	}
	listed, other := uint32(seccomp.RetAllow), uint32(seccomp.RetKill)
	if l.allow {
		listed, other = other, listed
	}
	code := prologue()
	first := min(first, len(l.calls))
	inOrder, err := chain(l.calls[:first], listed, other)
	if err != nil {
		return nil, err
	}
	rest := slices.Clone(l.calls[first:])
	slices.SortFunc(rest, func(a, b call) int { return cmp.Compare(a.number, b.number) })
	searched, err := search(rest, listed, other)
	if err != nil {
		return nil, err
	}
	code = slices.Concat(code, inOrder, searched)
	if len(code) > maxInstructions {
		return nil, fmt.Errorf("%d instructions, want at most %d", len(code), maxInstructions)
	}
	return code, nil
}

// first is the number of calls compared before all others, in the list's order. leaf is the number of calls
// compared one after another at the end of the binary search.
const (
	first = 2
	leaf  = 6
)

// search is a binary search for a call. The kernel runs a program once for each possible call number when it is
// installed, to learn which calls always pass. Later it runs the program for each of the other calls.
func search(calls []call, listed, other uint32) ([]bpf.Instruction, error) {
	if len(calls) <= leaf {
		code, err := chain(calls, listed, other)
		return append(code, bpf.RetConstant{Val: other}), err
	}
	half := len(calls) / 2
	below, err := search(calls[:half], listed, other)
	if err != nil {
		return nil, err
	}
	code, err := jumpOver(bpf.JumpLessThan, calls[half].number, below)
	if err != nil {
		return nil, err
	}
	above, err := search(calls[half:], listed, other)
	return append(code, above...), err
}

// chain compares one call after another.
func chain(calls []call, listed, other uint32) (code []bpf.Instruction, err error) {
	for _, c := range calls {
		block, err := c.block(listed, other)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.name, err)
		}
		code = append(code, block...)
	}
	return code, nil
}

// prologue denies calls of other architectures, whose numbers have other meanings, and leaves the call's number
// in A.
func prologue() []bpf.Instruction {
	code := []bpf.Instruction{
		bpf.LoadAbsolute{Off: offArch, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: archX8664, SkipTrue: 1},
		bpf.RetConstant{Val: seccomp.RetKill},
		bpf.LoadAbsolute{Off: offNumber, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpGreaterOrEqual, Val: x32, SkipFalse: 1},
		bpf.RetConstant{Val: seccomp.RetKill},
	}
	if len(code) != seccomp.Prologue {
		panic("compile: the prologue is not as long as package seccomp thinks")
	}
	return code
}

// block returns the code for one call. The call's number is in A, and stays there if the block is skipped. A
// block that is entered returns.
func (c call) block(listed, other uint32) ([]bpf.Instruction, error) {
	var body []bpf.Instruction
	for _, a := range c.cases {
		to := listed
		if a.errno != 0 {
			to = seccomp.RetErrno | a.errno
		}
		code, err := a.code(to)
		if err != nil {
			return nil, err
		}
		body = append(body, code...)
	}
	if len(c.cases[len(c.cases)-1].when) > 0 {
		body = append(body, bpf.RetConstant{Val: other})
	}
	return jumpOver(bpf.JumpEqual, c.number, body)
}

// jumpOver executes body if A satisfies the comparison, and skips it otherwise.
func jumpOver(cond bpf.JumpTest, v uint32, body []bpf.Instruction) ([]bpf.Instruction, error) {
	if len(body) <= maxJump {
		return append([]bpf.Instruction{bpf.JumpIf{Cond: cond, Val: v, SkipFalse: uint8(len(body))}}, body...), nil
	}
	return append([]bpf.Instruction{
		bpf.JumpIf{Cond: cond, Val: v, SkipTrue: 1}, bpf.Jump{Skip: uint32(len(body))},
	}, body...), nil
}

// code returns to if all conditions hold. Otherwise execution continues after it.
func (a answer) code(to uint32) ([]bpf.Instruction, error) {
	code := []bpf.Instruction{bpf.RetConstant{Val: to}}
	for i := len(a.when) - 1; i >= 0; i-- { // innermost condition first
		var err error
		if code, err = a.when[i].code(code); err != nil {
			return nil, err
		}
	}
	return code, nil
}

// code executes body if the condition holds, and skips it otherwise.
func (c condition) code(body []bpf.Instruction) ([]bpf.Instruction, error) {
	off := uint32(offArgs + 8*c.arg)
	low := []bpf.Instruction{bpf.LoadAbsolute{Off: off, Size: 4}}
	if c.mask != 0 {
		low = append(low, bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: c.mask})
	}
	for i, v := range c.values {
		left := len(c.values) - 1 - i // comparisons after this one
		j := bpf.JumpIf{Cond: bpf.JumpEqual, Val: v, SkipTrue: uint8(left)}
		if left == 0 {
			if len(body) > maxJump {
				return nil, fmt.Errorf("conditions are too long for a jump over %d instructions", len(body))
			}
			j.SkipFalse = uint8(len(body))
		}
		low = append(low, j)
	}
	code := append(low, body...)
	if c.mask != 0 {
		return code, nil
	}
	if len(code) > maxJump {
		return nil, fmt.Errorf("conditions are too long for a jump over %d instructions", len(code))
	}
	return append([]bpf.Instruction{
		bpf.LoadAbsolute{Off: off + 4, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: 0, SkipFalse: uint8(len(code))},
	}, code...), nil
}
