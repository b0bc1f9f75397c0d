package diff3

import (
	"math/rand/v2"
	"strings"
	"testing"
)

func text(words string) string { return strings.ReplaceAll(words, " ", "\n") }

func TestMerge(t *testing.T) {
	for name, c := range map[string]struct {
		base, ours, theirs, want string
		conflict                 bool
	}{
		"nothing":                    {"a b c ", "a b c ", "a b c ", "a b c ", false},
		"one side":                   {"a b c ", "a b c ", "a x c ", "a x c ", false},
		"both, apart":                {"a b c d e ", "A b c d e ", "a b c d E ", "A b c d E ", false},
		"both, the same":             {"a b c ", "a x c ", "a x c ", "a x c ", false},
		"both, the same line":        {"a b c ", "a x c ", "a y c ", "", true},
		"adjacent lines":             {"a b c d ", "a x c d ", "a b y d ", "", true},
		"added at both ends":         {"a b ", "x a b ", "a b y ", "x a b y ", false},
		"added at one place":         {"a b ", "a x b ", "a y b ", "", true},
		"removed and kept":           {"a b c d ", "a d ", "a b c d ", "a d ", false},
		"removed and changed":        {"a b c d ", "a d ", "a b x d ", "", true},
		"empty base":                 {"", "a ", "", "a ", false},
		"empty base, both":           {"", "a ", "b ", "", true},
		"all removed":                {"a b ", "", "a b ", "", false},
		"no newline at the end":      {"a b c", "x b c", "a b c", "x b c", false},
		"newline added, line edited": {"a b c", "a b c ", "x b c", "x b c ", false},
		"repeated lines":             {"a a a a ", "a a a a a ", "a a a a ", "a a a a a ", false},
	} {
		t.Run(name, func(t *testing.T) {
			got, ok := Merge(text(c.base), text(c.ours), text(c.theirs))
			if ok == c.conflict || got != text(c.want) {
				t.Errorf("got %q, %v, want %q", got, ok, text(c.want))
			}
			back, ok := Merge(text(c.base), text(c.theirs), text(c.ours))
			if ok == c.conflict || back != text(c.want) {
				t.Errorf("the other way round: %q, %v", back, ok)
			}
		})
	}
}

// Edits of separate halves always merge to both of them.
func TestRandomEditsOfHalves(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	edit := func(half []string) []string {
		var out []string
		for _, line := range half {
			switch r.IntN(4) {
			case 0:
			case 1:
				out = append(out, line, string(rune('a'+r.IntN(3)))+"\n")
			default:
				out = append(out, line)
			}
		}
		return out
	}
	for range 2000 {
		var halves [2][]string
		for h := range halves {
			for range r.IntN(12) {
				halves[h] = append(halves[h], string(rune('a'+r.IntN(3)))+"\n")
			}
		}
		const middle = "=\n=\n"
		join := func(a, b []string) string { return strings.Join(a, "") + middle + strings.Join(b, "") }
		first, last := edit(halves[0]), edit(halves[1])
		got, ok := Merge(join(halves[0], halves[1]), join(first, halves[1]), join(halves[0], last))
		if want := join(first, last); !ok || got != want {
			t.Fatalf("of %q and %q: %q, %v, want %q", halves[0], halves[1], got, ok, want)
		}
	}
}

func TestTextsThatDifferTooMuch(t *testing.T) {
	long := func(n int, line string) string { return strings.Repeat(line+"\n", n) }
	if _, ok := Merge(long(100_000, "a"), long(100_000, "b"), long(100_000, "a")); ok {
		t.Error("it has a limit")
	}
	if got, ok := Merge(long(100_000, "a"), long(100_900, "a"), long(100_000, "a")); !ok || len(got) != 2*100_900 {
		t.Error("a few edits of a long text are merged")
	}
}

func FuzzMerge(f *testing.F) {
	f.Add("a\nb\n", "a\nc\n", "x\na\nb")
	f.Fuzz(func(t *testing.T, base, ours, theirs string) {
		if len(base)+len(ours)+len(theirs) > 4096 {
			return
		}
		if got, ok := Merge(base, ours, base); ok && got != ours {
			t.Errorf("only ours changed: %q", got)
		}
		if got, ok := Merge(base, base, theirs); ok && got != theirs {
			t.Errorf("only theirs changed: %q", got)
		}
		a, okA := Merge(base, ours, theirs)
		b, okB := Merge(base, theirs, ours)
		if okA != okB || a != b {
			t.Errorf("it depends on the order: %q %v, %q %v", a, okA, b, okB)
		}
	})
}
