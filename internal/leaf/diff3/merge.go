package diff3

import (
	"slices"
	"strings"
)

// Merge returns base with the changes of both versions. It reports false if both change the same or
// adjacent lines in different ways, or if a version differs from base in more than MaxEdits lines.
func Merge(base, ours, theirs string) (string, bool) {
	a, o, t := lines(base), lines(ours), lines(theirs)
	toOurs, ok := matches(a, o)
	if !ok {
		return "", false
	}
	toTheirs, ok := matches(a, t)
	if !ok {
		return "", false
	}
	m := merger{a: a, o: o, t: t, toOurs: toOurs, toTheirs: toTheirs}
	return m.merge()
}

// lines splits a text after each newline. The last line may lack one, and then differs from the same
// line with one.
func lines(s string) []string {
	all := strings.SplitAfter(s, "\n")
	if all[len(all)-1] == "" {
		all = all[:len(all)-1]
	}
	return all
}

// merger walks through three texts. Its fields i, j and k are the next lines of a, o and t.
type merger struct {
	a, o, t          []string
	toOurs, toTheirs []int // the line of o, and of t, that each line of a is kept as; -1 if it is not
	i, j, k          int
	out              strings.Builder
}

func (m *merger) merge() (string, bool) {
	for {
		for m.i < len(m.a) && m.toOurs[m.i] == m.j && m.toTheirs[m.i] == m.k {
			m.out.WriteString(m.a[m.i])
			m.i, m.j, m.k = m.i+1, m.j+1, m.k+1
		}
		// The next line that both versions have ends a changed piece.
		x := m.i
		for x < len(m.a) && (m.toOurs[x] < 0 || m.toTheirs[x] < 0) {
			x++
		}
		j, k := len(m.o), len(m.t)
		if x < len(m.a) {
			j, k = m.toOurs[x], m.toTheirs[x]
		}
		if !m.piece(m.a[m.i:x], m.o[m.j:j], m.t[m.k:k]) {
			return "", false
		}
		if m.i, m.j, m.k = x, j, k; x == len(m.a) {
			return m.out.String(), true
		}
	}
}

// piece writes the version that has changed. It reports false if both have, differently.
func (m *merger) piece(a, o, t []string) bool {
	switch {
	case slices.Equal(o, a), slices.Equal(o, t):
		o = t
	case !slices.Equal(t, a):
		return false
	}
	for _, line := range o {
		m.out.WriteString(line)
	}
	return true
}
