package sandbox

import "testing"

func TestIDsWithoutDashes(t *testing.T) {
	for name, want := range map[string]string{
		"sb5f3a00120001":      "sb-5f3a0012-0001",
		"sb0000000112345":     "sb-00000001-12345",
		"sb-5f3a0012-0001":    "sb-5f3a0012-0001",
		"sb5f3a0012001":       "sb5f3a0012001", // too short an index
		"sb5F3A00120001":      "sb5F3A00120001",
		"xsb5f3a00120001":     "xsb5f3a00120001",
		"":                    "",
		"sb-5f3a00120001":     "sb-5f3a00120001",
		"sb5f3a00120001\nand": "sb5f3a00120001\nand",
	} {
		if got := CanonicalID(name); got != want {
			t.Errorf("%q became %q, want %q", name, got, want)
		}
	}
	if got := DNSID("sb-5f3a0012-0001"); got != "sb5f3a00120001" || CanonicalID(got) != "sb-5f3a0012-0001" {
		t.Errorf("for host names: %q", got)
	}
}
