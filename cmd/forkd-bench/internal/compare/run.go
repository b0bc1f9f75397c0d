package compare

import (
	"context"
	"fmt"
)

// Side is one of the two compared sides.
type Side interface {
	// Settle waits until a lap can begin. Run settles both sides before a lap of either, because
	// they share the host.
	Settle(ctx context.Context) error
	// Lap measures once. It returns the same names in the same order each time, and leaves no
	// process running.
	Lap(ctx context.Context) ([]Value, error)
}

// Run lets the sides take turns for so many rounds. The first lap of each side fills caches and
// does not count. Run passes progress messages to say.
func Run(ctx context.Context, a, b Side, rounds int, say func(string)) ([]Figure, error) {
	r := race{sides: [2]Side{a, b}, laps: [2]map[string][]float64{{}, {}}}
	for i := range r.sides {
		if _, err := r.lap(ctx, i); err != nil {
			return nil, err
		}
	}
	for round := range rounds {
		say(fmt.Sprintf("round %d of %d", round+1, rounds))
		first := round % 2 // A B, B A, A B: a drift of the host affects both sides
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

// race holds the results of the laps.
type race struct {
	sides [2]Side
	laps  [2]map[string][]float64 // by side, then by name
	names []string                // in the order of the laps
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
