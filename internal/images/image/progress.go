package image

// Step is a part of a build or a transfer, in this order.
type Step string

// Steps.
const (
	StepResolve Step = "resolve packages"
	StepKernel  Step = "kernel"
	StepRoot    Step = "root packages"
	StepPack    Step = "pack root"
	StepInitrd  Step = "initramfs"
	StepUpper   Step = "writable disk"
	StepStore   Step = "store"
	StepSend    Step = "transfer"
)

// Progress tells how far a step is. A step begins with Fraction 0 or -1 and ends
// with Done; steps that the cache answers come once, with Cached and Done.
type Progress struct {
	Step Step
	// Fraction is 0 to 1, or -1 where it cannot be known; it never goes back within a step.
	Fraction float64
	// Detail is what is being done, for people: a package's name, a size.
	Detail string
	Cached bool
	Done   bool
}

// reporter is a progress callback that may be nil. It is called from one goroutine at a time.
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
