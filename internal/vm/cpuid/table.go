package cpuid

import (
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/forkd/forkd/internal/vm/kvm"
)

// Section is the name of a state's section with a table, and Version its version
// (docs/inside/formats/vmstate.md).
const (
	Section = "cpuid"
	Version = 1
)

const (
	entrySize = 28
	maxLeaves = 1024
)

// Encode returns a table's bytes.
func Encode(table []kvm.CPUIDEntry) []byte {
	var b []byte
	for _, e := range table {
		for _, v := range []uint32{e.Function, e.Index, e.Flags, e.EAX, e.EBX, e.ECX, e.EDX} {
			b = binary.LittleEndian.AppendUint32(b, v)
		}
	}
	return b
}

// Decode is the inverse of Encode.
func Decode(b []byte) ([]kvm.CPUIDEntry, error) {
	if len(b)%entrySize != 0 || len(b)/entrySize > maxLeaves {
		return nil, fmt.Errorf("CPUID table has %d bytes", len(b))
	}
	out := make([]kvm.CPUIDEntry, len(b)/entrySize)
	for i := range out {
		var v [7]uint32
		for j := range v {
			v[j] = binary.LittleEndian.Uint32(b[i*entrySize+4*j:])
		}
		out[i] = kvm.CPUIDEntry{Function: v[0], Index: v[1], Flags: v[2], EAX: v[3], EBX: v[4], ECX: v[5], EDX: v[6]}
	}
	return out, nil
}

// leaf returns a leaf, or zeros if it is missing.
func leaf(table []kvm.CPUIDEntry, function, index uint32) kvm.CPUIDEntry {
	for _, e := range table {
		if e.Function == function && e.Index == index {
			return e
		}
	}
	return kvm.CPUIDEntry{}
}

// Vendor returns the maker as the processor spells it, such as GenuineIntel. Bytes other than
// printable ASCII become question marks. A table without leaf 0 has no maker.
func Vendor(table []kvm.CPUIDEntry) string {
	e := leaf(table, 0, 0)
	var b []byte
	for _, v := range []uint32{e.EBX, e.EDX, e.ECX} {
		b = binary.LittleEndian.AppendUint32(b, v)
	}
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, strings.TrimRight(string(b), "\x00"))
}

// Signature identifies a processor among its maker's.
type Signature struct {
	Family, Model, Stepping int // with the extended family and model added
}

// SignatureOf reads the signature from leaf 1 (Intel SDM 2A, figure 3-6; AMD APM 3,
// Fn0000_0001_EAX).
func SignatureOf(table []kvm.CPUIDEntry) Signature {
	eax := leaf(table, 1, 0).EAX
	s := Signature{Family: int(eax >> 8 & 0xf), Model: int(eax >> 4 & 0xf), Stepping: int(eax & 0xf)}
	extended := s.Family == 0xf
	if extended || s.Family == 6 {
		s.Model += int(eax>>16&0xf) << 4
	}
	if extended {
		s.Family += int(eax >> 20 & 0xff)
	}
	return s
}

func (s Signature) String() string {
	return fmt.Sprintf("family %d model %d stepping %d", s.Family, s.Model, s.Stepping)
}
