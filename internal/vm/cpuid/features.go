package cpuid

import (
	"fmt"

	"github.com/forkd/forkd/internal/vm/kvm"
)

// featureWord is a CPUID register of feature bits.
type featureWord struct {
	leaf, sub uint32
	reg       string
	get       func(*kvm.CPUIDEntry) uint32
	names     [32]string // an array, since each start of a VMM would have to fill a map
}

func eax(e *kvm.CPUIDEntry) uint32 { return e.EAX }
func ebx(e *kvm.CPUIDEntry) uint32 { return e.EBX }
func ecx(e *kvm.CPUIDEntry) uint32 { return e.ECX }
func edx(e *kvm.CPUIDEntry) uint32 { return e.EDX }

// featureWords lists the features a snapshot may depend on, with Linux's names of the features used
// by programs (arch/x86/include/asm/cpufeatures.h).
var featureWords = []featureWord{
	{1, 0, "ecx", ecx, [32]string{0: "sse3", 1: "pclmulqdq", 9: "ssse3", 12: "fma", 13: "cx16", 19: "sse4_1", 20: "sse4_2", 21: "x2apic", 22: "movbe", 23: "popcnt", 24: "tsc_deadline_timer", 25: "aes", 26: "xsave", 28: "avx", 29: "f16c", 30: "rdrand"}},
	{1, 0, "edx", edx, [32]string{4: "tsc", 5: "msr", 6: "pae", 8: "cx8", 15: "cmov", 19: "clflush", 23: "mmx", 24: "fxsr", 25: "sse", 26: "sse2"}},
	{7, 0, "ebx", ebx, [32]string{0: "fsgsbase", 3: "bmi1", 5: "avx2", 7: "smep", 8: "bmi2", 9: "erms", 10: "invpcid", 16: "avx512f", 17: "avx512dq", 18: "rdseed", 19: "adx", 20: "smap", 21: "avx512ifma", 23: "clflushopt", 24: "clwb", 28: "avx512cd", 29: "sha_ni", 30: "avx512bw", 31: "avx512vl"}},
	{7, 0, "ecx", ecx, [32]string{1: "avx512vbmi", 2: "umip", 3: "pku", 6: "avx512_vbmi2", 8: "gfni", 9: "vaes", 10: "vpclmulqdq", 11: "avx512_vnni", 12: "avx512_bitalg", 14: "avx512_vpopcntdq", 16: "la57", 22: "rdpid"}},
	{7, 0, "edx", edx, [32]string{4: "fsrm", 22: "amx_bf16", 23: "avx512_fp16", 24: "amx_tile", 25: "amx_int8"}},
	{7, 1, "eax", eax, [32]string{4: "avx_vnni", 5: "avx512_bf16"}},
	{0xd, 0, "eax", eax, [32]string{2: "xsave_ymm", 5: "xsave_opmask", 6: "xsave_zmm_hi256", 7: "xsave_hi16_zmm", 9: "xsave_pkru"}},
	{0xd, 1, "eax", eax, [32]string{0: "xsaveopt", 1: "xsavec", 2: "xgetbv1", 3: "xsaves"}},
	{0x80000001, 0, "ecx", ecx, [32]string{0: "lahf_lm", 5: "abm", 6: "sse4a", 8: "3dnowprefetch", 11: "xop", 16: "fma4", 21: "tbm"}},
	{0x80000001, 0, "edx", edx, [32]string{11: "syscall", 20: "nx", 26: "pdpe1gb", 27: "rdtscp", 29: "lm"}},
	{0x80000008, 0, "ebx", ebx, [32]string{0: "clzero", 2: "xsaveerptr"}},
}

// Missing returns the names of the features in need and not in have.
func Missing(need, have []kvm.CPUIDEntry) []string {
	var missing []string
	for _, w := range featureWords {
		missing = w.appendNames(missing, w.of(need)&^w.of(have))
	}
	return missing
}

// Features returns the names of a table's features.
func Features(table []kvm.CPUIDEntry) []string { return Missing(table, nil) }

func (w featureWord) appendNames(to []string, bits uint32) []string {
	for bit := range 32 {
		if bits&(1<<bit) == 0 {
			continue
		}
		name := w.names[bit]
		if name == "" {
			name = fmt.Sprintf("cpuid %#x.%d %s bit %d", w.leaf, w.sub, w.reg, bit)
		}
		to = append(to, name)
	}
	return to
}

func (w featureWord) of(table []kvm.CPUIDEntry) uint32 {
	e := leaf(table, w.leaf, w.sub)
	return w.get(&e)
}
