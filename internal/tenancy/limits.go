package tenancy

import "github.com/forkd/forkd/internal/sandbox"

// maxCPUWeight is the highest CPU weight of a tenant's sandbox: four times the default.
const maxCPUWeight = 400

// checkLimits refuses limits that would raise a sandbox's share of the host beyond a tenant's
// ceiling. Every other limit only lowers the share.
func (v *lens) checkLimits(l sandbox.Limits) error {
	if !v.p.Operator() && l.CPUWeight > maxCPUWeight {
		return sandbox.Errorf(sandbox.ErrInvalid, "", "the CPU weight is %d: a tenant's sandbox has at most %d",
			l.CPUWeight, maxCPUWeight)
	}
	return nil
}
