package compare

import (
	"context"
	"fmt"
)

// Side is one of the two that are compared.
type Side interface {
	// Settle waits until a lap can begin: on either side, for both share the host.
	Settle(ctx context.Context) error
	// Lap measures once. It gives the same names in the same order each time, and leaves nothing running.
	Lap(ctx context.Context) ([]Value, error)
}

// Run lets the sides take turns for so many rounds, after one lap of each that does
// not count: it fills caches. say is told what is going on.
func Run(ctx context.Context, a, b Side, rounds int, say func(string)) ([]Figure, error) {
	r := race{sides: [2]Side{a, b}, laps: [2]map[string][]float64{{}, {}}}
	for i := range r.sides {
		if _, err := r.lap(ctx, i); err != nil {
			return nil, err
		}
	}
	for round := range rounds {
		say(fmt.Sprintf("round %d of %d", round+1, rounds))
		first := round % 2 // A B, B A, A B: a drift of the host is neither's
		for _, i := range []int{first, 1 - first} {
			values, err := r.lap(ctx, i)
			if err != nil {
				return nil, fmt.Errorf("round %d: %w", round+1, err)
			}
			r.add(i, values)
		}
	}
	var out []Figure
	for _, name := range r.names {
		out = append(out, figure(name, r.laps[0][name], r.laps[1][name]))
	}
	return out, nil
}

// race is the laps so far.
type race struct {
	sides [2]Side
	laps  [2]map[string][]float64 // of each side, by name
	names []string                // in the laps' order
}

func (r *race) lap(ctx context.Context, i int) ([]Value, error) {
	for _, s := range r.sides {
		if err := s.Settle(ctx); err != nil {
			return nil, err
		}
	}
	values, err := r.sides[i].Lap(ctx)
	if err != nil {
		return nil, fmt.Errorf("side %c: %w", 'A'+rune(i), err)
	}
	return values, nil
}

func (r *race) add(i int, values []Value) {
	for _, v := range values {
		if len(r.laps[0][v.Name]) == 0 && len(r.laps[1][v.Name]) == 0 {
			r.names = append(r.names, v.Name)
		}
		r.laps[i][v.Name] = append(r.laps[i][v.Name], v.V)
	}
}
