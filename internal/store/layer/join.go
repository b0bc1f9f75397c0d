package layer

import "slices"

// join reduces ascending runs to at most max by filling the cheapest gaps between them with content: an
// additional run costs each child more than some stored pages. Filled gaps, and the zero runs next to them,
// become data, with content taken from the image. FileOffset is unset in the result.
func join(runs []run, max int) []run {
	out := make([]run, 0, len(runs))
	for _, r := range runs {
		r.FileOffset = 0
		if last := len(out) - 1; last >= 0 && out[last].touches(r) {
			out[last].Length += r.Length
			continue
		}
		out = append(out, r)
	}
	excess := len(out) - max
	if excess <= 0 || max < 1 {
		return out
	}
	joined := make([]bool, len(out)) // with the previous run
	for _, i := range cheapest(out)[:excess] {
		joined[i] = true
	}
	merged := out[:0]
	for i, r := range out {
		if !joined[i] {
			merged = append(merged, r)
			continue
		}
		last := &merged[len(merged)-1]
		last.Length, last.Zero = r.end()-last.Offset, false
	}
	return coalesce(merged)
}

// cheapest orders all runs except the first by the number of bytes stored if each is joined with the previous
// one.
func cheapest(runs []run) []int {
	cost := func(i int) int64 {
		c := runs[i].Offset - runs[i-1].end()
		for _, r := range runs[i-1 : i+1] {
			if r.Zero {
				c += r.Length
			}
		}
		return c
	}
	order := make([]int, 0, len(runs))
	for i := 1; i < len(runs); i++ {
		order = append(order, i)
	}
	slices.SortStableFunc(order, func(a, b int) int { return int(cost(a)>>12) - int(cost(b)>>12) })
	return order
}

// coalesce joins adjacent runs in place.
func coalesce(runs []run) []run {
	out := runs[:0]
	for _, r := range runs {
		if last := len(out) - 1; last >= 0 && out[last].touches(r) {
			out[last].Length += r.Length
			continue
		}
		out = append(out, r)
	}
	return out
}
