package diff3

// MaxEdits limits the removed and added lines between two versions. The memory for a comparison
// grows with its square, to 8 MiB.
const MaxEdits = 1000

// matches returns for each line of a the line of b that it is kept as, or -1. It reports false if
// there are more than MaxEdits edits. It is Myers' algorithm: the fewest edits.
func matches(a, b []string) ([]int, bool) {
	to := make([]int, len(a))
	for i := range to {
		to[i] = -1
	}
	head := 0
	for head < min(len(a), len(b)) && a[head] == b[head] {
		to[head] = head
		head++
	}
	endA, endB := len(a), len(b)
	for endA > head && endB > head && a[endA-1] == b[endB-1] {
		endA, endB = endA-1, endB-1
		to[endA] = endB
	}
	s := search{a: a[head:endA], b: b[head:endB]}
	if !s.run() {
		return nil, false
	}
	s.each(func(x, y int) { to[head+x] = head + y })
	return to, true
}

// search finds the shortest path of edits from a to b. A diagonal is the set of positions x, y with
// the same x-y.
type search struct {
	a, b []string
	// rounds holds, for each number of edits d, the furthest x on the diagonals -d to d.
	rounds [][]int32
}

func (s *search) run() bool {
	for d := 0; d <= MaxEdits; d++ {
		s.rounds = append(s.rounds, make([]int32, 2*d+1))
		for k := -d; k <= d; k += 2 {
			x := s.enter(d, k)
			for y := x - k; x < len(s.a) && y < len(s.b) && s.a[x] == s.b[y]; y++ {
				x++
			}
			s.rounds[d][d+k] = int32(x) //nolint:gosec // at most the number of lines
			if x >= len(s.a) && x-k >= len(s.b) {
				return true
			}
		}
	}
	return false
}

// enter returns the x at which round d begins on diagonal k: after an added or a removed line.
func (s *search) enter(d, k int) int {
	if d == 0 {
		return 0
	}
	if s.added(d, k) {
		return s.at(d-1, k+1)
	}
	return s.at(d-1, k-1) + 1
}

// added reports whether round d comes to diagonal k by a line added to a.
func (s *search) added(d, k int) bool {
	return k == -d || k != d && s.at(d-1, k-1) < s.at(d-1, k+1)
}

func (s *search) at(d, k int) int { return int(s.rounds[d][d+k]) }

// each calls f for all pairs of equal lines on the path, from its end.
func (s *search) each(f func(x, y int)) {
	x, y := len(s.a), len(s.b)
	for d := len(s.rounds) - 1; d >= 0; d-- {
		k := x - y
		for begin := s.enter(d, k); x > begin; {
			x, y = x-1, y-1
			f(x, y)
		}
		if d == 0 {
			return
		}
		if s.added(d, k) {
			y--
		} else {
			x--
		}
	}
}
