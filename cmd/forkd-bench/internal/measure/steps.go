package measure

import "github.com/forkd/forkd/api"

// Step is one step of an operation, as the receipts tell of it.
type Step struct {
	Name string  `json:"name"`
	MS   float64 `json:"ms"`
}

// Steps collects how long the steps of an operation took, by their names; the zero value has none.
type Steps struct {
	names []string // in order
	took  map[string][]float64
}

// Add notes the steps of one more operation.
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

// Medians are over all operations that had the step, in the order in which the steps were first seen.
func (s *Steps) Medians() (out []Step) {
	for _, name := range s.names {
		out = append(out, Step{name, Median(s.took[name])})
	}
	return out
}
