package portspec

import "testing"

func TestParse(t *testing.T) {
	for arg, want := range map[string]Spec{
		"8080":                 {"127.0.0.1:8080", 8080},
		"8080:80":              {"127.0.0.1:8080", 80},
		":80":                  {"127.0.0.1:0", 80},
		"0:80":                 {"127.0.0.1:0", 80},
		"0.0.0.0:8080:80":      {"0.0.0.0:8080", 80},
		"0.0.0.0::80":          {"0.0.0.0:0", 80},
		"localhost:8080:65535": {"localhost:8080", 65535},
		"[::1]:8080:80":        {"[::1]:8080", 80},
	} {
		if got, err := Parse(arg, "127.0.0.1"); err != nil || got != want {
			t.Errorf("%s: %+v, %v, want %+v", arg, got, err, want)
		}
	}
	for _, arg := range []string{"", ":", "0", "80:", "80:0", "x", "80:x", "x:80", "-1:80", "+1:80", "65536", "1:65536", "::80",
		"1:2:3:4", "[::1]:80", "[::1]", "::1:80:80", "8080/tcp", "080"} {
		if got, err := Parse(arg, "127.0.0.1"); err == nil {
			t.Errorf("%q became %+v", arg, got)
		}
	}
	if got, err := Parse("80", "::1"); err != nil || got.Local != "[::1]:80" {
		t.Errorf("another address: %+v, %v", got, err)
	}
}
