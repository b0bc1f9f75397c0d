package netnative

// Figure is one figure, beside its floor and its mark (docs/inside/formats/json-output.md).
type Figure struct {
	Name  string  `json:"name"`
	Unit  string  `json:"unit"`
	Value float64 `json:"value"`
	Floor float64 `json:"floor,omitempty"` // of the same run; 0 if there is no floor
	// By is how Result is computed from Value and Floor.
	By     By      `json:"by"`
	Result float64 `json:"result"`
	// Low and High are the 95 % interval of a ratio over pairs, or 0 if there is no interval.
	Low  float64 `json:"low,omitempty"`
	High float64 `json:"high,omitempty"`
	// AtMost or AtLeast is the target of Result. Both are 0 if there is no target.
	AtMost  float64 `json:"at_most,omitempty"`
	AtLeast float64 `json:"at_least,omitempty"`
	Met     *bool   `json:"met,omitempty"`
}

// By is the computation of a figure's result from its value and its floor.
type By string

// The computations.
const (
	Alone      By = "value"
	Ratio      By = "ratio"      // value to floor
	Difference By = "difference" // value minus floor
)

// Beside sets a figure's floor and its result.
func (f Figure) Beside(floor float64, by By) Figure {
	f.Floor, f.By, f.Result = floor, by, f.Value
	switch {
	case by == Difference:
		f.Result = f.Value - floor
	case by == Ratio && floor > 0:
		f.Result = f.Value / floor
	}
	return f
}

// Most sets the maximum target of Result.
func (f Figure) Most(mark float64) Figure {
	met := f.Result <= mark
	f.AtMost, f.Met = mark, &met
	return f
}

// Least sets the minimum target of Result.
func (f Figure) Least(mark float64) Figure {
	met := f.Result >= mark
	f.AtLeast, f.Met = mark, &met
	return f
}
