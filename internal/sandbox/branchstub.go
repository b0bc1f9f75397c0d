package sandbox

import "context"

// Branch is here for the tree to build until the engine's own is merged.
func (e *Engine) Branch(context.Context, BranchRequest) (BranchResult, error) {
	return BranchResult{}, problem(ErrInvalid, "", "this build cannot branch")
}
