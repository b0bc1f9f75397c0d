package measure

import "github.com/forkd/forkd/api"

// Step is one step of an operation, from its receipt.
type Step struct {
	Name string  `json:"name"`
	MS   float64 `json:"ms"`
}

// Steps collects the times of the steps of an operation, by name. The zero value is empty.
type Steps struct {
	names []string // in order
	took  map[string][]float64
}

// Add adds the steps of one more operation.
func (s *Steps) Add(of []api.ReceiptStep) {
	if s.took == nil {
		s.took = map[string][]float64{}
	}
	for _, step := range of {
		if s.took[step.Name] == nil {
			s.names = append(s.names, step.Name)
		}
		s.took[step.Name] = append(s.took[step.Name], step.TookMS)
	}
}

// Medians returns the median of each step over all operations that had it, in the order of first
// appearance.
func (s *Steps) Medians() (out []Step) {
	for _, name := range s.names {
		out = append(out, Step{name, Median(s.took[name])})
	}
	return out
}
