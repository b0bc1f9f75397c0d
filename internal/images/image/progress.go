package image

// Step is a part of a build or transfer. Steps occur in this order.
type Step string

// Values of Step.
const (
	StepResolve Step = "resolve packages"
	StepKernel  Step = "kernel"
	StepRoot    Step = "root packages"
	StepFetch   Step = "layers" // of an image of a container tool
	StepPack    Step = "pack root"
	StepInitrd  Step = "initramfs"
	StepUpper   Step = "writable disk"
	StepStore   Step = "store"
	StepSend    Step = "transfer"
)

// Progress reports the progress of a step. A step begins with Fraction 0 or -1 and ends with Done. A step
// answered from the cache is reported once, with Cached and Done.
type Progress struct {
	Step Step
	// Fraction is 0 to 1, or -1 if unknown. It never decreases within a step.
	Fraction float64
	// Detail describes the current work for people: a package's name, a size.
	Detail string
	Cached bool
	Done   bool
}

// reporter is a progress callback that may be nil. Calls do not overlap.
type reporter func(Progress)

func (r reporter) begin(s Step, detail string) {
	if r != nil {
		r(Progress{Step: s, Fraction: -1, Detail: detail})
	}
}

func (r reporter) at(s Step, fraction float64, detail string) {
	if r != nil {
		r(Progress{Step: s, Fraction: min(max(fraction, 0), 1), Detail: detail})
	}
}

func (r reporter) done(s Step, cached bool, detail string) {
	if r != nil {
		r(Progress{Step: s, Fraction: 1, Detail: detail, Cached: cached, Done: true})
	}
}
