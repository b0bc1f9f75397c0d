package environ

import (
	"os/exec"
	"strings"
	"testing"
)

func TestCheck(t *testing.T) {
	for _, c := range []struct{ name, value, err string }{
		{"A", "", ""}, {"A", "x=y\nz", ""}, {"ä.b-c", "1", ""}, {"A", strings.Repeat("x", MaxVariable-2), ""},
		{"", "x", "without a name"}, {"A=B", "x", `"A=B"`}, {"A\nB", "x", "control"}, {"A\x00", "x", "control"},
		{"A", "x\x00", "zero byte"}, {"A", strings.Repeat("x", MaxVariable-1), "at most"},
		{strings.Repeat("n", MaxVariable) + "=", "x", `cannot contain "="`},
	} {
		err := Check(map[string]string{"FINE": "1", c.name: c.value})
		if (err == nil) != (c.err == "") || err != nil && (!strings.Contains(err.Error(), c.err) || len(err.Error()) > 300) {
			t.Errorf("%.20q: %v, want %q", c.name, err, c.err)
		}
	}
	many := map[string]string{}
	for i := range 20 {
		many[strings.Repeat("x", i+1)] = strings.Repeat("x", 100<<10)
	}
	if err := Check(many); err == nil || !strings.Contains(err.Error(), "in a file") {
		t.Errorf("2 MiB: %v", err)
	}
}

// TestTheKernelAgrees starts a program with the largest variable.
func TestTheKernelAgrees(t *testing.T) {
	cmd := exec.Command("/bin/true")
	cmd.Env = []string{"A=" + strings.Repeat("x", MaxVariable-2)}
	if err := cmd.Run(); err != nil {
		t.Error(err)
	}
	cmd = exec.Command("/bin/true")
	cmd.Env = []string{"A=" + strings.Repeat("x", MaxVariable-1)}
	if cmd.Run() == nil {
		t.Error("the kernel takes one byte more")
	}
}

func FuzzCheck(f *testing.F) {
	f.Add("A", "x")
	f.Add("A=", "\x00")
	f.Fuzz(func(t *testing.T, name, value string) {
		if Check(map[string]string{name: value}) == nil && (name == "" || strings.ContainsAny(name, "=\n\x00") ||
			strings.Contains(value, "\x00")) {
			t.Errorf("%q=%q is accepted", name, value)
		}
	})
}
