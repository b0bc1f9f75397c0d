package cpuid

import (
	"slices"
	"strings"
	"testing"

	"github.com/forkd/forkd/internal/vm/kvm"
)

func table(vendor string, signature uint32, more ...kvm.CPUIDEntry) []kvm.CPUIDEntry {
	word := func(i int) uint32 {
		return uint32(vendor[i]) | uint32(vendor[i+1])<<8 | uint32(vendor[i+2])<<16 | uint32(vendor[i+3])<<24
	}
	return append([]kvm.CPUIDEntry{{Function: 0, EBX: word(0), EDX: word(4), ECX: word(8)}, {Function: 1, EAX: signature}}, more...)
}

func TestMakersAndModels(t *testing.T) {
	for _, c := range []struct {
		vendor    string
		signature uint32
		want      Signature
	}{
		{"GenuineIntel", 0x000906ea, Signature{6, 158, 10}},
		{"AuthenticAMD", 0x00a20f10, Signature{25, 33, 0}},
		{"AuthenticAMD", 0x00000663, Signature{6, 6, 3}},
		{"GenuineIntel", 0x00000543, Signature{5, 4, 3}}, // no extended model before family 6
	} {
		tab := table(c.vendor, c.signature)
		if v, s := Vendor(tab), SignatureOf(tab); v != c.vendor || s != c.want {
			t.Errorf("%#x of %s is %s of %s, want %s", c.signature, c.vendor, s, v, c.want)
		}
	}
	if v := Vendor(nil); v != "" {
		t.Errorf("a table without leaves has the maker %q", v)
	}
	if v := Vendor(table("a\x1b[31m\"\\\xff\n--", 0)); strings.ContainsFunc(v, func(r rune) bool { return r < ' ' || r > '~' }) {
		t.Errorf("unprintable bytes are in %q", v)
	}
}

func TestFeaturesByName(t *testing.T) {
	has := table("GenuineIntel", 0, kvm.CPUIDEntry{Function: 7, EBX: 1<<5 | 1<<2}, kvm.CPUIDEntry{Function: 0xd, Index: 1, EAX: 8})
	if f := Features(has); !slices.Equal(f, []string{"cpuid 0x7.0 ebx bit 2", "avx2", "xsaves"}) {
		t.Errorf("features are %q", f)
	}
	if m := Missing(has, table("GenuineIntel", 0, kvm.CPUIDEntry{Function: 7, EBX: 1<<2 | 1<<9})); !slices.Equal(m, []string{"avx2", "xsaves"}) {
		t.Errorf("missing are %q", m)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(Encode(table("GenuineIntel", 0x000906ea)))
	f.Add([]byte("short"))
	f.Fuzz(func(t *testing.T, b []byte) {
		tab, err := Decode(b)
		if err != nil {
			return
		}
		if again := Encode(tab); string(again) != string(b) {
			t.Errorf("%x became %x", b, again)
		}
		for _, r := range Vendor(tab) {
			if r < ' ' || r > '~' {
				t.Errorf("maker is %q", Vendor(tab))
			}
		}
		if n := len(Features(tab)); n > 32*len(featureWords) {
			t.Errorf("%d features", n)
		}
		_ = SignatureOf(tab).String()
	})
}
